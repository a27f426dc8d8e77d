"""Group installed: programs as Debian installs them, in their default configuration and with nothing set that a user would not set. Each is a shell
script in tests/installed, with comments at its top: what is `driven`, the `packages`, and whether it is `quick` enough for `make check`; its
arguments are free ports. It runs natively and recorded, its trace is checked, the whole re-driven once, and every interval verified.
`tried` says what was tried where a recording takes more than twice as long.
installed/table drives all of them and writes tests/bench/real_programs.md: a program that fails is a row that says so, and a failure of the test."""
import contextlib
import dataclasses
import re
import resource
import shutil
import statistics

from harness import TESTS, Context, Failure, Test, test
from redriving import Job, check_report, check_trace, free_port, images_by_unit, record, run_natively, take_away_surroundings, units
from real import script

ONE_S = 600  # for each command: some of CPython's tests take a minute natively
ABOVE = 2    # times native: why, is then to be said
PAGE = TESTS / "bench" / "real_programs.md"


@dataclasses.dataclass
class Program:
    name: str
    text: str

    @property
    def driven(self):
        return re.search(r"^# driven: (.*)", self.text, re.MULTILINE)[1]

    @property
    def tried(self):
        found = re.search(r"^# tried: (.*)", self.text, re.MULTILINE)
        return found[1] if found else ""

    @property
    def quick(self):
        return "\n# quick\n" in self.text


INSTALLED = TESTS / "installed"
SOURCES = {path.name: path.read_text() for path in INSTALLED.glob("*.c")}  # of programs that several scripts compile
PROGRAMS = [Program(path.stem, path.read_text()) for path in sorted(INSTALLED.glob("*.sh"))]


@dataclasses.dataclass
class Costs:
    """How long parts of a recording take on this machine, in seconds."""
    recording: float  # its beginning and end
    program: float    # each program that is executed
    stop: float       # each call that stops


@dataclasses.dataclass
class Row:
    program: Program
    result: str = "passes"
    units: str = ""
    events: str = ""
    messages: str = ""
    native_s: float = 0
    native_cpu_s: float = 0
    recorded_s: float = 0
    executed: int = 0
    stops: int = 0
    pauses_s: float = 0
    again_s: float = 0  # recorded once more, with the copies of files that the first recording has kept
    failure: Failure = None

    def cells(self):
        times = [f"{self.native_s:.2f}", f"{self.recorded_s / self.native_s:.1f}"] if self.recorded_s else ["", ""]
        return [self.program.name, self.program.driven, self.units, self.events, self.messages, *times, self.result]

    def explained(self, costs):
        """For a row above 2: where the time goes, by what each part takes."""
        parts = [(costs.recording, "begin and end"), (self.executed * costs.program, f"{self.executed} programs"),
                 (self.stops * costs.stop, f"{self.stops} stops"), (self.pauses_s, "images of memory"),
                 (max(0, self.recorded_s - self.again_s), "copies of files")]
        shown = ", ".join(f"{what} {1000 * seconds:.0f}" for seconds, what in parts)
        processors = self.native_cpu_s / self.native_s
        return [self.program.name, f"{1000 * (self.recorded_s - self.native_s):.0f}", shown, f"{processors:.1f}", self.program.tried]


def line(cells):
    return f"| {' | '.join(cells)} |"


def first_line(failure):
    """The first line of a failure; of a divergence, what was expected, without what differs from run to run."""
    found = re.search(r"expected: (.*)", failure)
    line = failure.splitlines()[0] + (f"; expected {found[1]}" if found else "")
    return re.sub(r"/tmp/\S+|0x[0-9a-f]+", "...", line).replace("|", "/")


