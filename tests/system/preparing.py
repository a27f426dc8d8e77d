"""Group preparing: four-phase replay. A recording notes where checkpoints would be and keeps no messages; prepare makes both, from a
replay, and the trace then is as good as one that was recorded with that bound."""
import json
import os
import re
import shutil
import signal
import time

from harness import Failure, Skip, needs, test, workload
from programs import job_of
from redriving import REDRIVEN, Job, check_report, check_trace, check_verified, record, redrive_all, take_away_surroundings, units

VIRTUAL = ("--virtual", "--checkpoint-period", "20ms")
# Threads, processes of one unit, births, memory of all kinds, signals.
PROGRAMS = ("stress_threads", "fork_tree", "vfork_exec", "shared_memory", "mappings", "stack_growth", "signal_nested", "served_signals", "tcp",
            "series_checkpoints", "moved_faults", "mapped_code", "mapped_files", "read_only_view")


def record_virtually(ctx, job, *options):
    job.record_options = (*VIRTUAL, *options)
    record(ctx, job)
    take_away_surroundings(ctx)
    stats = ctx.json("stats", ctx.trace)
    if stats["bound_s"] != 0 or stats["logged_messages"] != 0:
        raise Failure(f"a virtual recording has a bound of {stats['bound_s']} s and {stats['logged_messages']} logged messages")


def marks(ctx, kind="virtual"):
    return [(unit["unit"], i["interval"]) for unit in units(ctx) for i in unit["intervals"] if i["checkpoint_kind"] == kind]


def prepare(ctx, bound, *options):
    """With this bound or, if it cannot be kept, with the shortest one that can."""
    outcome = ctx.redrive("prepare", "--bound", bound, *options, "--json", ctx.trace)
    if refused := re.search("a bound of (.*) can be kept$", outcome.stderr.strip()):
        outcome = ctx.redrive("prepare", "--bound", refused[1].replace(" ", ""), *options, "--json", ctx.trace)
    made = json.loads(ctx.expect_status(outcome, 0).stdout)
    check_trace(ctx)
    stats = ctx.json("stats", ctx.trace)
    if abs(stats["bound_s"] - made["bound_s"]) > 1e-9:
        raise Failure(f"prepared for {made['bound_s']} s, and the trace says {stats['bound_s']} s")
    return made


def register(name):
    @test(f"preparing/{name}", timeout_s=120)
    def cycle(ctx):
        record_virtually(ctx, job_of(ctx, name))
        noted = len(marks(ctx))
        made = prepare(ctx, "1s")
        if made["images"] > noted + len(units(ctx)):
            raise Failure(f"{made['images']} images of {noted} virtual checkpoints")
        if name != "vfork_exec" and noted >= 10 and made["images"] == 0:
            raise Failure(f"no image of {noted} virtual checkpoints")
        redrive_all(ctx)


for program in PROGRAMS:
    register(program)


@test("preparing/preempted", timeout_s=120)
def preempted(ctx):
    """A recording in which threads were preempted is prepared for another bound, and keeps everything that it had."""
    record(ctx, job_of(ctx, "preempted", "8", record_options=("--bound", "2s")))
    take_away_surroundings(ctx)
    there = marks(ctx, "image")
    if len(there) < 4:
        raise Failure(f"{len(there)} images: nothing was preempted")
    prepare(ctx, "1s")
    if not set(there) <= set(marks(ctx, "image")):
        raise Failure(f"images {there} were there, and now {marks(ctx, 'image')}")
    redrive_all(ctx)


def mesh(ctx):
    return Job([str(workload(ctx.options, "mesh")), "4", "600i"])


