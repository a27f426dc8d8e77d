#!/usr/bin/env python3
"""Group random: programs made from seeds (tests/random), natively, recorded with short checkpoint periods on both tiers, and every interval
re-driven and verified. Of a program that fails, parts are left out while it still does, and what is left is printed.

By itself it runs as many seeds as wanted, several at once: random_programs.py [--first SEED] [--count N] [--jobs N]."""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import random
import subprocess
import sys
import time

import harness
from harness import TESTS, Failure, built, test
from redriving import Job, check_trace, copy_into, record, redrive_all, run_natively, take_away_surroundings

SOURCES = TESTS / "random"
FIXED_SEEDS = range(1, 3)
ALL_SEEDS = range(1, 2001)
LOAD = 4        # programs at once for each processor there
SHRINK_S = 120  # how long parts are left out of one that fails
ONE_S = 1800    # for each command, under that load: programs that share memory have hundreds of intervals, each of which is re-driven with many others
TIERS = ("in-process", "stops")


def random_program(options):
    sources = sorted(SOURCES.glob("*.cc"))
    return built(options, SOURCES / "random_program.cc", "random",
                 lambda made: ["g++", "-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *map(str, sources), "-o", made],
                 inputs=[*sources, *SOURCES.glob("*.h")])


@dataclasses.dataclass
class Attempt:
    """One seed on one tier, perhaps without some of its parts."""
    seed: int
    tier: str
    skipped: tuple = ()

    def job(self, options):
        words = ["./random_program", str(self.seed)]
        if self.skipped:
            words += ["--skip", ",".join(map(str, self.skipped))]
        period_us = random.Random(self.seed).choice((200, 500, 1000, 2000, 5000))
        tier = ("--interception", self.tier)
        return Job(words, prepare=copy_into(random_program(options)),
                   record_options=("--bound", "2s", "--checkpoint-period", f"{period_us}us", *tier), replay_options=tier)

    def run(self, options, timeout_s=ONE_S):
        """If the options say so, keeps the directory of a failing attempt."""
        given = dataclasses.replace(options, keep=False)
        with contextlib.closing(harness.Context(given, harness.Test(f"random/{self.seed}", None, timeout_s, False))) as ctx:
            try:
                self.run_in(ctx)
            except Failure:
                ctx.options = options
                raise

    def run_in(self, ctx):
        job = self.job(ctx.options)
        natively = run_natively(ctx, job)
        recorded = record(ctx, job)
        last = [outcome.stdout.splitlines()[-1] for outcome in (natively, recorded)]
        ctx.expect(last[0] == last[1], recorded, f"recorded: '{last[1]}', natively: '{last[0]}'")
        take_away_surroundings(ctx)
        check_trace(ctx)
        redrive_all(ctx, options=job.replay_options)


def failure_of(attempt, options, timeout_s=ONE_S):
    try:
        attempt.run(options, timeout_s)
    except Failure as failure:
        return str(failure)
    return None


def parts_of(seed, options):
    """The parts of a program that can be left out: their numbers and descriptions."""
    listed = subprocess.run([random_program(options), str(seed), "--list"], capture_output=True, text=True, check=True).stdout
    return {int(line.split()[0]): line for line in listed.splitlines()}


def shrink(attempt, options, *, limit_s=SHRINK_S, tries=2):
    """Leaves out ever smaller shares of the remaining parts, as long as what remains fails in one of several tries."""
    parts, end = parts_of(attempt.seed, options), time.monotonic() + limit_s
    skipped, share = set(attempt.skipped), 2
    while True:
        left = [number for number in parts if number not in skipped]
        size, changed = max(1, len(left) // share), False
        for start in range(0, len(left), size):
            without = skipped | set(left[start:start + size])
            smaller = dataclasses.replace(attempt, skipped=tuple(sorted(without)))
            if len(without) < len(parts) and any(time.monotonic() < end and failure_of(smaller, options, 30) for _ in range(tries)):
                skipped, changed = without, True
        if time.monotonic() >= end or (size == 1 and not changed):
            break
        share = share if changed else share * 2
    return dataclasses.replace(attempt, skipped=tuple(sorted(skipped))), [parts[number] for number in parts if number not in skipped]


def told(attempt, failure, options):
    """The text of a failure: the seed, the result, and the smallest failing program that was found."""
    smallest, left = (attempt, []) if options.keep else shrink(attempt, options)
    lines = [f"seed {attempt.seed}, {attempt.tier}:", *failure.splitlines(), f"shrunk: {' '.join(smallest.job(options).command)}", *left]
    return "\n  ".join(lines)


def run_seeds(seeds, options, *, at_once, tiers=TIERS, report=lambda line: None):
    """The failures of all seeds on the tiers, told."""
    attempts = [Attempt(seed, tier) for seed in seeds for tier in tiers]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for attempt, failure in zip(attempts, pool.map(lambda attempt: failure_of(attempt, options), attempts)):
            if failure:
                failures.append(told(attempt, failure, options))
                report("FAIL " + failures[-1])
    return failures


def expect_none(failures):
    if failures:
        raise Failure("\n".join([f"{len(failures)} random programs failed", *failures[:5]]))


@test("random/some")
def some(ctx):
    """The short form. Always the same seeds: a new one could fail for no change of ours."""
    expect_none(run_seeds(FIXED_SEEDS, ctx.options, at_once=1))


@test("random/many", slow=True)
def many(ctx):
    expect_none(run_seeds(ALL_SEEDS, ctx.options, at_once=LOAD * (os.cpu_count() or 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="programs at once")
    parser.add_argument("--tier", choices=TIERS, action="append")
    parser.add_argument("--keep", action="store_true", help="keep the directories of those that fail, and leave nothing out of them")
    arguments = parser.parse_args()
    build = pathlib.Path(os.environ.get("REDRIVE_BUILD", harness.ROOT / "build")).resolve()
    options = harness.Options(pathlib.Path(os.environ.get("REDRIVE", build / "redrive")).resolve(), build, keep=arguments.keep)
    seeds = range(arguments.first, arguments.first + arguments.count)
    failures = run_seeds(seeds, options, at_once=arguments.jobs, tiers=arguments.tier or TIERS, report=lambda line: print(line, flush=True))
    print(f"{len(seeds)} seeds, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
