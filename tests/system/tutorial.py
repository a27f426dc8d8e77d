"""Test documented/tutorial: redrive-tutorial(7), typed as it stands, on a machine with systemd. What differs from machine to machine there (times,
numbers of intervals) is taken from what the commands before have printed."""
import datetime
import re

from documented import commands_of
from harness import Failure, test
from machine import Machine

WAITED = r"at (\d\d:\d\d:\d\d\.\d+), reply>1s: unit 1 had not answered for [\d.]+ s: snapshot in /var/lib/redrive/services/orders.service/orders-1.snapshot-1"


def shifted(time, seconds):
    """The time of day, in milliseconds."""
    moved = datetime.datetime.strptime(time, "%H:%M:%S.%f") + datetime.timedelta(seconds=seconds)
    return moved.strftime("%H:%M:%S.%f")[:-3]


def last_interval(table):
    """UNIT:I of the last row of what `ls --at` prints: UNIT NAME INTERVAL ..."""
    words = table.splitlines()[-1].split()
    return f"{words[0]}:{words[2]}"


@test("documented/tutorial", timeout_s=120)
def tutorial(ctx):
    machine = Machine(ctx)
    actual = {}  # what the page shows, and what it is here
    place = ""   # the last `cd`
    said = {}
    for shown in commands_of("redrive-tutorial.7", "# "):
        line = shown
        for example, here in actual.items():
            line = line.replace(example, here)
        if line.startswith("./ask"):
            machine.wait_for("ss --no-header --listening --tcp --numeric 'sport = :7070' | grep .")  # whoever types it is slower than the server
        said[shown] = machine.expect(place + line)
        if line.startswith("cd "):
            place += line + "; "
        if line.startswith("./ask customer-37"):
            machine.wait_for("journalctl --unit orders --grep snapshot --output cat --no-pager")
        if line.startswith("journalctl"):
            when = re.search(WAITED, said[shown])
            if not when:
                raise Failure(f"the journal does not say that a snapshot was taken:\n{said[shown]}")
            actual = {"14:03:07.916065": when[1], "14:03:05.916": shifted(when[1], -2), "14:03:07.916": shifted(when[1], 0)}
        if line.startswith("redrive ls --at"):
            actual["1:41"] = last_interval(said[shown])

    def output_of(beginning):
        text, = [text for shown, text in said.items() if shown.startswith(beginning)]
        return text

    wanted = {"./ask customer-5": r"^0$", "redrive status": "orders.service", "redrive dump": r"accept\(.*\n.*read\(4, .*\) = 12\n(.*\n)?.*stopped at",
              "gdb": r"(?s)repeated_items \(.*answer \(.*name=0x[0-9a-f]+ \"customer-37\".*\$1 = 100000", "redrive replay": r" ok, .*\n1 interval, 0 divergences"}
    for beginning, pattern in wanted.items():
        if not re.search(pattern, output_of(beginning)):
            raise Failure(f"{beginning} prints\n{output_of(beginning)}")
    if machine.run("systemctl cat orders").stdout.count("redrive") or machine.run("ls /var/lib/redrive/services/orders.service").stdout.count("snapshot"):
        raise Failure("the service is still recorded, or its snapshot is still there")
    machine.end()
