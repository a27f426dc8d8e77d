"""Group kills: a command that records, prepares or removes a trace is killed at any moment, without warning. What was stored before is intact,
nothing of the command continues to run, and nothing else is harmed: other traces, the cache, and later commands."""
import os
import random
import shutil
import signal
import time

import harness
from harness import Failure, kill_session, session_members, test
from programs import job_of
from redriving import REDRIVEN, check_report, check_trace, check_verified, record, redrive_all, take_away_surroundings, units

# Pipes, threads, signals, memory that is shared, births and programs executed.
WORKLOADS = {"relay": ("relay", "2000"), "threads": ("stress_threads",), "signals": ("served_signals",), "shared": ("shared_memory",),
             "births": ("fork_tree",)}
PERIOD = ("--checkpoint-period", "20ms")
VIRTUAL = ("--virtual", *PERIOD)
BOUND = "1s"
GONE_S = 10     # for processes whose tracer was killed to be gone
NOT_BEGUN = "killed before it began|has no 'journal'|no trace '"


def kill_at(ctx, moment_s, words, *, child=False):
    """Starts redrive and kills it after this time; with `child`, kills the process behind the front. Returns whether that was before it ended."""
    process = ctx.start_redrive(*words, cwd=ctx.work)
    time.sleep(moment_s)
    pid = (children_of(process.pid) or [process.pid])[0] if child else process.pid
    in_time = not process.has_ended()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        in_time = False
    limit = time.monotonic() + GONE_S * ctx.options.timeout_factor
    while left := session_members(process.pid):
        if time.monotonic() > limit:
            living = [state_of(pid) for pid, _ in left]
            kill_session(process.pid)
            raise process.failure(f"was killed after {moment_s:.4f} s, and these live on: {'; '.join(living)}")
        time.sleep(0.005)
    process.finish(ctx.timeout_s)
    return in_time


def state_of(pid):
    try:
        with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/wchan") as waits:
            told = [line.strip() for line in status if line.split(":")[0] in ("Name", "State", "PPid", "TracerPid", "SigPnd", "ShdPnd")]
            return f"{pid} ({', '.join(told)}, in {waits.read()})"
    except OSError:
        return f"{pid} (gone)"


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


def bystander(ctx):
    """A trace that existed before, with copies of files in the cache that others share."""
    trace = ctx.traces / "bystander"
    record(ctx, job_of(ctx, "relay", record_options=PERIOD), trace=trace)
    return trace


def expect_unharmed(ctx, trace):
    """And another one like it can be made."""
    check_trace(ctx, trace)
    redrive_all(ctx, trace)
    again = ctx.traces / "again"
    record(ctx, job_of(ctx, "relay", record_options=PERIOD), trace=again)
    redrive_all(ctx, again)


def moments(count, length_s, seed):
    """Most of them while the command works, some when it starts, ends or has ended."""
    chooser = random.Random(seed)
    return [chooser.choice((chooser.uniform(0, 1.1), chooser.uniform(0, 1.1), chooser.uniform(0, 0.1), chooser.uniform(0.9, 1.1))) * length_s
            for _ in range(count)]


def shortest_s(act, undo):
    """How long it takes on a machine on which others work, too: the shortest of three times."""
    lengths = []
    for _ in range(3):
        began = time.monotonic()
        act()
        lengths.append(time.monotonic() - began)
        undo()
    return min(lengths)


def expect_rest_is_good(ctx, trace, moment_s):
    checked = ctx.redrive("check", trace)
    if checked.status == 1:
        ctx.expect(any(reason in checked.stderr for reason in NOT_BEGUN.split("|")), checked, f"after a kill at {moment_s:.4f} s")
        return False
    ctx.expect_status(checked, 0)
    report = ctx.json("replay", trace, "--all", "--once", "--verify", cwd="/", statuses=REDRIVEN)
    # The last moments may be lost, and what needs them: that is cut. That no more is lost is what bad_input/ended_before_the_kill looks at.
    if report["intervals"]:
        check_report(ctx, report)
        check_verified(ctx, report, trace)
    return True


