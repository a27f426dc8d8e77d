"""Group terminals: interactive programs in a terminal look and behave under record as they do without it, and what was recorded replays.

tmux is the terminal: what a program has drawn is read from its screen, so it does not matter in which pieces it was written."""
import contextlib
import getpass
import os
import shlex
import subprocess
import time

from harness import Failure, needs, test
from redriving import check_trace, redrive_all, take_away_surroundings

COLUMNS, ROWS = 80, 24
PROMPT = getpass.getuser()  # Debian's begins with it


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, ctx, command, name):
        self.ctx, self.name = ctx, f"redrive-test-{os.getpid()}-{name}"
        env = {key: value for key, value in ctx.env.items() if not key.startswith("TMUX")}
        self.env = {**env, "LANG": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(ctx.work), "sleep 1000000")
        self.tmux("set-option", "-g", "remain-on-exit", "on")
        self.tmux("set-option", "-g", "status", "off")
        self.tmux("respawn-pane", "-k", "-c", str(ctx.work), "exec " + " ".join(shlex.quote(str(word)) for word in command))

    def tmux(self, *words):
        asked = subprocess.run(["tmux", "-L", self.name, *words], env=self.env, capture_output=True, text=True, timeout=self.ctx.timeout_s, check=False)
        if asked.returncode != 0:
            raise Failure(f"tmux {' '.join(words)}: {asked.stderr}")
        return asked.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def wait_for(self, what, condition):
        patience_s = self.ctx.timeout_s / 4  # less than the test has
        limit = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > limit:
                raise Failure(f"{self.name}: {what}: not within {patience_s:g} s; the screen is\n{self.screen()}")
            time.sleep(0.02)

    def settled(self):
        """The screen, once it stays as it is."""
        seen, since = self.screen(), time.monotonic()
        limit = since + self.ctx.timeout_s
        while time.monotonic() < min(since + 0.5, limit):
            time.sleep(0.05)
            if (now := self.screen()) != seen:
                seen, since = now, time.monotonic()
        return seen

    def close(self):
        with contextlib.suppress(Failure):
            self.tmux("kill-server")


def play(ctx, command, steps, name):
    """The screens at the steps that ask for one, and the status at the end. A step: a text to wait for (with !, until it is gone), and what is done then: keys that are typed,
    a `look` at the screen, once it stays as it is (or only `settle`), or a new size."""
    screens = []
    status = ctx.work / "status"  # tmux does not always learn it
    with contextlib.closing(Terminal(ctx, ("sh", "-c", 'trap : INT QUIT; "$@"; echo $? > "$0".new; mv "$0".new "$0"', status, *command), name)) as terminal:
        for text, *actions in steps:
            gone = text.startswith("!")
            terminal.wait_for(repr(text), lambda text=text.removeprefix("!"), gone=gone: (text in terminal.screen()) != gone)
            for action in actions:
                if action == "look":
                    screens.append(terminal.settled())
                elif action == "settle":
                    terminal.settled()
                elif isinstance(action, tuple):
                    terminal.tmux("resize-window", "-x", str(action[0]), "-y", str(action[1]))
                elif action.startswith("key:"):
                    terminal.tmux("send-keys", action.removeprefix("key:"))
                else:
                    terminal.tmux("send-keys", "-l", action)
        terminal.wait_for("the program's end", status.exists)
        return screens, status.read_text().strip()


def check_same(ctx, command, steps, prepare=lambda: None, status="0"):
    needs("tmux", command[0])
    seen = {}
    for how, before in (("natively", ()), ("recorded", (ctx.options.redrive, "record", "-o", ctx.trace, "--"))):
        ctx.fresh_work()
        prepare()
        seen[how] = play(ctx, (*before, *command), steps, how)
    natively, recorded = seen["natively"], seen["recorded"]
    if natively[1] != status or recorded[1] != status:
        raise Failure(f"ended with {natively[1]} natively and {recorded[1]} recorded, not {status}")
    for number, (a, b) in enumerate(zip(natively[0], recorded[0])):
        if a != b:
            raise Failure(f"screen {number}, natively:\n{a}recorded:\n{b}")
    take_away_surroundings(ctx)
    check_trace(ctx)
    redrive_all(ctx)


