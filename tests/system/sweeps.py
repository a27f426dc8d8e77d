"""Group sweeps: one of redrive's own calls fails, the Nth of its kind, for N = 1, 2, ... until there are no more (tests/fault/failing_calls.c). The
recorded program must not notice, the part of the trace that exists must be intact, and the user is told what failed."""
import errno
import itertools

from harness import TESTS, Failure, compiled, test

PROGRAM = "seq 1 2000 | sort -r | head -3; (sleep 0.05; echo a) | cat; echo end"
EXPECTED = "999\n998\n997\na\nend\n"
# What fails in the way that is common for it, and which of them are tried in the short form: every so-manieth.
CALLS = {"write": (errno.ENOSPC, 23), "sync": (errno.EIO, 5), "truncate": (errno.ENOSPC, 5), "rename": (errno.EIO, 5),
         "memfd": (errno.EMFILE, 3), "mmap": (errno.ENOMEM, 7), "fork": (errno.EAGAIN, 1), "open": (errno.EMFILE, 41)}
MADE_BY = {"record": CALLS, "replay": ("write", "truncate", "memfd", "mmap", "fork", "open"),
           "prepare": ("write", "sync", "truncate", "memfd", "mmap", "fork", "open")}
ALL_TIMEOUT_S = 3600


class Attempt:
    """A run of redrive in which one call fails, if there are so many."""

    def __init__(self, ctx, call, number, *words):
        self.log = ctx.directory / "failed"
        self.log.unlink(missing_ok=True)
        library = compiled(ctx.options, TESTS / "fault" / "failing_calls.c", flags=("-shared", "-fPIC", "-ldl"), directory="fault")
        env = {"LD_PRELOAD": str(library), "FAIL_CALL": call, "FAIL_AT": str(number), "FAIL_ERRNO": str(CALLS[call][0]), "FAIL_LOG": str(self.log)}
        self.outcome = ctx.redrive(*words, env=env, timeout_s=60)
        self.failed = self.log.exists()


def sweep_record(ctx, call, step):
    for number in itertools.count(1, step):
        attempt = Attempt(ctx, call, number, "record", "-o", ctx.trace, "--checkpoint-period", "20ms", "--", "sh", "-c", PROGRAM)
        outcome = attempt.outcome
        what = f"the {number}th {call} fails: "
        refused = outcome.status == 125 and outcome.stdout == ""
        if not refused:
            ctx.expect(outcome.stdout == EXPECTED and outcome.status in (0, 125), outcome, what + "the program notices")
        ctx.expect(outcome.status == 0 or outcome.stderr.startswith("redrive: "), outcome, what + "nobody says why")
        if ctx.trace.exists():
            ctx.expect_status(ctx.redrive("check", ctx.trace), 0)
            unsure = "may diverge" in outcome.stderr
            replayed = ctx.redrive("replay", "--all", "--verify", ctx.trace)
            ctx.expect_status(replayed, 0, *((1, 3) if unsure else (1,) if outcome.status else ()))
            blamed = [line for line in replayed.stdout.splitlines() if "did not get to" in line]
            ctx.expect(all("was not stored" in line for line in blamed), replayed, what + "the cause is not named")
            ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)
        if not attempt.failed:
            return number


def sweep_reader(ctx, call, step, *words):
    for number in itertools.count(1, step):
        attempt = Attempt(ctx, call, number, *words)
        outcome = attempt.outcome
        what = f"the {number}th {call} of {words[0]} fails: "
        ctx.expect(outcome.status in (0, 1), outcome, what + f"exit status {outcome.status}")
        ctx.expect(outcome.status == 0 or "redrive: " in outcome.stderr, outcome, what + "nobody says why")
        if not attempt.failed:
            ctx.expect_status(outcome, 0)
            return number


def sweep_replay(ctx, call, step):
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--checkpoint-period", "20ms", "--", "sh", "-c", PROGRAM), 0)
    return sweep_reader(ctx, call, step, "replay", "--all", "--once", "--verify", ctx.trace)


def sweep_prepare(ctx, call, step):
    ctx.expect_status(ctx.redrive("record", "--virtual", "-o", ctx.trace, "--checkpoint-period", "20ms", "--", "sh", "-c", PROGRAM), 0)
    return sweep_reader(ctx, call, step, "prepare", ctx.trace)


def register(name, sweep, call):
    @test(f"sweeps/some_{name}_{call}", timeout_s=300)
    def some(ctx):
        if sweep(ctx, call, CALLS[call][1]) == 1:
            raise Failure(f"{name} makes no such call: MADE_BY is wrong")

    @test(f"sweeps/all_{name}_{call}", timeout_s=ALL_TIMEOUT_S, slow=True)
    def every(ctx):
        sweep(ctx, call, 1)


for name, sweep in (("record", sweep_record), ("replay", sweep_replay), ("prepare", sweep_prepare)):
    for call in MADE_BY[name]:
        register(name, sweep, call)
