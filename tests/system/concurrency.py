"""Group concurrency: replays at the same time, with many jobs and with one, of several recordings."""
import os
import shutil
import signal

from harness import Failure, Skip, test, workload
from programs import job_of
from redriving import (REDRIVEN, TRIES, TakenPorts, check_in_time, check_report, check_trace, free_port, images_by_unit, record, redrive_all, redrive_each, take_away_surroundings)

PERIOD = ("--bound", "2s", "--checkpoint-period", "100ms")
MOST_EVENTS_WHILE_TESTING = 250_000  # per second
MOST_ATTEMPTS = 3000  # in a round; a millisecond is enough for thousands


def recorded_compute(ctx):
    record(ctx, job_of(ctx, "compute_messages", record_options=PERIOD))
    take_away_surroundings(ctx)


def middle_interval(ctx):
    unit, images = max(images_by_unit(ctx).items(), key=lambda item: len(item[1]))
    if not images:
        raise Failure("no image checkpoint was taken")
    return f"{unit}:{images[len(images) // 2]['interval']}"


@test("concurrency/no_calls")
def no_calls(ctx):
    """The bound is kept for a program that computes for seconds without a system call, and every checkpoint comes in time."""
    for again in reversed(range(TRIES)):  # a recorder that waits for its processor is late
        record(ctx, job_of(ctx, "preempted", "8", record_options=("--bound", "1s")))
        period_s = ctx.json("stats", ctx.trace)["checkpoint_period_s"]
        intervals = [i["cpu_s"] for unit in ctx.json("ls", ctx.trace)["units"] for i in unit["intervals"]]
        if len(intervals) >= 4 and max(intervals) <= 1.5 * period_s:
            break
        if not again:
            raise Failure(f"{len(intervals)} intervals, the longest of {max(intervals):.3f} s, T is {period_s:.3f} s")
        shutil.rmtree(ctx.trace)
    take_away_surroundings(ctx)
    redrive_all(ctx, bound_s=1)


@test("concurrency/spinning_is_ended")
def spinning_is_ended(ctx):
    """SIGTERM reaches a program that makes no system call, and its handler runs at the interrupted place."""
    job = job_of(ctx, "spin_flag", "forever", record_options=PERIOD)
    job.prepare(ctx.fresh_work())
    recording = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", *job.command, cwd=ctx.work)
    recording.wait_for("waits", ctx.timeout_s)
    os.kill(recording.pid, signal.SIGTERM)
    outcome = ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    ctx.expect(job.good(outcome), outcome, "the handler has not run")
    redrive_all(ctx)


@test("concurrency/loops")
def loops(ctx):
    """Threads that wait in loops without calls let others run there, and not only when they are preempted after milliseconds of that."""
    for program, least in (("paused_loops", 700), ("polling_loops", 1000), ("openmp", 1000)):  # about 950, 1,400, and 3,500 or more, on an idle machine
        trace = ctx.traces / program
        record(ctx, job_of(ctx, program, record_options=PERIOD), trace)
        events = ctx.expect_status(ctx.redrive("dump", trace), 0).stdout
        turns, preempted = events.count(" times ---"), events.count("--- stopped at") - events.count(" times ---")
        if turns < least or preempted > turns / 10:
            raise Failure(f"{program}: {turns} turns were given up in loops, at least {least} expected; {preempted} preemptions beside them")


@test("concurrency/spinning_waker")
def spinning_waker(ctx):
    """A thread that wakes another one by trying again and again lets it run after some hundred attempts, not after milliseconds of them."""
    report = record(ctx, job_of(ctx, "spin_wake", record_options=PERIOD))
    rounds = int(report.stdout.split()[1])
    calls = ctx.json("stats", ctx.trace)["events"]
    if not rounds <= calls <= MOST_ATTEMPTS * rounds:
        raise Failure(f"{calls} events for {rounds} rounds")
    redrive_all(ctx)


@test("concurrency/testing_turns")
def testing_turns(ctx):
    """Who waits for another one in a loop of tests, or reads the counter there, lets it run after some hundred of them, not after milliseconds."""
    report = record(ctx, job_of(ctx, "testing_turns", record_options=PERIOD))
    turns = int(report.stdout.split()[1])
    events = ctx.json("stats", ctx.trace)["events"]
    if events > MOST_ATTEMPTS * turns:
        raise Failure(f"{events} events for {turns} turns")
    redrive_all(ctx)


@test("concurrency/tests_in_vain")
def tests_in_vain(ctx):
    """A program that tests again and again, and reads the time between, makes some 100,000 events a second, not as many as it can."""
    record(ctx, job_of(ctx, "tests_in_vain", record_options=PERIOD))
    stats = ctx.json("stats", ctx.trace)
    if stats["events"] > MOST_EVENTS_WHILE_TESTING * stats["wall_s"]:
        raise Failure(f"{stats['events']} events in {stats['wall_s']:.2f} s")
    redrive_all(ctx)


