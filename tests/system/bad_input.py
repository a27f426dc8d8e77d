"""Group bad_input: whatever is wrong with the command line, the program, the host or the trace gets one clear line and the right exit status, and
nothing is lost. One test for each case of issue 2's last bullet."""
import json
import os
import re
import shutil
import signal
import stat
import struct
import time

from faults import alter, recorded
from harness import Failure, Skip, needs, test, workload
from programs import job_of
from redriving import Job, check_trace, is_root, record, redrive_all, take_away_surroundings, units

PERIOD = ("--bound", "2s", "--checkpoint-period", "100ms")


def expect_one_line(ctx, outcome, status, *words):
    """Expects an error of redrive itself: one line that begins with its name and contains the words. `status` may be a choice of several."""
    ctx.expect_status(outcome, *(status if isinstance(status, tuple) else (status,)))
    lines = outcome.stderr.splitlines()
    ctx.expect(len(lines) == 1 and lines[0].startswith("redrive: "), outcome, f"{len(lines)} lines on standard error, not one")
    for word in words:
        ctx.expect(re.search(word, lines[0]), outcome, f"the line has no '{word}'")


def refuses_to_record(ctx, words, status, *expected, command=("true",)):
    trace = ctx.traces / "refused"
    outcome = ctx.redrive("record", "-o", trace, *words, "--", *command, cwd=ctx.work)
    expect_one_line(ctx, outcome, status, *expected)
    ctx.expect(not trace.exists(), outcome, "leaves a trace directory behind")


@test("bad_input/no_such_command")
def no_such_command(ctx):
    refuses_to_record(ctx, (), 127, "no-such-program", command=("no-such-program",))
    refuses_to_record(ctx, (), 127, "no/such/program", command=("./no/such/program",))


@test("bad_input/not_executable")
def not_executable(ctx):
    (ctx.work / "text").write_text("no program\n")
    refuses_to_record(ctx, (), 126, "text", command=("./text",))
    (ctx.work / "text").chmod(0o755)
    (ctx.work / "text").write_bytes(b"text")
    refuses_to_record(ctx, (), 126, "text", command=("./text",))
    refuses_to_record(ctx, (), 126, "directory", command=("../work",))
    (ctx.work / "script").write_text("#!/no/such/interpreter\n")
    (ctx.work / "script").chmod(0o755)
    refuses_to_record(ctx, (), 127, "/no/such/interpreter", command=("./script",))


@test("bad_input/searched_program")
def searched_program(ctx):
    """A program is searched for as execvp(3) does it, which env(1) uses: an empty word of PATH is the current directory, and what may not be executed
    is what was meant if there is nothing else."""
    for directory, mode, text in (("here", 0o755, "#!/bin/sh\necho here\n"), ("there", 0o755, "#!/bin/sh\necho there\n"),
                                  ("closed", 0o644, "#!/bin/sh\necho closed\n"), ("nameless", 0o755, "#!\n/bin/sh\n"), ("blank", 0o755, "#! \t\n/bin/sh\n")):
        (ctx.work / directory).mkdir()
        (ctx.work / directory / "tool").write_text(text)
        (ctx.work / directory / "tool").chmod(mode)
    there, closed = ctx.work / "there", ctx.work / "closed"
    for path, said in (("/none:", "here"), ("", "here"), (f":{there}", "here"), (f"{there}:", "there"), (f"{closed}::{there}", "here"),
                       (f"{closed}:{there}", "there")):
        outcome = ctx.expect_status(ctx.run(ctx.options.redrive, "record", "--", "tool", cwd=ctx.work / "here", env={"PATH": path}), 0)
        ctx.expect(outcome.stdout == f"{said}\n", outcome, f"takes another one by PATH={path}")
    for path, status, said in ((closed, 126, "closed/tool: not executable"), ("/none", 127, "tool: command not found"),
                               (ctx.work / "nameless", 126, "nameless/tool: neither"), (ctx.work / "blank", 126, "blank/tool: neither")):
        expect_one_line(ctx, ctx.run(ctx.options.redrive, "record", "--", "tool", cwd="/", env={"PATH": str(path)}), status, said)


@test("bad_input/execution_fails")
def execution_fails(ctx):
    """Errors that only the kernel finds."""
    shutil.copy("/bin/true", ctx.work / "busy")
    with open(ctx.work / "busy", "ab"):
        outcome = ctx.redrive("record", "-o", ctx.trace, "--", "./busy", cwd=ctx.work)
    expect_one_line(ctx, outcome, 126, "busy: Text file busy")


@test("bad_input/setuid")
def setuid(ctx):
    if not is_root():
        raise Skip("not root: cannot make a setuid program")
    shutil.copy("/bin/true", ctx.work / "setuid")
    os.chown(ctx.work / "setuid", 65534, 65534)
    (ctx.work / "setuid").chmod(0o4755)
    refuses_to_record(ctx, (), 125, "set-user-ID", command=("./setuid",))
    # Root gains nothing by a program of its own.
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "su", "-s", "/bin/sh", "-c", "id -un; exit 3", "nobody"), 3)
    ctx.expect(outcome.stdout == "nobody\n", outcome, "has not become another user")
    redrive_all(ctx)


@test("bad_input/file_capabilities")
def file_capabilities(ctx):
    """A program that is recorded by a user gets no capabilities by its file, and a line says so; root lacks none."""
    redrive = redrive_of_nobody(ctx)
    capable = ctx.work / "capable"
    shutil.copy("/bin/true", capable)
    effective, net_bind_service = 0x02000001, 1 << 10
    os.setxattr(capable, "security.capability", struct.pack("<5I", effective, net_bind_service, 0, 0, 0))
    for command in ((capable,), ("sh", "-c", f"{capable}; exit 0")):
        shutil.rmtree(ctx.trace, ignore_errors=True)
        outcome = ctx.expect_status(ctx.run(*redrive, "record", "-o", ctx.trace, "--", *command, cwd=ctx.work), 0)
        ctx.expect(outcome.stderr == "redrive: refused the capabilities of program capable (ran without them) 1 time, in unit "
                   f"{len(command) // 2 + 1}\n", outcome, "does not say that it lacks its capabilities")
    shutil.rmtree(ctx.trace)
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", capable), 0)
    ctx.expect(outcome.stderr == "", outcome, "says that root lacks capabilities")


