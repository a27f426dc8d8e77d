# driven: ssh, scp, sftp, a pipe of 100 KB
# packages: openssh-server openssh-client
test "$(id -u)" != 0 || mkdir -p /run/sshd
for k in host key; do ssh-keygen -q -t ed25519 -N '' -f $k; done
printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/key.pub\nPidFile %s/pid\nStrictModes no\nSubsystem sftp /usr/lib/openssh/sftp-server\n' $1 $PWD $PWD $PWD > c
/usr/sbin/sshd -D -e -f c 2> log &
server=$!
until ssh-keyscan -p $1 127.0.0.1 > known 2> scan && test -s known; do sleep 0.1; done
opt="-i key -o UserKnownHostsFile=known"
test "$(ssh $opt -p $1 127.0.0.1 echo hello)" = hello
seq 20000 > f
scp -q $opt -P $1 f 127.0.0.1:$PWD/g; cmp f g
echo "get g h" | sftp -q $opt -P $1 -b - 127.0.0.1:$PWD > batch; cmp f h
ssh $opt -p $1 127.0.0.1 cat < f | cmp - f
kill $server; wait $server || true
