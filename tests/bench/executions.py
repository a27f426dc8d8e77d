"""An independent look at a recorded execution: read from its catalog, decided and measured by the papers' definitions alone.

Shares no code with redrive, and has the papers' rules and nothing else, so that what `redrive evaluate` says can be held against it. An execution is its units' beginnings, sends and
receives, in an order in which they may have happened; times are CPU time of the unit, in nanoseconds. `Decided` says where intervals begin and
which payloads are kept: as recorded, or by one of the policies here, with a checkpoint after every T."""
import bisect
import collections
import dataclasses
import random
import sqlite3

BEGIN, SEND, RECEIVE, CHECKPOINT, END = "begin", "send", "receive", "checkpoint", "end"


@dataclasses.dataclass
class Step:
    what: str
    unit: int
    event: int
    at: int                # since the unit's beginning
    senders: tuple = ()    # of a receive, or of a fork's child: (unit, event) each; later indexes of steps
    message: bool = False  # from another unit
    logged: bool = False   # as recorded
    arrival: int = 0       # of a receive: its place among all


@dataclasses.dataclass
class Execution:
    steps: list
    end: dict              # of each unit: when it ended

    def units(self):
        return list(self.end)


@dataclasses.dataclass
class Interval:
    unit: int
    start: int
    end: int


@dataclasses.dataclass
class Decided:
    intervals: list
    interval_of: list      # by step
    kept: list             # by step


def read(directory):
    """Of the trace in the directory; `redrive catalog` must have made its catalog."""
    with sqlite3.connect(f"file:{directory}/catalog.sqlite?mode=ro", uri=True) as catalog:
        intervals = catalog.execute("SELECT unit, interval, checkpoint_kind, has_image, first_event, coalesce(cpu_s, 0) FROM intervals "
                                    "ORDER BY unit, interval").fetchall()
        units = catalog.execute("SELECT unit, parent_unit, parent_event, parent_at_ns FROM units").fetchall()
        messages = catalog.execute("SELECT unit, event, interval, at_ns, sender_unit, sender_event, sender_at_ns, logged, arrival FROM messages "
                                   "ORDER BY unit, event, part").fetchall()
    parents = {unit: (parent, event) for unit, parent, event, _ in units}
    starts, end, by_unit = collections.defaultdict(list), collections.Counter(), collections.defaultdict(list)
    for unit, _, kind, has_image, first, cpu_s in intervals:
        starts[unit].append((first, end[unit]))
        senders = (parents[unit],) if kind == "fork" else ()
        what = CHECKPOINT if kind == "image" else BEGIN
        by_unit[unit].append(Step(what, unit, first, end[unit], senders, logged=bool(has_image)))
        end[unit] += round(cpu_s * 1e9)
    add_messages(by_unit, starts, messages)
    for unit, parent, event, at in units:
        if at is not None and by_unit[unit] and by_unit[unit][0].senders:
            place = bisect.bisect_right(starts[parent], event, key=lambda start: start[0]) - 1
            by_unit[parent].append(Step(SEND, parent, event, starts[parent][place][1] + at))
    for unit, steps in by_unit.items():
        # A checkpoint comes before its interval's first event; what an event sent may depend on what it received.
        steps.sort(key=lambda step: (step.event, (BEGIN, CHECKPOINT, RECEIVE, SEND).index(step.what)))
        end[unit] = max(end[unit], steps[-1].at)
        steps.append(Step(END, unit, steps[-1].event + 1, end[unit]))
    return Execution(in_causal_order(by_unit), dict(end))


def add_messages(by_unit, starts, messages):
    receives, sends = {}, {}
    for unit, event, interval, at, sender_unit, sender_event, sender_at, logged, arrival in messages:
        if sender_at is None:
            continue
        step = receives.setdefault((unit, event), Step(RECEIVE, unit, event, starts[unit][interval][1] + at, logged=bool(logged), arrival=arrival))
        step.senders += ((sender_unit, sender_event),)
        step.message |= sender_unit != unit
        started = starts[sender_unit]
        place = bisect.bisect_right(started, sender_event, key=lambda start: start[0]) - 1
        sends[sender_unit, sender_event] = Step(SEND, sender_unit, sender_event, started[place][1] + sender_at)
    for step in [*receives.values(), *sends.values()]:
        by_unit[step.unit].append(step)


