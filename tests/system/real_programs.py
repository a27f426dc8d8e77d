"""Group installed: programs as Debian installs them, in their default configuration and with nothing set that a user would not set. Each is run
natively and recorded, its trace checked, the whole re-driven once, and every interval verified. installed/table drives all of them and
writes tests/bench/real_programs.md: a program that fails is a row that says so, and a failure of the test."""
import contextlib
import dataclasses
import re

from harness import TESTS, Context, Failure, Test, test
from redriving import Job, check_report, check_trace, record, run_natively, take_away_surroundings, units
from real import script

ONE_S = 600  # for each command: some of CPython's tests take a minute natively
PAGE = TESTS / "bench" / "real_programs.md"
PYTHON_TESTS = ("test_signal", "test_mmap", "test_subprocess", "test_threading", "test_asyncio")


@dataclasses.dataclass
class Program:
    name: str
    driven: str   # what is done with it
    text: str     # a shell script; "set -eu" and "echo ok" are around it


PROGRAMS = [
    Program("sqlite3", "WAL, 256 MiB of mmap, two processes", """
sqlite3 a.db "pragma journal_mode=wal; create table t(x)" > log
fill() { sqlite3 a.db "pragma busy_timeout=20000; pragma mmap_size=268435456; with recursive c(x) as (select 1 union all select x+1 from c where x<2000) insert into t select x from c" >> log; }
fill & fill; wait $!
test "$(sqlite3 a.db "pragma mmap_size=268435456; select count(*) from t" | tail -n 1)" = 4000
"""),
    Program("lmdb-utils", "mdb_load, mdb_dump, mdb_stat", """
mkdir db
{ printf 'VERSION=3\\nformat=print\\ntype=btree\\nHEADER=END\\n'; for i in $(seq 1000 1300); do printf ' k%s\\n value%s\\n' $i $i; done; echo DATA=END; } > in
mdb_load -f in db && mdb_dump -p db > out && test "$(grep -c value out)" = 301 && mdb_stat db > stat
"""),
    Program("perl", "fork, pipes, a signal handler", """
perl -e '$SIG{USR1}=sub{$n++}; for(1..5){ pipe(R,W); if(!fork){ kill "USR1", getppid; print W $_*2,"\\n"; exit } close W; $s+=<R>; wait } die if $s!=30 || !$n'
"""),
    Program("ruby", "threads, a queue, fork", """
ruby -e 'q=Queue.new; t=3.times.map{|i| Thread.new{100.times{|k| q<<k}}}; t.each(&:join); pid=fork{exit 7}; Process.wait pid; exit 1 if q.size!=300 || $?.exitstatus!=7'
"""),
    Program("ffmpeg", "encodes a second of a test picture with two threads", """
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc=duration=1:size=160x120:rate=10 -threads 2 -c:v mpeg4 out.mp4 && test -s out.mp4
"""),
    Program("valgrind", "memcheck of /bin/true", "valgrind -q /bin/true"),
    Program("bubblewrap", "a shell in namespaces of its own", """
test "$(bwrap --ro-bind / / --unshare-pid --proc /proc sh -c 'echo $$')" -lt 10
"""),
    Program("tmux", "a session, keys, its screen", """
tmux -S ./socket -f /dev/null new-session -d -s s -x 80 -y 24 sh
tmux -S ./socket send-keys -t s 'echo a$((40+2))b' Enter
until tmux -S ./socket capture-pane -p -t s | grep -q a42b; do sleep 0.05; done
tmux -S ./socket kill-server
"""),
    Program("gcc", "-flto, make -j2", """
for i in 1 2 3 4; do echo "int f$i(int x){return x*$i;}" > f$i.c; done
echo 'int f1(int),f2(int),f3(int),f4(int); int main(){return f1(1)+f2(1)+f3(1)+f4(1)-10;}' > main.c
printf 'prog: main.o f1.o f2.o f3.o f4.o\\n\\tgcc -flto -O2 -o $@ $^\\n%%.o: %%.c\\n\\tgcc -flto -O2 -c $<\\n' > Makefile
make -s -j2 && ./prog
"""),
] + [Program(f"CPython {name}", "Debian's libpython3.11-testsuite", f"/usr/bin/python3 -m test -q {name} > log 2>&1 || {{ tail -n 5 log; exit 1; }}")
     for name in PYTHON_TESTS]
QUICK = ("sqlite3", "lmdb-utils", "perl", "gcc")  # of `make check`


@dataclasses.dataclass
class Row:
    program: Program
    result: str = "passes"
    units: str = ""
    events: str = ""
    messages: str = ""
    ratio: str = ""
    failure: Failure = None

    def text(self):
        cells = (self.program.name, self.program.driven, self.units, self.events, self.messages, self.ratio, self.result)
        return f"| {' | '.join(cells)} |"


def first_line(failure):
    """Of a failure: what, and of a divergence what was expected, without what differs from run to run."""
    found = re.search(r"expected: (.*)", failure)
    line = failure.splitlines()[0] + (f"; expected {found[1]}" if found else "")
    return re.sub(r"/tmp/\S+|0x[0-9a-f]+", "...", line).replace("|", "/")


def drive(options, program):
    """Everything that is done with one program; what failed stands in the row."""
    row = Row(program)
    with contextlib.closing(Context(options, Test(f"installed/{program.name}", None, ONE_S, True))) as ctx:
        try:
            drive_in(ctx, row)
        except Failure as failure:
            row.failure, row.result = failure, f"**fails**: {first_line(str(failure))}"
    return row


def drive_in(ctx, row):
    job = Job(["sh", "run.sh"], prepare=script(f"set -eu\n{row.program.text.strip()}\necho ok\n"), record_options=())
    natively = run_natively(ctx, job)
    recorded = record(ctx, job)
    row.ratio = f"{recorded.seconds / natively.seconds:.1f}"
    stats = ctx.json("stats", ctx.trace)
    row.units, row.events, row.messages = str(len(units(ctx))), str(stats["events"]), str(stats["messages"])
    take_away_surroundings(ctx)
    check_trace(ctx)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", "--verify", cwd="/", statuses=(0, 3)))


def page(rows):
    return "\n".join(["# Programs as Debian installs them", "",
                      "Made by the test `installed/table` (`make check-all`): each program in its default configuration, recorded, the whole re-driven",
                      "once, every interval verified. Ratio: wall time recorded / native, of one run on a machine that may have been busy.", "",
                      "| program | driven | units | events | messages | ratio | result |", "| --- | --- | --- | --- | --- | --- | --- |",
                      *(row.text() for row in rows), ""])


@test("installed/table", slow=True)
def table(ctx):
    rows = [drive(ctx.options, program) for program in PROGRAMS]
    PAGE.write_text(page(rows))
    if failed := [f"{row.program.name}: {row.failure}" for row in rows if row.failure]:
        raise Failure("\n".join([f"{len(failed)} of {len(rows)} programs fail", *failed]))


def register():
    for program in (program for program in PROGRAMS if program.name in QUICK):
        @test(f"installed/{program.name}")
        def run(ctx, program=program):
            if failure := drive(ctx.options, program).failure:
                raise failure


register()
