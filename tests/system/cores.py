"""Group cores: what `redrive checkpoint -o` exports. gdb, elfutils and lldb open the cores, and show what the program had: functions, variables,
vector registers. What a core holds is compared with what `replay --break` shows there; the state in an image with the one that a replay comes to; and a
core with one that gcore(1) takes of the program without redrive."""
import re
import shutil
import struct

import keep
import mpi
from bad_input import expect_one_line, needs_mounts
from harness import TESTS, Failure, needs, session_members, test, workload
from programs import job_of, program_job
from real import redis_script, shell_job
from redriving import Job, copy_into, free_port, record, take_away_surroundings, units

PAGE = 4096
NOTES = {1: "status", 2: "floating", 3: "info", 4: "psinfo", 6: "auxv", 0x202: "xstate", 0x46494c45: "files", 0x53494749: "siginfo"}
REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs flags rsp ss fs gs ds es fs_selector gs_selector").split()
# What depends on how the kernel was last left (same_registers(), checkpoint/unit_state.cc).
NOT_KEPT = ("orig_rax", "rcx", "r11", "flags")


class Core:
    """A core file, read without a debugger."""

    def __init__(self, path):
        self.path = path
        self.data = path.open("rb")
        header = self.at(0, 64)
        if header[:7] != b"\x7fELF\2\1\1" or struct.unpack_from("<HH", header, 16) != (4, 62):
            raise Failure(f"{path} is no core of an x86-64 process")
        count = struct.unpack_from("<H", header, 56)[0]
        self.segments, self.notes = [], []
        for i in range(count):
            kind, flags, offset, address, _, held, size, _ = struct.unpack("<IIQQQQQQ", self.at(64 + 56 * i, 56))
            if kind == 4:
                self.read_notes(self.at(offset, held))
            else:
                self.segments.append((address, size, held, offset, flags))
        self.threads = [self.registers(content) for kind, content in self.notes if kind == "status"]

    def at(self, offset, size):
        self.data.seek(offset)
        return self.data.read(size)

    def read_notes(self, data):
        at = 0
        while at < len(data):
            name, size, kind = struct.unpack_from("<III", data, at)
            at += 12 + (name + 3) // 4 * 4
            self.notes.append((NOTES.get(kind, kind), data[at:at + size]))
            at += (size + 3) // 4 * 4

    def note(self, kind):
        return [content for its, content in self.notes if its == kind]

    @staticmethod
    def registers(status):
        return {"tid": struct.unpack_from("<i", status, 32)[0], **dict(zip(REGISTERS, struct.unpack_from("<27Q", status, 112)))}

    def memory(self, address, size):
        """None if the core does not hold all of it."""
        for start, _, held, offset, _ in self.segments:
            if start <= address and address + size <= start + held:
                return self.at(offset + address - start, size)
        return None

    def held_pages(self):
        return [page for start, _, held, _, _ in self.segments for page in range(start, start + held, PAGE)]

    def mapped(self):
        """Ranges and their protections, those that touch and have the same joined."""
        joined = []
        for start, size, _, _, flags in self.segments:
            if joined and joined[-1][1] == start and joined[-1][2] == flags:
                joined[-1][1] = start + size
            else:
                joined.append([start, start + size, flags])
        return joined


def export(ctx, name, *words):
    """Exports into a directory of this name. Returns what redrive says of each core, with the core itself."""
    directory = ctx.directory / name
    said = ctx.json("checkpoint", "-o", directory, ctx.trace, *words)["cores"]
    for core in said:
        core["core"] = Core(ctx.directory / core["file"])
    return said


