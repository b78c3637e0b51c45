"""Tables of docs/background/accuracy.md, between its markers, and its pictures, from stored rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from quantprop import plots
from studies.shared.pages import DOCS, between, table
from tests.reference import cases
from tests.reference.truths import Truth

LOOKS = {
    "EP": (plots.BLUE, "o"), "QP": (plots.RED, "s"), "power EP ½": (plots.GREEN, "^"), "QP p = 1": (plots.ORANGE, "D"),
    "VB": (plots.GREY, "v"), "Laplace": (plots.BLACK, "x"),
}  # fmt: skip
SETTINGS = {"learned": "learned", "times-10": "× 10", "times-100": "× 100"}
STYLE = {"svg.hashsalt": "quantprop", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}

Row = dict[str, str]


def write(errors: list[Row], tails: list[Row], calibration: list[Row], truths: list[Truth]) -> None:
    """Renew the page's tables and pictures."""
    page = DOCS / "background/accuracy.md"
    text = page.read_text(encoding="utf-8")
    real = [row for row in errors if row["dataset"] not in cases.GENERATED]
    generated = [row for row in errors if row["dataset"] in cases.GENERATED]
    for name, rows in {
        "truths": truth_table(truths),
        "real": error_table(real, ("EP", "QP"), "probability_max"),
        "methods": method_table(real),
        "tails": tail_table(tails),
        "generated": error_table(generated, ("EP", "QP"), "density_max"),
        "calibration": calibration_table(calibration),
    }.items():
        text = between(text, name, rows)
    page.write_text(text, encoding="utf-8")
    with plt.rc_context(STYLE):
        _picture("accuracy-variances", lambda axes: ratio_panels(axes, real))
        _picture("accuracy-probabilities", lambda axes: probability_panels(axes, real))


def number(text: str, style: str) -> str:
    """A number of a row, or a dash where there is none."""
    return format(float(text), style).replace("-", "−") if text else "–"


def plain(value: float) -> str:
    """Three digits."""
    if value >= 1e5:
        return f"{value:.1e}".replace("e+0", "e")
    return f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"


def truth_table(truths: Sequence[Truth]) -> str:
    head = ("data", "setting", "rows", "variance", "lengthscale", "largest R-hat", "effective draws",
            "s.e. of variances, %", "s.e. of probabilities", "log evidence")  # fmt: skip
    rows = [
        (
            t.dataset, SETTINGS[t.setting], str(len(t.posterior_mean.value)), plain(t.variance), plain(t.lengthscale),
            f"{t.rhat:.3f}", f"{t.effective:,.0f}",
            f"{100 * np.max(t.posterior_variance.standard_error / t.posterior_variance.value):.2f}",
            f"{np.max(t.probability.standard_error):.5f}", f"−{-t.evidence:.3f} ± {t.evidence_error:.3f}",
        )
        for t in truths
    ]  # fmt: skip
    return table(head, rows)


def error_table(rows: list[Row], methods: Sequence[str], probability: str) -> str:
    """A line for each case: both methods side by side."""
    if not rows:
        return "No reference runs of these are stored yet.\n"
    head = ["data", "setting"]
    for title in ("mean, rms", "variance ratio", "range", "p(y) error", "evidence"):
        head += [f"{title} {method}" for method in methods]
    lines = []
    for dataset, setting in dict.fromkeys((row["dataset"], row["setting"]) for row in rows):
        by = {r["method"]: r for r in rows if (r["dataset"], r["setting"]) == (dataset, setting)}
        line = [dataset, SETTINGS[setting]]
        for fields, style in ((("mean_rms",), ".3f"), (("ratio_median",), ".3f"), (("ratio_low", "ratio_high"), ".2f"),
                              ((probability,), ".4f"), (("evidence",), "+.3f")):  # fmt: skip
            line += ["–".join(number(by[m][f], style) for f in fields) for m in methods]
        lines.append(line)
    return table(head, lines)


def method_table(rows: list[Row]) -> str:
    """Every method over the classification sets, by setting: medians over sets of what each set's errors are."""
    head = ("setting", "method", "converged", "mean, rms", "variance ratio", "its range", "largest p error", "evidence")
    lines = []
    for setting, title in SETTINGS.items():
        for method in LOOKS:
            all_of = [r for r in rows if (r["setting"], r["method"]) == (setting, method) and r["dataset"] != "mining"]
            usable = [r for r in all_of if r["status"] == "converged"]
            if not usable:
                lines.append([title, method, f"0 of {len(all_of)}", *["–"] * 5])
                continue

            def middle(field: str, rows: list[Row] = usable) -> float:
                return float(np.median([float(r[field]) for r in rows]))

            ends = f"{middle('ratio_low'):.2f}–{middle('ratio_high'):.2f}"
            lines.append([
                title, method, f"{len(usable)} of {len(all_of)}", f"{middle('mean_rms'):.3f}",
                f"{middle('ratio_median'):.3f}", ends, f"{middle('probability_max'):.4f}",
                number(str(middle("evidence")), "+.2f"),
            ])  # fmt: skip
    return table(head, lines)


