# driven: an append-only file, a replica, a rewrite
# packages: redis-server redis-tools
redis-server --port $PORT --bind 127.0.0.1 --dir . --appendonly yes --daemonize no > server.log &
server=$!
mkdir rep
redis-server --port $PORT2 --bind 127.0.0.1 --dir rep --replicaof 127.0.0.1 $PORT --daemonize no > replica.log &
replica=$!
until redis-cli -p $PORT ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
for i in $(seq 20); do redis-cli -p $PORT set k$i v$i > log; done
redis-cli -p $PORT bgrewriteaof > log
until test "$(redis-cli -p $PORT2 get k20 2>/dev/null)" = v20; do sleep 0.05; done
redis-cli -p $PORT2 shutdown nosave || true
redis-cli -p $PORT shutdown || true
wait $server $replica
