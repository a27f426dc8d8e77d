# driven: 200 sets, a get
# packages: memcached python3
cat > a.py <<'X'
import socket, sys, time
while True:
    try: f = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rwb"); break
    except OSError: time.sleep(0.05)
for i in range(200):
    f.write(b"set k%d 0 0 5\r\nhello\r\n" % i); f.flush(); assert f.readline() == b"STORED\r\n"
f.write(b"get k7\r\n"); f.flush(); assert [f.readline() for _ in range(3)] == [b"VALUE k7 0 5\r\n", b"hello\r\n", b"END\r\n"]
X
memcached -u nobody -l 127.0.0.1 -p $1 &
server=$!
/usr/bin/python3 a.py $1
kill $server; wait $server || true
