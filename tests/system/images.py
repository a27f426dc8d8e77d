"""Group images: what `redrive checkpoint --format criu` exports. crit reads it, and CRIU restores it to processes that come to the end that was
recorded. Where CRIU is not to be had, or is not allowed, these tests see that the command says so."""
import itertools
import os
import re
import shutil
import subprocess

import live
from criu_tools import NO_GROUPS, NOT_ROOT, criu_path
from harness import TESTS, Skip, compiled, needs, test
from live import COUNTING, MASTER, THREADS, calls, receipts, record, record_signals


class Images:
    """An export, and what can be done with it."""

    def __init__(self, ctx, *words):
        self.ctx, self.directory = ctx, ctx.directory / "images"
        shutil.rmtree(self.directory, ignore_errors=True)
        path, why = criu_path(ctx)
        self.env = {"PATH": path}
        self.outcome = ctx.redrive("checkpoint", "-o", self.directory, *words, cwd="/", env=self.env)
        if why:
            needed = "need root" if why == NOT_ROOT else "control group" if why == NO_GROUPS else "criu"
            refused = self.outcome.status == 1 and needed in self.outcome.stderr.splitlines()[-1]
            ctx.expect(refused and not self.directory.exists(), self.outcome, "is not refused")
            raise Skip(f"refused as it should be: {why}")
        ctx.expect_status(self.outcome, 0)

    def crit(self, *words):
        return self.ctx.expect_status(self.ctx.run("crit", *words, cwd="/", env=self.env), 0).stdout

    def start(self):
        return self.ctx.start(self.directory / "restore", "--pidfile", self.directory / "pid", cwd="/", env=self.env)

    def finish(self, process):
        try:
            return self.ctx.expect_status(process.finish(self.ctx.timeout_s), 0)
        finally:  # processes that have not ended are in a session of their own
            if (self.directory / "pid").exists():
                subprocess.run(("kill", "-KILL", (self.directory / "pid").read_text().strip()), stderr=subprocess.DEVNULL, check=False)
                (self.directory / "pid").unlink()

    def restore(self):
        return self.finish(self.start())

    def expect_end(self, recorded, what, times=1):
        for _ in range(times):
            live.expect_end(self.ctx, self.restore(), recorded, what)


def export(ctx, *words):
    return Images(ctx, "--format", "criu", ctx.trace, *words)


def count(ctx):
    return record(ctx, "/usr/bin/python3", "count.py", status=7, count_py=COUNTING, in_bin=bytes(i * 7 % 251 for i in range(8000)))


@test("images/files", timeout_s=240)
def files(ctx):
    """A process with a file that it reads: crit shows the images, and they can be restored several times."""
    recorded = count(ctx)
    reads = calls(ctx, "1", r"^read\(3, .*, 16\)")
    for event in (reads[3], reads[150] + 1):
        images = export(ctx, f"1@{event}")
        ctx.expect("img_version" in images.crit("show", images.directory / "inventory.img"), images.outcome, "crit shows no inventory")
        memory = images.crit("x", images.directory, "mems")
        ctx.expect("bin/python3" in memory and "[stack" in memory, images.outcome, f"crit's memory: {memory[:200]}")
        ctx.expect(str(ctx.work / "in.bin") in images.crit("x", images.directory, "fds"), images.outcome, "crit does not show the file")
        images.expect_end(recorded, f"event {event}", times=2)
    whole = ctx.json("checkpoint", "-o", ctx.directory / "json", "--format", "criu", ctx.trace, "1:0", env=images.env)
    ctx.expect([p["event"] for p in whole["processes"]] == [0] and whole["restore"].endswith("/restore"), images.outcome, f"JSON: {whole}")


@test("images/output")
def output(ctx):
    """A file that the program writes stays as it is; the processes write to a copy, which becomes the same again, each time."""
    record(ctx, "sh", "run.sh", run_sh="for i in $(seq 200); do echo line $i; done > out")
    whole = (ctx.work / "out").read_bytes()
    images = export(ctx, f"1@{calls(ctx, '1', r'^write.1, ')[100]}")
    copy = images.directory / "files" / (ctx.work / "out").relative_to("/")
    ctx.expect(f"the processes write to {copy}" in images.outcome.stderr, images.outcome, "does not say where the processes write to")
    for _ in range(2):
        outcome = images.restore()
        ctx.expect(copy.read_bytes() == whole == (ctx.work / "out").read_bytes(), outcome, "the files are others")


