"""Group bound: a recording in which replays would be late is repaired at its end, or says so wherever it is looked at."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import time

from bad_input import needs_mounts
from harness import Failure, test, workload
from redriving import REDRIVEN, Job, check_report, check_trace, copy_into, record, units

PROCESSES = 12
# All processes depend on each other, so without kept messages, a replay executes intervals of all of them: more than this bound. Each process computes
# for some 0.3 s, so that one alone keeps it even on a busy machine.
TALKERS = (PROCESSES, 300, 700000, 64)
BOUND = "800ms"
# What a user may choose, and what promises the time of a path only: replays of talkers need a repair. The default keeps the bound while it records, which
# bound/by_default shows.
PATHS_ONLY = ("--policy", "fewest-bytes")


def talkers(ctx, *options):
    return Job(["./talkers", *map(str, TALKERS)], prepare=copy_into(workload(ctx.options, "talkers")), record_options=options)


def redrive_once(ctx):
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", "--verify", cwd="/", statuses=REDRIVEN))


def predictions(ctx):
    """Of all intervals, each planned alone."""
    jobs = str(ctx.json("stats", ctx.trace)["certificate"]["jobs"])
    return [ctx.json("plan", ctx.trace, f"{unit['unit']}:{interval['interval']}", "--jobs", jobs) for unit in units(ctx) for interval in unit["intervals"]]


@test("bound/by_default")
def by_default(ctx):
    """The default policy, with nothing chosen but the bound, keeps it: some messages are kept, not all, and every replay is right."""
    told = record(ctx, talkers(ctx, "--bound", BOUND))
    stats = ctx.json("stats", ctx.trace)
    ctx.expect(stats["certificate"]["kept"] and "cannot be kept" not in told.stderr, told, f"the bound is not kept: {stats['certificate']}")
    if not 0 < stats["logged_messages"] < stats["messages"]:
        raise Failure(f"{stats['logged_messages']} of {stats['messages']} messages are logged")
    check_trace(ctx)
    redrive_once(ctx)


@test("bound/not_repaired")
def not_repaired(ctx):
    """record, ls, stats, plan and check say that the bound is not kept; the exit status is the program's."""
    told = record(ctx, talkers(ctx, *PATHS_ONLY, "--bound", BOUND, "--no-repair"))
    lines = [line for line in told.stderr.splitlines() if "the bound of 800 ms cannot be kept" in line]
    ctx.expect(len(lines) == 1, told, "does not say once that the bound cannot be kept")
    stats = ctx.json("stats", ctx.trace)
    late = stats["over_bound"]
    if stats["certificate"]["kept"] or not late or any(replay["predicted_s"] <= 0.8 for replay in late):
        raise Failure(f"of a bound that is not kept: {stats['certificate']}, {late}")
    if max(replay["replay_set_size"] for replay in late) < PROCESSES:
        raise Failure(f"replays of units that depend on each other execute only {late}")
    said = lines[0].removeprefix("redrive: ")
    for command in ("stats", "check"):
        shown = ctx.expect_status(ctx.redrive(command, ctx.trace), 0)
        ctx.expect(said in shown.stdout, shown, "does not say that the bound cannot be kept")
    slowest = stats["certificate"]["slowest"]
    if stats["certificate"]["together_s"] is not None:
        raise Failure(f"a prediction of everything, beside that of the slowest: {stats['certificate']}")
    planned = ctx.json("plan", ctx.trace, f"{slowest['unit']}:{slowest['interval']}", "--jobs", str(stats["certificate"]["jobs"]))
    if not planned["over_bound"] or planned["messages"] != slowest["messages"] or any(
            abs(planned[part] - slowest[part]) > 1e-3 for part in ("predicted_s", "restore_s")):
        raise Failure(f"plan predicts {planned}, the certificate says {slowest}")
    listed = ctx.json("ls")["traces"]
    if [(row["bound_s"], row["bound_kept"]) for row in listed] != [(0.8, False)]:
        raise Failure(f"ls: {listed}")
    shown = ctx.redrive("ls")
    ctx.expect("800 ms, late" in shown.stdout, shown, "does not say that replays are late")


@test("bound/together")
def together(ctx):
    """Many processes take their checkpoints together: none has to wait until those of others are stored, after which all would take one more, and so on.
    Where others use the machine, storing takes longer, so that one of three recordings has to be like that."""
    told = []
    for _ in range(3):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        record(ctx, Job([str(workload(ctx.options, "mesh")), "16", "600i"], record_options=("--bound", "250ms", "--no-repair")))
        stats = ctx.json("stats", ctx.trace)
        told.append((stats["skipped_checkpoints"], stats["checkpoints"]))
        if stats["skipped_checkpoints"] <= stats["checkpoints"] / 8:
            return
    raise Failure(f"checkpoints that were skipped, and taken: {told}")


