"""Group time_of_day: when events and intervals were. Programs note times by themselves: each event must have been when the trace says, within
the error that it shows, however busy this machine is."""
import calendar
import datetime
import json
import shutil
import signal
import sqlite3
import struct
import time

from harness import ROOT, Failure, needs, test, workload
from redriving import check_trace, free_port, is_root, redrive_all, take_away_surroundings, units

NS = 1_000_000_000
SHOWN_NS = 1000  # times are shown in microseconds


def unix_ns(text):
    """Of a time as RFC 3339 has it, in UTC."""
    if len(text) != 27 or text[-1] != "Z":
        raise Failure(f"'{text}' is not a time")
    whole = datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    return calendar.timegm(whole.timetuple()) * NS + int(text[20:26]) * 1000


def bounds_ns(event):
    at, error = unix_ns(event["time"]), event["time_error_s"] * NS + SHOWN_NS
    return at - error, at + error


def record_clocks(ctx, seconds, *options):
    """The times that each process has noted, by its number."""
    ctx.fresh_work()
    shutil.copy2(workload(ctx.options, "clocks"), ctx.work)
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, *options, "--", "./clocks", str(seconds), "noted", cwd=ctx.work), 0)
    noted = {}
    for file in ctx.work.glob("noted.*"):
        data = file.read_bytes()
        noted[int(file.suffix[1:])] = struct.unpack(f"<{len(data) // 8}Q", data)
    return noted


def check_bounds(events, noted):
    """The program reads the clock in the call before each write: what comes after that read was not earlier, and what was before it was not later."""
    writes = [i for i, event in enumerate(events) if event.get("call") == "write"]
    if len(writes) < len(noted):
        raise Failure(f"{len(writes)} writes, and {len(noted)} were noted")
    read_at = {place - 1: at_ns for place, at_ns in zip(writes, noted)}
    latest = 0
    for i, event in enumerate(events):
        latest = read_at.get(i, latest)
        if bounds_ns(event)[1] < latest:
            raise Failure(f"{event} was after {latest}")
    earliest = None
    for i in reversed(range(len(events))):
        if earliest and bounds_ns(events[i])[0] > earliest:
            raise Failure(f"{events[i]} was before {earliest}")
        earliest = read_at.get(i, earliest)
    return len(read_at)


def check_clocks(ctx, noted, limit_ns=None):
    events, checked = {}, 0
    for event in ctx.json("dump", ctx.trace):
        events.setdefault(event["unit"], []).append(event)
    for unit in units(ctx):
        own = events[unit["unit"]]
        checked += check_bounds(own, noted[unit["pid"]])
        times = [unix_ns(event["time"]) for event in own]
        back = sum(later < earlier for earlier, later in zip(times, times[1:]))  # where the earlier one was guessed too late
        if back > len(own) / 1000:
            raise Failure(f"times of unit {unit['unit']} go back {back} times")
        for interval in unit["intervals"]:
            began, ended = unix_ns(interval["began"]), unix_ns(interval["ended"])
            first = interval["first_event"]
            for event in own[first:first + interval["events"]]:
                if bounds_ns(event)[1] < began - SHOWN_NS or bounds_ns(event)[0] > ended + SHOWN_NS:
                    raise Failure(f"{event} is not in its interval, {interval}")
    if checked < 1000 or len(noted) != 2:
        raise Failure(f"only {checked} calls of {len(noted)} processes were noted")


@test("time_of_day/served")
def served(ctx):
    check_clocks(ctx, record_clocks(ctx, 1.5))


@test("time_of_day/stopped", slow=True)
def stopped(ctx):
    check_clocks(ctx, record_clocks(ctx, 1.5, "--interception", "stops"))


@test("time_of_day/intervals")
def intervals(ctx):
    check_clocks(ctx, record_clocks(ctx, 1, "--checkpoint-period", "50ms"))
    check_trace(ctx)
    take_away_surroundings(ctx)
    redrive_all(ctx)


def listed_at(ctx, moment, *options):
    return {(i["unit"], i["interval"]): i for i in ctx.json("ls", "--at", moment, *options, ctx.trace)["intervals"]}


