# driven: over ssh to a server of its own
# packages: rsync openssh-server openssh-client
mkdir k; ssh-keygen -q -t ed25519 -N '' -f k/h; ssh-keygen -q -t ed25519 -N '' -f k/u; cp k/u.pub k/auth; mkdir -p /run/sshd
printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s/k/h\nAuthorizedKeysFile %s/k/auth\nStrictModes no\nPidFile none\n' $1 $PWD $PWD > c
/usr/sbin/sshd -D -e -f $PWD/c > log 2>&1 &
server=$!
mkdir src; for i in $(seq 20); do echo $i > src/$i; done
until rsync -a -e "ssh -p $1 -i $PWD/k/u -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR" src/ 127.0.0.1:$PWD/dst; do sleep 0.1; done
diff -r src dst; kill $server; wait $server || true
