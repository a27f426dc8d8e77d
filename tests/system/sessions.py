"""Group sessions: recordings in the background, their control, and redrived, on a message bus of the test's own. Each test has a run-time directory
of its own as well ($REDRIVE_RUN_DIR), so it neither sees nor disturbs sessions of the machine."""
import contextlib
import json
import os
import pathlib
import pwd
import random
import re
import shlex
import shutil
import signal
import socket
import sys
import time
import urllib.request

from bad_input import needs_mounts
from harness import ROOT, Failure, Skip, needs, test
from redriving import check_trace, free_port

# Users that every Debian has, and that nobody logs in as.
USERS = ["daemon", "bin", "games"]
PYTHON = "/usr/bin/python3"  # which they may execute

BUS_CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <auth>EXTERNAL</auth>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
  </policy>
  <include>{policy}</include>
</busconfig>
"""

# Says what it has of its starter, then counts until it is told to end. No apostrophes: it becomes a word of a shell.
PROGRAM = """
use POSIX; $| = 1; $SIG{TERM} = sub { print "ended at $i\\n"; exit 7 };
printf "%s 0%o %d %s %d\\n", getcwd(), umask, POSIX::sysconf(POSIX::_SC_OPEN_MAX), $ENV{GREETING}, $<;
while (1) { $i++; print "$i\\n"; select(undef, undef, undef, 0.02); }
"""
PERL = ["perl", "-e", PROGRAM]


class Sessions:
    """The run-time directory of one test, and commands in it as root or as another user."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.run_directory = ctx.directory / "run"
        self.env = {"REDRIVE_RUN_DIR": str(self.run_directory), "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={ctx.directory}/bus"}
        self.bus = self.daemon = None

    def start_bus(self):
        needs("dbus-daemon")
        configuration = self.ctx.directory / "bus.conf"
        policy = ROOT / "supervisor" / "daemon" / "org.redrive.Supervisor1.conf"
        configuration.write_text(BUS_CONFIGURATION.format(socket=self.ctx.directory / "bus", policy=policy))
        self.bus = self.ctx.start("dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile", "--print-address")
        self.bus.wait_for("unix:path", self.ctx.timeout_s)

    def start_daemon(self):
        """Returns when it has told systemd that it is ready, as systemd would learn it."""
        ready = self.ctx.directory / "notify"
        ready.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(ready))
            notify.settimeout(self.ctx.timeout_s)
            self.daemon = self.ctx.start(self.ctx.options.build / "redrived", env={**self.env, "NOTIFY_SOCKET": str(ready)})
            said = notify.recv(4096).decode()
        if "READY=1" not in said:
            raise Failure(f"redrived told systemd '{said}', not READY=1")

    def kill_daemon(self):
        os.kill(self.daemon.pid, signal.SIGKILL)
        self.daemon.finish(self.ctx.timeout_s)

    def home(self, user):
        home = self.ctx.directory / user
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return home

    def words(self, user, *words):
        if user == "root":
            return [str(word) for word in words]
        home = self.home(user)
        own = [f"HOME={home}", f"TMPDIR={home}", f"REDRIVE_TRACE_DIR={home}/traces", f"REDRIVE_CACHE_DIR={home}/cache"]
        return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups", "env", *own, *map(str, words)]

    def redrive(self, user, *words, env=None, cwd=None):
        return self.ctx.run(*self.words(user, self.ctx.options.redrive, *words), env={**self.env, **(env or {})}, cwd=cwd)

    def expect(self, user, *words, status=0, **how):
        return self.ctx.expect_status(self.redrive(user, *words, **how), status)

    def listed(self, user):
        outcome = self.expect(user, "ps", "--json")
        return {(session["user"], session["name"]): session for session in json.loads(outcome.stdout)["sessions"]}

    def status(self, user, name):
        return json.loads(self.expect(user, "status", "--json", name).stdout)

    def verify(self, user, trace):
        """The trace is whole and every interval replays."""
        self.expect(user, "check", trace)
        outcome = self.redrive(user, "replay", "--all", "--verify", trace)
        self.ctx.expect(outcome.status in (0, 5), outcome, "does not replay as it was recorded")


@contextlib.contextmanager
def sessions(ctx, bus=False):
    if os.geteuid() != 0:
        raise Skip("only root can be several users")
    needs("setpriv")
    made = Sessions(ctx)
    try:
        if bus:
            made.start_bus()
            made.start_daemon()
        yield made
    finally:
        # Sessions leave the session that started them, so nobody else ends them.
        for directory in made.run_directory.glob("*/"):
            for socket_file in directory.iterdir():
                end_session(socket_file)


