# driven: a web server, five requests
# packages: python3-twisted curl
mkdir html; echo hello > html/a
/usr/bin/twistd3 -n web --listen tcp:$1:interface=127.0.0.1 --path html > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.1; done; grep -q hello out; done
kill $server; wait $server || true
