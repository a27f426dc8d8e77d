#!/usr/bin/env python3
"""Whether replays keep their bound: `make bounds`.

Records programs that communicate, with several numbers of processes and several bounds, and re-drives every interval alone, as a user would. Writes
bounds.md: what the certificate promised, what was kept for it, and how many replays were late. A machine that does other work meanwhile makes
replays late. Rows that are not measured stay as they are."""
import argparse
import contextlib
import dataclasses
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
import mpi  # noqa: E402
from harness import Context, Failure, Options, Skip, Test, workload  # noqa: E402
from redriving import REDRIVEN, check_report, Job, record, units  # noqa: E402

PAGE = pathlib.Path(__file__).with_name("bounds.md")
ONE_S = 900  # for each command
TRIES_IF_LATE = 2
# Name, processes and arguments: some seconds of CPU time each.
OPEN_MPI = [("jacobi", 4, "600 1500 nocheck"), ("jacobi", 8, "600 1500 nocheck"), ("fft", 4, "512 40"), ("exchange", 8, "64 2000"),
            ("poisson", 4, "200 2"), ("det", 4, "600 8"), ("ring", 8, "300 20"), ("ring", 16, "150 20")]
NODES = [("mesh", 4, "{n} 1200i"), ("tester", 6, "{n} 1500 10"), ("cg", 4, "4 500 150"), ("tn", 10, "600 40"),
         ("talkers", 6, "{n} 600 300000 64"), ("talkers", 12, "{n} 400 300000 64"), ("talkers", 32, "{n} 200 200000 64")]
MORE_NODES = [("mesh", 8, "{n} 1200i"), ("mesh", 12, "{n} 1000i"), ("mesh", 16, "{n} 600i"), ("tester", 12, "{n} 1500 10"),
              ("talkers", 16, "{n} 400 300000 64"), ("talkers", 20, "{n} 400 300000 64"), ("talkers", 24, "{n} 400 300000 64"),
              ("talkers", 28, "{n} 300 300000 64"), ("mesh", 24, "{n} 500i"), ("cg", 8, "8 500 150")]
MORE_OPEN_MPI = [("jacobi", 16, "600 800 nocheck"), ("det", 8, "600 8"), ("exchange", 16, "64 600"), ("ring", 24, "150 12")]
# What takes a replay much more work than the program: gigabytes from process to process, input, calls at which it stops, calls beside many mappings that may have changed
# some of them, and threads. Shell commands.
OTHER_WORK = [("streams", 4, "dd if=/dev/zero bs=64k count=48000 status=none | cat | cat | wc -c"),
              ("input", 1, "dd if=/dev/zero of=/dev/null bs=1M count=4000 status=none"),
              ("stops", 1, "perl -e 'open F, q(/bin/sh); for (1 .. 60000) { flock F, 1; flock F, 8 }'"),
              # mmap(2), and mprotect(2) of memory that is not there, with their numbers.
              ("layout", 1, "perl -e 'syscall 9, 0, 4096, 1 + 2 * ($_ % 2), 34, -1, 0 for 1 .. 15000; syscall 10, 1 << 40, 4096, 3 for 1 .. 60000'"),
              ("threads", 1, "python3 -c 'import threading; threading.stack_size(65536); awake = threading.Event()\n"
                             "sleepers = [threading.Thread(target=awake.wait) for i in range(2000)]; [each.start() for each in sleepers]\n"
                             "[sum(range(9999)) for i in range(8000)]; awake.set(); [each.join() for each in sleepers]'")]
# Faults at memory that is not there, which a replay takes away.
FAULTS = ("faults", 1, "60000")
# The same as most of these, of some half a minute.
LONG = [("mesh", 4, "{n} 16000i"), ("tester", 6, "{n} 1500 250"), ("cg", 4, "4 500 800"), ("talkers", 6, "{n} 6000 300000 64"),
        ("talkers", 12, "{n} 3000 300000 64")]
SOME, MANY = (*OPEN_MPI, *NODES, *OTHER_WORK, FAULTS), (*OPEN_MPI, *MORE_OPEN_MPI, *NODES, *MORE_NODES, *OTHER_WORK, FAULTS)
RUNS = {"250ms": MANY, "500ms": MANY, "1s": SOME, "2s": SOME, "10s": LONG}


@dataclasses.dataclass
class Row:
    name: str
    processes: int
    bound: str
    stats: dict = None
    fewest_bytes: dict = None  # the statistics of a recording with that policy
    intervals: int = 0
    late: int = 0
    late_again: int = 0
    slowest_s: float = 0
    failure: str = ""

    def cells(self):
        if self.failure:
            return [self.name, str(self.processes), self.bound, *[""] * (len(HEADER) - 4), self.failure.splitlines()[0].replace("|", "/")]
        certificate = self.stats["certificate"]
        promised = f"{certificate['slowest']['predicted_s']:.2f}"
        pace = f"{certificate['pace']:.2f}" if certificate["measured"] else ""
        logged = f"{self.stats['logged_messages']}", f"{self.stats['logged_bytes'] / 1e3:.1f}"
        stub = f"{self.stats['restore_cost_s'] * 1e3:.1f}"
        megabytes = (f"{stats['trace_bytes'] / 1e6:.1f}" for stats in (self.stats, self.fewest_bytes))
        return [self.name, str(self.processes), self.bound, stub, str(self.stats["messages"]), *logged, *megabytes, pace, promised,
                str(len(self.stats["over_bound"])), f"{self.slowest_s:.2f}", f"{self.late_again}", f"{self.late} of {self.intervals}"]