def gdb(ctx, core, *commands, inside=()):
    """What gdb prints when it opens the core on a machine that has other libraries: it looks for them below the exported root only."""
    needs("gdb")
    words = [*inside, "gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex", f"set sysroot {core['root']}"]
    for command in ("set width 0", "set print frame-arguments all", *commands):
        words += ["-ex", command]
    outcome = ctx.expect_status(ctx.run(*words, *filter(None, [core["program"]]), core["file"], cwd="/"), 0)
    wrong = [line for line in (outcome.stdout + outcome.stderr).splitlines()
             if re.search(r"^warning:|^Error|cannot|Cannot|Failed|corrupt|mismatch", line) and "No such file or directory." not in line
             and "libthread_db" not in line and "Unable to find" not in line]
    if core.get("by_gdb"):  # 16 does not know the size that it gives this note itself
        wrong = [line for line in wrong if ".reg-xstate" not in line]
    ctx.expect(not wrong, outcome, f"gdb complains: {wrong}")
    return outcome.stdout


def stacks(text):
    """The functions of each thread in the output of `thread apply all bt`, the innermost first. Since 2.41, the C library makes its system calls in
    functions whose names are not in its symbol table: these are left out."""
    found = []
    for line in text.splitlines():
        if line.startswith("Thread "):
            found.append([])
        elif found and (frame := re.match(r"#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(", line)):
            if found[-1] or frame[1] != "??":
                found[-1].append(frame[1])
    return found


