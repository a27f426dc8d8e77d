"""Group evaluate: policies off line. The recorded policy with the recorded parameters must make the decisions of the recording."""
import shutil

import mpi
from harness import Failure, test
from programs import job_of
from redriving import record

LIMITS = ("--critical-path", "30ms", "--checkpoint-period", "20ms")
TIGHT = ("--critical-path", "20ms", "--checkpoint-period", "20ms")  # what crosses checkpoints is kept
ROW_KEYS = """policy messages logged_messages logged_share logged_bytes replay_set_average replay_set_max critical_path_max_s work_max_s
makespan_average_s makespan_max_s makespan_max_c predicted_max_s forced_checkpoints measured_intervals different""".split()


def rows(ctx, *words):
    return ctx.json("evaluate", *words)["policies"]


def expect_reproduced(ctx, policy, least_logged):
    """Each decision, and each critical path as `plan` finds it in the recording."""
    stats = ctx.json("stats", ctx.trace)
    row, = rows(ctx, "--policy", policy, ctx.trace)
    missing = [key for key in ROW_KEYS if key not in row]
    if missing:
        raise Failure(f"a row lacks {missing}")
    counts = [(of["messages"], of["logged_messages"], of["logged_bytes"]) for of in (stats, row)]
    if counts[0][1] < least_logged:
        raise Failure(f"the recording kept {counts[0][1]} messages: nothing to reproduce")
    if counts[0] != counts[1] or row["different"] != 0 or row["policy"] != stats["policy"]:
        raise Failure(f"recorded {counts[0]}, evaluated {counts[1]}, {row['different']} decisions differ, policy {row['policy']}")
    plans = [ctx.json("plan", ctx.trace, f"{unit['unit']}:{interval['interval']}")
             for unit in ctx.json("ls", ctx.trace)["units"] for interval in unit["intervals"]]
    for key, planned in (("critical_path_max_s", "critical_path_s"), ("work_max_s", "work_s")):
        longest = max(plan[planned] for plan in plans)
        if abs(longest - row[key]) > max(0.001, 0.01 * longest):  # times of forks are estimated, in different ways
            raise Failure(f"{key} is {row[key]}, the largest {planned} of all plans {longest}")
    largest = max(len(plan["replay_set"]) for plan in plans)
    if largest != row["replay_set_max"] or len(plans) != row["intervals"]:
        raise Failure(f"largest replay set {row['replay_set_max']} of {row['intervals']}, by plan {largest} of {len(plans)}")


def record_without_skips(ctx, job):
    """Policies are told of checkpoints that are skipped, which evaluations do not know of. A busy machine skips some."""
    for _ in range(20):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        record(ctx, job)
        if ctx.json("stats", ctx.trace)["skipped_checkpoints"] == 0:
            return
    raise Failure("checkpoints were skipped in each of 20 recordings")


def register():
    for policy, least, options in (("critical-path", 1, ()), ("fewest-bytes", 0, ()), ("replay-set", 1, ("--set-bound", "2")), ("domino", 0, ()),
                                   ("critical-path-multiplicity", 1, ("--multiplicity", "1")), ("makespan", 1, ("--cores", "1"))):
        @test(f"evaluate/reproduces_{policy}")
        def reproduces(ctx, policy=policy, least=least, options=options):
            limits = TIGHT if policy == "critical-path" else LIMITS
            record_without_skips(ctx, job_of(ctx, "compute_messages", record_options=(*limits, "--policy", policy, *options)))
            expect_reproduced(ctx, policy, least)


