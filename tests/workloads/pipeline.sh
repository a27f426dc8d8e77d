#!/bin/sh
# Shell pipelines: seq | sort | uniq -c | gzip and back. usage: pipeline.sh [LINES]; writes to the working directory
set -eu
lines=${1:-100000}
seq "$lines" | awk '{ print ($1 * 7919) % 1000 }' | sort | uniq -c | gzip > pipeline.gz
distinct=$(gunzip < pipeline.gz | wc -l)
total=$(zcat pipeline.gz | awk '{ sum += $1 } END { print sum }')
[ "$total" -eq "$lines" ] || { echo "WRONG $total"; exit 1; }
for word in one two three; do echo "$word"; done | while read -r word; do printf '%s ' "$word"; done | wc -w | grep -q 3
rm pipeline.gz
echo "ok $distinct values"
