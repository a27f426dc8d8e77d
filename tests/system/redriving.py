"""The cycle that most tests go through: run natively, record, remove everything, verify the trace, re-drive all of it."""
import dataclasses
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import textwrap

from harness import Failure, Skip

BOUND_S = 2.0
REDRIVEN = (0, 3, 5)  # statuses of a replay whose report says what became of each interval; check_in_time() judges those that were late
TRIES = 3  # for an interval that was late: others may have used the processors


def ends_ok(outcome):
    """Whether a self-checking program reports success."""
    lines = [line for line in outcome.stdout.splitlines() if line.strip()]
    return bool(lines) and lines[-1].startswith("ok")


@dataclasses.dataclass
class Job:
    command: list
    prepare: object = None       # called with the fresh working directory before each run
    status: int = 0
    good: object = ends_ok       # of an Outcome
    env: dict = None
    ports: tuple = ()            # taken by others during the replay
    record_options: tuple = ("--bound", "2s")
    replay_options: tuple = ()


class TakenPorts:
    """Listens on the ports of the recorded servers: a replay must not care."""

    def __init__(self, ports):
        self.ports, self.sockets = ports, []

    def __enter__(self):
        for port in self.ports:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                taken = socket.socket(socket.AF_INET, kind)
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind(("127.0.0.1", port))
                if kind == socket.SOCK_STREAM:
                    taken.listen()
                self.sockets.append(taken)

    def __exit__(self, *_):
        for taken in self.sockets:
            taken.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SKIPPED = 77  # skipped() of tests/programs/test.h


def run_natively(ctx, job):
    _prepare(ctx, job)
    outcome = _expect_result(ctx, ctx.run(*job.command, cwd=ctx.work, env=job.env), job)
    ctx.expect(job.good(outcome), outcome, "natively: wrong result")
    return outcome


def record(ctx, job, trace=None):
    _prepare(ctx, job)
    words = ("record", "-o", trace or ctx.trace, *job.record_options, "--", *job.command)
    outcome = _expect_result(ctx, ctx.redrive(*words, cwd=ctx.work, env=job.env), job)
    ctx.expect(job.good(outcome), outcome, "recorded: wrong result")
    return outcome


def _expect_result(ctx, outcome, job):
    if outcome.status == SKIPPED and "skip: " in outcome.stdout:
        raise Skip(outcome.stdout.strip().removeprefix("skip: "))
    return ctx.expect_status(outcome, job.status)


def _prepare(ctx, job):
    ctx.fresh_work()
    if job.prepare:
        job.prepare(ctx.work)


def take_away_surroundings(ctx):
    shutil.rmtree(ctx.work)


def divergence_of(interval):
    """(unit, event or None, text) of one interval in the JSON of replay; None if it did not diverge."""
    found = interval.get("divergence")
    if not found:
        return None
    if isinstance(found, dict):
        lines = "\n".join(f"{key}: {str(value).rstrip()}" for key, value in found.items())
        told = "\n" + textwrap.indent(lines, "    ")
        return found.get("unit", interval["unit"]), found.get("event"), told
    return interval["unit"], None, str(found)


def check_report(ctx, report):
    """For a replay with --json: no divergence, no error."""
    diverged = [f"{i['unit']}:{i['interval']}: {divergence_of(i)[2]}" for i in report["intervals"] if divergence_of(i)]
    if report["divergences"] or diverged:
        count = f"{report['divergences']} divergences in {len(report['intervals'])} intervals"
        raise failure_of(report, "\n  ".join([count, *diverged[:3]]))
    errors = [f"{i['unit']}:{i['interval']}: {i['error']}" for i in report["intervals"] if i.get("error")]
    if errors:
        raise failure_of(report, "intervals that could not be re-driven: " + "; ".join(errors[:5]))
    if not report["intervals"]:
        raise failure_of(report, "the replay had no interval")


def failure_of(report, what):
    """The failure of a replay, as its report with --json shows it; names the command that made this report."""
    return Failure(f"{what}\n  command: {report.shown}   (there after a run with --keep)")


class Contention:
    """The share of the processors' time that others than our children used meanwhile, including the hypervisor."""

    def __enter__(self):
        self.start = self._now()
        return self

    def __exit__(self, *_):
        used, idle, ours = (after - before for before, after in zip(self.start, self._now()))
        self.share = max(0, used - ours) / max(0.01, used + idle)

    @staticmethod
    def _now():
        ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        idle = ticks[3] + ticks[4]
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        per_second = os.sysconf("SC_CLK_TCK")
        return (sum(ticks) - idle) / per_second, idle / per_second, children.ru_utime + children.ru_stime


