"""Group checkpoint_engines: `redrive record --checkpoint-engine`. Images that CRIU has made replay as our own do. Where CRIU is not to be had, or is not
allowed, these tests see that the command says so."""
import os
import shutil
import subprocess

from criu_tools import NO_GROUPS, NOT_ROOT, criu_path
from harness import Skip, needs, test
from live import MASTER, SHARED
from redriving import free_port

PERIOD = ("--checkpoint-period", "20ms")

# Threads that compute and talk to each other through a socket pair.
THREADS = """
import hashlib, os, socket, sys, threading
ours, theirs = socket.socketpair()
def work(end, number):
    digest, kept = b'', []
    for i in range(400):
        for _ in range(40):
            digest = hashlib.sha256(digest + bytes([number])).digest()
        kept.append(digest * 20)
        if number < 2:
            end.sendall(digest)
            digest = end.recv(32)
        else:
            os.getppid()
    results[number] = hashlib.sha256(b''.join(kept)).hexdigest()
results = {}
threads = [threading.Thread(target=work, args=(end, number)) for number, end in enumerate((ours, theirs, None))]
for each in threads: each.start()
for each in threads: each.join()
print(sorted(results.items()), flush=True)
sys.exit(3)
"""

# Memory of all kinds: a file that is mapped private and written, pages that are zero, that cannot be read, and that come and go.
MEMORY = """
import ctypes, mmap, os
with open('data', 'wb') as file: file.write(bytes(range(256)) * 256)
with open('data', 'rb') as file: view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
closed = mmap.mmap(-1, 1 << 16)
libc = ctypes.CDLL(None)
address = ctypes.addressof(ctypes.c_char.from_buffer(closed))
closed[:5] = b'there'
kept, total = {}, 0
for i in range(80000):
    view[(i * 4099) % len(view)] = 0 if i % 3 else i % 251
    if i % 500 == 0:
        view[4096 * (i // 500 % 16):][:1]
        libc.mprotect(ctypes.c_void_p(address), 1 << 16, 0 if i % 1000 else 3)
    kept[i % 97] = bytes([i % 251]) * 5000
    total += sum(kept[i % 97][:10])
    os.getppid()
libc.mprotect(ctypes.c_void_p(address), 1 << 16, 3)
print(total, sum(view[:]), closed[:5], flush=True)
"""

# Two threads of which each waits for the other without a system call.
SPINNING = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int turn;
unsigned long waited[2];

static void* spin(void* argument) {
  const int mine = argument != NULL;
  unsigned long times = 0;  // so that it does not look as if only memory could end the loop
  for (int i = 0; i < 10; i++) {
    while (atomic_load(&turn) != mine) times++;
    atomic_store(&turn, !mine);
  }
  waited[mine] = times;
  return NULL;
}

