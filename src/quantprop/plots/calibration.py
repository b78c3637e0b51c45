"""Pictures of calibration: forecasts beside what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binom, binomtest

from quantprop.core.data import finite_array
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods.base import encode
from quantprop.plots.canvas import BLACK, BLUE, GREY, RED, Axes, axes_of, calibrated, class_styles, labelled
from quantprop.runtime.arguments import SEQUENCE, checked, whole


@checked()
def reliability(probability: Any, outcome: Any, bins: int = 10, ax: Axes | None = None) -> Axes:
    """Plot how often an event occurred given its predicted probability.

    One point per bin, at the mean probability and the observed fraction, with Wilson's 90 % interval. The counts at the
    foot are the predictions in each bin.

    Args:
        probability: Predicted probabilities.
        outcome: 0 and 1, −1 and 1, or booleans.
        bins: Number of bins of equal width.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import plots
    >>> ax = plots.reliability([0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], bins=2)
    >>> ax.lines[1].get_xydata().round(2).tolist()
    [[0.15, 0.0], [0.8, 1.0]]
    """
    p, came = finite_array(probability, "probability", ndim=1), finite_array(outcome, "outcome", ndim=1)
    if p.shape != came.shape or not len(p):
        raise ValueError(f"probability and outcome must have the same length, at least 1; got {len(p)} and {len(came)}")
    if ((p < 0) | (p > 1)).any():
        raise ValueError(f"probability must lie in [0, 1]; got {p[(p < 0) | (p > 1)][0]}")
    if not (np.isin(came, (0, 1)).all() or np.isin(came, (-1, 1)).all()):
        raise ValueError(f"outcome must hold 0 and 1, or −1 and 1; got {np.unique(came)[:5]}")
    at = np.minimum((p * bins).astype(int), bins - 1)
    n, forecast, true = (np.bincount(at, weights=w, minlength=bins) for w in (np.ones_like(p), p, came > 0))
    used = n > 0
    n, forecast, share = n[used], forecast[used] / n[used], true[used] / n[used]
    ax = axes_of(ax)
    calibrated(ax, -0.1, xlabel="predicted probability (grey: number of predictions)")
    intervals = [binomtest(int(k), int(m)).proportion_ci(0.9, "wilson") for k, m in zip(true[used], n, strict=True)]
    lower, upper = np.array(intervals).T
    ax.errorbar(forecast, share, [share - lower, upper - share], fmt="o", color=BLUE, capsize=3, label="observed, 90 %")
    for centre, count in zip((np.flatnonzero(used) + 0.5) / bins, n, strict=True):
        ax.text(centre, -0.08, f"{count:.0f}", ha="center", color=GREY, fontsize="small")
    return labelled(ax, {"loc": "upper left"})


@checked(labels=SEQUENCE)
def class_reliability(
    probability: Any, outcome: Any, labels: Sequence[Any] | None = None, bins: int = 5, ax: Axes | None = None
) -> Axes:
    """Plot how often each class occurred given its predicted probability, one line per class.

    Args:
        probability: Predicted probabilities, one row per prediction and one column per class.
        outcome: Observed classes 0, 1, ... in the order of the columns.
        labels: Names of the classes.
        bins: Number of bins of equal width.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

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
        raise ValueError("probability must lie in [0, 1], and labels must have one entry per column")
    styles = class_styles(labels)
    ax = axes_of(ax)
    calibrated(ax, -0.02, xlabel="predicted probability of the class")
    for k, (label, marker, colour) in enumerate(styles):
        at = np.minimum((p[:, k] * bins).astype(int), bins - 1)
        used = [b for b in range(bins) if (at == b).any()]
        stated = [p[at == b, k].mean() for b in used]
        ax.plot(stated, [(came[at == b] == k).mean() for b in used], marker + "-", color=colour,
                label=f"{label} ({int((came == k).sum())})")  # fmt: skip
    return labelled(ax, {"title": "class (rows)", "fontsize": "small"})


@checked()
def pit(predictive: Any, y: Any = None, bins: int = 10, ax: Axes | None = None) -> Axes:
    """Plot the histogram of the probability integral transform F(y), which is flat if predictions are calibrated.

    A discrete y counts evenly for all values between P(Y < y) and P(Y ≤ y) (Czado, Gneiting and Held 2009). For
    continuous y a band holds 90 % of each bar under calibration.

    Args:
        predictive: Distributions of y, or the values F(y) themselves; for discrete y n rows of P(Y < y), P(Y ≤ y).
        y: Observations, if distributions are given.
        bins: Number of bins of equal width.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import plots
    >>> [float(bar.get_height()) for bar in plots.pit([0.1, 0.2, 0.3, 0.9], bins=2).containers[0]]
    [1.5, 0.5]
    """
    ends = _transform(predictive, y)
    edges = np.linspace(0.0, 1.0, bins + 1)
    share = np.histogram(ends, edges)[0] / len(ends) if ends.ndim == 1 else np.diff(_mean_uniform(ends, edges))
    ax = axes_of(ax)
    ax.bar(edges[:-1], bins * share, 1.0 / bins, align="edge", color=BLUE, alpha=0.6, edgecolor="white")
    if ends.ndim == 1:
        band = binom.ppf([0.05, 0.95], len(ends), 1.0 / bins) * bins / len(ends)
        ax.axhspan(*band, color=GREY, alpha=0.3, linewidth=0, label="90 % if calibrated")
    ax.axhline(1.0, color=BLACK, linewidth=1.0)
    return labelled(ax, {} if ends.ndim == 1 else None, xlabel="PIT", ylabel="density", xlim=(0.0, 1.0))


