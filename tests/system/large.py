"""Group large: processes with much memory."""
import contextlib
import pathlib
import re
import time

from harness import Failure, test
from programs import job_of, program
from redriving import check_in_time, images_by_unit, record, units

LIMIT_MB = 64  # of redrive: its code and libraries, a few MiB of pages on their way, and some 50 bytes for each page


@test("large/recorder_memory")
def recorder_memory(ctx):
    """The recorder's peak while it stores images of 512 MB."""
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--checkpoint-period", "200ms", "--",
                                  program(ctx.options, "big_memory"), 512, 700)
    peak_kb = 0
    while not recording.has_ended():
        with contextlib.suppress(OSError, IndexError):  # it may have ended
            recorder = pathlib.Path(f"/proc/{recording.pid}/task/{recording.pid}/children").read_text().split()[0]
            if peak := re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{recorder}/status").read_text()):
                peak_kb = int(peak[1])
        time.sleep(0.02)
    ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    if not 0 < peak_kb <= LIMIT_MB * 1024:
        raise Failure(f"the recorder had {peak_kb} kB while it stored 512 MB")
    if not images_by_unit(ctx).get(1):
        raise Failure("the large process has no image")


def record_large(ctx, megabytes, bound):
    """The output of `record` and the statistics."""
    told = record(ctx, job_of(ctx, "big_memory", str(megabytes), "900", record_options=("--bound", bound)))
    return told, ctx.json("stats", ctx.trace)


@test("large/bound_kept")
def bound_kept(ctx):
    """The bound includes restores: intervals that begin with much memory are shorter, and are re-driven in time."""
    told, stats = record_large(ctx, 300, "2s")
    ctx.expect(not stats["over_bound"] and "cannot be kept" not in told.stderr, told, f"over the bound: {stats['over_bound']}")
    intervals = units(ctx)[0]["intervals"]
    inner = [i for i in intervals[1:-1] if i["checkpoint_kind"] == "image"]
    if not inner or min(i["cpu_s"] for i in inner) >= stats["checkpoint_period_s"]:
        raise Failure(f"no interval is shorter than {stats['checkpoint_period_s']} s: {intervals}")
    predicted = [ctx.json("plan", ctx.trace, f"1:{interval['interval']}")["predicted_s"] for interval in inner]
    # The first image may come while the program is still filling its memory, the last has all of it.
    if not 0.5 < predicted[-1] or not max(predicted) < stats["bound_s"]:
        raise Failure(f"predicted for up to 300 MB, in seconds: {predicted}")
    report = ctx.json("replay", ctx.trace, "--all")
    check_in_time(ctx, ctx.trace, report, stats["bound_s"])


@test("large/bound_not_kept")
def bound_not_kept(ctx):
    """It cannot be assumed that 1 GiB is restored in a second; this is reported at once and in the statistics."""
    told, stats = record_large(ctx, 1024, "1s")
    over = stats["over_bound"]
    if {o["unit"] for o in over} != {1} or max(o["memory_bytes"] for o in over) < 1 << 30 or any(o["predicted_s"] <= 1 for o in over):
        raise Failure(f"over_bound: {over}")
    lines = [line for line in told.stderr.splitlines() if line.startswith("redrive: unit 1 (big_memory)")]
    ctx.expect(len(lines) == 1 and "the bound of 1.00 s cannot be kept" in lines[0], told, "does not say that the bound cannot be kept")
    text = ctx.redrive("stats", ctx.trace)
    ctx.expect(lines[0].removeprefix("redrive: ") in text.stdout, text, "does not say that the bound cannot be kept")
