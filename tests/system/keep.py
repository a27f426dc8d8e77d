"""Group keep: recordings that keep only their last part (--keep, --keep-size), and snapshots of it."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import sys
import time

from bad_input import needs_mounts
from harness import Failure, needs, test
from redriving import REDRIVEN, check_report, check_trace, free_port, redrive_all, units
from sessions import sessions

# Two processes that talk through a pipe, and a third that mostly sleeps, for so many seconds. The second says at the end whether all that was sent
# has come.
TALK = """
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    got = 0
    while piece := os.read(r, 4096):
        got += len(piece)
    print("got", got, flush=True)
    os._exit(0)
os.close(r)
if os.fork() == 0:
    os.close(w)
    for i in range(int(float(sys.argv[1]) * 2)):
        time.sleep(0.5)
    os._exit(0)
end, sent, i, keep = time.monotonic() + float(sys.argv[1]), 0, 0, []
while time.monotonic() < end:
    i += 1
    sent += os.write(w, b"%d " % i * 10)
    keep = keep[-500:] + [bytes(1000)]
    if i % 50 == 0:
        time.sleep(0.001)
os.close(w)
os.wait(), os.wait()
print("sent", sent)
"""


def talk(seconds):
    return ["python3", "-c", TALK, str(seconds)]


def volumes(trace):
    """Their numbers, while they may be removed."""
    below = pathlib.Path(trace) / "volumes"
    return sorted(int(path.name) for path in below.iterdir() if path.name.isdecimal()) if below.exists() else []


def size_of(trace):
    """In bytes, while files may be removed."""
    total = 0
    for directory, _, names in os.walk(trace):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                pass
    return total


def memory_of(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise Failure(f"process {process} has no memory")


def check_window(ctx, trace, wanted=("python3",)):
    """The trace is whole and each of its intervals replays, alone, as it was recorded, and within the bound."""
    ctx.expect_status(ctx.redrive("check", trace), 0)
    report = redrive_all(ctx, trace)
    if report["late"]:
        raise Failure(f"{report['late']} of {len(report['intervals'])} replays were late: {report['max_seconds']} s")
    names = {unit["name"].split(".")[0] for unit in units(ctx, trace)}
    if not any(name.startswith(each) for each in wanted for name in names):
        raise Failure(f"the units in the window are {names}")
    return report


@test("keep/bounded")
def bounded(ctx):
    """What is older than the window goes while the program runs, and what is left replays. The program does not notice."""
    ctx.fresh_work()
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--keep", "2s", "--bound", "2s", "--", *talk(9), cwd=ctx.work)
    seen, sizes = set(), []
    while not recording.has_ended():
        seen |= set(volumes(ctx.trace))
        sizes.append((time.monotonic(), size_of(ctx.trace)))
        time.sleep(0.1)
    ended = ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    numbers = {line.split()[0]: int(line.split()[1]) for line in ended.stdout.splitlines()}
    ctx.expect(numbers["got"] == numbers["sent"], ended, "the program lost something")
    left = volumes(ctx.trace)
    if len(seen) < 5 or len(left) > 5 or min(left) < 3:
        raise Failure(f"of the volumes {sorted(seen)}, {left} are left")
    half = sizes[0][0] + (sizes[-1][0] - sizes[0][0]) / 2
    before, after = (max(size for at, size in sizes if (at < half) == early) for early in (True, False))
    if after > 1.5 * before:
        raise Failure(f"the trace grows: it had up to {before} bytes in the first half, {after} in the second")
    check_window(ctx, ctx.trace)
    stats = ctx.json("stats", ctx.trace)
    if not stats["certificate"]["kept"] or stats["messages"] < 100:
        raise Failure(f"the window says {stats['certificate']}, and has {stats['received_messages']} messages")
    if any(unit["intervals"][0]["interval"] != 0 or unit["intervals"][0]["first_event"] != 0 for unit in units(ctx)):
        raise Failure("numbers do not begin at 0")
    # What other commands make of it.
    for command in (("dump", ctx.trace, "1:0"), ("catalog", ctx.trace), ("plan", ctx.trace, "1:0"), ("evaluate", ctx.trace), ("ls", "--times", ctx.trace)):
        ctx.expect_status(ctx.redrive(*command), 0)
    ctx.expect_status(ctx.redrive("prepare", "--bound", "1s", "--require-bound", ctx.trace), 0)
    check_window(ctx, ctx.trace)
    ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)
    if ctx.trace.exists():
        raise Failure("rm leaves something behind")


@test("keep/size", alone=True)
def size(ctx):
    """The same by size; each volume needs an image of the program, so it cannot be as small as one likes."""
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--keep-size", "6M", "--bound", "2s", "--", *talk(8), cwd=ctx.work), 0)
    kept = sum(path.stat().st_size for path in (ctx.trace / "volumes").rglob("*") if path.is_file())
    if min(volumes(ctx.trace)) == 1 or not 2 << 20 < kept < 12 << 20:
        raise Failure(f"{kept} bytes are kept, in the volumes {volumes(ctx.trace)}")
    check_window(ctx, ctx.trace)


@test("keep/snapshot")
def snapshot(ctx):
    """A snapshot is a trace of its own while the recording goes on, and a window can be made longer and shorter."""
    with sessions(ctx) as s:
        work = ctx.fresh_work()
        s.expect("root", "start", "--output", work / "log", "one", "-o", ctx.trace, "--keep", "3s", "--bound", "2s", "--", *talk(600))
        ctx.wait_until("the window is full", lambda: volumes(ctx.trace)[:1] > [2])
        made = ctx.traces / "snapshot"
        s.expect("root", "snapshot", "one", "-o", made)
        if any(trace["exit_status"] is not None for trace in ctx.json("ls")["traces"]):
            raise Failure("ls shows an exit status of a program that has not ended")
        if s.status("root", "one")["keep_s"] != 3:
            raise Failure("status does not say what is kept")
        s.expect("root", "snapshot", "one", "-o", made, status=1)  # it exists
        s.expect("root", "snapshot", "nobody", "-o", ctx.traces / "other", status=1)
        s.expect("root", "snapshot", "one", status=2)
        s.expect("root", "set", "one", "--keep", "1s")
        time.sleep(3)  # what the snapshot shares with the recording is removed there
        again = ctx.traces / "again"
        s.expect("root", "snapshot", "one", "-o", again)
        s.expect("root", "stop", "one")
        ctx.expect_status(ctx.redrive("rm", ctx.trace), 0)
        lengths = []
        for trace in (made, again):
            report = check_window(ctx, trace)
            if any(interval["cut"] for interval in report["intervals"]):
                raise Failure("a snapshot ends within an interval")
            lengths.append(sum(interval["cpu_s"] for unit in units(ctx, trace) for interval in unit["intervals"]))
            ctx.expect_status(ctx.redrive("prepare", "--bound", "1s", "--require-bound", trace), 0)
            check_window(ctx, trace)
        if not 0 < lengths[1] < lengths[0]:
            raise Failure(f"the windows of 3 and 1 s have {lengths} s of CPU time")


@test("keep/short_window")
def short_window(ctx):
    """However short the window is, there is always a part of it that is complete, and a snapshot holds it."""
    with sessions(ctx) as s:
        s.expect("root", "start", "--output", ctx.directory / "log", "one", "-o", ctx.trace, "--keep", "100ms", "--bound", "2s", "--", *talk(600))
        ctx.wait_until("volumes are removed", lambda: volumes(ctx.trace)[:1] > [1])
        for _ in range(100):
            numbers = volumes(ctx.trace)
            if len(numbers) < 2:
                raise Failure(f"the volumes are {numbers}")
            time.sleep(0.01)
        s.expect("root", "snapshot", "one", "-o", ctx.traces / "snapshot")
        ctx.expect_status(ctx.redrive("check", ctx.traces / "snapshot"), 0)
        s.expect("root", "stop", "--timeout", "500ms", "one")


@test("keep/snapshot_killed")
def snapshot_killed(ctx):
    """A snapshot that is killed amid its work leaves nothing that is taken for a trace; rm removes what is left."""
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--keep", "10s", "--", *talk(3), cwd=ctx.work), 0)
    made = ctx.traces / "snapshot"
    part = made.with_name(made.name + ".removing")
    left = 0
    for _ in range(20):
        process = ctx.start_redrive("snapshot", ctx.trace, "-o", made)
        while not part.exists() and not made.exists():
            time.sleep(0.0005)
        os.kill(process.pid, signal.SIGKILL)
        process.finish(ctx.timeout_s)
        if made.exists():
            ctx.expect_status(ctx.redrive("check", made), 0)
        else:
            left += 1
        ctx.expect_status(ctx.redrive("rm", made), 0)
        if made.exists() or part.exists():
            raise Failure("rm leaves something")
    if not left:
        raise Failure("no snapshot was killed before it was complete")


@test("keep/killed")
def killed(ctx):
    """SIGKILL of the recorder leaves a window that replays, and of which a snapshot can be made."""
    ctx.fresh_work()
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--keep", "2s", "--bound", "2s", "--", *talk(600), cwd=ctx.work)
    ctx.wait_until("the window is full", lambda: volumes(ctx.trace)[:1] > [2])
    os.kill(recording.pid, signal.SIGKILL)
    recording.finish(ctx.timeout_s)
    ctx.expect_status(ctx.redrive("check", ctx.trace), 0)
    made = ctx.traces / "snapshot"
    ctx.expect_status(ctx.redrive("snapshot", ctx.trace, "-o", made), 0)
    for trace in (ctx.trace, made):
        report = ctx.json("replay", trace, "--all", "--verify", cwd="/", statuses=REDRIVEN)
        check_report(ctx, report)
        if len(report["intervals"]) < 5:
            raise Failure(f"only {len(report['intervals'])} intervals are left")


# The child sleeps in a call that cannot be interrupted without effect: a write of which the pipe has taken a part. The parent reads the rest when it is told
# to.
SLEEPER = """
import os, time
SIZE = 1 << 20
r, w = os.pipe()
if os.fork() == 0:
    os.close(r)
    print("wrote", os.write(w, b"x" * SIZE), flush=True)
    os._exit(0)
