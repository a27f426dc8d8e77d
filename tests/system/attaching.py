"""Group attach: programs that run already are recorded for a while and run on. Their clients see no error, nothing is left in them, and every
interval is re-driven."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import time

from harness import TESTS, Failure, Skip, compiled, needs, test
from redriving import check_report, check_trace, free_port, is_root, redrive_all

PYTHON = "/usr/bin/python3"
ROUNDS = 20          # of the slow tests
RECORDED = "2s"
PAUSE_S = 0.050      # what a pause may take, apart from the memory
PAUSE_S_PER_GB = 0.025


def tree(root):
    """The process and its descendants."""
    found = [root]
    for pid in found:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def status_of(pid, name):
    return re.search(rf"^{name}:\s*(\S+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE).group(1)


def own_vdso():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        start, end = re.search(r"^(\w+)-(\w+) .*\[vdso\]$", maps.read(), re.MULTILINE).groups()
        memory.seek(int(start, 16))
        return memory.read(int(end, 16) - int(start, 16))


def patched_places(pid):
    """Where its code differs from what its files and the kernel hold."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            match = re.match(r"(\w+)-(\w+) r-xp (\w+) \S+ (\d+)\s+(.*)", line)
            if not match or match.group(5) == "[vsyscall]":
                continue
            start, end, offset = (int(match.group(i), 16) for i in (1, 2, 3))
            memory.seek(start)
            held = memory.read(end - start)
            if match.group(5) == "[vdso]":
                wanted = own_vdso()
            elif match.group(4) == "0" or not os.path.exists(match.group(5)):
                continue
            else:
                with open(match.group(5), "rb") as file:
                    file.seek(offset)
                    wanted = file.read(end - start)
            if held[:len(wanted)] != wanted:
                at = next(i for i, (a, b) in enumerate(zip(held, wanted)) if a != b)
                found.append(f"{match.group(5)} at {start + at:#x}")
    return found


