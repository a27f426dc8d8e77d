# driven: a new data directory, a server, tables in InnoDB
# packages: mariadb-server mariadb-client
mkdir data
mariadb-install-db --no-defaults --user=$(id -un) --datadir=$PWD/data --auth-root-authentication-method=normal > install.log 2>&1
mariadbd --no-defaults --user=$(id -un) --datadir=$PWD/data --socket=$PWD/s --pid-file=$PWD/pid --skip-networking > server.log 2>&1 &
server=$!
until mariadb-admin --no-defaults -u root -S $PWD/s ping > ping.log 2>&1; do sleep 0.1; done
mariadb --no-defaults -u root -S $PWD/s -e 'create database d; create table d.t(x int primary key) engine=innodb; insert into d.t values(1)'
for i in 2 3 4 5; do mariadb --no-defaults -u root -S $PWD/s -e "insert into d.t values($i)"; done
test "$(mariadb --no-defaults -u root -S $PWD/s -N -e 'select count(*) from d.t')" = 5
mariadb-admin --no-defaults -u root -S $PWD/s shutdown
wait $server
