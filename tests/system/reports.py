"""Group reports: what the listing commands say, as text and as JSON with the keys of DESIGN.md section 8."""
import os
import re
import shutil
import sys

from harness import Failure, Skip, needs, test, workload
from programs import job_of
from redriving import is_root, record, redrive_all, take_away_surroundings, units

PERIOD = ("--bound", "2s", "--checkpoint-period", "100ms")
STATS_KEYS = """units intervals events messages logged_messages message_bytes logged_bytes input_bytes checkpoints
skipped_checkpoints trace_bytes policy critical_path_s checkpoint_period_s bound_s refused unsure""".split()
UNIT_KEYS = "unit name pid command joined intervals".split()
INTERVAL_KEYS = "interval checkpoint_kind first_event events cpu_s messages logged_messages".split()
PLAN_KEYS = "unit interval replay_set critical_path_s work_s predicted_s".split()
REPLAY_KEYS = "intervals opening_s max_seconds divergences not_verified late".split()
REPLAYED_KEYS = "unit interval replay_set_size seconds bound_s late verified unverified divergence".split()


def expect_keys(what, found, wanted):
    missing = [key for key in wanted if key not in found]
    if missing:
        raise Failure(f"{what} lacks {missing}; it has {sorted(found)}")


def recorded(ctx, program="compute_messages", *arguments, options=PERIOD):
    outcome = record(ctx, job_of(ctx, program, *arguments, record_options=options))
    take_away_surroundings(ctx)
    return outcome


@test("reports/ls")
def ls(ctx):
    recorded(ctx)
    found = units(ctx)
    for unit in found:
        expect_keys("a unit of ls", unit, UNIT_KEYS)
        for index, interval in enumerate(unit["intervals"]):
            expect_keys("an interval of ls", interval, INTERVAL_KEYS)
            if interval["interval"] != index or interval["checkpoint_kind"] not in ("exec", "fork", "image"):
                raise Failure(f"interval {interval}")
    kinds = [unit["intervals"][0]["checkpoint_kind"] for unit in found]
    if kinds != ["exec", "fork"]:
        raise Failure(f"the program and its child start by {kinds}")
    text = ctx.expect_status(ctx.redrive("ls", ctx.trace), 0)
    ctx.expect("compute_messages" in text.stdout, text, "does not name the program")
    text = ctx.expect_status(ctx.redrive("ls"), 0)
    ctx.expect("t" in text.stdout.split(), text, "does not list the trace")


@test("reports/pauses")
def pauses(ctx):
    """Every checkpoint whose memory was read or copied while the program was stopped says for how long."""
    recorded(ctx, options=(*PERIOD, "--policy", "all"))
    for unit in units(ctx):
        for interval in unit["intervals"]:
            if not 0 < interval["pause_s"] < 5:
                raise Failure(f"a pause of {interval['pause_s']} s at {unit['unit']}:{interval['interval']}")


@test("reports/checkpoints_when_due")
def checkpoints_when_due(ctx):
    """Two processes that are in a served call whenever the recorder looks take their checkpoints together, and when these are due."""
    command = [workload(ctx.options, "pingpong"), "tcp", 60_000]
    options = ("-o", ctx.trace, "--checkpoint-period", "100ms", "--critical-path", "200ms")
    ctx.expect_status(ctx.redrive("record", *options, "--", *command, cwd=ctx.work), 0)
    late = [(unit["unit"], each) for unit in units(ctx) for each in unit["intervals"] if (each["cpu_s"] or 0) > 0.2]
    if late or len(units(ctx)[0]["intervals"]) < 4:
        raise Failure(f"intervals of more than 200 ms, with a checkpoint due every 100 ms: {late}")
    found = ctx.json("stats", ctx.trace)
    if found["logged_messages"] > 0.01 * found["messages"]:
        raise Failure(f"{found['logged_messages']} of {found['messages']} messages are logged, and each needs but what came since the checkpoints")