os.close(w)
total = 0
while not os.path.exists("enough"):
    total += sum(range(1000))
    os.getppid()
    time.sleep(0.0001)
got = 0
while piece := os.read(r, 65536):
    got += len(piece)
os.wait()
print("read", got)
"""

# Sleeps in calls that can be interrupted, one process in each.
WAITERS = """
import ctypes, fcntl, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
semaphore, queue = libc.semget(0, 1, 0o600), libc.msgget(0, 0o600)
lock = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
fcntl.lockf(lock, fcntl.LOCK_EX)
class Operation(ctypes.Structure):
    _fields_ = [("number", ctypes.c_ushort), ("by", ctypes.c_short), ("flags", ctypes.c_short)]
class Message(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_long), ("text", ctypes.c_char * 8)]
class Timeout(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def semop(by, timeout=None):
    return libc.semtimedop(semaphore, ctypes.byref(Operation(0, by, 0)), 1, timeout)
def receive():
    message = Message()
    return libc.msgrcv(queue, ctypes.byref(message), 8, 0, 0), message.text
def flock():
    return fcntl.flock(os.open("lock", os.O_RDWR), fcntl.LOCK_EX)
def lockf():
    return fcntl.lockf(os.open("lock", os.O_RDWR), fcntl.LOCK_EX)
def sigwait():
    return signal.sigtimedwait([signal.SIGUSR1], 60).si_signo
def paused():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    return signal.pause()
def timed_out():
    began = time.monotonic()
    return semop(-100, ctypes.byref(Timeout(int(float(sys.argv[1])), 0))), ctypes.get_errno(), round(time.monotonic() - began)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
waiters = {}
for wait in (lambda: semop(-1), receive, flock, lockf, sigwait, paused, timed_out):
    if (child := os.fork()) == 0:
        os.close(lock)
        if wait is paused:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        print(wait.__name__, wait(), flush=True)
        os._exit(0)
    waiters[child] = wait
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sum(range(1000))
    os.getppid()
    time.sleep(0.001)
semop(1)
libc.msgsnd(queue, ctypes.byref(Message(1, b"hello")), 8, 0)
fcntl.flock(lock, fcntl.LOCK_UN)
fcntl.lockf(lock, fcntl.LOCK_UN)
for child, wait in waiters.items():
    if wait in (sigwait, paused):
        os.kill(child, signal.SIGUSR1)
for child in waiters:
    os.waitpid(child, 0)
libc.semctl(semaphore, 0, 0), libc.msgctl(queue, 0, None)
"""


@test("keep/waiters")
def waiters(ctx):
    """Units that sleep in calls of all kinds go on in new volumes, and notice nothing."""
    ctx.fresh_work()
    ended = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--keep", "2s", "--bound", "2s", "--", "python3", "-c", WAITERS, "7", cwd=ctx.work), 0)
    said = sorted(ended.stdout.splitlines())
    wanted = sorted(["<lambda> 0", "flock None", "lockf None", "paused None", "receive (8, b'hello')", "sigwait 10", "timed_out (-1, 11, 7)"])
    ctx.expect(said == wanted, ended, f"the program says {said}")
    if min(volumes(ctx.trace)) < 3:
        raise Failure(f"volumes are kept: {volumes(ctx.trace)}")
    check_window(ctx, ctx.trace)
    if len(units(ctx)) != 8:
        raise Failure(f"the window has {len(units(ctx))} units")


@test("keep/sleeper")
def sleeper(ctx):
    """A unit that cannot take a checkpoint is left out until it can; the others go on as ever, and old volumes go."""
    with sessions(ctx) as s:
        ctx.fresh_work()
        s.expect("root", "start", "--output", ctx.work / "log", "one", "-o", ctx.trace, "--keep", "2s", "--bound", "2s", "--", "python3", "-c", SLEEPER, cwd=ctx.work)
        ctx.wait_until("volumes are removed", lambda: len(volumes(ctx.trace)) > 1 and volumes(ctx.trace)[1] > 3)
        made = ctx.traces / "snapshot"
        outcome = s.expect("root", "snapshot", "one", "-o", made)
        ctx.expect("1 unit is in a call" in outcome.stderr, outcome, "does not say what is left out")
        check_window(ctx, made)
        (ctx.work / "enough").touch()
        ctx.wait_until("it has ended", lambda: not s.listed("root"))
        said = (ctx.work / "log").read_text()
        if "wrote 1048576" not in said or "read 1048576" not in said:
            raise Failure(f"the sleeper was disturbed: {said}")
        check_window(ctx, ctx.trace)


@test("keep/refused")
def refused(ctx):
    ctx.fresh_work()
    for options, said in ((("--keep", "10m", "--virtual"), "--virtual"), (("--keep-size", "1G", "--self-check"), "--self-check"),
                          (("--keep", "soon"), "not a duration"), (("--keep-size", "much"), "not a size"), (("--keep-size", "1"), "at least")):
        outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, *options, "--", "true", cwd=ctx.work), 2)
        ctx.expect(said in outcome.stderr and not ctx.trace.exists(), outcome, f"does not refuse {options}")
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "true", cwd=ctx.work), 0)
    outcome = ctx.expect_status(ctx.redrive("snapshot", ctx.trace, "-o", ctx.traces / "other"), 1)
    ctx.expect("was not recorded with --keep" in outcome.stderr, outcome, "does not say why")
    with sessions(ctx) as s:
        s.expect("root", "start", "one", "--", "sleep", "1000")
        for command in (("snapshot", "one", "-o", ctx.traces / "other"), ("set", "one", "--keep", "1m")):
            outcome = s.expect("root", *command, status=1)
            ctx.expect("keeps everything" in outcome.stderr, outcome, "does not say why")
        s.expect("root", "stop", "one")


@test("keep/full_disk", slow=True)
def full_disk(ctx):
    """A full disk ends the recording, not the program; the window that is left replays."""
    needs_mounts(ctx)
    ctx.fresh_work()
    (ctx.directory / "full").mkdir()
    script = 'mount -t tmpfs -o size=28m tmpfs ../full; "$@"; status=$?; cp -a ../full/t ../kept; exit $status'
    cut = ctx.run("unshare", "-m", "sh", "-c", script, "sh", ctx.options.redrive, "record", "-o", "../full/t", "--keep", "60s", "--bound", "2s", "--",
                  *talk(25), cwd=ctx.work)
    ctx.expect_status(cut, 125)
    ctx.expect("No space left" in cut.stderr and "sent" in cut.stdout, cut, "does not say that the disk is full, or the program was ended")
    kept = ctx.directory / "kept"
    ctx.expect_status(ctx.redrive("check", kept), 0)
    check_report(ctx, ctx.json("replay", kept, "--all", "--verify", cwd="/", statuses=REDRIVEN))


def soak(ctx, seconds, keep_s, snapshots):
    """redis with clients, and nginx whose configuration is loaded again and again, are recorded for so long. Returns what was seen of each."""
    needs("redis-server", "redis-benchmark", "nginx", "curl")
    with sessions(ctx) as s:
        work = ctx.fresh_work()
        redis_port, nginx_port = free_port(), free_port()
        (work / "nginx").mkdir()
        configuration = work / "nginx.conf"
        configuration.write_text(f"""daemon off; pid {work}/nginx/pid; error_log {work}/nginx/error; worker_processes 2;
            events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{nginx_port}; root {work}; }} }}""")
        (work / "page").write_text("hello\n" * 100)
        os.chmod(work, 0o755)
        commands = {"redis": ["redis-server", "--port", redis_port, "--save", "", "--bind", "127.0.0.1"], "nginx": ["nginx", "-c", configuration]}
        for name, command in commands.items():
            s.expect("root", "start", "--output", work / f"{name}.log", name, "-o", ctx.traces / name, "--keep", f"{keep_s}s", "--bound", "2s", "--", *command)
        ctx.wait_until("redis answers", lambda: ctx.run("redis-cli", "-p", redis_port, "ping").stdout == "PONG\n")
        page = f"http://127.0.0.1:{nginx_port}/page"
        ctx.wait_until("nginx answers", lambda: ctx.run("curl", "-sf", page).status == 0)
        load = f"redis-benchmark -p {redis_port} -c 5 -n 2000 -r 1000 -t set,get -q"
        clients = [ctx.start("sh", "-c", f"while sleep 0.2; do {load} || echo failed >&2; done")]
        fetch = f"while sleep 0.05; do curl -sf {page} || echo failed >&2; done"
        clients.append(ctx.start("sh", "-c", fetch))
        seen = {name: [] for name in commands}
        snapshot_times = [seconds * (i + 1) / (snapshots + 1) for i in range(snapshots)]
        began, reloaded, made = time.monotonic(), 0, []
        while (at := time.monotonic() - began) < seconds:
            for name in commands:
                status = patient_status(ctx, s, name)
                seen[name].append((at, size_of(ctx.traces / name), memory_of(status["recorder"]), status["events"]))
            if at - reloaded > keep_s / 3:
                reloaded = at
                ctx.expect_status(ctx.run("nginx", "-c", configuration, "-s", "reload"), 0)
            if snapshot_times and at > snapshot_times[0]:
                snapshot_times.pop(0)
                for name in commands:
                    made.append((name, ctx.traces / f"{name}-snapshot-{len(made)}"))
                    s.expect("root", "snapshot", name, "-o", made[-1][1])
            time.sleep(min(1.0, keep_s / 10))
        for client in clients:
            os.killpg(client.pid, signal.SIGTERM)
            outcome = client.finish(ctx.timeout_s)
            ctx.expect("failed" not in outcome.stdout + outcome.stderr, outcome, "a client was not served")
        for name in commands:
            s.expect("root", "stop", name)
        for name, trace in [*((name, ctx.traces / name) for name in commands), *made]:
            check_window(ctx, trace, (name,))
            shutil.rmtree(trace)
    return seen


def patient_status(ctx, s, name):
    """A disk on which others write can stop a recorder for longer than `status` waits (5 s)."""
    for _ in range(6):
        outcome = s.redrive("root", "status", "--json", name)
        if "does not answer" not in outcome.stderr:
            break
        print(f"{name}: no answer for 5 s", file=sys.stderr)
    return json.loads(ctx.expect_status(outcome, 0).stdout)


def check_flat(seen, keep_s, settled_s):
    for name, looks in seen.items():
        later = [look for look in looks if look[0] > settled_s]
        third = len(later) // 3
        for what, index, may_be in (("trace", 1, 1.2), ("memory", 2, 1.2)):
            before, after = (max(look[index] for look in part) for part in (later[:third], later[-third:]))
            if after > may_be * before:
                raise Failure(f"{name}: the {what} grows from {before} to {after} bytes after {settled_s} s, with a window of {keep_s} s")


@test("keep/services", timeout_s=300, slow=True)
def services(ctx):
    """A window of servers at work, for a short time: everything replays, and so do snapshots that were taken meanwhile. tests/bench/soak.py takes an hour."""
    seen = soak(ctx, seconds=24, keep_s=6, snapshots=1)
    for name, looks in seen.items():
        if looks[-1][3] <= looks[0][3]:
            raise Failure(f"{name} did nothing: {json.dumps(looks[-1])}")


# Answers each line with one, after as many ms as the line says.
SLOW_SERVER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    while line := connection.recv(100):
        if line == b"crash":
            import os
            os.abort()
        time.sleep(int(line) / 1000)
        connection.send(b"answer to " + line)
"""


