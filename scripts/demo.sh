#!/bin/bash
# `make demo`: records a 4-process message-passing job, lists it, re-drives an interval from its middle, and compares the time with that of a
# replay from the start. An argument scales the job (1: some 20 s).
set -euo pipefail
cd "$(dirname "$0")/.."

redrive=${REDRIVE:-build/redrive}
bound=2s
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trace=$work/trace
export REDRIVE_CACHE_DIR=$work/cache

# Status 5: a replay was late, which the table says; others may use the processors.
run() { printf '\n$ redrive %s\n' "${*//$work\//}"; quietly "$@"; }
quietly() { "$redrive" "$@" || [ $? = 5 ]; }
# The value of a Python expression over the JSON `d` on standard input.
pick() { python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

"${CC:-gcc}" -O2 -o "$work/demo" scripts/demo.c
run record -o "$trace" --bound "$bound" -- "$work/demo" "${1:-1}"
run ls "$trace"
run stats "$trace"

# The unit that used most CPU time, and its middle interval.
read -r unit middle < <("$redrive" ls --json "$trace" | pick '"%d %d" % max(
  ((u["unit"], len(u["intervals"]) // 2, sum(i["cpu_s"] for i in u["intervals"])) for u in d["units"]), key=lambda x: x[2])[:2]')
run plan "$trace" "$unit:$middle"
run replay --verify "$trace" "$unit:$middle"

quietly replay --json --verify "$trace" "$unit:$middle" > "$work/one.json"
start=$EPOCHREALTIME
quietly replay --json "$trace" "$unit:0-$middle" > "$work/start.json"
from_start=$(python3 -c "print($EPOCHREALTIME - $start)")
python3 - "$work/one.json" "$unit" "$middle" "$from_start" <<'END'
import json, sys
one = json.load(open(sys.argv[1]))
interval = one["intervals"][0]
print(f"\nunit {sys.argv[2]}, interval {sys.argv[3]}: replay set of {interval['replay_set_size']}, "
      f"{interval['seconds']:.2f} s (bound {interval['bound_s']:g} s), "
      f"{'verified' if interval['verified'] else 'not verified'}, {one['divergences']} divergences")
print(f"everything from the start up to there: {float(sys.argv[4]):.2f} s")
END