@test("reports/interception")
def interception(ctx):
    """Sites that a jump can replace stop twice in total, in all processes that map their file, and twice more where the program moves them;
    others stop each time, and are counted."""
    record(ctx, job_of(ctx, "mapped_code", record_options=PERIOD))
    found = ctx.json("stats", ctx.trace)
    code = [site for site in found["stopping_sites"] if site["file"].endswith("/code")]
    fits = [site for site in code if site["patchable"]]
    fixed = [site for site in code if not site["patchable"] and site["stops"] > 2]  # one, in each version of the file
    if not fits or max(site["stops"] for site in fits) > 4 or len({site["offset"] for site in fixed}) != 1 or fixed[0]["stops"] < 40:
        raise Failure(f"stops of {len(fits)} sites where a jump fits, and of others: {code[:5]}")
    if found["served_calls"] < 10_000 or found["stopped_calls"] > found["served_calls"] / 4:
        raise Failure(f"{found['served_calls']} calls served, {found['stopped_calls']} stopped")
    trace = ctx.traces / "stops"
    record(ctx, job_of(ctx, "mapped_code", record_options=(*PERIOD, "--interception", "stops")), trace)
    found = ctx.json("stats", trace)
    if found["served_calls"] or found["stopping_sites"]:
        raise Failure(f"--interception stops: {found['served_calls']} calls served, {found['stopping_sites'][:5]}")


@test("reports/counter_sites")
def counter_sites(ctx):
    """Reading the time stamp counter repeatedly stops only while a program's own site is new, and when the ring is full."""
    own = 64  # stops until code is replaced that the program might read (supervisor/tier/code_file.h)
    record(ctx, job_of(ctx, "rdtsc"))
    sites = [site for site in ctx.json("stats", ctx.trace)["stopping_sites"] if site["file"].endswith("/rdtsc")]
    if not sites or any(site["stops"] > own + 2 or (site["stops"] >= own and not site["patchable"]) for site in sites):
        raise Failure(f"stops of rdtsc and rdtscp: {sites}")


@test("reports/served_sleep")
def served_sleep(ctx):
    """Sleeping in a unit of several threads, closing a connection right after its last message, and closing what is not open, cause no stop."""
    for name, fewest, share in (("sleepers_alone", 3000, 0.1), ("served_descriptors", 10_000, 0.17)):
        trace = ctx.traces / name
        record(ctx, job_of(ctx, name), trace)
        found = ctx.json("stats", trace)
        if found["served_calls"] < fewest or found["stopped_calls"] > share * found["served_calls"]:
            raise Failure(f"{name}: {found['served_calls']} calls served, {found['stopped_calls']} stopped")


@test("reports/stats")
def stats(ctx):
    recorded(ctx)
    found = ctx.json("stats", ctx.trace)
    expect_keys("stats", found, STATS_KEYS)
    right = (found["units"] == 2 and found["messages"] >= 1000 and found["message_bytes"] >= 8000
             and found["policy"].startswith("deadline --cores ") and found["bound_s"] == 2 and found["checkpoint_period_s"] == 0.1
             and found["trace_bytes"] > 1000 and found["logged_messages"] <= found["messages"])
    if not right:
        raise Failure(f"stats: {found}")


@test("reports/short")
def short(ctx):
    """Of a short recording it is known only what all replays take together."""
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--bound", "2s", "true", cwd=ctx.work), 0)
    certificate = ctx.json("stats", ctx.trace)["certificate"]
    if certificate["slowest"] is not None or not 0 < certificate["together_s"] < 1:
        raise Failure(f"the certificate of a short recording: {certificate}")
    told = ctx.expect_status(ctx.redrive("stats", ctx.trace), 0)
    ctx.expect(" at most for all together" in told.stdout, told, "does not say for what the prediction is")


