"""Group tiers: what one tier has recorded, the other re-drives with every event and the state at the end of every interval the same, with
checkpoints so often that intervals end anywhere between signals, timers and series."""
import json
import os
import random
import re
import shutil
import subprocess

from harness import Skip, test
from programs import job_of
from redriving import REDRIVEN, Job, check_report, failure_of, record, redrive_all

TIERS = ("in-process", "stops")
SEEDS = 1
MANY_SEEDS = 8
PERIODS = ("200us", "700us", "2ms")
LONG_PERIOD = "10ms"  # of the tests that are not slow


def compare_tiers(ctx, job, period, name):
    """Each tier records; both re-drive every interval, and compare every event and the state at each end."""
    for recorder in TIERS:
        trace = ctx.traces / f"{name}-{recorder}"
        job.record_options = ("--checkpoint-period", period, "--interception", recorder)
        record(ctx, job, trace)
        for replayer in TIERS:
            report = ctx.json("replay", "--all", "--verify", "--interception", replayer, trace, statuses=REDRIVEN)
            check_report(ctx, report)
            unverified = [f"{i['interval']} ({i['unverified']})" for i in report["intervals"] if not i["verified"]]
            if unverified:
                raise failure_of(report, f"recorded with checkpoints every {period}: intervals not verified: {', '.join(unverified[:8])}")


def compare_random(ctx, program, seeds, periods):
    for _ in range(seeds):
        seed = random.randrange(1, 10**9)
        compare_tiers(ctx, job_of(ctx, program, str(seed)), random.choice(periods), f"seed-{seed}")


for _program in ("random_calls", "random_outputs"):
    test(f"tiers/{_program}", timeout_s=120)(lambda ctx, program=_program: compare_random(ctx, program, SEEDS, (LONG_PERIOD,)))
    test(f"tiers/many_{_program}", timeout_s=600, slow=True)(lambda ctx, program=_program: compare_random(ctx, program, MANY_SEEDS, PERIODS))


@test("tiers/series_of_reads", timeout_s=120)
def series_of_reads(ctx):
    compare_tiers(ctx, job_of(ctx, "series_of_reads"), "200us", "series")


@test("tiers/poll_cycles", timeout_s=300, slow=True)
def poll_cycles(ctx):
    compare_tiers(ctx, job_of(ctx, "poll_cycles"), "2ms", "cycles")


@test("tiers/fork_beside_reader", timeout_s=120, slow=True)
def fork_beside_reader(ctx):
    compare_tiers(ctx, job_of(ctx, "fork_beside_reader"), "200us", "births")


def make_root(work):
    """A directory with a shell, ls and what they need."""
    root = work / "root"
    (root / "dev").mkdir(parents=True)
    (root / "dev/null").touch()
    for program in ("/bin/sh", "/bin/ls"):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for file in (program, *re.findall(r"(/\S+) \(0x", linked)):
            (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / file[1:])


def expect_served(ctx, *wrapper, prepare=None):
    """A shell that the wrapper executes, its forks and the programs that they execute have the tier."""
    words = "for i in 1 2 3 4 5 6 7 8; do ( /bin/ls / > /dev/null ); done; echo ok"
    record(ctx, Job([*wrapper, "sh", "-c", words], prepare=prepare))
    stats = ctx.redrive("stats", ctx.trace, "--json")
    counts = json.loads(stats.stdout)
    ctx.expect(counts["served_calls"] > 2 * counts["stopped_calls"], stats, f"{counts['served_calls']} calls served, {counts['stopped_calls']} stopped")
    redrive_all(ctx)


@test("tiers/changed_user")
def changed_user(ctx):
    """A program that another one has executed after it gave up its privileges has the tier as well."""
    if os.geteuid() != 0:
        raise Skip("only root can change its user")
    expect_served(ctx, "setpriv", "--reuid", "65534", "--regid", "65533", "--clear-groups")


@test("tiers/own_namespaces")
def own_namespaces(ctx):
    """So have those that cannot find the recorder in /proc: in namespaces of their own, as in containers."""
    user = [] if os.geteuid() == 0 else ["-r"]
    if subprocess.run(["unshare", *user, "-mpfin", "--mount-proc", "true"], capture_output=True).returncode != 0:
        raise Skip("this user may make no namespaces")
    expect_served(ctx, "unshare", *user, "-mpfin", "--mount-proc")


@test("tiers/own_root")
def own_root(ctx):
    """... or have no /proc at all."""
    if os.geteuid() != 0:
        raise Skip("only root can change its root")
    expect_served(ctx, "chroot", "root", prepare=make_root)
