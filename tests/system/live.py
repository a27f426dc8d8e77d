"""Group live: what `redrive live` makes of a recording. Processes run on from the middle, and must end as the recorded ones have."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import mpi
import redriving
from harness import Failure, needs, test
from programs import program
from redriving import free_port

COUNTING = """
import os, sys
data = open('in.bin', 'rb', buffering=0)
total = 0
for i in range(300):
    total += sum(data.read(16))
    if i % 20 == 0:
        os.write(1, f'{i} {total}\\n'.encode())
os.write(1, f'end {total} {os.getpid()}\\n'.encode())
sys.exit(7)
"""

THREADS = """
import queue, sys, threading, time
done = queue.Queue()
def work(number):
    total = 0
    for i in range(100):
        total += i * number
        time.sleep(0.001)
    done.put((number, total))
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(sorted(done.get() for _ in threads), flush=True)
sys.exit(3)
"""

SIGNALS = """
import os, signal, sys
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.chdir('below')
os.umask(0o27)
for i in range(200):
    os.getppid()
os.kill(os.getpid(), signal.SIGUSR1)
mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
now = os.umask(0)
ignored = signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
print(len(seen), mask == {signal.SIGUSR2}, oct(now), os.path.basename(os.getcwd()), open('note').read(), flush=True)
"""

SIGNALLED = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
parent = os.getpid()
child = os.fork()
if child == 0:
    for i in range(5):
        signal.sigwait([signal.SIGUSR1])
        os.write(1, b'child %d\\n' % i)
        time.sleep(0.002)
        os.kill(parent, signal.SIGUSR1)
    os._exit(0)
ended = []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
for i in range(5):
    os.write(1, b'parent %d\\n' % i)
    os.kill(child, signal.SIGUSR1)
    signal.sigwait([signal.SIGUSR1])
while not ended: time.sleep(0.001)
os.getppid()
time.sleep(0.02)
os.waitpid(child, 0)
os.write(1, b'ended %d\\n' % len(ended))
"""

KILLED = """
import os, signal
ends = os.pipe()
child = os.fork()
if child == 0:
    os.write(ends[1], b'x')
    signal.pause()
os.read(ends[0], 1)
os.kill(child, signal.SIGKILL)
os.getppid()
print(os.waitpid(child, 0)[1], flush=True)
"""

TIMERS = """
import ctypes, os, select, signal, struct, time
fired = []
signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not fired: time.sleep(0.002)
libc = ctypes.CDLL(None)
fd = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
libc.timerfd_settime(fd, 0, struct.pack('4q', 0, 0, 0, 10_000_000), None)
os.read(fd, 8)
os.getppid()
again = select.select([fd], [], [], 0.1)[0]
left = signal.getitimer(signal.ITIMER_REAL)[0]
signal.setitimer(signal.ITIMER_REAL, 60)
time.sleep(0.2)
os.getppid()
print(len(fired), again, left, signal.getitimer(signal.ITIMER_REAL)[0] < 59.9, flush=True)
"""

MASTER = """
# A master asks three workers and takes their answers as they come; what it prints depends on whose comes first.
import os, select, socket, sys
channel = sys.argv[1]
if channel == 'tcp':
    listener = socket.create_server(('127.0.0.1', 0))
if channel in ('datagram', 'udp'):
    inbox = socket.socket(socket.AF_UNIX if channel == 'datagram' else socket.AF_INET, socket.SOCK_DGRAM)
    inbox.bind('inbox' if channel == 'datagram' else ('127.0.0.1', 0))
    address = inbox.getsockname()
pipe = os.pipe()
ends, tasks = [], []
for number in (1, 2, 3):
    task = os.pipe()
    ours, its = socket.socketpair()
    if os.fork() == 0:
        if channel == 'tcp':
            its = socket.create_connection(listener.getsockname())
        if channel in ('datagram', 'udp'):
            its = socket.socket(inbox.family, socket.SOCK_DGRAM)
        factor = int(os.read(task[0], 8))
        total = sum(i * factor for i in range(1000 * number))
        answer = b'%d %d\\n' % (number, total % 1009)
        if channel == 'pipe':
            os.write(pipe[1], answer)
        elif channel in ('datagram', 'udp'):
            its.sendto(answer, address)
        else:
            its.sendall(answer)
        os.read(task[0], 8)
        os._exit(0)
    ends.append(listener.accept()[0] if channel == 'tcp' else ours)
    tasks.append(task[1])
if channel == 'pipe':
    ends = [os.fdopen(pipe[0])]
if channel in ('datagram', 'udp'):
    ends = [inbox]
for task in tasks: os.write(task, b'7')
poll = select.poll()
for end in ends: poll.register(end, select.POLLIN)
order, digest = [], 0
while len(order) < 3:
    for fd, _ in poll.poll():
        for line in os.read(fd, 256).split(b'\\n')[:-1]:
            number, value = map(int, line.split())
            order.append(number)
            digest = digest * 31 + value + number
for task in tasks: os.write(task, b'end')
for _ in tasks: os.wait()
print(*order, digest, flush=True)
"""


def master_prints(order):
    """What it prints if the answers come in this order."""
    digest = 0
    for number in order:
        digest = digest * 31 + sum(i * 7 for i in range(1000 * number)) % 1009 + number
    return " ".join(map(str, (*order, digest))) + "\n"


