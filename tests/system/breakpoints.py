"""Group breakpoints: distributed breakpoints of recorded programs, and receives in the recorded total order. The places of the units are checked
against the events as `dump` prints them; continuing from there must verify."""
import random

import mpi
from bad_input import expect_one_line
from harness import TESTS, Failure, test, workload
from programs import job_of, program_job
from redriving import Job, copy_into, record, redrive_all, take_away_surroundings, units
from workloads import MPI, SOCKETS, socket_job

PLACES = 6  # random breakpoints of each trace


class Events:
    """All events of a trace, and what each needs from other units."""

    def __init__(self, ctx):
        self.by_unit, self.needs = {}, {}
        births = {}
        for event in ctx.json("dump", ctx.trace):
            at = event["unit"], event["event"]
            self.by_unit.setdefault(event["unit"], []).append(event)
            parts = event.get("receive", {}).get("parts", [])
            self.needs[at] = [(part["unit"], part["event"]) for part in parts if part["unit"] not in (0, event["unit"])]
            if event.get("child_unit"):
                births[event["child_unit"]] = at
        for unit, fork in births.items():
            if unit in self.by_unit:
                self.needs[unit, 0].append(fork)

    def causal(self, listed):
        """How many events each unit has done at the causal distributed breakpoint of one event, by walking back from it."""
        done = {unit: 0 for unit in self.by_unit}
        done[listed[0]] = listed[1]
        todo = [(listed[0], event) for event in range(listed[1] + 1)]
        while todo:
            for unit, event in self.needs[todo.pop()]:
                todo += [(unit, earlier) for earlier in range(done[unit], event + 1)]
                done[unit] = max(done[unit], event + 1)
        return done

    def choose(self, seed, count):
        generator = random.Random(seed)
        everywhere = [(unit, event["event"]) for unit, events in self.by_unit.items() for event in events]
        return [generator.choice(everywhere) for _ in range(count)]


def comparable(ctx):
    """Intervals that end at an image, so that their ends can be verified."""
    return {(unit["unit"], later["interval"] - 1) for unit in units(ctx) for later in unit["intervals"]
            if later["checkpoint_kind"] == "image"}


def check_places(found, events, done, listed):
    for unit in found["units"]:
        number, event = unit["unit"], done.get(unit["unit"], 0)
        if unit["event"] != event:
            raise Failure(f"at {listed}, unit {number} stands before {unit['event']}, not before {event}")
        all_events = events.by_unit.get(number, [])
        state = "ended" if event == len(all_events) and event > 0 else "standing" if event > 0 or number == listed[0] else "not started"
        if unit["state"] != state:
            raise Failure(f"at {listed}, unit {number} is {unit['state']}, not {state}")
        if state != "standing":
            continue
        if not unit["next"].startswith(all_events[event]["text"]):
            raise Failure(f"at {listed}, unit {number} is about to do {unit['next']}, not {all_events[event]['text']}")
        at = [thread for thread in unit["threads"] if thread["next"]]
        if len(at) != 1 or at[0]["thread"] != all_events[event]["thread"]:
            raise Failure(f"at {listed}, unit {number}: thread {at} is to make {all_events[event]}")
        check_registers(at[0], all_events[event])


def check_registers(thread, event):
    """When a unit is about to make a call, the registers hold the call's first argument."""
    if event["kind"] not in ("syscall", "entry"):
        return
    registers = thread["registers"]
    if "()" not in event["text"] and int(registers["rdi"], 16) != event["args"][0]:
        raise Failure(f"registers {registers} before {event}")
    if not thread["stack"]:
        raise Failure(f"no stack before {event}")


def check_ends(ctx, found, listed):
    wrong = [end for end in found["intervals"] if end["diverged"] or end["error"]
             or (not end["verified"] and (end["unit"], end["interval"]) in comparable(ctx))]
    standing = sum(unit["state"] == "standing" for unit in found["units"])
    if wrong or len(found["intervals"]) != standing:
        raise Failure(f"at {listed}, {standing} units stood; when they had gone on: {wrong or found['intervals']}")


def check_breakpoints(ctx, *options, places=PLACES):
    take_away_surroundings(ctx)
    events = Events(ctx)
    for listed in events.choose(ctx.test.name, places):
        found = ctx.json("replay", ctx.trace, "--break", f"{listed[0]}@{listed[1]}", "--verify", *options, cwd="/")
        check_places(found, events, events.causal(listed), listed)
        check_ends(ctx, found, listed)


PROGRAMS = ("barrier", "compute_messages", "compute_threads", "condvar", "exec_chain", "epoll_server", "fork_tree", "late_births", "pipe_pingpong",
            "pipe_writers", "preempted", "prefork_server", "rdtsc", "relay", "served_births", "served_messages", "served_signals", "signal_segv", "signal_nested",
            "spin_flag", "stress_threads", "tcp", "vfork_exec")


