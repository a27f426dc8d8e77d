# driven: before a server in Python, five requests
# packages: varnish curl
mkdir html; echo hello > html/a
/usr/bin/python3 -m http.server -b 127.0.0.1 -d html $1 > log 2>&1 &
web=$!
varnishd -F -n $PWD/v -a 127.0.0.1:$2 -b 127.0.0.1:$1 > vlog 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$2/a > out; do sleep 0.05; done; grep -q hello out; done
kill $server; wait $server || true; kill $web; wait $web || true
