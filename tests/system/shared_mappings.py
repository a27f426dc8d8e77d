"""Group shared_mappings: reports about writers outside the recording, and the cost of shared mappings in a trace."""
import contextlib
import mmap
import os
import subprocess

from harness import Failure, Skip, needs, test, workload
from programs import job_of
from redriving import cycle, is_root, redrive_all, units

PERIOD = ("--bound", "2s", "--checkpoint-period", "30ms")  # several even where processors are fast


def record_it(ctx, *words):
    command = [workload(ctx.options, "shared_maps"), *words]
    return ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, *PERIOD, "--", *command, cwd=ctx.work), 0)


def contents(ctx):
    """How many bytes of a trace are not copies of files."""
    return sum(file.stat().st_size for file in ctx.trace.rglob("*") if file.is_file() and file.parent.name != "files")


def expect_unsure(ctx, outcome, mapped):
    ctx.expect("ok sees b" in outcome.stdout, outcome, "does not see what was written")
    ctx.expect(str(mapped) in outcome.stderr, outcome, "is silent about the file that was changed")
    unsure = ctx.json("stats", ctx.trace)["unsure"]
    if not any(str(mapped) in entry["reason"] and entry["unit"] == units(ctx)[0]["unit"] for entry in unsure):
        raise Failure(f"unsure is {unsure}")


def change_from_outside(ctx, how):
    """A process that is not recorded changes a file that a recorded program has mapped: the recording names both."""
    mapped = ctx.work / "mapped"
    mapped.write_text("a" * 4096)
    os.mkfifo(ctx.work / "go")
    command = [workload(ctx.options, "shared_maps"), how, "mapped"]
    process = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", *command, cwd=ctx.work)
    process.wait_for("mapped a", ctx.timeout_s)
    with open(mapped, "r+") as file:
        file.write("b")
    (ctx.work / "go").write_text("x")
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    expect_unsure(ctx, outcome, mapped)


@test("shared_mappings/changed_from_outside")
def changed_from_outside(ctx):
    change_from_outside(ctx, "written")


@test("shared_mappings/private_changed_from_outside")
def private_changed_from_outside(ctx):
    change_from_outside(ctx, "viewed")


EMPTIES = """
import mmap
with open("mapped", "r+b") as file: memory = mmap.mmap(file.fileno(), 8192)
memory.madvise(mmap.MADV_REMOVE, 0, 4096)
assert memory[:4096] == bytes(4096) and memory[4096:4097] == b"a"
print("ok")
"""


@test("shared_mappings/emptied")
def emptied(ctx):
    """What a program removes from a file that it has mapped (madvise(2)) was not changed by somebody else."""
    (ctx.work / "mapped").write_text("a" * 8192)
    command = ["/usr/bin/python3", "-c", EMPTIES]
    if ctx.run(*command, cwd=ctx.work).status != 0:
        raise Skip("the file system cannot remove a part of a file")
    (ctx.work / "mapped").write_text("a" * 8192)
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", *command, cwd=ctx.work), 0)
    ctx.expect("not recorded" not in outcome.stderr, outcome, "says that somebody else has changed the file")
    redrive_all(ctx)


WRITES_TO_OVERLAY = """
import mmap, os
with open("file", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 8192, mmap.MAP_KIND, mmap.PROT_READ)
    for i in range(20):
        os.pwrite(file.fileno(), b"round %d" % i, 100 * i)
        if os.fork() == 0:
            os.pwrite(file.fileno(), b"child", 4096 + 10 * i)
            os._exit(0)
        os.wait()
        print(memory[100 * i:100 * i + 8], memory[4096:4300].count(b"child"), flush=True)
print("ok")
"""
OVERLAY = """
mkdir lower upper merged && mount -t tmpfs tmpfs upper && mkdir upper/files upper/work && cp file lower/ &&
mount -t overlay overlay -o lowerdir=lower,upperdir=upper/files,workdir=upper/work merged || exit 99
cd merged && exec "$@"
"""