def end_session(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return
    recorder = int.from_bytes(credentials[:4], sys.byteorder)
    if recorder != os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.kill(recorder, signal.SIGKILL)  # its programs end with it


def check_output(ctx, log, ended=True):
    """What PROGRAM has written: every number once, in order, and its last words."""
    lines = [line for line in log.read_text().splitlines() if not line.startswith("redrive: ")][1:]
    last = lines.pop() if ended else ""
    numbers = [int(line) for line in lines]
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        raise Failure(f"{log}: the program did not count as natively: {numbers[:5]}...")
    if ended and not re.fullmatch(r"ended at \d+", last):
        raise Failure(f"{log}: the program did not end as natively: '{last}'")
    return len(numbers)


@test("sessions/control")
def control(ctx):
    """Every command for sessions, without redrived and without a bus."""
    with sessions(ctx) as s:
        work = ctx.fresh_work()
        script = f'ulimit -Sn 333; umask 027; cd {work}; exec {ctx.options.redrive} start --output {work}/log one --bound 5s -- perl -e "$PROGRAM"'
        outcome = ctx.expect_status(ctx.run("sh", "-c", script, env={**s.env, "GREETING": "good day", "PROGRAM": PROGRAM}), 0)
        ctx.expect(f"its output goes to {work}/log" in outcome.stdout, outcome, "does not say where the output goes")
        log = work / "log"
        ctx.wait_until("the program counts", lambda: "\n3\n" in log.read_text())
        first = log.read_text().splitlines()[0]
        if first != f"{work} 027 333 good day 0":
            raise Failure(f"the program has something else of its starter: {first}")
        # Whoever waits for the end of what `start` writes does not wait for the session.
        outcome = ctx.run("sh", "-c", f"{ctx.options.redrive} start two -- sleep 1000 2>&1 | cat; {ctx.options.redrive} stop two", env=s.env, timeout_s=30)
        ctx.expect(outcome.stdout.count("\n") == 2 and "status 143" in outcome.stdout, outcome, "does not let go of its output")
        s.expect("root", "start", "one", "--", "true", status=1)  # the name is taken
        outcome = s.expect("root", "start", "two", "--", "/nonexistent", status=127)
        ctx.expect(outcome.stderr.count("\n") == 1, outcome, "says more than what is wrong")
        s.expect("root", "start", "-x", "--", "true", status=2)
        s.expect("root", "start", "two", "--bound", "1", "--", "true", status=2)
        for command in ("status", "checkpoint", "follow", "stop"):
            s.expect("root", command, "two", status=1)
        s.expect("root", "set", "one", status=2)

        status = s.status("root", "one")
        if (status["state"], status["bound_s"], status["command"][:2]) != ("recording", 5, ["perl", "-e"]) or status["processes"] < 1:
            raise Failure(f"status says {status}")
        if os.readlink(f"/proc/{status['program']}/cwd") != str(work):
            raise Failure("the program is another process")
        if set(s.listed("root")) != {(0, "one")}:
            raise Failure("ps lists something else")
        before = s.status("root", "one")["events"]
        outcome = s.expect("root", "checkpoint", "one")
        ctx.expect(re.search(r"^\d+ units? took a checkpoint", outcome.stdout), outcome, "took none")
        reports = [json.loads(line) for line in s.expect("root", "follow", "--json", "--count", "3", "--every", "300ms", "one").stdout.splitlines()]
        shell = [unit for report in reports for unit in report["units"] if unit["name"] == "perl"]
        if len(reports) != 3 or len(shell) != 3 or not all(unit["events_per_s"] > 10 for unit in shell):
            raise Failure(f"follow says {reports}")
        if s.status("root", "one")["events"] <= before or shell[-1]["interval"] < 1:
            raise Failure("there is no new event or interval")
        s.expect("root", "set", "one", "--bound", "1ms", status=1)
        s.expect("root", "set", "one", "--bound", "3s")
        changed = s.status("root", "one")
        if changed["bound_s"] != 3 or not changed["checkpoint_period_s"] < status["checkpoint_period_s"]:
            raise Failure(f"the bound is not changed: {changed}")
        os.kill(status["signals_to"], signal.SIGTERM)
        ctx.wait_until("the program got the signal", lambda: "ended at" in log.read_text())
        check_output(ctx, log)
        ctx.wait_until("the session is gone", lambda: not s.listed("root"))
        trace, = (trace for trace in ctx.json("ls")["traces"] if trace["directory"] == status["trace"])
        if (trace["bound_s"], trace["bound_kept"], trace["exit_status"]) != (3, True, 7):
            raise Failure(f"the trace does not keep the new bound: {trace}")
        s.verify("root", status["trace"])


@test("sessions/name_again")
def name_again(ctx):
    """When stop returns, the name is free, although the recorder may still have to look at the trace."""
    with sessions(ctx) as s:
        for _ in range(10):
            s.expect("root", "start", "one", "--self-check", "--", "sh", "-c", "while :; do sleep 0.01; done")
            s.expect("root", "stop", "one")
            if s.listed("root"):
                raise Failure("a session that was stopped is listed")


@test("sessions/without_directory")
def without_directory(ctx):
    """A user for whom redrived has not made a directory yet: a service is recorded nevertheless, a session is not started."""
    with sessions(ctx) as s:
        trace = s.home("bin") / "t"
        outcome = s.expect("bin", "record", "-o", trace, "--session", "one", "--", "true")
        ctx.expect("this recording cannot be controlled: redrived does not answer" in outcome.stderr, outcome, "does not say why it is no session")
        s.verify("bin", trace)
        outcome = s.expect("bin", "start", "one", "--", "true", status=1)
        ctx.expect(outcome.stderr.count("\n") == 1 and "redrived.service" in outcome.stderr, outcome, "does not say what to do")
        s.start_bus()
        s.start_daemon()
        s.expect("bin", "start", "one", "--", "sleep", "1000")
        s.expect("bin", "stop", "one")


@test("sessions/default_directory")
def default_directory(ctx):
    """As users have it: /run/redrive, and this machine's bus and redrived, if there are any. The session's name is this test's."""
    if os.geteuid() != 0 and not pathlib.Path(f"/run/redrive/{os.geteuid()}").exists():
        raise Skip("only root can make its run-time directory")
    name = f"test-{os.getpid()}"
    ctx.expect_status(ctx.redrive("start", name, "--", "sleep", "1000"), 0)
    try:
        listed = [session["name"] for session in ctx.json("ps")["sessions"]]
        if name not in listed:
            raise Failure(f"ps lists {listed}")
        if not (ctx.traces / f"{name}.log").exists():
            raise Failure("the output is not beside the traces")
    finally:
        ctx.expect_status(ctx.redrive("stop", name), 0)


@test("sessions/supervised_daemon")
def supervised_daemon(ctx):
    """redrived tells systemd that it is ready, that it is alive and that it ends; what keeps it from starting is one line."""
    with sessions(ctx) as s:
        daemon = ctx.options.build / "redrived"
        for words, why, status in (([], "system bus", 1), (["--nonsense"], "--nonsense", 2)):
            outcome = ctx.expect_status(ctx.run(daemon, *words, env=s.env), status)
            ctx.expect(outcome.stderr.count("\n") == 1 and why in outcome.stderr, outcome, f"does not say '{why}' in one line")
        s.start_bus()
        outcome = ctx.expect_status(ctx.run(*s.words("daemon", daemon), env=s.env), 1)
        ctx.expect("root" in outcome.stderr, outcome, "does not say who may start it")
        path = ctx.directory / "watchdog"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(path))
            notify.settimeout(ctx.timeout_s)
            running = ctx.start(daemon, env={**s.env, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"})

            def hear(wanted):
                while wanted not in notify.recv(4096).decode():
                    pass
            hear("READY=1")
            hear("WATCHDOG=1")
            hear("WATCHDOG=1")
            outcome = ctx.expect_status(ctx.run(daemon, env=s.env), 1)
            ctx.expect("another redrived" in outcome.stderr, outcome, "does not say that there is another one")
            os.kill(running.pid, signal.SIGTERM)
            hear("STOPPING=1")
        ctx.expect_status(running.finish(ctx.timeout_s), 0)


@test("sessions/who_talks")
def who_talks(ctx):
    """follow shows which unit receives how much from which other one."""
    with sessions(ctx) as s:
        s.expect("root", "start", "pipe", "--", "sh", "-c", "while sleep 0.01; do echo 0123456789; done | (while read -r line; do :; done)")
        report = json.loads(s.expect("root", "follow", "--json", "--count", "1", "--every", "2s", "pipe").stdout)
        if len(report["talks"]) != 1:
            raise Failure(f"one talks to one other: {report['talks']}")
        talk = report["talks"][0]
        bytes_per_message = talk["bytes_per_s"] / talk["messages_per_s"]
        if abs(bytes_per_message - 11) > 1 or talk["messages_per_s"] < 5:
            raise Failure(f"lines of 11 bytes: {talk}")
        s.expect("root", "stop", "--timeout", "1s", "pipe")


@test("sessions/checkpoint")
def checkpoint(ctx):
    """Units that compute, sleep, wait for others and read take a checkpoint at once; one whose call cannot be entered again is said to be late."""
    with sessions(ctx) as s:
        ctx.fresh_work()
        fifo = ctx.work / "fifo"
        os.mkfifo(fifo)
        os.mkfifo(f"{fifo}2")
        log = ctx.directory / "log"
        script = f"sleep 1000 & perl -e '1 while 1' & (exec 3<>{fifo}; exec cat <&3) & echo ready; exec perl -e 'read STDIN, $x, 1' <> {fifo}2"
        s.expect("root", "start", "--output", log, "all", "--", "sh", "-c", script)

        def intervals():
            report = json.loads(s.expect("root", "follow", "--json", "--count", "1", "--every", "1ms", "all").stdout)
            return {unit["unit"]: unit["interval"] for unit in report["units"]} if all(unit["name"] != "sh" for unit in report["units"]) else {}
        ctx.wait_until("all are there", lambda: len(intervals()) == 4)
        for _ in range(3):
            before = intervals()
            outcome = s.expect("root", "checkpoint", "all")
            ctx.expect(outcome.stdout == "4 units took a checkpoint\n" and not outcome.stderr, outcome, "not all took one")
            after = intervals()
            if not all(after[name] > before[name] for name in after):
                raise Failure(f"intervals: {before}, then {after}")
        trace = s.status("root", "all")["trace"]
        s.expect("root", "stop", "all")
        s.verify("root", trace)

        # A write into a full pipe has done part of its work.
        s.expect("root", "start", "part", "--", "sh", "-c", "perl -e 'syswrite STDOUT, \"x\" x 1000000' | sleep 1000")
        ctx.wait_until("the pipe is full", lambda: s.status("root", "part")["units"] == 3)
        time.sleep(0.3)
        outcome = s.expect("root", "checkpoint", "part")
        ctx.expect("2 units took" in outcome.stdout and "1 unit is in a call" in outcome.stderr, outcome, "the writer is not said to be late")
        s.expect("root", "stop", "part")


@test("sessions/stubborn")
def stubborn(ctx):
    """A program that ignores SIGTERM, and what it has left behind, are killed after the timeout; the trace is complete."""
    with sessions(ctx) as s:
        log = ctx.directory / "log"
        script = "trap '' TERM; (while sleep 0.1; do :; done) & echo ready; while sleep 0.1; do :; done"
        s.expect("root", "start", "--output", log, "deaf", "--", "sh", "-c", script)
        ctx.wait_until("it is deaf", lambda: "ready" in log.read_text())
        trace = s.status("root", "deaf")["trace"]
        began = time.monotonic()
        outcome = s.expect("root", "stop", "--timeout", "500ms", "deaf")
        ctx.expect(0.4 < time.monotonic() - began < 30 and "status 137" in outcome.stdout, outcome, "was not killed after the timeout")
        s.verify("root", trace)


@test("sessions/lost_trace")
def lost_trace(ctx):
    """If the trace of a session is removed, stop says that it is incomplete, and with which status the program has ended."""
    with sessions(ctx) as s:
        log = ctx.directory / "log"
        s.expect("root", "start", "--output", log, "one", "-o", ctx.trace, "--", *PERL)
        ctx.wait_until("the program counts", lambda: "\n3\n" in log.read_text())
        shutil.rmtree(ctx.trace)
        outcome = s.expect("root", "stop", "one", status=1)
        ctx.expect(re.search("session 'one' has ended with status 7, but the trace is incomplete: .*No such file", outcome.stderr), outcome, "does not say why")
        check_output(ctx, log)


@test("sessions/full_disk")
def full_disk(ctx):
    """When the disk is full, the session's state says so, and all that is asked of its trace fails with the reason. A trigger does not point at a trace that
    lacks what happened. Processes that start afterwards are not mentioned."""
    needs_mounts(ctx)
    with sessions(ctx) as s:
        log, flag = ctx.directory / "log", ctx.directory / "flag"
        (ctx.directory / "full").mkdir()
        # cat fails when it has filled the disk.
        program = "cat /dev/zero > full/zeros; while :; do /bin/true; echo lives; done"
        script = f'mount -t tmpfs -o size=20m tmpfs full; exec "$0" start --output {log} one -o full/t --keep 1m --trigger file={flag} -- sh -c "$1"'
        ctx.expect_status(ctx.run("unshare", "-m", "sh", "-c", script, ctx.options.redrive, program, env=s.env, cwd=ctx.directory), 0)
        ctx.wait_until("recording has stopped", lambda: "recording has stopped" in log.read_text())
        lives = log.read_text().count("lives")
        ctx.wait_until("the program continues", lambda: log.read_text().count("lives") > lives + 10)
        state = s.status("root", "one")["state"]
        if state != "incomplete":
            raise Failure(f"its state is '{state}'")
        for words in (["checkpoint", "one"], ["set", "one", "--bound", "5s"], ["set", "one", "--keep", "2m"], ["snapshot", "one", "-o", ctx.directory / "s"]):
            outcome = s.expect("root", *words, status=1)
            ctx.expect("No space left on device; recording has stopped" in outcome.stderr, outcome, "does not say why")
        flag.touch()
        ctx.wait_until("the trigger is mentioned", lambda: "it is there" in log.read_text())
        outcome = s.expect("root", "stop", "one", status=1)
        ctx.expect(re.search(r"has ended with status \d+, but the trace is incomplete: .*No space left", outcome.stderr), outcome, "does not say why")
        ctx.wait_until("the session is gone", lambda: not s.listed("root"))
        said = [line for line in log.read_text().splitlines() if line.startswith("redrive: ")]
        if not any(re.search("it is there: there is no snapshot: .*No space left", line) for line in said) or any("diverge" in line for line in said):
            raise Failure(f"it said {said}")


@test("sessions/idle")
def idle(ctx):
    """The thread that serves the session sleeps until somebody asks; a recording that is no session does not have it, nor its library."""
    with sessions(ctx) as s:
        s.expect("root", "start", "idle", "--", "sleep", "1000")
        recorder = pathlib.Path("/proc") / str(s.status("root", "idle")["recorder"])
        if "libsystemd" not in (recorder / "maps").read_text():
            raise Failure("a session has no libsystemd: this test sees nothing")
        server = next(task for task in (recorder / "task").iterdir() if (task / "comm").read_text() == "session\n")
        woken = lambda: sum(int(n) for n in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", (server / "status").read_text()))  # noqa: E731
        before = woken()
        s.status("root", "idle")
        time.sleep(0.3)  # it learns that the client has hung up
        asked = woken()
        time.sleep(1)
        if not before < asked or woken() != asked:
            raise Failure(f"the server was woken {woken() - asked} times in a second in which nobody asked")
        s.expect("root", "stop", "idle")
    end = ctx.directory / "end"
    process = ctx.start_redrive("record", "-o", ctx.trace, "--", "sh", "-c", f"while [ ! -e {end} ]; do sleep 0.05; done", env={"LD_DEBUG": ""})
    children = lambda: pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # noqa: E731
    ctx.wait_until("the recorder runs", children)
    for pid in [process.pid, *map(int, children())]:
        with contextlib.suppress(FileNotFoundError):
            if "libsystemd" in pathlib.Path(f"/proc/{pid}/maps").read_text():
                raise Failure("a recording without a session has loaded libsystemd")
    end.touch()
    ctx.expect_status(process.finish(ctx.timeout_s), 0)


@test("sessions/at_rest")
def at_rest(ctx):
    """The recorder of a program that sleeps, or does little and often, does not wake up with it."""
    often = "import time\nwhile True: time.sleep(0.02); open('/proc/self/stat').read()"
    for words, most in ((("sleep", "1000"), 3), (("python3", "-c", often), 15)):
        with sessions(ctx) as s:
            s.expect("root", "start", "resting", "--", *words)
            recorder = pathlib.Path("/proc") / str(s.status("root", "resting")["recorder"])
            sleeps = lambda: int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (recorder / "status").read_text(), re.MULTILINE).group(1))  # noqa: B023, E731
            time.sleep(2)  # it has started, and its first checkpoint is stored
            before = sleeps()
            time.sleep(3)
            if sleeps() - before > 3 * most:
                raise Failure(f"{words[0]}: the recorder has woken up {sleeps() - before} times in 3 s")
            s.expect("root", "stop", "resting")


@test("sessions/killed_recorder")
def killed_recorder(ctx):
    """What a killed recorder leaves behind is no session, and its name can be had again, with and without redrived."""
    for bus in (False, True):
        with sessions(ctx, bus=bus) as s:
            s.expect("root", "start", "one", "--", "sleep", "1000")
            recorder = s.status("root", "one")["recorder"]
            os.kill(recorder, signal.SIGKILL)
            ctx.wait_until("the session is gone", lambda: not s.listed("root"))
            s.expect("root", "status", "one", status=1)
            s.expect("root", "start", "one", "--", "sleep", "1000")
            if s.status("root", "one")["recorder"] == recorder:
                raise Failure("the session has the recorder that was killed")
            s.expect("root", "stop", "one")
            if bus:
                ctx.wait_until("redrived has cleared up", lambda: not list((s.run_directory / "0").iterdir()))


def start_all(s, count):
    """Sessions of several users. Returns (user, name) of each, and where its trace and its output are."""
    started = {}
    for i in range(count):
        user = USERS[i % len(USERS)]
        log = s.home(user) / f"log{i}"
        s.expect(user, "start", "--output", log, f"s{i}", "--", *PERL, cwd=s.home(user))
        started[user, f"s{i}"] = (s.status(user, f"s{i}")["trace"], log)
    return started


def check_views(s, started):
    """Each user sees their own, root sees all."""
    uid = lambda user: pwd.getpwnam(user).pw_uid  # noqa: E731
    everything = {(uid(user), name) for user, name in started}
    if set(s.listed("root")) != everything:
        raise Failure(f"root sees {sorted(s.listed('root'))}, not {sorted(everything)}")
    for user in USERS:
        own = {key for key in everything if key[0] == uid(user)}
        if set(s.listed(user)) != own:
            raise Failure(f"{user} sees {sorted(s.listed(user))}, not {sorted(own)}")


def check_strangers(s, started):
    """Nobody reaches the sessions of others: by the commands, by the bus, by the socket, in the trace."""
    ctx = s.ctx
    for (owner, name), (trace, log) in list(started.items())[:len(USERS)]:
        stranger = USERS[(USERS.index(owner) + 1) % len(USERS)]
        number = pwd.getpwnam(owner).pw_uid
        for words in (["status", f"{owner}/{name}"], ["stop", f"{number}/{name}"], ["checkpoint", f"{owner}/{name}"],
                      ["follow", "--count", "1", f"{owner}/{name}"], ["set", f"{owner}/{name}", "--bound", "9s"], ["dump", trace], ["stop", name]):
            outcome = s.redrive(stranger, *words)
            ctx.expect(outcome.status == 1 and not outcome.stdout, outcome, f"{stranger} may do this to {owner}'s session")
        socket_file = s.run_directory / str(number) / name
        attempt = f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket_file)!r})"
        outcome = ctx.run(*s.words(stranger, PYTHON, "-c", attempt))
        ctx.expect(outcome.status == 1 and "PermissionError" in outcome.stderr, outcome, "a stranger could connect to the socket")
        for member, signature in (("GetStatus", []), ("Stop", ["t", "0"])):
            call = ("busctl", f"--address={s.env['DBUS_SYSTEM_BUS_ADDRESS']}", "call", "org.redrive.Supervisor1",
                    f"/org/redrive/Supervisor1/session/{number}/{name}", "org.redrive.Session1", member, *signature)
            outcome = ctx.run(*s.words(stranger, *call))
            ctx.expect(outcome.status != 0 and "no such session" in outcome.stderr, outcome, "a stranger could call it on the bus")
        tree = ctx.run(*s.words(stranger, "busctl", f"--address={s.env['DBUS_SYSTEM_BUS_ADDRESS']}", "tree", "--list", "org.redrive.Supervisor1"))
        ctx.expect(f"/{number}/" not in tree.stdout and f"/{pwd.getpwnam(stranger).pw_uid}/" in tree.stdout, tree, "a stranger sees it on the bus")