SERVER = """
# A server accepts connections one after the other; each client sends one line and ends.
import os, socket
server = socket.create_server(('127.0.0.1', 0))
go = os.pipe()
for number in (1, 2, 3):
    if os.fork() == 0:
        os.read(go[0], 1)
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(b'%d' % number)
        os._exit(0)
os.write(go[1], b'go!')
order = []
for _ in range(3):
    with server.accept()[0] as connection:
        text = b''
        while more := connection.recv(100): text += more
    order.append(int(text))
for _ in order: os.wait()
print(*order, flush=True)
"""

WINNER = """
# The first answer wins, and the other workers are killed. The second worker needs a third process for its answer.
import os, select, signal, socket
helper = socket.socketpair()
go, pids, ends = os.pipe(), [], []
for number in (1, 2, 3):
    ours, its = socket.socketpair()
    pids.append(os.fork())
    if pids[-1] == 0:
        if number == 3: helper[1].sendall(b'helped')
        if number == 2: helper[0].recv(10)
        if number < 3: its.sendall(b'%d' % number)
        while True: signal.pause()
    if number < 3: ends.append(ours)
first = select.select(ends, [], [])[0][0]
print('winner', first.recv(10).decode(), flush=True)
select.select([end for end in ends if end is not first], [], [])  # the others have answered too
for pid in pids: os.kill(pid, signal.SIGKILL)
for pid in pids: os.waitpid(pid, 0)
"""

SPAWN = """
import os
os.waitpid(os.posix_spawn('/usr/bin/seq', ['seq', '3'], {}), 0)
os.write(1, b'done\\n')
"""

JOINED = """
import mmap, os
file = open('both', 'w+b')
file.truncate(4096)
pid = os.fork()
memory = mmap.mmap(file.fileno(), 4096)
memory[pid != 0] = 1
if pid == 0: os._exit(0)
os.wait()
print(memory[0] + memory[1])
"""

CUT = """
import os, time
go = os.pipe()
if os.fork() == 0:
    os.write(go[1], b'x')
    while True: pass
os.read(go[0], 1)
print('ready', flush=True)
while True: time.sleep(0.01)
"""

SHARED = """
import mmap, os
first, second = mmap.mmap(-1, 4096), mmap.mmap(-1, 8192)
pid = os.fork()
if pid == 0:
    for i in range(300):
        os.getppid()
        first[0] = i % 251
        second[4096] = (second[4096] + first[0]) % 251
    os._exit(0)
os.waitpid(pid, 0)
print(first[0], second[4096])
"""

RANKS = """
// Rank 0 takes one answer of each other rank, in the order in which they come.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, ranks, task = 7, answer[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int worker = 1; worker < ranks; worker++) MPI_Send(&task, 1, MPI_INT, worker, 0, MPI_COMM_WORLD);
    for (int i = 1; i < ranks; i++) {
      MPI_Recv(answer, 2, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      printf("%d ", answer[0]);
    }
    printf("\\n");
  } else {
    MPI_Recv(&task, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    answer[0] = rank;
    answer[1] = rank * task;
    MPI_Send(answer, 2, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"""


def record(ctx, *command, status=0, **files):
    ctx.fresh_work()
    for name, content in files.items():
        (ctx.work / name.replace("_", ".")).write_bytes(content if isinstance(content, bytes) else content.encode())
    return ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", *command, cwd=ctx.work), status)


def record_signals(ctx):
    """Records SIGNALS, with the directory and the file that it wants."""
    ctx.fresh_work()
    (ctx.work / "below").mkdir()
    (ctx.work / "below" / "note").write_text("here")
    (ctx.work / "s.py").write_text(SIGNALS)
    return ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "/usr/bin/python3", "s.py", cwd=ctx.work), 0)


def calls(ctx, unit, pattern):
    """The numbers of a unit's events whose text matches."""
    shown = ctx.expect_status(ctx.redrive("dump", ctx.trace, unit), 0).stdout
    found = []
    for line in shown.splitlines():
        words = line.split(None, 3)
        if len(words) == 4 and words[0].isdigit() and words[1].isdigit() and re.search(pattern, words[3]):
            found.append(int(words[1]))
    return found


def at_share(ctx, share):
    """The event of the first unit that comes after this share of them."""
    return int(share * sum(interval["events"] for interval in ctx.json("ls", ctx.trace)["units"][0]["intervals"]))


def receipts(ctx, unit, after=0):
    """The numbers of a unit's receipts of messages, with the units that have sent these."""
    shown = ctx.expect_status(ctx.redrive("dump", ctx.trace, unit), 0).stdout
    found = re.findall(r"^ *\d+ +(\d+) .*<- channel \d+, no\. \d+: (\d+)@", shown, re.MULTILINE)
    return [(int(event), int(sender)) for event, sender in found if int(event) >= after]


def live(ctx, *words, status=0):
    return ctx.expect_status(ctx.redrive("live", ctx.trace, *words, cwd="/"), status)


def expect_end(ctx, outcome, recorded, what):
    """It prints what was left to print, and nothing else."""
    ctx.expect(recorded.stdout.endswith(outcome.stdout) and outcome.stdout, outcome, f"{what}: not the end of what was recorded")


def live_as_recorded(ctx, script, call, which=-1):
    """A Python script that lives again where it makes this call prints all that it printed when it was recorded."""
    recorded = record(ctx, "/usr/bin/python3", "script.py", script_py=script)
    outcome = live(ctx, f"1@{calls(ctx, '1', rf'^{call}[(]')[which]}")
    ctx.expect(outcome.stdout == recorded.stdout, outcome, f"recorded was {recorded.stdout}")
    return outcome