int main(void) {
  pthread_t other;
  pthread_create(&other, NULL, spin, &other);
  spin(NULL);
  pthread_join(other, NULL);
  printf("%d\\n", atomic_load(&turn));
  return 0;
}
"""


class Recording:
    """What was recorded with CRIU."""

    def __init__(self, ctx, *command, status=0, options=PERIOD, **files):
        self.ctx, self.env = ctx, {"PATH": path_with_criu(ctx)}
        ctx.fresh_work()
        for name, content in files.items():
            (ctx.work / name.replace("_", ".")).write_text(content)
        recorded = ctx.redrive("record", "-o", ctx.trace, "--checkpoint-engine", "criu", *options, "--", *command, cwd=ctx.work, env=self.env)
        self.outcome = ctx.expect_status(recorded, status)

    def expect(self, *, images=1, failures=None, error=""):
        """So many images at least are CRIU's, and at least so many of redrive's own are in their place; None: only those of programs that were executed, and
        of births. All intervals are what they were."""
        ctx = self.ctx
        told = ctx.json("stats", ctx.trace)
        failed = told["criu_failures"]
        ctx.expect(told["criu_images"] >= images, self.outcome, f"{told['criu_images']} images by CRIU: {told['criu_error']}")
        intervals = [each for unit in ctx.json("ls", ctx.trace)["units"] for each in unit["intervals"]]
        others = sum(each["checkpoint_kind"] != "image" for each in intervals)
        ctx.expect(failed <= others if failures is None else failed >= failures, self.outcome, f"{failed} images in place of CRIU's: {told['criu_error']}")
        ctx.expect(error in told["criu_error"] and bool(error) == bool(told["criu_error"]), self.outcome, f"CRIU's error: {told['criu_error']}")
        ctx.expect(told["criu_images"] + failed <= len(intervals), self.outcome, f"more than all {told['image_checkpoints']} images")
        shown = ctx.expect_status(ctx.redrive("stats", ctx.trace), 0)
        ctx.expect(f"{told['criu_images']} image" in shown.stdout and "by CRIU" in shown.stdout, shown, "does not show CRIU's images")
        ctx.expect_status(ctx.redrive("check", ctx.trace), 0)
        ctx.expect_status(ctx.redrive("replay", "--all", "--verify", ctx.trace, cwd="/"), 0)


def path_with_criu(ctx):
    """A PATH with a CRIU. Skips the test if there is none that can be used, after it has seen that this is said."""
    path, why = criu_path(ctx)
    if why in ("", NO_GROUPS):
        return path
    outcome = ctx.redrive("record", "-o", ctx.trace, "--checkpoint-engine", "criu", "--", "/usr/bin/touch", ctx.directory / "ran", env={"PATH": path})
    expect_refusal(ctx, outcome, "need root" if why == NOT_ROOT else "criu")
    raise Skip(f"refused as it should be: {why}")


def expect_refusal(ctx, outcome, words):
    refused = outcome.status == 125 and len(outcome.stderr.splitlines()) == 1 and words in outcome.stderr
    ctx.expect(refused and not ctx.trace.exists() and not (ctx.directory / "ran").exists(), outcome, f"'{words}' is not said before anything runs")


@test("checkpoint_engines/threads", slow=True)
def threads(ctx):
    """A program with threads that talk through sockets."""
    Recording(ctx, "/usr/bin/python3", "t.py", status=3, t_py=THREADS).expect(images=3)


@test("checkpoint_engines/memory")
def memory(ctx):
    """Memory of all kinds is what it was: each replay's is compared with the next image."""
    Recording(ctx, "/usr/bin/python3", "m.py", m_py=MEMORY).expect(images=3)


@test("checkpoint_engines/master")
def master(ctx):
    """A master with its workers, over pipes and socket pairs, in which the children have memory and descriptors of their parent."""
    for channel in ("pair", "pipe"):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recording = Recording(ctx, "/usr/bin/python3", "master.py", channel, master_py=MASTER, options=("--checkpoint-period", "10ms"))
        recording.expect()


@test("checkpoint_engines/redis", timeout_s=240)
def redis(ctx):
    """A server under load, which its clients reach by TCP."""
    needs("redis-server", "redis-cli", "redis-benchmark")
    path, port = path_with_criu(ctx), str(free_port())
    ctx.fresh_work()
    server = ctx.start_redrive("record", "-o", ctx.trace, "--checkpoint-engine", "criu", "--checkpoint-period", "100ms", "--", "redis-server", "--port", port,
                               "--save", "", "--appendonly", "no", cwd=ctx.work, env={"PATH": path})

    def ask(*words):
        return subprocess.run(("redis-cli", "-p", port, *words), capture_output=True, text=True, timeout=ctx.timeout_s, check=False).stdout.strip()

    ctx.wait_until("the server's answer", lambda: ask("ping") == "PONG")
    load = ctx.run("redis-benchmark", "-p", port, "-n", "20000", "-c", "8", "-r", "5000", "-t", "set,get,lpush", "-q")
    ctx.expect_status(load, 0)
    ask("set", "key", "value")
    kept = ask("get", "key")
    ask("shutdown", "nosave")
    outcome = ctx.expect_status(server.finish(ctx.timeout_s), 0)
    ctx.expect(kept == "value", outcome, f"the server's data: {kept}")
    told = ctx.json("stats", ctx.trace)
    ctx.expect(told["criu_images"] >= 3 and not told["criu_error"], outcome, f"{told['criu_images']} images by CRIU: {told['criu_error']}")
    ctx.expect_status(ctx.redrive("replay", "--all", "--verify", ctx.trace, cwd="/"), 0)


