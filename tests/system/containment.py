"""Group containment: what a replay executes makes no system calls of its own choice, and does no harm to the replayer. A recorded program makes no
calls that the recorder does not see, and cannot change what other processes run or what the recorder has mapped."""
import subprocess

from criu_tools import NO_GROUPS, criu_path
from harness import Failure, Skip, test, workload
from redriving import Job, record, run_natively

# Of tests/workloads/jumps_out.c. What writes where a replay lets it is found out, or harms only itself.
STOPPED = ["unlink_by_stub", "open_by_stub", "kill_by_stub", "unlink_by_tier", "open_by_tier", "sleep_by_tier", "replace_stub",
           "replace_stub_by_tier", "unmap_tier", "write_tier"]
LET_BE = ["write_slot", "write_list", "write_messages"]


def expect_attacks(ctx, program, known):
    outcome = ctx.run(workload(ctx.options, program))
    if sorted(outcome.stdout.split()) != sorted(known):
        raise Failure(f"the program's attacks are others: {outcome.stdout}")


@test("containment/attacks_are_known")
def attacks_are_known(ctx):
    expect_attacks(ctx, "jumps_out", STOPPED + LET_BE)


def register(attack, statuses):
    @test(f"containment/{attack}")
    def attacked(ctx):
        """A program that looks for what only a replay has, and attacks it there."""
        expect_contained(ctx)

    @test(f"containment/restored_{attack}")
    def attacked_where_criu_restores(ctx):
        """The same, in processes that CRIU has restored."""
        path, why = criu_path(ctx)
        if why and why != NO_GROUPS:
            raise Skip(why)
        expect_contained(ctx, "--restore-engine", "criu", env={"PATH": path})

    def expect_contained(ctx, *engine, env=None):
        victim = ctx.directory / "victim"
        victim.write_text("kept")
        job = Job([workload(ctx.options, "jumps_out"), attack, victim])
        run_natively(ctx, job)
        record(ctx, job)
        bystander = subprocess.Popen(["sleep", "infinity"])
        try:
            for tier in ("in-process", "stops"):
                replays(ctx, tier, victim, bystander, *engine, env=env)
        finally:
            bystander.kill()
            bystander.wait()

    def replays(ctx, tier, victim, bystander, *engine, env):
        for options in (["--all"], ["--all", "--once"]):
            outcome = ctx.redrive("replay", "--interception", tier, *engine, ctx.trace, *options, timeout_s=60, env=env)
            if not victim.exists() or victim.read_text() != "kept":
                raise Failure(f"{tier}: the replay has changed a file")
            if bystander.poll() is not None:
                raise Failure(f"{tier}: the replay has ended another process")
            ctx.expect_status(outcome, *statuses)


for name in STOPPED:
    register(name, (3,))
for name in LET_BE:
    register(name, (0, 1, 3, 4))


# Of tests/workloads/jumps_in.c.
KILLED = ["fork_by_tier", "fork_by_injection", "execute_by_tier", "open_by_injection", "trace_by_tier", "grow_slot"]
REFUSED = ["write_code", "map_code", "cut_slot"]


@test("containment/attacks_while_recorded_are_known")
def attacks_while_recorded_are_known(ctx):
    expect_attacks(ctx, "jumps_in", KILLED + REFUSED)


def register_while_recorded(attack):
    @test(f"containment/recorded_{attack}")
    def attacked(ctx):
        """A program that looks for what only a recording has, and attacks it there, beside one that it could harm."""
        victim = ctx.directory / "victim"
        victim.write_text("kept")
        program = [workload(ctx.options, "jumps_in"), attack, victim]
        ctx.expect(ctx.run(*program).stdout == "nothing there\n", ctx.run(*program), "finds the tier natively")
        script = '"$@"; echo "status $?"; cat "$3"'
        outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", script, "sh", *program), 0)
        if victim.read_text() != "kept" or not outcome.stdout.endswith("kept"):
            raise ctx.wrong(outcome, "a file was changed, or the process that is beside it")
        if attack in KILLED:
            ctx.expect("status 137\n" in outcome.stdout, outcome, "the attacker was not killed")
            ctx.expect("with redrive's own code, and was killed\n" in outcome.stderr, outcome, "nobody says why it was killed")
        else:
            ctx.expect("refused\nstatus 0\n" in outcome.stdout, outcome, "the attack was not refused")
        # A call that the tier makes itself can be made there unseen, by who looks for it: a replay finds that it is missing.
        unseen = attack == "write_code"
        ctx.expect_status(ctx.redrive("replay", "--all", "--verify", ctx.trace), 3 if unseen else 0)


for name in KILLED + REFUSED:
    register_while_recorded(name)
