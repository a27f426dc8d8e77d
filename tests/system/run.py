#!/usr/bin/env python3
"""Runs redrive's system tests. `run.py --list` names them; PATTERNs are names, groups or globs ("programs", "real/*", "*pipe*")."""
import argparse
import concurrent.futures
import fnmatch
import importlib
import os
import pathlib
import shlex
import signal
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
import harness  # noqa: E402

for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
    if path.stem != "run":
        importlib.import_module(path.stem)  # it registers its tests

FAILURE_AT_END = 600  # characters of a failure that are printed once more after all tests


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="tests to run (default: all but the slow ones)")
    parser.add_argument("--all", action="store_true", help="the slow ones too")
    parser.add_argument("--list", action="store_true", help="print the tests' names and end")
    parser.add_argument("--redrive", type=pathlib.Path, help="the program under test ($REDRIVE, build/redrive)")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="tests at once (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the tests' directories")
    parser.add_argument("--timeout-factor", type=float, default=1, metavar="X", help="for slow machines")
    return parser.parse_args()


def matches(name, pattern):
    return name == pattern or name.split("/")[0] == pattern or fnmatch.fnmatchcase(name, pattern)


def selected(arguments):
    tests = harness.TESTS_BY_NAME
    for pattern in arguments.patterns:
        if not any(matches(name, pattern) for name in tests):
            sys.exit(f"run.py: no test matches '{pattern}' (--list names them)")
    if arguments.patterns:
        return [t for name, t in tests.items() if any(matches(name, pattern) for pattern in arguments.patterns)]
    return [t for t in tests.values() if arguments.all or not t.slow]


def options_of(arguments):
    build = pathlib.Path(os.environ.get("REDRIVE_BUILD", harness.ROOT / "build")).resolve()
    redrive = arguments.redrive or pathlib.Path(os.environ.get("REDRIVE", build / "redrive"))
    if not os.access(redrive, os.X_OK):
        sys.exit(f"run.py: no program {redrive}: build it with make, or name another with --redrive")
    return harness.Options(redrive.resolve(), build, arguments.keep, arguments.timeout_factor)


class Report:
    """Prints each result as soon as it is known, and repeats failures at the end, where they are visible in the last lines of a log."""

    def __init__(self, arguments, total):
        self.arguments, self.total, self.counts = arguments, total, {"PASS": 0, "FAIL": 0, "SKIP": 0}
        self.failures = []
        self.lock = threading.Lock()

    def add(self, name, verdict, detail, seconds, directory):
        with self.lock:
            self.counts[verdict] += 1
            print(f"[{sum(self.counts.values())}/{self.total}] {verdict} {name} ({seconds:.1f} s)"
                  + (f": {detail}" if verdict == "SKIP" else ""), flush=True)
            if verdict == "FAIL":
                self.failures.append(f"FAIL {name}: {' | '.join(detail.splitlines())[:FAILURE_AT_END]}")
                print("  " + detail.replace("\n", "\n  "))
                print(f"  again:   {self.again(name)}")
            if self.arguments.keep:
                print(f"  kept:    {directory}", flush=True)

    def again(self, name):
        words = [sys.executable, str(pathlib.Path(__file__).resolve()), "--keep"]
        if self.arguments.redrive:
            words += ["--redrive", str(self.arguments.redrive)]
        return shlex.join([*words, name])

    def close(self):
        counts = self.counts
        print(*self.failures, sep="\n", end="\n" if self.failures else "")
        print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped", flush=True)
        return 1 if counts["FAIL"] else 0


def run_one(options, test_case, report):
    start = time.monotonic()
    ctx = harness.Context(options, test_case)
    verdict, detail = "PASS", ""
    try:
        test_case.run(ctx)
    except harness.Skip as reason:
        verdict, detail = "SKIP", str(reason)
    except harness.Failure as failure:
        verdict, detail = "FAIL", str(failure)
    except Exception:  # a test that breaks must not take the others along
        verdict, detail = "FAIL", traceback.format_exc()
    finally:
        ctx.end_processes()
        if reports := ctx.sanitizer_reports():
            verdict, detail = "FAIL", "\n".join(["a sanitizer reports:", *reports, detail])
        ctx.close()
    report.add(test_case.name, verdict, detail, time.monotonic() - start, ctx.directory)


def end_like_ctrl_c(*_):
    signal.signal(signal.SIGTERM, lambda *_: None)  # timeout(1) sends it twice
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, end_like_ctrl_c)
    # Whoever starts this in the background, or by nohup(1), has them ignored, and recorded programs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    arguments = parse_arguments()
    tests = selected(arguments)
    if arguments.list:
        print("\n".join(t.name + ("  (slow)" if t.slow else "") for t in tests))
        return 0
    report = Report(arguments, len(tests))
    options = options_of(arguments)
    pool = concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs))
    try:
        for future in [pool.submit(run_one, options, t, report) for t in tests if not t.alone]:
            future.result()
        for t in tests:
            if t.alone:
                pool.submit(run_one, options, t, report).result()
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        harness.interrupt_all()
        print("run.py: interrupted", file=sys.stderr)
        return 130
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
