"""Group papers: the checker of tests/bench/executions.py, on executions small enough to work out by hand, and compared with `redrive evaluate` on a
recording."""
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import executions  # noqa: E402
import mpi  # noqa: E402
from executions import BEGIN, END, RECEIVE, SEND, Step  # noqa: E402
from harness import Failure, test, workload  # noqa: E402
from redriving import REDRIVEN, Job, check_trace, images_by_unit, record, redrive_all  # noqa: E402

# Units 1 and 2, a checkpoint of each after every 4: 1 sends at 3, 2 receives that at 1 and sends at 3, 1 receives that at 5, in its second interval.
CHAIN = {
    1: [Step(BEGIN, 1, 0, 0), Step(SEND, 1, 1, 3), Step(RECEIVE, 1, 2, 5, ((2, 2),), True, arrival=2), Step(END, 1, 3, 6)],
    2: [Step(BEGIN, 2, 0, 0), Step(RECEIVE, 2, 1, 1, ((1, 1),), True, arrival=1), Step(SEND, 2, 2, 3), Step(END, 2, 3, 4)],
}


def chain():
    by_unit = {unit: [Step(**vars(step)) for step in steps] for unit, steps in CHAIN.items()}
    return executions.Execution(executions.in_causal_order(by_unit), {1: 6, 2: 4})