@test("evaluate/measure", timeout_s=120)
def measure(ctx):
    """Replays are measured for the policy that was recorded, and not for those that keep something else."""
    record_without_skips(ctx, job_of(ctx, "compute_messages", record_options=(*LIMITS, "--policy", "critical-path")))
    path, everything = rows(ctx, "--measure", "--policy", "critical-path,all", ctx.trace)
    if everything["measured_max_s"] is not None or path["different"] != 0:
        raise Failure(f"all: {everything['measured_max_s']} s measured; critical-path: {path['different']} decisions differ")
    if not 0 < path["measured_average_s"] <= path["measured_max_s"] < 60:
        raise Failure(f"measured: {path['measured_average_s']} s in the mean, {path['measured_max_s']} s at most")
    if abs(path["measured_max_c"] - path["measured_max_s"] / path["critical_path_limit_s"]) > 1e-6:
        raise Failure(f"{path['measured_max_s']} s are {path['measured_max_c']} C of {path['critical_path_limit_s']} s")


register()


@test("evaluate/reproduces_mpi", timeout_s=600, slow=True)
def reproduces_mpi(ctx):
    options = ("--critical-path", "90ms", "--checkpoint-period", "60ms", "--policy", "critical-path")
    record_without_skips(ctx, mpi.job(ctx.options, "jacobi", 400, 1500, "nocheck", record_options=options))
    expect_reproduced(ctx, "critical-path", 1)


@test("evaluate/sweeps")
def sweeps(ctx):
    """One row for each combination; a longer C keeps no more, and more cores take no longer."""
    record(ctx, job_of(ctx, "compute_messages", record_options=LIMITS))
    found = rows(ctx, "--policy", "critical-path,all", "--critical-path", "30ms,60ms", "--checkpoint-period", "10ms,20ms",
                 "--cores", "1,2", ctx.trace)
    if len(found) != 2 * 2 * 2 + 2 * 2:
        raise Failure(f"{len(found)} rows")
    for row in found:
        if row["policy"] == "all" and row["logged_messages"] != row["messages"]:
            raise Failure(f"all keeps {row['logged_messages']}")
        if row["policy"] == "critical-path" and row["critical_path_max_s"] > row["critical_path_limit_s"]:
            raise Failure(f"a critical path is longer than C: {row}")
    csv = ctx.expect_status(ctx.redrive("evaluate", "--csv", "--policy", "none", ctx.trace), 0).stdout.splitlines()
    if len(csv) != 2 or len(csv[0].split(",")) != len(csv[1].split(",")):
        raise Failure(f"CSV: {csv}")
    text = ctx.expect_status(ctx.redrive("evaluate", ctx.trace), 0)
    ctx.expect("recorded with deadline" in text.stdout, text, "does not say what was recorded")


@test("evaluate/optimal", timeout_s=300)
def optimal(ctx):
    """No policy keeps less than the lower bound; there is one only where a time is promised, and if it is asked for."""
    record(ctx, job_of(ctx, "compute_messages", record_options=(*TIGHT, "--policy", "critical-path")))
    found = rows(ctx, "--optimal", "--cores", "1", "--policy", "makespan,all", ctx.trace)
    for row in found:
        if row["policy"] == "all":
            if row["least_bytes"] is not None or row["times_least"] is not None:
                raise Failure(f"a bound where no time is promised: {row}")
        elif not (0 < row["least_bytes"] <= row["logged_bytes"] and 0 < row["least_messages"] <= row["logged_messages"]):
            raise Failure(f"keeps less than the bound, or nothing needs to be kept: {row}")
        elif abs(row["times_least"] * row["least_bytes"] - row["logged_bytes"]) > 1e-6 * row["logged_bytes"]:
            raise Failure(f"the bound times {row['times_least']} is not what is kept: {row}")
    makespan = ("evaluate", "--cores", "1", "--policy", "makespan", ctx.trace)
    text, plain = (ctx.expect_status(ctx.redrive(*makespan, *more), 0) for more in (("--optimal",), ()))
    ctx.expect("LEAST BYTES" in text.stdout, text, "does not show the bound")
    ctx.expect("LEAST BYTES" not in plain.stdout, plain, "shows a bound that nobody asked for")
    large = ctx.expect_status(ctx.redrive("evaluate", "--optimal", "--policy", "critical-path", "--synthetic", "stencil", "--messages", "250001"), 1)
    ctx.expect(large.stderr.count("\n") == 1 and "too many for a lower bound" in large.stderr, large, "does not say that it is too large")


