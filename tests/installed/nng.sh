# driven: five requests by nngcat
# packages: nng-utils
nngcat --rep --listen tcp://127.0.0.1:$1 --data pong > log &
server=$!
for i in 1 2 3 4 5; do until nngcat --req --dial tcp://127.0.0.1:$1 --data ping --raw > got 2>err; do sleep 0.05; done; grep -q pong got; done
kill $server; wait $server || true