@test("shared_mappings/overlay")
def overlay(ctx):
    """Of a file on an overlay whose layers are on several file systems, stat(2) tells another device than /proc/PID/maps.
    What is written to it is recorded, where it is mapped shared or privately."""
    if not is_root():
        raise Skip("not root")
    needs("unshare", "mount")
    for kind in ("SHARED", "PRIVATE"):
        work, trace = ctx.fresh_work(), ctx.traces / kind
        (work / "file").write_text("a" * 8192)
        outcome = ctx.run("unshare", "-m", "sh", "-c", OVERLAY, "sh", ctx.options.redrive, "record", "-o", trace, "--", "/usr/bin/python3", "-c",
                          WRITES_TO_OVERLAY.replace("KIND", kind), cwd=work)
        if outcome.status == 99:
            raise Skip("no overlayfs here")
        ctx.expect_status(outcome, 0)
        ctx.expect("not recorded" not in outcome.stderr, outcome, "says that somebody else has changed the file")
        ctx.expect_status(ctx.redrive("replay", "--all", "--verify", trace), 0)


@test("shared_mappings/shared_with_outside")
def shared_with_outside(ctx):
    """A process that is not recorded has mapped the same file and can write to it: the recording names it."""
    path = ctx.work / "mapped"
    path.write_text("a" * 4096)
    os.mkfifo(ctx.work / "go")
    command = [workload(ctx.options, "shared_maps"), "shares", "mapped"]
    process = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", *command, cwd=ctx.work)
    process.wait_for("mapped a", ctx.timeout_s)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        memory[0] = ord("b")
        (ctx.work / "go").write_text("x")
        outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    expect_unsure(ctx, outcome, path)
    ctx.expect(f", {os.getpid()})" in outcome.stderr, outcome, "does not say who can change it")


@test("shared_mappings/private_beside_shared")
def private_beside_shared(ctx):
    """What a program writes through a shared mapping shows in its private mapping at no event: the recording says so."""
    mapped = ctx.work / "mapped"
    mapped.write_text("a" * 4096)
    expect_unsure(ctx, record_it(ctx, "both", "mapped"), mapped)


@test("shared_mappings/writes_are_kept_once")
def writes_are_kept_once(ctx):
    record_it(ctx, "writes", 64)
    if contents(ctx) > 4 << 20:
        raise Failure(f"500 writes of 4 KiB into a mapped file make a trace of {contents(ctx)} bytes")
    redrive_all(ctx)


@test("shared_mappings/holes_cost_nothing")
def holes_cost_nothing(ctx):
    record_it(ctx, "sparse", 10)
    if len(units(ctx)[0]["intervals"]) < 3 or contents(ctx) > 1 << 20:
        raise Failure(f"{len(units(ctx)[0]['intervals'])} intervals of sparse memory make a trace of {contents(ctx)} bytes")
    redrive_all(ctx)


@contextlib.contextmanager
def mounted_file_system(ctx, kind):
    """A file system that is mounted for the test."""
    if not is_root():
        raise Skip("only root can mount a file system")
    needs(f"mkfs.{kind}")
    image, mounted = ctx.directory / "image", ctx.directory / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(320 << 20)
    for command in ([f"mkfs.{kind}", "-q", image], ["mount", "-o", "loop", image, mounted]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"{command[0]}: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


@test("shared_mappings/clones")
def clones(ctx):
    """What FICLONE and FICLONERANGE put into a mapped file, if the file system supports them."""
    with mounted_file_system(ctx, "xfs") as directory:
        cycle(ctx, job_of(ctx, "file_extents", directory))
        calls = ctx.expect_status(ctx.redrive("dump", ctx.trace), 0).stdout
        for name in ("FICLONE", "FICLONERANGE", "FIDEDUPERANGE", "FS_IOC_FIEMAP"):
            if not any(name in line and "= 0" in line for line in calls.splitlines()):
                raise Failure(f"{name} did not work, so nothing was tested")


@test("shared_mappings/trace_on_btrfs")
def trace_on_btrfs(ctx):
    """stat(2) and /proc/PID/maps report different devices for files on btrfs, including the copies of mapped files."""
    with mounted_file_system(ctx, "btrfs") as directory:
        ctx.trace = directory / "t"
        cycle(ctx, job_of(ctx, "shared_files"))
