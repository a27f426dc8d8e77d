# driven: two workers, new ones after a SIGHUP, ten requests
# packages: gunicorn curl
cat > app.py <<'X'
def application(env, start): start('200 OK', [('Content-Type', 'text/plain')]); return [b'hello']
X
/usr/bin/gunicorn -w 2 -b 127.0.0.1:$1 app > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.1; done; grep -q hello out; done
kill -HUP $server; until test "$(grep -c 'Booting worker' log)" -ge 4; do sleep 0.1; done
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.1; done; grep -q hello out; done
kill $server; wait $server || true
