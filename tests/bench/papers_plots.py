"""The figures of papers.md, as small pictures for the page and as SVG: ours, and what the papers' texts say of theirs, dashed or shaded."""
import io

import matplotlib
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

import paper_values  # noqa: E402

plt.rcParams.update({"svg.hashsalt": "redrive", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                     "legend.fontsize": 8})
PAPER = {"color": "black", "linestyle": "--", "linewidth": 1}
LINES = ["tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown"]


def panels(count, columns, width=3.3, height=2.6):
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    axes = list(axes.flat)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes


def curve(axis, rows, x, y, number, label, marker="o"):
    points = sorted((row[x], row[y]) for row in rows)
    axis.plot(*zip(*points), marker=marker, markersize=3.5, linewidth=1.3, color=LINES[number], label=label)


def legend_below(figure, axis, columns):
    handles, labels = axis.get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0), ncol=columns)


def by_period(results, curves, heading, papers):
    """Figures 4 and 5 of N: a panel for each program, and in it for each T one of `curves`: (value, clock, T, label)."""
    figure, axes = panels(len(results), 3)
    for axis, result in zip(axes, results):
        for number, (y, clock, period, label) in enumerate(curves):
            rows = [row for row in result["rows"] if row["clock"] == clock and row["period"] == period]
            curve(axis, rows, "limit", y, number, label, marker="o" if clock == "real" else "s")
        papers(axis, result["program"])
        axis.set(title=result["program"], xlabel="C, in T", ylabel=heading)
        axis.set_ylim(bottom=0)
    legend_below(figure, axes[0], 3)
    return figure


def curves_of(results, y):
    periods = sorted({row["period"] for result in results for row in result["rows"]})
    return [(y, "real", period, f"T = {100 * period:.0f} % of the run") for period in periods]


def logged_bound(axis, program):
    least, most = paper_values.LOGGED_AT_T_PERCENT
    axis.plot([1, 1], [least, most], color="black", linewidth=4, alpha=0.5, solid_capstyle="butt", label="paper: range at C = T")
    axis.plot([2, 4], [paper_values.LOGGED_AT_2T_PERCENT] * 2, **PAPER, label="paper: less than this from C = 2T on")


def average_bound(axis, program):
    axis.axhline(paper_values.REPLAY_AVERAGE_C, **PAPER, label="paper: average always below this")
    axis.axhline(paper_values.REPLAY_MAX_C, color="black", linestyle=":", linewidth=1, label="paper: longest always below this")


def n_figure_4(results):
    rows = results["critical_path"]
    own = [("logged_percent", "cpu", 0.1, "T = 10 %, each process by its own CPU time")]
    return by_period(rows, curves_of(rows, "logged_percent") + own, "messages logged, %", logged_bound)


def n_figure_5(results):
    rows = results["critical_path"]
    longest = [("max_c", "real", 0.1, "longest, T = 10 %")]
    return by_period(rows, curves_of(rows, "average_c") + longest, "replay, in C", average_bound)


def n_figure_6(results):
    figure, axes = panels(2, 2, 4.2, 3.2)
    rows = [row for row in results["skew"][0]["rows"] if abs(row["period"] - 0.1) < 1e-9]
    for axis, y, heading in ((axes[0], "logged_percent", "messages logged, %"), (axes[1], "max_c", "longest replay, in C")):
        for number, limit in enumerate(sorted({row["limit"] for row in rows})):
            curve(axis, [row for row in rows if row["limit"] == limit], "skew", y, number, f"C = {limit:g} T")
        axis.set(xlabel="skew S, in T", ylabel=heading)
        axis.set_ylim(bottom=0)
    axes[0].set_title("(a) tester, T = 10 % of the run")
    axes[1].set_title("(b) the same")
    axes[1].axhline(paper_values.REPLAY_MAX_C, **PAPER, label="paper: typically less than this")
    axes[1].set_ylim(top=1.1 * max(paper_values.REPLAY_MAX_C, *(row["max_c"] for row in rows)))
    legend_below(figure, axes[1], 5)
    return figure


