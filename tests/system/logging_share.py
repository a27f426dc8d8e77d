"""Group logging: how many of the messages each policy keeps at C = 2T, and what follows from it.

critical-path keeps at most 5 % where all units compute. A unit that waits for the others, as the master does, uses little CPU time, so its interval has
nearly T before it at each receive, and the policy must count all of that: once a path is longer than C - T, each of its messages is kept.

The default policy decides when an interval has ended, and knows what it took. It keeps few bytes, not few messages: where replays become too long, it takes
checkpoints earlier, unless what would be kept instead is less than the images of these. So the results that the master gets are large for it."""
import re

import mpi
from harness import Failure, test
from programs import program
from redriving import record, redrive_all, take_away_surroundings

PERIOD_S, CRITICAL_PATH_S = 0.5, 1.0
WORKLOADS = {"jacobi": (500, 3000, "nocheck"), "master_worker": (1500, 2000)}
LARGE = {"jacobi": (), "master_worker": (65536,)}
MOST_BY_CRITICAL_PATH = {"jacobi": 5, "master_worker": 25}  # percent


def share_of(ctx, workload, policy, *more):
    """Records; returns logged messages in percent."""
    options = ("--policy", policy, "--critical-path", f"{CRITICAL_PATH_S:g}s", "--checkpoint-period", f"{PERIOD_S:g}s")
    record(ctx, mpi.job(ctx.options, workload, *WORKLOADS[workload], *more, record_options=options))
    take_away_surroundings(ctx)
    stats = ctx.json("stats", ctx.trace)
    if stats["policy"].split()[0] != policy or stats["messages"] < 1000:
        raise Failure(f"policy {stats['policy']}, {stats['messages']} messages")
    if not CRITICAL_PATH_S * 0.99 <= stats["critical_path_s"] <= CRITICAL_PATH_S * 1.01:
        raise Failure(f"C is {stats['critical_path_s']}")
    return 100.0 * stats["logged_messages"] / stats["messages"]


def expect_share(ctx, workload, policy, least, most, *more):
    share = share_of(ctx, workload, policy, *more)
    if not least <= share <= most:
        raise Failure(f"{workload}: {policy} keeps {share:.2f} % of the messages, {least:g} to {most:g} % expected")


@test("logging/readers_of_one_pipe")
def readers_of_one_pipe(ctx):
    """What several processes read at the same time, of the same writes to one pipe, are messages and not input."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", program(ctx.options, "pipe_readers")), 0)
    reads = re.findall(r"^ *[2-5] .* read\(\d+, 0x[0-9a-f]+, 3\) = [1-3]\b.*$", ctx.redrive("dump", ctx.trace).stdout, re.MULTILINE)
    strangers = [line for line in reads if "<- channel" not in line]
    if len(reads) < 40 or strangers:
        raise Failure(f"{len(strangers)} of {len(reads)} reads have no sender: {strangers[:3]}")
    redrive_all(ctx)


def register():
    for workload in WORKLOADS:
        @test(f"logging/{workload}_critical_path", timeout_s=600, slow=True)
        def critical_path(ctx, workload=workload):
            expect_share(ctx, workload, "critical-path", 0, MOST_BY_CRITICAL_PATH[workload])
            redrive_all(ctx)

        @test(f"logging/{workload}_deadline", timeout_s=600, slow=True, alone=True)
        def deadline(ctx, workload=workload):
            """The default policy. It keeps more where replays take longer, as they do while other tests run."""
            expect_share(ctx, workload, "deadline", 0, 5, *LARGE[workload])
            redrive_all(ctx)

        @test(f"logging/{workload}_none", timeout_s=600, slow=True)
        def none(ctx, workload=workload):
            expect_share(ctx, workload, "none", 0, 0)

        @test(f"logging/{workload}_all", timeout_s=600, slow=True)
        def everything(ctx, workload=workload):
            expect_share(ctx, workload, "all", 100, 100)
            report = redrive_all(ctx)
            larger = [f"{i['unit']}:{i['interval']}" for i in report["intervals"] if i["replay_set_size"] != 1]
            if larger:
                raise Failure(f"with all messages logged, replay sets of more than one interval: {larger[:8]}")


register()
