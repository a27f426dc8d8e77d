"""Group limits: resource limits (ulimit) that apply to the program, but not to redrive."""
import contextlib
import os
import pathlib
import re
import subprocess

from bad_input import redrive_of_nobody
from harness import Failure, Skip, needs, test, workload
from programs import job_of
from redriving import check_report, is_root, record, units

CAP_SYS_RESOURCE = 24


def may_raise_hard_limits():
    with open("/proc/self/status") as status:
        capabilities = int(re.search(r"^CapEff:\s*(\w+)", status.read(), re.MULTILINE)[1], 16)
    return bool(capabilities >> CAP_SYS_RESOURCE & 1)


def within(limits, *command):
    return ["bash", "-c", " && ".join(f"ulimit {limit}" for limit in limits) + ' && exec "$@"', "bash", *command]


def behaves_as_natively(ctx, limits):
    program = workload(ctx.options, "within_limits")
    ctx.fresh_work()
    natively = ctx.run(*within(limits, program), cwd=ctx.work)
    ctx.expect("\nok\n" in natively.stdout, natively, "did not come to its end")
    recorded = ctx.run(*within(limits, ctx.options.redrive, "record", "-o", ctx.trace, "--", program), cwd=ctx.work)
    ctx.expect(recorded.status == natively.status and recorded.stdout == natively.stdout, recorded, f"natively: {natively.stdout}")
    ctx.expect("redrive:" not in recorded.stderr, recorded, "complains")
    outcome = ctx.run(*within(limits, ctx.options.redrive, "replay", ctx.trace, "--all", "--verify"), cwd="/")
    ctx.expect_status(outcome, 0)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", "--verify", cwd="/", statuses=(0, 3)))
    ctx.expect(len(units(ctx)) >= 11, outcome, "holds fewer processes than there were")


for name, limits in {
        "descriptors": ["-Sn 20"],
        "few_descriptors": ["-Sn 4"],
        "file_size": ["-Sf 2"],
        "address_space": ["-Sv 60000"],
        "data": ["-Sd 20000"],
        "cpu_time": ["-St 1"],
        "locked_memory": ["-Sl 0"],
        "pending_signals": ["-Si 0"],
        "all": ["-Sn 16", "-Sf 8", "-Sv 80000", "-Sd 40000", "-Sl 0"]}.items():
    @test(f"limits/{name}")
    def soft(ctx, limits=limits):
        behaves_as_natively(ctx, limits)


@test("limits/memfd_noexec")
def memfd_noexec(ctx):
    """Where files in memory are executable only on request, redrive works; where none may be, it says which sysctl forbids that (proc_sys_vm(5))."""
    needs("unshare")
    job = job_of(ctx, "fork_tree")
    job.prepare(ctx.work)
    redrive = ctx.options.redrive

    def where(value, *command):
        inside = f'echo {value} > /proc/sys/vm/memfd_noexec || exit 77; exec "$@"'
        outcome = ctx.run("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", inside, "sh", *command, cwd=ctx.work)
        if outcome.status == 77 or "unshare failed" in outcome.stderr:
            raise Skip("the sysctl vm.memfd_noexec cannot be set here")
        return outcome

    ctx.expect_status(where(1, redrive, "record", "-o", ctx.trace, "--", "./fork_tree"), 0)
    ctx.expect_status(where(1, redrive, "replay", ctx.trace, "--all", "--verify"), 0)
    ctx.expect_status(where(1, redrive, "check", "--host"), 0)
    for words, status in ((("record", "-o", ctx.traces / "none", "--", "./fork_tree"), 125), (("check", "--host"), 1)):
        outcome = ctx.expect_status(where(2, redrive, *words), status)
        ctx.expect("vm.memfd_noexec" in outcome.stdout + outcome.stderr, outcome, "does not name the sysctl")
        ctx.expect("yama" not in outcome.stdout, outcome, "names another reason, too")


for name, (limit, words) in {
        "hard_descriptors": ("-n 20", r"open files, 20,.*ulimit -Hn"),
        "hard_file_size": ("-f 2", r"size of files, .*ulimit -Hf"),
        "hard_address_space": ("-v 60000", r"address space, 58 MiB,.*ulimit -Hv"),
        "hard_data": ("-d 60000", r"data, 58 MiB,.*ulimit -Hd")}.items():
    @test(f"limits/{name}")
    def hard(ctx, limit=limit, words=words):
        """A limit that redrive may not raise and that is too low for itself is reported before the program starts."""
        if may_raise_hard_limits():
            behaves_as_natively(ctx, [limit])
            return
        outcome = ctx.run(*within([limit], ctx.options.redrive, "record", "-o", ctx.trace, "--", "touch", "started"), cwd=ctx.work)
        ctx.expect_status(outcome, 125)
        ctx.expect(outcome.stderr.count("\n") == 1 and re.search(words, outcome.stderr), outcome, "does not say what it lacks")
        ctx.expect(not (ctx.work / "started").exists() and not ctx.trace.exists(), outcome, "leaves something behind")