@test("concurrency/processors")
def processors(ctx):
    """Programs that compute run on several processors, unless the user asks for fewer."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one processor")
    for options, rounds, told in (((), "5000", "on two processors"), (("--processors", "1"), "100", "on one processor")):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        outcome = record(ctx, job_of(ctx, "apart", rounds, record_options=(*PERIOD, *options)))
        ctx.expect(told in outcome.stdout, outcome, f"not {told}")
        take_away_surroundings(ctx)
        redrive_all(ctx)


@test("concurrency/one_interval_twice")
def one_interval_twice(ctx):
    recorded_compute(ctx)
    interval = middle_interval(ctx)
    both = [ctx.start_redrive("replay", ctx.trace, interval, "--verify") for _ in range(2)]
    for replay in both:
        ctx.expect_status(replay.finish(ctx.timeout_s), 0)


@test("concurrency/all_twice")
def all_twice(ctx):
    recorded_compute(ctx)
    both = [ctx.start_redrive("replay", ctx.trace, "--all", "--verify") for _ in range(2)]
    for replay in both:
        ctx.expect_status(replay.finish(ctx.timeout_s), 0)


@test("concurrency/jobs")
def jobs(ctx):
    recorded_compute(ctx)
    for count in ("1", "2", "8"):
        redrive_each(ctx, options=("--jobs", count))


@test("concurrency/middle_interval")
def middle(ctx):
    recorded_compute(ctx)
    report = ctx.json("replay", ctx.trace, middle_interval(ctx), "--verify", cwd="/", statuses=REDRIVEN)
    check_report(ctx, report)
    check_in_time(ctx, ctx.trace, report, 2)


@test("concurrency/replay_while_recording")
def replay_while_recording(ctx):
    recorded_compute(ctx)
    job = job_of(ctx, "until_signal", "500", record_options=PERIOD)
    job.prepare(ctx.fresh_work())
    recording = ctx.start_redrive("record", "-o", ctx.traces / "second", *PERIOD, "--", *job.command, cwd=ctx.work)
    redrive_all(ctx)
    ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    redrive_all(ctx, ctx.traces / "second")


@test("concurrency/busy_processors")
def busy_processors(ctx):
    """When other processes use the processors too, the recorder may be interrupted anywhere: no served call is lost."""
    pingpong = workload(ctx.options, "pingpong")
    dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=8", "count=200000", "status=none"]
    burners = [ctx.start("sh", "-c", "while :; do :; done") for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        for name, command in (("dd", dd), ("pipe", [pingpong, "pipe", 80_000])):
            options = ("-o", ctx.traces / name, "--checkpoint-period", "100s")
            ctx.expect_status(ctx.redrive("record", *options, "--", *command, cwd=ctx.work), 0)
    finally:
        for burner in burners:
            burner.kill()
    calls, messages = (ctx.json("stats", ctx.traces / name) for name in ("dd", "pipe"))
    if calls["unsure"] or calls["events"] < 400_000 or messages["unsure"] or messages["messages"] != 160_000:
        raise Failure(f"of 400000 calls: {calls}; of 160000 messages: {messages}")


@test("concurrency/two_recordings")
def two_recordings(ctx):
    job = job_of(ctx, "compute_threads", record_options=PERIOD)
    job.prepare(ctx.fresh_work())
    traces = [ctx.traces / name for name in ("left", "right")]
    both = [ctx.start_redrive("record", "-o", trace, *PERIOD, "--", *job.command, cwd=ctx.work) for trace in traces]
    for recording in both:
        ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    take_away_surroundings(ctx)
    for trace in traces:
        redrive_all(ctx, trace)


@test("concurrency/ports_taken")
def ports_taken(ctx):
    port = free_port()
    job = job_of(ctx, "fixed_port", str(port), record_options=PERIOD)
    record(ctx, job)
    take_away_surroundings(ctx)
    with TakenPorts([port]):
        redrive_all(ctx)


@test("concurrency/moved_trace")
def moved_trace(ctx):
    recorded_compute(ctx)
    moved = ctx.directory / "elsewhere" / "trace"
    moved.parent.mkdir()
    ctx.trace.rename(moved)
    redrive_all(ctx, moved)


@test("concurrency/names")
def names(ctx):
    """Recordings that begin at the same time get different names, and one of them is the latest."""
    count = 20
    together = [ctx.start_redrive("record", "--", "true", cwd=ctx.work) for _ in range(count)]
    for recording in together:
        ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    found = sorted(row["name"] for row in ctx.json("ls")["traces"])
    if found != sorted(f"true-{n}" for n in range(1, count + 1)):
        raise Failure(f"{count} recordings at once are called {found}")
    latest = os.readlink(ctx.traces / "latest")
    if latest not in found or [path.name for path in ctx.traces.iterdir() if path.name.startswith("latest.")]:
        raise Failure(f"the latest is {latest}: {sorted(path.name for path in ctx.traces.iterdir())}")
    check_trace(ctx, ctx.traces / latest)
