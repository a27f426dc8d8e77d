# driven: a server, etcdctl put and get
# packages: etcd-server etcd-client
etcd --data-dir d --listen-client-urls http://127.0.0.1:$1 --advertise-client-urls http://127.0.0.1:$1 --listen-peer-urls http://127.0.0.1:$2 --initial-advertise-peer-urls http://127.0.0.1:$2 --initial-cluster default=http://127.0.0.1:$2 > log 2>&1 &
server=$!
export ETCDCTL_API=3
until etcdctl --endpoints 127.0.0.1:$1 put a b > put 2>&1; do sleep 0.1; done
test "$(etcdctl --endpoints 127.0.0.1:$1 get --print-value-only a)" = b
kill $server; wait $server || true