@test("preparing/bounds", timeout_s=240, slow=True)
def bounds(ctx):
    """A bound can be changed, to a smaller one as far as the noted checkpoints allow, and each is kept."""
    record_virtually(ctx, mesh(ctx))
    refused = ctx.redrive("prepare", "--bound", "50ms", ctx.trace)
    ctx.expect(refused.status in (1, 2) and "can" in refused.stderr, refused, "does not say which bound can be kept")
    before = 0
    for bound in ("2s", "700ms", "500ms"):
        made = prepare(ctx, bound)
        redrive_all(ctx)
        images = len(marks(ctx, "image"))
        if images != before + made["images"]:
            raise Failure(f"{before} images, {made['images']} added, {images} there")
        before = images
    if before == 0:
        raise Failure("no image was needed")
    again = prepare(ctx, f"{made['bound_s']}s")
    if again["images"] or again["messages"]:
        raise Failure(f"what was prepared already is made again: {again}")


@test("preparing/policies", timeout_s=240, slow=True)
def policies(ctx):
    """With all messages, every interval replays alone; with an isolated group, the group replays without the rest."""
    record_virtually(ctx, mesh(ctx))
    prepare(ctx, "1s", "--isolate", "2,3")
    names = {unit["unit"]: unit for unit in units(ctx)}
    for unit in (2, 3):
        for interval in names[unit]["intervals"]:
            plan = ctx.json("plan", ctx.trace, f"{unit}:{interval['interval']}")
            outside = {member["unit"] for member in plan["replay_set"]} - {2, 3}
            if outside and interval["interval"] > 0:
                raise Failure(f"{unit}:{interval['interval']} needs units {outside}")
    made = prepare(ctx, "1s", "--policy", "all")
    stats = ctx.json("stats", ctx.trace)
    if made["messages"] == 0 or stats["logged_messages"] != stats["messages"] or stats["policy"] != "all":
        raise Failure(f"of {stats['messages']} messages {stats['logged_messages']} are kept, policy {stats['policy']}")
    report = redrive_all(ctx)
    largest = max(i["replay_set_size"] for i in report["intervals"])
    if largest != 1:
        raise Failure(f"with all messages kept, an interval needs {largest - 1} others")


@test("preparing/killed", timeout_s=240, slow=True)
def killed(ctx):
    """A killed prepare leaves an intact trace, and the next one continues with what is there. How many more images that makes is not known from
    another copy of the trace: each prepare measures the cost of a restore, and chooses its checkpoints by that."""
    record_virtually(ctx, mesh(ctx))
    whole = ctx.trace.with_name("whole")
    shutil.copytree(ctx.trace, whole)
    wanted = ctx.json("prepare", "--bound", "500ms", whole)["images"]
    process = ctx.start_redrive("prepare", "--bound", "500ms", "--jobs", "1", ctx.trace)
    images = ctx.trace / "images.seg"
    complete = (whole / "images.seg").stat().st_size
    start = images.stat().st_size
    limit = time.monotonic() + 60
    while images.stat().st_size < start + (complete - start) // 3 and process.process.poll() is None and time.monotonic() < limit:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    if process.finish(30).status == 0:
        raise Failure("it had ended before it could be killed")
    check_trace(ctx)
    there = set(marks(ctx, "image"))
    if not 0 < len(there) < wanted:
        raise Failure(f"{len(there)} of {wanted} images were published when it was killed")
    once = ctx.json("replay", ctx.trace, "--all", "--once", "--verify", statuses=REDRIVEN)
    check_report(ctx, once)
    check_verified(ctx, once, ctx.trace)
    made = prepare(ctx, "500ms")
    then = set(marks(ctx, "image"))
    if made["images"] == 0 or not there <= then or len(then) != len(there) + made["images"]:
        raise Failure(f"the images {sorted(there)} were there, {made['images']} were made, and then there are {sorted(then)}")
    redrive_all(ctx)


