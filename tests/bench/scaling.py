#!/usr/bin/env python3
"""How recording and replay scale with the number of units and processors: `make scaling`.

Each row runs a workload with 1, 2, 4 ... units, natively and recorded in turn, on all processors, and compares medians. Then the largest run of each workload
is recorded with a bound that makes several intervals, and re-driven with 1, 2, 4 ... intervals at a time. Prints tables for README.md."""
import dataclasses
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
import mpi  # noqa: E402
from bench import Bench  # noqa: E402
from harness import Failure, Skip, needs  # noqa: E402
from real import redis_script, script  # noqa: E402
from redriving import REDRIVEN, free_port  # noqa: E402

BLOCK = 2 << 20     # bytes that a thread of xz compresses at a time
BLOCKS = 2          # for each thread
REPLAY_BOUND = "500ms"
LATE = 5            # exit status


@dataclasses.dataclass
class Job:
    command: list
    prepare: object = None  # puts files into the working directory


@dataclasses.dataclass
class Workload:
    what: str
    job: object             # of a number of units
    least: int = 1          # units


def beside_each_other(count, command):
    """A shell that starts the command so many times, and fails if one of them does."""
    each = " ".join(str(word) for word in command)
    return ["sh", "-c", f"for i in $(seq {count}); do {each} > out.$i & all=\"$all $!\"; done; for i in $all; do wait $i || exit 1; done"]