@test("bad_input/no_capability_to_trace")
def no_capability_to_trace(ctx):
    """Root without CAP_SYS_PTRACE, as in a container: who has become another user cannot execute programs, and a line says why."""
    needs("setpriv")
    contained = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", "--", ctx.options.redrive)
    become = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    outcome = ctx.run(*contained, "record", "-o", ctx.trace, "--", "sh", "-c", f"{' '.join(become)} /bin/true; echo $?", cwd=ctx.work)
    ctx.expect(outcome.status == 0 and outcome.stdout == "126\n", outcome, "another result")
    ctx.expect("redrive: refused to execute programs as another user, because redrive lacks CAP_SYS_PTRACE (EACCES) 1 time" in outcome.stderr, outcome,
               "does not say what is missing")
    host = ctx.run(*contained, "check", "--host")
    ctx.expect(re.search("other users.*no.*CAP_SYS_PTRACE", host.stdout), host, "does not say what is missing")
    redrive_all(ctx)


@test("bad_input/usage")
def usage(ctx):
    for words in ((), ("nonsense",), ("record",), ("record", "--bound", "soon", "true"), ("record", "--policy", "worst", "true"),
                  ("record", "--nonsense", "true"), ("replay",), ("replay", "--jobs", "none", "1"), ("plan", "1:2-3"), ("rm",)):
        expect_one_line(ctx, ctx.redrive(*words), 2)


@test("bad_input/trace_exists")
def trace_exists(ctx):
    ctx.trace.mkdir()
    (ctx.trace / "precious").write_text("data")
    expect_one_line(ctx, ctx.redrive("record", "-o", ctx.trace, "--", "true"), 125, "exists")
    if [path.name for path in ctx.trace.iterdir()] != ["precious"]:
        raise Failure("the directory's contents changed")


@test("bad_input/trace_not_writable")
def trace_not_writable(ctx):
    (ctx.directory / "file").write_text("")
    expect_one_line(ctx, ctx.redrive("record", "-o", "/proc/redrive-trace", "--", "true"), 125, "/proc/redrive-trace")
    expect_one_line(ctx, ctx.redrive("record", "-o", ctx.directory / "file" / "t", "--", "true"), 125, "file/t")
    expect_one_line(ctx, ctx.redrive("record", "--", "true", env={"REDRIVE_TRACE_DIR": "/proc/nowhere"}), 125, "/proc/nowhere")


def needs_mounts(ctx):
    needs("unshare", "mount")
    if ctx.run("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt").status != 0:
        raise Skip("cannot mount here")


@test("bad_input/trace_disk_full", timeout_s=60)
def trace_disk_full(ctx):
    """This is reported at once, the program continues until it is told to end, and what was recorded is intact and replays."""
    needs_mounts(ctx)
    job = job_of(ctx, "until_signal", "0")
    job.prepare(ctx.work)
    (ctx.directory / "full").mkdir()
    recording = ctx.start("unshare", "-m", "sh", "-c",
                          'mount -t tmpfs -o size=5m tmpfs ../full; "$1" record --wait -o ../full/t --bound 2s --checkpoint-period 100ms -- ./until_signal 0; status=$?; '
                          'cp -a ../full/t ../kept; exit $status', "sh", ctx.options.redrive, cwd=ctx.work)
    recording.wait_for("the program continues", ctx.timeout_s, 1)
    os.kill(tracees_of(recording)[0], signal.SIGTERM)
    outcome = ctx.expect_status(recording.finish(ctx.timeout_s), 125)
    ctx.expect("No space left" in outcome.stderr, outcome, "does not say that there is no space left")
    take_away_surroundings(ctx)
    kept = ctx.directory / "kept"
    check_trace(ctx, kept)
    for command in ("check", "stats"):
        outcome = ctx.expect_status(ctx.redrive(command, kept), 0)
        ctx.expect("could not write" in outcome.stdout, outcome, "does not say why it is not complete")
    redrive_all(ctx, kept)


@test("bad_input/disk_full_before_new_files", timeout_s=60)
def disk_full_before_new_files(ctx):
    """The program continues even if none of its checkpoints can be taken, because it maps files for which there is no room."""
    needs_mounts(ctx)
    job = job_of(ctx, "maps_new_files", "1000")
    job.prepare(ctx.work)
    (ctx.directory / "full").mkdir()
    outcome = ctx.run("unshare", "-m", "sh", "-c",
                      'mount -t tmpfs -o size=3m tmpfs ../full; exec "$1" record -o ../full/t --checkpoint-period 20ms -- ./maps_new_files 1000', "sh",
                      ctx.options.redrive, cwd=ctx.work)
    ctx.expect_status(outcome, 125)
    ctx.expect("No space left" in outcome.stderr, outcome, "does not say that there is no space left")
    ctx.expect("ok 1000 files" in outcome.stdout, outcome, "the program did not come to its end")


@test("bad_input/not_a_trace")
def not_a_trace(ctx):
    (ctx.directory / "empty").mkdir()
    for name in ("empty", "absent"):
        for words in (("replay", ctx.directory / name, "--all"), ("stats", ctx.directory / name), ("check", ctx.directory / name),
                      ("ls", ctx.directory / name), ("plan", ctx.directory / name, "1:0"), ("dump", ctx.directory / name, "1")):
            expect_one_line(ctx, ctx.redrive(*words), 1, f"{name} is not a redrive trace|no trace.*{name}")
    expect_one_line(ctx, ctx.redrive("stats"), 1, "no latest trace")
    expect_one_line(ctx, ctx.redrive("rm", ctx.directory / "empty"), 1, "empty")
    if not (ctx.directory / "empty").exists():
        raise Failure("rm removed what is no trace")
    # What is left of recorders that were killed before they had written anything.
    unbegun = ctx.directory / "unbegun"
    for begin in ((lambda: (unbegun / "journal").touch()), (lambda: (unbegun / "volumes").mkdir())):
        unbegun.mkdir()
        begin()
        (unbegun / "text").write_text("precious")
        expect_one_line(ctx, ctx.redrive("rm", unbegun), 1, "not a trace")
        (unbegun / "text").unlink()
        expect_one_line(ctx, ctx.redrive("check", unbegun), 1, "killed before it began")
        ctx.expect_status(ctx.redrive("rm", unbegun), 0)
        if unbegun.exists():
            raise Failure("rm leaves it")


@test("bad_input/slash_after_directory")
def slash_after_directory(ctx):
    ctx.expect_status(ctx.redrive("record", "--keep", "1s", "-o", f"{ctx.trace}/", "--", "true"), 0)
    made = ctx.trace.with_name("made")
    ctx.expect_status(ctx.redrive("snapshot", f"{ctx.trace}/", "-o", f"{made}/"), 0)
    for trace in (ctx.trace, made):
        ctx.expect_status(ctx.redrive("check", f"{trace}/"), 0)