def snapshots_of(trace):
    return sorted(trace.parent.glob(f"{trace.name}.snapshot-*"))


@test("keep/triggers")
def triggers(ctx):
    """A snapshot is taken when a reply takes long, a file appears, redrive gets a signal, or a process crashes; it holds what happened."""
    ctx.fresh_work()
    port = free_port()
    flag = ctx.directory / "flag"
    server = ctx.start_redrive("record", "-o", ctx.trace, "--keep", "20s", "--bound", "2s", "--trigger", "reply>300ms", "--trigger", f"file={flag}",
                               "--trigger", "signal=USR2", "--trigger", "crash", "--", "python3", "-c", SLOW_SERVER, port, cwd=ctx.work)
    client = None
    try:
        def connected():
            nonlocal client
            try:
                client = socket.create_connection(("127.0.0.1", port))
            except OSError:
                return False
            return True

        ctx.wait_until("the server listens", connected)

        def ask(ms):
            client.send(b"%d" % ms)
            return client.recv(100)

        for _ in range(20):
            ask(1)
        if snapshots_of(ctx.trace):
            raise Failure("a snapshot was taken although all is well")

        def expect_snapshot(count):
            ctx.wait_until(f"there are {count} snapshots", lambda: f"snapshot in {ctx.trace}.snapshot-{count}" in server.output(1))

        ask(700)
        expect_snapshot(1)
        flag.touch()
        expect_snapshot(2)
        ask(1)
        os.kill(server.pid, signal.SIGUSR2)
        expect_snapshot(3)
        ask(1)  # it was not killed by the signal
        client.send(b"crash")
    finally:
        if client:
            client.close()
    ended = ctx.expect_status(server.finish(ctx.timeout_s), 134)
    said = [line for line in ended.stderr.splitlines() if "snapshot" in line or "crash:" in line]
    for what, line in zip(("had not answered for", "it is there", "it was sent", "was ended by SIGABRT"), said, strict=True):
        ctx.expect(what in line, ended, f"says '{line}' of '{what}'")
    slow = snapshots_of(ctx.trace)[0]
    dumped = ctx.expect_status(ctx.redrive("dump", slow), 0)
    ctx.expect("700" in dumped.stdout, dumped, "does not have the slow request")
    for trace in (*snapshots_of(ctx.trace), ctx.trace):
        check_window(ctx, trace)


