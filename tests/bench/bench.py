#!/usr/bin/env python3
"""Costs of recording and replay as ratios against native: `make bench`.

Each row alternates native and recorded runs (so that a change of the machine's load meets both), pinned to one core where the job talks
(two processes that talk are 13-16x slower on two idle virtual cores), and compares medians. Prints a table, writes JSON.
With --profile it also says, for each row, what the time of a recording goes into, and brings the tables of README.md up to date."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
import mpi  # noqa: E402
import recording_profile  # noqa: E402
import tables  # noqa: E402
from harness import ROOT, TESTS, Failure, Options, Skip, compiled, needs, workload  # noqa: E402
from programs import program  # noqa: E402
from real import NGINX_ENV, made_project, nginx_files, nginx_script, redis_script, script  # noqa: E402
from redriving import free_port  # noqa: E402

SAMPLE_S = 0.05
TIME_ERROR_S, TIME_SHARE = 1e-3, 0.999


@dataclasses.dataclass
class Row:
    """What a row runs, and what it may cost: times natively; the supervisor's CPU time in percent of that of the recorded programs."""
    work: str
    record: float = None
    replay: float = None
    supervisor: float = None
    options: tuple = ("--bound", "2s")
    cpu: float = None   # of all, the supervisor's included, times natively
    event_bytes: float = None  # of the trace for each event, without copies of files


DEFAULT_BOUND = ()
SERVERS = {path.stem: path for path in sorted(pathlib.Path(__file__).with_name("servers").glob("*.sh"))}
SERVER_RATIO, SERVER_CPU = 1.5, 2.0


def server_row(script):
    """Servers and builds as tests/bench/servers drives them, each on one processor and on all."""
    work = re.search(r"^# work: (.*)", script.read_text(), re.MULTILINE)[1]
    return Row(work, SERVER_RATIO, options=DEFAULT_BOUND, cpu=SERVER_CPU)


ROWS = {
    "dd": Row("600k reads, 600k writes of 64 bytes", 1.5, 0.3),
    "getppid": Row("a million calls", event_bytes=0.9),
    "pipe": Row("ping-pong of 64 bytes, 100k each", 1.3, 0.5),
    "unix": Row("the same", 1.3, 0.5, event_bytes=6),
    "tcp": Row("the same", 1.3, 0.5),
    "ring": Row("OpenMPI, 4 ranks, TCP: a token goes round", 1.15, 1.0, 15, DEFAULT_BOUND, event_bytes=10),
    "ring 2s": Row("the same, `--bound 2s`", 1.3, None, 15),
    "jacobi": Row("OpenMPI, 4 ranks, TCP: a stencil with halos", 1.15, 1.0, 15, DEFAULT_BOUND, event_bytes=10),
    "jacobi 2s": Row("the same, `--bound 2s`", 1.3, None, 15),
    "jacobi started": Row("the same with nothing set: natively ranks share memory"),
    "fft": Row("OpenMPI, 4 ranks, TCP: transposes, all to all", 1.15, 1.0, 15, DEFAULT_BOUND, event_bytes=10),
    "fft 2s": Row("the same, `--bound 2s`", 1.3, None, 15),
    "redis": Row("redis-benchmark, 20 clients, get and set", 1.25, 0.8, 15, event_bytes=10),
    "redis kept": Row("the same, `--keep 2s`", 1.25, None, 15, ("--bound", "2s", "--keep", "2s")),
    "redis watched": Row("the same, with triggers for slow replies and for a line that is written", 1.25, None, 15,
                         ("--bound", "2s", "--keep", "2s", "--trigger", "reply>10s", "--trigger", "writes=^panic: [a-z]+$")),
    "nginx": Row("2 workers, ab with 8 clients", 1.25, 0.8),
    "make -j2": Row("a C project", 1.5, 1.5),
    "exec": Row("500 x fork and exec of /bin/true", 2.0),
    "python": Row("start-up and a short job", 1.3, 1.0),
    "node": Row("start-up and a short job", 1.3, 1.0),
    "cpu-bound": Row("computes over 8 MB, the default bound", 1.02, 1.02, None, DEFAULT_BOUND),
    "cpu-bound 2s": Row("the same, `--bound 2s`", 1.02, 1.02),
    "mesh": Row("4 processes, messages and work"),
    "jacobi all": Row("the row of that name on all processors, recorded and natively", options=DEFAULT_BOUND),
    "fft all": Row("the same", options=DEFAULT_BOUND),
    "redis all": Row("the same"),
    "barriers all": Row("OpenMP: a thread on each processor, which meet all the time"),
    "mesh all": Row("the same"),
    "mesh checked all": Row("the same, `--self-check`", options=("--bound", "2s", "--self-check")),
    **{name + suffix: server_row(script) for name, script in SERVERS.items() for suffix in ("", " all")},
}
PAUSE_BASE_S, PAUSE_PER_GB_S = 1e-3, 12e-3
START_S, START_RATIO, START_RUNS = 10e-3, 1.15, 10  # more than natively; times natively; pairs of runs for each of another row
LONG_GROWTH_BYTES = 4 << 20
END_S = 1