@test("time_of_day/moments")
def moments(ctx):
    """Every way to name a moment, and what commands do with it."""
    record_clocks(ctx, 1, "--checkpoint-period", "50ms")
    all_intervals = {(u["unit"], i["interval"]): (unix_ns(i["began"]), unix_ns(i["ended"])) for u in units(ctx) for i in u["intervals"]}
    start, end = min(began for began, _ in all_intervals.values()), max(ended for _, ended in all_intervals.values())
    middle = (start + end) // 2000 * 1000
    seconds, micros = divmod(middle // 1000, 1_000_000)
    utc = time.gmtime(seconds)
    clock = time.strftime("%H:%M:%S", utc) + f".{micros:06}"
    day = time.strftime("%Y-%m-%d", utc)
    expected = {which for which, (began, ended) in all_intervals.items() if began <= middle <= ended}
    # An hour west of Greenwich, whatever the zone of this machine is.
    local = {"TZ": "XYZ1"}
    there = time.gmtime(seconds - 3600)
    for moment, *options in ((f"@{seconds}.{micros:06}",), (clock, "--utc"), (f"{day} {clock}", "--utc"), (f"{day}T{clock}Z",),
                             (time.strftime("%H:%M:%S", there) + f".{micros:06}",),
                             (time.strftime("%Y-%m-%d %H:%M:%S", there) + f".{micros:06}",),
                             (time.strftime("%Y-%m-%dT%H:%M:%S", there) + f".{micros:06}-01:00",)):
        said = ctx.json("ls", "--at", moment, *options, ctx.trace, env=local)
        if unix_ns(said["at"]) != middle or not expected <= {(i["unit"], i["interval"]) for i in said["intervals"]}:
            raise Failure(f"{moment} {options}: {said}, not {expected} at {middle}")
    for moment, since in (("+0.4s", start + 4 * NS // 10), ("-400ms", end - 4 * NS // 10)):
        if abs(unix_ns(ctx.json("ls", "--at", moment, ctx.trace)["at"]) - since) > 10 * SHOWN_NS:
            raise Failure(f"{moment} is wrong")
    for unit, interval in expected:
        check_dump_since(ctx, unit, listed_at(ctx, f"@{seconds}.{micros:06}")[unit, interval]["event"], f"@{seconds}.{micros:06}")
    replayed = json.loads(ctx.expect_status(ctx.redrive("replay", "--verify", "--json", "--at", f"@{seconds}.{micros:06}", ctx.trace), 0).stdout)
    if {(i["unit"], i["interval"]) for i in replayed["intervals"]} < expected or replayed["not_verified"]:
        raise Failure(f"{replayed}")
    one = ctx.redrive("replay", "--json", "--at", clock, "--utc", ctx.trace, "2")
    if {i["unit"] for i in json.loads(ctx.expect_status(one, 0).stdout)["intervals"]} != {2}:
        raise Failure(one.stdout)
    check_as_shown(ctx)
    check_refusals(ctx)
    check_catalog(ctx, all_intervals)


def check_as_shown(ctx):
    """Times as redrive shows them, in microseconds, include what they were cut off from."""
    for unit in units(ctx):
        for interval in unit["intervals"][:3]:
            which = unit["unit"], interval["interval"]
            if any(which not in listed_at(ctx, interval[bound]) for bound in ("began", "ended")):
                raise Failure(f"{which} did not run when it began or ended: {interval}")
        replayed = ctx.json("replay", "--at", unit["intervals"][1]["began"], ctx.trace, str(unit["unit"]))["intervals"]
        if 1 not in [interval["interval"] for interval in replayed]:
            raise Failure(f"what ran when an interval began, without it: {replayed}")
        events = ctx.json("dump", "--times", ctx.trace, f"{unit['unit']}:0")
        for event in events[::len(events) // 3]:
            for option in ("--since", "--until"):
                if event not in ctx.json("dump", option, event["time"], ctx.trace, f"{unit['unit']}:0"):
                    raise Failure(f"dump {option} {event['time']} leaves out {event}")


def check_dump_since(ctx, unit, first, moment):
    """All of these events, and no earlier ones."""
    def numbers(*options):
        return [event["event"] for event in ctx.json("dump", *options, ctx.trace, str(unit))]
    before, after, every = numbers("--until", moment), numbers("--since", moment), numbers()
    if after != [n for n in every if n >= first] or before != [n for n in every if n < first or (n in before and n in after)]:
        raise Failure(f"unit {unit} at {moment}: {before[-3:]}, {after[:3]}; the first from then on is {first}")


def check_refusals(ctx):
    for words, says, status in ((("ls", "--at", "-5min"), "no interval ran at", 1), (("ls", "--at", "soon"), "'soon' is not a time", 2),
                                (("dump", "--since", "25:00"), "is not a time", 2),
                                (("dump", "--since", "2100-01-01", "--until", "2000-01-01"), "--until 2000-01-01 is before --since 2100-01-01", 1),
                                (("replay", "--at", "-1h"), "no interval ran at", 1)):
        outcome = ctx.redrive(*words, ctx.trace)
        ctx.expect(outcome.status == status and says in outcome.stderr and outcome.stderr.count("\n") == 1, outcome, "not refused as it should be")


def check_catalog(ctx, all_intervals):
    path = ctx.expect_status(ctx.redrive("catalog", ctx.trace), 0).stdout.strip()
    with sqlite3.connect(path) as catalog:
        rows = catalog.execute("SELECT unit, interval, began_unix_ns / 1000, ended_unix_ns / 1000 FROM intervals").fetchall()
        late = catalog.execute("SELECT count(*) FROM messages JOIN intervals USING(unit, interval) WHERE unix_ns IS NULL OR "
                               "unix_ns + unix_error_ns < began_unix_ns OR unix_ns - unix_error_ns > ended_unix_ns").fetchone()
    if {(u, i): (b * 1000, e * 1000) for u, i, b, e in rows} != all_intervals or late != (0,):
        raise Failure(f"{rows}, {late}; not {all_intervals}")


@test("time_of_day/killed")
def killed(ctx):
    """What a killed recorder has written has its times, and intervals end with their last events."""
    ctx.fresh_work()
    shutil.copy2(workload(ctx.options, "clocks"), ctx.work)
    process = ctx.start_redrive("record", "-o", ctx.trace, "--", "./clocks", "60", "noted", cwd=ctx.work)
    deadline = time.monotonic() + ctx.timeout_s
    while not (ctx.trace / "events" / "2.seg").exists():
        if time.monotonic() > deadline:
            raise process.failure("records nothing")
        time.sleep(0.02)
    time.sleep(0.3)
    now = time.time_ns()
    process.process.send_signal(signal.SIGKILL)
    process.finish(ctx.timeout_s)
    events = ctx.json("dump", ctx.trace)
    lasts = [unix_ns(interval["ended"]) for unit in units(ctx) for interval in unit["intervals"]]
    if not events or any("time" not in event for event in events) or not now - 2 * NS < max(lasts) < now + NS:
        raise Failure(f"{len(events)} events, intervals ended at {lasts}, killed at {now}")


@test("time_of_day/older")
def older(ctx):
    trace = ctx.directory / "format-10"
    shutil.copytree(ROOT / "tests" / "unit" / "golden" / "format-10", trace)
    for words in (("dump", "--times"), ("dump", "--since", "12:00"), ("ls", "--at", "12:00"), ("replay", "--at", "12:00")):
        outcome = ctx.redrive(*words, trace)
        ctx.expect(outcome.status == 1 and outcome.stderr.endswith("has no time of day: an older redrive recorded it\n"), outcome, "not said")
    ctx.expect_status(ctx.redrive("ls", "--times", trace), 0)
    ctx.expect_status(ctx.redrive("dump", trace, "1"), 0)


def check_clients(ctx, client, moments_of):
    """Whoever asked a server ran at the time that the server has noted."""
    commands = {unit["unit"]: unit["command"] for unit in units(ctx)}
    for what, at_ns in moments_of.items():
        ran = [commands[unit] for unit, _ in listed_at(ctx, f"@{at_ns // NS}.{at_ns % NS:09}")]
        if not any(command.startswith(client) and what in command for command in ran):
            raise Failure(f"{client} of {what} did not run at {at_ns}: {ran}")


REDIS = """
redis-server --port {port} --bind 127.0.0.1 --dir . --save '' --appendonly no > server.log &
server=$!
until redis-cli -p {port} ping 2>&1 | grep -q PONG; do sleep 0.05; done
redis-cli -p {port} monitor > monitor.out &
until grep -q OK monitor.out; do sleep 0.05; done
for i in $(seq 20); do redis-cli -p {port} set key-$i- value; done > /dev/null
redis-cli -p {port} shutdown nosave || true
wait
"""


@test("time_of_day/redis")
def redis(ctx):
    """MONITOR prints when it has got a command."""
    needs("redis-server", "redis-cli")
    ctx.fresh_work()
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-euc", REDIS.format(port=free_port()), cwd=ctx.work), 0)
    moments_of = {}
    for line in (ctx.work / "monitor.out").read_text().splitlines():
        words = line.replace('"', "").split()
        if "set" in words:
            moments_of[words[-2]] = int(words[0].replace(".", "")) * 1000
    if len(moments_of) != 20:
        raise Failure(f"{moments_of}")
    check_clients(ctx, "redis-cli", moments_of)


NGINX_CONF = """
{user}daemon off; worker_processes 1; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 256; }}
http {{
  log_format times '$msec $request_uri'; access_log access.log times;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello'; }} }}
}}
"""
NGINX = """
nginx -p "$PWD" -c nginx.conf -e error.log &
server=$!
until [ -s nginx.pid ]; do sleep 0.05; done
for i in $(seq 20); do curl -s http://127.0.0.1:{port}/page-$i-; done > /dev/null
kill -QUIT $server
wait $server
"""


@test("time_of_day/nginx")
def nginx(ctx):
    """The access log says in milliseconds when a request was answered."""
    needs("nginx", "curl")
    port = free_port()
    (ctx.fresh_work() / "nginx.conf").write_text(NGINX_CONF.format(port=port, user="user root;\n" if is_root() else ""))
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    ctx.expect_status(ctx.redrive("record", "-o", ctx.trace, "--", "sh", "-euc", NGINX.format(port=port), cwd=ctx.work, env=env), 0)
    lines = [line.split() for line in (ctx.work / "access.log").read_text().splitlines()]
    if len(lines) != 20:
        raise Failure(f"{lines}")
    check_clients(ctx, "curl", {page: int(at.replace(".", "")) * 1_000_000 for at, page in lines})
