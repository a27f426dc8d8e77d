"""Group containment: what a replay executes makes no system calls of its own choice."""
from harness import Failure, test, workload
from redriving import Job, record

STUB_SYSCALL = 0x70000100  # kStubSyscallEnd (checkpoint/stub.h), and the instruction before it


@test("containment/jumps_out")
def jumps_out(ctx):
    """A program that jumps to the stub's system call instruction, which only a replay has, gets nothing done there."""
    ctx.fresh_work()
    victim = ctx.directory / "victim"
    victim.write_text("kept")
    record(ctx, Job([workload(ctx.options, "jumps_out"), victim, hex(STUB_SYSCALL)]))
    for tier in ("in-process", "stops"):
        outcome = ctx.redrive("replay", "--interception", tier, ctx.trace, "--all")
        if not victim.exists() or victim.read_text() != "kept":
            raise Failure(f"{tier}: the replay has changed a file")
        ctx.expect(outcome.status == 3 and f"at {STUB_SYSCALL:#x}" in outcome.stderr, outcome, f"{tier}: does not say what it did")
