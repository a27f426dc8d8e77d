"""papers.md from results: its tables between `<!-- table NAME -->` and `<!-- end -->`, and the figures beside it. The words around them stay."""
import itertools

import paper_values
import papers_plots
from tables import size_of

SIX = ("det", "mesh", "fft", "tester", "cell", "router")  # N's programs


def percent(value):
    return f"{value:.2f} %"


def between(pair):
    return f"{pair[0]} to {pair[1]} %"


def verdict(met):
    """None: measured, and nobody asks for it."""
    return "no goal" if met is None else "met" if met else "**missed**"


def table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def worst(rows, key):
    return max(rows, key=lambda row: row[key])


def at(results, clock, period, limit):
    """Of N's six programs, the row of figures 4 and 5 with this clock, T and C."""
    return [{"program": result["program"], "processes": result["processes"], **row} for result in results.get("critical_path", [])
            for row in result["rows"] if (row["clock"], row["period"], row["limit"]) == (clock, period, limit)]


def spread(values, shape):
    """Quartiles: the median, and the others in brackets."""
    first, median, third = (shape.format(value) for value in values)
    return f"{median} ({first} to {third})"


def host(results):
    told = results["host"]
    size = " Sizes of `--quick`: for trying the script, not for results." if told["quick"] else ""
    return [f"{told['cores']} processors, kernel {told['kernel']}, load {told['load']:.1f} at the start, {told['minutes']:.0f} minutes.{size}"]


def recordings(results):
    rows = []
    for row in results["recordings"]:
        seconds, megabytes = paper_values.RUNS.get(row["program"], ("", ""))
        unsure = f"{row['unsure']} units" if row["unsure"] else ""
        rows.append([row["program"], row["processes"], f"`{row['arguments']}`", f"{row['native_s']:.1f} s", f"{row['recorded_s']:.1f} s",
                     f"{row['run_s']:.2f} s", row["units"], f"{row['messages']:,}", size_of(row["message_bytes"]), unsure,
                     f"{seconds} s, {megabytes} MB" if seconds else ""])
    return table(["program", "processes", "arguments", "native", "recorded", "run", "units", "messages", "sent", "unsure", "paper (Z)"], rows)


def failures(results):
    if not results["failures"]:
        return ["All could be measured."]
    return table(["part", "what", "why not"], [[f"`{row['part']}`", row["what"], row["why"].replace("|", "/")] for row in results["failures"]])


def failed_in(results, *parts):
    missing = [row["what"] for row in results["failures"] if row["part"] in parts]
    return f"; failed: {', '.join(missing)}" if missing else ""


def goal(results, parts, claim, command, value, met):
    """One that could not be looked at everywhere is not met."""
    missing = failed_in(results, *parts)
    return [claim, f"`{command}`", value + missing, verdict(met if met is None else met and not missing)]


def goals(results):
    rows = [*path_goals(results), *measured_goals(results), *other_goals(results)]
    return table(["goal", "shown by", "measured", ""], rows)


def bounded(results, policy):
    return [row for row in results.get("bounded_path", []) if row["policy"] == policy]


def path_goals(results):
    made = [row for row in bounded(results, "critical-path") if row["program"] in SIX]
    yield from recorded_goals(results, "critical-path", made, "`critical-path`, C = 2T, T = 10 % of the run: at most 5 % logged on each of the six, as recorded")
    made = bounded(results, "fewest-bytes")
    yield from recorded_goals(results, "fewest-bytes", made, "`fewest-bytes` with the same limits: at most 5 % logged on each workload")
    yield from off_line_goals(results)
    if pairs := pairs_of(results):
        path, fewest = (sum(row["logged_bytes"] for row in rows) for rows in zip(*pairs))
        most = [max(row["max"] for row in rows) for rows in zip(*pairs)]
        yield goal(results, ["bounded_path"], "`fewest-bytes`: half of the bytes that `critical-path` logs, with the same longest replay, measured",
                   "papers.py bounded_path", f"{fewest / 1e3:.0f} kB of {path / 1e3:.0f} kB; longest {most[1]:.2f} C, not {most[0]:.2f} C",
                   2 * fewest <= path and most[1] <= 1.05 * most[0])


