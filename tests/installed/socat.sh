# driven: TCP to unix socket to a pty, datagrams, abstract sockets, FIFOs
# packages: socat util-linux
socat TCP-LISTEN:$1,bind=127.0.0.1,reuseaddr,fork EXEC:'tr a-z A-Z' &
upper=$!
socat UNIX-LISTEN:$PWD/u,fork TCP:127.0.0.1:$1 &
between=$!
until test "$(echo hello | socat - UNIX:$PWD/u 2> err)" = HELLO; do sleep 0.1; done
test "$(echo abc | socat -t1 STDIO EXEC:'rev',pty,raw,echo=0)" = cba
socat -u UDP-RECV:$2,bind=127.0.0.1 OPEN:got,creat,append &
receiver=$!
until grep -q dgram got 2> err; do echo dgram | socat -u - UDP-SENDTO:127.0.0.1:$2; sleep 0.1; done
socat -u ABSTRACT-RECVFROM:redrive$1 CREATE:got2 &
abstract=$!
until echo abstract | socat -u - ABSTRACT-SENDTO:redrive$1 2> err; do sleep 0.1; done
wait $abstract; grep -q abstract got2
mkfifo f; echo fifo > f &
test "$(socat -u PIPE:$PWD/f,rdonly -)" = fifo
test "$(echo hi | socat -t1 - PIPE)" = hi
kill $upper $between $receiver; wait || true