@test("bound/input")
def input_takes_time(ctx):
    """A program reads input much faster than a replay reads it from the trace. That counts: the program has as many checkpoints as the replay needs."""
    megabytes = 2000
    words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", f"count={megabytes}"]
    record(ctx, Job(words, good=lambda outcome: outcome.status == 0, record_options=("--bound", "1s", "--checkpoint-period", "200ms")))
    stats = ctx.json("stats", ctx.trace)
    if stats["cpu_s"] < megabytes / 1000 or stats["intervals"] < megabytes / 200 / 2:
        raise Failure(f"{megabytes} MB that are read take {stats['cpu_s']:.2f} s to execute again, in {stats['intervals']} intervals")
    redrive_once(ctx)


@test("bound/stops")
def stops_take_time(ctx):
    """So does a call at which a replay stops: that costs the replay, not the program, most of its time."""
    calls = 20000
    script = f"import fcntl, sys\nfile = open(sys.executable)\nfor i in range({calls // 2}): fcntl.flock(file, fcntl.LOCK_SH); fcntl.flock(file, fcntl.LOCK_UN)"
    record(ctx, Job([sys.executable, "-c", script], good=lambda outcome: outcome.status == 0, record_options=("--bound", "2s")))
    stats = ctx.json("stats", ctx.trace)
    if stats["stopped_calls"] < calls:
        raise Failure(f"{calls} calls that are not served, and {stats['stopped_calls']} stops")
    if stats["cpu_s"] < calls * 8e-6:
        raise Failure(f"{calls} stops take {stats['cpu_s']:.3f} s to execute again")
    redrive_once(ctx)


@test("bound/faults")
def faults_take_time(ctx):
    """So does a fault at memory that is not there: a replay makes sure that it is not."""
    faults = 5000
    record(ctx, Job([str(workload(ctx.options, "faults")), str(faults)], record_options=("--bound", "2s")))
    cpu_s = ctx.json("stats", ctx.trace)["cpu_s"]
    if cpu_s < faults * 100e-6:
        raise Failure(f"{faults} faults take {cpu_s:.3f} s to execute again")
    redrive_once(ctx)


# Runs a command, and says how often its processes have waited (getrusage(2), ru_nvcsw). Each stop of a tracee is a wait, on a busy machine, too.
COUNTS_WAITS = """import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw, file=sys.stderr)
sys.exit(status)
"""


@test("bound/series")
def series_is_not_stopped(ctx):
    """Calls without success, in a series, are one event. A replay that begins amid them makes them without stops, as one that begins before them."""
    calls = 400000
    script = f"import os\nfor i in range({calls}): os.sched_yield()"
    record(ctx, Job([sys.executable, "-c", script], good=lambda outcome: outcome.status == 0, record_options=("--bound", "60s", "--checkpoint-period", "30ms")))
    stats = ctx.json("stats", ctx.trace)
    if stats["intervals"] < 4 or stats["events"] > calls / 2:
        raise Failure(f"{calls} calls are {stats['events']} events in {stats['intervals']} intervals")
    replays = ctx.expect_status(ctx.run(sys.executable, "-c", COUNTS_WAITS, ctx.options.redrive, "replay", "--all", "--verify", "--json", ctx.trace, cwd="/"), 0)
    check_report(ctx, json.loads(replays.stdout))
    waits = int(replays.stderr)
    if waits > calls / 4:
        raise Failure(f"{calls} calls were executed again with {waits} waits, of threads for each other")


# With many mappings: calls that fail and may have changed some of their memory, code that is made writable and back, and segments that are attached.
LAYOUT = """import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.shmat.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
for i in range(15000): libc.mmap(None, 4096, 1 + 2 * (i % 2), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
code = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
segment = libc.shmget(0, 4096, 0o1600)
for i in range(CALLS // 5):
    assert libc.mprotect(1 << 40, 4096, 3) == -1
    assert libc.mprotect(code, 4096, 5) == 0 and libc.mprotect(code, 4096, 3) == 0
    at = libc.shmat(segment, None, 0)
    assert libc.shmdt(at) == 0
libc.shmctl(segment, 0, None)
"""