def in_causal_order(by_unit):
    """By arrival, every send before its receives; senders become indexes. A receive whose send is not there is left out."""
    where = {(step.unit, step.event): place for steps in by_unit.values() for place, step in enumerate(steps) if step.what == SEND}
    arrivals = sorted((step.arrival, unit, place) for unit, steps in by_unit.items() for place, step in enumerate(steps) if step.arrival)
    goals = [(unit, place) for _, unit, place in arrivals] + [(unit, len(steps) - 1) for unit, steps in by_unit.items()]
    order, index_of, done = [], {}, collections.Counter()
    for goal in goals:
        todo = [goal]
        while todo:
            unit, place = todo[-1]
            if done[unit] > place:
                todo.pop()
                continue
            step = by_unit[unit][done[unit]]
            missing = [sender for sender in step.senders if sender in where and sender not in index_of]
            if missing:
                todo.append((missing[0][0], where[missing[0]]))
                continue
            done[unit] += 1
            wanted = len(step.senders)
            step.senders = tuple(sorted({index_of[sender] for sender in step.senders if sender in where}))
            if step.what == RECEIVE and len(step.senders) == 0 < wanted:
                continue
            if step.what == SEND:
                index_of[step.unit, step.event] = len(order)
            order.append(step)
    return order


def as_recorded(execution):
    return Deciding(execution).run()


class Deciding:
    """Walks over an execution with a policy and a checkpoint every `period`; or with checkpoints of all units at once, which part the CPU time
    of all into `parts`; without either, as it was recorded."""

    def __init__(self, execution, policy=None, period=None, parts=None):
        self.execution, self.policy, self.period, self.parts = execution, policy, period, parts
        self.now, self.due, self.decided = {}, {}, Decided([], [], [])
        self.reached, self.spent = {}, 0  # each unit's time at its last step; the sum

    def run(self):
        for index, step in enumerate(self.execution.steps):
            self.begin_due(step.unit, step.at)
            if self.period and step.unit in self.now and step.what != END and self.policy.wants_checkpoint(step.unit):
                self.begin(step.unit, step.at)
            if self.parts:
                self.begin_all(step)
            if step.what == BEGIN or (step.what == CHECKPOINT and not self.policy):
                self.begin(step.unit, step.at)
            self.decided.kept.append(self.decide(index, step))
            self.decided.interval_of.append(self.now[step.unit])
            if step.what == END:
                self.decided.intervals[self.now[step.unit]].end = step.at
        if self.policy:
            self.policy.settle(self.decided.kept, {unit: end - self.decided.intervals[self.now[unit]].start for unit, end in self.execution.end.items()})
        return self.decided

    def begin_due(self, unit, at):
        while unit in self.due:
            due = min(self.due[unit], self.decided.intervals[self.now[unit]].start + self.policy.checkpoint_by(unit))
            if due >= at:
                break
            self.begin(unit, due)

    def begin_all(self, step):
        """If a common moment has come before the step."""
        share, before = sum(self.execution.end.values()) / self.parts, self.spent
        self.spent += step.at - self.reached.get(step.unit, 0)
        self.reached[step.unit] = step.at
        if self.spent // share > before // share:
            for unit in self.now:
                self.begin(unit, self.reached[unit])

    def begin(self, unit, at):
        intervals = self.decided.intervals
        ended = 0
        if unit in self.now:
            intervals[self.now[unit]].end = at
            ended = at - intervals[self.now[unit]].start
        self.now[unit] = len(intervals)
        intervals.append(Interval(unit, at, at))
        if self.policy:
            if self.period:
                self.due[unit] = at + self.period
            self.policy.on_checkpoint(unit, ended)

    def decide(self, index, step):
        if not self.policy:
            return step.logged
        start = self.decided.intervals[self.now[step.unit]].start
        if step.what == SEND:
            self.policy.on_send(index, step.unit, step.at - start)
        if not step.senders:
            return False
        if self.policy.must_checkpoint(step.unit, step.senders):
            if step.what == BEGIN:
                self.policy.on_checkpoint(step.unit, 0)  # nothing has happened since
            else:
                self.begin(step.unit, step.at)
                start = step.at
        return self.policy.on_receive(index, step.unit, step.at - start, step.senders)