def averaged(results, **wanted):
    """Over programs, as in the paper: by period, the means of rows that match."""
    groups = {}
    for result in results["replay_set"]:
        for row in result["rows"]:
            if all(row.get(key) == value for key, value in wanted.items()):
                groups.setdefault(row["period"], []).append(row)
    return [{"percent": 100 * period, **{key: sum(row[key] for row in rows) / len(rows) for key in ("logged_percent", "set_average", "set_max")}}
            for period, rows in sorted(groups.items())]


SET_CURVES = {0.5: "bound 0.5 (paper: 8)", 1.0: "1 (16)", 1.5: "1.5 (24)", 2.0: "2 (32)", 2.5: "2.5 (40)"}


def z_figure_2(results):
    figure, axes = panels(2, 2, 4.2, 3.4)
    for axis, y, heading, paper in ((axes[0], "set_average", "average", paper_values.SET_AVERAGE), (axes[1], "set_max", "longest", paper_values.SET_MAX)):
        for number, (bound, label) in enumerate(SET_CURVES.items()):
            curve(axis, averaged(results, bound=bound), "percent", y, number, label)
        curve(axis, averaged(results, policy="none"), "percent", y, 5, "no logging", marker="s")
        axis.axhline(paper[2], **PAPER, label="paper's text: bound 2")
        axis.set(xlabel="T, % of the run", ylabel="intervals to replay, per process", title=f"replay set: {heading}", yscale="log")
        axis.yaxis.set_major_formatter("{x:g}")
    legend_below(figure, axes[0], 4)
    return figure


def z_figure_3(results):
    figure, axes = panels(1, 1, 5.5, 3.4)
    for number, (bound, label) in enumerate(SET_CURVES.items()):
        curve(axes[0], averaged(results, bound=bound), "percent", "logged_percent", number, label)
    for bound, colour in ((1, LINES[1]), (2, LINES[3])):
        axes[0].axhspan(*paper_values.SET_LOGGED_PERCENT[bound], alpha=0.2, color=colour, label=f"paper's text: bound {bound}")
    axes[0].set(xlabel="T, % of the run", ylabel="messages logged, %")
    axes[0].set_ylim(bottom=0)
    legend_below(figure, axes[0], 4)
    return figure


def equal_logging(results):
    """Of each program and period: domino, and the replay-set with the least bound that logs no more."""
    pairs = []
    for result in results["replay_set"]:
        for domino in (row for row in result["rows"] if row["policy"] == "domino"):
            sets = [row for row in result["rows"] if row["period"] == domino["period"] and "bound" in row
                    and row["logged_percent"] <= domino["logged_percent"]]
            pairs.append((result["program"], domino, min(sets, key=lambda row: row["bound"], default=None)))
    return pairs


def mean_of(rows, key):
    return sum(row[key] for row in rows) / len(rows)


def z_figure_4(results):
    figure, axes = panels(2, 2, 4.2, 3.2)
    pairs = [pair for pair in equal_logging(results) if pair[2]]
    for axis, key, heading in ((axes[0], "set_average", "average"), (axes[1], "set_max", "longest")):
        for number, (label, which) in enumerate((("domino", 1), ("replay-set, logging no more", 2))):
            rows = [{"percent": 100 * period, key: mean_of([pair[which] for pair in pairs if pair[1]["period"] == period], key)}
                    for period in sorted({pair[1]["period"] for pair in pairs})]
            curve(axis, rows, "percent", key, number, label)
        axis.set(xlabel="T, % of the run", ylabel="intervals to replay, per process", title=heading)
        axis.set_ylim(bottom=0)
    legend_below(figure, axes[0], 3)
    return figure


