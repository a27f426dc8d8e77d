"""Groups programs and stops: every tests/programs/*.c and *.cc, found by wildcard, natively and recorded and re-driven with a checkpoint every
100 ms, served in process and by stops alone; then, that they exercise every row of the syscall table. The hints at the top of a program are described in
tests/programs/test.h.

Groups musl and static: some of the programs with another libc, or with theirs inside, on both tiers."""
import contextlib
import re
import shlex

from harness import TESTS, Failure, Skip, compiled, needs, needs_of_host, test
from redriving import Job, copy_into, cycle, images_by_unit, record

# Rows of the syscall table that no program can exercise, and why.
NOT_EXERCISED = {
    "ioctl(TIOCCONS)": "takes the output of the machine's console away",
    "syslog(SYSLOG_ACTION_CLEAR)": "takes the kernel's messages away from others",
    "syslog(SYSLOG_ACTION_CONSOLE_OFF)": "silences the machine's console",
    "syslog(SYSLOG_ACTION_CONSOLE_ON)": "changes what the machine's console shows, if somebody set it",
}

# Threads, sockets, births, and signals that come while calls are made: what depends on how a libc makes calls.
OTHER_LIBCS = {"musl": "musl-gcc -O1 -static", "static": "gcc -O1 -static"}
WITH_OTHER_LIBCS = ("condvar", "epoll_server", "fork_tree", "served_births", "served_cancel", "served_signals", "stress_threads", "tcp",
                    "vfork_exec")
WITH_OTHER_LIBCS_AND_STOPS = ("served_cancel", "served_signals", "tcp")

RECORD_OPTIONS = ("--bound", "2s", "--checkpoint-period")
PERIOD = "100ms"
rows_by_program = {}  # the rows in the trace of each program that has run
HINT = re.compile(r"^// (build|args|exit|images|period|needs): (.*)$")


def hints_of(source):
    found = {}
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        if match := HINT.match(line):
            found[match[1]] = match[2]
    return found


def program(options, name):
    """The binary of a program, by its name."""
    source = next((TESTS / "programs").glob(f"{name}.c*"))
    compiler = "gcc -O1" if source.suffix == ".c" else "g++ -O1 -std=c++20"
    return compiled(options, source, compiler=compiler, flags=shlex.split(hints_of(source).get("build", "")))


def job_of(ctx, name, *arguments, **changes):
    """A Job that runs a copy of the program in the working directory."""
    return Job([f"./{name}", *arguments], prepare=copy_into(program(ctx.options, name)), **changes)


def program_job(ctx, source, *interception):
    hints = hints_of(source)
    return job_of(ctx, source.stem, *shlex.split(hints.get("args", "")), status=int(hints.get("exit", 0)),
                  record_options=(*RECORD_OPTIONS, hints.get("period", PERIOD), *interception), replay_options=interception)


def table_rows(ctx, *traces):
    """Names of the rows in the traces; without any, of those that must be exercised."""
    outcome = ctx.expect_status(ctx.run(ctx.options.build / "table_rows", *traces), 0)
    return set(outcome.stdout.splitlines())


def expect_machine(ctx, source):
    """Skips the test where the machine lacks what the program's hints ask for."""
    if wanted := hints_of(source).get("needs"):
        needs_of_host(ctx, wanted)


def run_program(ctx, source):
    expect_machine(ctx, source)
    cycle(ctx, program_job(ctx, source))
    rows_by_program[source] = table_rows(ctx, ctx.trace)
    wanted = int(hints_of(source).get("images", 0))
    found = sum(map(len, images_by_unit(ctx).values()))
    if found < wanted:
        raise Failure(f"{found} image checkpoints, at least {wanted} expected")


def run_program_with_stops(ctx, source):
    expect_machine(ctx, source)
    cycle(ctx, program_job(ctx, source, "--interception", "stops"))


def run_with_other_libc(ctx, libc, name, *interception):
    compiler = OTHER_LIBCS[libc]
    needs(compiler.split()[0])
    binary = compiled(ctx.options, TESTS / "programs" / f"{name}.c", compiler=compiler, directory=libc)
    options = (*RECORD_OPTIONS, PERIOD, *interception)
    cycle(ctx, Job([f"./{name}"], prepare=copy_into(binary), record_options=options, replay_options=interception))


def exercise_every_row(ctx, sources):
    """A program whose own test has not run is only recorded here."""
    for source in sources:
        if source not in rows_by_program:
            trace = ctx.traces / source.stem
            with contextlib.suppress(Skip):  # it is recorded up to there
                record(ctx, program_job(ctx, source), trace)
            rows_by_program[source] = table_rows(ctx, trace)
    wanted, found = table_rows(ctx), set.union(*rows_by_program.values())
    if missing := wanted - found - NOT_EXERCISED.keys():
        raise Failure(f"{len(missing)} rows of the syscall table that no program exercises: {', '.join(sorted(missing))}")
    if wrong := NOT_EXERCISED.keys() & found | NOT_EXERCISED.keys() - wanted:
        raise Failure(f"excused, but exercised or not in the table: {', '.join(sorted(wrong))}")


# `make check-all` runs these, and those that take 6 s and more with each call stopped.
SLOW = ("many_shared", "poll_cycles", "series_checkpoints")
SLOW_WITH_STOPS = (*SLOW, "big_memory", "births_beside_ends", "changed_groups", "compute_messages", "crowded_addresses", "floating_point",
                   "fork_pending", "joins_beside_births", "killed_anywhere", "memory_turns", "paused_loops", "polling_loops", "preempted", "random_calls", "segments",
                   "served_births", "served_signals", "served_waits", "short_connections", "signals_at_checkpoints",
                   "signals_meant_for_others", "waits_for_all", "woken_sleeps", "written_cpuid")


ALONE = ("packet_ring",)  # it sees what others send


def register():
    sources = sorted([*(TESTS / "programs").glob("*.c"), *(TESTS / "programs").glob("*.cc")])
    for source in sources:
        alone = source.stem in ALONE
        test(f"programs/{source.stem}", timeout_s=180, slow=source.stem in SLOW, alone=alone)(lambda ctx, source=source: run_program(ctx, source))
        test(f"stops/{source.stem}", timeout_s=180, slow=source.stem in SLOW_WITH_STOPS, alone=alone)(lambda ctx, source=source: run_program_with_stops(ctx, source))
    for libc in OTHER_LIBCS:
        for name in WITH_OTHER_LIBCS:
            test(f"{libc}/{name}", timeout_s=60)(lambda ctx, libc=libc, name=name: run_with_other_libc(ctx, libc, name))
        for name in WITH_OTHER_LIBCS_AND_STOPS:
            test(f"{libc}/{name}_stops", timeout_s=60)(
                lambda ctx, libc=libc, name=name: run_with_other_libc(ctx, libc, name, "--interception", "stops"))
    test("programs/every_row", timeout_s=60)(lambda ctx: exercise_every_row(ctx, sources))


register()