def recorded_goals(results, policy, made, claim):
    if not made:
        return
    most, router = worst(made, "logged_percent"), [row for row in made if row["program"] == "router"]
    shown = f"papers.py bounded_path ({policy})"
    yield goal(results, ["bounded_path"], claim, shown, f"most: {most['program']} {percent(most['logged_percent'])}", most["logged_percent"] <= 5)
    if router:
        yield goal(results, [], "... at most 1 % on router", shown, percent(router[0]["logged_percent"]), router[0]["logged_percent"] <= 1)
    over, row = sum(row["over"] for row in made), worst(made, "path_max_c")
    late = worst(made, "longest_t")["longest_t"]
    yield goal(results, ["bounded_path"], "... every interval's critical path at most C", shown,
               f"{over} of {sum(row['intervals'] for row in made)} above, longest {row['path_max_c']:.3f} C ({row['program']}); "
               f"longest interval {late:.2f} T", over == 0)


def off_line_goals(results):
    for clock, what, limits in (("real", "all checkpoints at the same moments, as in the paper: at most 5 % logged", (5, 1)),
                                ("cpu", "every process's checkpoints at its own CPU time", None)):
        evaluate, six = f"redrive evaluate T --clock {clock} --policy critical-path --checkpoint-period RUN/10 --critical-path RUN/5", at(results, clock, 0.1, 2.0)
        if not six:
            continue
        most, router = worst(six, "logged_percent"), [row for row in six if row["program"] == "router"]
        yield goal(results, ["critical_path"], f"`critical-path` off line, {what}", evaluate, f"most: {most['program']} {percent(most['logged_percent'])}",
                   limits and most["logged_percent"] <= limits[0])
        if router:
            yield goal(results, [], "... on router" + (f", at most {limits[1]} %" if limits else ""), evaluate, percent(router[0]["logged_percent"]),
                       limits and router[0]["logged_percent"] <= limits[1])
    if checked := results.get("checked"):
        over = sum(row["over"] for row in checked)
        alike = [row for row in checked if not row["births"]]
        apart = max((100 * abs(row["logged"] - row["evaluated"]) / max(1, row["evaluated"]) for row in alike), default=0)
        agree = f"in the {len(alike)} evaluations of recordings without forks, what it logs differs from evaluate's by at most {apart:.2f} %"
        yield goal(results, ["checked"], "every interval's critical path at most C, by either clock, checked by executions.py", "papers.py checked",
                   f"{over} of {sum(row['intervals'] for row in checked)} above, longest {worst(checked, 'path_max_c')['path_max_c']:.4f} C; {agree}",
                   over == 0 and apart < 1)


def pairs_of(results):
    """Of each program: as recorded with critical-path, and with fewest-bytes."""
    fewest = {row["program"]: row for row in bounded(results, "fewest-bytes")}
    return [(row, fewest[row["program"]]) for row in bounded(results, "critical-path") if row["program"] in fewest]


def fewest_bytes(results):
    rows = []
    for path, fewest in pairs_of(results):
        cells = [cell for row in (path, fewest) for cell in (
            f"{row['logged_bytes'] / 1e3:,.1f} kB, {percent(row['logged_percent'])} ({', '.join(map(percent, row['logged_percents']))}), "
            f"{row['checkpoints']}, {row['max']:.2f} C", best_possible(row))]
        rows.append([path["program"], f"{path['limit_s'] * 1e3:.0f} ms", *cells])
    return table(["program", "C", "`critical-path`: logged, checkpoints, longest replay", "best possible", "`fewest-bytes`", "best possible"], rows)


def best_possible(row):
    """The lower bound of what must be kept with the same checkpoints."""
    if row.get("least_bytes") is None:
        return ""
    return f"{row['least_bytes'] / 1e3:,.1f} kB" + ("" if row["least_solved"] else " or more")