def end_all(s, started):
    """Each is stopped by its owner, or by root, and has lost nothing."""
    for i, ((user, name), (trace, log)) in enumerate(started.items()):
        by_root = i % 3 == 0
        outcome = s.expect("root" if by_root else user, "stop", f"{user}/{name}" if by_root else name)
        s.ctx.expect("ended with status 7" in outcome.stdout, outcome, "the program did not end as it wants to")
        check_output(s.ctx, log)
        s.verify(user, trace)


@test("sessions/users")
def users(ctx):
    needs("busctl")
    with sessions(ctx, bus=True) as s:
        started = start_all(s, 6)
        check_views(s, started)
        check_strangers(s, started)
        user, name = next(iter(started))
        os.kill(s.daemon.pid, signal.SIGTERM)
        ctx.expect_status(s.daemon.finish(ctx.timeout_s), 0)
        check_views(s, started)  # without it
        s.start_daemon()
        check_views(s, started)
        end_all(s, started)


def kills(ctx, rounds, count, seed):
    """redrived is killed at random moments, while users ask for things; no session notices."""
    random.seed(seed)
    with sessions(ctx, bus=True) as s:
        started = start_all(s, count)
        names = list(started)
        before = {key: s.status(*key) for key in names}
        for round_number in range(rounds):
            user, name = random.choice(names)
            words = random.choice([["status", name], ["checkpoint", name], ["ps"], ["follow", "--count", "1", "--every", "100ms", name]])
            asking = ctx.start(*s.words(user, ctx.options.redrive, *words), env=s.env)
            time.sleep(random.uniform(0, 0.15))
            s.kill_daemon()
            ctx.expect_status(asking.finish(ctx.timeout_s), 0)
            if round_number % 5 == 0:
                check_views(s, started)
            s.start_daemon()
            if round_number % 5 == 0:
                check_views(s, started)
        for key in names:
            now = s.status(*key)
            if (now["recorder"], now["program"]) != (before[key]["recorder"], before[key]["program"]) or now["events"] <= before[key]["events"]:
                raise Failure(f"{key} was disturbed: {before[key]}, {now}")
        end_all(s, started)