@test("bound/layout")
def layout_is_not_read_again(ctx):
    """Neither a recording nor a replay looks at all of a process's mappings for each call that changes one: with 15,000, that takes 10 ms."""
    calls = 2000
    record(ctx, Job([sys.executable, "-c", LAYOUT.replace("CALLS", str(calls))], good=lambda outcome: outcome.status == 0, record_options=("--bound", "60s")))
    replays = ctx.json("replay", "--all", "--verify", ctx.trace, cwd="/")
    check_report(ctx, replays)
    recorded_s, replayed_s = ctx.json("stats", ctx.trace)["wall_s"], replays["whole_s"]
    if max(recorded_s, replayed_s) > calls * 2.5e-3:
        raise Failure(f"{calls} calls took {recorded_s:.1f} s to record, and {replayed_s:.1f} s to execute again")


# Threads that sleep while the first one computes.
SLEEPERS = """import os, threading, time
threading.stack_size(65536)
awake = threading.Event()
sleepers = [threading.Thread(target=awake.wait) for i in range(THREADS)]
for each in sleepers: each.start()
until = time.process_time() + 0.5
while time.process_time() < until: os.getppid()
awake.set()
for each in sleepers: each.join()
"""


@test("bound/threads")
def threads_take_time(ctx):
    """An interval's replay makes all threads that the unit has when it begins. Predictions say so."""
    threads = 1000
    record(ctx, Job([sys.executable, "-c", SLEEPERS.replace("THREADS", str(threads))], good=lambda outcome: outcome.status == 0,
                    record_options=("--bound", "60s", "--checkpoint-period", "200ms")))
    stub_s = ctx.json("stats", ctx.trace)["restore_cost_s"]
    checkpoints = [each for each in ctx.json("ls", "--checkpoints", ctx.trace)["checkpoints"] if each["threads"] > threads]
    if not checkpoints:
        raise Failure("no checkpoint was taken while the threads were there")
    for each in checkpoints:
        restore_s = ctx.json("plan", ctx.trace, f"{each['unit']}:{each['interval']}")["restore_s"]
        least_s = (1 + 0.09 * threads) * stub_s + each["bytes"] / 500e6
        if restore_s < least_s:
            raise Failure(f"{threads} threads and {each['bytes']} bytes are predicted to be restored in {restore_s:.3f} s, not {least_s:.3f}")


@test("bound/required", slow=True)
def required(ctx):
    """With --require-bound, a bound that is not kept is a failure of the recording; one that is kept is none."""
    job = talkers(ctx)
    job.prepare(ctx.fresh_work())
    failed = ctx.redrive("record", "-o", ctx.trace, *PATHS_ONLY, "--bound", BOUND, "--no-repair", "--require-bound", "--", *job.command, cwd=ctx.work)
    ctx.expect_status(failed, 125)
    check_trace(ctx)
    kept = ctx.redrive("record", "-o", ctx.traces / "kept", "--require-bound", "--", *job.command, cwd=ctx.work)
    ctx.expect_status(kept, 0)


@test("bound/repaired", alone=True)
def repaired(ctx):
    """Unless told not to, record adds the messages that late replays need: some, not all. What it says of each interval is what plan says."""
    record(ctx, talkers(ctx, *PATHS_ONLY, "--bound", BOUND, "--no-repair"), trace=ctx.traces / "not_repaired")
    before = ctx.json("stats", ctx.traces / "not_repaired")
    told = record(ctx, talkers(ctx, *PATHS_ONLY, "--bound", BOUND))
    stats = ctx.json("stats", ctx.trace)
    certificate = stats["certificate"]
    ctx.expect(certificate["kept"] and not stats["over_bound"] and "cannot be kept" not in told.stderr, told, f"not repaired: {certificate}")
    if not before["logged_messages"] < stats["logged_messages"] < stats["messages"]:
        raise Failure(f"{stats['logged_messages']} of {stats['messages']} messages are logged, {before['logged_messages']} without a repair")
    planned = predictions(ctx)
    if len(planned) != certificate["intervals"] or any(plan["over_bound"] for plan in planned):
        raise Failure(f"the certificate speaks of {certificate['intervals']} intervals, and plan predicts {[plan['predicted_s'] for plan in planned]}")
    check_trace(ctx)
    redrive_once(ctx)


