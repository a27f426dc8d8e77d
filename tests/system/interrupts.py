"""Group interrupts: a signal sent to the recorder has the same effect on the program as natively, however often and by whomever it is sent."""
import contextlib
import glob
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time

from harness import TESTS, Failure, compiled, test
from redriving import check_trace, redrive_all, take_away_surroundings

SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM, signal.SIGCONT,
           signal.SIGWINCH, signal.SIGRTMIN + 3]
TERMINAL = TESTS / "system" / "terminal.py"


def started(ctx, how, *words):
    """A program that counts signals, natively or recorded; returns when it is ready."""
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
    """The program gets the signal once, from the sender, and not again from the recorder."""
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
    """A program that handles no signals dies of the first one."""
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
        process = started(ctx, "recorded", "unhandled")
        os.kill(process.pid, number)
        ctx.expect_status(process.finish(ctx.timeout_s), 128 + number)
        check_trace(ctx)
        shutil.rmtree(ctx.trace)


@test("interrupts/inherited")
def inherited(ctx):
    """Signals that are ignored or blocked when the recorder starts are ignored or blocked in the program."""
    program = compiled(ctx.options, TESTS / "workloads" / "count_signals.c", directory="workloads")
    told = [ctx.expect_status(ctx.run("env", "--ignore-signal=HUP,USR1,TERM,CHLD", *words, program, "dispositions", cwd=ctx.work), 0).stdout
            for words in ((), (ctx.options.redrive, "record", "-o", ctx.trace, "--"))]
    if told[0] != told[1] or "ignored: 1 10 15 17" not in told[0]:
        raise Failure(f"natively: {told[0]}recorded: {told[1]}")


@test("interrupts/terminal")
def terminal(ctx):
    """Ctrl-C twice, Ctrl-\\ once: the program gets each once, and continues."""
    told = {}
    program = compiled(ctx.options, TESTS / "workloads" / "count_signals.c", directory="workloads")
    for how, words in (("natively", ()), ("recorded", (ctx.options.redrive, "record", "-o", ctx.trace, "--"))):
        steps = ("ready", "^C", "2: 1", "^C", "2: 2", "^\\", "3: 1", "^C", "2: 3", "\n")
        told[how] = ctx.expect_status(ctx.run(sys.executable, TERMINAL, *steps, "--", *words, program, "until-input", cwd=ctx.work), 3).stdout
    counted = [re.findall(r"\d+: \d+", told[how]) for how in ("natively", "recorded")]  # keys are echoed anywhere
    if counted[0] != counted[1]:
        raise Failure(f"natively:\n{told['natively']}recorded:\n{told['recorded']}")
    still_good(ctx)


def state_of(ctx):
    return ctx.json("ls")["traces"][0]["state"]


@test("interrupts/left_behind")
def left_behind(ctx):
    """The exit status and the end of the output are there when the program has ended, whatever it left behind. What it left behind is recorded until
    it ends, which a signal to the recorder causes."""
    script = 'sh -c "trap \\"exit 0\\" TERM; exec > started 2>&1; while :; do sleep 0.05; done" & until [ -e started ]; do :; done; echo ok; exit 3'
    natively = ctx.expect_status(ctx.run("sh", "-c", script + "; kill $!", cwd=ctx.fresh_work()), 3)
    # As `redrive record ... | cat`: the pipe ends.
    reading, writing = os.pipe()
    process = subprocess.Popen([ctx.options.redrive, "record", "-o", ctx.trace, "--", "sh", "-c", script], cwd=ctx.fresh_work(), env=ctx.env,
                               stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True, start_new_session=True)
    os.close(writing)
    with os.fdopen(reading) as output:
        if (told := output.read()) != natively.stdout:
            raise Failure(f"recorded, it says {told}")
    complaints = process.stderr.read()
    if (status := process.wait(ctx.timeout_s)) != 3 or complaints.count("\n") != 1 or "left behind" not in complaints:
        raise Failure(f"status {status}, and it says {complaints}")
    if (state := state_of(ctx)) != "recording":
        raise Failure(f"while a process lives on the trace is {state}")
    outcome = ctx.expect_status(ctx.redrive("replay", ctx.trace, "1:0"), 0)
    ctx.expect("still being recorded" in outcome.stderr, outcome, "does not say that the recording goes on")
    os.kill(int(re.search(r"`kill (\d+)`", complaints)[1]), signal.SIGTERM)
    ctx.wait_until("the recording ends", lambda: state_of(ctx) == "finished")
    if (shown := ctx.json("ls")["traces"][0]["exit_status"]) != 3:
        raise Failure(f"its exit status is listed as {shown}")
    still_good(ctx)