# Writes what it is told, to a file and, a piece at a time, to its standard output.
WRITER = """
import os, sys
log = os.open("log", os.O_WRONLY | os.O_CREAT, 0o600)
for line in sys.stdin.buffer:
    os.writev(log, [line[:5], line[5:]])
    for piece in (line[:3], line[3:]):
        os.write(1, piece)
"""


@test("keep/written_lines")
def written_lines(ctx):
    """A snapshot is taken of a line that a program writes, although in pieces, and of no other. The trace is named as people name it."""
    ctx.fresh_work()
    words = ["record", "-o", "t", "--keep", "1m", "--trigger", "writes=^state: (broken|lost) [0-9]+$", "--", "python3", "-c", WRITER]
    for lines, snapshots in ((["state: fine 1", "not state: broken 1", "state: broken"], 0), (["state: fine 1", "state: lost 4711", "state: fine 2", "bye"], 1)):
        shown = shlex.join(str(word) for word in (ctx.options.redrive, *words))
        feed = "; ".join(f"sleep 0.3; echo {shlex.quote(line)}" for line in lines)
        if snapshots:  # the program must not end before
            feed += "; until ls -d t.snapshot-* > /dev/null 2>&1; do sleep 0.1; done"
        ended = ctx.expect_status(ctx.run("bash", "-o", "pipefail", "-c", f"({feed}; sleep 1) | {shown}", cwd=ctx.work), 0)
        ctx.expect(ended.stdout.splitlines() == lines, ended, "the program writes something else")
        made = sorted(ctx.work.glob("t.snapshot-*"))
        ctx.expect(len(made) == snapshots and ended.stderr.count("snapshot") == 2 * snapshots, ended, f"{len(made)} snapshots, not {snapshots}")
        for snapshot in made:
            ctx.expect("wrote 'state: lost 4711'" in ended.stderr, ended, "does not say which line")
            check_window(ctx, snapshot)
        ctx.fresh_work()


