"""Pictures of three or more classes: which one is the likeliest over two inputs, and whether each is calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quantprop.data import finite_array, inputs
from quantprop.inference.classes import ClassSolution
from quantprop.plots.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, RED, Axes, _axes, to_rgb
from quantprop.plots.posteriors import _as_many, _span
from quantprop.runtime.arguments import SEQUENCE, checked

PURPLE, SKY, YELLOW = "#cc79a7", "#56b4e9", "#f0e442"  # the others of Okabe and Ito
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY)
MARKERS = "osD^vP*X"


@checked()
def class_regions(source: Any, X: Any, y: Any, *, points: int = 80, ax: Axes | None = None) -> Axes:
    """The likeliest class over two inputs, paler where its probability is nearer to that of a guess; and the data.

    `source` is a fitted classifier, or the solution of a model of several classes jointly.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]], [0, 1, 2]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.MultinomialProbit()), X, y, "ep")
    >>> [text.get_text() for text in plots.class_regions(solution, X, y, points=10).get_legend().get_texts()]
    ['0', '1', '2']
    """
    x, labels = inputs(X, "X", features=2), _labels(source)
    y = _as_many(y, x)
    _check_colours(labels)
    left, up = np.meshgrid(_span(x[:, 0], points), _span(x[:, 1], points))
    p = _probabilities(source, np.column_stack([left.ravel(), up.ravel()]))
    best, guess = p.argmax(axis=1), 1.0 / len(labels)
    sure = 0.15 + 0.65 * (p.max(axis=1) - guess) / (1.0 - guess)
    colours = np.array([to_rgb(colour) for colour in COLOURS])[best]
    shade = 1.0 - sure[:, None] * (1.0 - colours)
    ax = _axes(ax)
    ends = left[0, 0], left[0, -1], up[0, 0], up[-1, 0]
    ax.imshow(shade.reshape(*left.shape, 3), origin="lower", extent=ends, aspect="auto", interpolation="nearest")
    for k, label in enumerate(labels):
        rows = y == label
        ax.plot(*x[rows].T, MARKERS[k], color=COLOURS[k], markeredgecolor=BLACK, markersize=5, label=str(label))
    ax.set(xlabel="x1", ylabel="x2")
    ax.legend()
    return ax


@checked(labels=SEQUENCE)
def class_reliability(
    probability: Any, outcome: Any, labels: Sequence[Any] | None = None, bins: int = 5, ax: Axes | None = None
) -> Axes:
    """How often each class came true where it was given probability p: a line for every class.

    `probability` has a row for each forecast and a column for each class; `outcome` holds the classes that came, as
    0, 1, ... in the order of the columns, and `labels` what they are called.

    >>> from quantprop import plots
    >>> ax = plots.class_reliability([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [0, 1, 2], bins=1)
    >>> ax.lines[1].get_xydata().round(3).tolist()
    [[0.367, 0.333]]
    """
    p, came = finite_array(probability, "probability", ndim=2), np.asarray(outcome)
    labels = range(p.shape[1]) if labels is None else labels
    if np.shape(came) != (len(p),) or not np.isin(came, np.arange(p.shape[1])).all():
        raise ValueError(f"outcome must hold {len(p)} of 0, ..., {p.shape[1] - 1}, one for each row of probability")
    if ((p < 0) | (p > 1)).any() or len(labels) != p.shape[1]:
        raise ValueError("probability must lie in [0, 1], and labels be as many as its columns")
    _check_colours(labels)
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, label="calibrated")
    for k, label in enumerate(labels):
        at = np.minimum((p[:, k] * bins).astype(int), bins - 1)
        used = [b for b in range(bins) if (at == b).any()]
        stated = [p[at == b, k].mean() for b in used]
        ax.plot(stated, [(came[at == b] == k).mean() for b in used], MARKERS[k] + "-", color=COLOURS[k],
                label=f"{label} ({int((came == k).sum())})")  # fmt: skip
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set(xlabel="forecast probability of the class", ylabel="share that came true")
    ax.legend(title="class (rows)", fontsize="small")
    return ax


def _labels(source: Any) -> list[Any]:
    if isinstance(source, ClassSolution):
        return list(range(source.classes))
    if hasattr(source, "classes_"):
        return list(source.classes_)
    raise TypeError(
        f"source must be a fitted classifier, or a solution of several classes; got {type(source).__name__}"
    )


def _probabilities(source: Any, x: np.ndarray) -> np.ndarray:
    return source.predict_y(x).probabilities if isinstance(source, ClassSolution) else source.predict_proba(x)


def _check_colours(labels: Sequence[Any]) -> None:
    if len(labels) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} classes can be told apart by colour; got {len(labels)}")
