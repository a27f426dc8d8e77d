# driven: namespaces of processes, mounts, names, networks and users; nsenter
# packages: util-linux iproute2
if test "$(id -u)" = 0; then user=; else user=-r; fi
test "$(unshare $user -mpf --mount-proc sh -c 'sh -c "echo \$PPID"; true')" = 1
test "$(unshare $user -u sh -c 'hostname recorded; hostname')" = recorded
unshare $user -n ip link > links; grep -q lo links
test "$(unshare -r id -u)" = 0
unshare $user -u sh -c 'hostname inside; echo $$ > pid; while test -e pid; do sleep 0.1; done' &
until test -s pid; do sleep 0.1; done
test "$(nsenter -t $(cat pid) ${user:+-U} -u hostname)" = inside
rm pid; wait