@test("sessions/killed_daemon")
def killed_daemon(ctx):
    kills(ctx, rounds=5, count=3, seed=1)


@test("sessions/killed_daemon_often", timeout_s=600, slow=True)
def killed_daemon_often(ctx):
    kills(ctx, rounds=50, count=20, seed=2)


@test("sessions/hostile_directory")
def hostile_directory(ctx):
    """What users put into their own directories does not lead redrived or root astray: links, sockets of others, sockets that never answer."""
    with sessions(ctx, bus=True) as s:
        s.expect("daemon", "start", "good", "--", "sleep", "1000")
        directory = s.run_directory / str(pwd.getpwnam("bin").pw_uid)
        s.expect("bin", "start", "first", "--", "sleep", "1000")  # so that it exists
        attempt = f"""
import fcntl, os, socket, time
os.chdir({str(directory)!r})
os.symlink({str(ctx.directory / 'bus')!r}, 'bus')
os.symlink('../{pwd.getpwnam("daemon").pw_uid}/good', 'other')
os.mkfifo('pipe')
open('file', 'w').close()
mute = socket.socket(socket.AF_UNIX)
mute.bind('mute')
mute.listen()
left_behind = socket.socket(socket.AF_UNIX)
left_behind.bind('left_behind')
left_behind.close()
fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX)
print('ready', flush=True)
time.sleep(1000)
"""
        attacker = ctx.start(*s.words("bin", PYTHON, "-c", attempt))
        attacker.wait_for("ready", ctx.timeout_s)
        for by in ("root", "bin"):
            for name in ("bus", "other", "pipe", "file"):
                s.expect(by, "status", f"bin/{name}", status=1)
        for with_daemon in (True, False):
            if not with_daemon:
                s.kill_daemon()
            began = time.monotonic()
            listed = s.listed("root")
            took_s = time.monotonic() - began
            names = {name for _, name in listed}
            if not {"good", "first"} <= names or names - {"good", "first", "mute"} or listed[pwd.getpwnam("daemon").pw_uid, "good"]["state"] != "recording":
                raise Failure(f"root sees {sorted(listed)}")
            if took_s > 10:
                raise Failure(f"one socket that does not answer holds up ps for {took_s:.1f} s")
        s.start_daemon()
        s.expect("daemon", "stop", "good")
        s.expect("bin", "stop", "first")


