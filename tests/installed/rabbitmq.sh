# driven: a node, its control program
# packages: rabbitmq-server
export HOME=$PWD RABBITMQ_NODENAME=r@localhost RABBITMQ_NODE_PORT=$1 RABBITMQ_DIST_PORT=$2 ERL_EPMD_PORT=$3 RABBITMQ_MNESIA_BASE=$PWD/m RABBITMQ_LOG_BASE=$PWD/l RABBITMQ_PID_FILE=$PWD/pid RABBITMQ_ENABLED_PLUGINS_FILE=$PWD/plugins
bin=/usr/lib/rabbitmq/bin
$bin/rabbitmq-server > log 2>&1 &
server=$!
until $bin/rabbitmqctl -q ping > ping 2>&1; do sleep 0.2; done
$bin/rabbitmqctl -q eval '1+1.' > got; grep -q 2 got
$bin/rabbitmqctl -q stop > stop; wait $server || true