@test("keep/no_triggers")
def no_triggers(ctx):
    ctx.fresh_work()
    for options, said in ((("--trigger", "crash"), "--keep"), (("--keep", "1m", "--trigger", "soon"), "not a trigger"),
                          (("--keep", "1m", "--trigger", "killed=NOBODY"), "not a trigger"),
                          (("--keep", "1m", "--trigger", "writes=[a"), "not a regular expression")):
        outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, *options, "--", "true", cwd=ctx.work), 2)
        ctx.expect(said in outcome.stderr and not ctx.trace.exists(), outcome, f"does not refuse {options}")
    # Only so many are taken, and one line says that there are no more.
    crashes = "for i in 1 2 3 4; do sleep 0.5; sh -c 'kill -ABRT $$'; done; sleep 1"
    for number in (1, 2, 4):  # of an earlier recording
        ctx.trace.with_name(f"{ctx.trace.name}.snapshot-{number}").mkdir()
    ended = ctx.redrive("record", "-o", ctx.trace, "--keep", "1m", "--trigger", "crash", "--snapshots", "2", "--", "sh", "-c", crashes, cwd=ctx.work)
    ctx.expect_status(ended, 0)
    made = [snapshot.name[-2:] for snapshot in snapshots_of(ctx.trace) if any(snapshot.iterdir())]
    ctx.expect(made == ["-3", "-5"] and ended.stderr.count("no snapshots are taken") == 1, ended, "takes another number of snapshots")