def register():
    for name in PROGRAMS:
        source = next((TESTS / "programs").glob(f"{name}.c*"))

        @test(f"breakpoints/{name}")
        def run(ctx, source=source):
            record(ctx, program_job(ctx, source))
            check_breakpoints(ctx)

    @test("breakpoints/stops")
    def stops(ctx):
        record(ctx, program_job(ctx, TESTS / "programs" / "relay.c"))
        check_breakpoints(ctx, "--interception", "stops")

    @test("breakpoints/jacobi", timeout_s=300)
    def jacobi(ctx):
        record(ctx, mpi.job(ctx.options, "jacobi", 200, 300))
        check_breakpoints(ctx)

    @test("breakpoints/total_order", timeout_s=300)
    def total_order(ctx):
        record(ctx, program_job(ctx, TESTS / "programs" / "compute_messages.c"))
        if not check_total_order(ctx):
            raise Failure("no replay set has receives of several intervals")

    @test("breakpoints/ordered", timeout_s=300)
    def ordered(ctx):
        record(ctx, program_job(ctx, TESTS / "programs" / "compute_messages.c"))
        if not check_ordered_breakpoints(ctx):
            raise Failure("nothing was received before any breakpoint")

    @test("breakpoints/ordered_mesh", timeout_s=300, slow=True)
    def ordered_mesh(ctx):
        record(ctx, socket_job(ctx, "mesh", (4, "800i")))
        check_ordered_breakpoints(ctx)

    for name, (arguments, _) in SOCKETS.items():
        @test(f"breakpoints/total_order_{name}", timeout_s=300)
        def run_total_order(ctx, name=name, arguments=arguments):
            record(ctx, socket_job(ctx, name, arguments))
            check_total_order(ctx)

    for name, (arguments, _) in MPI.items():
        @test(f"breakpoints/total_order_{name}", timeout_s=600, slow=True)
        def run_total_order_mpi(ctx, name=name, arguments=arguments):
            record(ctx, mpi.job(ctx.options, name, *arguments))
            check_total_order(ctx)

    for name, arguments, slow in (("mesh", (4, "800i"), True), ("bully", (4, 3), False), ("tester", (4, 500), False)):
        @test(f"breakpoints/{name}", timeout_s=300, slow=slow)
        def run_sockets(ctx, name=name, arguments=arguments):
            record(ctx, socket_job(ctx, name, arguments))
            check_breakpoints(ctx)


def check_ordered_breakpoints(ctx):
    """With --total-order, the receives until all units stand happen in the recorded order, and so do those after they continue."""
    take_away_surroundings(ctx)
    events, received = Events(ctx), 0
    starts = {(unit["unit"], i["interval"]): i["first_event"] for unit in units(ctx) for i in unit["intervals"]}
    for listed in events.choose(ctx.test.name, PLACES):
        place = ("--break", f"{listed[0]}@{listed[1]}", "--total-order")
        found = ctx.json("replay", ctx.trace, *place, cwd="/")
        check_places(found, events, events.causal(listed), listed)
        arrivals = found["arrivals"]
        if arrivals != sorted(set(arrivals)):
            raise Failure(f"at {listed}: receives happened in the order {arrivals}")
        own = {event["receive"]["arrival"] for unit in found["units"] if unit["state"] == "standing"
               for event in events.by_unit[unit["unit"]][starts[unit["unit"], unit["interval"]]:unit["event"]] if "receive" in event}
        if not own <= set(arrivals):
            raise Failure(f"at {listed}: {sorted(own - set(arrivals))} were not received")
        received += len(own)
        further = ctx.json("replay", ctx.trace, *place, "--verify", cwd="/")
        check_ends(ctx, further, listed)
        before, behind = further["arrivals"][:len(arrivals)], further["arrivals"][len(arrivals):]
        if before != arrivals or behind != sorted(set(behind)):
            raise Failure(f"at {listed}: receives happened in the order {before}, and then {behind}")
    return received


def check_total_order(ctx):
    """The receives of every replay set happen in the recorded order; those of the interval itself are among them."""
    take_away_surroundings(ctx)
    own, several = {}, 0
    for event in ctx.json("dump", ctx.trace):
        if "receive" in event:
            own.setdefault((event["unit"], event["interval"]), []).append(event["receive"]["arrival"])
    report = redrive_all(ctx, options=("--total-order",))
    for interval in report["intervals"]:
        arrivals, which = interval["arrivals"], (interval["unit"], interval["interval"])
        if arrivals != sorted(set(arrivals)):
            raise Failure(f"{which}: receives happened in the order {arrivals}")
        if not set(own.get(which, [])) <= set(arrivals):
            raise Failure(f"{which}: of its receives {own[which]} only {arrivals} happened")
        several += len(arrivals) > len(own.get(which, []))
    return several  # sets in which other intervals received too