@test("bad_input/links_and_fifos", timeout_s=300)
def links_and_fifos(ctx):
    """A stranger's trace has a link or a FIFO in place of one of its files, or links instead of its directories: no command hangs, and none reads or
    writes what a link leads to."""
    record(ctx, Job(["sh", "-c", "/bin/echo ok | /bin/cat"]))
    victim = ctx.directory / "victim"
    paths = sorted(ctx.trace.rglob("*"))
    kinds = {(path.parent, path.suffix): path.relative_to(ctx.trace) for path in paths if path.parent.name == "files"}  # one copy for all
    names = [path.relative_to(ctx.trace) for path in paths if path.parent.name != "files"] + [*kinds.values(), "catalog.sqlite.tmp"]

    def try_all(trace, what):
        for words in (("check",), ("ls",), ("ls", "--checkpoints"), ("stats",), ("dump",), ("plan", "1:0"), ("catalog",), ("replay", "--all"),
                      ("checkpoint", "1:0", "-o", ctx.directory / "cores"), ("prepare", "--bound", "1s")):
            shutil.rmtree(ctx.directory / "cores", ignore_errors=True)
            outcome = ctx.redrive(words[0], trace, *words[1:])
            ctx.expect(outcome.status in (0, 1, 2, 3, 4), outcome, f"{what}: ended with {outcome.status}")
            if victim.exists() and victim.read_text() != "kept" * 1000:
                raise Failure(f"{what}: {words[0]} has changed what the link leads to")

    for name in names:
        for how in ("link", "fifo"):
            trace = ctx.traces / "stranger"
            shutil.copytree(ctx.trace, trace, symlinks=True)
            victim.write_text("kept" * 1000)
            place = trace / name
            is_directory = place.is_dir()
            if is_directory and how == "fifo":
                shutil.rmtree(trace)
                continue
            if is_directory:
                place.rename(ctx.directory / "elsewhere")
                place.symlink_to(ctx.directory / "elsewhere")
            else:
                place.unlink(missing_ok=True)
                place.symlink_to(victim) if how == "link" else os.mkfifo(place)
            try_all(trace, f"{how} {name}")
            ctx.redrive("rm", trace)
            if not victim.exists():
                raise Failure(f"{how} {name}: rm has removed what the link leads to")
            shutil.rmtree(ctx.directory / "elsewhere", ignore_errors=True)
            shutil.rmtree(trace, ignore_errors=True)


def is_refused(ctx, outcome, what, *words):
    """One or more lines name the file and say what it is, and the command ends with a documented status that is not success."""
    ctx.expect(outcome.status in (1, 4), outcome, f"{what}: ended with {outcome.status}")
    for word in words:
        ctx.expect(re.search(word, outcome.stdout + outcome.stderr), outcome, f"{what}: says nothing of '{word}'")


READERS = (("check",), ("dump", "1"), ("replay", "--all"), ("prepare", "--bound", "1s"))  # of every event


@test("bad_input/not_regular_files", timeout_s=300)
def not_regular_files(ctx):
    """Every command that reads it refuses what is not a file of the trace's own, with a line that says so: links to directories and to files, FIFOs,
    devices."""
    record(ctx, Job(["sh", "-c", "/bin/echo ok | /bin/cat"]))
    elsewhere = ctx.directory / "elsewhere"

    def link(place):
        place.rename(elsewhere)
        place.symlink_to(elsewhere)

    def fifo(place):
        place.unlink()
        os.mkfifo(place)

    def device(place):
        place.unlink()
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero

    kinds = [("events", link, "symbolic link"), ("events/1.seg", link, "symbolic link"), ("events/1.seg", fifo, "not a regular file")]
    if is_root():
        kinds.append(("events/1.seg", device, "not a regular file"))
    for name, make, told in kinds:
        trace = ctx.traces / "stranger"
        for words in READERS:
            shutil.copytree(ctx.trace, trace, symlinks=True)
            make(trace / name)
            is_refused(ctx, ctx.redrive(words[0], trace, *words[1:]), f"{words[0]}, {make.__name__} {name}", name, told)
            for others in (("ls",), ("plan", "1:0"), ("stats",), ("evaluate",)):
                outcome = ctx.redrive(others[0], trace, *others[1:])
                ctx.expect(outcome.status in (0, 1, 4), outcome, f"{others[0]}, {make.__name__} {name}: ended with {outcome.status}")
            kept = elsewhere.exists()
            ctx.expect_status(ctx.redrive("rm", trace), 0)
            if elsewhere.exists() != kept or (kept and elsewhere.is_dir() and not list(elsewhere.iterdir())):
                raise Failure(f"{make.__name__} {name}: rm has removed what the link leads to")
            shutil.rmtree(elsewhere) if elsewhere.is_dir() else elsewhere.unlink(missing_ok=True)


@test("bad_input/hard_links")
def hard_links(ctx):
    """A file of the trace that has another name is read, but never written to."""
    record(ctx, Job(["sh", "-c", "/bin/echo ok | /bin/cat"], record_options=("--bound", "2s", "--policy", "none")))
    for name in ("journal", "pages", "images.seg"):
        other = ctx.directory / "other"
        os.link(ctx.trace / name, other)
        was = other.read_bytes()
        for words in (("check",), ("ls",), ("stats",), ("dump",), ("plan", "1:0"), ("replay", "--all")):
            ctx.expect_status(ctx.redrive(words[0], ctx.trace, *words[1:]), 0)
        outcome = ctx.redrive("prepare", ctx.trace, "--bound", "1s", "--policy", "all")
        if other.read_bytes() != was:
            raise Failure(f"prepare has changed another file by its name {name}")
        if name == "journal":
            expect_one_line(ctx, outcome, 4, "journal.*hard link")
        other.unlink()
    ctx.expect_status(ctx.redrive("prepare", ctx.trace, "--bound", "1s", "--policy", "all"), 0)


@test("bad_input/linked_directory")
def linked_directory(ctx):
    """A link that the user names is followed; only the files of the trace must not be links."""
    recorded(ctx)
    link = ctx.directory / "link"
    link.symlink_to(ctx.trace)
    for named in (link, f"{link}/", f"{link}/.", f"{ctx.trace}/"):
        for words in (("check",), ("ls",), ("stats",), ("dump", "1"), ("replay", "--all")):
            ctx.expect_status(ctx.redrive(words[0], named, *words[1:]), 0)
    for words in (("check",), ("ls",), ("replay", "--all"), ("prepare", "--bound", "1s")):
        ctx.expect_status(ctx.redrive(words[0], ".", *words[1:], cwd=ctx.trace), 0)