def _mean_uniform(ends: np.ndarray, u: np.ndarray) -> np.ndarray:
    """F̄(u), the mean of the cdfs of uniform variables between each row's ends (Czado, Gneiting and Held, eq. 2)."""
    lower, upper = ends[:, :1], ends[:, 1:]
    inside = np.clip((u - lower) / np.where(upper > lower, upper - lower, 1.0), 0.0, 1.0)
    below = np.where(upper > lower, inside, u >= upper).mean(axis=0)  # equal ends: a y less probable than rounding
    below[0] = 0.0
    return below


def _transform(predictive: Any, y: Any) -> np.ndarray:
    """F(y) of continuous y, rows of F just below y and at y of discrete y; checked."""
    if isinstance(predictive, Predictive):
        y = _coded(predictive, y)
        at, lattice = predictive.cdf(y), predictive.likelihood.lattice
        ends = at if lattice is None else np.column_stack([predictive.cdf(y - lattice[1]), at])
    else:
        ends = finite_array(predictive, "predictive")
    if ends.ndim not in (1, 2) or (ends.ndim == 2 and ends.shape[1] != 2) or not len(ends):
        raise ValueError(
            f"predictive: values of the cdf must have shape (n,), or (n, 2) for discrete y; got {ends.shape}"
        )
    if ((ends < 0) | (ends > 1)).any() or (ends.ndim == 2 and (ends[:, 1] < ends[:, 0]).any()):
        raise ValueError("predictive: values of the cdf must lie in [0, 1], and P(Y < y) not above P(Y ≤ y)")
    return ends


def _coded(predictive: Predictive, y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("y is needed with a predictive distribution")
    if predictive.likelihood.columns > 1:
        raise ValueError(f"the {predictive.likelihood.name} likelihood has no single y to compare with")
    scales = {name: getattr(predictive, name) for name in predictive.likelihood.scaled_by}
    return encode(predictive.likelihood, y, np.shape(predictive.latent.mean), **scales).y


@checked(most=whole(0))
def rootogram(predictive: Predictive, y: Any, most: int | None = None, ax: Axes | None = None) -> Axes:
    """Plot a hanging rootogram of counts: bars of height √observed hang from the line of √expected.

    A bar that ends above 0 is a count observed too rarely, below 0 too often. The label reports what was expected and
    observed beyond the largest count shown.

    Args:
        predictive: Distributions of y, as returned by `predict_y`.
        y: Observations, one per row, as the likelihood codes them.
        most: Largest count shown; by default the largest y.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> import numpy as np
    >>> from quantprop import likelihoods, plots
    >>> from quantprop.core.gaussian import Normal
    >>> from quantprop.inference.predictive import Predictive  # or solution.predict_y(X)
    >>> latent = Normal(mean=np.array([0.0, 0.5, 0.2]), variance=np.full(3, 0.1))
    >>> predictive = Predictive(likelihoods.Poisson(), latent, exposure=np.ones(3), trials=np.ones(3))
    >>> plots.rootogram(predictive, [0, 2, 1]).get_xlabel()
    'count (beyond 2: 0.5 expected, 0 observed)'
    """
    if not isinstance(predictive, Predictive):
        raise TypeError(f"rootogram needs a predictive distribution (of predict_y); got {type(predictive).__name__}")
    if predictive.likelihood.lattice != (0.0, 1.0):
        raise ValueError(f"rootogram needs counts; the {predictive.likelihood.name} likelihood has none")
    y = _coded(predictive, y)
    most = int(y.max()) if most is None else most
    if most > 1000:
        raise ValueError(f"most must be at most 1000 (one bar per count); got {most}: pass most=")
    k = np.arange(most + 1)
    below = np.array([0.0, *(predictive.cdf(float(count)).sum() for count in k)])
    expected, observed = np.diff(below), np.bincount(y[y <= most].astype(int), minlength=most + 1)
    ax, top = axes_of(ax), np.sqrt(expected)
    ax.use_sticky_edges = False  # a margin below bars that end below 0
    ax.bar(k, np.sqrt(observed), bottom=top - np.sqrt(observed), color=BLUE, alpha=0.6, width=0.9, label="√observed")
    ax.plot(k, top, "o-", color=RED, markersize=4, label="√expected")
    ax.axhline(0.0, color=BLACK, linewidth=1.0)
    beyond = f"beyond {most}: {len(y) - below[-1]:.1f} expected, {(y > most).sum()} observed"
    return labelled(ax, xlabel=f"count ({beyond})", ylabel="√frequency")
