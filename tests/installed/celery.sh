# driven: a worker of two processes, five tasks
# packages: celery python3-redis redis-server redis-tools
redis-server --port $1 --bind 127.0.0.1 --dir . --save '' > redis.log &
redis=$!
cat > t.py <<X
from celery import Celery
app = Celery('t', broker='redis://127.0.0.1:$1/0', backend='redis://127.0.0.1:$1/1')
@app.task
def add(x, y): return x + y
X
until redis-cli -p $1 ping > ping 2>&1; do sleep 0.1; done
/usr/bin/python3 -m celery -A t worker -c 2 -l warning > log 2>&1 &
worker=$!
/usr/bin/python3 -c 'from t import add; assert [add.delay(i, i).get(timeout=60) for i in range(5)] == [0, 2, 4, 6, 8]'
kill $worker; wait $worker || true; redis-cli -p $1 shutdown nosave; wait $redis || true
