# driven: mdb_load, mdb_dump, mdb_stat
# packages: lmdb-utils
# quick
mkdir db
{ printf 'VERSION=3\nformat=print\ntype=btree\nHEADER=END\n'; for i in $(seq 1000 1300); do printf ' k%s\n value%s\n' $i $i; done; echo DATA=END; } > in
mdb_load -f in db && mdb_dump -p db > out && test "$(grep -c value out)" = 301 && mdb_stat db > stat
