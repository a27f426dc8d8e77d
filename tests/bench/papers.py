#!/usr/bin/python3
"""The papers' results, from recordings made here: `make papers`.

Records the papers' programs, evaluates every policy off line on these recordings, measures replays where the papers bound them, and writes
papers.md and papers/*.png, and the figures as SVG into build/papers. What does not work is told in the page. Debian's Python: it has matplotlib."""
import itertools
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
import executions  # noqa: E402
import mpi  # noqa: E402
import paper_values  # noqa: E402
import papers_page  # noqa: E402
import process_memory  # noqa: E402
from harness import Failure, Options, Process, Skip, workload  # noqa: E402

# Arguments: quick, and of some seconds. {n} is the number of processes, which MPI programs have from mpirun.
MPI_PROGRAMS = {
    "det": ("300 1", "600 10"),
    "fft": ("256 20", "512 100"),
    "cell": ("16 100", "24 1000"),
    "router": ("131 500", "131 4000"),
    "exchange": ("64 600", "64 3000"),
    "poisson": ("64 1", "200 3"),
    "jacobi": ("256 200", "600 2000 nocheck"),
}
NODE_PROGRAMS = {
    "mesh": ("{n} 300i", "{n} 1500i"),
    "tester": ("{n} 500", "{n} 2000 20"),
    "bt": ("21 5", "7 1500 20000"),
    "cg": ("11", "4 500 200"),
    "tn": ("10", "800 60"),
    "bully": ("4 3", "12 12"),
}
# Where C is promised T is to be long against what a process computes between two looks at its messages.
LONG = {
    "det": "600 40",
    "mesh": "{n} 6000i",
    "fft": "512 400",
    "tester": "{n} 1000 160",
    "cell": "24 4000",
    "router": "131 16000",
}
# Fewer rounds where 16 processes exchange so many messages that evaluating them takes minutes.
MANY_SIZES = {"det": "600 3", "cell": "24 400"}
# Where M's T is a small share of the run it is to be at least ten iterations nevertheless; by program and processes.
MRT_SIZES = {("jacobi", 4): "900 9000 nocheck", ("jacobi", 8): "900 4000 nocheck", ("jacobi", 16): "900 4000 nocheck", ("fft", 16): "512 400"}
SIX = papers_page.SIX  # Z has all but cell
FIVE = ("det", "fft", "mesh", "tester", "router")
MRT_POLICIES = ("mrt", "mrt-waits", "ros", "ros-nt")
MRT_PROGRAMS = ("exchange", "poisson", "fft", "jacobi")
# D's ten programs of each kind: arguments.
DR_PROGRAMS = {
    "bt": [f"{n}" for n in range(3, 22, 2)],
    "cg": [f"{n}" for n in range(2, 12)],
    "tn": [f"{n}" for n in range(1, 11)],
    "bully": [f"{n} {max(1, n // 3)}" for n in range(3, 13)],
}
# How they are recorded and replayed: with data one process alone, else the whole program.
DR_TECHNIQUES = {"D": (("--policy", "all"), ()), "R": (("--policy", "none"), ("--once",)), "S": (("--policy", "none"), ("--once", "--total-order"))}

CLOCKS = {"real": "elapsed_s", "cpu": "run_s"}  # and what T is a share of
PATH_POLICIES = ("critical-path", "fewest-bytes")  # both promise C
FEW, MANY = 4, 16           # processes: where replays are measured; of figures that the papers have of 16
MANY_OF_ROUTER = 8          # ... and of router
PERIODS = (0.05, 0.10, 0.15, 0.20)
LIMITS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # C in T
SKEWS = (0.2, 0.4, 0.6, 0.8, 1.0)              # S in T
SKEW_LIMITS = (1.5, 2.0, 2.5, 3.0)
SET_PERIODS = (0.01, 0.05, 0.10, 0.20, 0.30, 0.50)
SET_BOUNDS = (0.5, 1.0, 1.5, 2.0, 2.5)         # intervals per process: 8 to 40 of the paper's 16 processes
EQUAL_BOUNDS = (0.75, 1.25, 1.75, 3.0, 4.0, 6.0)  # more of them, to log as much as domino
BREAKPOINTS = 1000
REPETITIONS = 40            # of runs of D's sizes, as in the paper
LONG_REPETITIONS = 3        # of runs of seconds
RECORDINGS = 3              # with the same limits
SAMPLE_S = 0.02             # how often memory is looked at
PERIOD_PER_BOUND = 0.15     # T of a recording with --bound: C is 0.3 of it, T half of C
MOST_BOUNDED = 250_000      # messages: redrive computes no lower bound of more
LEAST_BOUND_S = 0.3         # redrive refuses what restoring alone takes
LEAST_PERIOD_S = 0.01       # of recordings: well above what a checkpoint costs


