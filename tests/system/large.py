"""Group large: processes with much memory."""
import re

from harness import Failure, test
from programs import job_of, program
from redriving import images_by_unit, record, units

LIMIT_MB = 64  # of redrive: its code and libraries, a few MiB of pages on their way, and some 50 bytes for each page


@test("large/recorder_memory")
def recorder_memory(ctx):
    """The recorder's peak, asked for from inside the recording, once an image of 512 MB has been published."""
    job = program(ctx.options, "big_memory")
    image = ctx.trace / "images" / "2-2.img"  # 0: fork, 1: exec
    script = f"{job} 512 700 & until [ -e {image} ]; do sleep 0.2; done; grep VmHWM /proc/$PPID/status; wait $!"
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--checkpoint-period", "200ms", "--",
                                            "sh", "-c", script), 0)
    peak = re.search(r"VmHWM:\s+(\d+) kB", outcome.stdout)
    if not peak or int(peak[1]) > LIMIT_MB * 1024:
        raise Failure(f"the recorder had {peak[0] if peak else '?'} while it stored 512 MB")
    if not images_by_unit(ctx).get(2):
        raise Failure("the large process has no image")


def record_large(ctx, megabytes, bound):
    """What `record` says of it, and its statistics."""
    told = record(ctx, job_of(ctx, "big_memory", str(megabytes), "900", record_options=("--bound", bound)))
    return told, ctx.json("stats", ctx.trace)


@test("large/bound_kept")
def bound_kept(ctx):
    """Restoring is in the bound: intervals that begin with much memory are shorter, and are re-driven in time."""
    told, stats = record_large(ctx, 300, "2s")
    ctx.expect(not stats["over_bound"] and "cannot be kept" not in told.stderr, told, f"over the bound: {stats['over_bound']}")
    intervals = units(ctx)[0]["intervals"]
    inner = [i for i in intervals[1:-1] if i["checkpoint_kind"] == "image"]
    if not inner or min(i["cpu_s"] for i in inner) >= stats["checkpoint_period_s"]:
        raise Failure(f"no interval is shorter than {stats['checkpoint_period_s']} s: {intervals}")
    for interval in inner:
        plan = ctx.json("plan", ctx.trace, f"1:{interval['interval']}")
        if not 0.5 < plan["predicted_s"] < stats["bound_s"]:
            raise Failure(f"predicted {plan['predicted_s']} s for 300 MB")
    report = ctx.json("replay", ctx.trace, "--all")
    if report["late"] or report["max_seconds"] > stats["bound_s"]:
        raise Failure(f"re-driven in {report['max_seconds']} s, bound {stats['bound_s']} s")


@test("large/bound_not_kept")
def bound_not_kept(ctx):
    """1 GiB cannot be counted on to be restored in a second: said at once and in the statistics."""
    told, stats = record_large(ctx, 1024, "1s")
    over = stats["over_bound"]
    if [o["unit"] for o in over] != [1] or over[0]["memory_bytes"] < 1 << 30 or over[0]["predicted_s"] <= 1:
        raise Failure(f"over_bound: {over}")
    lines = [line for line in told.stderr.splitlines() if line.startswith("redrive: unit 1 (big_memory)")]
    ctx.expect(len(lines) == 1 and "the bound of 1.00 s cannot be kept" in lines[0], told, "does not say that the bound cannot be kept")
    text = ctx.redrive("stats", ctx.trace)
    ctx.expect(lines[0].removeprefix("redrive: ") in text.stdout, text, "does not say that the bound cannot be kept")
