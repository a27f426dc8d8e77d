# driven: two workers, five requests
# packages: uvicorn curl
cat > app.py <<'X'
async def app(scope, receive, send):
    if scope['type'] == 'http': await send({'type': 'http.response.start', 'status': 200, 'headers': []}); await send({'type': 'http.response.body', 'body': b'hello'})
X
/usr/bin/uvicorn --workers 2 --port $1 app:app > log 2>&1 &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.1; done; grep -q hello out; done
kill $server; wait $server || true
