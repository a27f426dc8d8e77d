"""Group engines: `replay --restore-engine`. What CRIU restores is what redrive restores without it, register by register and page by page, and intervals
that begin there verify. Where CRIU is not to be had, or is not allowed, these tests see that the command says so."""
import os
import pathlib
import shlex

import mpi
import redriving
from criu_tools import NO_GROUPS, NOT_ROOT, criu_path
from harness import TESTS, Failure, Skip, compiled, needs, test
from live import THREADS
from real import redis_script, shell_job
from redriving import Job, free_port

ENGINE = ("--restore-engine", "criu")
OFTEN = ("--checkpoint-period", "50ms", "--bound", "2s")
ALLOCATING = """
import hashlib, mmap, time
words, shared = {}, mmap.mmap(-1, 1 << 20)
for i in range(100000):
    words[hashlib.sha256(str(i).encode()).hexdigest()] = bytes(i % 500)
    shared[i] = i % 251
    if i % 2000 == 0:
        time.sleep(0.005)
print('ok', len(words), sum(shared[:3000]), flush=True)
"""


class Tool:
    """A program criu before the real one in PATH, which notes for what it is started."""

    def __init__(self, ctx):
        path, why = criu_path(ctx)
        if why and why != NO_GROUPS:
            outcome = ctx.redrive("replay", *ENGINE, "--all", ctx.trace, env={"PATH": path})
            ctx.expect(outcome.status == 1 and ("need root" if why == NOT_ROOT else "criu") in outcome.stderr, outcome, "is not refused")
            raise Skip(f"refused as it should be: {why}")
        self.notes, place = ctx.directory / "started", ctx.directory / "tool"
        self.notes.write_text("")
        place.mkdir(exist_ok=True)
        real = next(pathlib.Path(folder) / "criu" for folder in path.split(":") if (pathlib.Path(folder) / "criu").exists())
        tool = place / "criu"
        tool.write_text(f"#!/bin/sh\necho \"$1\" >> {shlex.quote(str(self.notes))}\nexec {shlex.quote(str(real))} \"$@\"\n")
        tool.chmod(0o755)
        self.env = {"PATH": f"{place}:{path}"}

    def restores(self):
        return self.notes.read_text().split().count("restore")


def expect_same(ctx, at_least=1):
    """Both engines restore the same, from every image; and what is re-driven from CRIU's is verified."""
    tool = Tool(ctx)
    compared = ctx.expect_status(ctx.run(ctx.options.build / "compare_engines", ctx.trace, env=tool.env), 0)
    count = int(compared.stdout.split()[0])
    ctx.expect(count >= at_least and tool.restores() >= count, compared, f"compares {count} images")
    before = tool.restores()
    report = ctx.json("replay", "--all", "--verify", *ENGINE, ctx.trace, statuses=redriving.REDRIVEN, cwd="/", env=tool.env)
    redriving.check_report(ctx, report)
    ctx.expect(tool.restores() - before >= count, compared, "a replay does not use CRIU")


def record(ctx, *command, **files):
    def prepare(work):
        for name, content in files.items():
            (work / name.replace("_", ".")).write_text(content)

    redriving.record(ctx, Job(command, prepare=prepare, good=lambda outcome: True, record_options=OFTEN))


@test("engines/threads", timeout_s=300)
def threads(ctx):
    """A program with threads, most of them in calls."""
    record(ctx, compiled(ctx.options, TESTS / "programs" / "compute_threads.c", flags=["-pthread", "-O1"]))
    expect_same(ctx)


@test("engines/python", timeout_s=300, slow=True)
def python(ctx):
    """An interpreter that takes memory all the time, and memory that could be shared."""
    record(ctx, "/usr/bin/python3", "p.py", p_py=ALLOCATING)
    expect_same(ctx, at_least=2)


@test("engines/redis", timeout_s=300)
def redis(ctx):
    """A server and its clients."""
    needs("redis-server", "redis-benchmark", "redis-cli")
    redriving.record(ctx, shell_job(redis_script(free_port(), 500), record_options=OFTEN))
    expect_same(ctx, at_least=3)