@test("limits/reading")
def reading(ctx):
    """Soft limits of memory and CPU time hold for commands that only read a trace, because anybody may have made it."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo $i; done"), 0)
    most = 1 << 30
    set_limits = ["-Sv " + str(most >> 10), "-Sd " + str(most >> 10), "-St 1000"]
    reads, writes = os.pipe()
    # Its output is longer than a pipe holds, so it cannot end before it is looked at.
    reader = subprocess.Popen(within(set_limits, ctx.options.redrive, "dump", ctx.trace, "1"), stdout=writes, env=ctx.env)
    os.close(writes)
    try:
        if not os.read(reads, 1):
            raise Failure("dump has ended")
        with open(f"/proc/{reader.pid}/limits") as limits:
            soft = {line[:26].strip(): line[26:].split()[0] for line in limits}
    finally:
        reader.kill()
        reader.wait()
        os.close(reads)
    for name, limit in {"Max address space": most, "Max data size": most, "Max cpu time": 1000}.items():
        if soft[name] != str(limit):
            raise Failure(f"{name}: {soft[name]}")


@test("limits/stack")
def stack(ctx):
    """The limit of the stack is the program's, so it is not raised; what is too low for redrive is refused before anything is done."""
    for command in (("record", "-o", ctx.trace, "--", "touch", "started"), ("replay", "--all", ctx.trace)):
        outcome = ctx.run(*within(["-s 64"], ctx.options.redrive, *command), cwd=ctx.work)
        ctx.expect_status(outcome, 125 if command[0] == "record" else 1)
        ctx.expect(outcome.stderr.count("\n") == 1 and "the stack, 64 KiB," in outcome.stderr, outcome, "does not say what it lacks")
    if (ctx.work / "started").exists() or ctx.trace.exists():
        raise Failure("leaves something behind")
    for command in (("record", "-o", ctx.trace, "--", "sh", "-c", "seq 10 | sort"), ("replay", "--all", "--verify", ctx.trace)):
        ctx.expect_status(ctx.run(*within(["-s 256"], ctx.options.redrive, *command), cwd=ctx.work), 0)


@test("limits/stack_of_replay")
def stack_of_replay(ctx):
    """Where a stack cannot grow as far as in the recording, a replay says so, and does not take it for a divergence."""
    record(ctx, job_of(ctx, "stack_growth"))
    outcome = ctx.expect_status(ctx.run(*within(["-s 2048"], ctx.options.redrive, "replay", "--all", ctx.trace)), 1)
    ctx.expect("cannot grow beyond 2.00 MiB, the hard limit" in outcome.stdout, outcome, "does not say what is too low")
    ctx.expect("divergence in" not in outcome.stderr, outcome, "takes it for a divergence")


@test("limits/descriptors_of_replay")
def descriptors_of_replay(ctx):
    """Where a replay lacks descriptors that the recording had, it says which limit is too low."""
    script = "for i in $(seq 40); do sleep 1000 & done; kill $(jobs -p); wait"
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "bash", "-c", script, cwd=ctx.work), 0)
    redrive = redrive_of_nobody(ctx) if is_root() else (ctx.options.redrive,)
    ctx.run("chmod", "-R", "a+rX", ctx.trace)
    outcome = ctx.expect_status(ctx.run(*within(["-n 64"], *redrive, "replay", "--all", "--once", ctx.trace)), 1)
    ctx.expect("Too many open files (see ulimit -n)" in outcome.stdout, outcome, "does not say what is too low")


@test("limits/size_of_catalog")
def size_of_catalog(ctx):
    """A command that writes a file that is too large says so, and is not killed."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", "seq 10 | sort"), 0)
    unprivileged = ["setpriv", "--bounding-set=-sys_resource"] if may_raise_hard_limits() else []
    outcome = ctx.expect_status(ctx.run(*unprivileged, *within(["-f 10"], ctx.options.redrive, "catalog", ctx.trace)), 1)
    ctx.expect(outcome.stderr.count("\n") == 1, outcome, "does not say what is wrong")
    if list(ctx.trace.glob("catalog*")):
        raise Failure("a part of the catalog is left")


@contextlib.contextmanager
def memory_group(name, limit):
    """A control group with this many bytes; returns the file by which processes join it."""
    hierarchies = {pathlib.Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", pathlib.Path("/sys/fs/cgroup"): "memory.max"}
    for hierarchy, file in hierarchies.items():
        group = hierarchy / f"redrive-{name}-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists():
                (group / file).write_text(str(limit))
                yield group / "cgroup.procs"
                return
        finally:
            group.rmdir()
    raise Skip("no control group for memory can be made here")


def in_group(group, *command):
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', group, *command]


@test("limits/memory_group")
def little_memory(ctx):
    """A group with room for the program and some for the recorder."""
    program = ["python3", "-c", "x = bytearray(4 << 20); print(len(x))"]
    with memory_group("enough", 32 << 20) as group:
        ctx.expect_status(ctx.run(*in_group(group, *program)), 0)
        outcome = ctx.run(*in_group(group, ctx.options.redrive, "record", "-o", ctx.trace, "--", *program))
        ctx.expect_status(outcome, 0)
        ctx.expect(outcome.stdout == f"{4 << 20}\n" and not outcome.stderr, outcome, "behaves otherwise than natively")
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", "--verify", cwd="/"))


@test("limits/too_little_memory_in_group")
def too_little_memory(ctx):
    """The kernel kills either the program, as without a recorder, or the recorder, which is reported."""
    program = ["python3", "-c", "x = b'1' * (64 << 20); print(len(x))"]
    with memory_group("little", 32 << 20) as group:
        ctx.expect_status(ctx.run(*in_group(group, *program)), 128 + 9, -9)
        outcome = ctx.run(*in_group(group, ctx.options.redrive, "record", "-o", ctx.trace, "--", *program))
        ctx.expect_status(outcome, 128 + 9)
        ctx.expect(not outcome.stderr or "the recorder was ended by signal 9" in outcome.stderr, outcome, "says something else")
    ctx.expect_status(ctx.redrive("check", ctx.trace), 0)
    check_report(ctx, ctx.json("replay", ctx.trace, "--all", "--once", cwd="/"))
