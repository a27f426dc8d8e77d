"""Group workloads: the programs of the papers' tables (tests/workloads/README.md). Each checks its own result; it is run natively, recorded
with --bound 2s, and every interval is re-driven and verified. The small sizes are for every day; the others take checkpoints in the middle."""
import mpi
from harness import Failure, test, workload
from redriving import (REDRIVEN, Job, check_report, check_trace, copy_into, cycle, images_by_unit, record, run_natively,
                       take_away_surroundings)

# Arguments, small and large.
MPI = {
    "cell": ((16, 100), (40, 1000)),
    "det": ((300, 1), (600, 20)),
    "exchange": ((64, 300), (64, 8000, 100)),
    "poisson": ((64, 1), (300, 8)),
    "router": ((131, 500), (131, 10000)),
}
SOCKETS = {
    "bt": ((21, 5), (7, 2000, 20000)),
    "bully": ((4, 3), (12, 20)),
    "cg": ((11,), (4, 500, 300)),
    "tester": ((4, 500), (8, 2000, 40)),
    "tn": ((10,), (1000, 60)),
}
SLOW = ("det", "poisson", "router")  # to re-drive them takes more than 10 s
MESSAGES = {"bt": 155, "cg": 1100, "tn": 900}  # as in DR-MCAPI's largest program of the kind


def mpi_job(ctx, name, arguments):
    return mpi.job(ctx.options, name, *arguments)


def socket_job(ctx, name, arguments):
    return Job([f"./{name}", *map(str, arguments)], prepare=copy_into(workload(ctx.options, name)))


def expect_messages(ctx, count):
    found = ctx.json("stats", ctx.trace)["messages"]
    if found != count:
        raise Failure(f"{found} messages, {count} expected")


def register():
    for make_job, programs in ((mpi_job, MPI), (socket_job, SOCKETS)):
        for name, (small, large) in programs.items():
            @test(f"workloads/{name}", timeout_s=300, slow=name in SLOW)
            def run(ctx, make_job=make_job, name=name, arguments=small):
                cycle(ctx, make_job(ctx, name, arguments))
                if name in MESSAGES:
                    expect_messages(ctx, MESSAGES[name])

            @test(f"workloads/{name}_large", timeout_s=1200, slow=True)
            def run_large(ctx, make_job=make_job, name=name, arguments=large):
                cycle(ctx, make_job(ctx, name, arguments))
                if name != "bully" and not any(images_by_unit(ctx).values()):  # its nodes hardly compute
                    raise Failure("no image checkpoint was taken")


register()


@test("workloads/sixteen_ranks", timeout_s=120, slow=True)
def sixteen_ranks(ctx):
    """Sixteen ranks on the one processor of a recording, most of which poll: each has its turn. With the youngest first, rank 0 and mpirun
    waited for minutes."""
    job = mpi.job(ctx.options, "jacobi", 64, 20, ranks=16)
    run_natively(ctx, job)
    record(ctx, job)
    take_away_surroundings(ctx)
    check_trace(ctx)
    calls = ctx.json("stats", ctx.trace)["stopped_calls"]
    if calls > 200_000:  # some 20,000; one rank alone made more than a million while the others waited
        raise Failure(f"{calls} calls stopped")
    for unit in ("jacobi.1", "jacobi.16"):
        check_report(ctx, ctx.json("replay", ctx.trace, f"{unit}:0", "--verify", cwd="/", statuses=REDRIVEN))