def workloads(bench):
    quick = bench.arguments.quick

    def compute(units):
        return Job(beside_each_other(units, [bench.workload("cpu_bound"), 10 if quick else 100]))

    def pairs(units):
        return Job(beside_each_other(units // 2, [bench.workload("pingpong"), "tcp", 2_000 if quick else 20_000]))

    def ring(units):
        return Job([bench.workload("mesh"), units, "100i" if quick else "800i"])

    def threads(units):
        needs("xz")

        def prepare(work):
            words = b"".join(b"%d %x\n" % (i * i, i * 7919) for i in range(BLOCK * BLOCKS // 16))
            (work / "input").write_bytes((words * units)[:BLOCK * BLOCKS * units])
        return Job(["xz", "-1", f"--threads={units}", f"--block-size={BLOCK}", "--keep", "input"], prepare)

    def jacobi(units):
        return Job(mpi.command(bench.options, "jacobi", 800, 100 if quick else 2000, "nocheck", ranks=units))

    def redis(units):
        needs("redis-server", "redis-benchmark", "redis-cli")
        return Job(["sh", "-eu", "run.sh"], script(redis_script(free_port(), 5_000 if quick else 50_000, units)))

    return {
        "compute": Workload("processes that only compute", compute),
        "pairs": Workload("processes in pairs that do nothing but answer each other over TCP", pairs, least=2),
        "ring": Workload("processes that compute and exchange rows with two neighbours (mesh)", ring),
        "threads": Workload("one process with so many threads: xz, 4 MB for each", threads),
        "jacobi": Workload("Open MPI ranks that share one grid of fixed size", jacobi),
        "redis": Workload("a server with so many clients, a fixed number of requests", redis),
    }


def counts_up_to(most):
    """1, 2, 4 and so on, and the most itself."""
    powers = [1 << i for i in range(most.bit_length())]
    return powers if powers[-1] == most else [*powers, most]


def processors_used(runs):
    """On average, by everything that ran, the recorder included."""
    return statistics.median((run.own_cpu_s + run.children_cpu_s) / run.seconds for run in runs)


def cells(words):
    return "| " + " | ".join(str(word) for word in words) + " |"


class Scaling:
    def __init__(self, bench):
        self.bench, self.given = bench, bench.arguments
        self.failures = 0

    def attempt(self, name, units, measure):
        try:
            print(cells([name, units, *measure()]), flush=True)
        except Skip as reason:
            print(cells([name, units, f"skipped: {reason}"]), flush=True)
        except Failure as failure:
            self.failures += 1
            print(cells([name, units, f"failed: {str(failure).splitlines()[0]}"]), flush=True)

    def table(self, head):
        print("\n" + cells(head) + "\n" + cells(["---"] * len(head)), flush=True)

    def recording(self, chosen):
        self.table(["workload", "units", "native", "recorded", "ratio", "processors natively", "processors recorded", "recorder's CPU", "events", "stops"])
        for name, workload in chosen.items():
            for units in self.given.counts:
                if units >= workload.least:
                    self.attempt(name, units, lambda: self.recorded(workload.job(units)))

    def recorded(self, job):
        native, recorded = [], []
        for _ in range(self.given.runs):
            native.append(self.bench.run(job.command, self.bench.fresh("work", job.prepare)))
            recorded.append(self.bench.record(job.command, job.prepare, self.given.record_options))
        stats = self.bench.json("stats", self.bench.trace)
        native_s, recorded_s = (statistics.median(run.seconds for run in runs) for runs in (native, recorded))
        own = statistics.median(run.own_cpu_s / run.seconds for run in recorded)
        return [f"{native_s:.2f} s", f"{recorded_s:.2f} s", f"{recorded_s / native_s:.2f}", f"{processors_used(native):.1f}", f"{processors_used(recorded):.1f}",
                f"{own:.2f}", f"{stats['events']:,}", f"{stats['stopped_calls']:,}"]

    def replay(self, chosen):
        """The trace's certificate holds for as many jobs as it names; other numbers show what they cost."""
        self.table(["workload", "units", "intervals", "jobs", "whole", "all", "slowest", f"late ({REPLAY_BOUND})", "predicted slowest", "predicted late"])
        for name, workload in chosen.items():
            units = max(self.given.counts)
            try:
                job = workload.job(units)
                self.bench.record(job.command, job.prepare, ("--bound", REPLAY_BOUND))
            except (Skip, Failure) as failure:
                self.failures += isinstance(failure, Failure)
                print(cells([name, units, str(failure).splitlines()[0]]), flush=True)
                continue
            for jobs in self.given.jobs:
                self.attempt(name, units, lambda: self.redriven(jobs))

    def redriven(self, jobs):
        bench, how = self.bench, ("--jobs", jobs)
        whole = statistics.median(bench.redrive("replay", bench.trace, "--all", "--once", *how, statuses=(0, LATE)).seconds for _ in range(self.given.runs))
        run = bench.json("replay", bench.trace, "--all", *how, statuses=(*REDRIVEN, LATE))
        if run["divergences"]:
            raise Failure(f"{run['divergences']} divergences")
        stats = bench.json("stats", bench.trace)
        certificate = stats["certificate"]
        predicted = [f"{certificate['slowest']['predicted_s']:.2f} s", len(stats["over_bound"])] if certificate["jobs"] == jobs else ["", ""]
        return [len(run["intervals"]), jobs, f"{whole:.2f} s", f"{run['whole_s']:.2f} s", f"{run['max_seconds']:.2f} s", run["late"], *predicted]


def parse_arguments():
    def numbers(text):
        return [int(word) for word in text.split(",")]
    processors = len(os.sched_getaffinity(0))
    parser = bench_arguments.parser(__doc__, "shorter jobs: to try the benchmark itself")
    parser.add_argument("workloads", nargs="*", help="only these")
    parser.add_argument("--runs", type=int, default=3, help="pairs of native and recorded runs (%(default)s)")
    parser.add_argument("--counts", type=numbers, default=counts_up_to(max(4, processors)), metavar="N,...", help="numbers of units (up to the number of processors)")
    parser.add_argument("--jobs", type=numbers, default=counts_up_to(processors), metavar="N,...", help="numbers of intervals at a time (up to the number of processors)")
    parser.add_argument("--record-options", type=str.split, default=(), metavar="'WORDS'", help="for redrive record")
    parser.add_argument("--only", choices=("recording", "replay"), help="one of the tables")
    return parser.parse_args()


def main():
    given = parse_arguments()
    bench = Bench(given)
    known = workloads(bench)
    if unknown := [name for name in given.workloads if name not in known]:
        sys.exit(f"scaling.py: no workload {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = {name: known[name] for name in given.workloads or known}
    scaling = Scaling(bench)
    print(f"{len(os.sched_getaffinity(0))} processors, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}, {given.runs} runs a row\n")
    print("\n".join(f"- **{name}**: {workload.what}" for name, workload in chosen.items()))
    try:
        if given.only != "replay":
            scaling.recording(chosen)
        if given.only != "recording":
            scaling.replay(chosen)
    finally:
        bench.close()
    return 1 if scaling.failures else 0


if __name__ == "__main__":
    sys.exit(main())
