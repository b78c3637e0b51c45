"""Pictures that check a model: data beside replicates, left-out quantiles, and residuals by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import gaussian_kde

from quantprop.core.gaussian import Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.solution import Solution
from quantprop.inference.terms import MEAN
from quantprop.kernels.combinations import Difference
from quantprop.plots.calibration import pit, reliability, rootogram
from quantprop.plots.canvas import BLACK, BLUE, GREY, RED, Axes, axes_of, labelled, plain, solution_of
from quantprop.runtime.arguments import SEQUENCE, checked, whole
from quantprop.runtime.precision import float64

MAX_TERMS = 4  # with a panel each, from the largest share of f
RESIDUAL_BINS = 10
MAX_VECTOR_POINTS = 300  # that are drawn as vectors
GRID = 300  # values at which densities are drawn


@checked(axes=SEQUENCE, draws=whole(1))
def check(source: Any, *, draws: int = 20, seed: int = 0, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Plot how well a model describes the rows that it was learned from.

    The first panel shows the observations beside replicates from the posterior: densities of real y, a hanging
    rootogram of counts, of two classes the reliability of left-out probabilities. The second is the histogram of the
    PIT of left-out rows, flat if quantiles are calibrated. The others show quantile residuals of left-out rows (Dunn
    and Smyth 1996), standard normal if the model holds, against the effect of each of the four largest terms, with
    means of ten groups and their 95 % intervals. Left-out distributions come from cavities; rows whose cavity is
    improper are omitted, and counted in the label.

    Args:
        source: A Solution, a Fitted, or a fitted estimator; of a stack its heaviest model is checked.
        draws: Number of replicates whose densities are drawn.
        seed: Seed of replicates, and of the residuals of discrete y.
        axes: One Axes per panel; a new figure by default.

    Returns:
        The list of Axes.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessRegressor, plots
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GaussianProcessRegressor(likelihood="poisson").fit(X, np.round(3 + 2 * np.sin(X[:, 0])))
    >>> [ax.get_xlabel().split(" (")[0] for ax in plots.check(model)]
    ['count', 'PIT', 'f']
    """
    solution = solution_of(source)
    if why := refusal(solution):
        raise ValueError(f"check {why}")
    y = np.asarray(solution.data.y)[: len(solution.X)]  # pyright: ignore[reportOptionalMemberAccess]
    terms = _effects(solution)
    axes = _panels(2 + len(terms)) if axes is None else axes
    if len(axes) != 2 + len(terms):
        raise ValueError(f"axes must be one for each of {2 + len(terms)} panels; got {len(axes)}")
    out, kept = left_out(solution)
    _replicates(solution, y, out, kept, (draws, seed, getattr(source, "_y_std", 1.0), getattr(source, "_y_mean", 0.0)),
                axes[0])  # fmt: skip
    ends = _ends(out, y[kept])
    missing = f" ({np.sum(~kept)} of {len(y)} rows without a cavity)" if not kept.all() else ""
    pit(ends, ax=axes[1]).set_xlabel(f"PIT{missing}")
    residuals = _residuals(ends, seed)
    for ax, (name, effect) in zip(axes[2:], terms.items(), strict=True):
        _by_term(ax, name, effect[kept], residuals)
    return list(axes)


def refusal(solution: Solution) -> str:
    """The reason why a model cannot be checked; empty if it can."""
    if solution.posterior is not None:
        return "needs all rows in one place, and these were divided among devices"
    if solution.data is None:
        return "needs the observations, which files of earlier versions do not hold: fit the model again"
    of_one = solution.model.likelihood.columns == 1 and np.ndim(solution.marginals.mean) == 1
    if not of_one or isinstance(solution.model.kernel, Difference):
        return ("needs one y and one function f for each row: it is not supported for intervals, comparisons, and "
                "parameters that vary")  # fmt: skip
    return ""


@float64
def left_out(solution: Solution) -> tuple[Predictive, np.ndarray]:
    """The distribution of each y given the other rows, from its cavity; and which rows have a proper one."""
    copies = np.maximum(1.0, 1.0 if solution.weights is None else solution.weights)
    nu, tau = solution.sites.nu / copies, solution.sites.tau / copies
    mean, variance = solution.marginals.mean, solution.marginals.variance
    left = 1.0 - tau * variance
    kept = np.isfinite(solution.loo) & (left > 0.0)
    latent = Normal(((mean - nu * variance) / left)[kept], (variance / left)[kept])
    return _of(solution, latent, kept), kept


