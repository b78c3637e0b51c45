"""One picture of what the suite found: times of fits beside those of peers, and growth with the number of rows."""

from __future__ import annotations

import json
from pathlib import Path

MARKS = {"ep": "o", "qp": "D", "laplace": "s", "vb": "^"}
OURS, THEIRS = "#0b5fa5", ("#d1495b", "#edae49", "#66a182", "#8d6a9f", "#7a7a7a")


def draw(out: Path) -> None:
    """Draw what there is of peers.json and scaling.json into bench.png and bench.svg."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    _fits(left, _read(out / "peers.json"))
    _growth(middle, right, _read(out / "scaling.json"))
    for suffix in ("png", "svg"):
        figure.savefig(out / f"bench.{suffix}", dpi=150)
    pyplot.close(figure)
    print(f"\npicture: {out / 'bench.png'}, {out / 'bench.svg'}")


def _read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {"rows": [], "exponents": {}}


def _fits(axes, results: dict) -> None:
    """Warm seconds of a fit, one column for each data set, one mark for each program and method."""
    rows = [row for row in results["rows"] if "warm" in row]
    if not rows:
        axes.set_axis_off()
        return
    sets, programs = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "program"))
    colours = dict(zip((p for p in programs if p != "quantprop"), THEIRS, strict=False)) | {"quantprop": OURS}
    series = list(dict.fromkeys((row["program"], row["method"]) for row in rows))
    for i, (program, method) in enumerate(series):
        mine = [row for row in rows if (row["program"], row["method"]) == (program, method)]
        at = [sets.index(row["set"]) + 0.7 * (i + 0.5) / len(series) - 0.35 for row in mine]
        axes.plot(at, [row["warm"] for row in mine], MARKS[method], color=colours[program], label=f"{program} {method}")
    axes.set(yscale="log", ylabel="seconds of a warm fit, one core", title="Learning and inference")
    axes.set_xticks(range(len(sets)), sets)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _growth(times, memory, results: dict) -> None:
    """Seconds and memory against the number of rows, on logarithmic axes."""
    rows, found = results["rows"], results["exponents"]
    if not rows:
        times.set_axis_off(), memory.set_axis_off()
        return
    n = [row["n"] for row in rows]
    for key, name, mark in (("infer", "infer", "o"), ("evaluation", "an evaluation of fit", "s")):
        growth = f", n^{found[name]:.2f}" if name in found else ""
        times.plot(n, [row[key] for row in rows], f"{mark}-", label=name + growth)
    memory.plot(n, [row["memory_fit"] / 1024 for row in rows], "o-", label="peak of the process")
    memory.plot(n, [8 * k**2 / 2**30 for k in n], "k:", label="one n × n matrix")
    times.set(ylabel="seconds, EP, one core", title="Time")
    memory.set(ylabel="GiB", title="Memory")
    for axes in (times, memory):
        axes.set(xscale="log", yscale="log", xlabel="rows")
        axes.grid(alpha=0.3)
        axes.set_xticks(n, [str(k) for k in n])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.legend(fontsize=8)
