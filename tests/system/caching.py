"""Group caching: what recordings learn about files is kept for later recordings, and never makes a recording or a trace worse."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from harness import Failure, Skip, test

CLOCK_S = 2.5  # a file that was changed so recently is not kept: its times may not show the next change
SOURCE = """
#include <stdio.h>
#include <unistd.h>
static const char kText[] = "version AAAA";
int main(void) {
  for (int i = 0; i < 20; ++i) {
    if (getppid() < 0 || lseek(1, 0, SEEK_CUR) == 12345 || access("/", R_OK) != 0) return 1;
  }
  puts(kText);
  return 0;
}
"""


class Cache:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def env(self):
        return {"REDRIVE_CACHE_DIR": str(self.path)}

    def files(self, below):
        """(inode, mtime, size) of each file, by name."""
        stats = {entry.name: entry.stat() for entry in (self.path / below).iterdir()}
        return {name: (info.st_ino, info.st_mtime_ns, info.st_size) for name, info in stats.items()}


def cache_of(ctx):
    return Cache(ctx.directory / "cache")


def program(ctx):
    """A program that is old enough to be kept."""
    source = ctx.directory / "versions.c"
    source.write_text(SOURCE)
    binary = ctx.directory / "versions"
    subprocess.run(["gcc", "-O1", "-o", binary, source], check=True)
    time.sleep(CLOCK_S)
    return binary


def record(ctx, name, cache, *command, env=None):
    """A recording that prints nothing of its own."""
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.traces / name, "--", *command, cwd=ctx.work,
                                            env={**cache.env(), **(env or {})}), 0)
    ctx.expect(outcome.stderr == "", outcome, "says something")
    return outcome


def verify(ctx, name):
    ctx.expect_status(ctx.redrive("check", ctx.traces / name), 0)
    ctx.expect_status(ctx.redrive("replay", ctx.traces / name, "--all", "--verify"), 0)


def copies(ctx, name):
    return {entry.name: entry.stat() for entry in (ctx.traces / name / "files").iterdir()}


def stopped(ctx, name):
    return ctx.json("stats", ctx.traces / name)["stopped_calls"]


def expect_shared(ctx, name, cache):
    """Every copy in the trace is shared with the cache."""
    kept = cache.files("copies")
    for copy, info in copies(ctx, name).items():
        if copy not in kept:
            raise Failure(f"{name}: {copy} is not in the cache")
        if kept[copy][0] != info.st_ino and info.st_nlink == 1:
            raise Skip("this file system clones files: what they share cannot be seen")
        if kept[copy][0] != info.st_ino:
            raise Failure(f"{name}: {copy} was copied again")


def expect_no_rest(cache):
    rest = [str(path) for path in cache.path.rglob("*.tmp")]
    if rest:
        raise Failure(f"left behind: {rest}")


@test("caching/second_recording")
def second_recording(ctx):
    cache, binary = cache_of(ctx), program(ctx)
    record(ctx, "t1", cache, binary)
    entries = cache.files("files")
    if not entries:
        raise Skip("nothing is kept of files on this file system")
    record(ctx, "t2", cache, binary)
    expect_shared(ctx, "t2", cache)
    if cache.files("files") != entries:
        raise Failure("the second recording learnt something")
    first, second = stopped(ctx, "t1"), stopped(ctx, "t2")
    if second >= first:
        raise Failure(f"{second} calls of the second recording stopped, {first} of the first")
    verify(ctx, "t1")
    verify(ctx, "t2")
    ctx.expect_status(ctx.redrive("rm", ctx.traces / "t1"), 0)
    verify(ctx, "t2")
    expect_no_rest(cache)


@test("caching/overwritten_binary")
def overwritten_binary(ctx):
    """A file that is overwritten in place, with the same size and modification time."""
    cache, binary = cache_of(ctx), program(ctx)
    for name in ("t1", "t2"):
        ctx.expect("AAAA" in record(ctx, name, cache, binary).stdout, ctx.run("true"), "wrong output")
    before = binary.stat()
    contents = binary.read_bytes().replace(b"AAAA", b"BBBB")
    with binary.open("r+b") as file:
        file.write(contents)
    os.utime(binary, ns=(before.st_atime_ns, before.st_mtime_ns))
    for name in ("t3", "t4"):
        outcome = record(ctx, name, cache, binary)
        ctx.expect("BBBB" in outcome.stdout, outcome, "ran the former version")
        verify(ctx, name)
        if not any((ctx.traces / name / "files" / copy).read_bytes() == contents for copy in copies(ctx, name)):
            raise Failure(f"{name} has no copy of the new version")
        time.sleep(CLOCK_S)
    verify(ctx, "t1")


@test("caching/damaged_cache")
def damaged_cache(ctx):
    cache, binary = cache_of(ctx), program(ctx)
    record(ctx, "t1", cache, binary)
    entries = cache.files("files")
    if not entries:
        raise Skip("nothing is kept of files on this file system")
    for name in entries:
        path = cache.path / "files" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    for copy in cache.path.glob("copies/*"):
        copy.chmod(0o644)
        with copy.open("r+b") as file:
            file.seek(copy.stat().st_size // 2)
            file.write(b"damage!")
    record(ctx, "t2", cache, binary)
    verify(ctx, "t2")
    if {name: size for name, (_, _, size) in cache.files("files").items()}.keys() != entries.keys():
        raise Failure("the damaged entries were not replaced")
    record(ctx, "t3", cache, binary)
    expect_shared(ctx, "t3", cache)
    verify(ctx, "t3")
    # What shares a damaged copy says so.
    if any(info.st_nlink > 1 for info in copies(ctx, "t2").values()):
        ctx.expect_status(ctx.redrive("check", ctx.traces / "t1"), 4)


@test("caching/unusable_cache")
def unusable_cache(ctx):
    file, shared = ctx.directory / "file", ctx.directory / "shared"
    file.write_text("no directory")
    shared.mkdir()
    shared.chmod(0o777)
    places = [pathlib.Path("/proc/nowhere"), file, shared]
    if os.geteuid() == 0:
        foreign = ctx.directory / "foreign"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
        places.append(foreign)
    for number, place in enumerate(places):
        record(ctx, f"t{number}", Cache(place), "true")
        verify(ctx, f"t{number}")
        if place.is_dir() and list(place.iterdir()):
            raise Failure(f"{place} was used")


@test("caching/several_at_once")
def several_at_once(ctx):
    cache, binary = cache_of(ctx), program(ctx)
    names = [f"t{number}" for number in range(4)]
    running = [ctx.start_redrive("record", "-o", ctx.traces / name, "--", "sh", "-c", f"{binary}; ls / >/dev/null; {binary}",
                                 env=cache.env()) for name in names]
    for recording in running:
        ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    for name in names:
        verify(ctx, name)
    expect_no_rest(cache)
    record(ctx, "last", cache, "sh", "-c", f"{binary}; ls / >/dev/null")
    if cache.files("files"):
        expect_shared(ctx, "last", cache)
    verify(ctx, "last")


@test("caching/killed_recorder")
def killed_recorder(ctx):
    """A killed recorder keeps nothing, and leaves nothing bad behind."""
    cache = cache_of(ctx)
    recording = ctx.start_redrive("record", "-o", ctx.traces / "t1", "--", "sh", "-c", "echo started; sleep 100",
                                  env=cache.env())
    recording.wait_for("started", ctx.timeout_s)
    recording.kill()
    if cache.files("files") or cache.files("copies"):
        raise Failure("a killed recording kept something")
    for name in ("t2", "t3"):
        record(ctx, name, cache, "true")
        verify(ctx, name)


@test("caching/other_file_system")
def other_file_system(ctx):
    """The cache's plans are used there, its copies are not."""
    shm = pathlib.Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == ctx.directory.stat().st_dev:
        raise Skip("no second file system to write to")
    directory = tempfile.mkdtemp(prefix="rd-", dir=shm)
    try:
        cache, binary = Cache(directory), program(ctx)
        record(ctx, "t1", cache, binary)
        if not cache.files("files"):
            raise Skip("nothing is kept of files on this file system")
        record(ctx, "t2", cache, binary)
        if cache.files("copies") or any(info.st_nlink > 1 for info in copies(ctx, "t2").values()):
            raise Failure("files were shared between file systems")
        if stopped(ctx, "t2") >= stopped(ctx, "t1"):
            raise Failure("the second recording used no plans")
        verify(ctx, "t2")
        expect_no_rest(cache)
    finally:
        shutil.rmtree(directory)


COUNTER_SOURCE = """
#include <stdio.h>
#include <x86intrin.h>
int main(void) {
  unsigned long long at[100];
  for (int i = 0; i < 100; ++i) at[i] = __rdtsc();
  for (int i = 1; i < 100; ++i) {
    if (at[i] <= at[i - 1]) return puts("the counter stands still"), 1;
  }
  return puts("ok"), 0;
}
"""


@test("caching/counter")
def counter(ctx):
    """rdtsc is answered in process from the start of a program: what this needs is there before the first one has trapped."""
    source, binary, cache = ctx.directory / "counter.c", ctx.directory / "counter", cache_of(ctx)
    source.write_text(COUNTER_SOURCE)
    subprocess.run(["gcc", "-O1", "-static", "-o", binary, source], check=True)  # the linker reads it as well
    time.sleep(CLOCK_S)
    for name in ("first", "second", "third"):
        outcome = record(ctx, name, cache, binary)
        ctx.expect(outcome.stdout == "ok\n", outcome, "wrong result")
        verify(ctx, name)
    if stopped(ctx, "third") >= stopped(ctx, "first"):
        raise Failure("nothing was learnt of the program")
