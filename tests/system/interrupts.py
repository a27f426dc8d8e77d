"""Group interrupts: a signal sent to the recorder does to the program what it does natively, however often, whoever sends it."""
import os
import re
import shutil
import signal
import sys

from harness import TESTS, Failure, compiled, test
from redriving import check_trace, redrive_all, take_away_surroundings

SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM, signal.SIGCONT,
           signal.SIGWINCH, signal.SIGRTMIN + 3]
TERMINAL = TESTS / "system" / "terminal.py"


def started(ctx, how, *words):
    """A program that counts signals, natively or recorded, once it is ready."""
    ctx.fresh_work()
    shutil.copy2(compiled(ctx.options, TESTS / "workloads" / "count_signals.c", directory="workloads"), ctx.work)
    command = ("./count_signals", *map(str, words))
    if how == "recorded":
        command = (ctx.options.redrive, "record", "-o", ctx.trace, "--", *command)
    process = ctx.start(*command, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    return process


def still_good(ctx):
    take_away_surroundings(ctx)
    check_trace(ctx)
    redrive_all(ctx)


@test("interrupts/to_the_recorder")
def to_the_recorder(ctx):
    check_counts(ctx, os.kill)


@test("interrupts/to_the_group")
def to_the_group(ctx):
    """The program gets it once, from the sender, and not once more from the recorder."""
    check_counts(ctx, os.killpg)


def check_counts(ctx, send):
    told = {}
    for how in ("natively", "recorded"):
        process = started(ctx, how)
        for number in SIGNALS:
            for count in (1, 2, 3):
                send(process.pid, number)
                process.wait_for(f"{int(number)}: {count}\n", ctx.timeout_s)
        (ctx.work / "end").touch()
        told[how] = ctx.expect_status(process.finish(ctx.timeout_s), 3).stdout
    if told["natively"] != told["recorded"]:
        raise Failure(f"natively:\n{told['natively']}recorded:\n{told['recorded']}")
    if ctx.json("ls")["traces"][0]["state"] != "finished":
        raise Failure("a program that outlived its signals is not listed as finished")
    still_good(ctx)


@test("interrupts/deadly")
def deadly(ctx):
    """A program that handles no signal dies of the first."""
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
        process = started(ctx, "recorded", "unhandled")
        os.kill(process.pid, number)
        ctx.expect_status(process.finish(ctx.timeout_s), 128 + number)
        check_trace(ctx)
        shutil.rmtree(ctx.trace)


@test("interrupts/inherited")
def inherited(ctx):
    """What is ignored or blocked when the recorder starts, is so in the program."""
    program = compiled(ctx.options, TESTS / "workloads" / "count_signals.c", directory="workloads")
    script = "trap '' HUP USR1 TERM; exec \"$@\""
    told = [ctx.expect_status(ctx.run("sh", "-c", script, "sh", *words, program, "dispositions", cwd=ctx.work), 0).stdout
            for words in ((), (ctx.options.redrive, "record", "-o", ctx.trace, "--"))]
    if told[0] != told[1] or "ignored: 1 10 15" not in told[0]:
        raise Failure(f"natively: {told[0]}recorded: {told[1]}")


@test("interrupts/terminal")
def terminal(ctx):
    """Ctrl-C twice, Ctrl-\\ once: the program gets each once, and goes on."""
    told = {}
    program = compiled(ctx.options, TESTS / "workloads" / "count_signals.c", directory="workloads")
    for how, words in (("natively", ()), ("recorded", (ctx.options.redrive, "record", "-o", ctx.trace, "--"))):
        steps = ("ready", "^C", "2: 1", "^C", "2: 2", "^\\", "3: 1", "^C", "2: 3", "\n")
        told[how] = ctx.expect_status(ctx.run(sys.executable, TERMINAL, *steps, "--", *words, program, "until-input", cwd=ctx.work), 3).stdout
    counted = [re.findall(r"\d+: \d+", told[how]) for how in ("natively", "recorded")]  # keys are echoed anywhere
    if counted[0] != counted[1]:
        raise Failure(f"natively:\n{told['natively']}recorded:\n{told['recorded']}")
    still_good(ctx)
