#!/usr/bin/env python3
"""What recording a service costs: redis-server as Debian installs it, asked by redis-benchmark, as the service that systemd starts, as one that
`redrive service enable` has set up, and under `redrive record`, in turn in a machine of its own (needs root): all on one processor, as
the other rows of this directory, and then on all processors, as a user has it."""
import contextlib
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
from harness import Context, Options, Test  # noqa: E402
from machine import Machine  # noqa: E402

DROP_IN = "/etc/systemd/system/redis-server.service.d/processors.conf"
SERVER = "start-stop-daemon --start --background --chuid redis --exec /usr/bin/taskset -- -c {processors} {under}redis-server --dir /tmp --save '' --appendonly no"
UNDER_RECORD = "redrive record -o /tmp/trace --bound 2s -- "
ASK = "taskset -c {processors} bash -c 'TIMEFORMAT=%R; time redis-benchmark -c 20 -n {requests} -t get,set -q > /dev/null'"


def seconds(machine, processors, requests):
    machine.wait_for("redis-cli ping | grep -q PONG")
    return float(machine.run(ASK.format(processors=processors, requests=requests)).stderr)


def as_service(machine, processors, requests, *options):
    if options:
        machine.expect(" ".join(("redrive service enable redis-server", *options)))
    machine.expect("systemctl restart redis-server")
    took = seconds(machine, processors, requests)
    machine.expect("systemctl stop redis-server")
    if options:
        machine.expect("redrive service disable redis-server && rm -rf /var/lib/redrive/services")
    return took


def by_hand(machine, processors, requests, under):
    machine.expect("rm -rf /tmp/trace; " + SERVER.format(processors=processors, under=under))
    took = seconds(machine, processors, requests)
    machine.expect("redis-cli shutdown nosave; while pgrep -x redrive > /dev/null; do sleep 0.1; done", 0, 1)
    return took


def main():
    parser = bench_arguments.parser(__doc__, "one short run of each")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    runs, requests = (1, 5000) if chosen.quick else (chosen.runs, 50000)
    ways = {
        "service": (as_service,),
        "enabled service": (as_service, "--bound 2s"),
        "enabled service, `--keep 5m --trigger crash`": (as_service, "--bound 2s", "--keep 5m", "--trigger crash"),
        "by hand": (by_hand, ""),
        "`redrive record`": (by_hand, UNDER_RECORD),
    }
    with contextlib.closing(Context(Options(redrive=chosen.redrive, build=chosen.build), Test("service", None, 600, True))) as ctx:
        machine = Machine(ctx)
        for name, processors in (("one processor", "0"), ("all processors", f"0-{os.cpu_count() - 1}")):
            machine.expect(f"mkdir -p $(dirname {DROP_IN}) && printf '[Service]\\nCPUAffinity={processors}\\n' > {DROP_IN} && systemctl daemon-reload")
            took = {way: [] for way in ways}
            for _ in range(runs):
                for way, (measure, *how) in ways.items():
                    took[way].append(measure(machine, processors, requests, *how))
            print(f"| redis-server on {name}, as | median | relative to the same without redrive |\n| --- | --- | --- |")
            for way, times in took.items():
                native = took["service" if ways[way][0] is as_service else "by hand"]
                ratio = statistics.median(recorded / alone for recorded, alone in zip(times, native))
                print(f"| {way} | {statistics.median(times):.2f} s | {ratio:.2f} |", flush=True)
        machine.end()


if __name__ == "__main__":
    main()
