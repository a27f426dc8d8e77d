"""Group processors: how many processors programs see."""
import os
import shutil

from harness import Failure, needs_of_host, test
from redriving import check_trace, redrive_all, take_away_surroundings

# Each a way in which programs ask; one number a line.
QUESTIONS = r"""
nproc
nproc --all
getconf _NPROCESSORS_ONLN
grep -c ^processor /proc/cpuinfo
grep -c '^cpu[0-9]' /proc/stat
python3 -c 'import os; print(os.cpu_count()); print(len(os.sched_getaffinity(0)))'
grep -o '[0-9]*$' < /sys/devices/system/cpu/online | { read last; echo $((last + 1)); }
grep Cpus_allowed_list /proc/self/status | grep -o '[0-9]*$' | { read last; echo $((last + 1)); }
if command -v java > /dev/null; then
  echo 'class N { public static void main(String[] a) { System.out.println(Runtime.getRuntime().availableProcessors()); } }' > N.java
  java N.java
fi
"""


def answers(ctx, *words):
    outcome = ctx.expect_status(ctx.run(*words, "sh", "-c", QUESTIONS, cwd=ctx.fresh_work()), 0)
    return [int(line) for line in outcome.stdout.split()]


@test("processors/seen", timeout_s=240)
def seen(ctx):
    """As many as there are, or as --processors-seen says: fewer, more, and more than the bits of a word."""
    needs_of_host(ctx, "rdtsc trapping")
    natively = answers(ctx)
    if (recorded := answers(ctx, ctx.options.redrive, "record", "-o", ctx.trace, "--")) != natively:
        raise Failure(f"natively programs find {natively} processors, recorded {recorded}")
    for number in (1, 3, 100):
        shutil.rmtree(ctx.trace)
        found = answers(ctx, ctx.options.redrive, "record", "-o", ctx.trace, "--processors-seen", number, "--")
        if set(found) != {number} or len(found) != len(natively):
            raise Failure(f"with --processors-seen {number} programs find {found}")
    take_away_surroundings(ctx)
    check_trace(ctx)
    redrive_all(ctx)


@test("processors/chosen")
def chosen(ctx):
    """Threads can be moved to any of the processors that are seen, and find themselves there; but not to others."""
    script = """
import os
os.sched_setaffinity(0, {69, 3, 4000 % 1024})
assert os.sched_getaffinity(0) == {69, 3}, os.sched_getaffinity(0)
try:
    os.sched_setaffinity(0, {70, 71})
    assert False
except OSError as error:
    assert error.errno == 22
assert os.sched_getaffinity(0) == {69, 3}
if os.fork() == 0:
    os._exit(os.sched_getaffinity(0) != {69, 3})
assert os.wait()[1] == 0
for line in open("/proc/self/status"):
    if line.startswith("Cpus_allowed_list"): assert line.split()[1] == "3,69", line
    if line.startswith("Cpus_allowed:"): assert int(line.split()[1].replace(",", ""), 16) == 1 << 69 | 1 << 3, line
"""
    words = ("record", "-o", ctx.trace, "--processors-seen", 70, "--", "python3", "-c", script)
    ctx.expect_status(ctx.redrive(*words, cwd=ctx.fresh_work()), 0)
    take_away_surroundings(ctx)
    check_trace(ctx)
    redrive_all(ctx)


@test("processors/usage")
def usage(ctx):
    for wrong in ("0", "-1", "2.5", "many", "1025", ""):
        outcome = ctx.expect_status(ctx.redrive("record", "--processors-seen", wrong, "--", "true"), 2)
        ctx.expect("--processors-seen" in outcome.stderr and outcome.stderr.count("\n") == 1, outcome, "does not say what is wrong")
    if os.listdir(ctx.traces):
        raise Failure("a trace was made")