HEADER = ["program", "processes", "bound", "stub, ms", "messages", "logged", "KB logged", "MB of trace", "MB with fewest-bytes", "pace", "predicted, s", "predicted late", "slowest, s", "late again", "late"]


def line(cells):
    return f"| {' | '.join(cells)} |"


def job_of(options, name, processes, arguments, *record_options):
    how = {"record_options": record_options}
    if (name, processes, arguments) in (*OPEN_MPI, *MORE_OPEN_MPI):
        return mpi.job(options, name, *arguments.split(), ranks=processes, **how)
    if (name, processes, arguments) in OTHER_WORK:
        return Job(["sh", "-c", arguments], good=lambda outcome: outcome.status == 0, **how)
    return Job([str(workload(options, name)), *arguments.format(n=processes).split()], **how)


def measure(options, row, arguments):
    with contextlib.closing(Context(options, Test("bounds", None, ONE_S, True))) as ctx:
        record(ctx, job_of(options, row.name, row.processes, arguments, "--bound", row.bound))
        row.stats = ctx.json("stats", ctx.trace)
        # One command for each: with --all, later replays find what earlier ones have made.
        for unit in units(ctx):
            for interval in unit["intervals"]:
                report = redriven(ctx, unit, interval)
                row.intervals += 1
                row.late += report["late"]
                row.late_again += report["late"] and all(redriven(ctx, unit, interval)["late"] for _ in range(TRIES_IF_LATE))
                row.slowest_s = max(row.slowest_s, report["max_seconds"])
    with contextlib.closing(Context(options, Test("fewest_bytes", None, ONE_S, True))) as ctx:
        record(ctx, job_of(options, row.name, row.processes, arguments, "--bound", row.bound, "--policy", "fewest-bytes", "--no-repair"))
        row.fewest_bytes = ctx.json("stats", ctx.trace)


def redriven(ctx, unit, interval):
    report = ctx.json("replay", ctx.trace, f"{unit['unit']}:{interval['interval']}", cwd="/", statuses=REDRIVEN)
    check_report(ctx, report)
    return report


def rows_of_page():
    """As cells."""
    rows = [[cell.strip() for cell in text.split("|")[1:-1]] for text in PAGE.read_text().splitlines() if text.startswith("| ")]
    return rows[2:]


def page(measured, before):
    """`before`: rows, of which those that were measured again are left out, and those that are not measured any more."""
    order = [(name, str(processes), bound) for bound, programs in RUNS.items() for name, processes, _ in programs]
    rows = {tuple(row[:3]): row for row in (*before, *measured)}
    rows = [rows[row] for row in order if row in rows]
    measured = [row[-1].split(" of ") for row in rows if re.fullmatch("[0-9]+ of [0-9]+", row[-1])]
    again, ours, fewest = (sum(float(row[HEADER.index(column)] or 0) for row in rows) for column in ("late again", "MB of trace", "MB with fewest-bytes"))
    return "\n".join([
        "# Do replays keep their bound?", "",
        "Made by `make bounds`: each program was recorded with `record --bound`, which adds what late replays need, and then every interval was re-driven by a command of its own.",
        "Predicted: by the trace's certificate, of the slowest interval. Pace: how many times as long as recorded replays take to execute, without what they take to begin, to start and for messages, as `record` has measured, if it needed to; never less than 1.",
        f"Slowest and late: measured, restoring included, on a machine of two processors that may have been busy. Late again: of those that were late, how many were so {TRIES_IF_LATE} times more at once.",
        "MB: everything that is on disk. `fewest-bytes` promises a path of CPU time, not a time on the processors that there are, so its recordings were not repaired.",
        "Stub: how long it took to make an empty process ready, by which the recorder knows how long intervals take to start.", "",
        line(HEADER), line(["---"] * len(HEADER)), *(line(row) for row in rows), "",
        f"{sum(int(of) for _, of in measured)} replays, {sum(int(late) for late, _ in measured)} late, {again:.0f} of them again; {len(rows) - len(measured)} recordings failed. {ours:.0f} MB of traces; {fewest:.0f} MB with `fewest-bytes`.", ""])


def bounds_in(text):
    if unknown := set(bounds := text.split(",")) - RUNS.keys():
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(RUNS)}")
    return bounds


def main():
    parser = bench_arguments.parser(__doc__, "one bound only")
    parser.add_argument("--bounds", type=bounds_in, default=list(RUNS), help="only these, with commas between them")
    parser.add_argument("programs", nargs="*", help="only these")
    chosen = parser.parse_args()
    options = Options(redrive=chosen.redrive, build=chosen.build)
    rows, before = [], rows_of_page()
    for bound, programs in RUNS.items():
        if bound not in chosen.bounds or (chosen.quick and bound != "500ms"):
            continue
        for name, processes, arguments in programs:
            if chosen.programs and name not in chosen.programs:
                continue
            row = Row(name, processes, bound)
            try:
                measure(options, row, arguments)
            except (Failure, Skip) as failure:
                row.failure = str(failure)
            rows.append(row)
            print(line(row.cells()), flush=True)
            if not chosen.quick:
                PAGE.write_text(page([row.cells() for row in rows], before))
    return any(row.failure or row.late for row in rows)


if __name__ == "__main__":
    sys.exit(main())
