# driven: an append-only file, a replica, a rewrite
# packages: redis-server redis-tools
redis-server --port $1 --bind 127.0.0.1 --dir . --appendonly yes --daemonize no > server.log &
server=$!
mkdir rep
redis-server --port $2 --bind 127.0.0.1 --dir rep --replicaof 127.0.0.1 $1 --daemonize no > replica.log &
replica=$!
until redis-cli -p $1 ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
for i in $(seq 20); do redis-cli -p $1 set k$i v$i > log; done
redis-cli -p $1 bgrewriteaof > log
until test "$(redis-cli -p $2 get k20 2>/dev/null)" = v20; do sleep 0.05; done
redis-cli -p $2 shutdown nosave || true
redis-cli -p $1 shutdown || true
wait $server $replica
