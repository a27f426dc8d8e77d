#!/usr/bin/env python3
"""What a checkpoint costs, made by redrive itself and by CRIU: CPU time, bytes in the trace, the pause, and the time to restore it, for processes of some
sizes and some checkpoint periods. Runs alternate between both, and a run without checkpoints, whose CPU time and bytes are subtracted."""
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
from criu_tools import NO_GROUPS, criu_path  # noqa: E402
from harness import Context, Options, Test  # noqa: E402
from programs import program  # noqa: E402

SIZES_MB = (1, 64, 512)
PERIODS_S = (0.1, 0.5, 2)
PERIODS_IN_RUN = 4
LEAST_S = 1
ENGINES = ("none", "own", "criu")


def told(redrive, *words):
    return json.loads(subprocess.run((redrive, *words), check=False, capture_output=True, text=True).stdout)


def record(options, path, directory, megabytes, period_s, engine):
    """CPU seconds of everything that ran, and what the trace says."""
    trace = directory / "trace"
    shutil.rmtree(trace, ignore_errors=True)
    period = "1h" if engine == "none" else f"{period_s}s"
    work_ms = int(max(LEAST_S, period_s * PERIODS_IN_RUN) * 1000)
    command = (options.redrive, "record", "-o", trace, "--processors", 1, "--bound", "2h", "--critical-path", "1h", "--checkpoint-period", period,
               "--placement", "independent", "--checkpoint-engine", "own" if engine == "none" else engine, "--", program(options, "big_memory"), megabytes, work_ms, 1)
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path})
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{engine}, {megabytes} MB: the recording ended with status {child.returncode}")
    stats = told(options.redrive, "stats", "--json", trace)
    run = {"cpu_s": used.ru_utime + used.ru_stime, "bytes": stats["trace_bytes"], "images": stats["image_checkpoints"]}
    if engine == "none":
        return run
    if engine == "criu" and stats["criu_error"]:
        raise SystemExit(f"CRIU has not made all images: {stats['criu_error']}")
    unit = told(options.redrive, "ls", "--json", trace)["units"][0]
    listed = [each for each in unit["intervals"] if each["checkpoint_kind"] == "image"]
    run["pause_s"] = statistics.median(each["pause_s"] for each in listed)
    last = listed[-1]
    place = f"{unit['unit']}:{last['interval']}"
    restored = told(options.redrive, "replay", "--json", "--until", str(last["first_event"]), trace, place)
    run["restore_s"] = restored["max_seconds"]
    return run


def row(megabytes, period_s, runs):
    """Medians; of CPU time and bytes those of one image."""
    base = {key: statistics.median(run[key] for run in runs["none"]) for key in ("cpu_s", "bytes")}
    cells = [f"{megabytes} MB", f"{period_s * 1000:.0f} ms"]
    for engine in ("own", "criu"):
        mine = runs[engine]
        cpu_s = statistics.median((run["cpu_s"] - base["cpu_s"]) / run["images"] for run in mine)
        size = statistics.median((run["bytes"] - base["bytes"]) / run["images"] for run in mine)
        cells += [f"{cpu_s * 1e3:.0f} ms ({100 * cpu_s / period_s:.1f} %)", f"{size / 1e6:.1f} MB", f"{statistics.median(run['pause_s'] for run in mine) * 1e3:.2f} ms",
                  f"{statistics.median(run['restore_s'] for run in mine) * 1e3:.0f} ms"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = bench_arguments.parser(__doc__, "only 1 and 64 MB, one run each")
    arguments = parser.parse_args()
    options = Options(redrive=arguments.redrive, build=arguments.build)
    with contextlib.closing(Context(options, Test("engines", None, 600, True))) as ctx:
        path, why = criu_path(ctx)
        if why not in ("", NO_GROUPS):
            raise SystemExit(f"engines: {why}")
        print("| process | period | own: CPU | trace | pause | restore | CRIU: CPU | trace | pause | restore |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for megabytes in SIZES_MB[:2] if arguments.quick else SIZES_MB:
            for period_s in PERIODS_S:
                runs = {engine: [] for engine in ENGINES}
                for _ in range(1 if arguments.quick else 3):
                    for engine in ENGINES:
                        runs[engine].append(record(options, path, ctx.directory, megabytes, period_s, engine))
                print(row(megabytes, period_s, runs), flush=True)


if __name__ == "__main__":
    main()