def check_native(root):
    """Nothing of the recorder is left in the process and its descendants."""
    for pid in tree(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{pid}/task"):
                if status_of(task, "TracerPid") != "0" or status_of(task, "State") in "tT":
                    raise Failure(f"thread {task} of process {pid} is still traced, or stopped")
            if patched := patched_places(pid):
                raise Failure(f"the code of process {pid} differs: {', '.join(patched[:5])}")
            zombies = [child for child in tree(pid)[1:] if status_of(child, "State") == "Z" and status_of(child, "PPid") == str(pid)]
            if len(zombies) > 2:  # the program may not have waited for one of its own yet
                raise Failure(f"process {pid} has {len(zombies)} children that have ended")


def attach(ctx, pid, *, duration=RECORDED, options=("--checkpoint-period", "200ms")):
    """Records the process for a while, and re-drives all that was recorded. Returns the JSON of ls."""
    shutil.rmtree(ctx.trace, ignore_errors=True)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", pid, "--for", duration, *options), 0)
    check_native(pid)
    check_trace(ctx)
    redrive_all(ctx)
    listed = ctx.json("ls", ctx.trace)
    first = [unit["intervals"][0] for unit in listed["units"] if unit["intervals"]]
    if not any(interval["checkpoint_kind"] == "image" for interval in first):
        raise Failure(f"no unit begins with an image: {listed}")
    return listed


def rounds_of(ctx):
    return range(ROUNDS if ctx.test.slow else 1)


def both(name, **how):
    """Registers the test twice: in short, and with all rounds (slow)."""
    def register(function):
        test(f"attach/{name}", **how)(function)
        test(f"attach/{name}_rounds", timeout_s=600, slow=True)(function)
        return function
    return register


def wait_until(what, condition, timeout_s):
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise Failure(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)


def answers(port):
    def connects():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    return connects


@both("threads")
def threads(ctx):
    """A program of 13 threads that checks every result, and makes threads and processes meanwhile."""
    ctx.fresh_work()
    binary = compiled(ctx.options, TESTS / "workloads" / "long_running.c", flags=["-O1"], directory="workloads")
    process = ctx.start(binary, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    for _ in (*rounds_of(ctx), None):
        attach(ctx, process.pid)
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout == "ready\nok\n", outcome, "wrong output")


@both("redis")
def redis(ctx):
    needs("redis-server", "redis-benchmark", "redis-cli")
    port = free_port()
    server = ctx.start("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", ctx.work, "--save", "", cwd=ctx.work)
    wait_until("redis-server listens", answers(port), ctx.timeout_s)
    for _ in rounds_of(ctx):
        clients = ctx.start("redis-benchmark", "-p", port, "-c", 20, "-n", 100_000_000, "-t", "set,get", "-q")
        listed = attach(ctx, server.pid)
        if sum(interval["events"] for unit in listed["units"] for interval in unit["intervals"]) < 1000:
            raise Failure("hardly anything was recorded")
        if clients.process.poll() is not None or re.search("error|refused|closed", clients.output(0) + clients.output(1), re.IGNORECASE):
            raise clients.failure("its clients have seen an error")
        clients.kill()
        ctx.expect_status(ctx.run("redis-cli", "-p", port, "ping"), 0)


NGINX = """
{user}daemon off; worker_processes 2; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 256; }}
http {{ access_log access.log; server {{ listen 127.0.0.1:{port}; location / {{ root html; }} }} }}
"""


@both("nginx")
def nginx(ctx):
    """The master and its workers, while clients load a page; and a worker alone."""
    needs("nginx", "ab")
    port = free_port()
    (ctx.work / "html").mkdir()
    (ctx.work / "html" / "page").write_text("page\n" * 5000)
    (ctx.work / "nginx.conf").write_text(NGINX.format(port=port, user="user root; " if is_root() else ""))
    server = ctx.start("nginx", "-p", ctx.work, "-c", "nginx.conf", "-e", "error.log", cwd=ctx.work,
                       env={"PATH": os.environ["PATH"] + ":/usr/sbin"})
    wait_until("nginx listens", answers(port), ctx.timeout_s)
    for i in rounds_of(ctx):
        clients = ctx.start("ab", "-q", "-s", 60, "-t", 600, "-n", 100_000_000, "-c", 8, f"http://127.0.0.1:{port}/page")
        workers = tree(server.pid)[1:]
        attach(ctx, server.pid if i % 2 == 0 else workers[i % len(workers)])
        if clients.process.poll() is not None:
            raise clients.failure("the clients have ended")
        os.kill(clients.pid, signal.SIGINT)
        outcome = clients.finish(ctx.timeout_s)
        failed = re.search(r"Failed requests: *(\d+)", outcome.stdout)
        ctx.expect(failed and failed.group(1) == "0" and "Non-2xx" not in outcome.stdout, outcome, "its clients have seen an error")
    log = (ctx.work / "error.log").read_text()
    if "alert" in log or "exited" in log:
        raise Failure(f"nginx noticed: {log[-400:]}")


@both("postgres", timeout_s=300)
def postgres(ctx):
    """PostgreSQL with its backends under pgbench: one unit, because they share memory."""
    directories = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not directories or not is_root():
        raise Skip("no PostgreSQL here, or not root")
    bin_directory = directories[-1]
    data = ctx.work / "pg"
    data.mkdir()
    shutil.chown(data, "postgres")

    def run(program, *words):
        return ctx.expect_status(ctx.run("runuser", "-u", "postgres", "--", bin_directory / program, *words, cwd=data), 0)

    run("initdb", "-D", data / "data", "-U", "postgres", "--no-sync")
    server = ctx.start("runuser", "-u", "postgres", "--", bin_directory / "postgres", "-D", data / "data", "-k", data, "-c", "listen_addresses=", cwd=data)
    wait_until("PostgreSQL listens", lambda: list(data.glob(".s.PGSQL.*")) and (data / "data" / "postmaster.pid").exists()
               and "ready" in (data / "data" / "postmaster.pid").read_text(), ctx.timeout_s)
    postmaster = int((data / "data" / "postmaster.pid").read_text().splitlines()[0])
    run("pgbench", "-h", data, "-U", "postgres", "-i", "-q", "postgres")
    for _ in rounds_of(ctx):
        clients = ctx.start("runuser", "-u", "postgres", "--", bin_directory / "pgbench", "-h", data, "-U", "postgres", "-c", "4", "-T", "600", "postgres", cwd=data)
        wait_until("pgbench's backends are there", lambda: len(tree(postmaster)) > 8, ctx.timeout_s)
        attach(ctx, postmaster)
        if clients.process.poll() is not None or re.search("error|fatal|abort", clients.output(1), re.IGNORECASE):
            raise clients.failure("its clients have seen an error")
        clients.kill()
    if not run("psql", "-h", data, "-U", "postgres", "-Atc", "select count(*) from pgbench_accounts").stdout.startswith("100000"):
        raise Failure("PostgreSQL has lost rows")
    os.kill(postmaster, signal.SIGINT)
    server.finish(ctx.timeout_s)


THREADED = """
import hashlib, os, queue, threading
work, done = queue.Queue(), queue.Queue()
def serve():
    while (item := work.get()) is not None:
        digest = hashlib.sha256(str(item).encode() * 200).hexdigest()
        with open("/dev/null", "w") as file: file.write(digest)
        done.put((item, digest))
threads = [threading.Thread(target=serve) for _ in range(4)]
for thread in threads: thread.start()
print("ready", flush=True)
count = 0
while not os.path.exists("end"):
    for i in range(20): work.put(count + i)
    for i in range(20):
        item, digest = done.get(timeout=60)
        assert digest == hashlib.sha256(str(item).encode() * 200).hexdigest()
    count += 20
for _ in threads: work.put(None)
for thread in threads: thread.join()
print("ok")
"""


@both("python")
def python(ctx):
    needs(PYTHON)
    ctx.fresh_work()
    process = ctx.start(PYTHON, "-c", THREADED, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    for _ in rounds_of(ctx):
        attach(ctx, process.pid)
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout == "ready\nok\n", outcome, "wrong output")


JAVA = """
import java.util.concurrent.*;
public class Served {
  public static void main(String[] arguments) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    System.out.println("ready");
    for (int round = 0; !new java.io.File("end").exists(); ++round) {
      Future<?>[] results = new Future<?>[4];
      for (int i = 0; i < 4; i++) {
        final int k = i;
        results[i] = pool.submit(() -> {
          StringBuilder text = new StringBuilder();
          for (int j = 0; j < 2000; j++) text.append(j * k);
          return text.toString().hashCode();
        });
      }
      for (Future<?> result : results) result.get();
      Thread.sleep(5);
    }
    pool.shutdown();
    System.out.println("ok");
  }
}
"""


@both("java")
def java(ctx):
    needs("java", "javac")
    ctx.fresh_work()
    (ctx.work / "Served.java").write_text(JAVA)
    ctx.expect_status(ctx.run("javac", "Served.java", cwd=ctx.work), 0)
    process = ctx.start("java", "-cp", ".", "Served", cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    for _ in rounds_of(ctx):
        attach(ctx, process.pid)
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout.endswith("ok\n"), outcome, "wrong output")


@test("attach/ended_by_signal")
def ended_by_signal(ctx):
    """Without --for, SIGINT and SIGTERM to redrive end the recording, not the process; and the process may end first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        ticker = ctx.start(PYTHON, "-uc", "import time\nwhile True: time.sleep(0.05); print('tick')")
        ticker.wait_for("tick", ctx.timeout_s)
        recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
        wait_until("the recording begins", lambda: status_of(ticker.pid, "TracerPid") != "0", ctx.timeout_s)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 5), ctx.timeout_s)
        os.kill(recorder.pid, number)
        ctx.expect_status(recorder.finish(ctx.timeout_s), 0)
        check_native(ticker.pid)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 5), ctx.timeout_s)
        check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--verify"))
        shutil.rmtree(ctx.trace)
        ticker.kill()
    ending = ctx.start("sh", "-c", "sleep 1.5; exit 7")
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", ending.pid), 7)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--verify"))


@test("attach/confined")
def confined(ctx):
    """A program's filter (seccomp(2)) does not concern the calls that it makes for the recorder; it is applied to its own, and stays."""
    if not is_root():
        raise Skip("not root")
    binary = compiled(ctx.options, TESTS / "workloads" / "confined_ticker.c", directory="workloads")
    for words in ((), ("later",)):
        ctx.fresh_work()
        process = ctx.start(binary, *words, cwd=ctx.work)
        process.wait_for("tick\n", ctx.timeout_s)
        if words:
            shutil.rmtree(ctx.trace)
            recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", process.pid)
            wait_until("it is traced", lambda: status_of(process.pid, "TracerPid") != "0", ctx.timeout_s)
            (ctx.work / "confine").touch()
            process.wait_for("confined tick\n" * 3, ctx.timeout_s)
            os.kill(recorder.pid, signal.SIGTERM)
            ctx.expect_status(recorder.finish(ctx.timeout_s), 0)
            check_native(process.pid)
            redrive_all(ctx)
            shutil.rmtree(ctx.trace)
        attach(ctx, process.pid, options=("--checkpoint-period", "2ms"))
        if status_of(process.pid, "Seccomp") != "2":
            raise Failure("it has lost its filter")
        (ctx.work / "end").touch()
        outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
        ctx.expect(outcome.stdout.endswith("confined tick\nok\n"), outcome, "wrong output")


@test("attach/recorder_killed")
def recorder_killed(ctx):
    """If the recorder is killed, the process runs on, and what was recorded until then can be re-driven."""
    ticker = ctx.start(PYTHON, "-uc", "import time\nwhile True: time.sleep(0.05); print('tick')")
    ticker.wait_for("tick", ctx.timeout_s)
    recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
    wait_until("the recording begins", lambda: status_of(ticker.pid, "TracerPid") != "0", ctx.timeout_s)
    ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
    os.kill(recorder.pid, signal.SIGKILL)
    recorder.finish(ctx.timeout_s)
    wait_until("it is not traced any more", lambda: status_of(ticker.pid, "TracerPid") == "0", ctx.timeout_s)
    ticker.wait_for("tick\n" * (ticker.output().count("tick") + 5), ctx.timeout_s)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all"))


@test("attach/large")
def large(ctx):
    """The pause is that of a copy, whatever the memory."""
    source = "import mmap, time\nkept = bytearray(b'x' * 4096 * 100000)\nprint('ready', flush=True)\nwhile True: time.sleep(0.02)"
    process = ctx.start(PYTHON, "-c", source)
    process.wait_for("ready", ctx.timeout_s)
    pauses = []
    for _ in range(3):
        unit, = attach(ctx, process.pid, duration="500ms", options=())["units"]
        pauses.append(unit["intervals"][0]["pause_s"])
    resident_gb = int(status_of(process.pid, "VmRSS")) / 1e6
    if min(pauses) > PAUSE_S + PAUSE_S_PER_GB * resident_gb:
        raise Failure(f"pauses of {pauses} s with {resident_gb:.2f} GB")


def refused(ctx, pid, *parts):
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", pid, "--for", "1s"), 125)
    for part in parts:
        ctx.expect(part in outcome.stderr, outcome, f"does not say '{part}'")
    ctx.expect(outcome.stderr.count("\n") == 1, outcome, "says more than one line")
    ctx.expect(not ctx.trace.exists(), outcome, "has left a trace")


@test("attach/refused")
def refusals(ctx):
    """What cannot be attached to is said before anything is touched."""
    sleeper = ctx.start("sleep", "1000")
    tracer = ctx.start_redrive("record", "-o", ctx.traces / "other", "--pid", sleeper.pid)
    wait_until("it is traced", lambda: status_of(sleeper.pid, "TracerPid") != "0", ctx.timeout_s)
    refused(ctx, sleeper.pid, "traces it already")
    os.kill(tracer.pid, signal.SIGTERM)
    ctx.expect_status(tracer.finish(ctx.timeout_s), 0)
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_until("it has stopped", lambda: status_of(sleeper.pid, "State") == "T", ctx.timeout_s)
    refused(ctx, sleeper.pid, "is stopped", f"kill -CONT {sleeper.pid}")
    os.kill(sleeper.pid, signal.SIGCONT)
    refused(ctx, os.getpid(), "redrive itself")
    refused(ctx, 2, "kernel thread") if pathlib.Path("/proc/2/comm").exists() and pathlib.Path("/proc/2/comm").read_text() == "kthreadd\n" else None
    refused(ctx, 4_194_303, "there is no process")
    traced = ctx.start(PYTHON, "-c", "import time; time.sleep(1000)")
    outcome = ctx.redrive("record", "-o", "/proc/no/such", "--pid", traced.pid)
    ctx.expect(outcome.status == 125 and status_of(traced.pid, "TracerPid") == "0", outcome, "accepts this directory")
    for words, part in ((("--pid", "1", "true"), "command"), (("--for", "1s", "--", "true"), "--pid"), (("--pid", "0"), "--pid")):
        outcome = ctx.redrive("record", *words)
        ctx.expect(outcome.status == 2 and part in outcome.stderr, outcome, "accepts this")
    ring = ctx.start(PYTHON, "-c", "import ctypes, time\nparams = (ctypes.c_char * 120)()\n"
                     "print(ctypes.CDLL(None).syscall(425, 4, params), flush=True)\ntime.sleep(1000)")
    ring.wait_for("\n", ctx.timeout_s)
    if int(ring.output()) >= 0:
        refused(ctx, ring.pid, "io_uring")
