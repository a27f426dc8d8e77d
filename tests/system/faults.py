"""Group faults: recordings with one planted fault. What is validly encoded must be reported as a divergence, what is not as damage with file and
offset, and what merely ends early must be cut."""
import contextlib
import json
import random
import re
import shutil
import sqlite3

from harness import ROOT, TESTS, Failure, Skip, compiled, test
from programs import job_of
from redriving import check_trace, divergence_of, record, redrive_all, take_away_surroundings, units

EVENTS_UNTIL_SENT = 2  # relay.c: a receive, getppid, a send that shows what came of them


def recorded(ctx, policy="all", program="relay", *arguments, options=()):
    record(ctx, job_of(ctx, program, *arguments, record_options=("--bound", "2s", "--policy", policy, *options)))
    take_away_surroundings(ctx)


def alter(ctx, kind, unit=1):
    """A copy of the trace with the fault; (its directory, the event)."""
    helper = ctx.options.build / "trace_alter"
    if not helper.exists():
        raise Skip(f"no {helper}: `make tests` builds it")
    altered = ctx.traces / kind
    outcome = ctx.expect_status(ctx.run(helper, ctx.trace, altered, kind, unit), 0)
    return altered, json.loads(outcome.stdout)["event"]


def expect_divergence(ctx, kind, policy="all"):
    recorded(ctx, policy)
    redrive_all(ctx)  # good as recorded
    altered, event = alter(ctx, kind)
    check_trace(ctx, altered)  # nothing is wrong with its bytes
    report = ctx.json("replay", altered, "1", statuses=(3,))
    found = [divergence_of(interval) for interval in report["intervals"] if divergence_of(interval)]
    if not found or report["divergences"] != len(found):
        raise Failure(f"{report['divergences']} divergences counted, {len(found)} reported")
    unit, at, text = found[0]
    if at is None:
        match = re.search(r"\bevent (\d+)", text)
        at = int(match[1]) if match else None
    if unit != 1 or at is None or not event <= at <= event + EVENTS_UNTIL_SENT:
        raise Failure(f"{kind} altered at 1:{event}, reported at {unit}:{at}: {text}")
    once = ctx.json("replay", altered, "--all", "--once", statuses=(3,))
    same = [divergence_of(interval)[:2] for interval in once["intervals"] if divergence_of(interval)]
    if (unit, at) not in same or once["divergences"] != len(same):
        raise Failure(f"{kind} altered at 1:{event} diverges at {unit}:{at}; all at once at {same}")
    told = ctx.expect_status(ctx.redrive("replay", altered, "1"), 3)
    for word in ("expected", "found"):
        ctx.expect(word in (told.stdout + told.stderr).lower(), told, f"the report has no '{word}'")
    for errors in ("/dev/full", "&-"):  # nobody can be told, and the status says it still
        ctx.expect_status(ctx.run("sh", "-c", f'"$1" replay "$2" 1 2>{errors}', "sh", ctx.options.redrive, altered), 3)


@test("faults/payload")
def payload(ctx):
    expect_divergence(ctx, "payload")


@test("faults/reproduced")
def reproduced(ctx):
    """The command that a report names leads to the divergence again, and to nothing else, whatever the trace's directory is called."""
    recorded(ctx)
    altered, _ = alter(ctx, "payload")
    named = ctx.traces / "it's $(touch made);touch made"
    altered.rename(named)
    for words in (("1",), ("--all", "--once")):
        told = ctx.expect_status(ctx.redrive("replay", named, *words, cwd=ctx.directory), 3)
        commands = re.findall(r"reproduce: redrive (replay .*)", told.stderr)
        ctx.expect(commands, told, "names no command")
        again = ctx.run("sh", "-c", f"'{ctx.options.redrive}' {commands[0]}", cwd=ctx.directory)
        ctx.expect(again.status == 3 and "divergence in" in again.stderr, again, "does not diverge")
        ctx.expect(not (ctx.directory / "made").exists(), again, "executes a part of the name")


@test("faults/swapped_receives")
def swapped_receives(ctx):
    expect_divergence(ctx, "swap")