@test("reports/early_sends")
def early_sends(ctx):
    """What is sent into a unix stream before it is accepted is a message, and so is the answer."""
    recorded(ctx, "unix_early")
    channels = ctx.json("stats", ctx.trace)["per_channel"]
    counts = sorted(channel["messages"] for channel in channels if channel["kind"] == "unix")
    if counts != [1] * 4 + [25] * 4:
        raise Failure(f"unix streams with {counts} messages: {channels}")


@test("reports/short_connections")
def short_connections(ctx):
    """Between whom a connection is, is known, however soon it is over, and however long its accept(2) has slept."""
    for options in (PERIOD, ("--checkpoint-period", "20ms")):  # which wakes the sleeping ones
        shutil.rmtree(ctx.trace, ignore_errors=True)
        ctx.fresh_work()
        recorded(ctx, "short_connections", options=options)
        found = ctx.json("stats", ctx.trace)
        if found["messages"] != 80:
            raise Failure(f"{options}: {found['messages']} of 80 messages were recognized")


@test("reports/plan")
def plan(ctx):
    recorded(ctx)
    unit = max(units(ctx), key=lambda u: len(u["intervals"]))
    for interval in unit["intervals"]:
        found = ctx.json("plan", ctx.trace, f"{unit['unit']}:{interval['interval']}")
        expect_keys("plan", found, PLAN_KEYS)
        expect_keys("a member of the replay set", found["replay_set"][0], ["unit", "interval", "requisite_event"])
        own = found["replay_set"][0]
        if (own["unit"], own["interval"]) != (unit["unit"], interval["interval"]):
            raise Failure(f"the replay set does not begin with the interval itself: {found}")
        up_to_start = ctx.json("plan", ctx.trace, f"{unit['unit']}:{interval['interval']}", "--until", interval["first_event"])
        if up_to_start["replay_set"][0]["start"] == interval["interval"] and up_to_start["replay_set"][0]["requisite_event"] is not None:
            raise Failure(f"events are to be executed before the first one: {up_to_start}")
        if found["critical_path_s"] > found["work_s"] + 1e-9:
            raise Failure(f"the critical path is longer than the work: {found}")


@test("reports/replay")
def replay(ctx):
    recorded(ctx)
    report = redrive_all(ctx)
    expect_keys("replay", report, REPLAY_KEYS)
    for interval in report["intervals"]:
        expect_keys("an interval of replay", interval, REPLAYED_KEYS)
    recorded_intervals = sum(len(unit["intervals"]) for unit in units(ctx))
    if len(report["intervals"]) != recorded_intervals:
        raise Failure(f"{len(report['intervals'])} of {recorded_intervals} intervals were re-driven")
    if not 0 < report["opening_s"] <= min(interval["seconds"] for interval in report["intervals"]):
        raise Failure(f"opening_s, which each interval's seconds have in them, is {report['opening_s']}")
    slowest = max(interval["seconds"] for interval in report["intervals"])
    if abs(report["max_seconds"] - slowest) > 0.01:
        raise Failure(f"max_seconds is {report['max_seconds']}, the slowest took {slowest}")


@test("reports/late")
def late(ctx):
    """Replays that exceed the trace's bound are marked in the table, in JSON and by the exit status. With such a critical path the bound cannot be
    kept."""
    command = [workload(ctx.options, "cpu_bound"), 40]
    options = ("-o", ctx.trace, "--bound", "200ms", "--critical-path", "100s", "--checkpoint-period", "100s")
    ctx.expect_status(ctx.redrive("record", *options, "--", *command, cwd=ctx.work), 0)
    report = ctx.json("replay", ctx.trace, "--all", statuses=(5,))
    if report["late"] != 1 or [interval["late"] for interval in report["intervals"]] != [True]:
        raise Failure(f"an interval that took longer than 200 ms is not late: {report}")
    table = ctx.expect_status(ctx.redrive("replay", ctx.trace, "--all"), 5).stdout
    if table.count("LATE") != 1 or ", 1 late, " not in table:
        raise Failure(f"the table does not mark the late interval:\n{table}")
    ctx.expect_status(ctx.redrive("replay", ctx.trace, "--all", "--once"), 0)


