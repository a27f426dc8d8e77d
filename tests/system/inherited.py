"""Group inherited: a program inherits the same from its starter with a recorder in between as without."""
import os
import sys

from harness import Failure, test
from redriving import redrive_all

# Starts the command that follows with these signals ignored, and those blocked.
START = """
import os, signal, sys
for number in map(int, sys.argv[1].split()): signal.signal(number, signal.SIG_IGN)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    if str(int(number)) not in sys.argv[1].split(): signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, list(map(int, sys.argv[2].split())))
os.execvp(sys.argv[3], sys.argv[3:])
"""
# HUP INT QUIT PIPE ALRM TERM CHLD TSTP; all that can be blocked.
IGNORED = ("", "1", "2 3", "13", "14", "17", "1 2 3 13 14 15 17 20")
BLOCKED = ("", "14", " ".join(str(n) for n in range(1, 65) if n not in (9, 19, 32, 33)))


@test("inherited/signals")
def signals(ctx):
    """Dispositions and masks: nohup(1), `trap '' HUP`, what subprocesses of daemons inherit."""
    program = ("/bin/grep", "^Sig[BIC]", "/proc/self/status")
    for ignored, blocked in [(i, "") for i in IGNORED] + [("", b) for b in BLOCKED[1:]] + [(IGNORED[-1], BLOCKED[-1])]:
        start = (sys.executable, "-c", START, ignored, blocked)
        natively = ctx.expect_status(ctx.run(*start, *program), 0).stdout
        trace = ctx.traces / f"{ignored}-{len(blocked)}".replace(" ", "_")
        recorded = ctx.expect_status(ctx.run(*start, ctx.options.redrive, "record", "-o", trace, "--", *program), 0)
        ctx.expect(recorded.stdout == natively, recorded, f"not as natively:\n{natively}")
    redrive_all(ctx, trace)


def processors_seen(ctx, *options):
    command = ("record", "-o", ctx.traces / f"seen{len(list(ctx.traces.iterdir()))}", *options, "--", "nproc")
    return int(ctx.expect_status(ctx.run(ctx.options.redrive, *command), 0).stdout)


@test("inherited/processors")
def processors(ctx):
    """A program sees the processors that it would see natively."""
    count = len(os.sched_getaffinity(0))
    if processors_seen(ctx) != count:
        raise Failure(f"not {count}")
    if processors_seen(ctx, "--processors", "1") != count:
        raise Failure("where programs run is not what they see")
    outcome = ctx.run("taskset", "-c", str(max(os.sched_getaffinity(0))), ctx.options.redrive, "record", "-o", ctx.trace, "--", "nproc")
    ctx.expect(ctx.expect_status(outcome, 0).stdout == "1\n", outcome, "not 1")
    redrive_all(ctx)


@test("inherited/personality")
def personality(ctx):
    """What setarch(8) sets, which has an effect on uname(2) and on where memory is mapped. The randomization of addresses is off."""
    program = ("sh", "-c", "uname -mr; cat /proc/self/personality")
    for number, words in enumerate((("linux32",), ("x86_64", "--uname-2.6"), ("x86_64", "-L", "-S", "-T"))):
        natively = ctx.expect_status(ctx.run("setarch", *words, "-R", *program), 0).stdout
        recorded = ctx.expect_status(ctx.run("setarch", *words, ctx.options.redrive, "record", "-o", ctx.traces / str(number), "--", *program), 0)
        ctx.expect(recorded.stdout == natively, recorded, f"not as natively:\n{natively}")
        redrive_all(ctx, ctx.traces / str(number))


@test("inherited/closed_descriptors")
def closed_descriptors(ctx):
    """Standard descriptors that are closed are closed in the program, and nothing of redrive's has their numbers."""
    program = ("bash", "-c", "for d in 0 1 2; do [ -e /proc/$$/fd/$d ] && echo $d; done >seen; read x; echo out; echo err >&2; exit 7")
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        start = ("bash", "-c", f'exec {closed}; exec "$@"', "bash")
        natively = ctx.run(*start, *program, cwd=ctx.work)
        seen = (ctx.work / "seen").read_text()
        trace = ctx.traces / closed.replace(" ", "")
        recorded = ctx.run(*start, ctx.options.redrive, "record", "-o", trace, "--", *program, cwd=ctx.work)
        ctx.expect((recorded.status, recorded.stdout, (ctx.work / "seen").read_text()) == (7, natively.stdout, seen), recorded,
                   f"natively: {natively.stdout} and {seen}")
        output = ctx.directory / trace.name
        ctx.run(*start, ctx.options.redrive, "record", "-o", f"{trace}2", "--output", output, "--", *program, cwd=ctx.work)
        ctx.expect("out\nerr\n" in output.read_text(), recorded, f"its file has only {output.read_text()}")
    redrive_all(ctx, trace)