def measured_goals(results):
    if loose := [{"program": result["program"], **row} for result in results.get("critical_path", []) for row in result["rows"]
                 if row["clock"] == "real" and row["limit"] >= 2]:
        average, most = worst(loose, "average_c"), worst(loose, "max_c")
        shown = "redrive evaluate T --clock real --schedule cyclic"
        yield goal(results, ["critical_path"], "`critical-path` off line, replays as in theorem 1: average at most 0.8 C for every T and C >= 2T", shown,
                   f"{average['average_c']:.2f} C ({average['program']})", average["average_c"] <= 0.8)
        yield goal(results, ["critical_path"], "... longest at most 2 C", shown, f"{most['max_c']:.2f} C ({most['program']})", most["max_c"] <= 2)
    if made := [row for row in bounded(results, "critical-path") if row["program"] in SIX]:
        average, most = worst(made, "simulated_average_c"), worst(made, "simulated_max_c")
        yield goal(results, ["bounded_path"], "... as recorded: average at most 0.8 C", "redrive evaluate T --schedule cyclic",
                   f"{average['simulated_average_c']:.2f} C ({average['program']})", average["simulated_average_c"] <= 0.8)
        yield goal(results, ["bounded_path"], "... longest at most 2 C", "redrive evaluate T --schedule cyclic",
                   f"{most['simulated_max_c']:.2f} C ({most['program']})", most["simulated_max_c"] <= 2)
        average, most = worst(made, "average"), worst(made, "max")
        yield goal(results, ["bounded_path"], "the same on the processors here, fewer than units, restoring included", "redrive replay --all --verify T",
                   f"average {average['average']:.2f} C ({average['program']}), longest {most['max']:.2f} C ({most['program']})", None)
    if made := results.get("makespan"):
        most = worst(made, "max")
        yield goal(results, ["makespan"], "`makespan`: longest replay at most 1.0 of the bound, every interval of every workload",
                   "redrive record --policy makespan --bound D; replay --all --verify",
                   f"{sum(row['late'] for row in made)} of {sum(row['redriven'] for row in made)} late, longest {most['max']:.2f} ({most['program']})",
                   most["max"] <= 1)


def other_goals(results):
    if points := results.get("breakpoints"):
        for policy, limit in (("mrt", 2), ("mrt-waits", 2), ("ros", None), ("ros-nt", None)):
            distance, time = (max(row[policy][key] for row in points) for key in ("distance_t", "time_t"))
            met = all(row[policy]["distance_t"] <= 2 and row[policy]["time_t"] <= breakpoint_limit(policy, row["units"]) for row in points)
            promise = "and time at most 2T" if limit else f"at most 2T, time at most {'nT' if policy == 'ros-nt' else '2nT'},"
            yield goal(results, ["breakpoints"], f"`{policy}`: replay distance {promise} for each of up to 1,000 arbitrary distributed breakpoints per workload",
                       "papers.py breakpoints", f"{sum(row[policy]['count'] for row in points)} breakpoints: distance {distance:.3f} T, time {time:.3f} T", met)
    if sets := [row for result in results.get("replay_set", []) for row in result["rows"] if "bound" in row]:
        over = sum(row["set_most"] > row["most"] for row in sets)
        yield goal(results, ["replay_set"], "`replay-set`: never above its bound", "redrive evaluate T --policy replay-set --set-bound N,...",
                   f"{over} of {len(sets)} sweeps above", over == 0)
        pairs = [(domino, other) for _, domino, other in papers_plots.equal_logging(results) if other]
        periods = sorted({domino["period"] for domino, _ in pairs})
        lower = [period for period in periods if sum(other["set_max"] - domino["set_max"] for domino, other in pairs if domino["period"] == period) < 0]
        each = sum(other["set_max"] < domino["set_max"] for domino, other in pairs)
        yield goal(results, ["replay_set"], "... at domino's logged % a lower maximum, as the paper finds in means over programs",
                   "redrive evaluate T --policy domino,replay-set --set-bound N,...",
                   f"means are lower at {len(lower)} of {len(periods)} T; single programs in {each} of {len(pairs)} cases", len(lower) == len(periods))