@test("bad_input/little_memory")
def little_memory(ctx):
    """A trace of some hundred kilobytes that unpacks to much more: the memory that it takes is bounded, and if there is not enough, one line says
    so."""
    record(ctx, Job(["sh", "-c", "dd if=/dev/zero of=/dev/null bs=15M count=8; echo ok"]))
    take_away_surroundings(ctx)

    def limited(kilobytes, *words):
        return ctx.run("sh", "-c", 'ulimit -v "$1"; shift; exec "$@"', "sh", kilobytes, ctx.options.redrive, *words)

    for words in (("check",), ("ls",), ("stats",), ("dump",), ("plan", "1:0"), ("evaluate",), ("catalog",)):
        ctx.expect_status(limited(150_000, words[0], ctx.trace, *words[1:]), 0)
        outcome = limited(36_000, words[0], ctx.trace, *words[1:])
        if outcome.status != 0:
            expect_one_line(ctx, outcome, 1, "not enough memory")
    expect_one_line(ctx, limited(36_000, "check", ctx.trace), 1, "not enough memory")
    ctx.expect_status(limited(400_000, "replay", "--all", "--jobs", "1", ctx.trace), 0)


@test("bad_input/newer_trace")
def newer_trace(ctx):
    recorded(ctx)
    newer, _ = alter(ctx, "newer")
    for words in (("replay", newer, "--all"), ("check", newer), ("stats", newer)):
        expect_one_line(ctx, ctx.redrive(*words), 1, "newer")


@test("bad_input/unknown_unit")
def unknown_unit(ctx):
    recorded(ctx)
    for command in ("replay", "plan", "dump"):
        suffix = ":0" if command == "plan" else ""
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "99" + suffix), 1, "99")
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "nobody" + suffix), 1, "nobody")


@test("bad_input/unknown_interval")
def unknown_interval(ctx):
    recorded(ctx)
    for command in ("replay", "plan", "dump"):
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "1:999"), 1, "999")
    expect_one_line(ctx, ctx.redrive("replay", ctx.trace, "1:3-2"), 2)
    expect_one_line(ctx, ctx.redrive("replay", ctx.trace, "1:0", "--until", "99999999"), 1, "99999999")


@test("bad_input/bound_too_small")
def bound_too_small(ctx):
    a_duration = r"\d ?m?s\b"
    refuses_to_record(ctx, ("--bound", "1ms"), 125, f"{a_duration}.*{a_duration}")  # the one asked for and one that can be kept


def records_as_well_as_it_can(ctx, outcome, trace):
    """With image checkpoints if it needs nothing more for them, otherwise with exec checkpoints only, and says so."""
    ctx.expect_status(outcome, 0)
    images = [i for unit in units(ctx, trace) for i in unit["intervals"] if i["checkpoint_kind"] == "image"]
    if not images:
        records_with_exec_checkpoints_only(ctx, outcome, trace)
    check_trace(ctx, trace)


def records_with_exec_checkpoints_only(ctx, outcome, trace):
    ctx.expect_status(outcome, 0)
    ctx.expect(re.search(r"redrive: .*exec checkpoints only", outcome.stderr), outcome, "does not say that it takes exec checkpoints only")
    images = [i for unit in units(ctx, trace) for i in unit["intervals"] if i["checkpoint_kind"] == "image"]
    if images:
        raise Failure(f"{len(images)} image checkpoints in spite of that")
    check_trace(ctx, trace)


def redrive_of_nobody(ctx):
    """The beginning of a command line that runs redrive as a user without privileges, who owns the directories of the test."""
    needs("setpriv")
    for directory in (ctx.work, ctx.traces, ctx.home):
        os.chown(directory, 65534, 65534)
    redrive = ctx.directory / "redrive"  # where that user can reach it
    shutil.copy(ctx.options.redrive, redrive)
    return ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", redrive)


@test("bad_input/no_privilege")
def no_privilege(ctx):
    if not is_root():
        raise Skip("not root: all other tests are this one")
    job = job_of(ctx, "pipe_pingpong")
    job.prepare(ctx.work)
    outcome = ctx.run(*redrive_of_nobody(ctx), "record", "-o", ctx.trace, *PERIOD, "--", *job.command, cwd=ctx.work)
    records_as_well_as_it_can(ctx, outcome, ctx.trace)
    take_away_surroundings(ctx)
    redrive_all(ctx)


def started_recording(ctx):
    """A recording, well under way, of a program that does not end: (Process, trace)."""
    job = job_of(ctx, "until_signal", "0")
    job.prepare(ctx.fresh_work())
    recording = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", *job.command, cwd=ctx.work)
    recording.wait_for("under way", ctx.timeout_s)
    return recording