@test("reports/traces")
def traces(ctx):
    """All traces: the newest first, with exit status and host, selected by name, time and status."""
    for command, status in ((["true"], 0), (["sh", "-c", "exit 3"], 3), (["true"], 0)):
        ctx.expect_status(ctx.redrive("record", "--", *command, cwd=ctx.work), status)

    def listed(*words):
        return [(row["name"], row["exit_status"]) for row in ctx.json("ls", *words)["traces"]]

    found = {words: listed(*words) for words in ((), ("true-*",), ("--failed",), ("-n", "1"), ("--since", "1h"), ("--since", "2100-01-01"),
                                                 ("--failed", "true-?"))}
    wanted = {(): [("true-2", 0), ("sh-1", 3), ("true-1", 0)], ("true-*",): [("true-2", 0), ("true-1", 0)], ("--failed",): [("sh-1", 3)],
              ("-n", "1"): [("true-2", 0)], ("--since", "1h"): [("true-2", 0), ("sh-1", 3), ("true-1", 0)], ("--since", "2100-01-01"): [],
              ("--failed", "true-?"): []}
    if found != wanted:
        raise Failure(f"ls lists {found}")
    table = ctx.expect_status(ctx.redrive("ls"), 0).stdout
    if os.uname().nodename not in table or {row["host"] for row in ctx.json("ls")["traces"]} != {os.uname().nodename}:
        raise Failure(f"ls does not name the host:\n{table}")
    for words in (("--since", "soon"), ("-n", "0"), ("--failed", "sh-1")):
        ctx.expect_status(ctx.redrive("ls", *words), 2)


@test("reports/sent")
def sent(ctx):
    """Messages are counted as they were sent and as they were received, and channels name the units at their ends."""
    script = "for i in 1 2 3 4 5; do echo $i; done | { read -r a; cat > /dev/null; }"
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", script, cwd=ctx.work), 0)
    found = ctx.json("stats", ctx.trace)
    channel, = [channel for channel in found["per_channel"] if channel["sent_messages"] == 5]
    numbers = {unit["unit"]: unit for unit in found["per_unit"]}
    ends = set(channel["from"]) | set(channel["to"])
    if len(channel["from"]) != 1 or not channel["to"] or not ends <= set(numbers) or channel["from"] == channel["to"]:
        raise Failure(f"the ends of {channel} among {numbers}")
    if channel["sent_bytes"] != 10 or numbers[channel["from"][0]]["sent_messages"] != 5:
        raise Failure(f"5 lines were sent: {channel} {numbers}")
    if found["sent_messages"] != sum(unit["sent_messages"] for unit in found["per_unit"]):
        raise Failure(f"the units' counts do not make up the sum: {found}")
    table = ctx.expect_status(ctx.redrive("stats", ctx.trace), 0).stdout
    if not re.search(r"CHANNEL +KIND +FROM +TO +SENT +RECEIVED", table):
        raise Failure(f"channels without ends:\n{table}")


@test("reports/output")
def output(ctx):
    result = recorded(ctx, "relay", "40").stdout.strip()
    unit = units(ctx)[0]["unit"]
    text = ctx.expect_status(ctx.redrive("replay", ctx.trace, str(unit), "--output", cwd="/"), 0)
    ctx.expect(result in text.stdout, text, f"does not show what the program wrote: {result}")


@test("reports/until")
def until(ctx):
    recorded(ctx, "relay", "40")
    unit = units(ctx)[0]
    event = unit["intervals"][0]["first_event"] + 20
    words = ("replay", ctx.trace, f"{unit['unit']}:0", "--until", str(event))
    ctx.expect_status(ctx.redrive(*words), 0)
    report = ctx.json(*words, "--verify")
    why = report["intervals"][0]["unverified"]
    table = ctx.expect_status(ctx.redrive(*words, "--verify"), 0)
    ctx.expect(f"ok, not verified: {why}" in table.stdout and "1 not verified" in table.stdout, table, "does not say that no state was compared")
    if not why or report["not_verified"] != 1:
        raise Failure(f"an interval that --until cuts short is verified: {report}")