# A recorder that answers every call with the beginning of a message of 127 MiB, and others that say nothing. No double quotes: it becomes a word.
FLOOD = r"""
import os, socket, struct, sys, threading, time
def field(code, signature, value):
    head = bytes([code, 1]) + signature.encode() + b'\0'
    if signature == 'g': return head + bytes([len(value)]) + value.encode() + b'\0'
    return head + struct.pack('<I', len(value)) + value.encode() + b'\0'
fields = b''
for each in (field(1, 'o', '/a'), field(2, 's', 'a.b'), field(3, 's', 'c'), field(8, 'g', 's')):
    fields += bytes(-len(fields) % 8) + each
header = b'l\4\1\1' + struct.pack('<III', 127 << 20, 1, len(fields)) + fields
header += bytes(-len(header) % 8)
def flood(listener):
    while True:
        connection = listener.accept()[0]
        threading.Thread(target=answer, args=(connection,), daemon=True).start()
def answer(connection):
    try:
        connection.recv(1000)
        connection.sendall(b'DATA\r\nOK ' + b'0' * 32 + b'\r\nAGREE_UNIX_FD\r\n' + header)
        for _ in range(100): connection.sendall(bytes(1 << 20))
        time.sleep(1000)
    except OSError:
        pass
os.chdir(sys.argv[1])
listeners = []
for kind, count in (('flood', 4), ('mute', 12)):
    for i in range(count):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f'{kind}{i}')
        listener.listen(100)
        listeners.append(listener)
        if kind == 'flood': threading.Thread(target=flood, args=(listener,), daemon=True).start()
print('ready', flush=True)
time.sleep(1000)
"""