@test("live/files")
def files(ctx):
    """One process with a file that it reads, from several places; its number, output and status are right."""
    recorded = record(ctx, "/usr/bin/python3", "count.py", status=7, count_py=COUNTING, in_bin=bytes(i * 7 % 251 for i in range(8000)))
    reads = calls(ctx, "1", r"^read\(3, .*, 16\)")
    for event in (reads[3], reads[150], reads[151] + 1, reads[-1]):
        expect_end(ctx, live(ctx, f"1@{event}", status=7), recorded, f"event {event}")
    (ctx.work / "in.bin").write_bytes(bytes(8000))
    changed = live(ctx, "--break", f"1@{reads[150]}", status=7)
    ctx.expect("is not what it was when the program was recorded" in changed.stderr, changed, "says nothing of a file that has changed")
    (ctx.work / "in.bin").unlink()
    missing = live(ctx, f"1@{reads[150]}", status=1)
    ctx.expect("which is missing" in missing.stderr and not missing.stdout, missing, "says nothing of a file that is missing")


@test("live/output")
def output(ctx):
    """A file that the program writes is cut to what it had, and becomes the same again."""
    record(ctx, "sh", "run.sh", run_sh="for i in $(seq 200); do echo line $i; done > out")
    whole = (ctx.work / "out").read_bytes()
    writes = calls(ctx, "1", r"^write\(1, ")
    outcome = live(ctx, f"1@{writes[100]}")
    ctx.expect("is cut to the" in outcome.stderr, outcome, "does not say that a file is cut")
    ctx.expect((ctx.work / "out").read_bytes() == whole, outcome, "the file is another one")


@test("live/uncut")
def uncut(ctx):
    """A file is not cut if somebody else has written to it too, or has changed it since."""
    run = "exec 3>out 4>own\necho start >&3\nfor i in 1 2 3; do echo step $i >> out; echo $i >&4; done\nsh -c :\n"
    record(ctx, "sh", "run.sh", run_sh=run)
    shared, own = ctx.work / "out", ctx.work / "own"
    whole = shared.read_bytes()
    place = f"1@{calls(ctx, '1', r'^write[(]1, ')[4]}"  # of "2"
    said = "stays as it is, and may not be as it was there"
    for text, sign in ((b"1\n2\n3\n", "own is cut to the 2 bytes"), (b"1\n2\n3\nmine\n", f"own {said}"), (b"1\n2\n4\n", f"own {said}")):
        shared.write_bytes(whole)
        own.write_bytes(text)
        outcome = live(ctx, place)
        ctx.expect(f"out {said}" in outcome.stderr and sign in outcome.stderr, outcome, f"does not say: {sign}")
        ctx.expect(shared.read_bytes().startswith(whole), outcome, "what another process has written is gone")
        ctx.expect(own.read_bytes() == text.replace(b"4", b"3"), outcome, "the file is another one")


@test("live/signals")
def signals(ctx):
    """Handlers, ignored and blocked signals, directory and umask are as they were."""
    recorded = record_signals(ctx)
    asked = calls(ctx, "1", r"^getppid\(")
    expect_end(ctx, live(ctx, f"1@{asked[100]}"), recorded, "signals")


@test("live/signalled")
def signalled(ctx):
    """What has arrived as a signal was sent: units that wait for each other's signals go on, and each comes once."""
    recorded = record(ctx, "/usr/bin/python3", "s.py", s_py=SIGNALLED)
    places = [("1", event) for event in calls(ctx, "1", r"^write[(]1, ")[1:-1] + calls(ctx, "1", r"^getppid[(]")[-1:]]
    places += [("2", event) for event in calls(ctx, "2", r"^write[(]1, ")[1::2]]
    for unit, event in places:
        expect_end(ctx, live(ctx, f"{unit}@{event}"), recorded, f"{unit}@{event}")


@test("live/killed")
def killed(ctx):
    """A process for which SIGKILL is pending lives, and dies of that."""
    recorded = record(ctx, "/usr/bin/python3", "k.py", k_py=KILLED)
    ended = sum(interval["events"] for interval in ctx.json("ls", ctx.trace)["units"][1]["intervals"]) - 1
    for place in (f"1@{calls(ctx, '1', r'^getppid[(]')[-1]}", f"2@{ended}"):
        outcome = live(ctx, place)
        ctx.expect("unit 2 (python3.2) lives" in outcome.stderr, outcome, f"{place}: unit 2 does not live")
        expect_end(ctx, outcome, recorded, place)


@test("live/timers")
def timers(ctx):
    """Timers that have expired do not expire again; others have the rest of their time."""
    recorded = record(ctx, "/usr/bin/python3", "t.py", t_py=TIMERS)
    for event in calls(ctx, "1", r"^getppid[(]")[-2:]:
        expect_end(ctx, live(ctx, f"1@{event}"), recorded, f"event {event}")


