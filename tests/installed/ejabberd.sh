# driven: a node, an account
# packages: ejabberd
mkdir e l s; chmod 755 .
printf 'hosts: [localhost]\nlisten:\n  - port: %s\n    ip: "127.0.0.1"\n    module: ejabberd_c2s\nmodules:\n  mod_roster: {}\n' $1 > e/ejabberd.yml
as=""
test "$(id -u)" != 0 || { chown -R ejabberd .; as="runuser -u ejabberd --"; }
ctl="$as env HOME=$PWD ERL_EPMD_PORT=$2 /usr/sbin/ejabberdctl --config-dir $PWD/e --logs $PWD/l --spool $PWD/s --node ex@localhost"
$ctl start > log 2>&1; $ctl started >> log 2>&1
$ctl register a localhost pw >> log 2>&1; $ctl registered_users localhost > users 2>> log; grep -qx a users
$ctl stop >> log 2>&1; $ctl stopped >> log 2>&1
ERL_EPMD_PORT=$2 epmd -kill >> log 2>&1 || true
