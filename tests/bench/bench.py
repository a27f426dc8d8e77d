#!/usr/bin/env python3
"""Costs of recording as ratios against native: `make bench`.

Each row alternates native and recorded runs (so that a change of the machine's load meets both), pinned to one core where the job talks
(FACTS.md: two processes that talk are 13-16x slower on two idle virtual cores), and compares medians. Prints a table, writes JSON."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import mpi  # noqa: E402
from harness import ROOT, TESTS, Failure, Options, Skip, compiled, needs  # noqa: E402
from programs import program  # noqa: E402
from real import made_project  # noqa: E402
from redriving import free_port  # noqa: E402

LIMITS = {"cpu-bound": 1.03, "cpu-bound 2s": 1.03, "dd": 1.5, "pipe": 1.3, "unix": 1.3, "tcp": 1.3, "jacobi": 1.3, "redis": 1.25, "make -j2": 1.5,
          "exec": 2.0, "python": 1.3}  # of recorded / native
PAUSE_BASE_S, PAUSE_PER_GB_S = 1e-3, 12e-3


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.options = Options(arguments.redrive, arguments.build)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rd-bench-"))
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        self.env.update(mpi.ENV, REDRIVE_TRACE_DIR=str(self.directory / "traces"), LANG="C.UTF-8")
        self.rows = []

    def run(self, command, cwd=None, statuses=(0,)):
        """Seconds of wall time, standard output."""
        start = time.monotonic()
        done = subprocess.run([str(word) for word in command], cwd=cwd or self.directory, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        seconds = time.monotonic() - start
        if done.returncode not in statuses:
            told = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
            raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}: {told[0][:200]}")
        return seconds, done.stdout

    def redrive(self, *words, cwd=None):
        return self.run([self.options.redrive, *words], cwd)

    def json(self, *words, statuses=(0,)):
        return json.loads(self.run([self.options.redrive, *words, "--json"], statuses=statuses)[1])

    def fresh(self, name, prepare=None):
        work = self.directory / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if prepare:
            prepare(work)
        return work

    def record_all(self, traces, command, prepare, options):
        """Seconds natively and recorded, one each, run in turns; the last trace stays in `traces`."""
        native, recorded = [], []
        for _ in range(self.arguments.runs):
            native.append(self.run(command, self.fresh("work", prepare))[0])
            shutil.rmtree(traces, ignore_errors=True)
            work = self.fresh("work", prepare)
            recorded.append(self.redrive("record", "-o", traces, *options, "--", *command, cwd=work)[0])
        return native, recorded

    def overhead_row(self, name, command, *, pinned, prepare=None, options=("--bound", "2s")):
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] * pinned + list(command)
        trace = self.directory / "trace"
        native, recorded = self.record_all(trace, command, prepare, options)
        native_s, recorded_s = statistics.median(native), statistics.median(recorded)
        stats = self.json("stats", trace)
        replay = self.json("replay", trace, "--all", statuses=(0, 3))  # divergences are counted, not fatal here
        replayed_s = sum(i["seconds"] for i in replay["intervals"])
        self.add({"row": name, "native_s": native_s, "recorded_s": recorded_s, "ratio": recorded_s / native_s,
                  "native_runs_s": native, "recorded_runs_s": recorded, "pinned": pinned, "limit": LIMITS.get(name),
                  "trace_bytes_per_s": stats["trace_bytes"] / recorded_s, "messages": stats["messages"],
                  "logged_percent": 100 * stats["logged_messages"] / max(1, stats["messages"]),
                  "checkpoints": stats["checkpoints"], "skipped_checkpoints": stats["skipped_checkpoints"],
                  "replay_ratio": replayed_s / native_s, "replay_max_s": replay["max_seconds"],
                  "divergences": replay["divergences"]})

    def pause_row(self, megabytes):
        """Pauses at image checkpoints of a program that keeps so much memory and works through several periods."""
        name = f"pause {megabytes} MB"
        trace = self.directory / "trace"
        shutil.rmtree(trace, ignore_errors=True)
        command = [program(self.options, "big_memory"), megabytes, 3000]
        seconds, _ = self.redrive("record", "-o", trace, "--bound", "5s", "--checkpoint-period", "500ms", "--", *command)
        pauses = [i["pause_s"] for unit in self.json("ls", trace)["units"] for i in unit["intervals"]
                  if i["checkpoint_kind"] == "image"]
        if not pauses:
            raise Failure("no image checkpoint was taken")
        limit_s = PAUSE_BASE_S + PAUSE_PER_GB_S * megabytes / 1024
        fork = compiled(self.options, ROOT / "tests" / "bench" / "fork_cost.c", flags=["-O1"], directory="bench")
        fork_s = int(self.run([fork, megabytes])[1]) / 1e9
        self.add({"row": name, "pause_median_s": statistics.median(pauses), "pause_max_s": max(pauses), "limit_s": limit_s,
                  "fork_s": fork_s, "ratio_to_fork": statistics.median(pauses) / fork_s,
                  "checkpoints": len(pauses), "recorded_s": seconds,
                  "trace_bytes_per_s": self.json("stats", trace)["trace_bytes"] / seconds})

    def add(self, row):
        self.rows.append(row)
        print(format_row(row), flush=True)

    def attempt(self, name, measure):
        try:
            measure()
        except Skip as reason:
            self.add({"row": name, "skipped": str(reason)})
        except Failure as failure:
            self.add({"row": name, "failed": str(failure)})

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def redis_script(port):
    return f"""set -eu
