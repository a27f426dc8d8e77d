"""Group unending: a replay ends with a reason where what it executes goes on for ever without coming to what was recorded."""
import mmap

from harness import Failure, test, workload
from redriving import REDRIVEN, Job, copy_into, record, take_away_surroundings


@test("unending/overwritten_place", slow=True)
def overwritten_place(ctx):
    """A place of preemption is looked for in code that the program overwrites, and with it what was to stop the thread there."""
    job = Job(["./rewrites_code", "500"], prepare=copy_into(workload(ctx.options, "rewrites_code")),
              record_options=("--bound", "2s", "--checkpoint-period", "100ms"))
    record(ctx, job)
    take_away_surroundings(ctx)
    for how in ((), ("--once",)):
        report = ctx.json("replay", ctx.trace, "--all", "--verify", *how, statuses=REDRIVEN)
        unverified = [i["unverified"] for i in report["intervals"] if i["unverified"] and "not found again" in i["unverified"]]
        if report["divergences"] or not unverified or len(unverified) != report["not_verified"]:
            raise Failure(f"{report['divergences']} divergences, {report['not_verified']} not verified, because of {unverified}")
    table = ctx.redrive("replay", ctx.trace, "--all", "--verify", "--once")
    ctx.expect(all(f"ok, not verified: {why}" in table.stdout for why in unverified), table, "the table lacks the reasons")


@test("unending/flag_from_outside", timeout_s=300)
def flag_from_outside(ctx):
    """What others change through a mapping is not in the trace: the replay never sees it."""
    ctx.fresh_work()
    flag = ctx.work / "flag"
    flag.write_bytes(bytes(4096))
    process = ctx.start_redrive("record", "-o", ctx.trace, "--", workload(ctx.options, "awaits_flag"), flag)
    process.wait_for("ready", ctx.timeout_s)
    with flag.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        memory[0] = 1
    ctx.expect_status(process.finish(ctx.timeout_s), 0)
    outcome = ctx.expect_status(ctx.redrive("replay", ctx.trace, "--all"), 3)
    ctx.expect("neither a system call nor a fault within" in outcome.stderr, outcome, "the divergence does not say that it never ends")