@test("reports/dump")
def dump(ctx):
    recorded(ctx, "relay", "10")
    text = ctx.expect_status(ctx.redrive("dump", ctx.trace, "1"), 0)
    for word in ("recvfrom", "getppid", "sendto", "exit_group"):
        ctx.expect(word in text.stdout, text, f"shows no {word}")
    ctx.json("dump", ctx.trace, "1:0")


@test("reports/ends")
def ends(ctx):
    """A thread that ends is told from a process that ends, whether that calls exit_group(2) or, as in seccomp's strict mode, exit(2)."""
    wanted = {"main_exits_first": {("exit", "thread"), ("exit_group", "process")},
              "seccomp_actions": {(call, what) for call in ("exit", "exit_group") for what in ("thread", "process")} | {("getsid", "thread")}}
    for name, by_call in wanted.items():
        trace = ctx.traces / name
        record(ctx, job_of(ctx, name), trace)
        found = [(event["call"], what) for event in ctx.json("dump", trace) if "call" in event
                 for key, what in (("fatal", "process"), ("thread_ended", "thread")) if key in event]
        if set(found) != by_call:
            raise Failure(f"{name}: calls ended {found}")
        told = ctx.expect_status(ctx.redrive("dump", trace), 0)
        notes = re.findall(r"\[the (\w+) ended here\]", told.stdout)
        ctx.expect(notes == [what for _, what in found], told, f"notes {notes} where the JSON says {found}")
    first, = [event for event in ctx.json("dump", ctx.traces / "main_exits_first") if "thread_ended" in event]
    told = ctx.expect_status(ctx.redrive("replay", "--break", f"1@{first['event']}", ctx.traces / "main_exits_first"), 0)
    ctx.expect("[the thread ended here]" in told.stdout, told, "replay --break does not say that a thread ends")


@test("reports/names")
def names(ctx):
    """Units by name and number, traces by path, name and as the latest."""
    job = job_of(ctx, "relay", "10")
    job.prepare(ctx.fresh_work())
    for _ in range(2):
        ctx.expect_status(ctx.redrive("record", "--", *job.command, cwd=ctx.work), 0)
    found = sorted(path.name for path in ctx.traces.iterdir() if path.is_dir() and not path.is_symlink())
    if len(found) != 2 or not all(name.startswith("relay-") for name in found):
        raise Failure(f"two recordings of relay are called {found}")
    for words in ((), (found[0],), (ctx.traces / found[1],)):
        ctx.expect_status(ctx.redrive("replay", *words, "relay.1"), 0)
    for unit in units(ctx, found[0]):
        ctx.expect_status(ctx.redrive("replay", found[0], f"{unit['pid']}:0"), 0)
    ctx.expect_status(ctx.redrive("replay", "--break", "1@5", found[0]), 0)
    ctx.expect_status(ctx.redrive("plan", "--break", f"{units(ctx, found[1])[0]['pid']}@5", "--json", found[1]), 0)
    ctx.expect_status(ctx.redrive("rm", found[0]), 0)
    left = sorted(path.name for path in ctx.traces.iterdir() if path.is_dir() and not path.is_symlink())
    if left != found[1:]:
        raise Failure(f"rm {found[0]} leaves {left}")
    elsewhere = ctx.directory / "elsewhere"
    ctx.expect_status(ctx.redrive("record", "-o", elsewhere, "true", cwd=ctx.work), 0)
    for name in ("mine", "mine/"):
        (ctx.traces / "mine").symlink_to(elsewhere)
        outcome = ctx.expect_status(ctx.redrive("rm", name), 0)
        ctx.expect(elsewhere.exists() and not (ctx.traces / "mine").is_symlink(), outcome, "removes what a link leads to, or not the link")
    ctx.expect_status(ctx.redrive("rm", "latest"), 0)
    if (ctx.traces / found[1]).exists():
        raise Failure("rm latest leaves the latest trace")
    (ctx.work / "my prog").symlink_to("/bin/true")
    ctx.expect_status(ctx.redrive("record", "./my prog", "a", cwd=ctx.work), 0)
    if (name := units(ctx, "latest")[0]["name"]) != "my_prog":
        raise Failure(f"the unit of a program whose name has a space is called {name}")