def check_in_time(ctx, trace, report, bound_s, *, cwd="/", options=()):
    """Every interval of the report was re-driven within the bound. Those that were not are tried again, without counting the processor time that
    others used meanwhile."""
    late = []
    for interval in (i for i in report["intervals"] if i["seconds"] > bound_s):
        name, tried = f"{interval['unit']}:{interval['interval']}", []
        while len(tried) < TRIES and (not tried or min(tried) > bound_s):
            with Contention() as contention:
                again, = ctx.json("replay", trace, name, "--verify", *options, cwd=cwd, statuses=REDRIVEN)["intervals"]
            tried.append(again["seconds"] * (1 - contention.share))
        if min(tried) > bound_s:
            late.append(f"{name} {min(tried):.2f} s")
    if late:
        raise Failure(f"{len(late)} of {len(report['intervals'])} intervals beyond the bound of {bound_s:g} s: " + ", ".join(late[:8]))


def redrive_each(ctx, trace=None, *, cwd="/", options=()):
    """Re-drives every interval with its set, each as it was recorded."""
    trace = trace or ctx.trace
    report = ctx.json("replay", trace, "--all", "--verify", *options, cwd=cwd, statuses=REDRIVEN)
    check_report(ctx, report)
    check_verified(ctx, report, trace)
    return report


def redrive_all(ctx, trace=None, *, bound_s=None, cwd="/", options=()):
    trace = trace or ctx.trace
    report = redrive_each(ctx, trace, cwd=cwd, options=options)
    if bound_s is not None:
        check_in_time(ctx, trace, report, bound_s, cwd=cwd, options=options)
    redrive_once(ctx, trace, report, cwd=cwd, options=options)
    return report


def redrive_once(ctx, trace, each, *, cwd="/", options=()):
    """Executes every interval once: the intervals arrive at the same ends as when each is re-driven with its set. Without --verify, one process goes
    through several intervals; each tier has one of the two."""
    verify = ("--verify",) if "stops" in options else ()
    once = ctx.json("replay", trace, "--all", "--once", *verify, *options, cwd=cwd, statuses=REDRIVEN)
    check_report(ctx, once)
    if verify:
        check_verified(ctx, once, trace)
    if [(i["unit"], i["interval"], i["cut"]) for i in once["intervals"]] != [(i["unit"], i["interval"], i["cut"]) for i in each["intervals"]]:
        raise failure_of(once, "replay --once has other intervals than replay")
    if "arrivals" in once and once["arrivals"] != sorted(set(once["arrivals"])):
        raise failure_of(once, f"replay --once: receives happened in the order {once['arrivals']}")


def check_verified(ctx, report, trace):
    """If an interval ends at an image checkpoint, --verify had something to compare with, and must have done so. Not if the recorder was stopped
    before it wrote that image, or what the interval's last events need."""
    cut = [f"{i['unit']}:{i['interval']}" for i in report["intervals"] if i["cut"]]
    listed = ctx.json("ls", trace)
    finished = listed["state"] == "finished"
    if cut and finished:
        raise failure_of(report, f"the trace is finished, and yet {len(cut)} intervals are cut: {', '.join(cut[:8])}")
    comparable = {(unit["unit"], later["interval"] - 1) for unit in listed["units"] for later in unit["intervals"]
                  if later["checkpoint_kind"] == "image" and (later["startable"] or finished)}
    silent = [f"{i['unit']}:{i['interval']}" for i in report["intervals"] if bool(i["verified"]) == bool(i["unverified"])]
    if silent:
        raise failure_of(report, f"{len(silent)} intervals are not verified without a reason, or verified with one: {', '.join(silent[:8])}")
    left_out = [f"{i['unit']}:{i['interval']} ({i['unverified']})" for i in report["intervals"]
                if (i["unit"], i["interval"]) in comparable and not i["verified"] and not i["cut"]]
    if left_out:
        raise failure_of(report, f"{len(left_out)} intervals end at an image and were not verified: {', '.join(left_out[:8])}")


def check_trace(ctx, trace=None):
    return ctx.expect_status(ctx.redrive("check", trace or ctx.trace), 0)


def cycle(ctx, job, *, natively=True, bound_s=None):
    """The whole cycle. Returns (recorded Outcome, replay report)."""
    if natively:
        run_natively(ctx, job)
    recorded = record(ctx, job)
    take_away_surroundings(ctx)
    check_trace(ctx)
    with TakenPorts(job.ports):
        return recorded, redrive_all(ctx, bound_s=bound_s, options=job.replay_options)


def units(ctx, trace=None):
    return ctx.json("ls", trace or ctx.trace)["units"]


def images_by_unit(ctx):
    return {unit["unit"]: [i for i in unit["intervals"] if i["checkpoint_kind"] == "image"] for unit in units(ctx)}


def copy_into(path, name=None):
    """A Job's prepare: copies the file into the working directory, so that it disappears with it."""
    def prepare(work):
        # By another process: one that starts programs in other threads would give them the copy, open for writing.
        subprocess.run(["cp", "-p", path, work / (name or path.name)], check=True)
    return prepare


def is_root():
    return os.geteuid() == 0