@test("faults/swapped_unlogged_receives")
def swapped_unlogged_receives(ctx):
    expect_divergence(ctx, "swap", policy="none")


@test("faults/result")
def result(ctx):
    expect_divergence(ctx, "result")


@test("faults/unstored_program")
def unstored_program(ctx):
    """If a killed recorder has not stored a program's first checkpoint, neither that program nor the children that it forked can be re-driven. All
    commands say so, and the rest is intact."""
    script = "for i in 1 2 3; do (exit $i); /bin/true; (/bin/true; exit 3); done"
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", script), 3)
    redrive_all(ctx)
    altered, _ = alter(ctx, "unstored")
    check_trace(ctx, altered)
    forks = {row["unit"] for row in units(ctx, altered) if row["intervals"][0]["checkpoint_kind"] == "fork"}
    lost = {f"{row['unit']}:{i['interval']}" for row in units(ctx, altered) for i in row["intervals"]
            if not i["startable"] or (row["unit"] in forks and i["checkpoint_kind"] != "exec")}
    if not forks or "1:0" not in lost:
        raise Failure(f"of the units {forks} began with a fork, and these intervals are lost: {lost}")
    report = redrive_all(ctx, altered)
    cut = {f"{i['unit']}:{i['interval']}" for i in report["intervals"] if i["cut"]}
    if cut != lost or len(report["intervals"]) == len(cut):
        raise Failure(f"{cut} are cut of {len(report['intervals'])} intervals, not {lost}")
    for interval in cut:
        for command in ("replay", "plan"):
            told = ctx.expect_status(ctx.redrive(command, altered, interval), 1)
            ctx.expect("leads to" in told.stderr, told, f"does not say why {interval} cannot be re-driven")


@test("faults/skipped_program")
def skipped_program(ctx):
    """If a recorder that went on to the end could not store a program's first checkpoint, whatever needs that program names this checkpoint as the
    cause: the program's own intervals, the children that it forked, their children, and what receives its messages."""
    script = "(echo a; (echo b; exit 3)) | cat; (exit 4); (/bin/true; exit 5)"
    ctx.expect_status(ctx.redrive("record", "--policy", "none", "-o", ctx.trace, "--", "sh", "-c", script), 5)
    redrive_all(ctx)
    altered, _ = alter(ctx, "skipped")
    check_trace(ctx, altered)
    cause = "the checkpoint of interval 0 of unit 1 was not stored"
    forks = [row["unit"] for row in units(ctx, altered) if row["intervals"][0]["checkpoint_kind"] == "fork"]
    for options in (("--all",), ("--all", "--once"), ("--all", "--total-order")):
        outcome = ctx.expect_status(ctx.redrive("replay", *options, "--json", altered), 1)
        errors = {(i["unit"], i["interval"]): i["error"] for i in json.loads(outcome.stdout)["intervals"]}
        ctx.expect(len(forks) >= 4 and all(errors[unit, 0] for unit in (1, *forks)), outcome, "what cannot be re-driven was")
        ctx.expect(not all(errors.values()), outcome, "nothing was re-driven")
        ctx.expect(all(not error or error.endswith(cause) for error in errors.values()), outcome, "the cause is not named")
        ctx.expect(any("the parent" in (errors[unit, 0] or "") for unit in forks), outcome, "no child names its parent")


@test("faults/state_at_the_end")
def state_at_the_end(ctx):
    """An interval that ends with its program is compared with the state that was noted there, in each part."""
    recorded(ctx)
    whole = ctx.json("replay", ctx.trace, "1", "--verify")["intervals"]
    if not all(interval["verified"] for interval in whole):
        raise Failure("an interval was not verified")
    for kind in ("memory", "registers", "extended"):
        altered, event = alter(ctx, kind)
        check_trace(ctx, altered)
        ctx.json("replay", altered, "1")  # nothing else is wrong with it
        report = ctx.json("replay", altered, "1", "--verify", statuses=(3,))
        unit, at, text = divergence_of(report["intervals"][-1])
        if (unit, at) != (1, event) or kind not in text:
            raise Failure(f"{kind} altered at 1:{event}, reported at {unit}:{at}: {text}")