@test("engines/breakpoint", timeout_s=300)
def breakpoint_(ctx):
    """Units that stand at a distributed breakpoint, and all intervals together."""
    record(ctx, "/usr/bin/python3", "t.py", t_py=THREADS.replace("sys.exit(3)", ""))
    tool = Tool(ctx)
    for words in (("--all", "--once", "--verify"), ("--break", "1@300", "--verify")):
        before = tool.restores()
        outcome = ctx.expect_status(ctx.redrive("replay", *words, *ENGINE, ctx.trace, cwd="/", env=tool.env), 0)
        ctx.expect(tool.restores() > before, outcome, f"{words[0]} does not use CRIU")


def fake(ctx, restore, version="4.1.1", check=0):
    """A PATH with a program criu that answers in this way."""
    place = ctx.directory / "fake"
    place.mkdir(exist_ok=True)
    tool = place / "criu"
    tool.write_text(f"""#!/bin/sh
case $1 in
--version) echo 'Version: {version}';;
check) exit {check};;
*) {restore};;
esac
""")
    tool.chmod(0o755)
    return {"PATH": f"{place}:{os.environ['PATH']}"}


@test("engines/refused")
def refused(ctx):
    """Without root or a CRIU that can be used, one line says so, and nothing is re-driven; the other engines need neither."""
    record(ctx, compiled(ctx.options, TESTS / "programs" / "heap.c"))

    def expect_refusal(words, env):
        outcome = ctx.redrive("replay", "--all", *ENGINE, ctx.trace, env=env)
        ctx.expect(outcome.status == 1 and words in outcome.stderr and len(outcome.stderr.splitlines()) == 1 and not outcome.stdout,
                   outcome, f"'{words}' is not said")

    none = {"PATH": str(ctx.directory / "none")}
    if os.geteuid() == 0:
        expect_refusal("there is no criu in PATH: install it", none)
        expect_refusal("criu 3.17.1 does not work here ('it is too old'): install 4.1 or newer", fake(ctx, "exit 1", version="3.17.1"))
        expect_refusal("criu 4.1.1 does not work here: install 4.1 or newer", fake(ctx, "exit 1", check=1))
    else:
        expect_refusal("restores by criu need root, because criu does: run it as root", none)
    for engine in ("auto", "own"):
        outcome = ctx.expect_status(ctx.redrive("replay", "--all", "--verify", "--restore-engine", engine, ctx.trace, env=none), 0)
        ctx.expect(not outcome.stderr, outcome, "says something")
    ctx.expect_status(ctx.redrive("replay", "--all", "--restore-engine", "dmtcp", ctx.trace), 2)


@test("engines/fails")
def fails(ctx):
    """An image that CRIU does not restore is not re-driven, and the reason is CRIU's."""
    record(ctx, compiled(ctx.options, TESTS / "programs" / "heap.c"))
    if os.geteuid() != 0:
        raise Skip(NOT_ROOT)
    line = "echo '(00.01) 7: Error (criu/mem.c:9): no memory here' >&2; exit 1"
    outcome = ctx.redrive("replay", "--all", *ENGINE, ctx.trace, env=fake(ctx, line))
    ctx.expect(outcome.status == 1 and "criu 4.1.1 cannot restore a process: no memory here" in outcome.stderr, outcome, "does not say why")
    outcome = ctx.redrive("replay", "--all", *ENGINE, ctx.trace, env=fake(ctx, "exit 0"))
    ctx.expect(outcome.status == 1 and "a process that CRIU has restored has ended" in outcome.stderr, outcome, "does not find that it is gone")


@test("engines/mpi", timeout_s=900, slow=True)
def mpi_ranks(ctx):
    """The ranks of an MPI program."""
    job = mpi.job(ctx.options, "jacobi", 200, 300)
    job.record_options = OFTEN
    redriving.record(ctx, job)
    expect_same(ctx, at_least=4)


@test("engines/much_memory", timeout_s=900, slow=True)
def much_memory(ctx):
    """512 MB of data that does not compress."""
    record(ctx, compiled(ctx.options, TESTS / "programs" / "big_memory.c"), "512", "100", "1")
    expect_same(ctx, at_least=2)


