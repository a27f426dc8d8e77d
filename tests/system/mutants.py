"""Group mutants: recordings that say something other than what happened, in well-formed records with correct checksums (tests/fault/trace_mutate.cc).
Every command that reads them ends soon, with a documented status and without much memory; nothing outside is harmed and nothing is left running. A
failure prints the command that makes the same mutant again."""
import dataclasses
import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import time

from harness import Failure, describe, kill_session, session_members, test
from programs import job_of
from redriving import record, take_away_surroundings

OFTEN = ("--checkpoint-period", "20ms")
# With virtual checkpoints alone each interval is executed from the start: few, for that takes long.
SELDOM_AND_VIRTUAL = ("--virtual", "--checkpoint-period", "250ms")
# The recordings: programs, and options of the recorder.
RECORDED = {
    "pipes": ("relay", (*OFTEN, "--policy", "none")),
    "logged": ("relay", (*OFTEN, "--policy", "all")),
    "threads": ("stress_threads", OFTEN),
    "signals": ("signal_nested", OFTEN),
    "shared": ("shared_memory", OFTEN),
    "forks": ("fork_tree", OFTEN),
    "programs": ("exec_chain", OFTEN),
    "sockets": ("unix_datagram", (*OFTEN, "--policy", "none")),
    "files": ("mapped_files", OFTEN),
    "objects": ("shared_between", OFTEN),
    "segments": ("segments", OFTEN),
    "virtual": ("compute_messages", SELDOM_AND_VIRTUAL),
    "prepared": ("compute_messages", ("--virtual", *OFTEN)),
}
# What reads a mutant, {} being the trace. `prepare` is last: it adds to the trace.
READERS = [("check", "{}"), ("ls", "{}"), ("ls", "--checkpoints", "{}"), ("stats", "{}"), ("dump", "{}"), ("plan", "{}", "1:0"), ("evaluate", "{}"),
           ("plan", "{}", "--break", "1@5"), ("replay", "--all", "{}"), ("replay", "--all", "--once", "--verify", "{}"),
           ("replay", "--all", "--verify", "--interception", "stops", "{}"), ("replay", "--all", "--once", "--total-order", "{}"),
           ("replay", "--break", "1@5", "{}"), ("checkpoint", "-o", "{}.cores", "{}", "1:0"), ("checkpoint", "-o", "{}.cores", "{}", "1:1"),
           ("checkpoint", "-o", "{}.cores", "{}", "--break", "1@5"), ("prepare", "{}")]
STATUSES = (0, 1, 3, 4, 5)  # redrive(1), "EXIT STATUS"; 2 would be our own mistake
# What only a bug in redrive says: a failed ASSERT, or the text of a C++ exception.
BUG = re.compile(r"\bbug\b|ASSERT\(|terminate called|std::|::at\b|_M_|\bbad_|\bbad (optional|variant)|basic_string|stou?l|max_size|Sanitizer|runtime error")
MOST_KIB = 2 << 20
# A replay lets a thread compute for 10 s, and 100 times as long as it did when recorded, before it calls that a divergence.
MOST_S, MOST_REPLAY_S = 10, 60
LEFT_S = 5  # for what a killed redrive leaves to end


@dataclasses.dataclass
class Ended:
    status: int
    text: str
    seconds: float
    kib: int
    left: list


