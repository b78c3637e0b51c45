"""Figures from rows: latent variances of QP and EP (the paper's Figure 1), reliability, and test log-likelihoods."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import cycle, groupby
from pathlib import Path
from urllib.parse import quote

import numpy as np
from scipy.special import ndtr

from quantprop import plots
from quantprop.experiments import summary
from quantprop.experiments.published import in_order, label, method_name, setting
from quantprop.experiments.rows import Row
from quantprop.experiments.summary import Pair
from quantprop.plots.canvas import Axes, Figure, plain, style
from quantprop.storage.files import replace_file

# Colours by Okabe and Ito, each with a marker of its own.
LOOKS = (
    (plots.BLUE, "o"), (plots.ORANGE, "s"), (plots.GREEN, "^"), (plots.RED, "v"), ("#cc79a7", "D"), ("#56b4e9", "P"),
    (plots.BLACK, "X"), ("#8a7a00", "<"), (plots.GREY, ">"),
)  # fmt: skip
DPI = 200
STYLE = {"svg.hashsalt": "quantprop", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}

Pairs = dict[str, list[Pair]]  # by data set and split


def write(folder: Path, rows: list[Row]) -> list[Path]:
    """Draw every figure that the rows of a folder allow, as SVG and PNG in it; return their paths.

    For each setting: figure1a and figure1b (latent variances), ntll (QP against EP), and for each classification set
    reliability. Names end in the variant, and in the kernel and objective where these are not the paper's.
    """
    paths = []
    with style.context(["default", STYLE]):
        for name, figure in figures(rows):
            paths += _save(figure, Path(folder), name)
    return paths


def figures(rows: Iterable[Row]) -> Iterator[tuple[str, Figure]]:
    for of, group in groupby(in_order(rows), key=setting):
        about = f"variant {of.variant}, {of.kernel} kernel, learned by {of.objective}"
        ending = "-".join(quote(part, safe="") for part in of if part not in ("isotropic", "evidence"))
        given = [row for row in group if not row.failed]
        matched = _matched(given)
        for name, splits in (("figure1a", ("fold",)), ("figure1b", ("year", "event"))):
            if chosen := {data: both for data, both in matched.items() if both[0][0].split in splits}:
                yield f"{name}-{ending}", variances(chosen, about)
        if matched:
            yield f"ntll-{ending}", log_likelihoods(matched, about)
        folds = [row for row in given if row.split == "fold"]
        for dataset, tested in groupby(folds, key=lambda row: row.dataset):
            yield f"reliability-{quote(dataset, safe='')}-{ending}", reliability(list(tested), dataset, about)


def _matched(rows: list[Row]) -> Pairs:
    """EP's and QP's rows of the same experiments, by data set and split."""
    found = {}
    for name, group in groupby(rows, key=lambda row: label(row.dataset, row.split)):
        of = {method: list(same) for method, same in groupby(group, key=lambda row: row.method)}
        if both := summary.pairs(of.get("ep", []), of.get("qp", [])):
            found[name] = both
    return found


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Both files, each complete or not there. Without dates: the same rows give the same bytes."""
    paths = []
    for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        data = io.BytesIO()
        figure.savefig(data, format=ending, dpi=DPI, metadata=metadata)
        figure.set_layout_engine("none")  # the layout of the first one stays: to find it takes a third of the time
        paths.append(folder / f"{name}.{ending}")
        replace_file(str(paths[-1].resolve()), data.getvalue())
    return paths


def variances(matched: Pairs, about: str) -> Figure:
    """Figure 1: latent variances at the test inputs, EP's across and QP's upwards, and their ratio.

    Both methods have EP's hyperparameters. QP's variance is not above EP's where a point is not above the line.
    """
    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, both), (colour, marker) in zip(matched.items(), cycle(LOOKS)):
        ep, qp = summary.variances(both, "variance_at_ep")
        look = {"color": colour, "s": 14, "marker": marker, "linewidths": 0, "alpha": 0.6, "rasterized": True}
        left.scatter(ep, qp, label=plain(name), **look)
        right.scatter(ep, qp / ep, **look)
    points = np.concatenate([np.asarray(drawn.get_offsets()).ravel() for drawn in left.collections])
    if len(points):
        ends = points.min(), points.max()
        left.plot(ends, ends, color=plots.BLACK, linewidth=0.8, zorder=3)
    right.axhline(1.0, color=plots.BLACK, linewidth=0.8, zorder=3)
    left.set(xlabel="EP: variance of f", ylabel="QP: variance of f", xscale="log", yscale="log")
    right.set(xlabel="EP: variance of f", ylabel="QP's variance / EP's", xscale="log")
    share = summary.compare([pair for both in matched.values() for pair in both]).variance_at_ep
    at = f"at {share.count} of {share.total} test points"
    _title(figure, f"QP's latent variance is not above EP's {at}", f"both at EP's hyperparameters; {about}")
    figure.legend(loc="outside right center", frameon=False, markerscale=1.6)
    return figure


def log_likelihoods(matched: Pairs, about: str) -> Figure:
    """NTLL of every experiment, EP's across and QP's minus EP's upwards (the two differ by thousandths): one panel per
    data set. Infinite ones are counted only.
    """
    figure, panels = _grid(len(matched), columns=5, size=3.0)
    for ax, (name, both) in zip(panels, matched.items(), strict=True):
        ep, qp = summary.log_likelihoods(both)
        drawn = np.isfinite(ep) & np.isfinite(qp)
        difference = qp[drawn] - ep[drawn]
        ax.scatter(ep[drawn], difference, s=12, color=plots.BLUE, alpha=0.5, linewidths=0, rasterized=True)
        ax.axhline(0.0, color=plots.BLACK, linewidth=0.8)
        ax.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2), useMathText=True)
        hidden = f"; {np.sum(~drawn)} infinite" if not drawn.all() else ""
        ax.set_title(f"{plain(name)}\nQP below in {np.sum(qp < ep)} of {len(ep)}{hidden}", fontsize="medium")
    _title(figure, "Negative test log-likelihood of each experiment: QP − EP", about)
    figure.supxlabel("EP")
    figure.supylabel("QP − EP")
    return figure


def reliability(rows: list[Row], dataset: str, about: str) -> Figure:
    """Observed frequency of +1 against its predicted probability: one panel per method.

    Every row of the data is tested once a round, so the intervals, made for independent outcomes, are too narrow.
    """
    by_method = [(method, list(group)) for method, group in groupby(rows, key=lambda row: row.method)]
    figure, panels = _grid(len(by_method), columns=2, size=4.2)
    for ax, (method, tested) in zip(panels, by_method, strict=True):
        y, mean, variance = (np.concatenate([row.test[name] for row in tested]) for name in ("y", "mean", "variance"))
        plots.reliability(ndtr(mean / np.sqrt(1.0 + variance)), y, ax=ax)
        ax.set_title(f"{method_name(method)}: {len(y)} forecasts")
    _title(figure, f"{dataset}: forecasts of the class +1 (intervals as if they were independent)", about)
    return figure


def _title(figure: Figure, text: str, about: str) -> None:
    figure.suptitle(f"{plain(text)}\n{plain(about)}", fontsize="medium")


def _grid(panels: int, columns: int, size: float) -> tuple[Figure, list[Axes]]:
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = Figure(figsize=(size * columns + 0.4, size * rows + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[panels:]:
        ax.remove()
    return figure, axes[:panels]
