# driven: five requests
# packages: lighttpd curl
mkdir html; echo hello > html/a
printf 'server.document-root = "%s/html"\nserver.port = %s\nserver.bind = "127.0.0.1"\n' $PWD $1 > c
/usr/sbin/lighttpd -D -f c > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.05; done; grep -q hello out; done
kill $server; wait $server || true