def ns(seconds):
    return round(seconds * 1e9)


def duration(seconds):
    return f"{max(1, round(seconds * 1e6))}us"


def tenth(base):
    """T = 10 % of the run, in whole microseconds as redrive takes it."""
    return max(1, round(base["run_s"] * 1e5)) / 1e6


def joined(values):
    return ",".join(map(str, values))


class Papers:
    def __init__(self, arguments):
        self.arguments, self.options = arguments, Options(arguments.redrive, arguments.build)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rd-papers-"))
        self.work = self.directory / "work"
        self.work.mkdir()
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        self.env.update(mpi.ENV | mpi.SOCKETS, REDRIVE_TRACE_DIR=str(self.directory / "traces"),
                        REDRIVE_CACHE_DIR=str(self.directory / "cache"), LANG="C.UTF-8")
        self.bases = {}      # (program, processes, arguments): what recording() returns, or the Failure
        self.timeout_s = 8 if arguments.quick else 240

    def run(self, *command, timeout_s=None, statuses=(0,)):
        shown = " ".join(map(str, command))
        process = Process(command, self.work, self.env, shown, self.directory)
        what = f"redrive {command[1]}" if command[0] == self.options.redrive else "run without redrive"
        try:
            outcome = process.finish(timeout_s or self.timeout_s)
        except Failure as failure:
            raise Failure(f"{what} {str(failure).splitlines()[0]}") from None
        if outcome.status not in statuses:
            last = (outcome.stderr or outcome.stdout).strip().splitlines()[-1:] or [""]
            raise Failure(f"{what}: exit status {outcome.status}: {last[0][:160]}")
        return outcome

    def json(self, *words, timeout_s=600, statuses=(0,)):
        return json.loads(self.run(self.options.redrive, *words, "--json", timeout_s=timeout_s, statuses=statuses).stdout)

    def command(self, program, processes, arguments=None):
        is_mpi = program in MPI_PROGRAMS
        sizes = (MPI_PROGRAMS if is_mpi else NODE_PROGRAMS)[program]
        words = (arguments or sizes[0 if self.arguments.quick else 1]).format(n=processes).split()
        if is_mpi:
            return mpi.command(self.options, program, *words, ranks=processes)
        return [workload(self.options, program), *words]

    def record(self, name, command, *options):
        trace = self.directory / name
        shutil.rmtree(trace, ignore_errors=True)
        outcome = self.run(self.options.redrive, "record", "-o", trace, *options, "--", *command)
        return trace, outcome.seconds

    def recording(self, program, processes, name, *options, arguments=None):
        """Recorded, and what there is to say about it; its trace is under `trace`."""
        command = self.command(program, processes, arguments)
        trace, recorded_s = self.record(name, command, *options)
        stats = self.json("stats", trace)
        self.run(self.options.redrive, "catalog", trace)
        run_s = max(sum(i["cpu_s"] or 0 for i in unit["intervals"]) for unit in self.json("ls", trace)["units"])
        return {"program": program, "processes": processes, "arguments": " ".join(map(str, command[1:] if program in NODE_PROGRAMS else command[8:])),
                "trace": str(trace), "recorded_s": recorded_s, "run_s": run_s,
                **{key: stats[key] for key in ("units", "messages", "logged_messages", "message_bytes", "logged_bytes", "checkpoints")},
                "unsure": len(stats["unsure"])}

    def base(self, program, processes, arguments=None):
        """The recording that is evaluated off line, and tells how long the run is; made once."""
        key = program, processes, arguments
        if key not in self.bases:
            try:
                native_s = self.run(*self.command(program, processes, arguments)).seconds
                name = "-".join(map(str, (program, processes, *(arguments or "").split())))
                made = self.recording(program, processes, name, arguments=arguments)
                elapsed_s = self.json("evaluate", made["trace"], "--policy", "all")["elapsed_s"]
                self.bases[key] = {**made, "native_s": native_s, "elapsed_s": elapsed_s}
            except Failure as failure:
                self.bases[key] = failure
        if isinstance(self.bases[key], Failure):
            raise Failure(f"its recording failed: {str(self.bases[key]).splitlines()[0]}")
        return self.bases[key]

    def evaluate(self, trace, policies, period_s, limits_s, *, clock="real", skews_s=(), bounds=(), schedule="cyclic"):
        words = ["--policy", joined(policies), "--checkpoint-period", duration(period_s), "--critical-path", joined(map(duration, limits_s)),
                 "--clock", clock, "--schedule", schedule]
        words += ["--skew", joined(map(duration, skews_s))] if skews_s else []
        words += ["--set-bound", joined(bounds)] if bounds else []
        return self.json("evaluate", *words, trace)["policies"]

    def base_of_many(self, program, processes):
        return self.base(program, processes, None if self.arguments.quick else MANY_SIZES.get(program))

    def critical_path(self, program, processes):
        """Figures 4 and 5 of N: all checkpoints at the same moments; and, with T = 10 % of the run, each process's by its own CPU time."""
        base, rows = self.base_of_many(program, processes), []
        for clock, period in [*(("real", period) for period in PERIODS), ("cpu", 0.10)]:
            period_s = period * base[CLOCKS[clock]]
            found = self.evaluate(base["trace"], ["critical-path"], period_s, [limit * period_s for limit in LIMITS], clock=clock)
            rows += [row_of(row, clock=clock, period=period, limit=limit) for row, limit in zip(found, LIMITS)]
        return {"program": program, "processes": processes, "rows": rows}

    def skew(self, program, processes):
        """Figure 6 of N: with S = 0 all checkpoints are at the same moments."""
        base, rows = self.base_of_many(program, processes), []
        for period in PERIODS:
            period_s = period * base["elapsed_s"]
            limits_s = [limit * period_s for limit in SKEW_LIMITS]
            plain = self.evaluate(base["trace"], ["critical-path"], period_s, limits_s)
            skewed = self.evaluate(base["trace"], ["critical-path"], period_s, limits_s, skews_s=[skew * period_s for skew in SKEWS])
            for row, (skew, limit) in zip(plain + skewed, itertools.product((0.0, *SKEWS), SKEW_LIMITS)):
                rows.append(row_of(row, period=period, limit=limit, skew=skew))
        return {"program": program, "rows": rows}

    def replay_set(self, program, processes):
        """Figures 2 to 5 of Z: skewed checkpoints, bounds in intervals per unit; and how many replays deadlock that know the left frontier only."""
        base, rows, deadlocks = self.base_of_many(program, processes), [], []
        factors = sorted(SET_BOUNDS + EQUAL_BOUNDS)
        bounds = [max(1, round(factor * base["units"])) for factor in factors]
        for period in SET_PERIODS:
            period_s = period * base["elapsed_s"]
            found = self.evaluate(base["trace"], ["replay-set", "domino", "none"], period_s, [2 * period_s], skews_s=[period_s], bounds=bounds)
            frontier = self.evaluate(base["trace"], ["replay-set", "domino"], period_s, [2 * period_s], skews_s=[period_s], bounds=[2 * base["units"]],
                                     schedule="frontier")
            sets = [row for row in found if row["policy"].startswith("replay-set")]
            rows += [row_of(row, period=period, bound=factor, most=bound) for row, factor, bound in zip(sets, factors, bounds)]
            rows += [row_of(row, period=period) for row in found if row["policy"] in ("domino", "none")]
            ended = {row["policy"]: row["deadlocks"] for row in found}
            deadlocks += [row_of(row, name=row["policy"].split()[0], period=period, sets_deadlocks=ended[row["policy"]]) for row in frontier]
        return {"program": program, "rows": rows, "deadlocks": deadlocks}

    def stored_sets(self, program, processes):
        """Z's replay scheme 1: recorded with a bound of two intervals per unit, T = 10 % of the run; each interval planned with its stored set, and searched for."""
        base = self.base(program, processes)
        period_s, most = max(tenth(base), LEAST_PERIOD_S), 2 * base["units"]
        for _ in range(RECORDINGS):  # one that skipped a checkpoint is decided in another way off line
            made = self.recording(program, processes, "sets", "--policy", "replay-set", "--set-bound", str(most), "--checkpoint-period", duration(period_s),
                                  "--critical-path", duration(2 * period_s))
            row = self.json("evaluate", made["trace"], "--policy", "replay-set", "--set-bound", most, "--stored-sets")["policies"][0]
            if row["planning_s"] is not None:
                break
        trace_bytes = sum(file.stat().st_size for file in pathlib.Path(made["trace"]).rglob("*") if file.is_file() and file.name != "catalog.sqlite")
        return {"program": program, "trace_bytes": trace_bytes, **row_of(row), "intervals": row["intervals"],
                **{key: row[key] for key in ("stored_set_bytes", "stored_sets_different", "stored_set_load_s", "set_search_s", "planning_s")}}

    def mrt(self, program, processes):
        """A row of M's table 7.1: T has the same share of the run as in the paper."""
        base = self.base(program, processes, None if self.arguments.quick else MRT_SIZES.get((program, processes)))
        run_s, interval_s = paper_values.MRT[program, processes][:2]
        share = interval_s / run_s
        period_s = base["elapsed_s"] * share
        found = self.evaluate(base["trace"], MRT_POLICIES, period_s, [2 * period_s])
        own, = self.evaluate(base["trace"], ["mrt"], base["run_s"] * share, [2 * base["run_s"] * share], clock="cpu")
        waits, = self.evaluate(base["trace"], ["mrt-waits"], base["run_s"] * share, [2 * base["run_s"] * share], clock="cpu")
        execution = executions.read(base["trace"])
        checked = executions.Deciding(execution, executions.Mrt(), ns(period_s), real=True).run()
        rows = {row["policy"]: row_of(row) for row in found} | {"own": row_of(own), "mrt-waits": row_of(waits)}
        return {"program": program, "processes": processes, "messages": base["messages"], "period_s": period_s,
                "checked_percent": logged_percent(execution, checked), **rows}

    def breakpoints(self, program, processes):
        """MRT's promise, replayed in thought from up to 1,000 breakpoints: decided by the checker where the paper has the rules, otherwise as recorded."""
        base = self.base(program, processes)
        period_s = tenth(base)
        out = {"program": program, "units": base["units"]}
        for policy in MRT_POLICIES:
            if policy == "mrt":
                execution = executions.read(base["trace"])
                decided, period = executions.Deciding(execution, executions.Mrt(), ns(period_s)).run(), ns(period_s)
                told = self.evaluate(base["trace"], [policy], period_s, [2 * period_s], clock="cpu")[0]
                messages, logged = base["messages"], told["logged_messages"]
            else:
                recorded_s = max(period_s, LEAST_PERIOD_S)
                made = self.recording(program, processes, "points", "--policy", policy, "--critical-path", duration(2 * recorded_s),
                                      "--checkpoint-period", duration(recorded_s))
                execution = executions.read(made["trace"])
                decided = executions.as_recorded(execution)
                messages, logged, period = made["messages"], made["logged_messages"], max(ns(recorded_s), longest_interval(decided))
            points = executions.Breakpoints(execution, decided)
            breakpoints = points.random(BREAKPOINTS)
            costs = points.costs(breakpoints)
            out[policy] = {"distance_t": max(distance for distance, _ in costs) / period, "time_t": max(replay for _, replay in costs) / period,
                           "count": len(costs), "distances_t": quartiles([distance / period for distance, _ in costs]),
                           "times_t": quartiles([replay / period for _, replay in costs]), "spreads": quartiles(list(map(points.spread, breakpoints))),
                           "logged": logged_by(execution, decided), "by_redrive": logged, "messages": messages}
        return out

    def placement(self, program, processes):
        """critical-path, C = 2T, recorded with checkpoints that units take together where they can, and with independent ones."""
        base = self.base(program, processes)
        period_s = max(tenth(base), LEAST_PERIOD_S)
        out = {"program": program, "processes": processes, "period_s": period_s}
        for placement in ("aligned", "independent"):
            made = self.recording(program, processes, "placed", "--policy", "critical-path", "--placement", placement,
                                  "--critical-path", duration(2 * period_s), "--checkpoint-period", duration(period_s))
            execution = executions.read(made["trace"])
            paths = executions.critical_paths(execution, executions.as_recorded(execution))
            out[placement] = {**told(made), "path_max_c": max(paths) / ns(2 * period_s)}
        return out

    def bounded_path(self, program, processes, policy):
        """C = 2T, T = 10 % of the run: as recorded, checked, and re-driven."""
        arguments = None if self.arguments.quick else LONG.get(program)
        base = self.base(program, processes, arguments)
        period_s = max(tenth(base), LEAST_PERIOD_S)
        times = 1 if self.arguments.quick else RECORDINGS
        every = [self.recording(program, processes, "path", "--policy", policy, "--critical-path", duration(2 * period_s),
                                "--checkpoint-period", duration(period_s), arguments=arguments) for _ in range(times)]
        made = every[-1]
        execution = executions.read(made["trace"])
        recorded = executions.as_recorded(execution)
        paths = executions.critical_paths(execution, recorded)
        bounded = ["--optimal"] if made["messages"] <= MOST_BOUNDED else []
        evaluated = self.json("evaluate", made["trace"], "--policy", policy, "--schedule", "cyclic", *bounded)["policies"][0]
        out = {"program": program, "policy": policy, "least_bytes": evaluated["least_bytes"], "least_solved": evaluated["least_solved"],
               "period_s": period_s, "limit_s": 2 * period_s, "intervals": len(paths), "path_max_c": max(paths) / ns(2 * period_s),
               "over": sum(path > ns(2 * period_s) for path in paths), "longest_t": longest_interval(recorded) / ns(period_s),
               "simulated_average_c": evaluated["makespan_average_c"], "simulated_max_c": evaluated["makespan_max_c"], **told(made),
               "logged_percents": sorted(told(one)["logged_percent"] for one in every)}
        return {**out, **self.redrive(made["trace"], 2 * period_s)}

    def checked(self, program, processes, clock):
        """The same off line, where checkpoints are exactly at T: the checker decides by itself, and measures every interval."""
        base = self.base(program, processes)
        period_s = max(1, round(base[CLOCKS[clock]] * 1e5)) / 1e6
        execution = executions.read(base["trace"])
        decided = executions.Deciding(execution, executions.CriticalPath(ns(2 * period_s)), ns(period_s), clock == "real").run()
        paths = executions.critical_paths(execution, decided)
        row = self.evaluate(base["trace"], ["critical-path"], period_s, [2 * period_s], clock=clock)[0]
        return {**row_of(row), "program": program, "processes": processes, "clock": clock, "intervals": len(paths), "path_max_c": max(paths) / ns(2 * period_s),
                "over": sum(path > ns(2 * period_s) for path in paths), "logged": logged_by(execution, decided), "evaluated": row["logged_messages"],
                "births": sum(step.what == executions.BEGIN and bool(step.senders) for step in execution.steps),
                "evaluated_path_max_c": row["critical_path_max_s"] / (2 * period_s)}

    def makespan(self, program, processes):
        """--bound, kept for every interval."""
        base = self.base(program, processes)
        bound_s = max(base["run_s"] / 10 / PERIOD_PER_BOUND, LEAST_BOUND_S)
        made = self.recording(program, processes, "makespan", "--policy", "makespan", "--bound", duration(bound_s))
        return {"program": program, "bound_s": bound_s, **told(made), **self.redrive(made["trace"], bound_s)}

    def redrive(self, trace, unit_s):
        """All intervals, verified; times in C or in the bound."""
        intervals = self.json("replay", trace, "--all", "--verify", timeout_s=5 * self.timeout_s, statuses=(0, 3, 5))["intervals"]
        seconds = [interval["seconds"] for interval in intervals]
        return {"redriven": len(intervals), "average": statistics.mean(seconds) / unit_s,
                "quartiles": [quartile / unit_s for quartile in quartiles(seconds)], "max": max(seconds) / unit_s,
                "late": sum(second > unit_s for second in seconds), "wrong": wrong_of(intervals)}

    def policies(self, program, processes):
        """All policies, C = 2T, T = 10 % of the run."""
        base = self.base(program, processes)
        period_s = base["elapsed_s"] / 10
        names = ["all", "critical-path", "critical-path-multiplicity", "makespan", "domino", "replay-set", *MRT_POLICIES, "none"]
        found = self.json("evaluate", base["trace"], "--policy", joined(names), "--checkpoint-period", duration(period_s), "--critical-path",
                          duration(2 * period_s), "--clock", "real", "--cores", 2, "--set-bound", 2 * base["units"])["policies"]
        return {"program": program, "rows": [row_of(row, name=row["policy"].split()[0]) for row in found]}

    def record_sizes(self, program, technique):
        """Figure 21 of D: bytes of all event logs, by messages."""
        arguments = DR_PROGRAMS[program][:: 4 if self.arguments.quick else 1]
        points = []
        for words in arguments:
            trace, _ = self.record("sizes", self.command(program, 0, words), *DR_TECHNIQUES[technique][0])
            events = sum(file.stat().st_size for file in (trace / "events").glob("*.seg"))
            points.append((self.json("stats", trace)["messages"], events))
        return {"program": program, "technique": technique, "points": sorted(points)}

    def run_times(self, program, technique, size):
        """Figures 22 to 24 of D: a run, a recording, and a replay: the longest of a process alone, or that of the whole program; quartiles of all times."""
        arguments = DR_PROGRAMS[program][-1] if size == "paper's" else None
        command, (record, replay) = self.command(program, 0, arguments), DR_TECHNIQUES[technique]
        times = {"native": [], "recorded": [], "replayed": []}
        for _ in range(1 if self.arguments.quick else REPETITIONS if arguments else LONG_REPETITIONS):
            times["native"].append(self.run(*command).seconds)
            trace, seconds = self.record("times", command, *record)
            times["recorded"].append(seconds)
            replayed = self.json("replay", trace, "--all", *replay, timeout_s=5 * self.timeout_s, statuses=(0, 3, 5))
            times["replayed"].append(replayed["whole_s" if "--once" in replay else "max_seconds"])
        return {"program": program, "technique": technique, "size": size, **{key: quartiles(values) for key, values in times.items()},
                "wrong": wrong_of(replayed["intervals"])}

    def memory(self, program, technique):
        """Figures 25 to 27 of D: the most memory that all processes of a run, a recording, and a replay have together, apart from what files hold."""
        command, (record, replay) = self.command(program, 0), DR_TECHNIQUES[technique]
        trace = self.directory / "memory"
        peaks = {"native": [], "recorded": [], "replayed": []}
        for _ in range(1 if self.arguments.quick else RECORDINGS):
            shutil.rmtree(trace, ignore_errors=True)
            jobs = {"native": command, "recorded": [self.options.redrive, "record", "-o", trace, *record, "--", *command],
                    "replayed": [self.options.redrive, "replay", trace, "--all", *replay]}
            for key, words in jobs.items():
                peaks[key].append(process_memory.peak_of(words, self.work, self.env, SAMPLE_S, 5 * self.timeout_s))
        return {"program": program, "technique": technique, **{key: quartiles(values) for key, values in peaks.items()}}

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def wrong_of(intervals):
    """What of a replay went wrong; the first of it in its own words."""
    wrong = {f"{i['unit']}:{i['interval']}": i["divergence"] or i["error"] for i in intervals if i["divergence"] or i["error"]}
    if not wrong:
        return ""
    first = " ".join(str(next(iter(wrong.values()))).split())
    return f"{len(wrong)} of {len(intervals)} intervals diverged or failed: {', '.join(list(wrong)[:6])}: {first[:160]}"