@test("evaluate/schedules")
def schedules(ctx):
    """One processor for each unit: not faster than the critical path, and not slower than M times that. Only a replay from the frontier can deadlock."""
    words = ("--synthetic", "random", "--units", "8", "--messages", "20000", "--policy", "domino", "--cores", "8")
    by_list, cyclic, frontier = (rows(ctx, *words, "--schedule", schedule)[0] for schedule in ("list", "cyclic", "frontier"))
    path = cyclic["critical_path_max_s"]
    if not path < cyclic["makespan_max_s"] <= path * cyclic["multiplicity_max"]:
        raise Failure(f"cyclic: {cyclic['makespan_max_s']} s, the critical path is {path} s, M {cyclic['multiplicity_max']}")
    if not (by_list["deadlocks"] == cyclic["deadlocks"] == 0 < frontier["deadlocks"] < frontier["measured_intervals"]):
        raise Failure(f"deadlocks: list {by_list['deadlocks']}, cyclic {cyclic['deadlocks']}, frontier {frontier['deadlocks']}")
    text = ctx.expect_status(ctx.redrive("evaluate", *words, "--schedule", "frontier"), 0)
    ctx.expect("would wait for ever" in text.stdout, text, "does not say how many wait for ever")


@test("evaluate/stored_sets")
def stored_sets(ctx):
    """Each set that was stored while the program ran is what a search finds, in memory and in the trace; it is planned from there only as recorded."""
    record_without_skips(ctx, job_of(ctx, "compute_messages", record_options=(*LIMITS, "--policy", "replay-set", "--set-bound", "2")))
    recorded, other = rows(ctx, "--policy", "replay-set,none", "--set-bound", "2", "--stored-sets", ctx.trace)
    if other["policy"] != "none" or recorded["different"] != 0 or recorded["planning_s"] is None or other["planning_s"] is not None:
        raise Failure(f"planned from the trace: {recorded['planning_s']} s as recorded, {other['planning_s']} s otherwise")
    for row in (recorded, other):
        if row["stored_sets_different"] != 0 or row["stored_set_bytes"] < row["intervals"] * row["replay_set_average"]:
            raise Failure(f"{row['policy']}: {row['stored_sets_different']} stored sets differ, {row['stored_set_bytes']} bytes")
    if not 0 < recorded["stored_set_load_s"] < recorded["planning_s"]:
        raise Failure(f"planned in {recorded['planning_s']} s, loaded in {recorded['stored_set_load_s']} s")


@test("evaluate/clocks")
def clocks(ctx):
    """At the same moments for all units, critical-path keeps only what crosses checkpoints."""
    words = ("--synthetic", "stencil", "--units", "9", "--messages", "20000", "--policy", "critical-path")
    own, together, apart = (rows(ctx, *words, "--clock", clock, *skew)[0]
                            for clock, skew in (("cpu", ()), ("real", ()), ("real", ("--skew", "100ms"))))
    if not 10 * together["logged_messages"] < min(own["logged_messages"], apart["logged_messages"]):
        raise Failure(f"logged: {own['logged_messages']} by CPU time, {together['logged_messages']} together, {apart['logged_messages']} apart")
    elapsed = ctx.json("evaluate", *words)["elapsed_s"]
    if not 9 * (elapsed / 0.1 - 2) < together["intervals"] <= 9 * (elapsed / 0.1 + 1):
        raise Failure(f"{together['intervals']} intervals of 9 units, one in each 100 ms of {elapsed} s")


@test("evaluate/large")
def large(ctx):
    """A million messages between 1,024 units, in seconds."""
    row, = rows(ctx, "--synthetic", "stencil", "--units", "1024", "--messages", "1000000", "--policy", "critical-path")
    if row["messages"] != 1_000_000 or not 0 < row["measured_intervals"] <= row["intervals"]:
        raise Failure(f"{row}")
