#!/usr/bin/env python3
"""What recording a service costs: redis-server as Debian installs it, asked by redis-benchmark, as the service that systemd starts, as one that
`redrive service enable` has set up, and under `redrive record`, in turn on one processor of a machine of its own (needs root)."""
import contextlib
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
from harness import Context, Options, Test  # noqa: E402
from machine import Machine  # noqa: E402

ONE_PROCESSOR = "mkdir -p /etc/systemd/system/redis-server.service.d && printf '[Service]\\nCPUAffinity=0\\n' > /etc/systemd/system/redis-server.service.d/one.conf"
SERVER = "start-stop-daemon --start --background --chuid redis --exec /usr/bin/taskset -- -c 0 {under}redis-server --dir /tmp --save '' --appendonly no"
UNDER_RECORD = "redrive record -o /tmp/trace --bound 2s -- "
ASK = "taskset -c 0 bash -c 'TIMEFORMAT=%R; time redis-benchmark -c 20 -n {requests} -t get,set -q > /dev/null'"


def seconds(machine, requests):
    machine.wait_for("redis-cli ping | grep -q PONG")
    return float(machine.run(ASK.format(requests=requests)).stderr)


def as_service(machine, requests, *options):
    if options:
        machine.expect(" ".join(("redrive service enable redis-server", *options)))
    machine.expect("systemctl restart redis-server")
    took = seconds(machine, requests)
    machine.expect("systemctl stop redis-server")
    if options:
        machine.expect("redrive service disable redis-server && rm -rf /var/lib/redrive/services")
    return took


def by_hand(machine, requests, under):
    machine.expect("rm -rf /tmp/trace; " + SERVER.format(under=under))
    took = seconds(machine, requests)
    machine.expect("redis-cli shutdown nosave; while pgrep -x redrive > /dev/null; do sleep 0.1; done", 0, 1)
    return took


def main():
    parser = bench_arguments.parser(__doc__, "one short run of each")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    runs, requests = (1, 5000) if chosen.quick else (chosen.runs, 50000)
    ways = {
        "service": lambda machine: as_service(machine, requests),
        "enabled service": lambda machine: as_service(machine, requests, "--bound 2s"),
        "enabled service, `--keep 5m --trigger crash`": lambda machine: as_service(machine, requests, "--bound 2s", "--keep 5m", "--trigger crash"),
        "by hand": lambda machine: by_hand(machine, requests, ""),
        "`redrive record`": lambda machine: by_hand(machine, requests, UNDER_RECORD),
    }
    took = {way: [] for way in ways}
    with contextlib.closing(Context(Options(redrive=chosen.redrive, build=chosen.build), Test("service", None, 600, True))) as ctx:
        machine = Machine(ctx)
        machine.expect(ONE_PROCESSOR + " && systemctl daemon-reload")
        for _ in range(runs):
            for way, measure in ways.items():
                took[way].append(measure(machine))
        machine.end()
    print("| redis-server as | median | relative to the same without redrive |\n| --- | --- | --- |")
    for way, times in took.items():
        native = took["by hand" if "record" in way or way == "by hand" else "service"]
        ratio = statistics.median(recorded / alone for recorded, alone in zip(times, native))
        print(f"| {way} | {statistics.median(times):.2f} s | {ratio:.2f} |")


if __name__ == "__main__":
    main()
