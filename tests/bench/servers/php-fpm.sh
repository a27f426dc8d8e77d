# work: two children, FastCGI requests one after the other
# packages: php-fpm
prepare() {
  printf '[global]\nerror_log=%s/err\ndaemonize=no\n[www]\nlisten=%s/s\npm=static\npm.max_children=2\n' $PWD $PWD > c
  echo '<?php echo 6*7;' > a.php
  cat > ask.py <<'X'
import os, socket, struct, sys
def rec(t, b): return struct.pack('>BBHHBB', 1, t, 1, len(b), 0, 0) + b
def kv(k, v): k, v = k.encode(), v.encode(); return bytes([len(k), len(v)]) + k + v
for i in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_UNIX); s.connect('s')
    s.sendall(rec(1, struct.pack('>HB5x', 1, 0)) + rec(4, kv('SCRIPT_FILENAME', os.getcwd() + '/a.php') + kv('REQUEST_METHOD', 'GET')) + rec(4, b'') + rec(5, b''))
    got = b''
    while part := s.recv(4096): got += part
    assert b'42' in got, got
X
}
drive() {
  $(ls /usr/sbin/php-fpm*) -R -y $PWD/c &
  until test -S s; do sleep 0.05; done
  /usr/bin/python3 ask.py $((500 * $2))
  kill -QUIT $!; wait
}