@test("checkpoint_engines/children")
def children(ctx):
    """The program is not told of copies: it has the children, the group and the signals that it would have."""
    Recording(ctx, "/usr/bin/python3", "c.py", status=5, c_py="""
import os, signal, sys
told = []
signal.signal(signal.SIGCHLD, lambda *_: told.append(1))
before = os.getpgid(0), os.getsid(0), len(os.listdir('/proc/self/fd'))
for i in range(100000):
    os.getppid()
    sum(range(100))
    if i % 100 == 0:
        try:
            found = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | 0x40000000)  # __WALL
            assert found == (0, 0), found
        except ChildProcessError:
            pass
assert before == (os.getpgid(0), os.getsid(0), len(os.listdir('/proc/self/fd'))), before
assert not told, told
sys.exit(5)
""").expect(images=3)


@test("checkpoint_engines/joined")
def joined(ctx):
    """Units of processes that share memory are read by redrive, which counts them, as it does programs that are executed."""
    shared = SHARED.replace("range(300)", "range(20000)")
    Recording(ctx, "/usr/bin/python3", "s.py", s_py=shared, options=("--checkpoint-period", "20ms")).expect(images=0, failures=1)


@test("checkpoint_engines/preemption")
def preemption(ctx):
    """Threads that are stopped where they are."""
    ctx.fresh_work()
    path_with_criu(ctx)
    (ctx.work / "spin.c").write_text(SPINNING)
    ctx.expect_status(ctx.run("gcc", "-O1", "-pthread", "-o", "spin", "spin.c", cwd=ctx.work), 0)
    program = ctx.directory / "spin"
    shutil.copy(ctx.work / "spin", program)
    Recording(ctx, program).expect(images=3)


@test("checkpoint_engines/without_tier")
def without_tier(ctx):
    """Copies cannot sleep where there is no code in the process for that."""
    recording = Recording(ctx, "/usr/bin/python3", "m.py", m_py=MEMORY.replace("80000", "3000"), options=(*PERIOD, "--interception", "stops"))
    recording.expect(images=0, failures=2)


# A service that takes requests, and answers none. A child of it has them, as in CRIU.
SILENT = """
import os, signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
place, status = (sys.argv[sys.argv.index(name) + 1] for name in ('--address', '--status-fd'))
service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
service.bind(place)
service.listen()
os.write(int(status), bytes(1))
while True:
    asking, _ = service.accept()
    if os.fork() == 0:
        open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')
        signal.pause()
"""


def expect_own_images(ctx, service, error):
    """redrive makes the images that a CRIU with such a service does not make, and says why."""
    path = path_with_criu(ctx)
    places = ctx.directory / "bin"
    places.mkdir()
    (places / "criu").write_text(f"""#!/bin/sh
[ "$1" != service ] || {service}
PATH='{path}' exec criu "$@"
""")
    (places / "criu").chmod(0o755)
    ctx.fresh_work()
    (ctx.work / "m.py").write_text(MEMORY)
    outcome = ctx.redrive("record", "-o", ctx.trace, "--checkpoint-engine", "criu", *PERIOD, "--", "/usr/bin/python3", "m.py", cwd=ctx.work,
                          env={"PATH": f"{places}:{path}"})
    ctx.expect_status(outcome, 0)
    told = ctx.json("stats", ctx.trace)
    right = told["criu_images"] == 0 and told["criu_failures"] >= 3 and told["criu_error"] == error
    ctx.expect(right, outcome, f"stats: {told['criu_images']}, {told['criu_failures']}, {told['criu_error']}")
    ctx.expect_status(ctx.redrive("replay", "--all", "--verify", ctx.trace, cwd="/"), 0)


