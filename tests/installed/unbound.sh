# driven: two threads, a local zone, ten questions over UDP and TCP
# packages: unbound bind9-dnsutils
printf 'server:\n interface: 127.0.0.1\n port: %s\n do-daemonize: no\n use-syslog: no\n chroot: ""\n directory: "%s"\n pidfile: "%s/pid"\n username: ""\n num-threads: 2\n local-zone: "ex." static\n local-data: "a.ex. A 192.0.2.1"\n' $1 $PWD $PWD > c
/usr/sbin/unbound -d -c $PWD/c > log 2>&1 &
server=$!
until dig +tries=1 +time=1 +short @127.0.0.1 -p $1 a.ex > out 2>&1 && grep -q 192.0.2.1 out; do sleep 0.1; done
for i in 1 2 3 4 5; do test "$(dig +short @127.0.0.1 -p $1 a.ex)" = 192.0.2.1; test "$(dig +tcp +short @127.0.0.1 -p $1 a.ex)" = 192.0.2.1; done
kill $server; wait $server