def files_of(trace):
    return sorted(path for path in trace.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size)


def damage_offsets(ctx, path, trace):
    """Offsets that `check` reports of the file."""
    outcome = ctx.expect_status(ctx.redrive("check", trace), 4)
    name = re.escape(str(path.relative_to(trace)))
    offsets = [int(n) for n in re.findall(rf"{name}\S*?: offset (\d+)", outcome.stdout + outcome.stderr)]
    ctx.expect(offsets, outcome, f"damage in {path.relative_to(trace)} is not reported with file and offset")
    return offsets, outcome


@test("faults/flipped_bits", timeout_s=60)
def flipped_bits(ctx):
    """One bit in every file of the trace: at its start, its end and places between."""
    recorded(ctx, program="compute_messages", options=("--checkpoint-period", "100ms"))
    check_trace(ctx)
    chooser = random.Random(2)
    for path in files_of(ctx.trace):
        size = path.stat().st_size
        for offset in sorted({0, size // 2, size - 1, *(chooser.randrange(size) for _ in range(3))}):
            flip(path, offset, 1 << chooser.randrange(8))
            offsets, outcome = damage_offsets(ctx, path, ctx.trace)
            ctx.expect(min(offsets) <= offset, outcome, f"bit flipped at {offset}, damage reported from {min(offsets)} on")
            flip(path, offset, None)
    check_trace(ctx)


flipped = {}


def flip(path, offset, bit):
    """Flips a bit; if `bit` is None, the one that was flipped there before."""
    bit = flipped.pop((path, offset)) if bit is None else flipped.setdefault((path, offset), bit)
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bit]))


@test("faults/damaged_replay", timeout_s=60, slow=True)
def damaged_replay(ctx):
    """Every command ends with an exit status and a message, whichever byte is wrong."""
    recorded(ctx, program="compute_messages", options=("--checkpoint-period", "100ms"))
    chooser = random.Random(3)
    for path in files_of(ctx.trace):
        offset = chooser.randrange(path.stat().st_size)
        flip(path, offset, 1 << chooser.randrange(8))
        for words in (("replay", ctx.trace, "--all"), ("replay", ctx.trace, "--all", "--once"), ("ls", ctx.trace),
                      ("stats", ctx.trace), ("dump", ctx.trace)):
            outcome = ctx.expect_status(ctx.redrive(*words), 0, 4)
            ctx.expect(outcome.status == 0 or "offset" in outcome.stderr, outcome, "damage without an offset")
        flip(path, offset, None)


@test("faults/truncated_tail")
def truncated_tail(ctx):
    """As after a power failure, the last bytes of growing files are missing. The torn records are cut, and the rest replays."""
    recorded(ctx, policy="critical-path", program="compute_messages", options=("--checkpoint-period", "100ms"))
    for path in (ctx.trace / "journal", *sorted((ctx.trace / "events").iterdir())):
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 20)
    check_trace(ctx)
    redrive_all(ctx)


@test("faults/truncated_segment")
def truncated_segment(ctx):
    """Nothing may be missing in a finished trace: it is reported as damage. A unit that does not need the missing part may be re-driven or refused,
    but nothing else."""
    recorded(ctx, program="compute_messages", options=("--checkpoint-period", "100ms"))
    first, second = sorted((ctx.trace / "events").iterdir())[:2]
    with open(second, "r+b") as file:
        file.truncate(second.stat().st_size - 100)
    damage_offsets(ctx, second, ctx.trace)
    outcome = ctx.expect_status(ctx.redrive("replay", ctx.trace, first.stem), 0, 4)
    ctx.expect(outcome.status == 0 or "offset" in outcome.stderr, outcome, "damage without an offset")


