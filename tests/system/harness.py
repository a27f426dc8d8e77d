"""What every system test stands on: the list of tests, a directory and processes of its own for each, and failures that say how to
see them again. Knows nothing of what is tested.

A test is a function of a Context, registered by @test(NAME). It returns if all is right, and raises Failure or Skip. All it starts
runs in sessions of its own, and whatever is left of those is killed when the call ends; nothing else ever is."""
import dataclasses
import errno
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SHOWN_LINES = 12  # of a failed command's output
SHOWN_REPORT = 8000  # characters of a sanitizer's report
BUSY_S = 10       # how long a program that is to be started may be open for writing


class Failure(Exception):
    pass


class Skip(Exception):
    pass


@dataclasses.dataclass
class Test:
    name: str              # "group/topic"
    run: object
    timeout_s: float       # for each command
    slow: bool             # only with --all, or if asked for by name
    alone: bool = False    # not at the same time as others: it takes fixed ports, or most of the machine


TESTS_BY_NAME = {}


def test(name, timeout_s=120, slow=False, alone=False):
    def register(function):
        assert name not in TESTS_BY_NAME, name
        TESTS_BY_NAME[name] = Test(name, function, timeout_s, slow, alone)
        return function
    return register


@dataclasses.dataclass
class Options:
    redrive: pathlib.Path
    build: pathlib.Path    # where build/ and compiled test programs are
    keep: bool = False
    timeout_factor: float = 1.0


@dataclasses.dataclass
class Outcome:
    command: list
    status: int            # as a shell says it: 128 + N after signal N
    stdout: str
    stderr: str
    seconds: float
    shown: str             # what to type to run it again


class Told(dict):
    """The JSON output of a command, and the command line to run it again."""

    def __init__(self, said, shown):
        super().__init__(said)
        self.shown = shown


