# driven: a publisher and a subscriber
# packages: nats-server
nats-server -a 127.0.0.1 -p $1 > log 2>&1 &
server=$!
/usr/bin/python3 - $1 <<'X'
import socket, sys, time
while True:
    try: s = socket.create_connection(('127.0.0.1', sys.argv[1])); break
    except OSError: time.sleep(0.05)
f = s.makefile('rwb')
assert f.readline().startswith(b'INFO')
f.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
for i in range(20): f.write(b'PUB a 2\r\n%02d\r\n' % i)
f.flush()
for i in range(20): assert f.readline() == b'MSG a 1 2\r\n'; assert f.readline() == b'%02d\r\n' % i
X
kill $server; wait $server || true