def expect_same(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: {str(found)[:2000]}, not {str(expected)[:2000]}")


def event_of(ctx, text, unit=1):
    found = [event["event"] for event in ctx.json("dump", ctx.trace, unit) if event["text"].startswith(text)]
    if not found:
        raise Failure(f"unit {unit} has no event {text}")
    return found[-1]


def standing(ctx, *arguments, **changes):
    return Job(["./standing", *arguments], prepare=copy_into(workload(ctx.options, "standing")), **changes)


def record_standing(ctx):
    """Returns the event before which it stands, and which vector register it has filled."""
    filled = re.search("standing with (.)mm(.*)", record(ctx, standing(ctx)).stdout)
    take_away_surroundings(ctx)
    return event_of(ctx, "getppid("), filled[1], filled[2]


def check_against_replay(ctx, core, event):
    """Registers of all threads, and memory, are those that `replay --break` shows there."""
    own = core["core"]
    addresses = [thread["rsp"] for thread in own.threads]
    wanted = [f"--memory={core['unit']}:{address:#x}+64" for address in addresses]
    shown = ctx.json("replay", ctx.trace, "--break", f"{core['unit']}@{event}", *wanted)
    unit, = [unit for unit in shown["units"] if unit["unit"] == core["unit"]]
    expect_same("threads", len(own.threads), len(unit["threads"]))
    by_stack = {thread["rsp"]: thread for thread in own.threads}
    for thread in unit["threads"]:
        registers = {name: int(value, 16) for name, value in thread["registers"].items()}
        its = by_stack[registers["rsp"]]
        expect_same(f"registers of thread {thread['thread']}", {name: its[name] for name in registers}, registers)
        if thread["next"]:
            expect_same("the first thread", own.threads[0]["tid"], its["tid"])
    for address, memory in zip(addresses, shown["memory"]):
        expect_same(f"memory at {address:#x}", own.memory(address, 64).hex(), memory["hex"])


@test("cores/threads")
def threads(ctx):
    """At an event: each thread's functions, variables of the thread, memory that was written and not, a vector register."""
    event, kind, number = record_standing(ctx)
    core, = export(ctx, "out", f"1@{event}")
    check_against_replay(ctx, core, event)
    name = f"{kind}mm{number}"
    count = {"x": 2, "y": 4, "z": 8}[kind]
    text = gdb(ctx, core, "thread apply all bt", f"print/x ${name}.v{count}_int64", "print own", "print written", "print reserved[1<<25]",
               "print reserved[(1<<25)+5000]", "print reserved[1<<24]", "print written[4096]", "info sharedlibrary")
    found = stacks(text)
    expect_same("threads", len(found), 4)
    for functions in found:
        good = functions[-2:] in (["start_thread", "clone3"], ["??", "??"]) or functions[0].startswith("stand_")
        if not good or not ({"level_1", "level_2", "level_3", "worker"} <= set(functions) or functions[-1] == "main"):
            raise Failure(f"a thread with the stack {functions}")
    vector = ", ".join("{:#x}".format(0x1111111111111111 * (i + 1)) for i in range(count))
    for expected in (f"$1 = {{{vector}}}", '"as the file has it"', "$2 = 0\n", "$4 = 98 'b'", "$5 = 0 '\\000'", "$6 = 0 '\\000'", "$7 = 119 'w'"):
        if expected not in text:
            raise Failure(f"gdb does not print {expected}:\n{text}")
    own = re.findall(r"^\$\d+ = (\d)$", gdb(ctx, core, "thread apply all print own"), re.MULTILINE)
    expect_same("values of a thread's own variable", sorted(own), list("0123"))
    libraries = re.findall(r"^0x.* (\S+)$", text, re.MULTILINE)
    if not libraries or not all(library.startswith(core["root"]) for library in libraries):
        raise Failure(f"gdb uses {libraries}")
    if core["bytes"] > 4 << 20:
        raise Failure(f"{core['bytes']} bytes for a program that has touched little of what it has reserved")
    everything, = export(ctx, "everything", "--file-pages", f"1@{event}")
    check_program(everything)
    different = [page for page in core["core"].held_pages() if everything["core"].memory(page, PAGE) != core["core"].memory(page, PAGE)]
    expect_same("pages that differ with --file-pages", different, [])


def check_program(core):
    """All of the program's code is in the core, as it is in the file."""
    program, compared = open(core["program"], "rb").read(), 0
    for (start, end, page), name in zip(file_ranges(core["core"]), names_in(core["core"])):
        flags = [flags for its, size, _, _, flags in core["core"].segments if its <= start < its + size][0]
        if not core["program"].endswith(name) or not flags & 1:  # it is not code
            continue
        for address in range(start, end, PAGE):
            at = page * PAGE + address - start
            if core["core"].memory(address, PAGE) != program[at:at + PAGE].ljust(PAGE, b"\0"):
                raise Failure(f"{address:#x} is not what {name} has at {at:#x}")
            compared += 1
    if not compared:
        raise Failure("no page of the program was compared")


@test("cores/tools")
def tools(ctx):
    """elfutils and lldb read them as well."""
    event, *_ = record_standing(ctx)
    core, = export(ctx, "out", f"1@{event}")
    needs("eu-readelf", "eu-stack")
    notes = ctx.expect_status(ctx.run("eu-readelf", "--notes", core["file"]), 0)
    for expected in ("X86_XSTATE", "PRPSINFO", "fname: standing", "AUXV", "/libc.so.6"):
        ctx.expect(expected in notes.stdout, notes, f"shows no {expected}")
    expect_same("threads in the notes", len(re.findall("PRSTATUS", notes.stdout)), 4)
    stack = ctx.expect_status(ctx.run("eu-stack", "--core", core["file"], "--executable", core["program"]), 0)
    for expected in ("stand_", "main", "level_1", "level_3"):
        ctx.expect(f" {expected}" in stack.stdout, stack, f"shows no {expected}")
    needs("lldb")
    shown = ctx.expect_status(ctx.run("lldb", "-b", "--one-line-before-file", f"platform select --sysroot {core['root']} remote-linux", "-o", "bt all",
                                      "-o", "print written[4096]", "-c", core["file"], core["program"], cwd="/"), 0)
    for pattern in ("frame #0: .*stand_", "frame #1: .*main", r"(?s)(level_1.*level_2.*level_3.*start_thread.*){3}", "(?:char).* = 'w'"):
        ctx.expect(re.search(pattern, shown.stdout), shown, f"shows no {pattern}")


@test("cores/gcore")
def gcore(ctx):
    """The same as gcore takes of the program that stands there without redrive: functions with arguments, variables, files."""
    needs("gdb", "gcore")
    job = standing(ctx, "stay")
    job.prepare(ctx.fresh_work())
    native = ctx.start(*job.command, cwd=ctx.work)
    native.wait_for("standing with", ctx.timeout_s)
    await_pause(ctx, native.pid)
    ctx.expect_status(ctx.run("gcore", "-o", ctx.directory / "native", str(native.pid)), 0)
    native.kill()
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--bound", "2s", "--", *job.command, cwd=ctx.work)
    recording.wait_for("standing with", ctx.timeout_s)
    await_pause(ctx, next(pid for pid, _ in session_members(recording.pid) if open(f"/proc/{pid}/comm").read() == "standing\n"))
    recording.process.terminate()
    recording.finish(ctx.timeout_s)
    core, = export(ctx, "out", f"1@{event_of(ctx, 'pause(')}")
    of_native = {"root": "/", "program": str(ctx.work / "standing"), "file": str(ctx.directory / f"native.{native.pid}"), "by_gdb": True}
    found = []
    for each in (core, of_native):
        text = gdb(ctx, each, "thread apply all bt", "print written", "print reserved[1<<25]", "print all_there", "info line *$pc")
        # From the program's own functions on: a thread may have come a step further in the library.
        frames = [re.sub(r"0x[0-9a-f]+", "", frame) for frame in re.findall(r"^#\d+ +(.*)$", text, re.MULTILINE) if "standing.c" in frame]
        values = re.findall(r"^\$\d = .*$", text, re.MULTILINE)
        files = sorted({name.removeprefix("/usr") for name in names_in(Core(ctx.directory / each["file"]))})
        found.append((sorted(frames), values, files))
    expect_same("what gdb shows, and files", found[0], found[1])
    if len(found[0][0]) != 3 * 4 + 3:  # gdb shows the first one twice
        raise Failure(f"frames {found[0][0]}")
    numbers = [value for key, value in zip(*[iter(struct.unpack(f"<{len(core['core'].note('auxv')[0]) // 8}Q", core["core"].note("auxv")[0]))] * 2)]
    of_kernel = len(Core(ctx.directory / f"native.{native.pid}").note("auxv")[0]) // 16
    expect_same("entries of the auxiliary vector", len(numbers), of_kernel)


def await_pause(ctx, pid):
    ctx.wait_until("the program is in pause", lambda: open(f"/proc/{pid}/syscall").read().startswith("34 "))


def names_in(core):
    note, = core.note("files")
    count, = struct.unpack_from("<Q", note)
    return note[16 + 24 * count:].decode().split("\0")[:count]


def check_images(ctx, least):
    """At each checkpoint with an image, a core from the image has the same as one of a replay that has come there."""
    compared = 0
    for unit in units(ctx):
        threads = [event["thread"] for event in ctx.json("dump", ctx.trace, unit["unit"])]
        for interval in unit["intervals"]:
            if interval["checkpoint_kind"] != "image" or not interval["events"]:
                continue
            first = interval["first_event"]
            if threads.index(threads[first]) == first:  # a newborn thread executes code before its first event
                continue
            which = f"{unit['unit']}:{interval['interval']}"
            from_image = {core["pid"]: core for core in export(ctx, f"image-{which}", which)}
            tier = ("--interception", "stops") if compared % 2 else ()
            redriven = {core["pid"]: core for core in export(ctx, f"replay-{which}", *tier, f"{unit['unit']}@{interval['first_event']}")}
            expect_same(f"processes of {which}", sorted(redriven), sorted(from_image))
            for pid, core in from_image.items():
                compare(which, core["core"], redriven[pid]["core"])
                compared += 1
            shutil.rmtree(ctx.directory / f"image-{which}")
            shutil.rmtree(ctx.directory / f"replay-{which}")
    if compared < least:
        raise Failure(f"only {compared} cores were compared")


def compare(which, one, other):
    kept = [{name: value for name, value in thread.items() if name not in NOT_KEPT} for thread in one.threads]
    expect_same(f"{which}: threads", [{name: thread[name] for name in its} for its, thread in zip(kept, other.threads)], kept)
    for note in ("auxv", "psinfo", "floating"):
        expect_same(f"{which}: {note}", other.note(note), one.note(note))
    expect_same(f"{which}: mappings", other.mapped(), one.mapped())
    pages = set(one.held_pages()) & set(other.held_pages())
    different = [hex(page) for page in sorted(pages) if one.memory(page, PAGE) != other.memory(page, PAGE)]
    expect_same(f"{which}: pages that differ, of {len(pages)}", different, [])
    zero = bytes(PAGE)
    for core, lacks in ((one, other), (other, one)):  # what only one holds is zero, or of a file
        files = file_ranges(core)
        for page in sorted(set(core.held_pages()) - pages):
            if core.memory(page, PAGE) != zero and not any(start <= page < end for start, end, _ in files):
                raise Failure(f"{which}: {lacks.path} lacks {page:#x}")


def file_ranges(core):
    note, = core.note("files")
    count, = struct.unpack_from("<Q", note)
    return [struct.unpack_from("<QQQ", note, 16 + 24 * i) for i in range(count)]


for program, least in (("stress_threads", 1), ("shared_memory", 2), ("fork_tree", 0), ("compute_threads", 1), ("preempted", 1), ("private_views", 1)):
    @test(f"cores/images_{program}")
    def images(ctx, program=program, least=least):
        source = next((TESTS / "programs").glob(f"{program}.c*"))
        record(ctx, program_job(ctx, source))
        take_away_surroundings(ctx)
        check_images(ctx, least)


@test("cores/virtual", slow=True)
def without_images(ctx):
    """Where an interval begins without an image, as at a fork, it is re-driven to there."""
    record(ctx, job_of(ctx, "fork_tree", record_options=("--virtual", "--checkpoint-period", "20ms")))
    take_away_surroundings(ctx)
    for unit in units(ctx):
        for interval in unit["intervals"][:1] + unit["intervals"][1:][-1:]:
            core, = export(ctx, f"{unit['unit']}-{interval['interval']}", f"{unit['unit']}:{interval['interval']}")
            expect_same("the place", (core["event"], core["pid"]), (interval["first_event"], interval["pid"]))
            if interval["interval"] == 0:
                gdb(ctx, core, "bt")


@test("cores/breakpoint")
def at_breakpoint(ctx):
    """All units that stand at a distributed breakpoint, each with a core that is as `replay --break` shows it."""
    record(ctx, Job(["./mesh", "4", "800i"], prepare=copy_into(workload(ctx.options, "mesh"))))
    take_away_surroundings(ctx)
    event = [event["event"] for event in ctx.json("dump", ctx.trace, "mesh.2") if "send" in event][-20]
    shown = ctx.json("replay", ctx.trace, "--break", f"mesh.2@{event}")
    cores = export(ctx, "out", "--break", f"mesh.2@{event}")
    places = [(unit["unit"], unit["event"]) for unit in shown["units"] if unit["state"] == "standing"]
    expect_same("places", [(core["unit"], core["event"]) for core in cores], places)
    if len(places) < 4:
        raise Failure(f"only {places} stand")
    for core, unit in zip(cores, [unit for unit in shown["units"] if unit["state"] == "standing"]):
        registers = {name: int(value, 16) for name, value in unit["threads"][0]["registers"].items()}
        expect_same(f"registers of unit {unit['unit']}", {name: core["core"].threads[0][name] for name in registers}, registers)
        if "main" not in stacks(gdb(ctx, core, "thread apply all bt"))[0]:
            raise Failure(f"no main in unit {core['unit']}")
    alone, = export(ctx, "alone", f"mesh.2@{event}")
    its, = [core for core in cores if core["name"] == "mesh.2"]
    expect_same("threads of the unit alone", alone["core"].threads, its["core"].threads)


@test("cores/joined")
def several_processes(ctx):
    """A unit of processes that share memory has a core for each, with the process's own threads."""
    record(ctx, job_of(ctx, "shared_memory"))
    take_away_surroundings(ctx)
    forks = [event for event in ctx.json("dump", ctx.trace) if event.get("child_thread")]
    cores = export(ctx, "out", f"{forks[-1]['unit']}@{forks[-1]['event'] + 1}")
    pids = [core["pid"] for core in cores]
    if len(cores) < 2 or len(set(pids)) != len(pids):
        raise Failure(f"cores of processes {pids}")
    for core in cores:
        if not any("main" in functions for functions in stacks(gdb(ctx, core, "thread apply all bt"))):
            raise Failure(f"no main in process {core['pid']}")


@test("cores/signals")
def signals(ctx):
    """Before a signal: the core is as if the process had died of it, with its details if a handler gets it."""
    record(ctx, job_of(ctx, "signal_segv"))
    core, = export(ctx, "handled", f"1@{event_of(ctx, '--- SIGSEGV')}")
    text = gdb(ctx, core, "print $_siginfo.si_signo", "print $_siginfo.si_code", "print *(char*)$_siginfo._sifields._sigfault.si_addr", "bt")
    for expected in ("Program terminated with signal SIGSEGV", "$1 = 11", "$2 = 2", "main ("):
        if expected not in text:
            raise Failure(f"gdb does not print {expected}:\n{text}")
    shutil.rmtree(ctx.trace)
    record(ctx, standing(ctx, "crash", status=139, good=lambda outcome: True))
    for number, tier in enumerate(("in-process", "stops")):
        core, = export(ctx, f"crashed-{number}", "--interception", tier, f"1@{event_of(ctx, '--- SIGSEGV')}")
        text = gdb(ctx, core, "print $_siginfo.si_code", "print (long)$_siginfo._sifields._sigfault.si_addr", "bt", "print object")
        for expected in ("Program terminated with signal SIGSEGV", "$1 = 1", "$2 = 24", "crash (object=0x0)", "main (", "$3 = (volatile struct member *) 0x0"):
            if expected not in text:
                raise Failure(f"gdb does not print {expected}:\n{text}")
    shutil.rmtree(ctx.trace)
    record(ctx, job_of(ctx, "aborted", status=134))
    core, = export(ctx, "fatal", f"1@{event_of(ctx, '--- SIGABRT')}")
    text = gdb(ctx, core, "bt")
    for expected in ("Program terminated with signal SIGABRT", "abort ()", "main ("):
        if expected not in text:
            raise Failure(f"gdb does not print {expected}:\n{text}")


@test("cores/python")
def python(ctx):
    needs("/usr/bin/python3")
    code = ("import threading, time\ndef f(n):\n  for i in range(300000): n += i\n  time.sleep(0.05)\n"
            "ts = [threading.Thread(target=f, args=(i,)) for i in range(3)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nprint('ok')")
    record(ctx, Job(["/usr/bin/python3", "-c", code], record_options=("--bound", "2s", "--checkpoint-period", "50ms")))
    take_away_surroundings(ctx)
    event = event_of(ctx, "clock_nanosleep(")
    core, = export(ctx, "out", f"1@{event}")
    check_against_replay(ctx, core, event)
    found = stacks(gdb(ctx, core, "thread apply all bt"))
    if len(found) < 2 or not all("_PyEval_EvalFrameDefault" in functions for functions in found):
        raise Failure(f"stacks {found}")
    if found[-1][0] not in ("__GI___clock_nanosleep", "clock_nanosleep", "__GI___clock_nanosleep_time64"):
        raise Failure(f"the thread that is to sleep is in {found[-1]}")


@test("cores/mpi", timeout_s=120, slow=True)
def mpi_ranks(ctx):
    record(ctx, mpi.job(ctx.options, "jacobi", 200, 300))
    take_away_surroundings(ctx)
    events = ctx.json("dump", ctx.trace, "jacobi.2")
    event = [event for event in events if event["text"].startswith("writev")][-1]["event"]
    cores = export(ctx, "out", "--break", f"jacobi.2@{event}")
    ranks = [core for core in cores if core["name"].startswith("jacobi.")]
    expect_same("ranks", len(ranks), mpi.RANKS)
    for core in ranks:
        found = stacks(gdb(ctx, core, "thread apply all bt"))
        if not any("main" in functions for functions in found) or not all({"start_thread", "??", "main"} & set(functions[-2:]) for functions in found):
            raise Failure(f"stacks of {core['name']}: {found}")
    its, = [core for core in ranks if core["name"] == "jacobi.2"]
    check_against_replay(ctx, its, event)


@test("cores/elsewhere", timeout_s=120)
def elsewhere(ctx):
    """Where the machine has other files under the libraries' names, and the directory was moved, stacks are the same."""
    needs_mounts(ctx)
    record(ctx, mpi.job(ctx.options, "jacobi", 200, 300))
    take_away_surroundings(ctx)
    events = ctx.json("dump", ctx.trace, "jacobi.2")
    core, = export(ctx, "out", f"jacobi.2@{[event for event in events if event['text'].startswith('writev')][-1]['event']}")
    here = gdb(ctx, core, "thread apply all bt")
    libraries = sorted({name for name in names_in(core["core"]) if re.search(r"/lib(mpi|open-rte|open-pal|pmix|event_\w+|hwloc)\b", name)})
    if len(libraries) < 4:
        raise Failure(f"libraries {libraries}")
    (ctx.directory / "out").rename(ctx.directory / "moved")
    for key in ("root", "program", "file"):
        core[key] = core[key].replace(f"{ctx.directory}/out/", f"{ctx.directory}/moved/")
    mounts = "".join(f"mount --bind /bin/true {name}; " for name in libraries)
    there = gdb(ctx, core, "thread apply all bt", inside=("unshare", "-m", "sh", "-ec", f'{mounts} exec "$@"', "sh"))
    expect_same("stacks there", there.replace("/moved/", "/out/"), here)
    if "main (" not in here or "PMIx_" not in here or "event_base_loop" not in here:
        raise Failure(f"stacks {here}")


@test("cores/redis", timeout_s=120)
def redis(ctx):
    needs("redis-server", "redis-benchmark", "redis-cli")
    record(ctx, shell_job(redis_script(free_port(), 2000)))
    take_away_surroundings(ctx)
    unit, = [unit for unit in units(ctx) if unit["command"].startswith("redis-server")]
    waits = [event["event"] for event in ctx.json("dump", ctx.trace, unit["unit"]) if event["text"].startswith("epoll_wait(")]
    core, = export(ctx, "out", f"{unit['unit']}@{waits[len(waits) // 2]}")
    check_against_replay(ctx, core, core["event"])
    found = stacks(gdb(ctx, core, "thread apply all bt"))
    if len(found) < 3 or not all("start_thread" in functions or "__libc_start_main_impl" in functions or "main" in functions or len(functions) > 2
                                 for functions in found):
        raise Failure(f"stacks {found}")
    expect_same("the thread that serves clients", "epoll_wait" in found[-1][0], True)


@test("cores/listing")
def listing(ctx):
    """`ls --checkpoints` counts what the page store has, and the threads that the cores have."""
    record(ctx, program_job(ctx, next((TESTS / "programs").glob("stress_threads.c*"))))
    check_listing(ctx)


@test("cores/window")
def window(ctx):
    """The same for a recording of which only the last part was kept: its volumes have a page store each."""
    record(ctx, Job(keep.talk(5), good=lambda outcome: "sent" in outcome.stdout, record_options=("--keep", "2s", "--bound", "2s")))
    if len(keep.volumes(ctx.trace)) < 2:
        raise Failure("the trace has only one volume")
    check_listing(ctx)


def check_listing(ctx):
    take_away_surroundings(ctx)
    said = ctx.json("ls", "--checkpoints", ctx.trace)
    images = [(unit["unit"], interval["interval"]) for unit in units(ctx) for interval in unit["intervals"]
              if interval["startable"] and interval["checkpoint_kind"] != "fork"]
    expect_same("checkpoints", [(each["unit"], each["interval"]) for each in said["checkpoints"]], images)
    for each in said["checkpoints"]:
        cores = export(ctx, f"of-{each['unit']}-{each['interval']}", f"{each['unit']}:{each['interval']}")
        expect_same("processes and threads", (each["processes"], each["threads"]), (len(cores), sum(core["threads"] for core in cores)))
        if not 0 <= each["shared_bytes"] <= each["bytes"]:
            raise Failure(f"{each}")
    expect_same("bytes of all", said["bytes"], sum(each["bytes"] for each in said["checkpoints"]))
    expect_same("bytes in the page store", said["distinct_bytes"], PAGE * sum(map(pages_stored, ctx.trace.rglob("pages"))))
    stored = [file for name in ("pages", "images.seg") for file in ctx.trace.rglob(name)]
    expect_same("bytes on the disk", said["stored_bytes"], sum(file.stat().st_size for file in stored))
    shared = sum(each["shared_bytes"] for each in said["checkpoints"])
    if not said["bytes"] - shared <= said["distinct_bytes"] <= said["bytes"]:
        raise Failure(f"{said}")
    table = ctx.expect_status(ctx.redrive("ls", "--checkpoints", ctx.trace), 0).stdout.splitlines()
    expect_same("lines", len(table), len(images) + 2)


def pages_stored(path):
    """The items of all records (FORMAT.md)."""
    data, at, count = path.read_bytes(), 24, 0
    while at < len(data):
        length, items = struct.unpack_from("<I", data, at)[0], struct.unpack_from("<I", data, at + 16)[0]
        count += items
        at += 40 + length
    return count


@test("cores/refusals")
def refusals(ctx):
    """One line says what is wrong, and nothing is left behind."""
    record(ctx, job_of(ctx, "relay", "40"))
    out = ctx.directory / "out"

    def refuse(status, text, *words):
        expect_one_line(ctx, ctx.redrive("checkpoint", "-o", out, *words), status, text)
        if out.exists():
            raise Failure(f"{words}: {out} is left behind")

    refuse(1, "no event 999999: it has 0 to", ctx.trace, "1@999999")
    refuse(1, "no interval 99", ctx.trace, "1:99")
    refuse(1, "nobody", ctx.trace, "nobody@3")
    refuse(1, "cannot stand before two events", "--break", "1@3", "--break", "1@2", ctx.trace)
    refuse(2, "names no place", ctx.trace, "1")
    refuse(1, "no-such-trace", ctx.directory / "no-such-trace", "1@3")
    expect_one_line(ctx, ctx.redrive("checkpoint", "-o", ctx.directory / "no" / "such", ctx.trace, "1@3"), 1, "No such file or directory")
    out.mkdir()
    (out / "mine").write_text("mine")
    expect_one_line(ctx, ctx.redrive("checkpoint", "-o", out, ctx.trace, "1@3"), 1, "File exists")
    expect_same("what was there before", (out / "mine").read_text(), "mine")
    shutil.rmtree(out)
    store = ctx.trace / "pages"
    data = bytearray(store.read_bytes())
    data[len(data) // 2] ^= 1
    store.write_bytes(data)
    refuse(4, "pages: offset", ctx.trace, "1:0", "--file-pages")
    refuse(4, "pages: offset", ctx.trace, "1@20")


@test("cores/disk_full")
def disk_full(ctx):
    needs_mounts(ctx)
    record(ctx, job_of(ctx, "big_memory", "8", "1", "1"))
    (ctx.directory / "full").mkdir()
    unit = units(ctx)[0]
    last = ctx.json("dump", ctx.trace, unit["unit"])[-1]["event"]
    outcome = ctx.run("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs full; "$@"; status=$?; ls full; exit $status', "sh",
                      ctx.options.redrive, "checkpoint", "-o", "full/out", ctx.trace, f"{unit['unit']}@{last}")
    expect_one_line(ctx, outcome, 1, "No space left on device")
    ctx.expect(not outcome.stdout, outcome, "leaves something behind")
