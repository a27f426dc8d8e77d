# driven: WAL, 256 MiB of mmap, two processes
# packages: sqlite3
# quick
sqlite3 a.db "pragma journal_mode=wal; create table t(x)" > log
fill() { sqlite3 a.db "pragma busy_timeout=20000; pragma mmap_size=268435456; with recursive c(x) as (select 1 union all select x+1 from c where x<2000) insert into t select x from c" >> log; }
fill & fill; wait $!
test "$(sqlite3 a.db "pragma mmap_size=268435456; select count(*) from t" | tail -n 1)" = 4000