@test("reports/check_host")
def check_host(ctx):
    ctx.json("check", "--host")


@test("reports/proc_of_others")
def proc_of_others(ctx):
    """In a PID namespace with the /proc of another one, numbers would be those of unrelated processes there: here, those of a namespace around it."""
    needs("unshare", "mount")
    inner = ("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "unshare", "-m", "-p", "-f", "--kill-child")
    if ctx.run(*inner, "true").status:
        raise Skip("this user may make no namespaces here")
    for hidden, message in (("true", "is not that of this PID namespace"), ("mount -t tmpfs none /proc", "is not mounted")):
        for words, status in ((("record", "-o", ctx.trace, "touch", "started"), 125), (("check", "--host"), 1)):
            outcome = ctx.run(*inner, "sh", "-c", f'{hidden}; exec "$@"', "sh", ctx.options.redrive, *words, cwd=ctx.work)
            ctx.expect_status(outcome, status)
            ctx.expect(f"/proc {message}; mount -t proc proc /proc\n" in outcome.stdout + outcome.stderr, outcome, "does not say why")
            ctx.expect(outcome.stderr.count("\n") == 1 and "ptrace of" not in outcome.stdout, outcome, "goes on")
    if (ctx.work / "started").exists() or ctx.trace.exists():
        raise Failure("something was recorded")


@test("reports/setuid")
def setuid(ctx):
    """A set-user-ID program is named if it lacks privileges that it would have had, and only then."""
    if not is_root():
        raise Skip("not root: cannot make a setuid program")
    for owner, named in ((0, False), (65534, True)):
        shutil.copy("/bin/true", ctx.work / "setuid")
        os.chown(ctx.work / "setuid", owner, owner)
        (ctx.work / "setuid").chmod(0o4755)
        outcome = ctx.redrive("record", "-o", ctx.traces / str(owner), "--", "sh", "-c", "./setuid; exit 3", cwd=ctx.work)
        ctx.expect_status(outcome, 3)
        ctx.expect(("set-user-ID program" in outcome.stderr) == named, outcome, f"owner {owner}: named or not")


@test("reports/setuid_without_effect")
def setuid_without_effect(ctx):
    """Where the kernel gives no privileges, none are said to be missing: the owner has no number in the user namespace; the file system is mounted so."""
    needs("unshare", "mount")
    if not is_root() or ctx.run("unshare", "-Urm", "true").status != 0:
        raise Skip("not root, or no user namespaces here")
    shutil.copy("/bin/true", ctx.work / "setuid")
    os.chown(ctx.work / "setuid", 65534, 65534)
    (ctx.work / "setuid").chmod(0o4755)
    for name, inside in (("unmapped", "unshare -Ur ./setuid"), ("nosuid", 'mount --bind . . && mount -o remount,bind,nosuid . && cd "$PWD" && ./setuid')):
        outcome = ctx.redrive("record", "-o", ctx.traces / name, "--", "unshare", "-m", "sh", "-c", inside, cwd=ctx.work)
        ctx.expect_status(outcome, 0)
        ctx.expect("set-user-ID" not in outcome.stderr, outcome, f"{inside}: names the program")


# Exits with 7, by a call of 32-bit programs.
FOREIGN_PROGRAM = ".globl _start\n_start: mov $1, %eax\nmov $7, %ebx\nint $0x80\n"


@test("reports/foreign_program")
def foreign_program(ctx):
    """A 32-bit program that a recorded program starts is named, because it cannot run."""
    (ctx.work / "foreign.s").write_text(FOREIGN_PROGRAM)
    made = ctx.run("gcc", "-m32", "-nostdlib", "-static", "-o", ctx.work / "foreign", ctx.work / "foreign.s")
    if made.status != 0 or ctx.run(ctx.work / "foreign").status != 7:
        raise Skip("this machine builds or runs no 32-bit programs")
    outcome = ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-c", "./foreign; exit 3", cwd=ctx.work)
    ctx.expect_status(outcome, 3)
    ctx.expect("32-bit program foreign" in outcome.stderr, outcome, "does not name the 32-bit program")
    if [unit["name"] for unit in units(ctx)] != ["sh", "foreign"]:
        raise Failure(f"the units are {units(ctx)}")


LOW_MEMORY = r"""
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
  unsigned long least;
  FILE* const file = fopen("/proc/sys/vm/mmap_min_addr", "r");
  if (!file || fscanf(file, "%lu", &least) != 1 || least == 0) return 1;
  return mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != 0;
}
"""


@test("reports/low_memory")
def low_memory(ctx):
    """A process that maps memory where a replay may not is named, whether it did so itself or the kernel for it."""
    (ctx.work / "low.c").write_text(LOW_MEMORY)
    ctx.expect_status(ctx.run("gcc", "-o", ctx.work / "low", ctx.work / "low.c"), 0)
    if ctx.run(ctx.work / "low").status != 0:
        raise Skip("not root, or vm.mmap_min_addr is 0")
    for name, command in (("called", [ctx.work / "low"]), ("started", ["setarch", "x86_64", "-Z", "true"])):
        outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.traces / name, "--", *command), 0)
        ctx.expect("vm.mmap_min_addr" in outcome.stderr, outcome, "does not say that a replay cannot map it")


