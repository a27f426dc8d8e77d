#!/usr/bin/env python3
"""What servers that nobody asks anything cost: the CPU time of each natively, recorded with --keep, and attached to, with that of the recorder.
Says which recorders of servers that sleep for a second or more need more than 0.1 % of a processor."""
import contextlib
import os
import pathlib
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
from harness import Context, Options, Test  # noqa: E402
from process_memory import family_of  # noqa: E402
from real import NGINX_ENV, nginx_files  # noqa: E402
from redriving import free_port  # noqa: E402

LIMIT = 0.1  # per cent, of the recorder
SETTLES_S = 4  # its first checkpoint is stored, and the last start is over


def servers(ctx):
    """Commands, and whether they sleep for a second or more."""
    for name, text in nginx_files(free_port()).items():
        (ctx.work / name).write_text(text)
    yield "sleep", ["sleep", "1000"], True
    yield "nginx", ["nginx", "-p", ctx.work, "-c", "nginx.conf", "-e", "error.log"], True
    yield "memcached", ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", free_port()], True
    yield "redis-server", ["redis-server", "--port", free_port(), "--bind", "127.0.0.1", "--save", "", "--dir", ctx.work], False


def cpu_ns(pid):
    """Of all its threads, also those that have ended (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def is_recorder(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("redrive", "group-member")


def shares(roots, seconds):
    """Per cent of a processor that the processes and their descendants use: the program's, and the recorder's."""
    pids = set().union(*map(family_of, roots))
    before, began = {pid: cpu_ns(pid) for pid in pids}, time.monotonic()
    time.sleep(seconds)
    elapsed_ns = (time.monotonic() - began) * 1e9
    used = {pid: 100 * (cpu_ns(pid) - before[pid]) / elapsed_ns for pid in pids}
    return sum(part for pid, part in used.items() if not is_recorder(pid)), sum(part for pid, part in used.items() if is_recorder(pid))


def measure(ctx, command, how, seconds):
    shutil.rmtree(ctx.trace, ignore_errors=True)
    under = [ctx.options.redrive, "record", "-o", ctx.trace, "--keep", "2m", "--"] if how == "recorded" else []
    server = ctx.start(*under, *command, cwd=ctx.work, env=NGINX_ENV)
    time.sleep(1)
    guard = ctx.start_redrive("record", "-o", ctx.trace, "--pid", server.pid) if how == "attached" else None
    time.sleep(SETTLES_S)
    try:
        return shares({process.pid for process in (server, guard) if process}, seconds)
    finally:
        if guard:
            guard.process.terminate()
            guard.finish(ctx.timeout_s)
        server.process.terminate()
        server.finish(ctx.timeout_s)


def main():
    parser = bench_arguments.parser(__doc__, "5 s for each instead of 30")
    chosen = parser.parse_args()
    over = []
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print("| server | natively | recorded: the server | its recorder | attached to: the server | its recorder |\n| --- | --- | --- | --- | --- | --- |")
    with contextlib.closing(Context(Options(redrive=chosen.redrive, build=chosen.build), Test("idle", None, 120, True))) as ctx:
        ctx.fresh_work()
        for name, command, sleeps in servers(ctx):
            if not shutil.which(command[0], path=NGINX_ENV["PATH"]):
                print(f"| {name} | not installed |")
                continue
            parts = {how: measure(ctx, command, how, 5 if chosen.quick else 30) for how in ("natively", "recorded", "attached")}
            shown = [parts["natively"][0], *parts["recorded"], *parts["attached"]]
            print(f"| {name} | " + " | ".join(f"{part:.3f} %" for part in shown) + " |", flush=True)
            over += [f"{name}, {how}: {parts[how][1]:.3f} %" for how in ("recorded", "attached") if sleeps and parts[how][1] > LIMIT]
    for what in over:
        print(f"over the limit of {LIMIT} %: {what}")


if __name__ == "__main__":
    main()
