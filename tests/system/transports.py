"""Group mpi: ranks of Open MPI, started as users start them, are units of their own (record --transport sockets), or are joined where the
user has chosen shared memory. So are ranks of MPICH, but for those before 4.2, which are joined."""
import pathlib
import re
import subprocess

import mpi
from harness import Failure, Skip, test
from redriving import Job, cycle, record, redrive_all, run_natively, take_away_surroundings, units


def expect_own_units(ctx, program, ranks=mpi.RANKS):
    """Each rank is one, nobody was joined, and they have exchanged messages."""
    found = [u for u in units(ctx) if u["name"].rpartition(".")[0] == program]
    if len(found) != ranks or any(u["joined"] for u in units(ctx)):
        raise Failure(f"{len(found)} units of {program}, joined: {[u['joined'] for u in units(ctx)]}")
    if ctx.json("stats", ctx.trace)["messages"] < ranks:
        raise Failure("the ranks exchanged no messages")


def joined_ranks(ctx, program):
    return sum(len(u["joined"]) for u in units(ctx) if u["name"].rpartition(".")[0] == program)


def version_in(pattern, *command):
    """As two numbers."""
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(pattern + r"\s+(\d+)\.(\d+)", said).groups()))


PROGRAMS = {"jacobi": (64, 20), "window": (5,), "collectives": (3, 500), "mpi_threads": (3, 10)}


def register():
    for name, arguments in PROGRAMS.items():
        @test(f"mpi/{name}", timeout_s=300)
        def run(ctx, name=name, arguments=arguments):
            cycle(ctx, mpi.job(ctx.options, name, *arguments))
            # Open MPI 5 has windows of any kind in shared memory (redrive(1), TRANSPORTS).
            if name == "window" and version_in(r"\((?:Open MPI|OpenRTE)\)", "mpirun.openmpi", "--version") >= (5, 0):
                if joined_ranks(ctx, name) != mpi.RANKS - 1:
                    raise Failure("ranks that share memory were not joined")
            else:
                expect_own_units(ctx, name)


register()


@test("mpi/said")
def said(ctx):
    """What was set is said, once, of the runtimes that were used; as-is sets and says nothing."""
    for option, expected in (("sockets", 1), ("as-is", 0)):
        job = mpi.job(ctx.options, "ring", 3, 1, record_options=("--transport", option))
        outcome = record(ctx, job, trace=ctx.trace.with_name(option))
        lines = [line for line in outcome.stderr.splitlines() if "OMPI_MCA_btl=tcp,self" in line]
        ctx.expect(len(lines) == expected, outcome, f"{option}: {len(lines)} lines say what was set")
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace.with_name("true"), "true"), 0)
    ctx.expect("OMPI_MCA" not in outcome.stderr, outcome, "true uses none of these runtimes")


@test("mpi/chosen_by_command_line", timeout_s=300)
def chosen_by_command_line(ctx):
    """mpirun's own options win, whether redrive sees them or a script hides them from it."""
    chosen = ("--mca", "btl", "vader,self")
    command = mpi.command(ctx.options, "ring", 3, 1, mpirun=("mpirun.openmpi", "--oversubscribe", *chosen))
    hidden = ["sh", "-c", " ".join(command)]
    for name, words in (("seen", command), ("hidden", hidden)):
        ctx.trace = ctx.trace.with_name(name)
        outcome = record(ctx, Job(words, env=mpi.ENV))
        ctx.expect(joined_ranks(ctx, "ring") == mpi.RANKS - 1, outcome, f"{name}: ranks that share memory were not joined")
        ctx.expect(name == "hidden" or "OMPI_MCA_btl" not in outcome.stderr, outcome, "the option on the command line was not heeded")
        redrive_all(ctx)


@test("mpi/chosen_by_environment", timeout_s=300)
def chosen_by_environment(ctx):
    outcome = record(ctx, Job(mpi.command(ctx.options, "ring", 3, 1), env={**mpi.ENV, "OMPI_MCA_btl": "vader,self"}))
    ctx.expect(joined_ranks(ctx, "ring") == mpi.RANKS - 1, outcome, "ranks that share memory were not joined")
    ctx.expect("OMPI_MCA_btl" not in outcome.stderr, outcome, "what the user chose was set")


@test("mpi/one_trace_a_rank", timeout_s=300)
def one_trace_a_rank(ctx):
    """mpirun starts a recorder for each rank: all make traces of their own at once."""
    ctx.fresh_work()
    home = pathlib.Path(ctx.work, "traces")
    recorder = (str(ctx.options.redrive), "record", "--bound", "2s")
    words = ["mpirun.openmpi", "--oversubscribe", "-n", str(mpi.RANKS), *recorder, str(mpi.binary(ctx.options, "jacobi")), "64", "20"]
    outcome = ctx.expect_status(ctx.run(*words, cwd=ctx.work, env={**mpi.ENV, "REDRIVE_TRACE_DIR": str(home)}), 0)
    ctx.expect(outcome.stdout.splitlines()[-1].startswith("ok"), outcome, "recorded: wrong result")
    traces = [entry for entry in home.iterdir() if not entry.is_symlink()]
    if len(traces) != mpi.RANKS:
        raise Failure(f"{len(traces)} traces of {mpi.RANKS} ranks")
    for trace in traces:
        redrive_all(ctx, trace)


@test("mpi/mpich_in_turn", timeout_s=120)
def mpich_in_turn(ctx):
    """Ranks that wait for each other in shared memory, without calls, run in turn, and not only after they were preempted for milliseconds each time."""
    if version_in("MPICH Version:", "mpichversion") >= (4, 2):
        raise Skip("ranks of MPICH 4.2 and later do not share memory")
    record(ctx, mpi.mpich_job(ctx.options, "jacobi", 200, 200))
    turns = ctx.expect_status(ctx.redrive("dump", ctx.trace), 0).stdout.count(" times ---")
    if turns < 200:
        raise Failure(f"{turns} turns were given up in loops")
    take_away_surroundings(ctx)
    redrive_all(ctx)


@test("mpi/mpich", timeout_s=300)
def mpich(ctx):
    job = mpi.mpich_job(ctx.options, "ring", 3, 1, ranks=2)
    run_natively(ctx, job)
    outcome = record(ctx, job)
    if version_in("MPICH Version:", "mpichversion") >= (4, 2):
        expect_own_units(ctx, "ring", ranks=2)
        ctx.expect("UCX_TLS=tcp,self" in outcome.stderr, outcome, "does not say what was set")
    else:
        ctx.expect(joined_ranks(ctx, "ring") == 1, outcome, "ranks that share memory were not joined")
        ctx.expect("--transport" not in outcome.stderr, outcome, "nothing is set for MPICH before 4.2")
    take_away_surroundings(ctx)
    redrive_all(ctx)
