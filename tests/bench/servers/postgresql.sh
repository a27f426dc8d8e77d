# work: a server, pgbench with 4 clients
# packages: postgresql postgresql-contrib
bin=$(ls -d /usr/lib/postgresql/*/bin)
as=""
test "$(id -u)" != 0 || as="runuser -u postgres --"
prepare() {
  chmod 777 .
  $as $bin/initdb -D $PWD/data -U postgres
  serve
  $as $bin/pgbench -h $PWD -U postgres -i -q postgres
  end
}
serve() {
  $as $bin/postgres -D $PWD/data -c listen_addresses= -k $PWD &
  until $as $bin/pg_isready -q -h $PWD; do sleep 0.05; done
}
end() { $as kill -INT $(head -n 1 data/postmaster.pid); wait; }
drive() {
  serve
  $as $bin/pgbench -h $PWD -U postgres -c 4 -t $((100 * $2)) postgres
  end
}