@test("live/threads")
def threads(ctx):
    """A program with threads, some in calls that are entered again."""
    recorded = record(ctx, "/usr/bin/python3", "t.py", status=3, t_py=THREADS)
    sleeps = calls(ctx, "1", r"^clock_nanosleep\(")
    for event in (sleeps[20], sleeps[len(sleeps) // 2], sleeps[-3]):
        expect_end(ctx, live(ctx, f"1@{event}", status=3), recorded, f"event {event}")


@test("live/pipeline")
def pipeline(ctx):
    """A shell and its children, with what is on its way in pipes; the shell waits for them, in whatever order they end."""
    recorded = record(ctx, "sh", "-c", "seq 200000 | cat | tail -n 3")
    for unit, place in (("cat", 0.1), ("cat", 0.6), ("tail", 0.5), ("seq", 0.7)):
        events = calls(ctx, unit, r"^write\(1, " if unit != "tail" else r"^read\(0, ")
        expect_end(ctx, live(ctx, f"{unit}@{events[int(place * len(events))]}"), recorded, f"{unit} at {place}")
    waits = calls(ctx, "sh", r"^wait4\(")
    for event in waits[:2]:
        outcome = live(ctx, f"sh@{event}")
        if "(tail) lives" in outcome.stderr:
            expect_end(ctx, outcome, recorded, f"wait {event}")
        else:
            ctx.expect(not outcome.stdout, outcome, f"wait {event}: tail had written all, and ended")


@test("live/spawned")
def spawned(ctx):
    """A child that has executed its program, while its parent is still in vfork(2), or in the clone3(2) of posix_spawn(3), is not made again."""
    for command in (("sh", "-c", "seq 3; echo done"), ("/usr/bin/python3", "spawn.py")):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorded = record(ctx, *command, spawn_py=SPAWN)
        outcome = live(ctx, f"seq@{calls(ctx, 'seq', r'^write[(]1, ')[0]}")
        ctx.expect(outcome.stdout == recorded.stdout, outcome, f"{command[0]}: prints something else than recorded")


@test("live/redis")
def redis(ctx):
    """A server from the middle of a benchmark answers new clients, with the data that it had there."""
    needs("redis-server", "redis-cli", "redis-benchmark")
    port = free_port()
    ctx.fresh_work()
    ask = lambda *words: subprocess.run(("redis-cli", "-p", str(port), *words), capture_output=True, text=True, timeout=ctx.timeout_s, check=False)

    def await_server():
        end = time.monotonic() + ctx.timeout_s
        while "PONG" not in ask("ping").stdout:
            if time.monotonic() > end:
                raise Failure("the server does not answer")
            time.sleep(0.05)

    server = ctx.start_redrive("record", "-o", ctx.trace, "--", "redis-server", "--port", str(port), "--save", "", "--appendonly", "no", cwd=ctx.work)
    await_server()
    ask("set", "before", "1")
    subprocess.run(("redis-benchmark", "-p", str(port), "-q", "-n", "2000", "-c", "5", "-t", "set,incr"), stdout=subprocess.DEVNULL, check=True, timeout=ctx.timeout_s)
    ask("set", "after", "1")
    ask("shutdown", "nosave")
    ctx.expect_status(server.finish(ctx.timeout_s), 0)
    writes = calls(ctx, "1", r"^write\(\d+, .* = 5( |$)")  # +OK
    again = ctx.start_redrive("live", ctx.trace, f"1@{writes[len(writes) // 2]}", cwd="/")
    await_server()
    found = [ask("get", "before").stdout.strip(), ask("get", "after").stdout.strip(), ask("incr", "new").stdout.strip()]
    ask("shutdown", "nosave")
    outcome = ctx.expect_status(again.finish(ctx.timeout_s), 0)
    ctx.expect(found == ["1", "", "1"], outcome, f"the server's data: {found}")
    ctx.expect("connections to processes that were not recorded: closed" in outcome.stderr, outcome, "says nothing of its clients")


@test("live/stopped")
def stopped(ctx):
    """With --stopped nothing runs until SIGCONT; a debugger sees the program."""
    recorded = record(ctx, "/usr/bin/python3", "count.py", status=7, count_py=COUNTING, in_bin=bytes(i * 7 % 251 for i in range(8000)))
    event = calls(ctx, "1", r"^read\(3, .*, 16\)")[150]
    process = ctx.start_redrive("live", "--stopped", ctx.trace, f"1@{event}", cwd="/")
    process.wait_for("lives from event", ctx.timeout_s, 1)
    number = int(re.search(r"process (\d+),", process.output(1)).group(1))
    state = lambda: open(f"/proc/{number}/stat").read().rsplit(")", 1)[1].split()[0]
    end = time.monotonic() + ctx.timeout_s
    while state() != "T" and time.monotonic() < end:
        time.sleep(0.01)
    if state() != "T":
        raise Failure(f"process {number} is not stopped: {state()}")
    subprocess.run(("kill", "-CONT", str(number)), check=True)
    expect_end(ctx, ctx.expect_status(process.finish(ctx.timeout_s), 7), recorded, "after SIGCONT")


@test("live/refused")
def refused(ctx):
    """What cannot live again is said in one line, and nothing runs."""
    record(ctx, "/usr/bin/python3", "w.py", w_py="""
import ctypes, os
fd = ctypes.CDLL(None).inotify_init1(0)
for i in range(50): os.getppid()
print('end', flush=True)
""")
    outcome = live(ctx, f"1@{calls(ctx, '1', r'^getppid')[20]}", status=1)
    ctx.expect("cannot live again" in outcome.stderr and "inotify_init1" in outcome.stderr and not outcome.stdout, outcome, "is not refused")
    none = live(ctx, "1@99999999", status=1)
    ctx.expect("has no event" in none.stderr, none, "a place that is not there")
    ctx.expect_status(ctx.redrive("live", ctx.trace), 1, 2)


@test("live/cut")
def cut(ctx):
    """Of a recording whose recorder was killed, no unit lives after its last event."""
    ctx.fresh_work()
    (ctx.work / "cut.py").write_text(CUT)
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--", "/usr/bin/python3", "cut.py", cwd=ctx.work)
    recording.wait_for("ready", ctx.timeout_s)
    ctx.wait_until("a sleep was recorded", lambda: calls(ctx, "1", r"^clock_nanosleep[(]"))
    os.kill(recording.pid, signal.SIGKILL)
    ctx.expect_status(recording.finish(ctx.timeout_s), 128 + signal.SIGKILL)
    last = sum(interval["events"] for interval in ctx.json("ls", ctx.trace)["units"][1]["intervals"]) - 1
    outcome = live(ctx, f"1@{calls(ctx, '1', r'^clock_nanosleep[(]')[0]}", status=1)
    said = f"the recording does not hold what unit 2 (python3.2) did after its event {last}: give an earlier place"
    ctx.expect(said in outcome.stderr and not outcome.stdout, outcome, "does not say that the recording was cut")


@test("live/joined")
def joined(ctx):
    """Units that have become one because of a file that both have mapped do not live, and a line says why."""
    record(ctx, "/usr/bin/python3", "joined.py", joined_py=JOINED)
    units = ctx.json("ls", ctx.trace)["units"]
    whole, = [unit for unit in units if unit["joined"]]
    last = sum(interval["events"] for interval in whole["intervals"]) - 1
    outcome = live(ctx, f"{whole['unit']}@{last}", status=1)
    said = f"where it has become part of unit {whole['unit']}"
    ctx.expect(said in outcome.stderr and not outcome.stdout, outcome, "does not say that they have joined")


@test("live/mpi", timeout_s=300, slow=True, alone=True)
def mpi_job(ctx):
    """A job of several ranks from its middle: all units live, and the result is the same."""
    job = mpi.job(ctx.options, "master_worker", 300, 1000, ranks=3)
    recorded = redriving.record(ctx, job)
    rank = "master_worker.2"
    events = calls(ctx, rank, r"^poll\(|^epoll_wait\(|^read\(|^writev?\(")
    for place in (0.3, 0.6):
        outcome = live(ctx, f"{rank}@{events[int(place * len(events))]}")
        same = mpi.value_of("sum", outcome) == mpi.value_of("sum", recorded)
        ctx.expect(same, outcome, f"another sum than recorded, at {place}")


@test("live/deliver")
def deliver(ctx):
    """Of several answers that race, the one that is asked for comes first, through all kinds of channels; all answers come."""
    for channel in ("pair", "tcp", "pipe", "datagram", "udp"):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        recorded = record(ctx, "/usr/bin/python3", "master.py", channel, master_py=MASTER)
        event, first = receipts(ctx, "1")[0]
        for sender in {2, 3, 4} - {first}:
            outcome = live(ctx, "--deliver", f"1@{event}={sender}")
            order = list(map(int, outcome.stdout.split()[:3]))
            ctx.expect(order[0] == sender - 1 and sorted(order) == [1, 2, 3], outcome, f"{channel}: unit {sender} is not first")
            ctx.expect(outcome.stdout != recorded.stdout, outcome, f"{channel}: the recorded result")


@test("live/deliver_accepted")
def deliver_accepted(ctx):
    """A server that has not accepted the connection yet accepts it first."""
    record(ctx, "/usr/bin/python3", "server.py", server_py=SERVER)
    got = receipts(ctx, "1")
    for place, sender in ((0, got[1][1]), (0, got[2][1]), (1, got[2][1])):
        outcome = live(ctx, "--deliver", f"1@{got[place][0]}={sender}")
        order = list(map(int, outcome.stdout.split()))
        ctx.expect(order[place] == sender - 1 and sorted(order) == [1, 2, 3], outcome, f"unit {sender} is not number {place}")


@test("live/deliver_winner")
def deliver_winner(ctx):
    """Also a message that nobody has received, and whose sender needs a third unit, can come first; the others may be killed then."""
    recorded = record(ctx, "/usr/bin/python3", "winner.py", winner_py=WINNER)
    event, first = receipts(ctx, "1")[0]
    other = {2: 3, 3: 2}[first]
    outcome = live(ctx, "--deliver", f"1@{event}={other}")
    ctx.expect(outcome.stdout == f"winner {other - 1}\n" != recorded.stdout, outcome, f"unit {other} does not win")


PARTS = (0.3, 0.6, 0.9)
SELF_CHECKING = {"unix_stream": PARTS, "pipe_writers": PARTS, "epoll_server": PARTS, "signal_child": PARTS, "pending_signals": PARTS, "timerfd": PARTS,
                 "signalfd": (0.3, 0.6)}  # then it polls for the ends of children, which may come later (supervisor/live/DESIGN.md, Limits)


@test("live/programs", timeout_s=240)
def programs(ctx):
    """Programs that check themselves come to their ends from several places."""
    for name, parts in SELF_CHECKING.items():
        shutil.rmtree(ctx.trace, ignore_errors=True)
        ctx.fresh_work()
        binary = program(ctx.options, name)
        ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", binary, cwd=ctx.work), 0)
        events = sum(interval["events"] for interval in ctx.json("ls", ctx.trace)["units"][0]["intervals"])
        for part in parts:
            event = int(events * part)
            outcome = ctx.expect_status(ctx.redrive("live", ctx.trace, "--break", f"1@{event}", cwd=ctx.work), 0)
            ctx.expect(outcome.stdout.startswith("ok"), outcome, f"{name} is wrong from event {event} on")


@test("live/replaced_program", timeout_s=120)
def replaced_program(ctx):
    """A program that was compiled again since the recording lives from the trace's copy, and says so."""
    ctx.fresh_work()
    binary = ctx.work / "program"
    shutil.copy(program(ctx.options, "timerfd"), binary)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", binary, cwd=ctx.work), 0)
    binary.write_bytes(binary.read_bytes() + b"\n")
    events = sum(interval["events"] for interval in ctx.json("ls", ctx.trace)["units"][0]["intervals"])
    outcome = ctx.expect_status(ctx.redrive("live", ctx.trace, "--break", f"1@{events // 2}", cwd=ctx.work), 0)
    ctx.expect(outcome.stdout.startswith("ok"), outcome, "the program is wrong")
    ctx.expect("is not what was recorded" in outcome.stderr, outcome, "does not say that it is another program")


@test("live/peers", timeout_s=120)
def peers(ctx):
    """Sockets say who has connected, and to which name, whether that was accepted before or is later."""
    binary = program(ctx.options, "unix_stream")
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", binary, cwd=ctx.work), 0)
    for accepted in calls(ctx, "1", r"^accept4\(")[::3]:
        for event in (accepted, accepted + 1, accepted + 2):
            outcome = ctx.expect_status(ctx.redrive("live", ctx.trace, "--break", f"1@{event}", cwd=ctx.work), 0)
            ctx.expect(outcome.stdout.startswith("ok"), outcome, f"the program is wrong from event {event} on")


PAGES = """
import os
pages = os.open('pages', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(pages, b'first second ')
os.getpgrp()
os.pwrite(pages, b'FIRST', 0)
os.pwrite(pages, b'third ', 13)
"""


@test("live/overwritten")
def overwritten(ctx):
    """A file of which a part was written again later is not cut, and it is said."""
    record(ctx, "/usr/bin/python3", "pages.py", pages_py=PAGES)
    place = f"1@{calls(ctx, '1', r'^getpgrp[(]')[-1]}"
    for size in (19, 13):
        with open(ctx.work / "pages", "r+b") as pages:
            pages.truncate(size)
        outcome = live(ctx, place)
        ctx.expect("pages stays as it is, and may not be as it was there" in outcome.stderr, outcome, f"of {size} bytes: is not said")
        ctx.expect((ctx.work / "pages").read_bytes() == b"FIRST second third ", outcome, "the file is another one")


SHUT = """
import os, socket
pairs = []
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    for how in (socket.SHUT_WR, socket.SHUT_RD):
        pairs.append(socket.socketpair(socket.AF_UNIX, kind))
        for end in pairs[-1]: end.setblocking(False)
        pairs[-1][0].send(b'ab')
        pairs[-1][0].shutdown(how)
os.getppid()
def attempt(call, argument):
    try:
        return call(argument)
    except OSError as error:
        return error.errno
for one, other in pairs:
    print(*(attempt(other.recv, 10) for _ in range(2)), attempt(one.send, b'x'), attempt(other.send, b'x'), attempt(one.recv, 10), flush=True)
"""


@test("live/shut")
def shut(ctx):
    """Ends of socket pairs that were shut down are shut, with what was sent before on its way."""
    live_as_recorded(ctx, SHUT, "getppid")


@test("live/socket_in_use")
def socket_in_use(ctx):
    """A unix socket at which somebody listens is left to him, like a port; one that was left behind is not in the way."""
    listens = "import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('here')\ns.listen()\nos.getppid()\nos.unlink('here')\nprint('ok')\n"
    record(ctx, "/usr/bin/python3", "listens.py", listens_py=listens)
    place = f"1@{calls(ctx, '1', r'^getppid[(]')[-1]}"
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(ctx.work / "here"))
    other.listen()
    outcome = ctx.expect_status(ctx.redrive("live", ctx.trace, "--break", place, cwd=ctx.work), 1)
    ctx.expect("here again: Address already in use" in outcome.stderr, outcome, "does not say that it is in use")
    socket.socket(socket.AF_UNIX).connect(str(ctx.work / "here"))
    other.close()
    outcome = ctx.expect_status(ctx.redrive("live", ctx.trace, "--break", place, cwd=ctx.work), 0)
    ctx.expect(outcome.stdout.startswith("ok"), outcome, "does not run on")


@test("live/pending_signals")
def pending_signals(ctx):
    """Signals wait for whom they were sent to, with what their senders have said."""
    binary = program(ctx.options, "queued_signals")
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", binary, cwd=ctx.work), 0)
    for event in (calls(ctx, "1", r"^getppid\(")[0], calls(ctx, "1", r"^wait4\(")[0]):
        outcome = live(ctx, "--break", f"1@{event}")
        ctx.expect(outcome.stdout.startswith("ok"), outcome, f"the program is wrong from event {event} on")


@test("live/shared")
def shared(ctx):
    """Memory that processes share, in two objects."""
    recorded = record(ctx, "/usr/bin/python3", "shared.py", shared_py=SHARED)
    steps = calls(ctx, "1", r"^getppid\(")
    outcome = live(ctx, f"1@{steps[len(steps) // 2]}")
    ctx.expect(outcome.stdout == recorded.stdout, outcome, "another result")


@test("live/unknown")
def unknown(ctx):
    """What nothing tells is refused, not guessed: who has changed a counter that units share first."""
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", program(ctx.options, "eventfd"), cwd=ctx.work), 0)
    outcome = live(ctx, "--break", f"1@{at_share(ctx, 0.6)}", status=1)
    ctx.expect("shares the counter" in outcome.stderr and not outcome.stdout, outcome, "is not refused")


PACKETS = """
import os, socket
def pair(kind): return socket.socketpair(socket.AF_UNIX, kind)
def left(receive):
    found = []
    try:
        while True: found.append(receive())
    except BlockingIOError:
        return found
ends = []
for kind in socket.SOCK_DGRAM, socket.SOCK_SEQPACKET:
    few, twin, many = pair(kind), pair(kind), pair(kind)
    for text in b'is cut', b'', b'one', b'', b'three', b'': few[0].send(text)
    few[1].recv(2)
    few[1].recv(9)
    twin[0].send(b'three')  # and is received, while the other one is on its way
    twin[1].recv(9)
    for i in range(200): many[0].send(b'x' * (i % 50))
    ends += few, many
pipe = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
for text in b'aa', b'bbb', b'c', bytes(5000): os.write(pipe[1], text)
os.read(pipe[0], 1)
os.getpgrp()
for end in ends: print(left(lambda: end[1].recv(99, socket.MSG_DONTWAIT)))
print([len(text) for text in left(lambda: os.read(pipe[0], 9999))])
os.write(pipe[1], b'd')
os.write(pipe[1], b'e')
print(os.read(pipe[0], 9), flush=True)
"""


@test("live/packets")
def packets(ctx):
    """Packets come out of socket pairs and pipes as they were sent: one by one, also empty ones, and those that were cut do not come again."""
    live_as_recorded(ctx, PACKETS, "getpgrp")


@test("live/cut_packets")
def cut_packets(ctx):
    """Of two units, each has sent what the other one has received, also where that was cut."""
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", program(ctx.options, "socketpairs"), cwd=ctx.work), 0)
    for share in 0.4, 0.6, 0.9:
        outcome = live(ctx, f"1@{at_share(ctx, share)}")
        ctx.expect(outcome.stdout.startswith("ok"), outcome, f"{share}: is wrong")


@test("live/continued")
def continued(ctx):
    """Where a process has continued after a stop, and its parent is to be told, a line says so; nobody waits for ever."""
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", program(ctx.options, "group_stops"), cwd=ctx.work), 0)
    resumes = calls(ctx, "1", r"^kill[(][0-9]+, 18[)]")
    outcome = live(ctx, f"1@{resumes[0] + 1}", status=1)
    ctx.expect("to continue after a stop, which it has done there" in outcome.stderr and not outcome.stdout, outcome, "is not refused")


DIRECTORIES = """
import os
home = os.getcwd()
def child(change):
    if os.fork() == 0:
        os.mkdir(f'below{change}')
        os.chdir(f'below{change}')
        if change == 1: os.rmdir(f'{home}/below1')
        if change == 2: os.rename(f'{home}/below2', f'{home}/other')
        os.getpgrp()
        try:
            print(change, os.path.basename(os.getcwd()), flush=True)
        except FileNotFoundError:
            print(change, 'removed', os.listdir('.'), flush=True)
        os.chdir(home)
        if change == 3: os.rmdir('below3')
        os._exit(0)
    os.wait()
for change in range(4): child(change)
"""


@test("live/directories")
def directories(ctx):
    """A working directory that was removed is so, one that was renamed is found, and one that was removed since is made anew."""
    recorded = record(ctx, "/usr/bin/python3", "directories.py", directories_py=DIRECTORIES)
    lines = recorded.stdout.splitlines(True)
    for change, unit in enumerate("2345"):
        outcome = live(ctx, f"{unit}@{calls(ctx, unit, r'^getpgrp[(]')[-1]}")
        ctx.expect(outcome.stdout.startswith(lines[change]), outcome, f"{change}: recorded was {lines[change]}")
        says = "below3 is missing: it is made anew, and is empty" in outcome.stderr
        ctx.expect(says == (change == 3), outcome, f"{change}: a directory that is made anew")


URGENT = """
import fcntl, socket, struct, time
def connection(family):
    if family == socket.AF_UNIX: return socket.socketpair()
    with socket.create_server(('127.0.0.1', 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        return sender, listener.accept()[0]
def receive(end, flags):
    try:
        got = end.recv(99, flags | socket.MSG_DONTWAIT)
    except OSError as error:
        got = error.errno
    at_mark = fcntl.ioctl(end, 0x8905, struct.pack('i', 0))  # SIOCATMARK
    return got, at_mark[0]
ends = []
for family in socket.AF_UNIX, socket.AF_INET:
    for inline, before in (0, []), (1, []), (0, [1]), (0, [0]), (0, [1, 0]), (0, [0, 0]), (0, [1, 0, 0]):
        sender, end = connection(family)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        sender.send(b'abc')
        sender.send(b'de!', socket.MSG_OOB)
        sender.send(b'xyz')
        time.sleep(0.01)
        for urgent in before: receive(end, socket.MSG_OOB if urgent else 0)
        ends.append((sender, end))
import os
os.getpgrp()
for sender, end in ends: print([receive(end, flags) for flags in (socket.MSG_OOB, 0, 0, 0)], flush=True)
"""


@test("live/urgent")
def urgent(ctx):
    """An urgent byte (MSG_OOB) that was on its way is one again; reads stop at the place of one that was received."""
    live_as_recorded(ctx, URGENT, "getpgrp")


@test("live/deliver_refused")
def deliver_refused(ctx):
    """What does not race is refused in one line, and nothing runs."""
    record(ctx, "/usr/bin/python3", "master.py", "pair", master_py=MASTER)
    got = receipts(ctx, "1")
    told = calls(ctx, "1", r"^write\(")[:3]  # to each worker its task
    for what, more, words in (
        (f"1@{got[1][0]}={got[0][1]}", (), "has received everything from unit"),
        (f"2@{receipts(ctx, '2')[0][0]}=3", (), "sends nothing to unit 2"),
        (f"1@{told[0]}=2", (), "depends on event"),
        (f"1@{got[0][0]}=1", (), "does not race"),
        (f"1@{got[0][0]}={got[1][1]}", ("--break", f"1@{got[1][0]}"), "is to stand before event"),
        ("1@99999999=2", (), "has no event"),
        ("1@1=nobody", (), "nobody"),
    ):
        outcome = live(ctx, "--deliver", what, *more, status=1)
        one_line = len(outcome.stderr.splitlines()) == 1
        ctx.expect(words in outcome.stderr and one_line and not outcome.stdout, outcome, f"{what} is not refused")
    for words in (("--deliver", "1@5"), ("--deliver", "1@5=2", "--stopped"), ("--deliver", "1@5=2", "1@5")):
        ctx.expect_status(ctx.redrive("live", ctx.trace, *words), 2)


@test("live/deliver_mpi", timeout_s=300, slow=True, alone=True)
def deliver_mpi(ctx):
    """MPI_Recv from any rank gets the answer of the other one first."""
    needs("mpicc.openmpi", "mpirun.openmpi")
    ctx.fresh_work()
    (ctx.work / "ranks.c").write_text(RANKS)
    subprocess.run(("mpicc.openmpi", "-O2", "-o", "ranks", "ranks.c"), cwd=ctx.work, check=True)
    command = ("mpirun.openmpi", "--oversubscribe", "-n", "3", "./ranks")
    recorded = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", *command, cwd=ctx.work, env=mpi.ENV), 0)
    last = {}
    for event, sender in receipts(ctx, "ranks.1"):
        last[sender] = event
    (event, first), (_, other) = sorted((last[sender], sender) for sender in (3, 4))  # the units of ranks 1 and 2
    outcome = live(ctx, "--deliver", f"ranks.1@{event}={other}")
    ctx.expect(outcome.stdout.split() == recorded.stdout.split()[::-1], outcome, f"unit {other} is not first")


NAMES = """
import os, tempfile
def opened(name): return os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
anonymous = tempfile.TemporaryFile(buffering=0)
anonymous.write(b'anonymous')
removed, path = tempfile.mkstemp(dir='.')
os.write(removed, b'removed')
os.pwrite(removed, b'RE', 0)
os.unlink(path)
renamed = opened('first')
os.writev(renamed, [b'ren', b'amed '])
os.rename('first', 'second')
kept, later = opened('kept'), opened('later')
os.write(later, b'gone later')
for i in range(20): os.getppid()
os.unlink('later')
for fd in anonymous.fileno(), removed, renamed, later:
    os.write(fd, b' and more')
    print(os.fstat(fd).st_nlink, os.pread(fd, 100, 0), flush=True)
print(sorted(name for name in os.listdir('.') if name != 'names.py'), open('second').read(), flush=True)
"""


@test("live/names")
def names(ctx):
    """Files without a name have what they held, those with another one are found by it, and one that was removed since is made anew."""
    outcome = live_as_recorded(ctx, NAMES, "getppid", 10)
    ctx.expect("later is missing: it is made anew\n" in outcome.stderr, outcome, "does not say that a file is made anew")


ATTRIBUTES = """
import ctypes, fcntl, os, select, time
prctl = ctypes.CDLL(None).prctl
SUBREAPER, IS_SUBREAPER, NO_NEW, HAS_NO_NEW, SLACK, HAS_SLACK, DUMPABLE, IS_DUMPABLE = 36, 37, 38, 39, 29, 30, 4, 3
lock = open('lock', 'w')
fcntl.flock(lock, fcntl.LOCK_EX)
pipe = os.pipe()
fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, 1 << 18)
once, always, poll = os.pipe(), os.pipe(), select.epoll()
poll.register(once[0], select.EPOLLIN | select.EPOLLONESHOT)
poll.register(always[0], select.EPOLLIN)
os.write(once[1], b'1')
os.write(always[1], b'1')
poll.poll()
prctl(SUBREAPER, 1)
prctl(NO_NEW, 1, 0, 0, 0)
prctl(SLACK, 12345)
prctl(DUMPABLE, 0)
os.nice(3)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
fcntl.lockf(open('other', 'w'), fcntl.LOCK_EX)
os.getpgrp()
def locked():
    try:
        return fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno
is_subreaper = ctypes.c_int()
prctl(IS_SUBREAPER, ctypes.byref(is_subreaper))
print(locked(), fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ), poll.poll(0) == [(always[0], select.EPOLLIN)], is_subreaper.value, prctl(HAS_NO_NEW, 0, 0, 0, 0),
      prctl(HAS_SLACK), prctl(IS_DUMPABLE), os.nice(0), len(os.sched_getaffinity(0)), os.sched_getscheduler(0), flush=True)
"""

MESSAGE_QUEUE = """
import ctypes, os
c = ctypes.CDLL(None)
queue = c.msgget(0, 0o1600)
os.getpgrp()
c.msgctl(queue, 0, None)
for i in range(20): os.getpgrp()
print('end', flush=True)
"""


@test("live/attributes")
def attributes(ctx):
    """Locks, sizes of pipes, what epoll watches no longer, and what processes have set of themselves are as they were; what is not is said."""
    outcome = live_as_recorded(ctx, ATTRIBUTES, "getpgrp")
    ctx.expect("what 1 unit set by fcntl(2), F_SETLKW, is not made again" in outcome.stderr, outcome, "says nothing of a lock by fcntl(2)")


@test("live/queues")
def queues(ctx):
    """Who has a System V message queue cannot live again until that is removed."""
    recorded = record(ctx, "/usr/bin/python3", "queue.py", queue_py=MESSAGE_QUEUE)
    steps = calls(ctx, "1", r"^getpgrp[(]")
    outcome = live(ctx, f"1@{steps[-21]}", status=1)
    ctx.expect("it has a System V semaphore or queue (msgget(2)" in outcome.stderr and not outcome.stdout, outcome, "is not refused")
    expect_end(ctx, live(ctx, f"1@{steps[-10]}"), recorded, "without the queue")
