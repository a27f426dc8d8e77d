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


def elapsed(execution):
    """By step: when it would have happened if every unit had a processor of its own, messages took no time, and units waited for nothing else."""
    times, last = [], {}
    for step in execution.steps:
        at, time = last.get(step.unit, (0, 0))
        times.append(max(time + step.at - at, *(times[sender] for sender in step.senders), 0))
        last[step.unit] = (step.at, times[-1])
    return times


class Deciding:
    """Walks over an execution with a policy, and with a checkpoint of a unit after every `period` of its CPU time; with `real`, of all units at every
    multiple of it of the time that elapses, except of those that have done nothing since their last one. Without a policy, as it was recorded."""

    def __init__(self, execution, policy=None, period=None, real=False):
        self.execution, self.policy, self.period, self.real = execution, policy, period, real
        self.clock = elapsed(execution) if real else [step.at for step in execution.steps]
        self.now, self.due, self.decided = {}, {}, Decided([], [], [])
        self.stepped = set()            # units that have done something since their last checkpoint
        self.last, self.began = {}, {}  # of each unit: CPU time and clock at its last step; the clock at its last checkpoint

    def run(self):
        for index, step in enumerate(self.execution.steps):
            self.begin_due(step, self.clock[index])
            if step.what == BEGIN or (step.what == CHECKPOINT and not self.policy):
                self.begin(step.unit, step.at, self.clock[index], anew=step.what == BEGIN)
            self.decided.kept.append(self.decide(index, step))
            self.decided.interval_of.append(self.now[step.unit])
            self.last[step.unit] = (step.at, self.clock[index])
            self.stepped.add(step.unit)
            if step.what == END:
                self.decided.intervals[self.now[step.unit]].end = step.at
        if self.policy:
            self.policy.settle(self.decided.kept)
        return self.decided

    def begin_due(self, step, clock):
        """Checkpoints before the step: since its last one the unit has computed, and then waited."""
        while step.unit in self.due and self.due[step.unit] < clock:
            at, before = self.last[step.unit]
            place = min(at + self.due[step.unit] - before, step.at)
            if step.unit in self.stepped or place > self.decided.intervals[self.now[step.unit]].start:
                self.begin(step.unit, place, self.due[step.unit])
            else:
                self.begin_again(step.unit, self.due[step.unit])  # nothing has happened since

    def begin(self, unit, at, clock, anew=False):
        """`anew`: with a new program, whose checkpoints are those of all again."""
        intervals = self.decided.intervals
        if unit in self.now:
            intervals[self.now[unit]].end = at
        self.now[unit] = len(intervals)
        intervals.append(Interval(unit, at, at))
        if self.policy:
            self.begin_again(unit, clock)
            if self.real and anew:
                self.due[unit] = (clock // self.period + 1) * self.period

    def begin_again(self, unit, clock):
        self.stepped.discard(unit)
        self.began[unit] = clock
        self.due[unit] = clock + self.period
        self.policy.on_checkpoint(unit)

    def decide(self, index, step):
        if not self.policy:
            return step.logged
        if step.what == SEND:
            self.policy.on_send(index, step.unit, *self.times(index, step))
        if not step.senders:
            return False
        if self.policy.must_checkpoint(step.unit, step.senders):
            if step.what == BEGIN:
                self.policy.on_checkpoint(step.unit)  # nothing has happened in it
            else:
                self.begin(step.unit, step.at, self.clock[index])
        return self.policy.on_receive(index, step.unit, *self.times(index, step), self.due[step.unit] - self.clock[index], step.senders)

    def times(self, index, step):
        """Since the unit's checkpoint: CPU time, and time by the clock."""
        return step.at - self.decided.intervals[self.now[step.unit]].start, self.clock[index] - self.began[step.unit]


class CriticalPath:
    """Netzer, Subramanian and Xu, algorithm 1."""

    def __init__(self, limit):
        self.limit, self.path, self.tags = limit, {}, {}

    def on_checkpoint(self, unit):
        self.path[unit] = (0, 0)  # the longest path to the last event, and when that was

    def advance(self, unit, at):
        path, before = self.path[unit]
        self.path[unit] = (path + at - before, at)
        return self.path[unit][0]

    def on_send(self, index, unit, at, since):
        self.tags[index] = self.advance(unit, at)

    def must_checkpoint(self, unit, senders):
        return False

    def on_receive(self, index, unit, at, since, remaining, senders):
        path, tag = self.advance(unit, at), max(self.tags[sender] for sender in senders)
        if tag + remaining > self.limit:
            return True
        self.path[unit] = (max(path, tag), at)
        return False

    def settle(self, kept):
        pass


class Mrt:
    """Thoai and Volkert's three rules; each process has a checkpoint after every T, and sooner if a message comes from a later index."""

    def __init__(self):
        self.index, self.forced = {}, {}
        self.clock = {}                                   # of each unit: the latest index that it knows of each unit's checkpoints
        self.checkpoints = collections.defaultdict(list)  # of each unit: (index, clock)
        self.tags, self.waiting = {}, []

    def on_checkpoint(self, unit):
        self.index[unit] = max(self.index[unit] + 1, self.forced.pop(unit, 0)) if unit in self.index else 0
        self.clock[unit] = {**self.clock.get(unit, {}), unit: self.index[unit]}
        self.checkpoints[unit].append((self.index[unit], self.clock[unit]))

    def on_send(self, index, unit, at, since):
        self.tags[index] = (unit, self.index[unit], since, self.clock[unit])

    def must_checkpoint(self, unit, senders):
        latest = max(self.tags[sender][1] for sender in senders)
        if latest > self.index[unit]:
            self.forced[unit] = latest
        return latest > self.index[unit]

    def on_receive(self, index, unit, at, since, remaining, senders):
        tags = [self.tags[sender] for sender in senders]
        for _, _, _, clock in tags:
            if any(known > self.clock[unit].get(other, -1) for other, known in clock.items()):
                units = {**self.clock[unit], **clock}
                self.clock[unit] = {other: max(self.clock[unit].get(other, -1), clock.get(other, -1)) for other in units}
        if any(sent < self.index[unit] for _, sent, _, _ in tags):
            return True
        if max(sent_since for _, _, sent_since, _ in tags) > since:
            return True
        self.waiting.append((index, unit, self.index[unit], {sender for sender, *_ in tags}))
        return False

    def settle(self, kept):
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
        self.waits = [() if kept else step.senders for step, kept in zip(execution.steps, decided.kept)]
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

    def random(self, count, seed=1):
        """Arbitrary consistent cuts: each unit's place is up to a random share of its steps away from a random moment, so that some cuts are within a
        moment, and others go from one end of the execution to the other; then each is closed under happened-before."""
        source, out = random.Random(seed), []
        for _ in range(count):
            moment, spread, breakpoint = source.random(), source.random(), collections.Counter()
            for steps in self.own.values():
                place = (moment + source.uniform(-spread, spread)) * len(steps)
                if place < 0:
                    continue  # the unit has done nothing, unless others need it
                for unit, reached in self.past[steps[min(int(place), len(steps) - 1)]].items():
                    breakpoint[unit] = max(breakpoint[unit], reached)
            if breakpoint:
                out.append(dict(breakpoint))
        return out

    def spread(self, breakpoint):
        """The largest difference between the shares of their steps that two units have done."""
        shares = [breakpoint.get(unit, 0) / len(steps) for unit, steps in self.own.items()]
        return max(shares) - min(shares)

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
        window, origin, before, now = [], {}, {}, {}
        for unit, first in line.items():
            end = max(breakpoint.get(unit, 0) for breakpoint in breakpoints)
            begin = bisect.bisect_left(self.own[unit], first, key=self.decided.interval_of.__getitem__)
            window += self.own[unit][begin:end]
            origin[unit] = before[unit] = self.decided.intervals[first].start
            now[unit] = 0
        window.sort()
        steps, waits, times = self.execution.steps, self.waits, {}
        for index in window:
            step = steps[index]
            unit, at = step.unit, step.at
            time = now[unit] + at - before[unit]
            for sender in waits[index]:
                time = max(time, times.get(sender, 0))
            times[index] = now[unit] = time
            before[unit] = at
        return [self.cost(breakpoint, origin, times) for breakpoint in breakpoints]

    def cost(self, breakpoint, origin, times):
        last = [self.own[unit][count - 1] for unit, count in breakpoint.items() if count]
        distance = max(self.execution.steps[index].at - origin[self.execution.steps[index].unit] for index in last)
        return distance, max(times[index] for index in last)
