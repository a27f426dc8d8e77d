# driven: five datagrams captured and printed; nmap scans ports with frames of its own
# packages: tcpdump nmap python3
tcpdump -l -nn -i lo -c 5 udp port $1 > got 2> err &
capture=$!
until grep -q listening err; do sleep 0.05; done
/usr/bin/python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(5): s.sendto(b"x" * (100 + i), ("127.0.0.1", int(sys.argv[1]))); time.sleep(0.01)' $1
wait $capture
for i in 0 1 2 3 4; do grep -q "UDP, length 10$i" got; done
nmap -n -sS -p $2 127.0.0.1 > scanned
grep -q "^$2/tcp closed" scanned
