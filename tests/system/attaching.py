"""Group attach: programs that run already are recorded for a while and run on. Their clients see no error, nothing is left in them, and every
interval is re-driven."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import time

from harness import TESTS, Failure, Skip, compiled, needs, test, workload
from redriving import check_report, check_trace, free_port, is_root, redrive_all
from sessions import sessions

PYTHON = "/usr/bin/python3"
ROUNDS = 20          # of the slow tests
RECORDED = "2s"
PAUSE_S = 0.050      # what a pause may take, apart from the memory, where a fork of Python takes FORK_S
PAUSE_S_PER_GB = 0.025
FORK_S = 0.001


def tree(root):
    """The process and its descendants."""
    found = [root]
    for pid in found:
        with contextlib.suppress(OSError):  # it has ended
            for task in list(pathlib.Path(f"/proc/{pid}/task").iterdir()):
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
            if len(held) < end - start:  # it ends right now
                continue
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


def processors(root):
    """On which each thread of the process and its descendants may run."""
    found = {}
    for pid in tree(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update({int(task): os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{pid}/task")})
    return found


def resident_gb(root):
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError, AttributeError):  # it has ended
            total += int(status_of(pid, "VmRSS"))
    return total / 1e6


GATE = range(0x70000000, 0x70100000)  # where recorded programs have redrive's code


def ended_children(pid):
    return [child for child in tree(pid)[1:] if status_of(child, "State") == "Z" and status_of(child, "PPid") == str(pid)]


def check_native(root, before=None):
    """Nothing of the recorder is left in the process and its descendants. `before`: their processors()."""
    for task, allowed in processors(root).items():
        if before and task in before and before[task] != allowed:
            raise Failure(f"thread {task} may run on {allowed} only, not on {before[task]}")
    for pid in tree(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
            if "redrive" in maps or any(int(line.split("-")[0], 16) in GATE for line in maps.splitlines()):
                raise Failure(f"process {pid} has mappings of redrive")
            for task in os.listdir(f"/proc/{pid}/task"):
                tracer, state = status_of(task, "TracerPid"), status_of(task, "State")
                if tracer != "0" or state in "tT":
                    raise Failure(f"thread {task} of process {pid} ({status_of(task, 'Name')}, child of {status_of(task, 'PPid')}) "
                                  f"is still traced by {tracer}, or stopped: {state}")
            if patched := patched_places(pid):
                raise Failure(f"the code of process {pid} differs: {', '.join(patched[:5])}")
            limit = time.monotonic() + 10  # the program may not have waited for its own yet
            while len(zombies := ended_children(pid)) > 2:
                if time.monotonic() > limit:
                    raise Failure(f"process {pid} has {len(zombies)} children that have ended")
                time.sleep(0.05)


def attach(ctx, pid, *, duration=RECORDED, options=("--checkpoint-period", "200ms")):
    """Records the process for a while, and re-drives all that was recorded. Returns the JSON of ls."""
    shutil.rmtree(ctx.trace, ignore_errors=True)
    before = processors(pid)
    ctx.resident_gb = resident_gb(pid)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", pid, "--for", duration, *options), 0)
    check_native(pid, before)
    check_trace(ctx)
    redrive_all(ctx)
    listed = ctx.json("ls", ctx.trace)
    first = [unit["intervals"][0] for unit in listed["units"] if unit["intervals"]]
    vars(ctx).setdefault("pauses", []).append(max(interval["pause_s"] for interval in first))
    if not any(interval["checkpoint_kind"] == "image" for interval in first):
        raise Failure(f"no unit begins with an image: {listed}")
    return listed


def check_recorded(listed):
    """The program did its work meanwhile; how much of it depends on who else wants the processors, because every call stops."""
    if sum(interval["events"] for unit in listed["units"] for interval in unit["intervals"]) < 50:
        raise Failure("hardly anything was recorded")


def fork_s():
    """What a fork takes here: each pause is mostly one fork for each process."""
    def once():
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return time.perf_counter() - began
    return statistics.median(once() for _ in range(20))


def check_pauses(ctx):
    """The shortest, and only on a machine on which others leave processors."""
    if os.getloadavg()[0] > 2 * os.cpu_count():
        return
    limit_s = (PAUSE_S + PAUSE_S_PER_GB * ctx.resident_gb) * max(1, fork_s() / FORK_S)
    if min(ctx.pauses) > limit_s:
        raise Failure(f"pauses of {ctx.pauses} s with {ctx.resident_gb:.2f} GB: more than {limit_s:.3f} s")


def rounds_of(ctx):
    return range(ROUNDS if ctx.test.slow else 1)


def both(name, **how):
    """Registers the test twice: in short, and with all rounds (slow)."""
    def register(function):
        def measured(ctx):
            function(ctx)
            if ctx.test.slow:
                check_pauses(ctx)
        measured.__doc__ = function.__doc__
        test(f"attach/{name}", **how)(measured)
        test(f"attach/{name}_rounds", timeout_s=900, slow=True)(measured)
        return function
    return register


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
    ctx.wait_until("redis-server listens", answers(port))
    for _ in rounds_of(ctx):
        clients = ctx.start("redis-benchmark", "-p", port, "-c", 20, "-n", 100_000_000, "-t", "set,get", "-q")
        listed = attach(ctx, server.pid)
        check_recorded(listed)
        if clients.has_ended() or re.search("error|refused|closed", clients.output(0) + clients.output(1), re.IGNORECASE):
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
    """A worker, and with it those that share memory with it, and the master, while clients load a page."""
    needs("nginx", "ab")
    port = free_port()
    (ctx.work / "html").mkdir()
    (ctx.work / "html" / "page").write_text("page\n" * 5000)
    (ctx.work / "nginx.conf").write_text(NGINX.format(port=port, user="user root; " if is_root() else ""))
    server = ctx.start("nginx", "-p", ctx.work, "-c", "nginx.conf", "-e", "error.log", cwd=ctx.work,
                       env={"PATH": os.environ["PATH"] + ":/usr/sbin"})
    ctx.wait_until("nginx listens", answers(port))
    for i in rounds_of(ctx):
        clients = ctx.start("ab", "-q", "-s", 60, "-t", 600, "-n", 100_000_000, "-c", 8, f"http://127.0.0.1:{port}/page")
        workers = tree(server.pid)[1:]
        listed = attach(ctx, workers[i % len(workers)] if i % 2 == 0 else server.pid)
        check_recorded(listed)
        if len(listed["units"]) != 1:  # workers count their connections in memory that they share
            raise Failure(f"workers are in {len(listed['units'])} units")
        if clients.has_ended():
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
    ctx.wait_until("PostgreSQL listens", lambda: list(data.glob(".s.PGSQL.*")) and (data / "data" / "postmaster.pid").exists()
               and "ready" in (data / "data" / "postmaster.pid").read_text())
    postmaster = int((data / "data" / "postmaster.pid").read_text().splitlines()[0])
    run("pgbench", "-h", data, "-U", "postgres", "-i", "-q", "postgres")
    for _ in rounds_of(ctx):
        clients = ctx.start("runuser", "-u", "postgres", "--", bin_directory / "pgbench", "-h", data, "-U", "postgres", "-c", "4", "-T", "600", "postgres", cwd=data)
        ctx.wait_until("pgbench's backends are there", lambda: len(tree(postmaster)) > 8)
        attach(ctx, postmaster)
        if clients.has_ended() or re.search("error|fatal|abort", clients.output(1), re.IGNORECASE):
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


# Has ever new memory that its children would not get, or get empty (madvise(2)), and checks what is there. A recorder does not allow this advice.
ADVISED = """
import mmap, os
ADVICE = [mmap.MADV_DONTFORK, 18, None]  # 18: MADV_WIPEONFORK
held, i = [], 0
print("ready", flush=True)
while not os.path.exists("end"):
    memory = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        if ADVICE[i % 3] is not None: memory.madvise(ADVICE[i % 3])
    except OSError:
        pass
    memory[:16] = b"%16d" % i
    held.append((i, memory))
    for number, old in held: assert old[:16] == b"%16d" % number
    if len(held) > 40: held.pop(0)
    i += 1