def kill_recorders(ctx, name, count, seed):
    kept = bystander(ctx)
    program, *arguments = WORKLOADS[name]
    job = job_of(ctx, program, *arguments, record_options=PERIOD)
    length_s = shortest_s(lambda: record(ctx, job), lambda: ctx.expect_status(ctx.redrive("rm", ctx.trace), 0))
    in_time = recorded = 0
    for i, moment_s in enumerate(moments(count, length_s, seed)):
        job.prepare(ctx.fresh_work())
        in_time += kill_at(ctx, moment_s, ("record", "-o", ctx.trace, *PERIOD, "--", *job.command), child=i % 2 == 1)
        take_away_surroundings(ctx)
        ctx.fresh_work()
        if expect_rest_is_good(ctx, ctx.trace, moment_s):
            ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)
            recorded += 1
        else:
            shutil.rmtree(ctx.trace, ignore_errors=True)
    if count >= 10 and (in_time < count // 3 or recorded < count // 3):
        raise Failure(f"of {count} kills {in_time} came in time, and {recorded} left a trace")
    expect_unharmed(ctx, kept)


def kill_preparers(ctx, count, seed):
    kept = bystander(ctx)
    record(ctx, job_of(ctx, "compute_messages", record_options=VIRTUAL))
    take_away_surroundings(ctx)
    ctx.fresh_work()
    original = ctx.traces / "original"
    ctx.trace.rename(original)
    shutil.copytree(original, ctx.trace)

    def start_again():
        shutil.rmtree(ctx.trace)
        shutil.copytree(original, ctx.trace)

    length_s = shortest_s(lambda: ctx.expect_status(ctx.redrive("prepare", "--bound", BOUND, ctx.trace), 0), start_again)
    shutil.rmtree(ctx.trace)
    in_time = 0
    for moment_s in moments(count, length_s, seed):
        shutil.copytree(original, ctx.trace)
        in_time += kill_at(ctx, moment_s, ("prepare", "--bound", BOUND, ctx.trace))
        if not expect_rest_is_good(ctx, ctx.trace, moment_s):
            raise Failure(f"prepare was killed after {moment_s:.4f} s, and the trace is gone")
        ctx.expect_status(ctx.redrive("prepare", "--bound", BOUND, ctx.trace), 0)
        expect_rest_is_good(ctx, ctx.trace, moment_s)
        shutil.rmtree(ctx.trace)
    if count >= 10 and in_time < count // 3:
        raise Failure(f"of {count} kills {in_time} came in time")
    expect_unharmed(ctx, kept)


def kill_removers(ctx, count, seed):
    kept = bystander(ctx)
    record(ctx, job_of(ctx, "fork_tree", record_options=PERIOD))
    original = ctx.directory / "original"
    ctx.trace.rename(original)
    for i in range(3000):  # so that removing it takes some time
        (original / "events" / f"{i}.old").write_bytes(b"")
    shutil.copytree(original, ctx.trace)
    began = time.monotonic()
    ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)
    length_s = time.monotonic() - began
    left = ctx.trace.with_name("t.removing")
    amid = 0
    for moment_s in moments(count, length_s, seed):
        shutil.copytree(original, ctx.trace)
        kill_at(ctx, moment_s, ("rm", ctx.trace))
        listed = {row["name"] for row in ctx.json("ls")["traces"]}
        if not listed <= {"t", "bystander"} or ("t" in listed) != ctx.trace.exists():
            raise Failure(f"rm was killed after {moment_s:.4f} s, and these traces are listed: {listed}")
        if ctx.trace.exists():
            check_trace(ctx)
        amid += left.exists()
        wanted = 0 if ctx.trace.exists() or left.exists() else 1
        ctx.expect_status(ctx.redrive("rm", ctx.trace), wanted)
        if ctx.trace.exists() or left.exists():
            raise Failure(f"rm was killed after {moment_s:.4f} s, and the next one has not completed it")
    if count >= 10 and amid == 0:
        raise Failure(f"of {count} kills none came while the trace was being removed")
    expect_unharmed(ctx, kept)


@test("kills/removed_by_halves")
def removed_by_halves(ctx):
    """What a killed rm has left is not a trace, does not prevent another trace of that name, and is removed by the next rm."""
    kept = bystander(ctx)
    left = ctx.trace.with_name("t.removing")
    for again in (False, True):
        record(ctx, job_of(ctx, "relay"))
        ctx.trace.rename(left)
        shutil.rmtree(left / "events")
        if {row["name"] for row in ctx.json("ls")["traces"]} != {"bystander"}:
            raise Failure("what is being removed is listed as a trace")
        if again:
            record(ctx, job_of(ctx, "relay"))
        ctx.expect_status(ctx.redrive("rm", "t"), 0)
        if ctx.trace.exists() or left.exists():
            raise Failure("rm has left something")
    ctx.expect_status(ctx.redrive("rm", "t"), 1)
    other = ctx.traces / "u.removing"  # whose it is nobody knows
    other.mkdir()
    (other / "kept").write_text("kept")
    ctx.expect_status(ctx.redrive("rm", "u"), 1)
    if not (other / "kept").exists():
        raise Failure("rm has removed what is no trace")
    expect_unharmed(ctx, kept)


def register(kind, kill, some, many):
    @test(f"kills/some_{kind}")
    def a_few(ctx):
        kill(ctx, some, 1)

    @test(f"kills/many_{kind}", timeout_s=300, slow=True)
    def all_of_them(ctx):
        kill(ctx, many, 2)


for workload in WORKLOADS:
    register(f"recorders_{workload}", lambda ctx, count, seed, name=workload: kill_recorders(ctx, name, count, seed), 2, 200)
register("preparers", kill_preparers, 1, 50)
register("removers", kill_removers, 5, 50)


@test("kills/amid_births")
def amid_births(ctx):
    """Processes are killed by somebody outside the recording while they fork: no child stays stopped for ever, and everything ends."""
    random.seed(3)
    recording = ctx.start_redrive("record", "--wait", "-o", ctx.trace, "--", harness.workload(ctx.options, "forker"), "60", cwd=ctx.work)
    killed = set()
    ctx.wait_until("all were killed", lambda: kill_forkers(recording, killed))
    ended = ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    ctx.expect(len(killed) == 60, ended, f"{len(killed)} were killed")
    if strange := [unit for unit in units(ctx) if unit["pid"] <= 0]:
        raise Failure(f"units without a process: {strange}")
    redrive_all(ctx)


def kill_forkers(recording, killed):
    for line in recording.output().splitlines():
        if line.isdigit() and line not in killed:
            time.sleep(random.uniform(0.001, 0.005))
            os.kill(int(line), signal.SIGKILL)
            killed.add(line)
    return "ok" in recording.output()


@test("kills/copies")
def copies(ctx):
    """A program kills the copies of it that checkpoints need. These checkpoints count as skipped, and no interval begins with their images."""
    binary = harness.workload(ctx.options, "killed_copies")
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--checkpoint-period", "50ms", "--", binary, cwd=ctx.work), 0)
    skipped = ctx.json("stats", ctx.trace)["skipped_checkpoints"]
    if not skipped:
        raise Failure("no checkpoint was skipped")
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--verify", cwd="/"))