@test("keep/readers")
def readers(ctx):
    """A command that finds something missing because the recording deleted its oldest parts meanwhile says so, and reports no damage."""
    ctx.fresh_work()
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--keep", "1s", "--bound", "2s", "--", *talk(8), cwd=ctx.work)
    ctx.wait_until("the window is full", lambda: volumes(ctx.trace)[:1] > [1])
    read = 0
    while not recording.has_ended():
        for words in (("ls", ctx.trace), ("dump", ctx.trace), ("replay", "--all", "--once", ctx.trace)):
            outcome = ctx.redrive(*words)
            gone = "is not kept any more" in outcome.stderr or "is not kept any more" in outcome.stdout
            ctx.expect(outcome.status in (0, 5) or (outcome.status == 1 and gone), outcome, f"ended with {outcome.status}")
            read += outcome.status == 0
    ctx.expect_status(recording.finish(ctx.timeout_s), 0)
    if read < 5:
        raise Failure(f"only {read} commands have read it")


@test("keep/named_in_other_scripts")
def named_in_other_scripts(ctx):
    """A session's trace may have any name, also one that is not UTF-8, and is shown as it is."""
    with sessions(ctx) as s:
        work = ctx.fresh_work()
        names = ("ไทย हिन्दी 한글 🙂", "not a character: \ufffe", os.fsdecode(b"not UTF-8: \xff"))
        for number, name in enumerate(names):
            trace = ctx.traces / name
            started = s.expect("root", "start", "--output", work / f"log{number}", f"s{number}", "-o", trace, "--keep", "1m", "--", *talk(600))
            ctx.wait_until("it has begun", lambda trace=trace: volumes(trace))
            s.expect("root", "snapshot", f"s{number}", "-o", ctx.traces / f"snapshot{number}")
            shown = (started, s.expect("root", "status", f"s{number}"), s.expect("root", "stop", f"s{number}"))
            for outcome in shown:
                ctx.expect(name.replace("\udcff", "\\xff") in outcome.stdout, outcome, "shows another name")
            check_trace(ctx, ctx.traces / f"snapshot{number}")