def figure_4(results):
    own = {row["program"]: row for row in at(results, "cpu", 0.1, 2.0)}
    rows = []
    for row in at(results, "real", 0.1, 2.0):
        program = row["program"]
        tight, flat = (next(other for other in at(results, "real", 0.1, limit) if other["program"] == program) for limit in (1.0, 4.0))
        paper = f"< {paper_values.LOGGED_ROUTER_PERCENT} %" if program == "router" else "1 to 2 %"
        rows.append([program, row["processes"], between(paper_values.LOGGED_AT_T_PERCENT), percent(tight["logged_percent"]),
                     f"< {paper_values.LOGGED_AT_2T_PERCENT} %", percent(row["logged_percent"]), percent(own[program]["logged_percent"]), paper,
                     percent(flat["logged_percent"])])
    return table(["program", "processes", "C = T: paper", "ours", "C = 2T: paper", "ours", "ours, own CPU time", "flat: paper", "ours (C = 4T)"], rows)


def figure_5(results):
    rows = []
    for result in results.get("critical_path", []):
        loose = [row for row in result["rows"] if row["limit"] >= 2 and row["clock"] == "real"]
        own = [row for row in result["rows"] if row["limit"] >= 2 and row["clock"] == "cpu"]
        cells = [f"{worst(rows_of_clock, key)[key]:.2f} C" for rows_of_clock in (loose, own) for key in ("average_c", "max_c")]
        rows.append([result["program"], f"< {paper_values.REPLAY_AVERAGE_C} C", cells[0], f"< {paper_values.REPLAY_MAX_C} C", cells[1],
                     f"{worst(loose, 'path_max_c')['path_max_c']:.2f} C", f"{worst(loose, 'multiplicity')['multiplicity']:.0f}", *cells[2:]])
    return table(["program", "average: paper", "ours, worst T and C >= 2T", "longest: paper", "ours", "longest path", "largest M",
                  "own CPU time, T = 10 %: average", "longest"], rows)


def figure_6(results):
    rows = []
    for result in results.get("skew", []):
        for period, paper in paper_values.SKEW_MORE_PERCENT.items():
            chosen = [row for row in result["rows"] if round(100 * row["period"]) == period and row["limit"] == 2]
            plain = next(row for row in chosen if row["skew"] == 0)
            full = next(row for row in chosen if row["skew"] == 1)
            rows.append([f"{period} %", f"at most {paper}", f"{full['logged_percent'] - plain['logged_percent']:.2f}",
                         f"< {paper_values.REPLAY_MAX_C} C", f"{worst(chosen, 'max_c')['max_c']:.2f} C"])
    return table(["T of the run", "more logged with S = T, points: paper", "ours (C = 2T)", "longest replay: paper", "ours, worst S"], rows)


def figures_2_3(results):
    rows = []
    for bound, paper in paper_values.SET_LOGGED_PERCENT.items():
        means = papers_plots.averaged(results, bound=float(bound))
        if not means:
            continue
        logged = [row["logged_percent"] for row in means]
        rows.append([f"{bound} ({16 * bound} of 16)", between(paper), f"{min(logged):.1f} to {max(logged):.1f} %",
                     f"about {paper_values.SET_AVERAGE[bound]:g}" if bound in paper_values.SET_AVERAGE else "in the figure only",
                     f"{worst(means, 'set_average')['set_average']:.2f}",
                     f"at most {paper_values.SET_MAX[bound]:g}" if bound in paper_values.SET_MAX else f"at most {bound}, by definition",
                     f"{worst(means, 'set_max')['set_max']:.2f}"])
    return table(["bound, intervals per process", "logged: paper", "ours, over T", "average: paper", "ours, most", "longest: paper", "ours, most"], rows)


