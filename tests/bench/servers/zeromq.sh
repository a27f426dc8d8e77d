# work: requests between two threads of Python, over TCP
# packages: python3-zmq
prepare() {
  cat > a.py <<'X'
import sys, threading, zmq
at, count = 'tcp://127.0.0.1:' + sys.argv[1], int(sys.argv[2])
c = zmq.Context()
def serve():
    s = c.socket(zmq.REP); s.bind(at)
    for _ in range(count): s.send(s.recv())
t = threading.Thread(target=serve); t.start()
r = c.socket(zmq.REQ); r.connect(at)
for i in range(count):
    r.send(str(i).encode()); assert r.recv() == str(i).encode()
t.join()
X
}
drive() { /usr/bin/python3 a.py $1 $((1000 * $2)); }