def tracees_of(recording):
    """Processes of the recorded program: those of its session that are running."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getsid(int(entry)) == recording.pid:
                with open(f"/proc/{entry}/comm") as name:
                    if name.read().strip() == "until_signal":
                        found.append(int(entry))
        except (OSError, ProcessLookupError):
            continue
    return sorted(found)


def still_good(ctx):
    take_away_surroundings(ctx)
    check_trace(ctx)
    return redrive_all(ctx)


def expect_state(ctx, state):
    listed = ctx.json("ls")["traces"]
    shown = {row["name"]: row["state"] for row in listed}
    found = ctx.json("stats", ctx.trace)
    if shown != {"t": state} or found["recording"] != (state == "recording"):
        raise Failure(f"a trace that is {state} is listed as {shown}")
    lengths = (listed[0]["duration_s"], found["wall_s"])
    if any((length is None) != (state != "finished") for length in lengths):
        raise Failure(f"a trace that is {state} is said to be {lengths} s long")
    outcome = ctx.expect_status(ctx.redrive("stats", ctx.trace), 0)
    killed = "recorder was killed" in outcome.stdout
    ctx.expect(killed == (state == "interrupted"), outcome, f"what it says of a trace that is {state}")


@test("bad_input/recorder_at_work")
def recorder_at_work(ctx):
    """A recording can be listed and re-driven, but not removed, while it continues."""
    recording = started_recording(ctx)
    limit = time.monotonic() + ctx.timeout_s
    while not (found := units(ctx)) or len(found[0]["intervals"]) < 2:
        if time.monotonic() > limit:
            raise Failure(f"of a recording that goes on there is {found}")
        time.sleep(0.05)
    expect_state(ctx, "recording")
    # Not on the recorder's processor: this kernel gives next to nothing there to processes of another session.
    ctx.expect_status(ctx.redrive("replay", "--jobs", "1", ctx.trace, f"{found[0]['unit']}:0"), 0)
    check_trace(ctx)
    ctx.expect_status(ctx.redrive("rm", ctx.trace), 1)
    os.kill(tracees_of(recording)[0], signal.SIGTERM)
    ctx.expect_status(recording.finish(ctx.timeout_s), 128 + signal.SIGTERM)
    expect_state(ctx, "finished")
    still_good(ctx)


@test("bad_input/recorder_killed")
def recorder_killed(ctx):
    recording = started_recording(ctx)
    os.kill(recording.pid, signal.SIGKILL)
    recording.process.wait(ctx.timeout_s)
    limit = time.monotonic() + 5
    while left := tracees_of(recording):
        if time.monotonic() > limit:
            raise Failure(f"the recorder was killed, and its tracees live on: {left}")
        time.sleep(0.02)
    recording.finish(ctx.timeout_s)
    expect_state(ctx, "interrupted")
    still_good(ctx)


@test("bad_input/ended_before_the_kill")
def ended_before_the_kill(ctx):
    """What ended some time before the recorder is killed is there, however much comes after it."""
    program = 'i=0; while :; do /bin/true; i=$((i+1)); echo "$i ended"; done'
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--", "sh", "-c", program)
    recording.wait_for("20 ended", ctx.timeout_s)
    time.sleep(0.1)
    os.kill(recording.pid, signal.SIGKILL)
    recording.finish(ctx.timeout_s)
    first = [interval for interval in ctx.json("replay", "--all", "--once", "--verify", ctx.trace)["intervals"]
             if interval["unit"] <= 21]
    missing = [interval for interval in first if interval["error"] or interval["cut"]]
    if len(first) < 21 or missing:
        raise Failure(f"of the first units there are {len(first)} intervals, of which these cannot be re-driven: {missing}")


@test("bad_input/events_lost")
def events_lost(ctx):
    """What is left of one unit may end long before what is left of another one, which received its messages. That is re-driven as far as possible,
    and the intervals after it are reported as cut: none of them has an image to start from."""
    job = job_of(ctx, "until_signal", "0")
    job.prepare(ctx.work)
    recording = ctx.start_redrive("record", "-o", ctx.trace, "--virtual", "--checkpoint-period", "20ms", "--", *job.command, cwd=ctx.work)
    recording.wait_for("under way", ctx.timeout_s)
    limit = time.monotonic() + ctx.timeout_s
    while not all(len(unit["intervals"]) >= 6 for unit in units(ctx)):
        if time.monotonic() > limit:
            raise Failure("no six intervals were recorded")
        time.sleep(0.05)
    os.kill(recording.pid, signal.SIGKILL)
    recording.finish(ctx.timeout_s)
    events = ctx.trace / "events" / "1.seg"
    os.truncate(events, events.stat().st_size // 2)
    report = still_good(ctx)
    cut = [i["cut"] for i in report["intervals"] if i["unit"] == 2]
    if cut[0] or not cut[-2] or not cut[-1]:
        raise Failure(f"of the unit that lacks what was sent to it, these intervals are cut: {cut}")


def stub_of(replay, limit):
    """The process in which a replay has been executing the recorded program for some time."""
    while time.monotonic() < limit and not replay.has_ended():
        for task in os.listdir(f"/proc/{replay.pid}/task"):
            with open(f"/proc/{replay.pid}/task/{task}/children") as children:
                for child in children.read().split():
                    with open(f"/proc/{child}/stat") as stat:
                        if int(stat.read().rsplit(")", 1)[1].split()[11]) >= 10:  # ticks of CPU time
                            return int(child)
        time.sleep(0.01)
    raise replay.failure("ends without having executed anything for long")


def register_killed_replay(tier):
    @test(f"bad_input/replay_killed_{tier}")
    def replay_killed(ctx):
        """When the kernel kills a replay because memory is short, this is not reported as a divergence."""
        ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", workload(ctx.options, "cpu_bound"), "100"), 0)
        replay = ctx.start_redrive("replay", "--interception", tier, ctx.trace, "--all")
        os.kill(stub_of(replay, time.monotonic() + ctx.timeout_s), signal.SIGKILL)
        outcome = replay.finish(ctx.timeout_s)
        ctx.expect_status(outcome, 1)
        ctx.expect("a process of unit 1 was killed" in outcome.stdout + outcome.stderr, outcome, "does not say why")
        ctx.expect("divergence in" not in outcome.stderr, outcome, "takes it for a divergence")


for name in ("in-process", "stops"):
    register_killed_replay(name)


@test("bad_input/program_killed")
def program_killed(ctx):
    recording = started_recording(ctx)
    tracees = tracees_of(recording)
    if not tracees:
        raise Failure("the recorded program is not to be found")
    os.kill(tracees[0], signal.SIGKILL)
    ctx.expect_status(recording.finish(ctx.timeout_s), 128 + signal.SIGKILL)
    still_good(ctx)


@test("bad_input/program_terminated")
def program_terminated(ctx):
    recording = started_recording(ctx)
    os.kill(tracees_of(recording)[0], signal.SIGTERM)
    ctx.expect_status(recording.finish(ctx.timeout_s), 128 + signal.SIGTERM)
    still_good(ctx)


@test("bad_input/ctrl_c")
def ctrl_c(ctx):
    """Does what a terminal does: SIGINT to the whole foreground group, including the recorder."""
    recording = started_recording(ctx)
    os.killpg(recording.pid, signal.SIGINT)
    ctx.expect_status(recording.finish(ctx.timeout_s), 128 + signal.SIGINT)
    still_good(ctx)


@test("bad_input/ctrl_c_handled")
def ctrl_c_handled(ctx):
    """A program that handles SIGINT ends in its own way, and the recording ends with it."""
    text = "trap 'echo ok interrupted; exit 7' INT\necho under way\nwhile :; do read -r line < /proc/self/stat; done\n"
    (ctx.work / "run.sh").write_text(text)
    recording = ctx.start_redrive("record", "-o", ctx.trace, *PERIOD, "--", "sh", "run.sh", cwd=ctx.work)
    recording.wait_for("under way", ctx.timeout_s)
    os.killpg(recording.pid, signal.SIGINT)
    outcome = ctx.expect_status(recording.finish(ctx.timeout_s), 7)
    ctx.expect("ok interrupted" in outcome.stdout, outcome, "the program's handler did not run")
    still_good(ctx)


@test("bad_input/exit_statuses")
def exit_statuses(ctx):
    """The exit status of record is that of the program."""
    for status in (0, 1, 2, 3, 4, 77, 255):
        record(ctx, Job(["sh", "-c", f"echo ok; exit {status}"], status=status), trace=ctx.traces / str(status))


@test("bad_input/closed_output")
def closed_output(ctx):
    """If standard output is full, this is reported as an error."""
    recorded(ctx)
    outcome = ctx.run("sh", "-c", '"$1" ls "$2" > /dev/full', "sh", ctx.options.redrive, ctx.trace)
    ctx.expect(outcome.status == 1 and outcome.stderr.startswith("redrive: "), outcome, "a full standard output goes unnoticed")


@test("bad_input/control_characters")
def control_characters(ctx):
    """Names from a trace do nothing to the terminal that shows them."""
    disturbing = "\x1b\x07\x7f\x9b\u202e\u061c"
    name = f"a\x1b]0;b\x07\x1b[31m{disturbing}c"

    def check_shown(outcome):
        shown = outcome.stdout + outcome.stderr
        ctx.expect(not set(disturbing) & set(shown), outcome, "shows control characters")
    program = ctx.work / name
    program.write_text("#!/bin/sh\necho hello | cat\n")
    program.chmod(0o755)
    trace = ctx.traces / f"{name}-1"
    ctx.expect_status(ctx.redrive("record", "-o", trace, "--", f"./{name}", cwd=ctx.work), 0)
    for words in (("ls",), ("ls", trace), ("stats", trace), ("dump", trace), ("replay", "--all", trace), ("plan", trace, "1:0"), ("check", trace),
                  ("ls", "--checkpoints", trace), ("checkpoint", "-o", ctx.directory / "cores", trace, "1:0")):
        check_shown(ctx.expect_status(ctx.redrive(*words), 0))
    for words in (("ls", "--json"), ("ls", "--json", trace)):
        outcome = ctx.expect_status(ctx.redrive(*words), 0)
        check_shown(outcome)
        ctx.expect(json.dumps(name)[1:-1] in json.dumps(json.loads(outcome.stdout)), outcome, "has another name in JSON")
    damaged = ctx.traces / f"{name}-2"
    shutil.copytree(trace, damaged)
    (damaged / "pages").unlink()
    outcome = ctx.redrive("replay", "--all", damaged)
    ctx.expect("not re-driven" in outcome.stdout, outcome, "re-drives a trace without pages")
    check_shown(outcome)
    # Neither do messages about replays that take longer than their bound.
    late = ctx.traces / "late"
    shutil.copy(shutil.which("dash") or "/bin/sh", program)
    computes = "i=0; while [ $i -lt 600000 ]; do i=$((i + 1)); done"
    told = ctx.expect_status(ctx.redrive("record", "--no-repair", "--policy", "none", "--bound", "150ms", "--checkpoint-period", "10s", "-o", late, "--",
                                         f"./{name}", "-c", computes, cwd=ctx.work), 0)
    ctx.expect("cannot be kept" in told.stderr, told, "does not say that replays are late")
    for outcome in (told, ctx.redrive("check", late), ctx.redrive("stats", late), ctx.redrive("replay", "--all", late)):
        check_shown(outcome)


@test("bad_input/names_of_lines")
def names_of_lines(ctx):
    """A name from a trace does not make a line of its own in an error message."""
    name = "x\nredrive: this trace is clean"
    program = ctx.work / name
    shutil.copy(shutil.which("true"), program)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", f"./{name}", cwd=ctx.work), 0)
    outcome = ctx.expect_status(ctx.redrive("dump", ctx.trace, "nosuch"), 1)
    ctx.expect(outcome.stderr.count("\n") == 1 and r"x\nredrive" in outcome.stderr, outcome, "is not one line")


@test("bad_input/no_home")
def no_home(ctx):
    """Without HOME, traces are kept where services keep their data, or nowhere: never below the root directory."""
    had = os.path.exists("/.local")
    unset = ("env", "-u", "HOME", "-u", "REDRIVE_TRACE_DIR", "-u", "REDRIVE_CACHE_DIR", "-u", "XDG_DATA_HOME", "-u", "XDG_CACHE_HOME")
    state = ctx.directory / "state"
    state.mkdir()
    record_true = ("record", "--", "true")
    ctx.expect_status(ctx.run(*unset, f"STATE_DIRECTORY={state}:/other", f"CACHE_DIRECTORY={state}", ctx.options.redrive, *record_true,
                              cwd=ctx.work), 0)
    if not (state / "redrive" / "true-1").exists():
        raise Failure(f"a service's trace is not in its state directory: {list(state.rglob('*'))}")
    if is_root():
        redrive = ctx.directory / "redrive"  # where that user can reach it
        shutil.copy(ctx.options.redrive, redrive)
        as_nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *unset, redrive)
        expect_one_line(ctx, ctx.run(*as_nobody, *record_true, cwd="/"), 125, "HOME.*REDRIVE_TRACE_DIR")
        expect_one_line(ctx, ctx.run(*as_nobody, "ls", cwd="/"), 1, "HOME.*REDRIVE_TRACE_DIR")
        expect_one_line(ctx, ctx.run(*as_nobody[:-1], "HOME=/proc/nonexistent", redrive, *record_true, cwd="/"), 125, "cannot make.*REDRIVE_TRACE_DIR")
        os.chmod(ctx.work, 0o777)
        ctx.expect_status(ctx.run(*as_nobody, "record", "-o", ctx.work / "t", "--", "true", cwd="/"), 0)
        ctx.expect_status(ctx.run(*as_nobody, "replay", ctx.work / "t", "1", cwd="/"), 0)
        shutil.copy("/bin/true", ctx.work / "unreadable")
        (ctx.work / "unreadable").chmod(0o111)
        outcome = ctx.run(*as_nobody, "record", "-o", ctx.work / "u", "--", ctx.work / "unreadable", cwd="/")
        expect_one_line(ctx, outcome, 125, "cannot be read")
        script = "./unreadable; echo $?; (exec 3< /bin/true; exec /proc/self/fd/3) && $PWD/unreadable; echo $?"
        shutil.rmtree(ctx.work / "t")
        outcome = ctx.run(*as_nobody, "record", "-o", ctx.work / "t", "--", "sh", "-c", script, cwd=ctx.work)
        ctx.expect(outcome.status == 0 and outcome.stdout == "126\n126\n", outcome, "does not go on where a program cannot be recorded")
        ctx.expect("redrive: refused to execute programs whose files cannot be read, because redrive lacks CAP_SYS_PTRACE (EACCES) 2 times"
                   in outcome.stderr, outcome, "does not say why")
        ctx.expect_status(ctx.run(*as_nobody, "replay", "--all", "--verify", ctx.work / "t", cwd="/"), 0)
    if os.path.exists("/.local") and not had:
        raise Failure("there is a directory /.local")


@test("bad_input/long_times")
def long_times(ctx):
    """A time that no reader of a trace would believe is refused before anything is done, and spoils no trace."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "true"), 0)
    for words in (("prepare", "--bound", "300000h", ctx.trace), ("record", "--bound", "300000h", "--", "true"),
                  ("record", "--critical-path", "99999999999h", "--", "true"), ("record", "--keep", "300000h", "--", "true"),
                  ("evaluate", "--critical-path", "99999999999h", ctx.trace), ("ls", "--since", "9999-01-01"), ("ls", "--since", "300000h")):
        expect_one_line(ctx, ctx.redrive(*words, cwd=ctx.work), 2, "too long|not a time")
    check_trace(ctx)
    ctx.expect_status(ctx.redrive("prepare", "--bound", "27777h", ctx.trace), 0)
    check_trace(ctx)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace.with_name("long"), "--bound", "20000h", "--", "true"), 0)
    check_trace(ctx, ctx.trace.with_name("long"))


