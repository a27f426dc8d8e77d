# driven: 200 requests between two threads, over TCP
# packages: python3-zmq
cat > a.py <<'X'
import sys, threading, zmq
at = 'tcp://127.0.0.1:' + sys.argv[1]
c = zmq.Context()
def serve():
    s = c.socket(zmq.REP); s.bind(at)
    for _ in range(200): s.send(s.recv())
t = threading.Thread(target=serve); t.start()
r = c.socket(zmq.REQ); r.connect(at)
for i in range(200):
    r.send(str(i).encode()); assert r.recv() == str(i).encode()
t.join()
X
/usr/bin/python3 a.py $1