def session_members(session):
    """Processes of a session that we started, and their groups. A process whose first thread has ended may live on in other threads."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
                if int(fields[3]) == session and (fields[0] != "Z" or len(os.listdir(f"/proc/{entry}/task")) > 1):
                    members.append((int(entry), int(fields[2])))
            except OSError:
                continue
    return members


def kill_session(session):
    for _, group in session_members(session):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


live_processes = set()
ending = threading.Event()


def interrupt_all():
    """Ends everything that tests have started, and lets them start nothing any more."""
    ending.set()
    for process in list(live_processes):
        process.kill()


class Process:
    """A command in a session of its own, its output in files, so that it can be read while it runs."""

    def __init__(self, command, cwd, env, shown, directory):
        self.command, self.shown, self.start = [str(word) for word in command], shown, time.monotonic()
        self.files = [tempfile.TemporaryFile("w+", dir=directory, errors="replace") for _ in range(2)]
        self.process = self.started(cwd, env)
        self.pid = self.process.pid
        live_processes.add(self)
        if ending.is_set():
            self.kill()
            raise KeyboardInterrupt

    def started(self, cwd, env):
        while True:
            try:
                return subprocess.Popen(self.command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=self.files[0],
                                        stderr=self.files[1], start_new_session=True)
            except OSError as error:
                # A program that was copied a moment ago: what another thread starts has the copy open until it executes.
                if error.errno != errno.ETXTBSY or time.monotonic() - self.start > BUSY_S:
                    raise
                time.sleep(0.01)

    def output(self, which=0):
        # pread: the position belongs to the writer too.
        data = b""
        while more := os.pread(self.files[which].fileno(), 1 << 20, len(data)):
            data += more
        return data.decode(errors="replace")

    def wait_for(self, text, timeout_s, which=0):
        """Waits until its standard output (or, with 1, its standard error) contains the text."""
        limit = time.monotonic() + timeout_s
        while text not in self.output(which):
            if self.has_ended():
                raise self.failure(f"ended before it said '{text}'")
            if time.monotonic() > limit:
                raise self.failure(f"did not say '{text}' within {timeout_s:g} s")
            time.sleep(0.02)

    def finish(self, timeout_s):
        ended = self.ends_within(timeout_s)
        seconds = time.monotonic() - self.start
        self.kill()
        if not ended:
            raise self.failure(f"still runs after {timeout_s:g} s")
        status = self.process.wait()
        status = 128 - status if status < 0 else status
        outcome = Outcome(self.command, status, self.output(0), self.output(1), seconds, self.shown)
        self.close()
        return outcome

    def has_ended(self):
        """Leaves it a zombie, unlike Popen.poll: until kill() has ended its session, nobody else may get its number."""
        return self.process.returncode is not None or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def ends_within(self, timeout_s):
        """Popen.wait looks only every 50 ms."""
        if self.has_ended():
            return True
        process = os.pidfd_open(self.pid)
        try:
            return bool(select.select([process], [], [], timeout_s)[0])
        finally:
            os.close(process)

    def failure(self, what):
        return Failure(describe(what, self.shown, self.output(0), self.output(1)))

    def kill(self):
        if self.process.returncode is None:
            kill_session(self.pid)
            self.process.kill()
            self.process.wait()

    def close(self):
        live_processes.discard(self)
        for file in self.files:
            file.close()


def describe(what, shown, stdout, stderr):
    lines = [what, f"  command: {shown}"]
    for name, text in (("stdout", stdout), ("stderr", stderr)):
        tail = text.splitlines()[-SHOWN_LINES:]
        lines += [f"  {name}: {line[:400]}" for line in tail]
    return "\n".join(lines)


class Context:
    """One run of one test: its directories, its environment, and the ways to run commands in them."""

    def __init__(self, options, test_case):
        self.options, self.test = options, test_case
        self.timeout_s = test_case.timeout_s * options.timeout_factor
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rd-", dir=os.environ.get("TMPDIR", "/tmp")))
        self.directory.chmod(0o755)  # servers drop privileges
        self.work = self.directory / "work"      # where recorded programs run; gone before the replay
        self.home = self.directory / "home"
        self.traces = self.directory / "traces"  # REDRIVE_TRACE_DIR
        for directory in (self.work, self.home, self.traces):
            directory.mkdir()
        self.trace = self.traces / "t"
        self.running = []
        self.env = self._environment()

    def _environment(self):
        dropped = ("MAKE", "MFLAGS", "REDRIVE", "PYTHON", "PYENV", "GIT_", "LC_", "NO_COLOR")
        env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        env.update(REDRIVE_TRACE_DIR=str(self.traces), REDRIVE_CACHE_DIR=str(self.directory / "cache"), HOME=str(self.home), TMPDIR=str(self.home), LANG="C.UTF-8")
        return env

    def fresh_work(self):
        """An empty working directory: programs run natively, then recorded, from the same start."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        return self.work

    def start(self, *command, cwd=None, env=None):
        cwd = cwd or self.directory
        changes = {"REDRIVE_TRACE_DIR": str(self.traces), **(env or {})}
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in changes.items())
        shown = f"cd {cwd} && {settings} {shlex.join(str(word) for word in command)}"
        process = Process(command, cwd, {**self.env, **(env or {})}, shown, self.directory)
        self.running.append(process)
        return process

    def run(self, *command, cwd=None, env=None, timeout_s=None):
        return self.start(*command, cwd=cwd, env=env).finish(timeout_s or self.timeout_s)

    def redrive(self, *words, **how):
        return self.run(self.options.redrive, *words, **how)

    def start_redrive(self, *words, **how):
        return self.start(self.options.redrive, *words, **how)

    def json(self, *words, statuses=(0,), **how):
        """The JSON output of a redrive command."""
        outcome = self.expect_status(self.redrive(*words, "--json", **how), *statuses)
        self.expect(words[0] == "dump" or outcome.stdout.count("\n") == 1, outcome, "does not write its JSON on one line")
        try:
            said = json.loads(outcome.stdout)
        except ValueError as error:
            raise self.wrong(outcome, f"writes no JSON: {error}") from None
        return Told(said, outcome.shown) if isinstance(said, dict) else said

    def wait_until(self, what, condition):
        limit = time.monotonic() + self.timeout_s
        while not condition():
            if time.monotonic() > limit:
                raise Failure(f"{what}: not within {self.timeout_s:g} s")
            time.sleep(0.02)

    def wrong(self, outcome, what):
        return Failure(describe(what, outcome.shown, outcome.stdout, outcome.stderr))

    def expect(self, condition, outcome, what):
        if not condition:
            raise self.wrong(outcome, what)

    def expect_status(self, outcome, *statuses):
        """A replay that was only late, because others used the processors, counts as successful."""
        if 0 in statuses and "replay" in outcome.command:
            statuses = (*statuses, 5)
        wanted = " or ".join(map(str, statuses))
        self.expect(outcome.status in statuses, outcome, f"exit status {outcome.status}, not {wanted}")
        return outcome

    def sanitizer_reports(self):
        """What a sanitizer build has reported since then (base/sanitizer_reports.cc)."""
        files = sorted(self.traces.parent.glob(f"{self.traces.name}.report.*"))
        return [file.read_text(errors="replace")[:SHOWN_REPORT] for file in files]

    def end_processes(self):
        for process in self.running:
            process.kill()
            process.close()

    def close(self):
        if not self.options.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def compiled(options, source, *, compiler="gcc", flags=(), directory="programs", headers=()):
    """The binary of a C or C++ source below tests/, built again if the source, a header below tests/ or one of `headers` is newer."""
    inputs = [source, *TESTS.glob("*/*.h"), *headers]
    return built(options, source, directory, lambda made: [*compiler.split(), "-g", "-pthread", str(source), "-o", made, *flags], inputs=inputs)


def workload(options, name, *flags):
    """The binary of a C program of tests/workloads that needs no MPI."""
    return compiled(options, TESTS / "workloads" / f"{name}.c", flags=["-O2", "-lm", *flags], directory="workloads")


def go_compiled(options, source):
    """The static binary of a Go source."""
    env = {"CGO_ENABLED": "0", "GO111MODULE": "off", "GOCACHE": str(options.build / "tests" / "go-cache")}
    return built(options, source, "workloads", lambda made: ["go", "build", "-o", made, str(source)], env)


compile_lock = threading.Lock()


def built(options, source, directory, command_for, env=None, inputs=None):
    binary = options.build / "tests" / directory / source.stem
    inputs = inputs or [source, *source.parent.glob("*.h")]
    with compile_lock:
        if binary.exists() and all(file.stat().st_mtime < binary.stat().st_mtime for file in inputs):
            return binary
        binary.parent.mkdir(parents=True, exist_ok=True)
        made = binary.with_suffix(".new")
        command = command_for(str(made))
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode != 0:
            raise Failure(describe("does not compile", shlex.join(command), done.stdout, done.stderr))
        made.rename(binary)
    return binary


def needs_of_host(ctx, name):
    """Skips the test where `redrive check --host` says that the machine lacks this."""
    checks = {check["name"]: check for check in ctx.json("check", "--host")["checks"]}
    if not checks[name]["ok"]:
        raise Skip(f"{name}: {checks[name]['detail']}")


def needs(*programs):
    for program in programs:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            raise Skip(f"no {program} here")