@test("bad_input/empty_words")
def empty_words(ctx):
    """An empty word, as of a variable that is not set, is no name: nothing is done."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "true"), 0)
    ctx.expect_status(ctx.redrive("record", "--", "true"), 0)
    for words in (("rm", ""), ("rm", "latest", ""), ("stats", ""), ("replay", ""), ("record", "-o", "", "--", "true"), ("record", "--output=", "--", "true"),
                  ("record", ""), ("record", "--", ""), ("service", "--root", "", "enable", "x"), ("snapshot", "", "-o", "s")):
        expect_one_line(ctx, ctx.redrive(*words, cwd=ctx.work), 2, "empty")
    if len(ctx.json("ls")["traces"]) != 2:
        raise Failure("something was removed, or recorded")
    # A name of several lines is shown in one.
    for words in (("ls\nfoo",), ("--foo\nbar",), ("ls", "--foo\nbar"), ("plan", "foo\nbar")):
        expect_one_line(ctx, ctx.redrive(*words), (1, 2), "foo.*bar|foo")


@test("bad_input/unreachable")
def unreachable(ctx):
    """Directories that cannot be looked into are not said to be empty, or to exist already."""
    if not is_root():
        raise Skip("not root: cannot become a user to whom they are closed")
    needs("setpriv")
    redrive = ctx.directory / "redrive"
    shutil.copy(ctx.options.redrive, redrive)
    ctx.expect_status(ctx.redrive("record", "--", "true"), 0)
    closed = ctx.directory / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    os.chmod(ctx.directory, 0o755)
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/nonexistent")
    expect_one_line(ctx, ctx.run(*nobody, f"REDRIVE_TRACE_DIR={closed}", redrive, "ls", cwd="/"), 1, "Permission denied")
    expect_one_line(ctx, ctx.run(*nobody, redrive, "record", "-o", closed / "inside" / "t", "--", "true", cwd="/"), 125, "Permission denied")
    expect_one_line(ctx, ctx.redrive("record", "-o", closed / ("t" * 300), "--", "true"), 125, "too long")
    expect_one_line(ctx, ctx.redrive("record", "-o", closed / "inside", "--", "true"), 125, "already exists")


@test("bad_input/strange_home")
def strange_home(ctx):
    """Links that lead nowhere, among the traces, are no traces, and names of programs may be as long as names can be."""
    ctx.expect_status(ctx.redrive("record", "--", "true"), 0)
    home = ctx.run("sh", "-c", "printf %s ${REDRIVE_TRACE_DIR:-$HOME/.local/share/redrive}").stdout
    os.symlink("loop", os.path.join(home, "loop"))
    os.symlink("/nonexistent", os.path.join(home, "nowhere"))
    program = ctx.work / ("é" * 127)
    shutil.copy("/bin/true", program)
    ctx.expect_status(ctx.redrive("record", "--", program), 0)
    ctx.expect_status(ctx.redrive("record", "--", program), 0)
    listed = [row["name"] for row in ctx.json("ls")["traces"]]
    if len(listed) != 3 or any("\ufffd" in name for name in listed):
        raise Failure(f"ls: {listed}")
    ctx.expect_status(ctx.redrive("rm", *listed), 0)


@test("bad_input/linked_volumes")
def linked_volumes(ctx):
    """A stranger's trace of several volumes, with links in place of what it consists of: they are not followed, also by a snapshot."""
    secret = ctx.directory / "secret"
    secret.mkdir()
    (secret / "text").write_text("of somebody else, not to be copied")
    ctx.expect_status(ctx.redrive("record", "--keep", "1m", "-o", ctx.trace, "--", "sh", "-c", "echo ok | cat", cwd=ctx.work), 0)

    def doctored(change):
        trace = ctx.traces / "stranger"
        shutil.rmtree(trace, ignore_errors=True)
        shutil.copytree(ctx.trace, trace, symlinks=True)
        change(trace, next((trace / "volumes").iterdir()))
        return trace

    def elsewhere(place):
        shutil.rmtree(ctx.directory / "elsewhere", ignore_errors=True)
        place.rename(ctx.directory / "elsewhere")
        place.symlink_to(ctx.directory / "elsewhere")

    for change in (lambda trace, volume: elsewhere(trace / "volumes"), lambda trace, volume: elsewhere(volume),
                   lambda trace, volume: elsewhere(volume / "events"), lambda trace, volume: elsewhere(trace / "files")):
        trace = doctored(change)
        before = {path: path.stat().st_size for path in (ctx.directory / "elsewhere").rglob("*")}
        for words in (("prepare", "--bound", "5s", trace), ("snapshot", trace, "-o", ctx.traces / "made"), ("check", trace)):
            outcome = ctx.redrive(*words)
            ctx.expect(outcome.status in (1, 3, 4) or (words[0] == "prepare" and (trace / "files").is_symlink()), outcome, "reads what a link leads to")
            shutil.rmtree(ctx.traces / "made", ignore_errors=True)
        if before != {path: path.stat().st_size for path in (ctx.directory / "elsewhere").rglob("*")}:
            raise Failure("what a link leads to has changed")

    def add_links(trace, volume):
        (volume / "extra").symlink_to(secret / "text")
        (volume / "more").symlink_to(secret)
        (volume / "loop").symlink_to(".")
        (trace / "files" / "extra").symlink_to(secret / "text")

    made = ctx.traces / "made"
    ctx.expect_status(ctx.redrive("snapshot", doctored(add_links), "-o", made), 0)
    found = [path for path in made.rglob("*") if path.is_symlink() or (path.is_file() and b"not to be copied" in path.read_bytes())]
    if found:
        raise Failure(f"the snapshot has {found}")
    check_trace(ctx, made)