def inspected(ctx, place, commands, *options, status=0):
    script = ctx.directory / "commands"
    script.write_text(commands)
    words = [str(word) for word in (ctx.options.redrive, "replay", ctx.trace, "--break", place, "--inspect", *options)]
    return ctx.expect_status(ctx.run("sh", "-c", 'in=$1; shift; exec "$@" < "$in"', "sh", script, *words), status)


@test("breakpoints/inspect")
def inspect(ctx):
    """The commands, one after the other, and their output; mistakes are reported and change nothing."""
    record(ctx, job_of(ctx, "relay", "40"))
    take_away_surroundings(ctx)
    events = Events(ctx)
    calls = [event for event in events.by_unit[1] if event["text"].startswith("sendto(")]
    first, later = calls[3], calls[9]
    outcome = inspected(ctx, f"1@{first['event']}",
                        f"regs 1\nstack 1.0\nx 1 {first['args'][1]:#x} 32\ngo 1@{later['event']}\nregs 1\nunits\ncontinue\nunits\n",
                        "--verify")
    lines = outcome.stdout.splitlines()
    registers = [line for line in lines if line.startswith("rip=")]
    ctx.expect(len(registers) == 2 and f"rsi={first['args'][1]:#x} " in registers[0], outcome, "shows other registers")
    ctx.expect(sum(line.startswith(f"{first['args'][1]:08x}: ") for line in lines) == 1, outcome, "does not show the memory")
    ctx.expect(any(line.startswith("#0 0x") for line in lines), outcome, "shows no stack")
    at_later = [line for line in lines if line.split()[:1] == ["1"] and str(later["event"]) in line.split()]
    ctx.expect(len(at_later) == 2, outcome, "does not stand twice where it was told to go")
    ctx.expect("ok" in lines[-1], outcome, "does not say how it ended")
    ctx.expect(not outcome.stderr, outcome, "complains")
    outcome = inspected(ctx, f"1@{first['event']}", "nonsense\nregs 99\nx 1 0 8\nx 1 nowhere 8\ngo 1@0\ngo 1@999999\nregs 1.7\nquit\nunits\n", status=1)
    ctx.expect(len(outcome.stderr.splitlines()) == 7 and all(line.startswith("redrive: ") for line in outcome.stderr.splitlines()),
               outcome, "does not have a line for each mistake")


@test("breakpoints/joined")
def joined(ctx):
    """A unit that others joined needs all of them from that point on; before it, only what they sent."""
    record(ctx, program_job(ctx, TESTS / "programs" / "memfd.c"))
    take_away_surroundings(ctx)
    survivor = next(unit for unit in units(ctx) if unit["joined"])
    other, first = survivor["joined"][0], survivor["intervals"][1]["first_event"]
    for event, state in ((first - 1, "not started"), (first, "ended"), (first + 1, "ended")):
        found = ctx.json("replay", ctx.trace, "--break", f"{survivor['unit']}@{event}", "--verify", cwd="/")
        if {unit["unit"]: unit["state"] for unit in found["units"]}[other] != state:
            raise Failure(f"before event {event}, where unit {other} joins at {first}: {found}")
        check_ends(ctx, found, (survivor["unit"], event))
    both = ("--break", f"{survivor['unit']}@{first}", "--break", f"{other}@3")
    expect_one_line(ctx, ctx.redrive("replay", ctx.trace, *both), 1, f"unit {other} joins unit {survivor['unit']} before event {first}")


@test("breakpoints/memory")
def memory(ctx):
    """The memory shown is the program's: what a call is about to send is what its receiver gets."""
    record(ctx, job_of(ctx, "relay", "40"))
    take_away_surroundings(ctx)
    event = [event for event in Events(ctx).by_unit[1] if event["text"].startswith("sendto(")][5]
    address, length = event["args"][1], event["result"]
    place = ("replay", ctx.trace, "--break", f"relay.1@{event['event']}")
    shown = ctx.json(*place, "--memory", f"relay.1:{address:#x}+{length}", "--memory", f"1:{address}+1")["memory"]
    text = ctx.expect_status(ctx.redrive(*place, "--memory", f"1:{address:#x}+{length}"), 0)
    words = bytes.fromhex(shown[0]["hex"])
    if [memory["unit"] for memory in shown] != [1, 1]:
        raise Failure(f"{shown}: units have numbers")
    if len(words) != length or shown[1]["hex"] != shown[0]["hex"][:2]:
        raise Failure(f"{shown} for {length} bytes")
    quoted = event["text"].split('"')
    if len(quoted) > 2 and not words.startswith(quoted[1].encode()[:8]):
        raise Failure(f"{shown}: not what {event['text']} sends")
    ctx.expect(f"{address:08x}: {words[:2].hex()}" in text.stdout, text, "does not dump the memory")
    expect_one_line(ctx, ctx.redrive(*place, "--memory", "1:0x10+8"), 1, "no memory at 0x10")
    outcome = ctx.redrive(*place, "--memory", "nosuch:0+1")
    ctx.expect(outcome.status == 1 and "nosuch" in outcome.stderr and not outcome.stdout, outcome, "replays before it looks for the unit")