@test("checkpoint_engines/broken")
def broken(ctx):
    """A CRIU that is asked for a dump and fails costs no checkpoint."""
    expect_own_images(ctx, "exit 1", "criu does not run as a service")


@test("checkpoint_engines/silent", slow=True)
def silent(ctx):
    """Nor does one that does not get on with a dump, and nothing is left of it."""
    code, asked = ctx.directory / "silent.py", ctx.directory / "asked"
    code.write_text(SILENT)
    expect_own_images(ctx, f"exec /usr/bin/python3 {code} {asked} \"$@\"", "criu wrote nothing for half a minute, and was killed")
    asked_pids = asked.read_text().split()
    ctx.wait_until(f"the end of all of {asked_pids}", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in asked_pids))


@test("checkpoint_engines/chosen")
def chosen(ctx):
    """`auto` is redrive's own engine until the host was measured, and then CRIU where it costs little enough."""
    path, cache = path_with_criu(ctx), ctx.directory / "cache"
    env = {"PATH": path, "REDRIVE_CACHE_DIR": str(cache)}
    ctx.fresh_work()
    (ctx.work / "m.py").write_text(MEMORY)

    def images(*options):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, *PERIOD, *options, "--", "/usr/bin/python3", "m.py", cwd=ctx.work, env=env), 0)
        told = ctx.json("stats", ctx.trace)
        ctx.expect(told["image_checkpoints"] >= 3 and not told["criu_error"], outcome, "too few images")
        return told["criu_images"]

    measured = cache / "criu-cost"
    before = images()
    checked = ctx.expect_status(ctx.redrive("check", "--host", env=env), 0)
    ctx.expect(before == 0 and "a dump costs" in checked.stdout and measured.exists(), checked, f"{before} images by CRIU; nothing is measured")
    kernel, dump_s, megabyte_s = measured.read_text().split()
    ctx.expect(kernel == os.uname().release and 0 < float(dump_s) < 10 and 0 <= float(megabyte_s) < 1, checked, "a cost that cannot be")
    measured.write_text(f"{kernel} 0.0001 0\n")
    cheap = images("--checkpoint-engine", "auto")
    measured.write_text(f"{kernel} 10 0\n")
    dear = images("--checkpoint-engine", "auto")
    measured.write_text("1.0 0.0001 0\n")
    other = images("--checkpoint-engine", "auto")
    ctx.expect(cheap >= 1 and dear == 0 and other == 0, checked, f"images by CRIU: {cheap} where it is cheap, {dear} where dear, {other} on another kernel")


@test("checkpoint_engines/refused")
def refused(ctx):
    """Without privilege or without CRIU, the option is refused before anything runs."""
    command = ("record", "-o", ctx.trace, "--checkpoint-engine", "criu", "--", "/usr/bin/touch", ctx.directory / "ran")
    if os.geteuid() != 0:
        return expect_refusal(ctx, ctx.redrive(*command), "need root")
    empty = ctx.directory / "bin"
    empty.mkdir()
    expect_refusal(ctx, ctx.redrive(*command, env={"PATH": str(empty)}), "there is no criu in PATH")
    if shutil.which("setpriv"):
        shown = ctx.run("setpriv", "--reuid", "65534", "--clear-groups", ctx.options.redrive, "record", "-o", "/nowhere", "--checkpoint-engine", "criu", "--", "true")
        ctx.expect(shown.status == 125 and "need root" in shown.stderr, shown, "is not refused without root")
    ctx.expect_status(ctx.redrive("record", "--checkpoint-engine", "best", "--", "true"), 2, 125)
    return None
