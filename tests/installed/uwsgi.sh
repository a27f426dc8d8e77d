# driven: two workers of two threads, five requests
# packages: uwsgi-core uwsgi-plugin-python3 curl
cat > app.py <<'X'
def application(env, start): start('200 OK', [('Content-Type', 'text/plain')]); return [b'hello']
X
/usr/bin/uwsgi --plugin python3 --http-socket 127.0.0.1:$1 --wsgi-file app.py --master --processes 2 --threads 2 --die-on-term > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.1; done; grep -q hello out; done
kill $server; wait $server || true
