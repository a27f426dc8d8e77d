# driven: initdb, a server, pgbench with 4 clients
# packages: postgresql postgresql-contrib
bin=$(ls -d /usr/lib/postgresql/*/bin)
chmod 777 .
as=""
test "$(id -u)" != 0 || as="runuser -u postgres --"
$as $bin/initdb -D $PWD/data -U postgres > init.log
$as $bin/pg_ctl -D $PWD/data -w -o "-c listen_addresses= -k $PWD" -l $PWD/server.log start > start.log
$as $bin/pgbench -h $PWD -U postgres -i -q postgres > bench.log 2>&1
$as $bin/pgbench -h $PWD -U postgres -c 4 -t 50 postgres > bench.log 2>&1
grep -q 'actually processed: 200/200' bench.log
$as $bin/pg_ctl -D $PWD/data -w -m fast stop > stop.log