@test("breakpoints/plan")
def plan(ctx):
    """`replay` stops at the breakpoint that `plan` describes; and the replay set that it prints contains it."""
    record(ctx, program_job(ctx, TESTS / "programs" / "compute_messages.c"))
    take_away_surroundings(ctx)
    events = Events(ctx)
    for listed in events.choose("plan", PLACES):
        place = ("--break", f"{listed[0]}@{listed[1]}")
        found = ctx.json("plan", ctx.trace, *place)
        check = {unit["unit"]: unit for unit in found["units"]}
        for unit, done in events.causal(listed).items():
            if check[unit]["event"] != done:
                raise Failure(f"at {listed}, unit {unit} is planned before {check[unit]['event']}, not before {done}")
        standing = [unit for unit in found["units"] if unit["state"] == "standing"]
        starts = {(unit["unit"], i["interval"]): i["first_event"] for unit in units(ctx) for i in unit["intervals"]}
        for unit in standing:
            if unit["event"] != starts[unit["unit"], unit["start"]] + unit["events"]:
                raise Failure(f"{unit['events']} events from interval {unit['start']} do not lead to {unit}")
        if [unit["unit"] for unit in standing] != [member["unit"] for member in found["replay_set"]][:len(standing)]:
            raise Failure(f"the replay set does not begin with the standing units: {found}")
        if not 0 <= found["critical_path_s"] <= found["work_s"] + 1e-9 or found["predicted_s"] <= 0:
            raise Failure(f"times: {found}")
        again = [word for unit in standing for word in ("--break", f"{unit['unit']}@{unit['event']}")]
        if {unit["unit"]: unit["event"] for unit in ctx.json("plan", ctx.trace, *again)["units"]} != events.causal(listed):
            raise Failure(f"the whole breakpoint of {listed}, given as a set, is another")
        ctx.expect_status(ctx.redrive("plan", ctx.trace, *place), 0)


@test("breakpoints/mistakes")
def mistakes(ctx):
    record(ctx, job_of(ctx, "relay", "40"))
    take_away_surroundings(ctx)
    events = Events(ctx)
    count = len(events.by_unit[1])
    receiver, sender = next((at, needs[0]) for at, needs in events.needs.items() if needs and at[1] > 0)
    for command in ("replay", "plan"):
        refused = [(1, "nobody", "nobody@3"), (1, "99", "99@3"), (1, f"no event {count}: it has 0 to {count - 1}", f"1@{count}"),
                   (2, "UNIT@EVENT", "1"), (2, "UNIT@EVENT", "1@soon"), (2, "UNIT@EVENT", "@3")]
        for status, words, place in refused:
            expect_one_line(ctx, ctx.redrive(command, ctx.trace, "--break", place), status, words)
        both = ("--break", f"{sender[0]}@{sender[1]}", "--break", f"{receiver[0]}@{receiver[1] + 1}")
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, *both), 1,
                        f"{sender[0]}@{sender[1]} happened before {receiver[0]}@{receiver[1] + 1}")
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "--break", "1@1", "--break", "1@2"), 1, "two events")
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "1:0", "--break", "1@1"), 2, "not a UNIT")
        expect_one_line(ctx, ctx.redrive(command, ctx.trace, "--break", "1@1", "--until", "3"), 2, "--until")
    for words in (("--all", "--break", "1@1"), ("--output", "--break", "1@1"), ("--once", "--break", "1@1"), ("--inspect", "1"), ("--memory", "1:0+1", "1"),
                  ("--break", "1@1", "--inspect", "--json"), ("--break", "1@1", "--memory", "1:0"), ("--break", "1@1", "--memory", "1:0+0")):
        expect_one_line(ctx, ctx.redrive("replay", ctx.trace, *words), 2)


register()


@test("breakpoints/many_births")
def many_births(ctx):
    """Processes that are born before the breakpoint, and needed only after it, are there when all goes on, however many they are."""
    record(ctx, Job(["./late_takers", "100"], prepare=copy_into(workload(ctx.options, "late_takers")), record_options=("--policy", "none")))
    lines = ctx.expect_status(ctx.redrive("dump", ctx.trace, "1:0"), 0).stdout.splitlines()
    at = next(line.split()[1] for line in lines if " getppid(" in line)
    for options in ((), ("--verify",)):
        ctx.expect_status(ctx.redrive("replay", ctx.trace, "--break", f"1@{at}", *options), 0)