@test("sessions/flood")
def flood(ctx):
    """Whatever a user's sockets send, and however many say nothing, redrived stays small, and ps does not take longer."""
    with sessions(ctx, bus=True) as s:
        s.expect("bin", "start", "first", "--", "sleep", "1000")  # so that the directory exists
        directory = s.run_directory / str(pwd.getpwnam("bin").pw_uid)
        attacker = ctx.start(*s.words("bin", PYTHON, "-c", FLOOD, directory))
        attacker.wait_for("ready", ctx.timeout_s)
        began = time.monotonic()
        states = {name: session["state"] for (_, name), session in s.listed("root").items()}
        took_s = time.monotonic() - began
        if states.pop("first", None) != "recording" or len(states) != 16 or set(states.values()) != {"no answer"}:
            raise Failure(f"ps lists {states}")
        if took_s > 30:  # 12 times 5 s, one after the other
            raise Failure(f"ps took {took_s:.0f} s")
        for i in range(4):
            s.expect("root", "status", f"bin/flood{i}", status=1)
        peak_kib = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{s.daemon.pid}/status").read_text()).group(1))
        if peak_kib > 64 << 10:
            raise Failure(f"redrived took {peak_kib} KiB")
        s.expect("root", "stop", "bin/first")


@test("sessions/taken_name")
def taken_name(ctx):
    """A recording needs its name; one that systemd starts as a service goes on without: what the last start has left behind may have it still. Names of
    units may be long."""
    with sessions(ctx) as s:
        name = "backup-of-the-customer-database-to-the-remote-storage-bucket@eu-central-1.service"
        s.expect("root", "start", name, "--", "sleep", "1000")
        for environment, status in (({}, 125), ({"REDRIVE_SERVICE": "1"}, 0)):
            outcome = s.expect("root", "record", "--session", name, "-o", ctx.traces / f"taken{status}", "--", "true", env=environment, status=status)
            ctx.expect("there is a session" in outcome.stderr, outcome, "does not say that the name is taken")
        check_trace(ctx, ctx.traces / "taken0")
        s.expect("root", "stop", name)