def figures_4_5(results):
    rows = []
    for program, domino, other in papers_plots.equal_logging(results):
        mine = [f"{other['bound']:g}", percent(other["logged_percent"]), f"{other['set_average']:.2f}", f"{other['set_max']:.2f}"] if other else ["-"] * 4
        found = "none of the bounds logs so little" if not other else \
            "lower" if other["set_max"] < domino["set_max"] else "equal" if other["set_max"] == domino["set_max"] else "**higher**"
        rows.append([program, f"{100 * domino['period']:.0f} %", percent(domino["logged_percent"]), f"{domino['set_average']:.2f}",
                     f"{domino['set_max']:.2f}", *mine, "lower", found])
    return table(["program", "T", "domino logs", "average", "longest", "bound", "replay-set logs", "average", "longest", "longest: paper", "ours"], rows)


def deadlocks(results):
    rows = []
    for result in results.get("replay_set", []):
        for name in ("domino", "replay-set"):
            found = sorted((row for row in result.get("deadlocks", []) if row["name"] == name), key=lambda row: row["period"])
            rows.append([result["program"], name, *(f"{row['deadlocks']} of {row['replays']}" for row in found), sum(row["sets_deadlocks"] for row in found)])
    periods = sorted({row["period"] for result in results.get("replay_set", []) for row in result.get("deadlocks", [])})
    return table(["program", "recorded with", *(f"T = {100 * period:.0f} %" for period in periods), "with replay sets, all T"], rows)


def breakpoint_limit(policy, units):
    """The longest replay of a breakpoint of so many units, in T."""
    return {"mrt": 2, "mrt-waits": 2, "ros": 2 * units, "ros-nt": units}[policy]


def placement(results):
    rows = []
    for row in results.get("placement", []):
        cells = [f"{percent(made['logged_percent'])}, {made['logged_bytes'] / 1e3:,.1f} kB, {made['checkpoints']}, {made['path_max_c']:.2f} C"
                 for made in (row["aligned"], row["independent"])]
        rows.append([row["program"], row["processes"], f"{row['period_s'] * 1e3:.0f} ms", *cells])
    return table(["program", "processes", "T", "aligned: logged, checkpoints, longest path", "independent"], rows)


def table_7_1(results):
    found, rows = {(row["program"], row["processes"]): row for row in results.get("mrt", [])}, []
    for (program, processes), (run_s, interval_s, coordination_s, messages, logged, share) in paper_values.MRT.items():
        row = found.get((program, processes))
        ours = [f"{row['period_s'] * 1e3:.1f} ms", f"{row['messages']:,}", f"{row['mrt']['logged_messages']:,}", percent(row["mrt"]["logged_percent"]),
                percent(row["checked_percent"]), *(percent(row[policy]["logged_percent"]) for policy in ("ros", "ros-nt", "own", "mrt-waits"))] \
            if row else ["not recorded"] + [""] * 8
        rows.append([program, processes, f"{run_s} s / {interval_s} s", f"{coordination_s:.3f} s", f"{messages:,}", f"{logged:,}", f"{share} %", *ours])
    return table(["program", "processes", "run / T: paper", "coordination", "messages", "logged", "%", "T: ours", "messages", "logged", "%", "checker %",
                  "`ros` %", "`ros-nt` %", "own CPU time: `mrt` %", "`mrt-waits` %"], rows)


def stored_sets(results):
    rows = []
    for row in results.get("stored_sets", []):
        planning = "not measured" if row["planning_s"] is None else f"{row['planning_s'] * 1e6:,.0f} us"
        rows.append([row["program"], row["intervals"], f"{row['set_average']:.2f}", f"{row['stored_set_bytes']:,}",
                     f"{100 * row['stored_set_bytes'] / row['trace_bytes']:.4f} %", row["stored_sets_different"],
                     f"{row['stored_set_load_s'] * 1e6:.1f} us", f"{row['set_search_s'] * 1e6:.1f} us", planning])
    return table(["program", "intervals", "set: average, per unit", "stored: bytes", "of the trace", "not what a search finds", "planned with the stored set",
                  "searched for in memory", "searched for in the trace"], rows)


