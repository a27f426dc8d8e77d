"""Group large: processes with much memory."""
import re

from harness import Failure, test
from redriving import images_by_unit
from programs import program

LIMIT_MB = 64  # of redrive: its code and libraries, a few MiB of pages on their way, and some 50 bytes for each page


@test("large/recorder_memory")
def recorder_memory(ctx):
    """The recorder's peak, asked for from inside the recording, once an image of 512 MB has been published."""
    job = program(ctx.options, "big_memory")
    image = ctx.trace / "images" / "2-2.img"  # 0: fork, 1: exec
    script = f"{job} 512 700 & until [ -e {image} ]; do sleep 0.05; done; grep VmHWM /proc/$PPID/status; wait $!"
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--checkpoint-period", "200ms", "--",
                                            "sh", "-c", script), 0)
    peak = re.search(r"VmHWM:\s+(\d+) kB", outcome.stdout)
    if not peak or int(peak[1]) > LIMIT_MB * 1024:
        raise Failure(f"the recorder had {peak[0] if peak else '?'} while it stored 512 MB")
    if not images_by_unit(ctx).get(2):
        raise Failure("the large process has no image")