@test("bound/prepared", slow=True)
def prepared(ctx):
    """prepare repairs as well."""
    record(ctx, talkers(ctx, "--virtual"))
    if ctx.json("stats", ctx.trace)["certificate"] is not None:
        raise Failure("a trace that promises nothing has a certificate")
    failed = ctx.redrive("prepare", *PATHS_ONLY, "--bound", "1s", "--no-repair", "--require-bound", ctx.trace)
    ctx.expect_status(failed, 1)
    ctx.expect("the bound of 1.00 s cannot be kept" in failed.stderr, failed, "does not say what is not kept")
    ctx.expect_status(ctx.redrive("prepare", *PATHS_ONLY, "--bound", "1s", "--require-bound", ctx.trace), 0)
    if not ctx.json("stats", ctx.trace)["certificate"]["kept"]:
        raise Failure("prepare does not repair")
    if any(plan["over_bound"] for plan in predictions(ctx)):
        raise Failure("a replay would be late")
    check_trace(ctx)
    redrive_once(ctx)


@test("bound/interrupted", slow=True)
def interrupted(ctx):
    """Ctrl-C during the repair ends it, not the trace; the exit status is the program's."""
    interrupt_repair(ctx, to_group=True)


@test("bound/signalled", slow=True)
def signalled(ctx):
    """The same by a signal to redrive alone."""
    interrupt_repair(ctx, to_group=False)


def interrupt_repair(ctx, to_group):
    job = talkers(ctx)
    job.prepare(ctx.fresh_work())
    recording = ctx.start_redrive("record", "-o", ctx.trace, *PATHS_ONLY, "--bound", BOUND, "--", *job.command, cwd=ctx.work)
    limit = time.monotonic() + ctx.timeout_s
    while not (ctx.trace / "preparing").exists():  # made when the repair begins
        if time.monotonic() > limit or recording.has_ended():
            break
        time.sleep(0.01)
    (os.killpg if to_group else os.kill)(recording.pid, signal.SIGINT)
    ended = recording.finish(ctx.timeout_s)
    ctx.expect_status(ended, 0)
    ctx.expect("interrupted after the program had ended" in ended.stderr, ended, "does not say what was interrupted")
    check_trace(ctx)
    redrive_once(ctx)
    ctx.expect_status(ctx.redrive("prepare", ctx.trace), 0)  # continues
    if not ctx.json("stats", ctx.trace)["certificate"]["kept"]:
        raise Failure("prepare does not continue an interrupted repair")


@test("bound/damaged_certificate")
def damaged_certificate(ctx):
    record(ctx, talkers(ctx, *PATHS_ONLY, "--bound", BOUND, "--no-repair"))
    path = ctx.trace / "certificate"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for command in ("check", "stats"):
        refused = ctx.expect_status(ctx.redrive(command, ctx.trace), 4)
        ctx.expect("certificate" in refused.stderr + refused.stdout, refused, "does not name the file")
    path.unlink()  # derived: nothing but the promise is gone
    check_trace(ctx)
    check_report(ctx, ctx.json("replay", ctx.trace, "1:0", "--verify", statuses=REDRIVEN))
    if ctx.json("stats", ctx.trace)["certificate"] is not None or ctx.json("ls")["traces"][0]["bound_kept"] is not None:
        raise Failure("there is a certificate after it was removed")


@test("bound/few_processors")
def few_processors(ctx):
    """On one processor, a replay takes as long as all that it executes."""
    one = str(min(os.sched_getaffinity(0)))
    job = talkers(ctx)
    job.prepare(ctx.fresh_work())
    told = ctx.run("taskset", "-c", one, ctx.options.redrive, "record", "-o", ctx.trace, *PATHS_ONLY, "--bound", BOUND, "--no-repair", "--", *job.command, cwd=ctx.work)
    ctx.expect_status(told, 0)
    certificate = ctx.json("stats", ctx.trace)["certificate"]
    slowest = certificate["slowest"]
    alone_s = certificate["pace"] * slowest["cpu_s"] + slowest["restore_s"] + slowest["clock_error_s"] + certificate["start_s"] * slowest["replay_set_size"] + certificate["begin_s"] + certificate["message_s"] * slowest["messages"]
    if certificate["jobs"] != 1 or abs(slowest["predicted_s"] - alone_s) > 1e-6 or certificate["kept"]:
        raise Failure(f"with one processor: {certificate}")
    ctx.expect("with 1 job," in told.stderr, told, "does not say for how many jobs the bound cannot be kept")


