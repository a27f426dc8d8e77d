# driven: a publisher and a subscriber
# packages: mosquitto
printf 'listener %s 127.0.0.1\nallow_anonymous true\n' $1 > c
mosquitto -c c > log 2>&1 &
server=$!
/usr/bin/python3 - $1 <<'X'
import socket, sys, time
def connect(name):
    while True:
        try: s = socket.create_connection(('127.0.0.1', sys.argv[1])); break
        except OSError: time.sleep(0.05)
    n = name.encode(); b = b'\0\4MQTT\4\2\0\x3c' + len(n).to_bytes(2, 'big') + n
    s.sendall(b'\x10' + bytes([len(b)]) + b); assert s.recv(4) == b'\x20\2\0\0'
    return s
a, b = connect('a'), connect('b')
b.sendall(b'\x82\6\0\1\0\1t\0'); assert b.recv(5)[0] == 0x90
for i in range(20):
    a.sendall(b'\x30\4\0\1t' + bytes([65 + i])); assert b.recv(6) == b'\x30\4\0\1t' + bytes([65 + i])
X
kill $server; wait $server || true