def run_measured(ctx, words, timeout_s):
    """A command in a session of its own: how it ended, and what it left running."""
    with tempfile.TemporaryFile("w+", dir=ctx.directory, errors="replace") as said:
        start = time.monotonic()
        process = subprocess.Popen([str(word) for word in words], cwd=ctx.work, env=ctx.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
        descriptor = os.pidfd_open(process.pid)
        try:
            in_time = select.select([descriptor], [], [], timeout_s * ctx.options.timeout_factor)[0]
            seconds = time.monotonic() - start
            if not in_time:
                kill_session(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            os.close(descriptor)
        limit = time.monotonic() + LEFT_S
        while (left := session_members(process.pid)) and time.monotonic() < limit:
            time.sleep(0.01)
        kill_session(process.pid)
        said.seek(0)
        return Ended(process.returncode if in_time else None, said.read(), seconds, usage.ru_maxrss, left)


def what_is_wrong(ended, readable=STATUSES):
    if ended.status is None:
        return f"still runs after {ended.seconds:.0f} s"
    if ended.status not in readable:
        return f"ended with {ended.status}"
    if found := BUG.search(ended.text):
        return f"says '{found[0]}'"
    if ended.status not in (0, 5) and not ended.text.strip():  # that it took too long is in the table
        return f"ended with {ended.status} and does not say why"
    if ended.kib > MOST_KIB:
        return f"needed {ended.kib >> 10} MiB"
    if ended.left:
        return f"left processes {[pid for pid, _ in ended.left]}"
    return None


class Recordings:
    def __init__(self, ctx):
        self.ctx = ctx
        self.victim = ctx.directory / "victim"
        self.victim.write_text("kept")
        self.bystander = subprocess.Popen(["sleep", "86400"])

    def make(self, name):
        program, options = RECORDED[name]
        trace = self.ctx.traces / name
        record(self.ctx, job_of(self.ctx, program, record_options=options), trace=trace)
        take_away_surroundings(self.ctx)
        self.ctx.fresh_work()
        if name == "prepared":
            self.ctx.expect_status(self.ctx.redrive("prepare", "--bound", "1s", trace), 0)
        return trace

    def try_mutant(self, name, seed, readers):
        """Returns how many commands have read it."""
        ctx, mutant = self.ctx, self.ctx.traces / "mutant"
        shutil.rmtree(mutant, ignore_errors=True)
        making = [ctx.options.build / "trace_mutate", ctx.traces / name, mutant, seed]
        ctx.expect_status(ctx.run(*making), 0)
        for reader in readers:
            shutil.rmtree(f"{mutant}.cores", ignore_errors=True)
            words = [ctx.options.redrive, *(word.replace("{}", str(mutant)) for word in reader)]
            ended = run_measured(ctx, words, MOST_REPLAY_S if reader[0] in ("replay", "checkpoint", "prepare") else MOST_S)
            wrong = what_is_wrong(ended) or self.harm()
            if wrong:
                again = f"{shlex.join(map(str, making))} && {shlex.join(map(str, words))}"
                raise Failure(describe(f"mutant {seed} of {name}: {reader[0]} {wrong}", again + " (there after a run with --keep)",
                                       "", ended.text))
        return len(readers)

    def harm(self):
        if not self.victim.exists() or self.victim.read_text() != "kept":
            return "has changed a file"
        if any(self.ctx.work.iterdir()):
            return "has made a file"
        if self.bystander.poll() is not None:
            return "has ended another process"
        return None

    def close(self):
        self.bystander.kill()
        self.bystander.wait()


def try_mutants(ctx, names, seeds, readers_of):
    recordings = Recordings(ctx)
    failures, commands = [], 0
    try:
        for name in names:
            recordings.make(name)
            for seed in seeds:
                try:
                    commands += recordings.try_mutant(name, seed, readers_of(seed))
                except Failure as failure:
                    failures.append(str(failure))
    finally:
        recordings.close()
    if failures:
        raise Failure(f"{len(failures)} of {commands} commands failed\n" + "\n".join(failures))


def some_readers(seed):
    """Each mutant is checked, and read in some of the other ways."""
    others = READERS[1:]
    return [READERS[0], *(others[(seed * 5 + i) % len(others)] for i in range(2))]


@test("mutants/some")
def some(ctx):
    try_mutants(ctx, ["pipes", "signals", "shared", "forks"], range(1, 5), some_readers)


def register(name):
    @test(f"mutants/{name}", timeout_s=120, slow=True)
    def many(ctx):
        """1,200 replays of each recording, and other commands that read it."""
        first = int(os.environ.get("REDRIVE_SEED", "1"))
        try_mutants(ctx, [name], range(first, first + int(os.environ.get("REDRIVE_MUTANTS", "200"))), lambda seed: READERS)


for recorded in RECORDED:
    register(recorded)
