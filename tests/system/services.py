"""Group services: services as their packages install them, started by systemd under redrive (`redrive service enable`)."""
import pathlib

from harness import Failure, Skip, test
from machine import Machine

# A unit, what a client asks it, and what it answers.
SERVICES = {
    "redis-server": ("redis-cli set key value && redis-cli get key", "OK\nvalue\n"),
    "nginx": ("exec 3<>/dev/tcp/localhost/80 && printf 'HEAD / HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | cut -d' ' -f2", "200\n"),
    "ssh": ("exec 3<>/dev/tcp/localhost/22 && head -c 8 <&3 | grep -o '^SSH-2.0'", "SSH-2.0\n"),
    "cron": ("systemctl show --property SubState cron", "SubState=running\n"),
}
SAID = "systemctl show --property ActiveState,Result {unit}"


def installed():
    return [unit for unit in SERVICES if pathlib.Path(f"/lib/systemd/system/{unit}.service").exists()]


def expect_answer(machine, unit):
    question, answer = SERVICES[unit]
    machine.wait_for(question)  # some are started before they listen
    said = machine.expect(question)
    if said != answer:
        raise Failure(f"{unit} answers {said!r}")


@test("services/as_installed", timeout_s=120)
def as_installed(ctx):
    """They start, answer, are reloaded and stop as without redrive; what was recorded replays; disabled, they run without."""
    if not installed():
        raise Skip("none of the services is installed")
    machine = Machine(ctx)
    for unit in installed():
        machine.expect(f"systemctl restart {unit}")
        expect_answer(machine, unit)
        machine.expect(f"redrive service enable {unit} --bound 2s --keep 5m --trigger crash")
        machine.expect(f"systemctl restart {unit}")
        expect_answer(machine, unit)
        if "recording" not in machine.expect(f"redrive status {unit}.service"):
            raise Failure(f"{unit} is not recorded")
        machine.expect(f"systemctl reload-or-restart {unit}")
        expect_answer(machine, unit)
        machine.expect(f"systemctl stop {unit}")
        state = machine.expect(SAID.format(unit=unit))
        if state != "Result=success\nActiveState=inactive\n":
            raise Failure(f"{unit}, stopped: {state}{machine.run(f'journalctl --unit {unit} --no-pager | tail').stdout}")
        for trace in machine.expect(f"ls -d /var/lib/redrive/services/{unit}.service/*-*").split():
            machine.expect(f"redrive check {trace}")
            machine.expect(f"redrive replay --all --verify {trace}", 0, 5)
        machine.expect(f"redrive service disable {unit} && systemctl start {unit}")
        expect_answer(machine, unit)
        machine.expect(f"systemctl stop {unit}")
    machine.end()