def breakpoints(results):
    rows = []
    for row in results.get("breakpoints", []):
        for policy in ("mrt", "mrt-waits", "ros", "ros-nt"):
            one = row[policy]
            rows.append([row["program"], policy, f"{one['logged']:,} of {one['messages']:,}", f"{one['by_redrive']:,}",
                         spread([100 * share for share in one["spreads"]], "{:.0f} %"), spread(one["distances_t"], "{:.2f} T"), f"{one['distance_t']:.2f} T", "2 T",
                         spread(one["times_t"], "{:.2f} T"), f"{one['time_t']:.2f} T", f"{breakpoint_limit(policy, row['units'])} T"])
    return table(["program", "policy", "logged: checker", "redrive", "extent: median (quartiles)", "distance", "longest", "promise: at most", "time", "longest",
                  "promise: at most"], rows)


def policies(results):
    found = results.get("policies", [])
    if not found:
        return []
    names = [row["name"] for row in found[0]["rows"]]
    return table(["program", *names], [[result["program"], *(f"{row['logged_percent']:.1f} %, {row['max_c']:.2f} C" for row in result["rows"])]
                                       for result in found])


def checked(results):
    rows = []
    for row in results.get("checked", []):
        rows.append([row["program"], row["clock"], row["intervals"], row["over"], f"{row['path_max_c']:.4f} C", f"{row['evaluated_path_max_c']:.4f} C",
                     row["logged"], row["evaluated"], row["births"], percent(row["logged_percent"]), f"{row['average_c']:.2f} C", f"{row['max_c']:.2f} C"])
    return table(["program", "clock", "intervals", "above C", "longest path: checker", "evaluate", "logged: checker", "evaluate", "forks", "%",
                  "average replay", "longest"], rows)


def measured(results):
    rows = []
    for row in results.get("bounded_path", []):
        rows.append([row["program"], f"{row['policy']}, C = {row['limit_s'] * 1e3:.0f} ms", *replayed(row, " C"), f"{row['simulated_average_c']:.2f} C",
                     f"{row['simulated_max_c']:.2f} C", f"{row['path_max_c']:.3f} C", f"{row['longest_t']:.2f} T"])
    for row in results.get("makespan", []):
        rows.append([row["program"], f"makespan, bound {row['bound_s'] * 1e3:.0f} ms", *replayed(row, ""), "", "", "", ""])
    return table(["program", "policy", "logged", "intervals", "average", "median (quartiles)", "longest", "above 1", "simulated average", "longest", "longest path",
                  "longest interval"], rows)


def replayed(row, unit):
    return [percent(row["logged_percent"]), row["redriven"], f"{row['average']:.2f}{unit}", spread(row["quartiles"], f"{{:.2f}}{unit}"),
            f"{row['max']:.2f}{unit}", row["late"]]


def record_sizes(results):
    found, rows = {(row["program"], row["technique"]): row["points"] for row in results.get("record_sizes", [])}, []
    for program, technique in itertools.product(paper_values.MESSAGE_BYTES, paper_values.RECORD_BYTES):
        paper = paper_values.RECORD_BYTES[technique](paper_values.MESSAGE_BYTES[program])
        ours = ["not measured", ""]
        if points := found.get((program, technique)):
            (first, least), (last, most) = points[0], points[-1]
            ours = [f"{(most - least) / (last - first):.1f}" if last > first else "-", f"{most / last:.1f}"]
        rows.append([program, technique, paper, *ours])
    return table(["program", "technique", "bytes of a record: paper", "bytes for each further message", "all bytes by messages, most messages"], rows)


def factor(values, plain):
    """Quartiles of times or sizes, as factors of the median of the plain run's."""
    return spread([value / plain[1] for value in values], "{:.2f}")


def run_times(results):
    found, rows = {(row["program"], row["technique"], row["size"]): row for row in results.get("run_times", [])}, []
    for key in itertools.product(paper_values.MESSAGE_BYTES, paper_values.RUN_TIME, ("paper's", "long")):
        recording, replay = paper_values.RUN_TIME[key[1]][key[0]]
        ours = ["", "not measured", "not measured"]
        if row := found.get(key):
            ours = [spread([value * 1e3 for value in row["native"]], "{:.0f} ms"), factor(row["recorded"], row["native"]),
                    factor(row["replayed"], row["native"])]
        rows.append([*key, ours[0], recording, ours[1], replay or "< 1", ours[2]])
    return table(["program", "technique", "size", "plain run", "recording: paper", "ours", "replay: paper", "ours"], rows)