@test("preparing/unprivileged", timeout_s=240)
def unprivileged(ctx):
    """All four phases by a user without any capability, who can gain none: ptrace of one's own children is enough."""
    if os.geteuid() != 0:
        raise Skip("not root: all other tests are this one")
    needs("setpriv")
    redrive, program = ctx.directory / "redrive", ctx.directory / "mesh"  # where that user can reach them
    shutil.copy(ctx.options.redrive, redrive)
    shutil.copy(workload(ctx.options, "mesh"), program)
    for directory in (ctx.work, ctx.traces, ctx.home):
        os.chown(directory, 65534, 65534)
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")
    powers = ctx.run(*nobody, "cat", "/proc/self/status").stdout
    if re.search(r"^Cap\w+:\s*0*[1-9a-f]", powers, re.MULTILINE) or "NoNewPrivs:\t1" not in powers:
        raise Failure(f"setpriv has left it some power:\n{powers}")

    def run(*words):
        return ctx.expect_status(ctx.run(*nobody, redrive, *words, cwd=ctx.work), 0)

    run("record", *VIRTUAL, "-o", ctx.trace, "--", program, "4", "800i")
    noted = len(marks(ctx))
    made = json.loads(run("prepare", "--bound", "700ms", "--policy", "all", "--json", ctx.trace).stdout)
    if noted < 4 or made["images"] == 0 or made["messages"] == 0:
        raise Failure(f"{noted} virtual checkpoints, and of a replay: {made}")
    report = json.loads(run("replay", "--all", "--verify", "--json", ctx.trace).stdout)
    if report["divergences"] or not any(i["verified"] for i in report["intervals"]):
        raise Failure(f"{report['divergences']} divergences, {report['not_verified']} intervals not verified")
    check_trace(ctx)


@test("preparing/mistakes")
def mistakes(ctx):
    record_virtually(ctx, job_of(ctx, "tls"))
    for words in (("plan", ctx.trace, "1:0"), ("replay", ctx.trace, "--break", "1@5")):
        outcome = ctx.expect_status(ctx.redrive(*words), 0)
        ctx.expect("bound" not in outcome.stdout, outcome, "names a bound that there is none of")
    for words, status, said in ((("--isolate", "77", ctx.trace), 1, "77"), (("--policy", "best", ctx.trace), 2, "best"),
                                (("--cores", "2", ctx.trace), 2, "--policy"), (("--bound", "0s", ctx.trace), 2, "0"),
                                ((ctx.trace, "more"), 2, "more"), ((ctx.trace.with_name("none"),), 1, "none")):
        outcome = ctx.expect_status(ctx.redrive("prepare", *words), status)
        ctx.expect(said in outcome.stderr and outcome.stderr.count("\n") == 1, outcome, f"one line with '{said}' was expected")
    for option in (("--bound", "2s"), ("--policy", "all"), ("--critical-path", "1s")):
        outcome = ctx.expect_status(ctx.redrive("record", "--virtual", *option, "--", "true"), 2)
        ctx.expect("prepare" in outcome.stderr, outcome, "does not say when that is chosen")
    unfinished = ctx.trace.with_name("unfinished")
    process = ctx.start_redrive("record", "--virtual", "-o", unfinished, "--", "sleep", "60")
    limit = time.monotonic() + 20
    while not (unfinished / "events" / "1.seg").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    process.kill()
    outcome = ctx.expect_status(ctx.redrive("prepare", unfinished), 1)
    ctx.expect("not finished" in outcome.stderr, outcome, "does not say that the trace is not finished")


