# driven: before a server in Python, five requests
# packages: haproxy curl
mkdir html; echo hello > html/a
/usr/bin/python3 -m http.server -b 127.0.0.1 -d html $1 > log 2>&1 &
web=$!
printf 'defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\nfrontend f\n bind 127.0.0.1:%s\n default_backend b\nbackend b\n server s 127.0.0.1:%s\n' $2 $1 > c
haproxy -f c > hlog 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$2/a > out; do sleep 0.05; done; grep -q hello out; done
kill $server $web; wait $server || true; wait $web || true