@test("engines/redis_benchmark", timeout_s=900, slow=True)
def redis_benchmark(ctx):
    """A server under load."""
    needs("redis-server", "redis-benchmark", "redis-cli")
    redriving.record(ctx, shell_job(redis_script(free_port(), 5000), record_options=OFTEN))
    expect_same(ctx, at_least=5)


def maps_of(process):
    try:
        return (process / "maps").read_text()
    except OSError:
        return ""


def restored_processes(ctx):
    """Those that have mapped the trace's copies of files."""
    return [process for process in pathlib.Path("/proc").glob("[0-9]*") if str(ctx.trace) in maps_of(process)]


def limits_of(process):
    names = ("Max file size", "Max core file size", "Max locked memory", "Max msgqueue size")
    lines = (process / "limits").read_text().splitlines()
    return {name: line.removeprefix(name).split()[0] for line in lines for name in names if line.startswith(name)}


def is_reading_commands(pid):
    """Whether a process is in read(2) of its standard input."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ") and "redrive" in pathlib.Path(f"/proc/{pid}/comm").read_text()


def standing(ctx, tool, *engine):
    """What the kernel says of a process that stands at a breakpoint."""
    commands = ctx.directory / "commands"
    os.mkfifo(commands)
    words = (ctx.options.redrive, "replay", "--break", "1@200", "--inspect", *engine, ctx.trace)
    replay = ctx.start("sh", "-c", f'exec "$@" < {shlex.quote(str(commands))}', "sh", *words, cwd="/", env=tool.env)
    with commands.open("w") as to_replay:
        ctx.wait_until("a replay that waits for a command", lambda: is_reading_commands(replay.pid))
        process, = restored_processes(ctx)
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
        found = {name: status[name].split() for name in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "NoNewPrivs", "Seccomp")}
        found["limits"], found["root"] = limits_of(process), os.listdir(process / "root")
        found["files"] = [os.readlink(file).split(":")[0] for file in (process / "fd").iterdir()]
        found["namespaces"] = {name: os.readlink(process / "ns" / name) for name in ("pid", "mnt", "net", "ipc")}
        found["first"] = (process / "oom_score_adj").read_text().strip()
        to_replay.write("quit\n")
    ctx.expect_status(replay.finish(ctx.timeout_s), 0)
    commands.unlink()
    return found


@test("engines/confined", timeout_s=300)
def confined(ctx):
    """What CRIU has restored is confined as what redrive has: nobody without capabilities, in other namespaces, with an empty directory for its root, no
    file but the socket of its tracer, a filter, and limits."""
    record(ctx, "/usr/bin/python3", "p.py", p_py=ALLOCATING)
    tool = Tool(ctx)
    own, by_criu = standing(ctx, tool), standing(ctx, tool, *ENGINE)
    ours = {name: os.readlink(f"/proc/self/ns/{name}") for name in own["namespaces"]}
    shared = [name for name, other in by_criu.pop("namespaces").items() if other == ours[name]]
    own.pop("namespaces")
    nobody, nothing = ["65534"] * 4, ["0000000000000000"]
    expected = {"Uid": nobody, "Gid": nobody, "Groups": [], "CapInh": nothing, "CapPrm": nothing, "CapEff": nothing}
    wrong = {name: by_criu[name] for name in expected if by_criu[name] != expected[name]}
    others = {name: (own[name], by_criu[name]) for name in own if name not in expected and own[name] != by_criu[name]}
    if shared or wrong or others:
        raise Failure(f"is not confined: it shares {shared}, has {wrong}, and differs from the other in {others}")


@test("engines/ended", timeout_s=300)
def ended(ctx):
    """What CRIU has restored ends with the replay: no process is left that has mapped the trace's copies of files."""
    record(ctx, "/usr/bin/python3", "p.py", p_py=ALLOCATING)
    tool = Tool(ctx)
    replay = ctx.start_redrive("replay", "--all", "--once", *ENGINE, ctx.trace, cwd="/", env=tool.env)
    ctx.wait_until("a restored process", lambda: restored_processes(ctx))
    ctx.expect_status(replay.finish(ctx.timeout_s), 0)
    ctx.wait_until("the end of all", lambda: not restored_processes(ctx))