@test("preparing/by_root")
def by_root(ctx):
    """What root adds to the trace of a user is that user's."""
    if os.geteuid() != 0:
        raise Skip("not root")
    needs("setpriv")
    redrive = ctx.directory / "redrive"  # where that user can reach it
    shutil.copy(ctx.options.redrive, redrive)
    for directory in (ctx.work, ctx.traces, ctx.home):
        os.chown(directory, 65534, 65534)
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", redrive)
    ctx.expect_status(ctx.run(*user, "record", *VIRTUAL, "-o", ctx.trace, "--", "sh", "-c", "seq 3000 | sort -rn | tail -1", cwd=ctx.work), 0)
    made = ctx.json("prepare", "--bound", "2s", "--policy", "all", ctx.trace)
    if not made["messages"]:
        raise Failure(f"nothing was added: {made}")
    for path in (ctx.trace, *ctx.trace.rglob("*")):
        if path.stat().st_uid != 65534:
            raise Failure(f"{path} is not the user's")
    for words in (("check", ctx.trace), ("replay", "--all", ctx.trace), ("prepare", "--bound", "3s", ctx.trace), ("rm", ctx.trace)):
        ctx.expect_status(ctx.run(*user, *words, cwd=ctx.work), 0)


@test("preparing/damaged")
def damaged(ctx):
    """The exit status says that the trace is damaged, as that of replay does."""
    whole = ctx.trace.with_name("whole")
    ctx.expect_status(ctx.redrive("record", "-o", whole, "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000000"), 0)
    longest_s = max(interval["cpu_s"] for unit in ctx.json("ls", whole)["units"] for interval in unit["intervals"])
    bound = f"{1.5 * longest_s:.3f}s"  # near enough for replays to be measured
    for harm in ((lambda: os.truncate(ctx.trace / "images.seg", 0)), (lambda: ((ctx.trace / "pages").unlink(), (ctx.trace / "pages").mkdir()))):
        shutil.copytree(whole, ctx.trace)
        harm()
        for words in (("check", ctx.trace), ("prepare", "--bound", bound, ctx.trace)):
            outcome = ctx.expect_status(ctx.redrive(*words), 4)
            ctx.expect("\n" in outcome.stderr or outcome.stdout, outcome, "says nothing")
        shutil.rmtree(ctx.trace)


@test("preparing/again")
def again(ctx):
    """A prepare that changes nothing leaves what was chosen, C and T, and what was measured."""
    ctx.expect_status(ctx.redrive("record", "--policy", "critical-path", "--bound", "3s", "--critical-path", "2400ms", "--checkpoint-period", "1200ms", "-o",
                                  ctx.trace, "--", workload(ctx.options, "mesh"), "2", "300i", cwd=ctx.work), 0)
    before = ctx.json("stats", ctx.trace)
    ctx.expect_status(ctx.redrive("prepare", ctx.trace), 0)
    after = ctx.json("stats", ctx.trace)
    for what in ("critical_path_s", "checkpoint_period_s", "bound_s", "logged_messages"):
        if after[what] != before[what]:
            raise Failure(f"{what} was {before[what]}, and is {after[what]}")
    if after["certificate"]["measured"] < before["certificate"]["measured"]:
        raise Failure(f"what was measured is lost: {before['certificate']}, {after['certificate']}")


@test("preparing/at_once")
def at_once(ctx):
    """Of processes that prepare a trace at once, none takes away what another one has added."""
    record_virtually(ctx, job_of(ctx, "pipe_pingpong"))
    running = [ctx.start_redrive("prepare", "--bound", bound, "--policy", "all", ctx.trace) for bound in ("1s", "2s", "3s")]
    outcomes = [each.finish(ctx.timeout_s) for each in running]
    for outcome in outcomes:
        told = any(text in outcome.stderr for text in ("is being prepared", "was changed by another process"))
        ctx.expect(outcome.status == 0 or (outcome.status == 1 and told), outcome, f"ended with {outcome.status}")
    if all(outcome.status != 0 for outcome in outcomes):
        raise Failure("none has prepared it")
    stats = ctx.json("stats", ctx.trace)
    if stats["logged_messages"] != stats["messages"]:
        raise Failure(f"{stats['logged_messages']} of {stats['messages']} are kept, although a prepare has ended well")
    made = [ctx.start_redrive("catalog", ctx.trace) for _ in range(6)]
    for each in made:
        ctx.expect_status(each.finish(ctx.timeout_s), 0)
    check_trace(ctx)
    redrive_all(ctx)
