# work: a server, mariadb-slap with 4 clients
# packages: mariadb-server mariadb-client
prepare() {
  mkdir data
  mariadb-install-db --no-defaults --user=$(id -un) --datadir=$PWD/data --auth-root-authentication-method=normal
}
drive() {
  mariadbd --no-defaults --user=$(id -un) --datadir=$PWD/data --socket=$PWD/s --pid-file=$PWD/pid --skip-networking &
  until mariadb-admin --no-defaults -u root -S $PWD/s ping; do sleep 0.05; done
  mariadb-slap --no-defaults -u root -S $PWD/s --auto-generate-sql --concurrency=4 --number-of-queries=$((500 * $2))
  mariadb-admin --no-defaults -u root -S $PWD/s shutdown
  wait
}