def expect(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {found}, not {wanted}")


def expect_near(found, wanted, most, what):
    """The catalog lacks the sends that nobody received, so a checkpoint may be between other steps."""
    if abs(found - wanted) > most:
        raise Failure(f"{what}: {found}, not about {wanted}")


def decided_with(limit):
    execution = chain()
    decided = executions.Deciding(execution, executions.CriticalPath(limit), 4).run()
    kept = [(step.unit, step.event) for step, kept in zip(execution.steps, decided.kept) if kept]
    paths = executions.critical_paths(execution, decided)
    return kept, {(interval.unit, interval.start): path for interval, path in zip(decided.intervals, paths)}


@test("papers/critical_paths")
def critical_paths(ctx):
    # 1 computes 3; 2, which has come to 1, goes on from there: 3 + 2 at its send, 3 + 3 at its end. That send and the rest of 1's second interval, 3, make 8.
    expect(decided_with(8), ([], {(1, 0): 4, (2, 0): 6, (1, 4): 6}), "C = 8")
    expect(decided_with(7), ([(1, 2)], {(1, 0): 4, (2, 0): 6, (1, 4): 2}), "C = 7")
    # 3 and the rest of 2's first interval make 6, and so do the 3 that 2 has then computed and the rest of 1's second.
    expect(decided_with(5), ([(2, 1), (1, 2)], {(1, 0): 4, (2, 0): 4, (1, 4): 2}), "C = 5")


@test("papers/mrt")
def mrt(ctx):
    execution = chain()
    def decided_by(policy, real):
        decided = executions.Deciding(execution, policy, 4, real).run()
        return decided, [step.unit for step, kept in zip(execution.steps, decided.kept) if kept], sorted((i.unit, i.start) for i in decided.intervals)
    # Unit 2 receives at 1 what was sent at 3: rule 3. Unit 1 has its second interval when it receives, and unit 2 sends in its first: rule 1.
    decided, *found = decided_by(executions.Mrt(), False)
    expect(found, [[2, 1], [(1, 0), (1, 4), (2, 0)]], "kept, and intervals")
    # By one clock, unit 2 waits until 3, and has its checkpoint at 4, before it sends at 5; it computes one more until 6. Unit 1 waits for nothing.
    expect(decided_by(executions.Mrt(), True)[1:], ([], [(1, 0), (1, 4), (2, 0), (2, 2)]), "by one clock: kept, and intervals")
    decided.kept = [False] * len(decided.kept)
    points = executions.Breakpoints(execution, decided)
    # All of it: from both beginnings, since unit 1's second interval needs unit 2's first, and that unit 1's first.
    everything = {1: 3, 2: 3}
    first = {unit: decided.intervals.index(next(i for i in decided.intervals if i.unit == unit)) for unit in (1, 2)}
    expect(points.recovery_line(everything), first, "recovery line")
    expect(points.costs([everything]), [(5, 5)], "distance and time")


@test("papers/evaluate")
def evaluate(ctx):
    record(ctx, mpi.job(ctx.options, "det", 300, 1))  # ranks are started by exec: times of forks are estimates
    ctx.expect_status(ctx.redrive("catalog", ctx.trace), 0)
    execution = executions.read(ctx.trace)
    period_us = max(execution.end.values()) // 10_000
    limits = ("--checkpoint-period", f"{period_us}us", "--critical-path", f"{2 * period_us}us")
    rows = [(row, clock) for clock in ("cpu", "real")
            for row in ctx.json("evaluate", ctx.trace, "--policy", "critical-path,mrt", "--clock", clock, *limits)["policies"]]
    for row, clock in rows:
        policy = executions.Mrt() if row["policy"] == "mrt" else executions.CriticalPath(2_000 * period_us)
        decided = executions.Deciding(execution, policy, 1_000 * period_us, clock == "real").run()
        logged = sum(kept for kept, step in zip(decided.kept, execution.steps) if step.message)
        # Sends that nobody received are none in the catalog.
        expect_near(logged, row["logged_messages"], row["messages"] * 0.01, f"{row['policy']}, {clock}: messages logged")
        expect_near(len(decided.intervals), row["intervals"], 1, f"{row['policy']}, {clock}: intervals")
        longest = max(executions.critical_paths(execution, decided))
        expect_near(longest / 1e9, row["critical_path_max_s"], row["critical_path_max_s"] * 0.01, f"{row['policy']}, {clock}: longest path")


@test("papers/tuning")
def tuning(ctx):
    """C and T from the bound: as in the papers, and with room for restores and for the work of other units."""
    job = [str(workload(ctx.options, "mesh")), "2", "20i"]
    for rule, policy, path, part, rest in (("paper", "critical-path", 1.25, 0.5, 0), ("promise", "critical-path", 0.3, 0.5, 0.1),
                                           ("promise", "deadline", 0.8, 0.1875, 0.1)):
        trace = ctx.trace.with_name(f"{rule}.{policy}")
        ctx.expect_status(ctx.redrive("record", "-o", trace, "--bound", "1s", "--tuning", rule, "--policy", policy, "--", *job, cwd=ctx.work), 0)
        stats = ctx.json("stats", trace)
        limit, period = stats["critical_path_s"], stats["checkpoint_period_s"]
        if not path * (1 - rest) <= limit <= path or abs(period - part * limit) > 1e-6 or stats["bound_s"] != 1:
            raise Failure(f"{rule}, {policy}: C = {limit} s, T = {period} s with a bound of {stats['bound_s']} s")


PERIOD_MS = 40
LATE = ("--critical-path", f"{2 * PERIOD_MS}ms", "--checkpoint-period", f"{PERIOD_MS}ms")


def logged_of(ctx):
    """Messages and logged messages by the trace's events and by its catalog, which must agree."""
    stats = ctx.json("stats", ctx.trace)
    ctx.expect_status(ctx.redrive("catalog", ctx.trace), 0)
    execution = executions.read(ctx.trace)
    logged = sum(step.logged for step in execution.steps if step.message)
    if (stats["messages"], stats["logged_messages"]) != (sum(step.message for step in execution.steps), logged):
        raise Failure(f"{stats['logged_messages']} of {stats['messages']} messages are logged, {logged} by the catalog")
    return execution, stats["messages"], logged


def check_recovery(policy, most, limit, slow):
    @test(f"papers/recorded_{policy}", timeout_s=240, slow=slow)
    def recorded(ctx, policy=policy, most=most, limit=limit):
        """Decisions that come later while recording: 1,000 breakpoints, by the recording alone. The paper's T is the longest interval."""
        record(ctx, Job([str(workload(ctx.options, "mesh")), "4", "800i"], record_options=("--policy", policy, *LATE)))
        check_trace(ctx)
        execution, messages, logged = logged_of(ctx)
        if logged > messages * most:
            raise Failure(f"{logged} of {messages} messages are logged")
        decided = executions.as_recorded(execution)
        period = max(PERIOD_MS * 1_000_000, *(interval.end - interval.start for interval in decided.intervals))
        points = executions.Breakpoints(execution, decided)
        costs = points.costs(points.random(1000))
        distance, replay = (max(values) / period for values in zip(*costs))
        if distance > 2 or replay > limit(len(execution.end)):
            raise Failure(f"a breakpoint is {distance:.2f} T away, and {replay:.2f} T to replay, with T = {period / 1e6:.1f} ms")
        redrive_all(ctx)


# Of each: the share of messages that it may keep, and the longest replay of a breakpoint in T. Rule 3 by CPU time keeps about half.
for row in (("mrt", 0.8, lambda units: 2, False), ("mrt-waits", 0.5, lambda units: 2, True), ("ros", 0.5, lambda units: 2 * units, False),
            ("ros-nt", 0.8, lambda units: units, True)):
    check_recovery(*row)


@test("papers/placement", timeout_s=120)
def placement(ctx):
    """Independent: each unit takes its checkpoint an eighth of T before it is due. Aligned: some come sooner, with another unit's."""
    for choice in ("aligned", "independent"):
        trace = ctx.trace.with_name(choice)
        job = [str(workload(ctx.options, "mesh")), "4", "800i"]
        ctx.expect_status(ctx.redrive("record", "-o", trace, "--policy", "critical-path", "--placement", choice, *LATE, "--", *job, cwd=ctx.work), 0)
        by_unit = {}
        ctx.expect_status(ctx.redrive("catalog", trace), 0)
        for interval in executions.as_recorded(executions.read(trace)).intervals:
            by_unit.setdefault(interval.unit, []).append((interval.end - interval.start) / 1e6)
        sooner = [length for lengths in by_unit.values() for length in lengths[:-1] if length < PERIOD_MS * 7 / 8 - 0.01]
        if bool(sooner) != (choice == "aligned"):
            raise Failure(f"{choice}: intervals of {sooner} ms ended sooner")


@test("papers/killed_while_undecided", timeout_s=240)
def killed_while_undecided(ctx):
    """What was not decided, or not published, when the recorder was killed is not logged: its senders are executed again."""
    job = Job([str(workload(ctx.options, "mesh")), "4", "20000i"])
    process = ctx.start_redrive("record", "-o", ctx.trace, "--policy", "mrt-waits", *LATE, "--", *job.command, cwd=ctx.work)
    limit = time.monotonic() + 60
    while not (ctx.trace / "images.seg").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    while time.monotonic() < limit:
        if sum(map(len, images_by_unit(ctx).values())) >= 24 and ctx.json("stats", ctx.trace)["messages"] >= 1000:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.finish(30)
    check_trace(ctx)
    stats = ctx.json("stats", ctx.trace)
    if stats["messages"] < 1000 or stats["logged_messages"] == stats["messages"]:
        raise Failure(f"{stats['logged_messages']} of {stats['messages']} messages are logged")
    # Images that were not published are lost, so that not every interval ends at one.
    report = ctx.json("replay", ctx.trace, "--all", "--verify", statuses=REDRIVEN)
    wrong = [f"{i['unit']}:{i['interval']}: {i['divergence'] or i['error']}" for i in report["intervals"] if i["divergence"] or i["error"]]
    if wrong or not any(i["verified"] for i in report["intervals"]):
        raise Failure(f"{len(wrong)} intervals diverged or failed, {wrong[:1]}; {report['not_verified']} not verified")