STUB_MEMORY = r"""
#include <stdio.h>
#include <sys/mman.h>
int main(int argc, char** argv) {
  enum { kFlags = MAP_PRIVATE | MAP_ANONYMOUS };
  const size_t size = 1 << 20;
  int mapped = 0;
  if (mmap((void*)0x6ff80000, size, PROT_READ, kFlags | MAP_FIXED, -1, 0) != MAP_FAILED) mapped++;
  for (int i = 0; i < 2048 && argc > 1; i++) {
    char* const at = mmap(0, size, PROT_READ | PROT_WRITE, kFlags | MAP_32BIT, -1, 0);
    if (at == MAP_FAILED) break;
    *at = 1, mapped++;
  }
  return mapped == 0;
}
"""


@test("reports/stub_memory")
def stub_memory(ctx):
    """Programs cannot map what a replay needs for itself. One that is linked there is named, and its trace is not damaged."""
    (ctx.work / "near.c").write_text(STUB_MEMORY)
    for name, flags in (("near", []), ("there", ["-static", "-no-pie", "-Wl,-Ttext-segment=0x70000000"])):
        ctx.expect_status(ctx.run("gcc", *flags, "-o", ctx.work / name, ctx.work / "near.c"), 0)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", ctx.work / "near", "all"), 0)
    redrive_all(ctx)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.traces / "alone", "--", ctx.work / "near"), 1)
    outcome = ctx.redrive("record", "-o", ctx.traces / "there", "--", ctx.work / "there")
    ctx.expect("at 0x70000000" in outcome.stderr, outcome, "does not say that a replay has code of its own there")
    ctx.expect_status(ctx.redrive("replay", "--all", ctx.traces / "there"), 1)


@test("reports/refused")
def refused(ctx):
    """Refused calls are listed at the recording's end and in stats."""
    outcome = recorded(ctx, "new_syscalls")
    ctx.expect("io_uring_setup" in outcome.stderr, outcome, "does not say that io_uring_setup was refused")
    named = str(ctx.json("stats", ctx.trace)["refused"])
    if "io_uring_setup" not in named:
        raise Failure(f"stats lists as refused: {named}")