def memory(results):
    found, rows = {(row["program"], row["technique"]): row for row in results.get("memory", [])}, []
    for technique, program in itertools.product(paper_values.MEMORY, paper_values.MESSAGE_BYTES):
        recording, replay = paper_values.MEMORY[technique][program]
        ours = ["not measured"] + [""] * 4
        if row := found.get((program, technique)):
            ours = [size_of(row["native"][1]), size_of(row["recorded"][1]), factor(row["recorded"], row["native"]), size_of(row["replayed"][1]),
                    factor(row["replayed"], row["native"])]
        rows.append([program, technique, ours[0], ours[1], recording, ours[2], ours[3], replay, ours[4]])
    return table(["program", "technique", "plain run", "recording", "factor: paper", "ours", "replay", "factor: paper", "ours"], rows)


def table_9(results):
    """Ours: means over the four programs."""
    def ratio(key):
        return lambda row: row[key][1] / row["native"][1]

    measures = {"Trace size": ("record_sizes", lambda row: row["points"][-1][1] / row["points"][-1][0]),
                "Recording time overhead": ("run_times", ratio("recorded")), "Replay time overhead": ("run_times", ratio("replayed")),
                "Recording memory overhead": ("memory", ratio("recorded")), "Replay memory overhead": ("memory", ratio("replayed"))}
    rows = []
    for criterion, paper in paper_values.TABLE_9.items():
        part, value = measures[criterion]
        chosen = [row for row in results.get(part, []) if row.get("size") != "paper's"]
        found = [[value(row) for row in chosen if row["technique"] == technique] for technique in "DSR"]
        ours = [f"{sum(values) / len(values):.2f}" if values else "not measured" for values in found]
        rows.append([criterion, *(cell for pair in zip(paper, ours) for cell in pair)])
    return table(["criterion", "D: paper", "ours", "S: paper", "ours", "R: paper", "ours"], rows)


# Each table's part. Where it has none, its rows come from several, and their first two cells say which they are.
TABLES = {host: "host", recordings: "recordings", failures: None, goals: None, checked: "checked", fewest_bytes: "bounded_path", measured: None,
          policies: "policies", figure_4: "critical_path", figure_5: "critical_path", figure_6: "skew", figures_2_3: "replay_set",
          figures_4_5: "replay_set", deadlocks: "replay_set", stored_sets: "stored_sets", placement: "placement", table_7_1: "mrt",
          breakpoints: "breakpoints", record_sizes: "record_sizes", run_times: "run_times", memory: "memory", table_9: "run_times"}


def key_of(row):
    return [cell.strip().split(",")[0] for cell in row.split("|")[1:3]]


def brought_up_to_date(old, new, measured_parts):
    """The rows of a page's table with those that were measured now. Rows with other columns do not fit, and stay as they are until there are new ones."""
    if len(old) < 3:
        return new
    if old[0].count("|") != new[0].count("|"):
        return new if len(new) > 2 else old
    fresh = {tuple(key_of(row)): row for row in new[2:]}
    kept = [row for row in old[2:] if key_of(row)[0].strip("`") not in measured_parts]
    rows = [fresh.pop(tuple(key_of(row)), row) for row in kept]
    return [*new[:2], *rows, *fresh.values()]


def write(template, target, drawings, results):
    """Of results that are not of all parts: the tables and rows that they bring up to date."""
    text, parts = template.read_text(), results.get("only")
    for make, part in TABLES.items():
        if parts and part and part not in parts:
            continue
        before, rest = text.split(f"<!-- table {make.__name__} -->\n", 1)
        old, after = rest.split("<!-- end -->", 1)
        rows = make(results)
        if parts and not part:
            rows = brought_up_to_date(old.strip().split("\n"), rows, parts)
        text = f"{before}<!-- table {make.__name__} -->\n" + "\n".join(rows) + f"\n<!-- end -->{after}"
    papers_plots.write(target / "papers", drawings, results)
    (target / "papers.md").write_text(text)
