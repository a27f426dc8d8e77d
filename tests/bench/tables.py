"""Rows of the benchmark as text: on the terminal, and in the tables of README.md."""
import recording_profile

HEADER = (f"{'row':<14}{'native':>8}{'recorded':>10}{'ratio':>7}{'limit':>7}{'CPU':>7}{'limit':>7}{'own CPU':>9}{'limit':>7}{'peak':>9}{'trace/s':>9}{'logged':>8}"
          f"{'replay':>8}{'whole':>8}{'limit':>7}{'once':>7}{'set':>6}{'max':>8}")


def size_of(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def number(value, digits=2):
    """Or a dash for what has no limit."""
    return "-" if value is None else f"{value:.{digits}f}"


def line(row):
    """Pause rows put a bare fork and the median pause where others have native and recorded time; max is the longest."""
    name = f"{row['row']:<14}"
    if "skipped" in row or "failed" in row:
        kind = "skipped" if "skipped" in row else "failed"
        return f"{name}  {kind}: {row[kind]}"
    if "time_share" in row:
        return (f"{name}{row['time_events']} events, errors of their times: median {row['time_median_s'] * 1e3:.3f} ms, 99.9 % at most "
                f"{row['time_999_s'] * 1e3:.3f} ms, longest {row['time_max_s'] * 1e3:.3f} ms; {row['time_share'] * 100:.3f} % within 1 ms")
    if "above_native_s" in row:
        first, median, third = (f"{seconds * 1e3:.1f}" for seconds in row["start_recorded_s"])
        return (f"{name}natively {row['start_native_s'] * 1e3:.1f} ms, recorded {median} (quartiles {first} and {third}): {row['above_native_s'] * 1e3:.1f} ms more, "
                f"{row['start_ratio']:.2f} times; {start_limit(row)} aimed at")
    growth = size_of(row["trace_bytes_per_s"])
    if "pause_max_s" in row:
        return (f"{name}{row['fork_s'] * 1e3:>5.2f} ms{row['pause_median_s'] * 1e3:>7.2f} ms{row['ratio_to_fork']:>7.2f}"
                f"{row['limit_s'] * 1e3:>4.1f} ms{'':>39}{growth:>9}{'':>36}{row['pause_max_s'] * 1e3:>5.2f} ms")
    if "growth_bytes" in row:
        return (f"{name}{'':>8}{row['recorded_s']:>8.0f} s  memory {size_of(row['memory_first_bytes'])} in the first quarter, "
                f"{size_of(row['memory_last_bytes'])} in the last, peak {size_of(row['peak_bytes'])}, limit of growth "
                f"{size_of(row['growth_limit_bytes'])}; {row['units']} units, {row['events']} events")
    diverged = f"  {row['divergences']} DIVERGENCES" if row["divergences"] else ""
    return (f"{name}{row['native_s']:>6.2f} s{row['recorded_s']:>8.2f} s{row['ratio']:>7.2f}{number(row['limit']):>7}"
            f"{row['cpu_ratio']:>7.2f}{number(row['cpu_limit']):>7}{row['supervisor_percent']:>7.0f} %{number(row['supervisor_limit'], 0):>7}{size_of(row['peak_bytes']):>9}{growth:>9}"
            f"{row['logged_percent']:>6.1f} %{row['replay_ratio']:>8.2f}{row['whole_ratio']:>8.2f}{number(row['replay_limit']):>7}"
            f"{row['replay_once_ratio']:>7.2f}{row['replay_set_mean']:>6.1f}{row['replay_max_s']:>6.2f} s{diverged}")


def cost_cells(row):
    return [row["work"], f"{row['native_s']:.2f} s", f"{row['recorded_s']:.2f} s", f"{row['ratio']:.2f}", number(row["limit"]),
            f"{row['supervisor_percent']:.0f} %", number(row["supervisor_limit"], 0), size_of(row["peak_bytes"]),
            size_of(row["trace_bytes_per_s"]), f"{row['logged_percent']:.1f} %",
            number(row["cpu_ratio"]), number(row["cpu_limit"]), size_of(row["trace_bytes"])]


def bytes_cells(row):
    return [f"{row['events']:,}", f"{row['messages']:,}", f"{row['event_bytes']:.1f}", number(row["event_bytes_limit"], 1), size_of(row["copies_bytes"]),
            size_of(row["trace_bytes"])]


def replay_cells(row):
    return [f"{row['replay_ratio']:.2f}", f"{row['whole_ratio']:.2f}", number(row["replay_limit"]), f"{row['replay_once_ratio']:.2f}",
            f"{row['replay_set_mean']:.1f}", f"{row['replay_max_s']:.2f} s"]


def least_cells(row):
    return [f"{row['events']:,}", size_of(row["data_bytes"]), f"{row['bare_calls_s']:.2f} s", f"{row['copy_s']:.3f} s",
            f"{row['least_ratio']:.2f}", f"{row['ratio']:.2f}", f"{row['least_replay_ratio']:.2f}", f"{row['replay_ratio']:.2f}"]


def profile_cells(row):
    shares = row["profile"]
    return [f"{shares[group]:.0f}" if shares.get(group, 0) >= 0.5 else "" for group in recording_profile.GROUPS]


def pause_cells(row):
    return [f"{row['fork_s'] * 1e3:.2f} ms", f"{row['pause_median_s'] * 1e3:.2f} ms", f"{row['pause_max_s'] * 1e3:.2f} ms",
            f"{row['limit_s'] * 1e3:.1f} ms"]


def long_cells(row):
    return [f"{row['recorded_s']:.0f} s", f"{row['units']:,}", f"{row['events']:,}", size_of(row["memory_first_bytes"]),
            size_of(row["memory_last_bytes"]), size_of(row["peak_bytes"]), size_of(row["growth_limit_bytes"])]


def start_limit(row):
    return f"{row['start_limit']:.2f} times" if row["start_limit"] else f"{row['start_limit_s'] * 1e3:.0f} ms more"


def start_cells(row):
    first, median, third = (f"{seconds * 1e3:.1f}" for seconds in row["start_recorded_s"])
    return [f"{row['start_native_s'] * 1e3:.1f} ms", f"{median} ms", f"{first} to {third} ms", f"{row['above_native_s'] * 1e3:.1f} ms",
            f"{row['start_ratio']:.2f}", start_limit(row)]


def time_cells(row):
    return [f"{row['time_events']:,}", *(f"{row[what] * 1e3:.3f} ms" for what in ("time_median_s", "time_999_s", "time_max_s")),
            f"{row['time_share'] * 100:.3f} %", f"{row['time_share_limit'] * 100:.1f} %"]


# Of README.md, in its order: what a row must have to be in the table, the table's columns, and the row's cells.
TABLES = {
    "recording": ("ratio", ["work", "native", "recorded", "ratio", "aim", "own CPU", "aim", "peak", "trace/s", "logged", "CPU", "aim", "trace"], cost_cells),
    "bytes": ("event_bytes", ["events", "messages", "bytes an event", "aim", "copies of files", "trace"], bytes_cells),
    "replay": ("replay_ratio", ["replay", "whole", "aim", "once", "set", "max"], replay_cells),
    "start": ("above_native_s", ["native", "recorded", "half of all", "more", "ratio", "aim"], start_cells),
    "pause": ("pause_max_s", ["bare fork", "median", "longest", "aim"], pause_cells),
    "times": ("time_share", ["events", "median", "99.9 % at most", "longest", "within 1 ms", "aim"], time_cells),
    "long": ("growth_bytes", ["recorded", "units", "events", "first quarter", "last quarter", "peak", "may grow by"], long_cells),
    "profile": ("profile", recording_profile.GROUPS, profile_cells),
    "least": ("least_ratio", ["events", "data", "bare calls", "copied once", "least", "recorded", "least", "replay"], least_cells),
}


def update_readme(path, rows):
    """Puts the rows into the tables between `<!-- table NAME -->` and `<!-- end -->`; those not measured this time stay."""
    text = path.read_text()
    for name, (needed, columns, cells_of) in TABLES.items():
        before, rest = text.split(f"<!-- table {name} -->\n", 1)
        old, after = rest.split("<!-- end -->", 1)
        lines = {line.split("|")[1].strip(): line for line in old.splitlines()[2:]}
        for row in rows:
            if needed in row:
                lines[row["row"]] = "| " + " | ".join([row["row"], *cells_of(row)]) + " |"
        head = ["| " + " | ".join(["row", *columns]) + " |", "| " + " | ".join(["---"] * (len(columns) + 1)) + " |"]
        text = f"{before}<!-- table {name} -->\n" + "\n".join([*head, *lines.values()]) + f"\n<!-- end -->{after}"
    path.write_text(text)