def z_figure_5(results):
    figure, axes = panels(1, 1, 5.5, 3.2)
    curve(axes[0], averaged(results, policy="domino"), "percent", "logged_percent", 0, "domino")
    curve(axes[0], averaged(results, bound=paper_values.DOMINO_MAX), "percent", "logged_percent", 1, "replay-set, bound 2.5 (paper: 40 of 16 processes)")
    axes[0].axhline(paper_values.DOMINO_LOGGED_PERCENT, **PAPER, label="paper's text: domino, about")
    axes[0].set(xlabel="T, % of the run", ylabel="messages logged, %")
    axes[0].set_ylim(bottom=0)
    legend_below(figure, axes[0], 3)
    return figure


def m_figure_7_1(results):
    figure, axes = panels(1, 1, 10, 3.6)
    keys = list(paper_values.MRT)
    found = {(row["program"], row["processes"]): row for row in results["mrt"]}
    places = range(len(keys))
    bars = [("MRT, paper (table 7.1)", "black", [paper_values.MRT[key][5] for key in keys])]
    for number, (policy, label) in enumerate((("mrt", "MRT, ours"), ("ros", "ROS, derived"), ("own", "MRT, each process by its own CPU time"),
                                              ("mrt-waits", "mrt-waits, the same"))):
        bars.append((label, LINES[number], [found[key][policy]["logged_percent"] if key in found else 0 for key in keys]))
    for number, (label, colour, values) in enumerate(bars):
        axes[0].bar([place + 0.16 * (number - 2) for place in places], values, 0.14, color=colour, label=label)
    for place, key in enumerate(keys):
        if key not in found:
            axes[0].text(place + 0.1, 1, "not recorded", rotation=90, ha="center", va="bottom", fontsize=7)
    axes[0].set_xticks(list(places), [f"{program}\n{count}" for program, count in keys])
    axes[0].set(ylabel="messages logged, %", xlabel="program, processes")
    legend_below(figure, axes[0], 4)
    return figure


TECHNIQUES = {"D": "data (policy all)", "R": "receiver-based (policy none)", "S": "sender-based (policy none, total order)"}


def d_figure_21(results):
    programs = list(paper_values.MESSAGE_BYTES)
    figure, axes = panels(len(programs), 2, 4, 2.8)
    for axis, program in zip(axes, programs):
        for number, technique in enumerate("DRS"):
            for row in results["record_sizes"]:
                if (row["program"], row["technique"]) == (program, technique):
                    points = [{"messages": x, "kb": y / 1e3} for x, y in row["points"]]
                    curve(axis, points, "messages", "kb", number, f"ours, {TECHNIQUES[technique]}")
                    record = paper_values.RECORD_BYTES[technique](paper_values.MESSAGE_BYTES[program])
                    axis.plot([0, points[-1]["messages"]], [0, record * points[-1]["messages"] / 1e3], color=LINES[number], linestyle="--", linewidth=1,
                              label=f"paper, {technique}: messages x record of table 6")
        axis.set(title=program, xlabel="messages", ylabel="event logs, KB")
        axis.set_ylim(bottom=0)
    legend_below(figure, axes[0], 2)
    return figure


def d_factors(results, part, technique, paper, sizes, what):
    """A panel for recordings, and one for replays; medians, and lines from the first to the third quartile."""
    programs = list(paper_values.MESSAGE_BYTES)
    figure, axes = panels(2, 2, 4.4, 3)
    rows = {(row["program"], row.get("size")): row for row in results[part] if row["technique"] == technique}
    for place, (axis, heading, key) in enumerate(((axes[0], "recording", "recorded"), (axes[1], "replay", "replayed"))):
        bars = [("paper", "black", [[paper[technique][program][place] or 0] * 3 for program in programs])]
        for number, (size, label) in enumerate(sizes.items()):
            values = [[value / rows[program, size]["native"][1] for value in rows[program, size][key]] if (program, size) in rows else [0] * 3
                      for program in programs]
            bars.append((label, LINES[number], values))
        for number, (label, colour, values) in enumerate(bars):
            places = [index + 0.27 * (number - 1) for index in range(len(programs))]
            axis.bar(places, [median for _, median, _ in values], 0.25, color=colour, label=label)
            axis.vlines(places, [first for first, _, _ in values], [third for _, _, third in values], color="grey")
        less = not any(median for _, median, _ in bars[0][2])
        axis.axhline(1, **(PAPER | {"label": "paper: less than the run"} if less else {"color": "grey", "linewidth": 1}))
        axis.set_xticks(range(len(programs)), programs)
        axis.set(title=f"{TECHNIQUES[technique].split(' (')[0]}: {heading}", ylabel=f"factor of the plain run's {what}")
    legend_below(figure, axes[1], 4)
    return figure