print("ok")
"""


@both("advised")
def advised(ctx):
    needs(PYTHON)
    ctx.fresh_work()
    process = ctx.start(PYTHON, "-c", ADVISED, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    for _ in (*rounds_of(ctx), *range(4)):
        attach(ctx, process.pid, duration="300ms")
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout == "ready\nok\n", outcome, "wrong output")


# Its children do not get some memory, and get other memory empty: a replay that differs there writes something else into the pipe.
SET_ASIDE = """
import mmap, os, time
kept, wiped, absent = (mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(3))
for memory in kept, wiped, absent: memory[:4] = b"full"
wiped.madvise(18)  # MADV_WIPEONFORK
absent.madvise(mmap.MADV_DONTFORK)
reader, writer = os.pipe()
print("ready", flush=True)
while not os.path.exists("end"):
    child = os.fork()
    if child == 0:
        try: os.write(writer, memoryview(absent)[:4])
        except OSError: os._exit(7 if kept[:4] == b"full" and wiped[:4] == bytes(4) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    time.sleep(0.02)
print("ok")
"""


@test("attach/set_aside")
def set_aside(ctx):
    needs(PYTHON)
    ctx.fresh_work()
    process = ctx.start(PYTHON, "-c", SET_ASIDE, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    listed = attach(ctx, process.pid, duration="500ms")
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout == "ready\nok\n", outcome, "wrong output")
    if len(listed["units"]) < 2:
        raise Failure(f"no child was recorded: {listed}")


@both("handlers")
def handlers(ctx):
    """What a signal handler returns to is right if the recording has ended meanwhile."""
    ctx.fresh_work()
    binary = compiled(ctx.options, TESTS / "workloads" / "timed_handlers.c", flags=["-O1"], directory="workloads")
    process = ctx.start(binary, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    pauses = []
    for i in range(11 + len(rounds_of(ctx))):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", process.pid)
        ctx.wait_until("its functions are replaced", lambda: patched_places(process.pid))
        (ctx.work / "go").touch()
        process.wait_for("on\noff\n" * i + "on\n", ctx.timeout_s)
        os.kill(recorder.pid, signal.SIGTERM)
        ctx.expect_status(recorder.finish(ctx.timeout_s), 0)
        (ctx.work / "go").unlink()
        process.wait_for("on\noff\n" * (i + 1), ctx.timeout_s)
        check_native(process.pid)
        redrive_all(ctx)
        pauses.append(max(unit["intervals"][0]["pause_s"] for unit in ctx.json("ls", ctx.trace)["units"]))
    ctx.pauses, ctx.resident_gb = pauses, resident_gb(process.pid)
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout.endswith("ok\n"), outcome, "wrong output")


NODE = """
let asked = 0;
const kept = [];
require("http").createServer((request, response) => {
  kept[asked % 100] = { number: asked, text: "x".repeat(asked % 5000) };
  setTimeout(() => response.end(`${asked++}`), 1);
}).listen(Number(process.argv[1]), "127.0.0.1");
"""


@both("node")
def node(ctx):
    """Its heap is not copied to children, and grows while it is being attached to."""
    needs("node", "curl")
    port = free_port()
    server = ctx.start("node", "-e", NODE, port, cwd=ctx.work)
    ctx.wait_until("node listens", answers(port))
    asks = f"for i in $(seq 100000); do curl -sf -o /dev/null -m 10 http://127.0.0.1:{port}/ || echo failed; done"
    client = ctx.start("sh", "-c", asks, cwd=ctx.work)
    rings = [name for name in os.listdir(f"/proc/{server.pid}/fd") if os.readlink(f"/proc/{server.pid}/fd/{name}") == "anon_inode:[io_uring]"]
    for _ in rounds_of(ctx):
        if rings:  # as in Debian 13
            outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", server.pid, "--for", "1s"), 125)
            ctx.expect("it uses io_uring" in outcome.stderr, outcome, "is not refused for what it uses")
        else:
            attach(ctx, server.pid)
    if "failed" in client.output():
        raise Failure("the client saw an error")


@test("attach/ended_by_signal")
def ended_by_signal(ctx):
    """Without --for, SIGINT and SIGTERM to redrive end the recording, not the process; and the process may end first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        ticker = ctx.start(PYTHON, "-uc", "import time\nwhile True: time.sleep(0.05); print('tick')")
        ticker.wait_for("tick", ctx.timeout_s)
        recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
        ctx.wait_until("the recording begins", lambda: status_of(ticker.pid, "TracerPid") != "0")
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


# Reads the clock all the time, with SIGTRAP ignored, or with all signals blocked and a handler.
READS_CLOCK = r"""
#include <signal.h>
#include <stdio.h>
#include <time.h>
static void handle(int signal) { (void)signal; }
int main(int count, char** arguments) {
  (void)arguments;
  sigset_t all;
  sigfillset(&all);
  if (count > 1) sigprocmask(SIG_BLOCK, &all, NULL);
  signal(SIGTRAP, count > 1 ? handle : SIG_IGN);
  puts("reads");
  fflush(stdout);
  for (struct timespec now;;) clock_gettime(CLOCK_MONOTONIC, &now);
}
"""


@test("attach/stepped_out_of_vdso")
def stepped_out_of_vdso(ctx):
    """A thread that runs in the vDSO when it is attached to, or let go, keeps what its process does about SIGTRAP, and its signal mask."""
    (ctx.work / "reads_clock.c").write_text(READS_CLOCK)
    ctx.expect_status(ctx.run("gcc", "-O1", "-o", ctx.work / "reads_clock", ctx.work / "reads_clock.c"), 0)

    def kept(pid):
        return {name: status_of(pid, name) for name in ("SigBlk", "SigIgn", "SigCgt")}

    for arguments in ((), ("blocked",)):
        process = ctx.start(ctx.work / "reads_clock", *arguments)
        process.wait_for("reads", ctx.timeout_s)
        before = kept(process.pid)
        for _ in range(3):
            attach(ctx, process.pid, duration="100ms")
            if kept(process.pid) != before:
                raise Failure(f"what was {before} is {kept(process.pid)}")
        process.kill()


# Two threads leave below their stacks what no recording holds, as the dynamic linker does that was chosen before: XSAVE stores what depends on when
# the kernel last switched threads. Here it is random, so that it always differs. Only the second form leaves it where it is used.
UNUSED_STACK = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
static volatile uint64_t used;
static int uses;
static __attribute__((noinline)) void leave(void) {
  uint64_t random;
  asm volatile("rdrand %0; mov %0, -0x2000(%%rsp)" : "=r"(random) : : "memory", "cc");
  if (uses) used = random;
  asm volatile("xor %0, %0" : "=r"(random) : : "cc");
}
static void* loop(void* nothing) {
  for (;;) {
    leave();
    for (volatile int i = 0; i < 300000; ++i);
    usleep(1000);
  }
  return nothing;
}
int main(int count, char** arguments) {
  (void)arguments;
  uses = count > 1;
  pthread_t thread;
  pthread_create(&thread, NULL, loop, NULL);
  puts("loops");
  fflush(stdout);
  loop(NULL);
}
"""


@test("attach/unused_stack")
def unused_stack(ctx):
    """Differences in stacks that nothing uses are none; the same difference elsewhere is found."""
    if "rdrand" not in pathlib.Path("/proc/cpuinfo").read_text().split():
        raise Skip("the processor makes no random numbers")
    (ctx.work / "unused_stack.c").write_text(UNUSED_STACK)
    ctx.expect_status(ctx.run("gcc", "-O1", "-pthread", "-o", ctx.work / "unused_stack", ctx.work / "unused_stack.c"), 0)
    process = ctx.start(ctx.work / "unused_stack")
    process.wait_for("loops", ctx.timeout_s)
    period = "--checkpoint-period", "50ms"
    listed = attach(ctx, process.pid, duration="1s", options=period)
    if len(listed["units"][0]["intervals"]) < 2:
        raise Failure(f"no interval ends at a checkpoint: {listed}")
    process.kill()
    process = ctx.start(ctx.work / "unused_stack", "uses")
    process.wait_for("loops", ctx.timeout_s)
    shutil.rmtree(ctx.trace)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--pid", process.pid, "--for", "1s", *period), 0)
    process.kill()
    ctx.expect_status(ctx.redrive("replay", ctx.trace, "--all", "--verify"), 3)


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
            ctx.wait_until("it is traced", lambda: status_of(process.pid, "TracerPid") != "0")
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


def recorder_of(pid, ctx):
    """The process that traces this one, once there is one."""
    ctx.wait_until("the recording begins", lambda: status_of(pid, "TracerPid") != "0")
    return int(status_of(pid, "TracerPid"))


SHELL = ("sh", "-c", "while true; do /bin/sleep 0.02 || exit; echo tick; done")
SELDOM = ("sh", "-c", "while true; do /bin/sleep 0.2 || exit; echo tick; done")
SLEEPER = (PYTHON, "-uc", "import time\nwhile True: time.sleep(0.02); time.time(); print('tick')")


def wait_asleep(pid, ctx):
    """A program that starts reads the counter, and cannot be saved at that moment (redrive(1), ATTACHING): now none starts."""
    def asleep():
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{tree(pid)[-1]}/syscall").read_text().startswith("230 ")  # clock_nanosleep(2)
        return False
    ctx.wait_until("it sleeps", asleep)


@test("attach/recorder_killed", timeout_s=120)
def recorder_killed(ctx):
    """If the recorder is killed, the processes run on as before, and what was recorded until then can be re-driven."""
    for words in (SLEEPER, SELDOM) * 2:
        ticker = ctx.start(*words)
        ticker.wait_for("tick", ctx.timeout_s)
        before = processors(ticker.pid)
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
        tracer = recorder_of(ticker.pid, ctx)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
        wait_asleep(ticker.pid, ctx)
        os.kill(tracer, signal.SIGKILL)
        outcome = ctx.expect_status(recorder.finish(ctx.timeout_s), 128 + signal.SIGKILL)
        ctx.expect("run on without it;" in outcome.stderr, outcome, "does not say what has become of them")
        check_native(ticker.pid, before)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
        if ticker.output(1):
            raise ticker.failure("it does not run as before")
        check_report(ctx, ctx.json("replay", ctx.trace, "--all"))
        ticker.kill()


@test("attach/orphan")
def orphan(ctx):
    """If the recorder is killed, processes whose parent has ended run on, too."""
    source = ("import os, time\n"
              "print('ready', flush=True)\n"
              "while not os.path.exists('go'): time.sleep(0.02)\n"
              "if os.fork() == 0:\n"
              "    if os.fork() > 0: os._exit(0)\n"
              "    print(f'orphan {os.getpid()}.', flush=True)\n"
              "    while True: time.sleep(0.02); time.time(); print('tick', flush=True)\n"
              "os.wait()\n"
              "while True: time.sleep(0.02)")
    ctx.fresh_work()
    parent = ctx.start(PYTHON, "-c", source, cwd=ctx.work)
    parent.wait_for("ready", ctx.timeout_s)
    recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", parent.pid)
    tracer = recorder_of(parent.pid, ctx)
    (ctx.work / "go").touch()
    parent.wait_for("tick\n" * 10, ctx.timeout_s)
    child = int(re.search(r"orphan (\d+)\.", parent.output()).group(1))
    if child in tree(parent.pid):
        raise Failure("it is no orphan")
    os.kill(tracer, signal.SIGKILL)
    ctx.expect_status(recorder.finish(ctx.timeout_s), 128 + signal.SIGKILL)
    check_native(parent.pid)
    check_native(child)
    parent.wait_for("tick\n" * (parent.output().count("tick") + 10), ctx.timeout_s)


@test("attach/guard_killed")
def guard_killed(ctx):
    """If the process that the user has started is killed, the recorder lets the processes go; if both are, attaching again heals them."""
    ticker = ctx.start(*SLEEPER)
    ticker.wait_for("tick", ctx.timeout_s)
    before = processors(ticker.pid)
    guard = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
    recorder_of(ticker.pid, ctx)
    ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
    os.kill(guard.pid, signal.SIGKILL)
    ctx.wait_until("it is let go", lambda: status_of(ticker.pid, "TracerPid") == "0")
    guard.finish(ctx.timeout_s)  # ends the recorder, too
    check_native(ticker.pid, before)
    for how in ("run", "are stopped"):  # the guard is killed before it stops them (SIGSTOP), or after that
        guard = ctx.start_redrive("record", "-o", ctx.traces / how, "--pid", ticker.pid)
        tracer = recorder_of(ticker.pid, ctx)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
        os.kill(guard.pid, signal.SIGSTOP)
        threads = [int(task) for task in os.listdir(f"/proc/{guard.pid}/task")]
        ctx.wait_until("the guard is stopped", lambda: all(status_of(task, "State") == "T" for task in threads))
        wait_asleep(ticker.pid, ctx)
        os.kill(tracer, signal.SIGKILL)
        os.kill(guard.pid, signal.SIGKILL)
        guard.finish(ctx.timeout_s)
        ctx.wait_until("it is not traced any more", lambda: status_of(ticker.pid, "TracerPid") == "0")
        if how == "are stopped":
            os.kill(ticker.pid, signal.SIGSTOP)
            ctx.wait_until("it is stopped", lambda: status_of(ticker.pid, "State") == "T")
        ctx.expect_status(ctx.redrive("record", "-o", ctx.traces / f"after they {how}", "--pid", ticker.pid, "--for", "1ms"), 0)
        check_native(ticker.pid)
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)


@test("attach/session")
def session(ctx):
    """A recording that has attached can be a session, and `redrive stop` lets the process go."""
    ticker = ctx.start(*SLEEPER)
    ticker.wait_for("tick", ctx.timeout_s)
    before = processors(ticker.pid)
    with sessions(ctx) as s:
        s.expect("root", "start", "attached", "-o", ctx.trace, "--pid", ticker.pid)
        status = s.status("root", "attached")
        if status["program"] != ticker.pid or status["state"] != "recording":
            raise Failure(f"it is not the session of the process: {status}")
        ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
        s.expect("root", "checkpoint", "attached")
        s.expect("root", "stop", "attached")
    check_native(ticker.pid, before)
    ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)
    redrive_all(ctx)


@test("attach/signal_trigger")
def signal_trigger(ctx):
    """Each signal that redrive is sent for a trigger makes a snapshot, whichever of its two processes gets it. Others have no effect."""
    ticker = ctx.start(*SLEEPER)
    ticker.wait_for("tick", ctx.timeout_s)
    guard = ctx.start_redrive("record", "-o", ctx.trace, "--keep", "1m", "--trigger", "signal=USR1", "--pid", ticker.pid)
    recorder = recorder_of(ticker.pid, ctx)
    for number, process in enumerate((guard.pid, recorder), 1):
        os.kill(process, signal.SIGUSR2)
        os.kill(process, signal.SIGUSR1)
        guard.wait_for(f"snapshot in {ctx.trace}.snapshot-{number}", ctx.timeout_s, 1)
    os.kill(guard.pid, signal.SIGINT)
    ctx.expect_status(guard.finish(ctx.timeout_s), 0)
    check_native(ticker.pid)
    for snapshot in (1, 2):
        check_report(ctx, ctx.json("replay", f"{ctx.trace}.snapshot-{snapshot}", "--all", "--verify"))


@test("attach/forking")
def forking(ctx):
    """Processes that fork, vfork and end all the time are attached to amid all that."""
    source = ("import os, subprocess, threading\n"
              "def work():\n"
              "    while not os.path.exists('end'):\n"
              "        assert subprocess.run(['/bin/true']).returncode == 0\n"
              "        pid = os.fork()\n"
              "        if pid == 0: os._exit(7)\n"
              "        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
              "threads = [threading.Thread(target=work) for _ in range(3)]\n"
              "for thread in threads: thread.start()\n"
              "print('ready', flush=True)\n"
              "for thread in threads: thread.join()\n"
              "print('ok')")
    ctx.fresh_work()
    process = ctx.start(PYTHON, "-W", "ignore", "-c", source, cwd=ctx.work)
    process.wait_for("ready", ctx.timeout_s)
    for _ in range(5):
        attach(ctx, process.pid, duration="300ms")
    (ctx.work / "end").touch()
    outcome = ctx.expect_status(process.finish(ctx.timeout_s), 0)
    ctx.expect(outcome.stdout == "ready\nok\n" and not outcome.stderr, outcome, "it has noticed")


@test("attach/interrupted")
def interrupted(ctx):
    """Ctrl-C at any moment of the attaching leaves the process as it was."""
    ticker = ctx.start(*SLEEPER)
    ticker.wait_for("tick", ctx.timeout_s)
    before = processors(ticker.pid)
    for delay in range(12):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorder = ctx.start_redrive("record", "-o", ctx.trace, "--pid", ticker.pid)
        time.sleep(0.01 * delay)
        os.kill(recorder.pid, signal.SIGINT)
        outcome = recorder.finish(ctx.timeout_s)
        ctx.expect(outcome.status in (0, 125, 128 + signal.SIGINT), outcome, "ends otherwise")
        ctx.wait_until("it is let go", lambda: status_of(ticker.pid, "TracerPid") == "0")
        check_native(ticker.pid, before)
    ticker.wait_for("tick\n" * (ticker.output().count("tick") + 10), ctx.timeout_s)


@test("attach/namespace")
def namespace(ctx):
    """A process in a PID namespace of its own, and one that ends while it is attached to."""
    if not is_root():
        raise Skip("not root")
    holder = ctx.start("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *SHELL)
    holder.wait_for("tick", ctx.timeout_s)
    shell = tree(holder.pid)[1]
    attach(ctx, shell, duration="500ms")
    holder.wait_for("tick\n" * (holder.output().count("tick") + 10), ctx.timeout_s)
    for delay in range(10):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        ending = ctx.start("sleep", f"{0.02 + 0.01 * delay:.2f}")
        outcome = ctx.redrive("record", "-o", ctx.trace, "--pid", ending.pid)
        ctx.expect(outcome.status in (0, 125), outcome, "ends otherwise")
        ctx.expect(outcome.status == 0 or outcome.stderr.count("\n") == 1, outcome, "says more than one line")
        ctx.expect(ctx.trace.exists() == (outcome.status == 0), outcome, "has left a trace")


@test("attach/large")
def large(ctx):
    """The pause is that of a copy, whatever the memory."""
    source = "import mmap, time\nkept = bytearray(b'x' * 4096 * 100000)\nprint('ready', flush=True)\nwhile True: time.sleep(0.02)"
    process = ctx.start(PYTHON, "-c", source)
    process.wait_for("ready", ctx.timeout_s)
    for _ in range(3):
        attach(ctx, process.pid, duration="500ms", options=())
    check_pauses(ctx)


# Makes a child that has this in common with it (clone(2)).
SHARING = """import ctypes, signal, sys
libc = ctypes.CDLL(None)
stack = (ctypes.c_char * 65536)()
libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
top = (ctypes.addressof(stack) + len(stack)) & ~15
print(libc.clone(libc.sleep, top, int(sys.argv[1]) | signal.SIGCHLD, 1000), flush=True)
signal.pause()
"""


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
    ctx.wait_until("it is traced", lambda: status_of(sleeper.pid, "TracerPid") != "0")
    refused(ctx, sleeper.pid, "traces it already")
    os.kill(tracer.pid, signal.SIGTERM)
    ctx.expect_status(tracer.finish(ctx.timeout_s), 0)
    os.kill(sleeper.pid, signal.SIGSTOP)
    ctx.wait_until("it has stopped", lambda: status_of(sleeper.pid, "State") == "T")
    refused(ctx, sleeper.pid, "is stopped", f"kill -CONT {sleeper.pid}")
    os.kill(sleeper.pid, signal.SIGCONT)
    refused(ctx, os.getpid(), "redrive itself")
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    ctx.wait_until("it has ended", lambda: status_of(dead, "State") == "Z")
    refused(ctx, dead, "has ended")
    os.waitpid(dead, 0)
    leaderless = ctx.start(PYTHON, "-c", "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n"
                           "ctypes.CDLL(None).syscall(60, 0)")  # exit(2)
    ctx.wait_until("its first thread has ended", lambda: status_of(leaderless.pid, "State") == "Z")
    refused(ctx, leaderless.pid, "cannot be attached to: its first thread has ended")
    if is_root():
        outcome = ctx.run("setpriv", "--reuid", "nobody", "--clear-groups", ctx.options.redrive, "record", "-o", "/tmp/none-of-nobody", "--pid", sleeper.pid)
        ctx.expect(outcome.status == 125 and "attaching needs" in outcome.stderr and outcome.stderr.count("\n") == 1, outcome, "accepts it")
    for flag, what in ((0x100, "memory"), (0x400, "descriptors")):  # CLONE_VM, CLONE_FILES
        parent = ctx.start(PYTHON, "-c", SHARING, flag)
        parent.wait_for("\n", ctx.timeout_s)
        child = int(parent.output())
        refused(ctx, child, f"shares its {what} with its parent, {parent.pid}")
    refused(ctx, 2, "kernel thread") if pathlib.Path("/proc/2/comm").exists() and pathlib.Path("/proc/2/comm").read_text() == "kthreadd\n" else None
    refused(ctx, 4_194_303, "there is no process")
    traced = ctx.start(PYTHON, "-c", "import time; time.sleep(1000)")
    outcome = ctx.redrive("record", "-o", "/proc/no/such", "--pid", traced.pid)
    ctx.expect(outcome.status == 125 and status_of(traced.pid, "TracerPid") == "0", outcome, "accepts this directory")
    segments = ctx.start(PYTHON, "-c", "import ctypes, time\nentry = (ctypes.c_uint * 4)(0, 0, 0xfffff, 0x51)\n"
                         "print(ctypes.CDLL(None).syscall(154, 1, entry, 16), flush=True)\ntime.sleep(1000)")
    segments.wait_for("\n", ctx.timeout_s)
    if segments.output() == "0\n":  # found only when it is stopped
        refused(ctx, segments.pid, "modify_ldt")
        check_native(segments.pid)
    for words, part in ((("--pid", "1", "true"), "command"), (("--for", "1s", "--", "true"), "--pid"), (("--pid", "0"), "--pid")):
        outcome = ctx.redrive("record", *words)
        ctx.expect(outcome.status == 2 and part in outcome.stderr, outcome, "accepts this")
    ring = ctx.start(PYTHON, "-c", "import ctypes, time\nparams = (ctypes.c_char * 120)()\n"
                     "print(ctypes.CDLL(None).syscall(425, 4, params), flush=True)\ntime.sleep(1000)")
    ring.wait_for("\n", ctx.timeout_s)
    if int(ring.output()) >= 0:
        refused(ctx, ring.pid, "io_uring")
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        server = ctx.start(PYTHON, "-c", "import time\nserved = open('/dev/fuse', 'r+b', buffering=0)\nprint('opened', flush=True)\ntime.sleep(1000)")
        server.wait_for("\n", ctx.timeout_s)
        refused(ctx, server.pid, "FUSE")
    secret = ctx.start(PYTHON, "-c", "import ctypes, mmap, os, time\nfd = ctypes.CDLL(None).syscall(447, 0)\n"
                       "if fd >= 0:\n    os.ftruncate(fd, 4096)\n    memory = mmap.mmap(fd, 4096)\nprint(fd, flush=True)\ntime.sleep(1000)")
    secret.wait_for("\n", ctx.timeout_s)
    if int(secret.output()) >= 0:
        refused(ctx, secret.pid, "memfd_secret")


@test("attach/foreign_calls")
def foreign_calls(ctx):
    """Calls of other kinds than those of 64-bit programs are refused while it is recorded, and taken for no others."""
    ticker = ctx.start(workload(ctx.options, "foreign_ticker"))
    ticker.wait_for("3\n", ctx.timeout_s)
    attach(ctx, ticker.pid, duration="500ms", options=())
    if "32-bit" not in str(ctx.json("stats", ctx.trace)["refused"]):
        raise Failure(f"does not say what was refused: {ctx.json('stats', ctx.trace)['refused']}")
    if ticker.has_ended():
        raise ticker.failure("has found something wrong")