@test("keep/changed_bound")
def changed_bound(ctx):
    """A snapshot promises the bound that was set last, and can be made of a trace by its name."""
    with sessions(ctx) as s:
        work = ctx.fresh_work()
        s.expect("root", "start", "--output", work / "log", "one", "-o", ctx.trace, "--keep", "1m", "--bound", "10s", "--", *talk(600))
        ctx.wait_until("it has begun", lambda: volumes(ctx.trace))
        s.expect("root", "set", "one", "--bound", "800ms")
        made = ctx.traces / "made"
        s.expect("root", "snapshot", "one", "-o", made)
        s.expect("root", "stop", "one")
        for trace in (made, ctx.trace):
            if abs(ctx.json("stats", trace)["bound_s"] - 0.8) > 1e-6:
                raise Failure(f"{trace} promises {ctx.json('stats', trace)['bound_s']} s")
        check_window(ctx, made)
        for name, place in ((ctx.trace.name, "by_name"), (ctx.trace, "by_path")):
            s.expect("root", "snapshot", name, "-o", ctx.traces / place)
            check_trace(ctx, ctx.traces / place)
        outcome = s.expect("root", "snapshot", "nobody", "-o", ctx.traces / "other", status=1)
        ctx.expect("no session and no trace 'nobody'" in outcome.stderr, outcome, "does not say what there is not")