@test("images/signals")
def signals(ctx):
    """Handlers, ignored and blocked signals, directory and umask."""
    recorded = record_signals(ctx)
    export(ctx, f"1@{calls(ctx, '1', r'^getppid.')[100]}").expect_end(recorded, "signals")


@test("images/threads")
def threads(ctx):
    """A program with threads, some in calls that are entered again."""
    recorded = record(ctx, "/usr/bin/python3", "t.py", status=3, t_py=THREADS)
    sleeps = calls(ctx, "1", r"^clock_nanosleep\(")
    export(ctx, f"1@{sleeps[len(sleeps) // 2]}").expect_end(recorded, "threads")


@test("images/tree", timeout_s=240)
def tree(ctx):
    """A master with its workers, over pipes, socket pairs and datagrams: all processes in one export. Answers that the master has yet to take may come in
    any order."""
    possible = {live.master_prints(order) for order in itertools.permutations((1, 2, 3))}
    for channel in ("pair", "pipe", "datagram"):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorded = record(ctx, "/usr/bin/python3", "master.py", channel, master_py=MASTER)
        ctx.expect(recorded.stdout in possible, recorded, f"{channel}: prints something else")
        received = receipts(ctx, "1")
        event = received[len(received) // 2][0]
        for words in (("--break", f"1@{event}"), ("--live", f"1@{event}")):
            images = export(ctx, *words)
            told = re.findall(r"^ *(\d+)  python3", images.outcome.stdout, re.MULTILINE)
            ctx.expect(told[0] == "1" and len(told) > 1, images.outcome, f"{channel}: does not list the units")
            restored = images.restore()
            ctx.expect(restored.stdout in possible, restored, f"{channel}: prints something else")


@test("images/pipeline")
def pipeline(ctx):
    """A shell, its children, and what is on its way in pipes."""
    recorded = record(ctx, "sh", "-c", "seq 200000 | cat | tail -n 3")
    events = calls(ctx, "cat", r"^write\(1, ")
    export(ctx, "--break", f"cat@{events[len(events) // 2]}").expect_end(recorded, "cat")


@test("images/one_unit")
def one_unit(ctx):
    """One unit alone: what it has connected to others is closed, and it gets what was on its way."""
    record(ctx, "sh", "-c", "seq 200000 | cat | tail -n 3")
    events = calls(ctx, "tail", r"^read\(0, ")
    images = export(ctx, f"tail@{events[len(events) // 2]}")
    ctx.expect("1 connection to processes that are not of this unit: closed" in images.outcome.stderr, images.outcome, "says nothing of the pipe")
    ctx.expect(len(re.findall(r"\btail\b", images.outcome.stdout)) == 1, images.outcome, "does not list tail only")
    last = [int(line) for line in images.restore().stdout.split()]
    ctx.expect(len(last) == 3 and last[0] + 1 == last[1] and 1 < last[1] < 199999, images.outcome, f"the last lines: {last}")


@test("images/redis")
def redis(ctx):
    """A server whose clients come by a local socket, from the middle of their requests, has the data that it had there."""
    needs("redis-server", "redis-cli")
    ctx.fresh_work()
    address = ctx.work / "redis.sock"

    def ask(*words):
        return subprocess.run(("redis-cli", "-s", address, *words), capture_output=True, text=True, timeout=ctx.timeout_s, check=False).stdout.strip()

    server = ctx.start_redrive("record", "-o", ctx.trace, "--", "redis-server", "--port", "0", "--unixsocket", address, "--save", "", "--appendonly", "no", cwd=ctx.work)
    ctx.wait_until("the server's answer", lambda: ask("ping") == "PONG")
    for i in range(20):
        ask("set", f"key{i}", str(i))
    ask("shutdown", "nosave")
    ctx.expect_status(server.finish(ctx.timeout_s), 0)
    writes = calls(ctx, "1", r"^write\(\d+, .* = 5( |$)")  # +OK
    images = export(ctx, f"1@{writes[10]}")
    again = images.start()
    ctx.wait_until("the restored server's answer", lambda: ask("ping") == "PONG")
    found = [ask("get", "key9"), ask("get", "key19"), ask("incr", "new")]
    ask("shutdown", "nosave")
    outcome = images.finish(again)
    ctx.expect(found == ["9", "", "1"], outcome, f"the server's data: {found}")


@test("images/changed_program")
def changed_program(ctx):
    """A program that is not what it was, and a trace that is gone: all that the images need is beside them."""
    ctx.fresh_work()
    program = ctx.work / "program"
    shutil.copy(compiled(ctx.options, TESTS / "programs" / "socketpairs.c"), program)
    recorded = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", program, cwd=ctx.work), 0)
    with program.open("ab") as file:
        file.write(b"more")
    images = export(ctx, "--break", f"1@{calls(ctx, '1', r'^socketpair.')[1]}")
    shutil.rmtree(ctx.trace)
    program.unlink()
    images.expect_end(recorded, "a program that has changed")


@test("images/refused")
def refused(ctx):
    """What cannot be exported is said in one line, and leaves no directory."""
    count(ctx)
    event = calls(ctx, "1", r"^read\(3, .*, 16\)")[150]

    def expect_refusal(words, *command, **how):
        outcome = ctx.redrive("checkpoint", "-o", ctx.directory / "none", *command, cwd="/", **how)
        one_line = outcome.status == 1 and len(outcome.stderr.splitlines()) == 1
        ctx.expect(one_line and words in outcome.stderr and not (ctx.directory / "none").exists(), outcome, f"'{words}' is not said")

    images = ("--format", "criu", ctx.trace, f"1@{event}")
    (ctx.directory / "none").mkdir()
    ctx.expect_status(ctx.redrive("checkpoint", "-o", ctx.directory / "none", "--file-pages", *images, cwd="/"), 2)
    (ctx.directory / "none").rmdir()
    for wrong in (("--live", "--format", "core", ctx.trace, f"1@{event}"), ("--live",)):
        ctx.expect_status(ctx.redrive("checkpoint", "-o", ctx.directory / "none", *wrong, cwd="/"), 1, 2)
    if os.geteuid() != 0:
        return expect_refusal("need root", *images)
    empty = ctx.directory / "bin"
    empty.mkdir()
    for place, words in (("nobody@1", "nobody"), ("1:77", "has no interval")):
        expect_refusal(words, "--format", "criu", ctx.trace, place)
    path, why = criu_path(ctx)
    if not why:
        expect_refusal("has no event", "--format", "criu", ctx.trace, "1@99999999", env={"PATH": path})
    expect_refusal("there is no criu in PATH", *images, env={"PATH": str(empty)})
    old = empty / "criu"
    old.write_text("""#!/bin/sh
[ "$1" = check ] || { echo 'Version: 3.17.1'; exit 0; }
echo 'Error (criu/util.c:642): exited, status=1' >&2
echo 'Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds' >&2
exit 1
""")
    old.chmod(0o755)
    expect_refusal("criu 3.17.1 does not work here ('vdso: Unexpected rt vDSO area bounds'): install 4.1 or newer", *images,
                   env={"PATH": f"{empty}:{path}"})
    return None


@test("images/tcp")
def tcp(ctx):
    """What this CRIU cannot dump on this kernel: the processes end, and nothing is left."""
    recorded = record(ctx, "/usr/bin/python3", "l.py", l_py="""
import os, socket
listener = socket.create_server(('127.0.0.1', 0))
for i in range(50): os.getppid()
print(listener.getsockname()[1] > 0, flush=True)
""")
    place = f"1@{calls(ctx, '1', r'^getppid.')[20]}"
    path, why = criu_path(ctx)
    if why:
        raise Skip(why)
    directory = ctx.directory / "images"
    outcome = ctx.redrive("checkpoint", "-o", directory, "--format", "criu", ctx.trace, place, cwd="/", env={"PATH": path})
    if outcome.status == 0:
        return export(ctx, place).expect_end(recorded, "a socket that listens")
    said = "cannot dump the processes: sockets: Can't get 1:16 opt" in outcome.stderr and "no TCP or UDP socket" in outcome.stderr
    ctx.expect(outcome.status == 1 and said and not directory.exists(), outcome, "does not say what criu cannot dump")
    return None