redis-server --port {port} --bind 127.0.0.1 --dir . --save '' --daemonize no > server.log &
server=$!
until redis-cli -p {port} ping > ping.out 2>&1 && grep -q PONG ping.out; do sleep 0.05; done
redis-benchmark -p {port} -c 20 -n 50000 -t get,set -q
redis-cli -p {port} shutdown nosave || true
wait $server
"""


def measures(bench):
    """The rows, by name."""
    quick = bench.arguments.quick

    def workload(name):
        return compiled(bench.options, TESTS / "workloads" / f"{name}.c", flags=["-O2"], directory="workloads")

    def cpu_bound():
        command = [workload("cpu_bound"), 50 if quick else 1000]
        bench.overhead_row("cpu-bound", command, pinned=True, options=())
        bench.overhead_row("cpu-bound 2s", command, pinned=True)

    def jacobi():
        command = mpi.command(bench.options, "jacobi", 400, 300 if quick else 2000, "nocheck")
        bench.overhead_row("jacobi", command, pinned=True)

    def redis():
        needs("redis-server", "redis-benchmark", "redis-cli")
        script = redis_script(free_port())
        bench.overhead_row("redis", ["sh", "run.sh"], pinned=True, prepare=lambda work: (work / "run.sh").write_text(script))

    def make():
        needs("make", "gcc")
        bench.overhead_row("make -j2", ["sh", "run.sh"], pinned=False, prepare=made_project)

    def mesh():
        bench.overhead_row("mesh", [workload("mesh"), 4, "200i" if quick else "1000i"], pinned=True)

    def dd():
        count = 60_000 if quick else 600_000
        bench.overhead_row("dd", ["dd", "if=/dev/zero", "of=/dev/null", "bs=64", f"count={count}", "status=none"], pinned=True)

    def pingpong(kind):
        bench.overhead_row(kind, [workload("pingpong"), kind, 10_000 if quick else 100_000], pinned=True)

    def execs():
        count = 50 if quick else 500
        bench.overhead_row("exec", ["sh", "-c", f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"], pinned=True)

    def python():
        script = "import json, re, subprocess, asyncio; print(len(json.dumps([re.sub('a', 'b', str(i)) for i in range(100000)])))"
        bench.overhead_row("python", ["/usr/bin/python3", "-c", script], pinned=True)

    rows = {"cpu-bound": cpu_bound, "dd": dd, "exec": execs, "python": python, "jacobi": jacobi, "redis": redis, "make -j2": make, "mesh": mesh}
    for kind in ("pipe", "unix", "tcp"):
        rows[kind] = lambda kind=kind: pingpong(kind)
    for megabytes in (1, 100, 1024):
        rows[f"pause {megabytes} MB"] = lambda megabytes=megabytes: bench.pause_row(megabytes)
    return rows


HEADER = f"{'row':<16}{'native':>9}{'recorded':>10}{'ratio':>8}{'limit':>8}{'trace/s':>11}{'logged':>9}{'replay':>10}{'max':>8}"


def format_bytes(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def format_row(row):
    """Pause rows put a bare fork and the median pause where others have native and recorded time; max is the longest."""
    name = f"{row['row']:<16}"
    if "skipped" in row or "failed" in row:
        kind = "skipped" if "skipped" in row else "failed"
        return f"{name}  {kind}: {row[kind]}"
    growth = format_bytes(row["trace_bytes_per_s"])
    if "pause_max_s" in row:
        return (f"{name}{row['fork_s'] * 1e3:>6.2f} ms{row['pause_median_s'] * 1e3:>7.2f} ms{row['ratio_to_fork']:>8.2f}"
                f"{row['limit_s'] * 1e3:>5.1f} ms{growth:>11}{'':>19}{row['pause_max_s'] * 1e3:>5.2f} ms")
    limit = f"{row['limit']:.2f}" if row["limit"] else "-"
    diverged = f"  {row['divergences']} DIVERGENCES" if row["divergences"] else ""
    return (f"{name}{row['native_s']:>7.2f} s{row['recorded_s']:>8.2f} s{row['ratio']:>8.2f}{limit:>8}{growth:>11}"
            f"{row['logged_percent']:>7.1f} %{row['replay_ratio']:>10.2f}{row['replay_max_s']:>6.2f} s{diverged}")


def exceeded(row):
    return ("ratio" in row and row["limit"] and row["ratio"] > row["limit"]) or \
           ("pause_max_s" in row and row["pause_median_s"] > row["limit_s"]) or bool(row.get("divergences"))


def parse_arguments():
    build = pathlib.Path(os.environ.get("REDRIVE_BUILD", ROOT / "build")).resolve()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", help="rows to measure, by name (default: all)")
    parser.add_argument("--redrive", type=pathlib.Path, default=pathlib.Path(os.environ.get("REDRIVE", build / "redrive")))
    parser.add_argument("--build", type=pathlib.Path, default=build, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=5, help="pairs of native and recorded runs (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="shorter jobs: to try the benchmark itself")
    parser.add_argument("--json", type=pathlib.Path, default=build / "bench.json", metavar="FILE", help="results (%(default)s)")
    parser.add_argument("--strict", action="store_true", help="fail if a row is over its limit")
    arguments = parser.parse_args()
    arguments.redrive = arguments.redrive.resolve()
    return arguments


def main():
    arguments = parse_arguments()
    bench = Bench(arguments)
    rows = measures(bench)
    if unknown := [name for name in arguments.rows if name not in rows]:
        sys.exit(f"bench.py: no row {unknown[0]!r}; there are: {', '.join(rows)}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.runs} runs a row; pause rows: a bare fork, the median pause, the longest")
    print(HEADER)
    try:
        for name in arguments.rows or rows:
            bench.attempt(name, rows[name])
    finally:
        bench.close()
    host = {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()}
    arguments.json.write_text(json.dumps({"host": host, "runs": arguments.runs, "rows": bench.rows}, indent=1) + "\n")
    over = [row["row"] for row in bench.rows if exceeded(row) or "failed" in row]
    if over:
        print(f"failed, diverged or over the limit: {', '.join(over)}")
    return 1 if any("failed" in row for row in bench.rows) or (arguments.strict and over) else 0


if __name__ == "__main__":
    sys.exit(main())