@test("bound/full_disk")
def full_disk(ctx):
    """A trace that was cut off because its disk was full does not say that it keeps its bound."""
    needs_mounts(ctx)
    job = talkers(ctx)
    job.prepare(ctx.fresh_work())
    (ctx.directory / "full").mkdir()
    cut = ctx.run("unshare", "-m", "sh", "-c",
                  'mount -t tmpfs -o size=1m tmpfs ../full; "$@"; status=$?; cp -a ../full/t ../kept; exit $status', "sh", ctx.options.redrive, "record",
                  "-o", "../full/t", *PATHS_ONLY, "--bound", BOUND, "--", *job.command, cwd=ctx.work)
    ctx.expect_status(cut, 125)
    ctx.expect("the trace is incomplete" in cut.stderr and "No space left" in cut.stderr, cut, "does not say that the trace is incomplete")
    kept = ctx.directory / "kept"
    if (certificate := ctx.json("stats", kept)["certificate"]) is not None:
        raise Failure(f"an incomplete trace has a certificate: {certificate}")
    told = ctx.redrive("stats", kept)
    ctx.expect("not known whether they keep the bound" in told.stdout, told, "does not say that it is not known whether the bound is kept")
    ctx.expect_status(ctx.redrive("prepare", "--bound", BOUND, "--require-bound", kept), 1)


CALL_NS = 1000  # what the clock of intervals counts for a call that is served in process
TOLERANCE_NS = 300_000  # what the program's own calls take, between its clock and the message
MOST_ERROR_NS = 50_000_000


@test("bound/own_clock")
def own_clock(ctx):
    """Times of messages are those of the program's own CPU clock, up to the error that the trace states."""
    report = record(ctx, Job([str(workload(ctx.options, "own_clock")), "300"], good=lambda outcome: len(outcome.stdout.split()) > 300,
                             record_options=("--bound", "1s", "--checkpoint-period", "100ms")))
    own = [int(line) for line in report.stdout.split()]
    ctx.expect_status(ctx.redrive("catalog", ctx.trace), 0)
    with contextlib.closing(sqlite3.connect(ctx.trace / "catalog.sqlite")) as catalog:
        # A message for each of the calls before it, and the interval in which it was sent.
        sends = catalog.execute("""SELECT i.interval, i.clock_error_ns, m.sender_at_ns, m.sender_event FROM messages m, intervals i
            WHERE i.unit = m.sender_unit AND i.first_event <= m.sender_event AND m.sender_event < i.first_event + i.events
            AND m.unit != m.sender_unit ORDER BY m.sender_event""").fetchall()
    if len(sends) != len(own):
        raise Failure(f"{len(own)} messages were sent, {len(sends)} are in the catalog")
    errors, wrong, first = set(), [], {}
    for own_ns, (interval, error_ns, at_ns, event) in zip(own, sends):
        its_own_ns, its_at_ns, its_event = first.setdefault(interval, (own_ns, at_ns, event))
        differs_ns = abs((at_ns - its_at_ns) - (own_ns - its_own_ns) - CALL_NS * (event - its_event))
        errors.add(error_ns)
        if differs_ns > 2 * error_ns + TOLERANCE_NS:
            wrong.append((event, differs_ns, error_ns))
    if wrong:
        raise Failure(f"{len(wrong)} of {len(own)} times differ by more than the trace says: (event, differs, stated) {wrong[:5]}")
    if len(first) < 5 or not 0 < max(errors) <= MOST_ERROR_NS:
        raise Failure(f"{len(first)} intervals, errors {sorted(errors)} ns")


@test("bound/births")
def births(ctx):
    """What it takes to start hundreds of intervals is a part of what is predicted: of a process that bears others, one after the other."""
    many = Job(["./births", "300"], prepare=copy_into(workload(ctx.options, "births")), record_options=(*PATHS_ONLY, "--bound", "900ms", "--require-bound"))
    record(ctx, many)
    certificate = ctx.json("stats", ctx.trace)["certificate"]
    report = ctx.json("replay", ctx.trace, "1:0", statuses=REDRIVEN)
    check_report(ctx, report)
    if certificate["measured"] == 0 and certificate["slowest"]["predicted_s"] < 0.3:
        raise Failure(f"nothing was measured, and of 300 intervals it is said that they take {certificate}")


@test("bound/none_promised")
def none_promised(ctx):
    """A policy that keeps nothing promises nothing, unless it is asked for."""
    for options, promised in (((), False), (("--bound", "1s"), True)):
        trace = ctx.traces / f"with{len(options)}"
        ctx.expect_status(ctx.redrive("record", "--policy", "none", *options, "-o", trace, "--", "sh", "-c", "echo 1 | cat", cwd=ctx.work), 0)
        stats = ctx.json("stats", trace)
        if bool(stats["bound_s"]) != promised or (stats["certificate"] is not None) != promised:
            raise Failure(f"with {options}: {stats['bound_s']}, {stats['certificate']}")
        text = ctx.expect_status(ctx.redrive("stats", trace), 0)
        ctx.expect(("none, bound 1.00 s" if promised else "none, no bound") in text.stdout, text, "does not say so")