def _of(solution: Solution, latent: Normal, rows: Any = slice(None)) -> Predictive:
    data: Any = solution.data
    n = len(solution.X)
    exposure, trials = (np.broadcast_to(each, (n,))[rows] for each in (data.exposure[:n], data.trials[:n]))
    return Predictive(solution.model.plain_likelihood, latent, exposure, trials)


def _effects(solution: Solution) -> dict[str, np.ndarray]:
    """The means of the largest terms at the rows; of f, if there is one term or none."""
    found = solution.terms(solution.X)
    varying = [name for name in found if name != MEAN and np.ptp(found[name].mean) > 0.0]
    order = sorted(varying, key=lambda name: -abs(found.shares[name]))[:MAX_TERMS]
    return {name: found[name].mean for name in order} if len(varying) > 1 else {"f": solution.marginals.mean}


def _panels(count: int) -> list[Axes]:
    tall = -(-count // 2)
    figure, axes = plt.subplots(tall, 2, figsize=(9.0, 3.2 * tall), layout="constrained", squeeze=False)
    for spare in axes.ravel()[count:]:
        figure.delaxes(spare)
    return list(axes.ravel()[:count])


def _replicates(solution: Solution, y: np.ndarray, out: Predictive, kept: np.ndarray, how: Any, ax: Axes) -> None:
    draws, seed, unit, centre = how
    lattice = solution.model.plain_likelihood.lattice
    if lattice == (-1.0, 2.0):
        reliability(np.exp(out.log_prob(1.0)), y[kept], ax=ax)
    elif lattice is not None:
        rootogram(_of(solution, solution.marginals), y, ax=ax)
    else:
        _densities(centre + unit * y, centre + unit * _of(solution, solution.marginals).sample(draws, seed), ax)


def _densities(y: np.ndarray, drawn: Float[np.ndarray, "draws n"], ax: Axes) -> None:
    """Densities of y and of replicates, by kernels of one width, over the range of y."""
    margin = 0.15 * np.ptp(y)
    at = np.linspace(y.min() - margin, y.max() + margin, GRID)
    width = gaussian_kde(y).factor
    for i, replicate in enumerate(drawn):
        scaled = width * y.std(ddof=1) / replicate.std(ddof=1)
        label = "_replicate" if i else "replicates"  # the legend omits names with an underscore
        ax.plot(at, gaussian_kde(replicate, scaled)(at), color=BLUE, alpha=0.3, linewidth=0.8, label=label)
    ax.plot(at, gaussian_kde(y, width)(at), color=BLACK, linewidth=1.8, label="data")
    ax.set_ylim(0.0)
    labelled(ax, {"loc": "upper right"}, xlabel="y", ylabel="density")


def _ends(out: Predictive, y: np.ndarray) -> np.ndarray:
    """P(Y ≤ y) of left-out rows, beside P(Y < y) for discrete y."""
    lattice, at = out.likelihood.lattice, np.clip(out.cdf(y), 0.0, 1.0)
    return at if lattice is None else np.column_stack([np.clip(out.cdf(y - lattice[1]), 0.0, at), at])


def _residuals(ends: np.ndarray, seed: int) -> np.ndarray:
    """Quantile residuals: Φ⁻¹ of the PIT, drawn uniformly between its ends for discrete y."""
    tiny = np.finfo(float).eps
    if ends.ndim > 1:
        ends = np.random.default_rng(seed).uniform(ends[:, 0], ends[:, 1])
    return ndtri(np.clip(ends, tiny, 1.0 - tiny))


def _by_term(ax: Axes, name: str, effect: np.ndarray, residuals: np.ndarray) -> None:
    axes_of(ax).axhspan(-1.96, 1.96, color=GREY, alpha=0.15, linewidth=0)
    ax.axhline(0.0, color=GREY, linewidth=1.0)
    ax.plot(effect, residuals, ".", color=BLUE, alpha=0.4, markersize=4, rasterized=len(effect) > MAX_VECTOR_POINTS)
    edges = np.unique(np.quantile(effect, np.linspace(0.0, 1.0, RESIDUAL_BINS + 1)))
    group = np.clip(np.searchsorted(edges, effect, "right") - 1, 0, max(len(edges) - 2, 0))
    each = [group == k for k in range(len(edges)) if (group == k).sum() > 1]
    at, mean = ([values[rows].mean() for rows in each] for values in (effect, residuals))
    error = [1.96 / np.sqrt(rows.sum()) for rows in each]
    ax.errorbar(at, mean, error, fmt="o", color=RED, markersize=4, capsize=2)
    ax.set(xlabel=plain(name), ylabel="residual")