@test("sessions/from_systemd")
def from_systemd(ctx):
    """What systemd says to the process that it starts is for the program: sockets, the watchdog, and its messages come from there."""
    script = r"""
my ($listen, $watchdog, $started) = @ENV{qw(LISTEN_PID WATCHDOG_PID SYSTEMD_EXEC_PID)};
print "others: $ENV{OTHER_PID}\n", join(" ", map { $_ == $$ ? "mine" : "not mine: $_" } $listen, $watchdog, $started), "\n";
"""
    starter = 'export LISTEN_PID=$$ WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=$$ OTHER_PID=$$; exec "$@"'
    for command in (["perl", "-e", script], [ctx.options.redrive, "record", "-o", ctx.trace, "--", "perl", "-e", script]):
        process = ctx.start("sh", "-c", starter, "sh", *command)
        outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
        ctx.expect(outcome.stdout == f"others: {process.pid}\nmine mine mine\n", outcome, "the program is told of another process")
    ctx.expect_status(ctx.redrive("replay", "--all", "--verify", ctx.trace), 0)


# Units of Debian packages, and what their drop-ins must have.
UNITS = {
    "nginx.service": ["KillMode=control-group", r"ExecStart=REDRIVE record --session %n --bound 2s -- /usr/sbin/nginx -g 'daemon on; master_process on;'"],
    "redis-server.service": ["NotifyAccess=all", "SystemCallFilter=", "ReadWritePaths=-/run/redrive -/var/lib/redrive/services/%n",
                             "ExecStartPre=+/usr/bin/install -d -m 0700 -o redis -g redis /var/lib/redrive/services/%n"],
    "ssh.service": ["NotifyAccess=all", "ExecStart=REDRIVE record --session %n --bound 2s -- /usr/sbin/sshd -D $SSHD_OPTS"],
    "postgresql@15-main.service": ["ExecStart=-REDRIVE record --session %n --bound 2s -- /usr/bin/pg_ctlcluster --skip-systemctl-redirect %i start"],
    "postgresql.service": ["ExecStart=REDRIVE record --session %n --bound 2s -- /bin/true"],
}


def copied_units(ctx):
    """A root directory with this system's unit files."""
    root = ctx.directory / "root"
    for directory in ("etc/systemd/system", "usr/lib/systemd/system"):
        (root / directory).mkdir(parents=True)
    for unit in ("nginx.service", "redis-server.service", "ssh.service", "postgresql.service", "postgresql@.service"):
        source = pathlib.Path("/lib/systemd/system") / unit
        if source.exists():
            (root / "usr/lib/systemd/system" / unit).write_text(source.read_text())
    return root


@test("sessions/services")
def services(ctx):
    """Real units are enabled and disabled; what is written is what systemd accepts."""
    needs("systemd-analyze")
    root = copied_units(ctx)
    redrive = os.path.realpath(ctx.options.redrive)
    there = [unit for unit in UNITS if (root / "usr/lib/systemd/system" / re.sub("@.*\\.", "@.", unit)).exists()]
    if not there:
        raise Skip("none of the services is installed")
    for unit in there:
        outcome = ctx.expect_status(ctx.redrive("service", "--root", root, "enable", unit, "--bound", "2s"), 0)
        drop_in = root / "etc/systemd/system" / f"{unit}.d" / "redrive.conf"
        lines = drop_in.read_text().splitlines()
        for wanted in UNITS[unit]:
            ctx.expect(wanted.replace("REDRIVE", redrive) in lines, outcome, f"its drop-in has no '{wanted}': {lines}")
        ctx.expect(drop_in.stat().st_mode & 0o777 == 0o644, outcome, "others cannot read its drop-in")
        again = drop_in.read_text()
        ctx.expect_status(ctx.redrive("service", "--root", root, "enable", unit, "--bound", "2s"), 0)
        ctx.expect(drop_in.read_text() == again, outcome, "enabling it again changes the drop-in")
    verify_units(ctx, root, there)
    for unit in there:
        ctx.expect_status(ctx.redrive("service", "--root", root, "disable", unit), 0)
        ctx.expect_status(ctx.redrive("service", "--root", root, "disable", unit), 1)
    if list((root / "etc/systemd/system").iterdir()):
        raise Failure("something is left of the drop-ins")


def verify_units(ctx, root, units):
    """systemd's own judgement, of the units where it looks for them."""
    path = f"{root}/etc/systemd/system:{root}/usr/lib/systemd/system:"  # and then those of this system
    names = [unit for unit in units if "@" not in unit or pathlib.Path("/usr/bin/pg_ctlcluster").exists()]
    outcome = ctx.run("systemd-analyze", "verify", "--man=no", *names, env={"SYSTEMD_UNIT_PATH": path})
    complaints = [line for line in outcome.stderr.splitlines() if any(unit in line or "redrive.conf" in line for unit in names)]
    ctx.expect(not complaints, outcome, "systemd does not like the drop-ins")


@test("sessions/refused_services")
def refused_services(ctx):
    root = ctx.directory / "root"
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "forks.service").write_text("[Service]\nType=forking\nExecStart=/bin/true\n")
    (units / "late.service").write_text("[Service]\nExecStart=/bin/true\n")
    (units / "late.service.d").mkdir()
    (units / "late.service.d" / "zz.conf").write_text("[Service]\nExecStart=\nExecStart=/bin/false\n")
    for unit, why in (("forks", "PIDFile="), ("late", "zz.conf"), ("none", "no unit file"), ("dbus.service", "no unit file")):
        outcome = ctx.expect_status(ctx.redrive("service", "--root", root, "enable", unit), 1)
        ctx.expect(outcome.stderr.count("\n") == 1 and why in outcome.stderr, outcome, f"does not say '{why}' in one line")
    for words in (["enable"], ["enable", "a.socket"], ["enable", "late", "--bound", "x"], ["enable", "late", "-o", "x"], ["enable", "late", "ls"],
                  ["disable", "late", "--bound", "2s"], ["start", "late"]):
        ctx.expect_status(ctx.redrive("service", "--root", root, *words), 2)
    if sorted(file.name for file in units.rglob("*")) != ["forks.service", "late.service", "late.service.d", "zz.conf"]:
        raise Failure("a refused service has changed something")