class CriticalPath:
    """Netzer, Subramanian and Xu, algorithm 1."""

    def __init__(self, limit, period):
        self.limit, self.period, self.path, self.tags = limit, period, {}, {}

    def on_checkpoint(self, unit, ended):
        self.path[unit] = (0, 0)  # the longest path to the last event, and when that was

    def advance(self, unit, at):
        path, before = self.path[unit]
        self.path[unit] = (path + at - before, at)
        return self.path[unit][0]

    def on_send(self, index, unit, at):
        self.tags[index] = self.advance(unit, at)

    def must_checkpoint(self, unit, senders):
        return False

    def on_receive(self, index, unit, at, senders):
        path, tag = self.advance(unit, at), max(self.tags[sender] for sender in senders)
        if tag + max(0, self.period - at) > self.limit:
            return True
        self.path[unit] = (max(path, tag), at)
        return False

    def wants_checkpoint(self, unit):
        return False

    def checkpoint_by(self, unit):
        return self.period

    def settle(self, kept, ended):
        pass


class Mrt:
    """Thoai and Volkert's three rules; each process has a checkpoint after every T of its own, and sooner if a message comes from a later index.
    Without the third: for processes that all take their checkpoints at moments of one clock, since a message takes time."""

    def __init__(self, rule_3=True):
        self.rule_3, self.index, self.forced = rule_3, {}, {}
        self.clock = {}                                   # of each unit: the latest index that it knows of each unit's checkpoints
        self.checkpoints = collections.defaultdict(list)  # of each unit: (index, clock)
        self.tags, self.waiting = {}, []

    def on_checkpoint(self, unit, ended):
        self.index[unit] = max(self.index[unit] + 1, self.forced.pop(unit, 0)) if unit in self.index else 0
        self.clock[unit] = {**self.clock.get(unit, {}), unit: self.index[unit]}
        self.checkpoints[unit].append((self.index[unit], self.clock[unit]))

    def wants_checkpoint(self, unit):
        return False

    def checkpoint_by(self, unit):
        return float("inf")

    def on_send(self, index, unit, at):
        self.tags[index] = (unit, self.index[unit], at, self.clock[unit])

    def must_checkpoint(self, unit, senders):
        latest = max(self.tags[sender][1] for sender in senders)
        if latest > self.index[unit]:
            self.forced[unit] = latest
        return latest > self.index[unit]

    def on_receive(self, index, unit, at, senders):
        tags = [self.tags[sender] for sender in senders]
        for _, _, _, clock in tags:
            if any(known > self.clock[unit].get(other, -1) for other, known in clock.items()):
                units = {**self.clock[unit], **clock}
                self.clock[unit] = {other: max(self.clock[unit].get(other, -1), clock.get(other, -1)) for other in units}
        if any(sent < self.index[unit] for _, sent, _, _ in tags):
            return True
        if self.rule_3 and max(since for _, _, since, _ in tags) > at:
            return True
        self.waiting.append((index, unit, self.index[unit], {sender for sender, *_ in tags}))
        return False

    def settle(self, kept, ended):
        """Rule 2 of all that the others have not kept: now that all is known."""
        known = {}
        for index, unit, interval, senders in self.waiting:
            i = interval + 1
            if i not in known:
                known[i] = self.known_by_next(i)
            kept[index] = not all(sender == unit or (sender in known[i][unit] and known[i][sender] - {unit, sender} <= known[i][unit])
                                  for sender in senders)

    def known_by_next(self, i):
        """Of each unit p, the units s with C(p,i) -> C(s,i+1), or that have no such checkpoint: they never roll back so far."""
        known = collections.defaultdict(set)
        for unit, checkpoints in self.checkpoints.items():
            clock = next((clock for index, clock in checkpoints if index > i), None)
            for other in self.checkpoints:
                if clock is None or clock.get(other, -1) >= i:
                    known[other].add(unit)
        return known


def critical_paths(execution, decided):
    """The longest path to the end of each interval."""
    path = [0] * len(decided.intervals)  # to the last step so far
    before = [interval.start for interval in decided.intervals]
    sent = {}
    for index, step in enumerate(execution.steps):
        interval = decided.interval_of[index]
        path[interval] += step.at - before[interval]
        before[interval] = step.at
        if step.senders and not decided.kept[index]:
            path[interval] = max(path[interval], *(sent[sender] for sender in step.senders))
        if step.what == SEND:
            sent[index] = path[interval]
    return [path[i] + interval.end - before[i] for i, interval in enumerate(decided.intervals)]


