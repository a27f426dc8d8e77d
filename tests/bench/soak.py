#!/usr/bin/env python3
"""Whether a recording with --keep stays as it is, however long it takes: redis with clients and nginx with reloads, an hour with a window of two
minutes. Prints sizes of the trace and of the recorder's memory; fails if they grow, or if anything in the window does not replay."""
import contextlib
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import bench_arguments  # noqa: E402
import keep  # noqa: E402
from harness import Context, Options, Test  # noqa: E402


def main():
    parser = bench_arguments.parser(__doc__, "five minutes")
    chosen = parser.parse_args()
    minutes, keep_s = (5, 30) if chosen.quick else (60, 120)
    with contextlib.closing(Context(Options(redrive=chosen.redrive, build=chosen.build), Test("soak", None, 900, True))) as ctx:
        seen = keep.soak(ctx, minutes * 60, keep_s, snapshots=5)
    print("| minute | program | trace, MB | memory, MB | events |\n| --- | --- | --- | --- | --- |")
    for minute in range(minutes):
        for name, looks in seen.items():
            at = next(look for look in looks if look[0] >= 60 * minute)
            print(f"| {minute} | {name} | {at[1] / 1e6:.0f} | {at[2] / 1e6:.0f} | {at[3]} |")
    keep.check_flat(seen, keep_s, settled_s=2 * keep_s)


if __name__ == "__main__":
    main()