@test("reports/served_files")
def served_files(ctx):
    """A recorded process may not serve files, nor permit others to open them: the recorder, which reads mapped files, would wait for it for ever."""
    program = ("import ctypes\n"
               "c = ctypes.CDLL(None, use_errno=True)\n"
               "def error(result): return ctypes.get_errno() if result == -1 else 0\n"
               "print(error(c.mount(b'none', b'.', b'fuse.any', 0, b'no options')), error(c.syscall(430, b'fuseblk', 0)),\n"
               "      error(c.syscall(300, 4, 0)), error(c.syscall(300, 8, 0)), error(c.mount(b'none', b'.', b'no-such-type', 1 << 12, None)))\n")
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", sys.executable, "-c", program), 0)
    ctx.expect(outcome.stdout.split()[:4] == ["19", "19", "22", "22"], outcome, "does not refuse these")
    ctx.expect(outcome.stdout.split()[4] != "19", outcome, "refuses another mount")
    for name in ("mount", "fsopen", "fanotify_init(FAN_CLASS_CONTENT)", "fanotify_init(FAN_CLASS_PRE_CONTENT)"):
        ctx.expect(f"refused {name} " in outcome.stderr, outcome, f"does not say that {name} was refused")


# Stands in for a libseccomp that is newer than the programs which use it.
NEWER_LIBSECCOMP = r"""
#include <stdint.h>
#include <string.h>
char* seccomp_syscall_resolve_num_arch(uint32_t arch, int number) {
  return arch == 0xc000003e && number == 998 ? strdup("call_of_tomorrow") : NULL;
}
"""


@test("reports/newer_calls")
def newer_calls(ctx):
    """Calls that redrive has no row for have the names that the installed libseccomp knows."""
    (ctx.work / "newer.c").write_text(NEWER_LIBSECCOMP)
    library = ctx.work / "newer.so"
    ctx.expect_status(ctx.run("gcc", "-shared", "-fPIC", "-o", library, ctx.work / "newer.c"), 0)
    newer = {"LD_PRELOAD": str(library)}
    program = "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n" + "".join(
        f"assert c.syscall({number}, 1) == -1 and ctypes.get_errno() == 38\n" for number in (998, 999))
    outcome = ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", sys.executable, "-c", program, env=newer), 0)
    refused = {entry["what"] for entry in ctx.json("stats", ctx.trace)["refused"]}
    shown = ctx.expect_status(ctx.redrive("dump", ctx.trace, env=newer), 0)
    for name in ("call_of_tomorrow", "syscall_999"):
        ctx.expect(f"refused {name} " in outcome.stderr, outcome, f"does not say that {name} was refused")
        ctx.expect(re.search(rf"\b{name}\(1, .*\) = -1 ENOSYS", shown.stdout), shown, f"does not show {name}")
        if name not in refused:
            raise Failure(f"stats lists as refused: {refused}")


@test("reports/not_refused")
def not_refused(ctx):
    """Calls that can be recorded, and queries for what exists, are not reported as refused."""
    for program, calls in (("file_extents", ("FICLONE", "FIDEDUPERANGE", "FIEMAP")), ("network_requests", ("SIOCETHTOOL",)),
                           ("seccomp_actions", ("SECCOMP_SET_MODE_FILTER", "SECCOMP_GET_ACTION_AVAIL")), ("segments", ("modify_ldt",))):
        ctx.trace = ctx.traces / program
        record(ctx, job_of(ctx, program))
        refused = {entry["what"] for entry in ctx.json("stats", ctx.trace)["refused"]}
        if wrong := [name for name in refused if any(call in name for call in calls)]:
            raise Failure(f"{program}: refused {', '.join(wrong)}")


@test("reports/help")
def help_texts(ctx):
    for words in (["--help"], ["--version"], *([name, "--help"] for name in
                  ("record", "ls", "replay", "plan", "dump", "stats", "evaluate", "check", "rm"))):
        outcome = ctx.expect_status(ctx.redrive(*words), 0)
        ctx.expect(outcome.stdout.strip() and not outcome.stderr, outcome, "help belongs on standard output")