class Breakpoints:
    """Random distributed breakpoints, each with its latest recovery line: how far away that is, and how long a replay from it takes with a
    processor for each unit. A breakpoint says how many steps of each unit have happened, nothing of it before anything that has not."""

    def __init__(self, execution, decided):
        self.execution, self.decided = execution, decided
        self.own = {unit: [] for unit in execution.units()}  # indexes of its steps
        self.position = []                                   # by step: its place in that list
        for index, step in enumerate(execution.steps):
            self.position.append(len(self.own[step.unit]))
            if step.what != END:
                self.own[step.unit].append(index)
        self.past = self.happened_before()
        self.needs = collections.defaultdict(dict)           # of each interval: intervals it needs, from which step on
        for index, step in enumerate(execution.steps):
            if step.senders and not decided.kept[index]:
                for sender in step.senders:
                    self.needs[decided.interval_of[index]].setdefault(decided.interval_of[sender], self.position[index])

    def happened_before(self):
        """By step: how many steps of each unit have happened after it, itself included."""
        past, last = [], {}
        for index, step in enumerate(self.execution.steps):
            clock = dict(last.get(step.unit, {}))
            for sender in step.senders:
                for unit, count in past[sender].items():
                    if count > clock.get(unit, 0):
                        clock[unit] = count
            clock[step.unit] = self.position[index] + 1
            past.append(clock)
            last[step.unit] = clock
        return past

    def random(self, count, seed=1, spread=0.05):
        """Each at a random moment, its units up to `spread` of their steps away from that."""
        source, out = random.Random(seed), []
        for _ in range(count):
            moment, breakpoint = source.random(), collections.Counter()
            for steps in self.own.values():
                place = (moment + source.uniform(-spread, spread)) * len(steps)
                for unit, reached in self.past[steps[min(max(int(place), 0), len(steps) - 1)]].items():
                    breakpoint[unit] = max(breakpoint[unit], reached)
            out.append(dict(breakpoint))
        return out

    def recovery_line(self, breakpoint):
        """Of each unit, the first of its intervals that is executed again."""
        latest = {unit: self.decided.interval_of[self.own[unit][count - 1]] for unit, count in breakpoint.items()}
        line, todo = dict(latest), list(latest.values())
        while todo:
            wanting = todo.pop()
            unit = self.decided.intervals[wanting].unit
            for needed, place in self.needs[wanting].items():
                sender = self.decided.intervals[needed].unit
                if place < breakpoint[unit] and needed < line[sender]:
                    todo += [i for i in range(needed, line[sender]) if self.decided.intervals[i].unit == sender]
                    line[sender] = needed
        return line

    def costs(self, breakpoints):
        """(replay distance, replay time) of each."""
        by_line, out = collections.defaultdict(list), {}
        for number, breakpoint in enumerate(breakpoints):
            by_line[tuple(sorted(self.recovery_line(breakpoint).items()))].append(number)
        for line, numbers in by_line.items():
            for number, cost in zip(numbers, self.costs_from(dict(line), [breakpoints[number] for number in numbers])):
                out[number] = cost
        return [out[number] for number in range(len(breakpoints))]

    def costs_from(self, line, breakpoints):
        """One pass serves all breakpoints with the same line: a replay's times do not depend on where it ends."""
        steps, interval_of, kept = self.execution.steps, self.decided.interval_of, self.decided.kept
        window, origin, reached, sent = [], {}, {}, {}
        for unit, first in line.items():
            end = max(breakpoint.get(unit, 0) for breakpoint in breakpoints)
            begin = bisect.bisect_left(self.own[unit], first, key=interval_of.__getitem__)
            window += self.own[unit][begin:end]
            origin[unit] = self.decided.intervals[first].start
            reached[unit] = (0, origin[unit])
        times = {}
        for index in sorted(window):
            step = steps[index]
            time, before = reached[step.unit]
            time += step.at - before
            if step.senders and not kept[index]:
                time = max(time, *(sent.get(sender, 0) for sender in step.senders))
            if step.what == SEND:
                sent[index] = time
            times[index] = time
            reached[step.unit] = (time, step.at)
        return [self.cost(breakpoint, origin, times) for breakpoint in breakpoints]

    def cost(self, breakpoint, origin, times):
        last = [self.own[unit][count - 1] for unit, count in breakpoint.items() if count]
        distance = max(self.execution.steps[index].at - origin[self.execution.steps[index].unit] for index in last)
        return distance, max(times[index] for index in last)