def factor(value: float) -> str:
    """A ratio, from far below 1 to far above."""
    if value < 0.01:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def tail_table(rows: list[Row]) -> str:
    """Methods' small probabilities over the true ones, by size and setting: median and range over test inputs."""
    methods = ("EP", "QP", "VB", "Laplace")
    lines = []
    for setting, title in SETTINGS.items():
        for low, high, size in (
            (1e-3, 1e-2, "0.001 to 0.01"),
            (1e-4, 1e-3, "1e-4 to 0.001"),
            (0.0, 1e-4, "below 1e-4"),
        ):
            chosen = [r for r in rows if r["setting"] == setting and low <= float(r["truth"]) < high]
            line = [title, size, str(len(chosen))]
            for method in methods:
                ratios = [float(r[method]) / float(r["truth"]) for r in chosen if r[method]]
                line.append(
                    f"{factor(np.median(ratios))} ({factor(min(ratios))}–{factor(max(ratios))})" if ratios else "–"
                )
            lines.append(line)
    return table(("setting", "true probability", "inputs", *methods), lines)


def calibration_table(rows: list[Row]) -> str:
    order = list(dict.fromkeys(row["likelihood"] for row in rows))
    rows = sorted(rows, key=lambda row: order.index(row["likelihood"]))
    head = (
        "likelihood",
        "method",
        "p of f",
        "in the tails",
        "p of y",
        "in the tails",
        "f in 50 %",
        "90 %",
        "99 %",
        "y in 50 %",
        "90 %",
        "99 %",
        "failed",
    )
    return table(
        head,
        [
            (
                r["likelihood"], r["method"],
                *(number(r[f"{test}_{part}"], ".3f") for part in "fy" for test in ("p", "tail_p")),
                *(f"{100 * float(r[f'{part}_{level}']):.1f}" for part in "fy" for level in (50, 90, 99)), r["failed"],
            )
            for r in rows
        ],
    )  # fmt: skip


def _picture(name: str, draw: Callable) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained", sharey=True)
    draw(axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small", frameon=False)
    figure.savefig(DOCS / "pictures" / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def _panels(axes: Sequence, rows: list[Row], methods: Sequence[str], draw: Callable) -> None:
    """One panel at the learned hyperparameters, one at the harshest; a place on the x axis for each set."""
    for ax, setting in zip(axes, ("learned", "times-100"), strict=True):
        names = [name for name in dict.fromkeys(r["dataset"] for r in rows if r["setting"] == setting)]
        for k, method in enumerate(methods):
            chosen = [r for r in rows if (r["method"], r["setting"], r["status"]) == (method, setting, "converged")]
            at = np.array([names.index(r["dataset"]) for r in chosen]) + 0.7 * ((k + 0.5) / len(methods) - 0.5)
            draw(ax, at, chosen, method, *LOOKS[method])
        ax.set_xticks(range(len(names)), names, rotation=35, ha="right")
        title = "at EP's learned hyperparameters" if setting == "learned" else "kernel variance × 100"
        ax.set_title(title, fontsize="medium")


def ratio_panels(axes: Sequence, rows: list[Row]) -> None:
    """Variances over the truth: the median over training rows, and the range."""

    def bar(ax, at, chosen, method, colour, marker) -> None:
        middle, low, high = (
            np.array([float(r[f]) for r in chosen]) for f in ("ratio_median", "ratio_low", "ratio_high")
        )
        ax.vlines(at, low, high, color=colour, alpha=0.5, linewidth=1.5)
        ax.plot(at, middle, marker, color=colour, markersize=4, label=method)

    _panels(axes, rows, ("EP", "QP", "power EP ½", "QP p = 1"), bar)
    for ax in axes:
        ax.axhline(1.0, color=plots.GREY, linewidth=0.8)
    axes[0].set_ylabel("variance of f over the truth")


def probability_panels(axes: Sequence, rows: list[Row]) -> None:
    """The largest error of a predictive probability over the test rows."""

    def dot(ax, at, chosen, method, colour, marker) -> None:
        ax.plot(at, [float(r["probability_max"]) for r in chosen], marker, color=colour, markersize=5, label=method)

    _panels(axes, rows, tuple(LOOKS), dot)
    for ax in axes:
        ax.set_yscale("log")
        ax.axhline(0.01, color=plots.GREY, linewidth=0.8)
    axes[0].set_ylabel("largest error of p(y = 1)")