class Service:
    """A service of the test's own, started from its drop-in as systemd would start it: first what comes before, as root, then its command, as its
    user, with the drop-in's environment."""

    def __init__(self, s, name, text, user):
        self.s, self.name, self.user = s, name, user
        root = s.ctx.directory / "root"
        units = root / "etc/systemd/system"
        units.mkdir(parents=True)
        (units / name).write_text(text)
        s.ctx.expect_status(s.ctx.redrive("service", "--root", root, "enable", name, "--bound", "5s"), 0)
        self.traces = s.ctx.directory / "services" / name
        self.settings = {}
        for line in (units / f"{name}.d" / "redrive.conf").read_text().splitlines():
            if line.startswith(("#", "[")):
                continue
            key, value = line.split("=", 1)
            self.settings[key] = value.replace("/var/lib/redrive/services/%n", str(self.traces)).replace("%n", name)

    def start(self, notify=""):
        ctx = self.s.ctx
        (ctx.directory / "services").mkdir(mode=0o755)
        ctx.expect_status(ctx.run(*shlex.split(self.settings["ExecStartPre"].removeprefix("+"))), 0)
        environment = dict(word.split("=", 1) for word in self.settings["Environment"].split())
        words = ["setpriv", f"--reuid={self.user}", f"--regid={pwd.getpwnam(self.user).pw_gid}", "--init-groups", *shlex.split(self.settings["ExecStart"])]
        return ctx.start(*words, cwd="/", env={**self.s.env, **environment, "HOME": "", "NOTIFY_SOCKET": notify})

    def verify(self):
        trace, = (path for path in self.traces.iterdir() if (path / "journal").exists() and not path.is_symlink())
        if trace.stat().st_uid != pwd.getpwnam(self.user).pw_uid or trace.stat().st_mode & 0o077:
            raise Failure(f"{trace} does not belong to the service's user alone")
        self.s.verify("root", trace)


@test("sessions/notifying_service", timeout_s=300)
def notifying_service(ctx):
    """redis-server, Type=notify: its own process says that it is ready, and the process that systemd knows ends with its status."""
    needs("redis-server", "redis-cli")
    with sessions(ctx, bus=True) as s:
        port = free_port()
        data = s.home("daemon")
        command = f"/usr/bin/redis-server --port {port} --bind 127.0.0.1 --dir {data} --save '' --supervised systemd --daemonize no"
        service = Service(s, "own-redis.service", f"[Service]\nType=notify\nUser=daemon\nExecStart={command}\n", "daemon")
        if service.settings["NotifyAccess"] != "all":
            raise Failure("systemd would not hear it")
        path = ctx.directory / "ready"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(path))
            path.chmod(0o777)
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            notify.settimeout(ctx.timeout_s)
            main = service.start(notify=str(path))
            said, credentials = "", b""
            while "READY=1" not in said:
                data, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(12))
                said, credentials = data.decode(), ancillary[0][2]
        program = s.status("root", "daemon/own-redis.service")["program"]
        if int.from_bytes(credentials[:4], sys.byteorder) != program:
            raise Failure("somebody else than the program says that it is ready")
        outcome = ctx.run("redis-cli", "-p", port, "incr", "x")
        ctx.expect(outcome.stdout.strip() == "1", outcome, "the service does not serve")
        os.kill(main.pid, signal.SIGTERM)
        ctx.expect_status(main.finish(ctx.timeout_s), 0)
        service.verify()


@test("sessions/forking_service", timeout_s=300)
def forking_service(ctx):
    """nginx, Type=forking: what systemd starts ends when the service is there, PIDFile= names its main process, and the recording goes on until the
    last process has ended."""
    needs("nginx")
    with sessions(ctx, bus=True) as s:
        port = free_port()
        home = ctx.directory / "nginx"
        (home / "html").mkdir(parents=True)
        home.chmod(0o755)
        (home / "html" / "index.html").write_text("hello\n")
        pid_file = home / "pid"
        (home / "conf").write_text(f"""
user daemon; worker_processes 2; pid {pid_file}; error_log {home}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {home}/t1; proxy_temp_path {home}/t2; fastcgi_temp_path {home}/t3; uwsgi_temp_path {home}/t4;
  scgi_temp_path {home}/t5; server {{ listen 127.0.0.1:{port}; location / {{ root {home}/html; }} }} }}
""")
        nginx = f"/usr/sbin/nginx -c {home}/conf -e {home}/error.log -g 'daemon on; master_process on;'"
        service = Service(s, "own-nginx.service", f"[Service]\nType=forking\nPIDFile={pid_file}\nKillMode=mixed\nExecStart={nginx}\n", "root")
        started = service.start()
        if not started.ends_within(ctx.timeout_s) or started.process.wait() != 0:
            raise started.failure("does not end as a service that forks")
        master = int(pid_file.read_text())
        status = s.status("root", "own-nginx.service")
        if status["processes"] != 3 or status["command"][0] != "/usr/sbin/nginx":
            raise Failure(f"nginx has a master and two workers: {status}")
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=ctx.timeout_s) as answer:
                if answer.read() != b"hello\n":
                    raise Failure("the service does not serve")
        os.kill(master, signal.SIGHUP)
        s.expect("root", "checkpoint", "own-nginx.service")
        os.kill(master, signal.SIGQUIT)
        ctx.wait_until("the session is gone", lambda: not s.listed("root"))
        service.verify()
