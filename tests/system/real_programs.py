"""Group installed: programs as Debian installs them, in their default configuration and with nothing set that a user would not set. Each is a shell
script in tests/installed, with comments at its top: what is `driven`, the `packages`, and whether it is `quick` enough for `make check`; its
arguments are free ports. It runs natively and recorded, its trace is checked, the whole re-driven once, and every interval verified.
installed/table drives all of them and writes tests/bench/real_programs.md: a program that fails is a row that says so, and a failure of the test."""
import contextlib
import dataclasses
import re

from harness import TESTS, Context, Failure, Test, test
from redriving import Job, check_report, check_trace, free_port, record, run_natively, take_away_surroundings, units
from real import script

ONE_S = 600  # for each command: some of CPython's tests take a minute natively
PAGE = TESTS / "bench" / "real_programs.md"


@dataclasses.dataclass
class Program:
    name: str
    text: str

    @property
    def driven(self):
        return re.search(r"^# driven: (.*)", self.text, re.MULTILINE)[1]

    @property
    def quick(self):
        return "\n# quick\n" in self.text


INSTALLED = TESTS / "installed"
SOURCES = {path.name: path.read_text() for path in INSTALLED.glob("*.c")}  # of programs that several scripts compile
PROGRAMS = [Program(path.stem, path.read_text()) for path in sorted(INSTALLED.glob("*.sh"))]


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
    ports = [str(free_port()) for _ in range(3)]
    job = Job(["sh", "run.sh", *ports], prepare=script(f"set -eu\n{row.program.text}\necho ok\n", SOURCES), record_options=())
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
    for program in filter(lambda program: program.quick, PROGRAMS):
        @test(f"installed/{program.name}")
        def run(ctx, program=program):
            if failure := drive(ctx.options, program).failure:
                raise failure


register()