def drive(options, program):
    """Everything that is done with one program; failures are noted in the row."""
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
    before = cpu_of_children()
    row.native_s = run_natively(ctx, job).seconds
    row.native_cpu_s = cpu_of_children() - before
    row.recorded_s = record(ctx, job).seconds
    stats = ctx.json("stats", ctx.trace)
    row.units, row.events, row.messages = str(len(units(ctx))), str(stats["events"]), str(stats["messages"])
    row.executed = sum(interval["checkpoint_kind"] == "exec" for unit in units(ctx) for interval in unit["intervals"])
    row.stops = stats["stopped_calls"]
    row.pauses_s = sum(interval["pause_s"] for images in images_by_unit(ctx).values() for interval in images)
    if row.recorded_s > ABOVE * row.native_s:
        row.again_s = record_again(ctx, job)
    take_away_surroundings(ctx)
    check_trace(ctx)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", "--verify", cwd="/", statuses=(0, 3)))


def record_again(ctx, job):
    kept = ctx.trace.rename(ctx.traces / "first")
    try:
        return record(ctx, job).seconds
    finally:
        shutil.rmtree(ctx.trace, ignore_errors=True)
        kept.rename(ctx.trace)


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_costs(ctx):
    """Measures with commands that do nothing else, natively and recorded in turn."""
    ctx.fresh_work()

    def extra(command, *options):
        times = []
        for turn in range(7):
            native = ctx.run(*command, cwd=ctx.work).seconds
            recorded = ctx.redrive("record", "-o", ctx.traces / f"costs-{turn}", *options, "--", *command, cwd=ctx.work).seconds
            ctx.redrive("rm", ctx.traces / f"costs-{turn}")
            times.append(recorded - native)
        return statistics.median(times)

    programs, calls = 50, 2000
    once = extra(["true"])
    program = max(0, extra(["sh", "-c", f"for i in $(seq {programs}); do /bin/true; done"]) - once) / (programs + 1)
    reads = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={calls}"]
    stop = max(0, extra(reads, "--interception", "stops") - once) / (2 * calls)
    return Costs(max(0, once - program), program, stop)


def page(rows, costs):
    above = [row for row in rows if row.recorded_s > ABOVE * row.native_s]
    return "\n".join([
        "# Programs as Debian installs them", "",
        "Made by the test `installed/table` (`make check-all`): each program in its default configuration, recorded, the whole re-driven once, every",
        "interval verified. Native: seconds of wall time; ratio: wall time recorded / native, of one run on a machine that may have been busy.", "",
        line(["program", "driven", "units", "events", "messages", "native", "ratio", "result"]), line(["---"] * 8),
        *(line(row.cells()) for row in rows), "",
        "## Above 2", "",
        f"What a recording costs on this machine at this time: {1000 * costs.recording:.0f} ms to begin and to end, most of it for the disk to have written;",
        f"{1000 * costs.program:.1f} ms for each program that is executed; {1e6 * costs.stop:.0f} us for each call that stops. Added: recorded - native, ms, and what of it these make.",
        "Copies of files: what less it takes with those that the first recording has kept, and with what it has learnt of them.",
        "Processors: CPU time / wall time natively; threads of one unit, and processes that share writable memory, have one when they are recorded.",
        "Tried for the beginning and the end: a trace's files written to the disk at the same time, 57 to 81 ms became 38 to 50 on a busy disk.",
        "Tried for copies of files: where cpuid does not trap, files are searched for it alone, not for what traps: the first recording of `java -version`,",
        "662 to 1019 ms, became 224 to 238.", "",
        line(["program", "added", "of which, about", "processors", "tried"]), line(["---"] * 5),
        *(line(row.explained(costs)) for row in above), ""])


@test("installed/table", slow=True)
def table(ctx):
    costs = measure_costs(ctx)
    rows = [drive(ctx.options, program) for program in PROGRAMS]
    PAGE.write_text(page(rows, costs))
    if failed := [f"{row.program.name}: {row.failure}" for row in rows if row.failure]:
        raise Failure("\n".join([f"{len(failed)} of {len(rows)} programs fail", *failed]))


def register():
    for program in filter(lambda program: program.quick, PROGRAMS):
        @test(f"installed/{program.name}")
        def run(ctx, program=program):
            if failure := drive(ctx.options, program).failure:
                raise failure


register()