@test("terminals/shell")
def shell(ctx):
    """Job control: a job is stopped, listed, continued and interrupted; history; the shell's own status."""
    check_same(ctx, ("bash", "-i"), (
        ("#", "sh -c 'trap \"exit 7\" CONT; echo first$((1)); while :; do sleep 0.05; done'\n"), ("first1", "settle", "key:C-z"), ("Stopped", "settle", "jobs; echo $(( 6 * 7 ))\n"),
        ("42", "settle", "fg\n"), (f"done'\n{PROMPT}", "settle", "echo status $?\n"), ("status 7", "sh -c 'echo second$((1)); exec sleep 1000'\n"), ("second1", "settle", "key:C-c"),
        (f"^C\n{PROMPT}", "settle", "echo status $?\n"), ("status 130", "key:Up", "key:Home", "key:C-k", "echo again\n"), ("\nagain", "clear; echo al$((1))l\n"),
        ("al1l\n", "look", "exit 3\n")), status="3")


@test("terminals/interpreter")
def interpreter(ctx):
    """A prompt with line editing; Ctrl-C at the prompt and in a call that sleeps; Ctrl-D."""
    check_same(ctx, ("/usr/bin/python3", "-q"), (
        (">>>", "6 * 8"), ("6 * 8", "key:BSpace", "7\n"), ("\n42", "key:C-c"), ("KeyboardInterrupt", "import time; print('sl' + 'eep'); time.sleep(1000)\n"),
        ("\nsleep", "key:C-c"), ("in <module>", "key:Up", "key:C-u", "print('al' + 'ive')\n"), ("\nalive", "look", "key:C-d")))


@test("terminals/pager")
def pager(ctx):
    """The alternate screen, a search, and a terminal that changes its size."""
    text = ctx.work / "text"
    check_same(ctx, ("less", "text"), (
        ("line 10 of", "look", "/line 500 of\n"), ("line 500 of", "look", (60, 15)), ("line 500 of", "look", "G"), ("line 2000 of", "look", "q")),
        prepare=lambda: text.write_text("".join(f"line {n} of a text whose lines are longer than a narrow terminal is wide\n" for n in range(1, 2001))))


@test("terminals/editor")
def editor(ctx):
    """What is written in an editor is in the file, also after the terminal has changed its size."""
    text = ctx.work / "poem"
    check_same(ctx, ("vim", "-u", "DEFAULTS", "poem"), (
        ("poem", "key:i", "Roses are red\nViolets are blue", "key:Escape"), ("Violets are blue", "look", (60, 15), "look", ":%s/red/grey/\n"),
        ("Roses are grey", "look", ":wq\n")), prepare=lambda: text.write_text(""))


@test("terminals/multiplexer")
def multiplexer(ctx):
    """A terminal in a terminal: its server outlives the program that was started, and ends with the last shell."""
    inner = f"redrive-inner-{os.getpid()}"
    try:
        check_same(ctx, ("tmux", "-L", inner, "-f", "/dev/null", "new-session", "sh"), (
            ("#", "stty size; echo in$((1))ner\n"), ("\nin1ner", (70, 20), "settle", "stty size\n"), ("19 70", "key:C-b", "%"), ("│", "echo sec$((1))nd\n"),
            ("sec1nd", "exit\n"), ("!│", "exit\n")))
    finally:
        subprocess.run(["tmux", "-L", inner, "kill-server"], capture_output=True, timeout=ctx.timeout_s, check=False)


HANGS_UP = "trap 'echo hup >> told' HUP; echo ready; while [ ! -e end ]; do sleep 0.05; done 2> /dev/null; echo ended >> told"


def wait_until(ctx, what, condition):
    limit = time.monotonic() + ctx.timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise Failure(f"{what}: not within {ctx.timeout_s:g} s")
        time.sleep(0.02)


@test("terminals/hang_up")
def hang_up(ctx):
    """A terminal that goes away sends SIGHUP to the program that was started there: if it handles that, it continues, and its recording is complete."""
    needs("tmux")
    told = {}
    file, end = ctx.work / "told", ctx.work / "end"
    for how, before in (("natively", ()), ("recorded", (ctx.options.redrive, "record", "-o", ctx.trace, "--"))):
        ctx.fresh_work()
        with contextlib.closing(Terminal(ctx, (*before, "bash", "-c", HANGS_UP), how)) as terminal:
            terminal.wait_for("ready", lambda terminal=terminal: "ready" in terminal.screen())
            try:
                terminal.tmux("kill-session")
                wait_until(ctx, f"{how}: SIGHUP", file.exists)
            finally:
                end.touch()
            wait_until(ctx, f"{how}: the program's end", lambda: "ended" in file.read_text())
            told[how] = file.read_text()
    if told["natively"] != told["recorded"]:
        raise Failure(f"natively: {told['natively']}recorded: {told['recorded']}")
    wait_until(ctx, "the recording's end", lambda: ctx.json("stats", ctx.trace)["finished"])
    take_away_surroundings(ctx)
    check_trace(ctx)
    redrive_all(ctx)