@dataclasses.dataclass
class Run:
    seconds: float
    output: str
    user_s: float         # of all that ran
    own_cpu_s: float      # of the recorder alone, as last seen: user and system time
    children_cpu_s: float  # of all others
    peak_bytes: int       # VmHWM of the recorder, as last seen
    memory: list          # (seconds since the start, VmRSS) of the recorder


class Sampler(threading.Thread):
    """Looks at the first child of a process, which is the recorder if that is `redrive record`, until told to end."""

    def __init__(self, pid, period_s):
        super().__init__()
        self.pid, self.period_s, self.done = pid, period_s, threading.Event()
        self.start_s, self.peak, self.cpu_s, self.samples = time.monotonic(), 0, 0, []
        self.start()

    def run(self):
        while not self.done.wait(self.period_s):
            with contextlib.suppress(OSError, IndexError):  # it has ended, or not begun
                recorder = pathlib.Path("/proc") / pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0]
                times = (recorder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
                self.cpu_s = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
                fields = dict(line.split(":", 1) for line in (recorder / "status").read_text().splitlines())
                if "VmRSS" in fields:  # not of a zombie
                    self.peak = int(fields["VmHWM"].split()[0]) << 10
                    self.samples.append((time.monotonic() - self.start_s, int(fields["VmRSS"].split()[0]) << 10))

    def end(self):
        self.done.set()
        self.join()


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.options = Options(arguments.redrive, arguments.build)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rd-bench-"))
        self.directory.chmod(0o755)  # servers drop privileges
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        self.env.update(mpi.ENV | mpi.SOCKETS, REDRIVE_TRACE_DIR=str(self.directory / "traces"),
                        REDRIVE_CACHE_DIR=str(self.directory / "cache"), LANG="C.UTF-8")
        self.trace = self.directory / "trace"
        self.rows = []

    def run(self, command, cwd=None, statuses=(0,), sample_s=SAMPLE_S):
        with tempfile.TemporaryFile("w+", errors="replace") as output, tempfile.TemporaryFile("w+", errors="replace") as errors:
            start = time.monotonic()
            process = subprocess.Popen([str(word) for word in command], cwd=cwd or self.directory, env=self.env, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=errors)
            recorder = Sampler(process.pid, sample_s)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.monotonic() - start
            # A zombie's own times are not mixed with its children's, as those of wait4(2) are.
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            user, system, children_user, children_system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
            recorder.end()
            status = process.wait()
            output.seek(0), errors.seek(0)
            if status not in statuses:
                told = (errors.read() or output.read()).strip().splitlines()[-1:] or [""]
                raise Failure(f"{' '.join(map(str, command))}: exit status {status}: {told[0][:200]}")
            return Run(seconds, output.read(), user + children_user, recorder.cpu_s,
                       user + system + children_user + children_system - recorder.cpu_s, recorder.peak, recorder.samples)

    @contextlib.contextmanager
    def nothing_set(self):
        """Programs run without the variables by which they would talk natively as they do in a recording (which sets these by itself)."""
        env = self.env
        self.env = {key: value for key, value in env.items() if key not in mpi.SOCKETS}
        try:
            yield
        finally:
            self.env = env

    def redrive(self, *words, **how):
        return self.run([self.options.redrive, *words], **how)

    def json(self, *words, statuses=(0,)):
        return json.loads(self.redrive(*words, "--json", statuses=statuses).output)

    def fresh(self, name, prepare=None):
        work = self.directory / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if prepare:
            prepare(work)
        return work

    def record(self, command, prepare, options, wrapper=()):
        """Into the trace `self.trace`, anew."""
        shutil.rmtree(self.trace, ignore_errors=True)
        work = self.fresh("work", prepare)
        return self.run([*wrapper, self.options.redrive, "record", "-o", self.trace, *options, "--", *command], cwd=work)

    def overhead_row(self, name, command, *, pinned=None, prepare=None):
        """`pinned`: on one processor, recorded and natively; by default, unless the row's name says `all`."""
        row = ROWS[name]
        pinned = not name.endswith(" all") if pinned is None else pinned
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] * pinned + list(command)
        options = (*row.options, *("--processors", "1") * pinned)
        native, recorded = [], []
        for _ in range(self.arguments.runs):
            native.append(self.run(command, self.fresh("work", prepare)))
            recorded.append(self.record(command, prepare, options))
        stats = self.json("stats", self.trace)
        start = time.monotonic()
        replay = self.json("replay", self.trace, "--all", statuses=(0, 3, 5))  # divergences are counted, not fatal here
        replay_s = time.monotonic() - start
        whole = [self.redrive("replay", self.trace, "--all", "--once", statuses=(0, 3, 5)).seconds for _ in range(self.arguments.runs)]

        def median(runs, field):
            return statistics.median(getattr(run, field) for run in runs)
        def cpu_s(runs):
            return statistics.median(run.own_cpu_s + run.children_cpu_s for run in runs)
        native_s, recorded_s = median(native, "seconds"), median(recorded, "seconds")
        intervals, opening_s = replay["intervals"], replay["opening_s"]
        once_s = opening_s + sum((i["seconds"] - opening_s) / i["replay_set_size"] for i in intervals)
        copies = sum(path.stat().st_size for path in (self.trace / "files").iterdir())
        result = {"row": name, "work": row.work, "native_s": native_s, "recorded_s": recorded_s, "ratio": recorded_s / native_s,
                  "native_runs_s": [run.seconds for run in native], "recorded_runs_s": [run.seconds for run in recorded],
                  "pinned": pinned, "limit": row.record, "cpu_ratio": cpu_s(recorded) / max(0.01, cpu_s(native)), "cpu_limit": row.cpu,
                  "trace_bytes": stats["trace_bytes"], "copies_bytes": copies, "event_bytes_limit": row.event_bytes,
                  "event_bytes": (stats["trace_bytes"] - copies) / stats["events"],
                  "supervisor_percent": 100 * median(recorded, "own_cpu_s") / max(0.01, median(recorded, "children_cpu_s")),
                  "supervisor_limit": row.supervisor, "peak_bytes": max(run.peak_bytes for run in recorded),
                  "trace_bytes_per_s": stats["trace_bytes"] / recorded_s, "messages": stats["messages"],
                  "logged_percent": 100 * stats["logged_messages"] / max(1, stats["messages"]),
                  "checkpoints": stats["checkpoints"], "skipped_checkpoints": stats["skipped_checkpoints"],
                  "replay_s": replay_s, "replay_ratio": replay_s / native_s, "replay_limit": row.replay,
                  "whole_runs_s": whole, "whole_ratio": statistics.median(whole) / native_s,
                  "replay_set_mean": statistics.mean(i["replay_set_size"] for i in intervals),
                  "replay_once_ratio": once_s / native_s,
                  "replay_max_s": replay["max_seconds"], "divergences": replay["divergences"]}
        result.update(self.least(stats, native_s, median(native, "user_s")))
        if self.arguments.profile:
            data = self.directory / "perf.data"
            self.record(command, prepare, options, recording_profile.command(data))
            result["profile"] = recording_profile.shares(data, self.options.build)
        self.add(result)

    def least(self, stats, native_s, user_s):
        """What no recorder and no replayer can do without: all the data copied once, and the program's own work."""
        calls, size = stats["events"], stats["message_bytes"] + stats["input_bytes"]
        calls_s, copy_s = (int(word) / 1e9 for word in self.run([self.limit_probe(), calls, size]).output.split())
        return {"events": calls, "data_bytes": size, "bare_calls_s": calls_s, "copy_s": copy_s,
                "least_ratio": (native_s + copy_s) / native_s, "least_replay_ratio": (user_s + copy_s) / native_s}

    def limit_probe(self):
        return compiled(self.options, ROOT / "tests" / "bench" / "limit_probe.c", flags=["-O1"], directory="bench")

    def long_row(self, seconds):
        """A recording's memory over a long run: processes that stay, and others that come and go."""
        mesh, pingpong = (self.workload(name) for name in ("mesh", "pingpong"))
        text = (f"( {mesh} 4 {seconds}; touch done ) &\n"
                f"until [ -e done ]; do {pingpong} tcp 500; seq 1 2000 | sort -r | tail -n 1; done\nwait\n")
        shutil.rmtree(self.trace, ignore_errors=True)
        work = self.fresh("work", script(text))
        run = self.redrive("record", "-o", self.trace, "--bound", "2s", "--", "sh", "run.sh", cwd=work, sample_s=max(0.2, seconds / 300))
        samples = [size for at, size in run.memory if at < seconds - END_S]  # the journal is read at the end
        quarter = len(samples) // 4
        if quarter < 3:
            raise Failure(f"only {len(samples)} looks at its memory")
        first, last = statistics.mean(samples[:quarter]), statistics.mean(samples[-quarter:])
        stats = self.json("stats", self.trace)
        self.add({"row": "long", "recorded_s": run.seconds, "units": stats["units"], "events": stats["events"],
                  "messages": stats["messages"], "memory_first_bytes": first, "memory_last_bytes": last, "peak_bytes": run.peak_bytes,
                  "growth_bytes": last - first, "growth_limit_bytes": LONG_GROWTH_BYTES, "memory_samples": run.memory,
                  "supervisor_percent": 100 * run.own_cpu_s / run.children_cpu_s,
                  "trace_bytes_per_s": stats["trace_bytes"] / run.seconds})

    def workload(self, name, *flags):
        return workload(self.options, name, *flags)

    def pause_row(self, megabytes):
        """Pauses at image checkpoints of a program that keeps so much memory and works through several periods."""
        name = f"pause {megabytes} MB"
        command = [program(self.options, "big_memory"), megabytes, 3000]
        seconds = self.record(command, None, ("--bound", "5s", "--checkpoint-period", "500ms")).seconds
        pauses = [i["pause_s"] for unit in self.json("ls", self.trace)["units"] for i in unit["intervals"]
                  if i["checkpoint_kind"] == "image"]
        if not pauses:
            raise Failure("no image checkpoint was taken")
        limit_s = PAUSE_BASE_S + PAUSE_PER_GB_S * megabytes / 1024
        fork = compiled(self.options, ROOT / "tests" / "bench" / "fork_cost.c", flags=["-O1"], directory="bench")
        fork_s = int(self.run([fork, megabytes]).output) / 1e9
        self.add({"row": name, "pause_median_s": statistics.median(pauses), "pause_max_s": max(pauses), "limit_s": limit_s,
                  "fork_s": fork_s, "ratio_to_fork": statistics.median(pauses) / fork_s,
                  "checkpoints": len(pauses), "recorded_s": seconds,
                  "trace_bytes_per_s": self.json("stats", self.trace)["trace_bytes"] / seconds})

    def start_row(self, name, command, *, limit_s=None, limit=None):
        """A program that does next to nothing, as a user records it: what it costs to begin a recording and to end it."""
        native, recorded = [], []
        with self.nothing_set():
            for _ in range(1 + self.arguments.runs * START_RUNS):
                native.append(self.run(command).seconds)
                recorded.append(self.record(command, None, DEFAULT_BOUND).seconds)
        native_s, recorded_s = (statistics.quantiles(times[1:], n=4) for times in (native, recorded))  # the first fills the cache
        self.add({"row": name, "start_native_s": native_s[1], "start_recorded_s": recorded_s, "above_native_s": recorded_s[1] - native_s[1],
                  "start_ratio": recorded_s[1] / native_s[1], "start_limit_s": limit_s, "start_limit": limit})

    def times_row(self, seconds):
        """By how much the times of events may be wrong, as the trace says."""
        own = self.record([self.workload("clocks"), seconds, self.trace.parent / "noted"], None, DEFAULT_BOUND)
        errors = sorted(event["time_error_s"] for event in self.json("dump", self.trace))
        self.add({"row": "times", "time_events": len(errors), "time_median_s": statistics.median(errors), "time_999_s": errors[len(errors) * 999 // 1000],
                  "time_max_s": errors[-1], "time_share": sum(error <= TIME_ERROR_S for error in errors) / len(errors), "time_share_limit": TIME_SHARE,
                  "recorded_s": own.seconds})

    def add(self, row):
        self.rows.append(row)
        print(tables.line(row), flush=True)

    def attempt(self, name, measure):
        try:
            measure()
        except Skip as reason:
            self.add({"row": name, "skipped": str(reason)})
        except Failure as failure:
            self.add({"row": name, "failed": str(failure)})

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def measures(bench):
    """The rows, by name."""
    quick = bench.arguments.quick
    workload = bench.workload

    def cpu_bound(name):
        bench.overhead_row(name, [workload("cpu_bound"), 50 if quick else 1000])

    def mpi_job(name):
        kind = name.split()[0]
        sizes = {"ring": (300 if quick else 3000, 50), "jacobi": (400, 300 if quick else 4000, "nocheck"), "fft": (256, 20 if quick else 150)}
        with bench.nothing_set() if name.endswith(" started") else contextlib.nullcontext():
            bench.overhead_row(name, mpi.command(bench.options, kind, *sizes[kind]))

    def barriers(name):
        bench.overhead_row(name, [workload("barriers", "-fopenmp"), 200 if quick else 20_000, 1000])

    def redis(name):
        needs("redis-server", "redis-benchmark", "redis-cli")
        text = redis_script(free_port(), 5000 if quick else 50000)
        bench.overhead_row(name, ["sh", "-eu", "run.sh"], prepare=script(text))

    def nginx(name):
        needs("nginx", "ab")
        port = free_port()
        bench.env["PATH"] = NGINX_ENV["PATH"] + ":" + bench.env["PATH"]
        prepare = script(nginx_script(port, 500 if quick else 10000), nginx_files(port))
        bench.overhead_row(name, ["sh", "-eu", "run.sh"], prepare=prepare)

    def make(name):
        needs("make", "gcc")
        bench.overhead_row(name, ["sh", "run.sh"], pinned=False, prepare=made_project)

    def server(name):
        script, port, share = SERVERS[name.removesuffix(" all")], free_port(), 1 if quick else 10
        shell = ["bash", "-eu", "-c", f'. "$0"; "$@"', script]

        def prepare(work):
            bench.run([*shell, "prepare", port, share], cwd=work)
        bench.overhead_row(name, [*shell, "drive", port, share], prepare=prepare)

    def mesh(name):
        bench.overhead_row(name, [workload("mesh"), 4, "200i" if quick else "1000i"])

    def dd(name):
        count = 60_000 if quick else 600_000
        bench.overhead_row(name, ["dd", "if=/dev/zero", "of=/dev/null", "bs=64", f"count={count}", "status=none"])

    def getppid(name):
        bench.overhead_row(name, [bench.limit_probe(), 100_000 if quick else 1_000_000, 1])

    def pingpong(name):
        bench.overhead_row(name, [workload("pingpong"), name, 10_000 if quick else 100_000])

    def execs(name):
        count = 50 if quick else 500
        bench.overhead_row(name, ["sh", "-c", f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"])

    def python(name):
        text = "import json, re, subprocess, asyncio; print(len(json.dumps([re.sub('a', 'b', str(i)) for i in range(100000)])))"
        bench.overhead_row(name, ["/usr/bin/python3", "-c", text])

    def node(name):
        needs("node")
        bench.overhead_row(name, ["node", TESTS / "workloads" / "short_job.js", 50 if quick else 300])

    kinds = {"dd": dd, "getppid": getppid, "pipe": pingpong, "unix": pingpong, "tcp": pingpong, "ring": mpi_job, "ring 2s": mpi_job, "jacobi": mpi_job,
             "jacobi 2s": mpi_job, "jacobi started": mpi_job, "fft": mpi_job, "fft 2s": mpi_job, "redis": redis, "redis kept": redis, "redis watched": redis, "nginx": nginx, "make -j2": make, "exec": execs,
             "python": python, "node": node, "cpu-bound": cpu_bound, "cpu-bound 2s": cpu_bound, "mesh": mesh,
             "jacobi all": mpi_job, "fft all": mpi_job, "redis all": redis, "barriers all": barriers, "mesh all": mesh, "mesh checked all": mesh,
             **{name + suffix: server for name in SERVERS for suffix in ("", " all")}}
    rows = {name: lambda name=name: kinds[name](name) for name in ROWS}
    for megabytes in (1, 100, 1024):
        rows[f"pause {megabytes} MB"] = lambda megabytes=megabytes: bench.pause_row(megabytes)
    rows["/bin/true"] = lambda: bench.start_row("/bin/true", ["/bin/true"], limit_s=START_S)
    rows["hello"] = lambda: bench.start_row("hello", mpi.command(bench.options, "hello"), limit=START_RATIO)
    rows["times"] = lambda: bench.times_row(1 if quick else 5)
    rows["long"] = lambda: bench.long_row(bench.arguments.long or (10 if quick else 600))
    return rows


def exceeded(row):
    """What of a row is over its limit."""
    over = {"recording": row.get("limit") and row["ratio"] > row["limit"],
            "replay": row.get("replay_limit") and row["whole_ratio"] > row["replay_limit"],
            "bytes": row.get("event_bytes_limit") and row["event_bytes"] > row["event_bytes_limit"],
            "CPU": row.get("cpu_limit") and row["cpu_ratio"] > row["cpu_limit"],
            "supervisor": row.get("supervisor_limit") and row["supervisor_percent"] > row["supervisor_limit"],
            "pause": "pause_max_s" in row and row["pause_median_s"] > row["limit_s"],
            "start": (row.get("start_limit_s") and row["above_native_s"] > row["start_limit_s"])
            or (row.get("start_limit") and row["start_ratio"] > row["start_limit"]),
            "times": "time_share" in row and row["time_share"] < row["time_share_limit"],
            "divergences": row.get("divergences")}
    return [what for what, is_over in over.items() if is_over]


def failed(row):
    return "failed" in row or ("growth_bytes" in row and row["growth_bytes"] > row["growth_limit_bytes"])


def parse_arguments():
    parser = bench_arguments.parser(__doc__, "shorter jobs: to try the benchmark itself")
    parser.add_argument("rows", nargs="*", help="rows to measure, by name (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="pairs of native and recorded runs (%(default)s)")
    parser.add_argument("--long", type=int, metavar="SECONDS", help="how long the row 'long' records (600, --quick: 10)")
    parser.add_argument("--profile", action="store_true", help="also profile each row's recording (needs perf); without --quick, bring the tables of README.md up to date")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="results (build/bench.json)")
    parser.add_argument("--strict", action="store_true", help="fail if a row is over its limit")
    given = parser.parse_args()
    given.json = given.json or given.build / "bench.json"
    return given


def main():
    given = parse_arguments()
    bench = Bench(given)
    rows = measures(bench)
    if unknown := [name for name in given.rows if name not in rows]:
        sys.exit(f"bench.py: no row {unknown[0]!r}; there are: {', '.join(rows)}")
    if given.profile and not shutil.which("perf"):
        sys.exit("bench.py: no perf here (scripts/deps.sh --bench installs it)")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {given.runs} runs a row; pause rows: a bare fork, the median pause, the longest")
    print(tables.HEADER)
    try:
        for name in given.rows or rows:
            bench.attempt(name, rows[name])
    finally:
        bench.close()
    host = {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()}
    given.json.write_text(json.dumps({"host": host, "runs": given.runs, "rows": bench.rows}, indent=1) + "\n")
    if given.profile and not given.quick:
        tables.update_readme(pathlib.Path(__file__).with_name("README.md"), bench.rows)
    over = {row["row"]: ", ".join(exceeded(row)) for row in bench.rows if exceeded(row)}
    for name, what in over.items():
        print(f"over the limit: {name}: {what}")
    wrong = [row["row"] for row in bench.rows if failed(row)]
    if wrong:
        print(f"failed: {', '.join(wrong)}")
    return 1 if wrong or (given.strict and over) else 0


if __name__ == "__main__":
    sys.exit(main())