@test("interrupts/left_behind_for_a_moment")
def left_behind_for_a_moment(ctx):
    """Processes that end right after the program are waited for; with --wait, all are."""
    for options, seconds in ((), 0.01), (("--wait",), 0.5):
        outcome = ctx.redrive("record", "-o", ctx.trace, *options, "--", "sh", "-c", f"sleep {seconds} & exit 3", cwd=ctx.fresh_work())
        ctx.expect_status(outcome, 3)
        ctx.expect(not outcome.stderr, outcome, "it says something")
        if (state := state_of(ctx)) != "finished":
            raise Failure(f"the trace is {state}")
        still_good(ctx)
        shutil.rmtree(ctx.trace)


def holders_of(link):
    """Descriptors of all processes that are this pipe, and the commands that these run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == link:
                found.append((path, pathlib.Path(path).parents[1].joinpath("cmdline").read_text().replace("\0", " ")))
    return found


@test("interrupts/handed_descriptors")
def handed_descriptors(ctx):
    """A pipe that the program has closed ends, although the program continues: redrive holds none of the descriptors that it was given."""
    for which in ("standard output", "another"):
        reading, writing = os.pipe()
        closed = 1 if which == "standard output" else writing
        script = f"import os, time\nos.close({closed})\nwhile not os.path.exists('end'): time.sleep(0.02)"
        process = subprocess.Popen([ctx.options.redrive, "record", "-o", ctx.trace, "--", sys.executable, "-c", script], cwd=ctx.fresh_work(), env=ctx.env,
                                   stdin=subprocess.DEVNULL, stdout=writing if closed == 1 else None, pass_fds=() if closed == 1 else (writing,))
        os.close(writing)
        with os.fdopen(reading) as output:
            ended = select.select([output], [], [], ctx.timeout_s)[0]
            holders = [] if ended else holders_of(os.readlink(f"/proc/self/fd/{output.fileno()}"))
        (ctx.work / "end").touch()
        status = process.wait(ctx.timeout_s)
        if not ended or status != 0:
            raise Failure(f"{which}: the pipe {'ends' if ended else f'does not end, held by {holders}'}, status {status}")
        shutil.rmtree(ctx.trace)


def stops_of(ctx, words, signals):
    """What a shell sees of a job that gets these signals: its stops and its end."""
    process = subprocess.Popen([*words, sys.executable, "-c", STOPPING], cwd=ctx.fresh_work(), env=ctx.env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, process_group=0)
    ready = process.stdout.readline()
    seen = []
    for number in signals:
        (os.killpg if number != signal.SIGUSR1 else os.kill)(process.pid, number)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        seen.append(f"stopped by {os.WSTOPSIG(status)}" if os.WIFSTOPPED(status) else f"ended {status}")
        os.killpg(process.pid, signal.SIGCONT)
    told = ready + process.stdout.read()
    process.stdout.close()
    seen.append(f"ended {os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])}")
    process.returncode = 0
    return told, seen


# Tidies up before it stops, as editors do; is stopped for good by SIGSTOP; stops itself at SIGUSR1. Three stops, and it ends.
STOPPING = r"""
import os, signal, sys, time
stops = 0
def stop(number, _):
    global stops
    time.sleep(0.1)
    os.write(1, b"tidy\n")
    stops += 1
    os.kill(os.getpid(), signal.SIGSTOP if number == signal.SIGTSTP else signal.SIGTTIN)
signal.signal(signal.SIGTSTP, stop)
signal.signal(signal.SIGUSR1, stop)
os.write(1, b"ready\n")
while stops < 3: time.sleep(0.01)
sys.exit(4)
"""


@test("interrupts/job_control")
def job_control(ctx):
    """A job stops when its program does, by the same signal and not before, and continues with it."""
    signals = (signal.SIGTSTP, signal.SIGSTOP, signal.SIGUSR1, signal.SIGTSTP)
    natively = stops_of(ctx, (), signals)
    recorded = stops_of(ctx, (ctx.options.redrive, "record", "-o", ctx.trace, "--"), signals)
    if natively != recorded or "stopped by 21" not in natively[1]:
        raise Failure(f"natively: {natively}\nrecorded: {recorded}")
    still_good(ctx)
