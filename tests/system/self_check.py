"""Group self_check: `record --self-check` and `replay --all --follow` re-drive a trace while it is being recorded."""
import os
import signal
import subprocess
import time

from harness import test, workload
from programs import job_of
from redriving import check_trace, record

PERIOD = ("--checkpoint-period", "50ms")


def said(told):
    return [line for line in told.stderr.splitlines() if line.startswith("redrive: self-check: ")]


@test("self_check/as_recorded")
def as_recorded(ctx):
    """Intervals are re-driven while the program runs, and all of them by the end; the exit status is the program's."""
    told = record(ctx, job_of(ctx, "compute_threads", record_options=("--self-check", *PERIOD)))
    ctx.expect(len(said(told)) == 1 and "re-driven as recorded" in said(told)[0], told, "does not say what was re-driven")
    intervals = ctx.json("stats", ctx.trace)["intervals"]
    ctx.expect(f": {intervals} interval" in said(told)[0], told, f"does not re-drive {intervals} intervals")
    check_trace(ctx)


@test("self_check/short")
def short(ctx):
    failed = ctx.redrive("record", "--self-check", "-o", ctx.trace, "--", "sh", "-c", "exit 7", cwd=ctx.work)
    ctx.expect_status(failed, 7)
    ctx.expect("as recorded" in said(failed)[0], failed, "does not say that it was re-driven")


def counting(ctx):
    """A process that changes the file that the recorded one has mapped."""
    return subprocess.Popen([workload(ctx.options, "watched_counter"), "count", ctx.work / "counter"])


@test("self_check/diverges")
def diverges(ctx):
    """What a replay cannot have is found while the program runs, shown, and a failure."""
    ctx.fresh_work()
    counter = counting(ctx)
    try:
        recording = ctx.start_redrive("record", "--self-check", "-o", ctx.trace, *PERIOD, "--", workload(ctx.options, "watched_counter"), "watch",
                                      ctx.work / "counter", "1000000", cwd=ctx.work)
        recording.wait_for("redrive: divergence in unit 1", ctx.timeout_s, which=1)  # the program goes on
        recording.process.send_signal(signal.SIGINT)
        ended = recording.finish(ctx.timeout_s)
    finally:
        counter.kill()
        counter.wait()
    ctx.expect_status(ended, 125)
    ctx.expect("divergence" in said(ended)[0] and str(ctx.trace) in said(ended)[0], ended, "does not say where to look")


@test("self_check/ended_by_signal")
def ended_by_signal(ctx):
    """Ctrl-C is for the program: the self-check goes on to its end."""
    for to_group in (False, True):
        recording = ctx.start_redrive("record", "--self-check", "-o", ctx.trace, *PERIOD, "--", "sh", "-c", "echo ready; while :; do :; done", cwd=ctx.fresh_work())
        recording.wait_for("ready", ctx.timeout_s)
        time.sleep(0.5)
        (os.killpg if to_group else os.kill)(recording.pid, signal.SIGINT)
        ended = recording.finish(ctx.timeout_s)
        ctx.expect_status(ended, 130)
        ctx.expect(len(said(ended)) == 1 and "as recorded" in said(ended)[0], ended, "the self-check did not end well")
        ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)


@test("self_check/follow")
def follow(ctx):
    """`replay --all --follow` by hand: it ends with the recording."""
    recording = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", "sh", "-c", "echo ready; while :; do :; done", cwd=ctx.fresh_work())
    recording.wait_for("ready", ctx.timeout_s)
    following = ctx.start_redrive("replay", "--all", "--follow", "--json", ctx.trace, cwd="/")
    time.sleep(1)
    if following.process.poll() is not None:
        raise following.failure("does not follow")
    recording.process.send_signal(signal.SIGTERM)
    ctx.expect_status(recording.finish(ctx.timeout_s), 143)
    ended = ctx.expect_status(following.finish(ctx.timeout_s), 0)
    ctx.expect('"followed_divergences":0' in ended.stdout and '"divergences":0' in ended.stdout, ended, "does not report")
    wrong = ctx.redrive("replay", "--follow", ctx.trace, "1")
    ctx.expect_status(wrong, 2)
    ctx.expect("--follow needs --all" in wrong.stderr, wrong, "does not say what is wrong")