def d_times(results, technique):
    return d_factors(results, "run_times", technique, paper_values.RUN_TIME, {"paper's": "ours, paper's size", "long": "ours, long size"}, "time")


def d_memory(results, technique):
    return d_factors(results, "memory", technique, paper_values.MEMORY, {None: "ours, long size"}, "memory")


def d_figure_22(results):
    return d_times(results, "D")


def d_figure_23(results):
    return d_times(results, "S")


def d_figure_24(results):
    return d_times(results, "R")


def d_figure_25(results):
    return d_memory(results, "D")


def d_figure_26(results):
    return d_memory(results, "S")


def d_figure_27(results):
    return d_memory(results, "R")


def long_replays(results):
    """Ours: measured against their limits."""
    figure, axes = panels(2, 2, 4.6, 3)
    for axis, part, unit, heading in ((axes[0], "bounded_path", "C", "fewest-bytes, C = 2T"), (axes[1], "makespan", "bound", "makespan, --bound")):
        rows = [row for row in results[part] if row.get("policy", "fewest-bytes") == "fewest-bytes"]
        places = range(len(rows))
        axis.bar([place - 0.2 for place in places], [row["average"] for row in rows], 0.38, color=LINES[0], label="average")
        axis.bar([place + 0.2 for place in places], [row["max"] for row in rows], 0.38, color=LINES[1], label="longest")
        axis.axhline(2 if unit == "C" else 1, **PAPER, label="limit of the longest")
        axis.set_xticks(list(places), [row["program"] for row in rows], rotation=60)
        axis.set(title=f"{heading}: measured here", ylabel=f"replay of an interval, in {unit}", yscale="log")
        axis.set_ylim(bottom=0.1)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
    legend_below(figure, axes[0], 3)
    return figure


# What is drawn, and the part of the results that it needs.
FIGURES = {"n4": (n_figure_4, "critical_path"), "n5": (n_figure_5, "critical_path"), "n6": (n_figure_6, "skew"), "z2": (z_figure_2, "replay_set"),
           "z3": (z_figure_3, "replay_set"), "z4": (z_figure_4, "replay_set"), "z5": (z_figure_5, "replay_set"), "m71": (m_figure_7_1, "mrt"),
           "d21": (d_figure_21, "record_sizes"), "d22": (d_figure_22, "run_times"), "d23": (d_figure_23, "run_times"),
           "d24": (d_figure_24, "run_times"), "d25": (d_figure_25, "memory"), "d26": (d_figure_26, "memory"),
           "d27": (d_figure_27, "memory"), "measured": (long_replays, "makespan")}


def write(pictures, drawings, results):
    """Of the figures, those whose part was measured: each as a small PNG file in one directory and as SVG in the other."""
    for directory in (pictures, drawings):
        directory.mkdir(parents=True, exist_ok=True)
    for name, (draw, part) in FIGURES.items():
        if results.get(part):
            figure = draw(results)
            figure.savefig(drawings / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=54, bbox_inches="tight")
            Image.open(picture).convert("RGB").quantize(32).save(pictures / f"{name}.png", optimize=True)
            plt.close(figure)