@test("bad_input/removed_links")
def removed_links(ctx):
    """`rm` of a stranger's trace removes the links in it, not what they lead to, and takes no link for what a killed `rm` has left."""
    mine, stranger = ctx.directory / "mine", ctx.traces / "stranger"
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "true"), 0)

    def contents(directory):
        return sorted(path.relative_to(directory) for path in directory.rglob("*"))

    (mine / "below").mkdir(parents=True)
    (mine / "below" / "text").write_text("precious")
    (mine / "text").write_text("precious")
    had = contents(mine)
    for place in ("volumes", "volumes/1", "volumes/1.removing", "volumes/1/events", "volumes/1/volumes", "events"):
        (stranger / place).parent.mkdir(parents=True)
        (stranger / "journal").write_text("redrive")
        (stranger / place).symlink_to(mine)
        outcome = ctx.expect_status(ctx.redrive("rm", stranger), 0)
        ctx.expect(contents(mine) == had, outcome, f"removes what {place} leads to")
        ctx.expect(not stranger.exists() and not stranger.with_name("stranger.removing").exists(), outcome, "leaves something behind")
    stranger.mkdir()
    (stranger / "volumes").symlink_to(mine)
    (mine / "1").mkdir()
    (mine / "1" / "journal").write_text("redrive")
    outcome = ctx.redrive("rm", stranger)
    expect_one_line(ctx, outcome, 1, "not a trace")
    shutil.rmtree(stranger)
    shutil.rmtree(mine / "1")

    # What is named like a trace that is being removed.
    shutil.copytree(ctx.trace, stranger)
    leaving, kept = stranger.with_name("stranger.removing"), contents(ctx.trace)
    leaving.symlink_to(ctx.trace)
    outcome = ctx.redrive("rm", stranger)
    expect_one_line(ctx, outcome, 1, "stranger.removing")
    ctx.expect(contents(ctx.trace) == kept and contents(stranger) == kept, outcome, "removes something")
    ctx.expect_status(ctx.redrive("rm", leaving), 0)
    ctx.expect(not leaving.is_symlink() and contents(ctx.trace) == kept, outcome, "does not remove the link, or more than it")
    (leaving / "volumes").mkdir(parents=True)
    (leaving / "text").write_text("precious")
    expect_one_line(ctx, ctx.redrive("rm", stranger), 1, "stranger.removing")
    (leaving / "text").unlink()
    ctx.expect_status(ctx.redrive("rm", stranger), 0)
    ctx.expect(not stranger.exists() and not leaving.exists(), outcome, "leaves something behind")