def row_of(row, **more):
    """What the page needs of a row of `redrive evaluate`."""
    return {"policy": row["policy"], "logged_percent": 100 * row["logged_share"], "average_c": row["makespan_average_c"],
            "max_c": row["makespan_max_c"], "path_max_c": row["critical_path_max_s"] / row["critical_path_limit_s"],
            "set_average": row["replay_set_average_per_unit"], "set_max": row["replay_set_max_per_unit"], "set_most": row["replay_set_max"],
            "multiplicity": row["multiplicity_max"],
            "logged_messages": row["logged_messages"], "forced": row["forced_checkpoints"], "replays": row["measured_intervals"],
            "deadlocks": row["deadlocks"], **more}


def quartiles(values):
    """The first, the median and the third."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


def told(recording):
    """What the page says of a recording with limits."""
    return {"logged_percent": 100 * recording["logged_messages"] / max(1, recording["messages"]),
            **{key: recording[key] for key in ("logged_bytes", "checkpoints", "unsure")}}


def logged_by(execution, decided):
    return sum(kept for kept, step in zip(decided.kept, execution.steps) if step.message)


def logged_percent(execution, decided):
    return 100 * logged_by(execution, decided) / max(1, sum(step.message for step in execution.steps))


def longest_interval(decided):
    return max(interval.end - interval.start for interval in decided.intervals)


def plan(papers):
    """What is measured, in order: the part of the results it belongs to, and how."""
    everything = [*SIX, *(name for name in (*MPI_PROGRAMS, *NODE_PROGRAMS) if name not in SIX)]
    few, many = [(name, FEW) for name in everything], [(name, MANY_OF_ROUTER if name == "router" else MANY) for name in SIX]
    jobs = [("checked", papers.checked, itertools.product(everything, (FEW,), CLOCKS)), ("policies", papers.policies, few),
            ("breakpoints", papers.breakpoints, few), ("critical_path", papers.critical_path, many),
            ("skew", papers.skew, [row for row in many if row[0] == "tester"]),
            ("replay_set", papers.replay_set, [row for row in many if row[0] in FIVE]),
            ("stored_sets", papers.stored_sets, [(name, FEW) for name in FIVE]),
            ("placement", papers.placement, few), ("mrt", papers.mrt, [(name, count) for name in MRT_PROGRAMS for count in (4, 8, 16)]),
            ("record_sizes", papers.record_sizes, itertools.product(DR_PROGRAMS, DR_TECHNIQUES)),
            ("run_times", papers.run_times, itertools.product(DR_PROGRAMS, DR_TECHNIQUES, ("paper's", "long"))),
            ("memory", papers.memory, itertools.product(DR_PROGRAMS, DR_TECHNIQUES)),
            ("bounded_path", papers.bounded_path, [(*row, policy) for row in few for policy in PATH_POLICIES]), ("makespan", papers.makespan, few)]
    return [(part, measure, words) for part, measure, rows in jobs for words in rows]


def measure_all(papers):
    """Writes the results after each: what is there can be rendered while the rest is measured."""
    start, chosen = time.monotonic(), papers.arguments.parts
    host = {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()[0], "minutes": 0, "quick": papers.arguments.quick}
    results = {"failures": [], "recordings": [], "host": host}
    if chosen and not papers.arguments.json.exists():
        results["only"] = chosen
    elif chosen:
        results.update(json.loads(papers.arguments.json.read_text()))
        results["failures"] = [failure for failure in results["failures"] if failure["part"] not in chosen]
        results.update({part: [] for part in chosen})
    minutes = results["host"]["minutes"]
    if "only" in results:
        results["only"] = sorted({*results["only"], *chosen})
    for part, measure, words in plan(papers):
        if chosen and part not in chosen:
            continue
        begin, name = time.monotonic(), " ".join(map(str, words))
        results.setdefault(part, [])
        try:
            results[part].append(measure(*words))
            outcome = results[part][-1].get("wrong") or "measured"
        except (Failure, Skip) as failure:
            outcome = str(failure).splitlines()[0]
        if outcome != "measured":
            results["failures"].append({"part": part, "what": name, "why": outcome})
        print(f"{part:<16}{name:<22}{time.monotonic() - begin:>7.1f} s  {outcome}", flush=True)
        if not chosen:
            results["recordings"] = [base for base in papers.bases.values() if isinstance(base, dict)]
        results["host"]["minutes"] = minutes + (time.monotonic() - start) / 60
        papers.arguments.json.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments():
    parser = bench_arguments.parser(__doc__, "runs of a second; the page is written beside the results instead")
    parser.add_argument("parts", nargs="*", help="parts to measure; the results of others stay as they are (default: all)")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the page from the results there are")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="results (build/papers.json; --quick: build/papers-quick.json)")
    given = parser.parse_args()
    given.json = given.json or given.build / ("papers-quick.json" if given.quick else "papers.json")
    return given


def main():
    given = parse_arguments()
    if not given.render:
        papers = Papers(given)
        try:
            measure_all(papers)
        finally:
            papers.close()
    page = pathlib.Path(__file__).with_name("papers.md")
    target = given.json.parent / "papers-quick" if given.quick else page.parent
    papers_page.write(page, target, given.json.parent / "papers", json.loads(given.json.read_text()))
    print(f"{target / 'papers.md'}")


if __name__ == "__main__":
    main()
