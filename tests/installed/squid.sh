# driven: a proxy, five requests
# packages: squid python3 curl
mkdir html; echo hello > html/a; chmod 777 .
/usr/bin/python3 -m http.server --bind 127.0.0.1 -d html $2 > origin.log 2>&1 &
origin=$!
printf 'http_port 127.0.0.1:%s\nhttp_access allow all\npid_filename %s/pid\naccess_log none\ncache_log %s/cache.log\ncoredump_dir %s\nshutdown_lifetime 1 seconds\n' $1 $PWD $PWD $PWD > c
/usr/sbin/squid -N -f c > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf -x http://127.0.0.1:$1 http://127.0.0.1:$2/a > out; do sleep 0.1; done; grep -q hello out; done
kill $server; wait $server || true; kill $origin