@test("bad_input/latest_is_a_directory")
def latest_is_a_directory(ctx):
    """A link that cannot be made keeps nothing from being recorded."""
    (ctx.traces / "latest").mkdir()
    outcome = ctx.expect_status(ctx.redrive("record", "--", "sh", "-c", "echo out; exit 3", cwd=ctx.work), 3)
    ctx.expect(outcome.stdout == "out\n" and outcome.stderr.count("\n") == 1 and "latest" in outcome.stderr, outcome, "does not say what is wrong")
    check_trace(ctx, ctx.traces / "sh-1")


@test("bad_input/completions")
def completions(ctx):
    """Names of traces and units, whatever they are, are words for the shell that completes them: it executes nothing."""
    needs("bash")
    name = "$(touch${IFS}made)"
    program = ctx.work / name
    shutil.copy("/bin/true", program)
    ctx.expect_status(ctx.redrive("record", "--", "sh", "-c", f"'./{name}'", cwd=ctx.work), 0)
    ctx.expect_status(ctx.redrive("record", "--", f"./{name}", cwd=ctx.work), 0)
    script = ctx.work / "complete"
    script.write_text("_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=(\"${COMP_WORDS[@]}\") cword=$COMP_CWORD; }\n"
                      "_filedir() { :; }\n__ltrim_colon_completions() { :; }\n"
                      f"redrive() {{ '{ctx.options.redrive}' \"$@\"; }}\n" + ctx.redrive("--completion", "bash").stdout +
                      "COMP_WORDS=(redrive replay '') COMP_CWORD=2\n_redrive\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
                      "COMP_WORDS=(redrive st) COMP_CWORD=1 COMPREPLY=()\n_redrive\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n")
    outcome = ctx.expect_status(ctx.run("bash", script, cwd=ctx.work), 0)
    words = outcome.stdout.splitlines()
    ctx.expect("sh-1" in words and any(word.startswith(r"\$\(touch") for word in words) and "stats" in words, outcome, "does not complete names")
    ctx.expect(not (ctx.work / "made").exists(), outcome, "has executed a name")


@test("bad_input/completed_words")
def completed_words(ctx):
    """What bash completes words with, without the package bash-completion."""
    needs("bash")
    script = ctx.work / "complete"
    script.write_text("redrive() { case $1 in ps) echo '{\"sessions\":[{\"name\":\"web\",\"user\":0}]}' ;; esac; }\n" +
                      ctx.redrive("--completion", "bash").stdout +
                      "COMP_WORDS=(redrive \"$@\") COMP_CWORD=$#\n_redrive\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n")
    for words, wanted, unwanted in ((("stop", ""), "web", "latest"), (("status", "w"), "web", "--json"), (("follow", "--j"), "--json", "web"),
                                    (("snapshot", ""), "web", "stats"), (("service", ""), "enable", "web"), (("service", "enable", "x", "--bo"), "--bound", "web"),
                                    (("--completion", ""), "zsh", "web"), (("--comp",), "--completion", "web"), (("start", "x", "--tun"), "--tuning", "web"),
                                    (("start", "--output", "f", "x", "--policy", ""), "makespan", "--bound"), (("start", "x", "--tuning", "=", "promise", "tou"), "touch", "web"),
                                    (("record", "--bound", "2s", "tou"), "touch", "web"), (("record", "touch", "--bo"), "", "--bound"), (("start", "--t"), "", "--tuning")):
        outcome = ctx.expect_status(ctx.run("bash", script, *words, cwd=ctx.work), 0)
        completed = outcome.stdout.splitlines()
        ctx.expect(wanted in completed and unwanted not in completed and not outcome.stderr, outcome, f"{words}: completes something else")


@test("bad_input/undumpable")
def undumpable(ctx):
    """A program into which only root may look is recorded by its own user, too."""
    if not is_root():
        raise Skip("not root: programs/undumpable is this one")
    job = job_of(ctx, "undumpable")
    job.prepare(ctx.work)
    told = ctx.expect_status(ctx.run(*redrive_of_nobody(ctx), "record", "-o", ctx.trace, *PERIOD, "--", *job.command, cwd=ctx.work), 0)
    ctx.expect("ok executed" in told.stdout and "may diverge" not in told.stderr, told, "is not sure of what it has recorded")
    redrive_all(ctx)
