"""Group containment: what a replay executes makes no system calls of its own choice, and does the replayer no harm."""
import subprocess

from harness import Failure, test, workload
from redriving import Job, record, run_natively

# Of tests/workloads/jumps_out.c. What writes where a replay lets it is found out, or harms only itself.
STOPPED = ["unlink_by_stub", "open_by_stub", "kill_by_stub", "unlink_by_tier", "open_by_tier", "sleep_by_tier", "replace_stub",
           "replace_stub_by_tier", "unmap_tier", "write_tier"]
LET_BE = ["write_slot", "write_list", "write_messages"]


@test("containment/attacks_are_known")
def attacks_are_known(ctx):
    outcome = ctx.run(workload(ctx.options, "jumps_out"))
    if sorted(outcome.stdout.split()) != sorted(STOPPED + LET_BE):
        raise Failure(f"the program's attacks are others: {outcome.stdout}")


def register(attack, statuses):
    @test(f"containment/{attack}")
    def attacked(ctx):
        """A program that looks for what only a replay has, and attacks it there."""
        victim = ctx.directory / "victim"
        victim.write_text("kept")
        job = Job([workload(ctx.options, "jumps_out"), attack, victim])
        run_natively(ctx, job)
        record(ctx, job)
        bystander = subprocess.Popen(["sleep", "600"])
        try:
            for tier in ("in-process", "stops"):
                replays(ctx, tier, victim, bystander)
        finally:
            bystander.kill()
            bystander.wait()

    def replays(ctx, tier, victim, bystander):
        for options in (["--all"], ["--all", "--once"]):
            outcome = ctx.redrive("replay", "--interception", tier, ctx.trace, *options, timeout_s=60)
            if not victim.exists() or victim.read_text() != "kept":
                raise Failure(f"{tier}: the replay has changed a file")
            if bystander.poll() is not None:
                raise Failure(f"{tier}: the replay has ended another process")
            ctx.expect_status(outcome, *statuses)


for name in STOPPED:
    register(name, (3,))
for name in LET_BE:
    register(name, (0, 1, 3, 4))