@test("faults/wild_writes")
def wild_writes(ctx):
    """A program that writes into the memory that it shares with the recorder continues, and the recording says that it is unsure."""
    wild_writer = compiled(ctx.options, TESTS / "workloads" / "wild_writer.cc", flags=["-O1", "-std=c++20", f"-I{ROOT}"], directory="workloads",
                           headers=(ROOT / "interceptors" / "inprocess").glob("*.h"))
    for what in ("head", "records"):
        trace = ctx.traces / what
        outcome = ctx.expect_status(ctx.redrive("record", "-o", trace, "--", wild_writer, what, cwd=ctx.work), 0)
        ctx.expect(outcome.stdout == "ok 1\n", outcome, "the program did not end well")
        ctx.expect("wrote into the memory that it shares" in outcome.stderr, outcome, "nothing is said of it")
        if not any("shares" in unsure["reason"] for unsure in ctx.json("stats", trace)["unsure"]):
            raise Failure("stats lists no doubt")
    # Well-formed records with wrong contents do not harm the recorder either.
    for what in (("descriptors", "-1"), ("descriptors", "-1000000"), ("descriptors", "2147483647"), ("nothing",)):
        trace = ctx.traces / "-".join(what)
        outcome = ctx.expect_status(ctx.redrive("record", "-o", trace, "--", wild_writer, *what, cwd=ctx.work), 0)
        ctx.expect(outcome.stdout == "ok 1\n", outcome, "the program did not end well")
        check_trace(ctx, trace)


@test("faults/missing_files")
def missing_files(ctx):
    recorded(ctx, program="compute_messages", options=("--checkpoint-period", "100ms"))
    for path in files_of(ctx.trace):
        broken = ctx.traces / "broken"
        shutil.copytree(ctx.trace, broken, symlinks=True)
        (broken / path.relative_to(ctx.trace)).unlink()
        outcome = ctx.redrive("check", broken)
        wanted = {"journal": 1, "certificate": 0}.get(path.name, 4)  # a certificate is derived, and made again
        ctx.expect_status(outcome, wanted)
        shutil.rmtree(broken)


def catalog_rows(path):
    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: sorted(database.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}


@test("faults/catalog")
def catalog(ctx):
    """redrive catalog makes a catalog that says what stats says, and makes it again after the trace has changed."""
    recorded(ctx, policy="none", program="compute_messages", options=("--checkpoint-period", "100ms"))

    def rows():
        made = ctx.expect_status(ctx.redrive("catalog", ctx.trace), 0)
        ctx.expect(made.stdout == f"{ctx.trace}/catalog.sqlite\n", made, "does not print the catalog's path")
        return catalog_rows(ctx.trace / "catalog.sqlite")

    def agrees(found):
        stats = ctx.json("stats", ctx.trace)
        counts = {"units": len(found["units"]), "intervals": len(found["intervals"]), "events": sum(unit[-2] for unit in found["units"]),
                  "messages": sum(channel[5] for channel in found["channels"]), "logged_messages": sum(channel[6] for channel in found["channels"])}
        if any(stats[key] != count for key, count in counts.items()):
            raise Failure(f"the catalog says {counts}, stats {({key: stats[key] for key in counts})}")
        if len({row[:2] for row in found["messages"]}) != counts["messages"] or not any(row[-1] for row in found["messages"]):
            raise Failure("the messages are not those that are counted, or none has the time of its send")
        return counts
    if list(ctx.trace.glob("catalog*")):
        raise Failure("a recording leaves a catalog")
    first = rows()
    if agrees(first)["logged_messages"] or rows() != first:
        raise Failure("the catalog changes, or says that messages are logged")
    ctx.expect_status(ctx.redrive("prepare", "--policy", "all", "--bound", "1s", ctx.trace), 0)
    if not agrees(rows())["logged_messages"]:
        raise Failure("no message is logged after prepare")
    made = rows()
    with contextlib.closing(sqlite3.connect(ctx.trace / "catalog.sqlite")) as database:
        database.execute("CREATE INDEX mine ON messages(unit)")
        database.commit()
    outcome = ctx.expect_status(ctx.redrive("check", ctx.trace), 0)
    ctx.expect("catalog.sqlite was changed" in outcome.stderr and "clean" in outcome.stdout, outcome, "does not say what was changed")
    if rows() != made or ctx.redrive("check", ctx.trace).stderr:
        raise Failure("the catalog is not made again")
    if list(ctx.trace.glob("*.tmp")):
        raise Failure("a temporary file is left")
