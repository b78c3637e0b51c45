"""Pictures of posteriors, of the terms of a sum, of calibration, of single sites and of learning.

Every function draws on `ax`, or on a new figure without one, and returns the Axes. Where it takes a `source`, that is a
Solution, what `fit` returned, or a fitted estimator.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from quantprop.data import encode, finite_array, inputs
from quantprop.gaussian import LOG_2PI
from quantprop.inference.predictive import Predictive
from quantprop.inference.solution import Solution
from quantprop.likelihoods.base import Likelihood
from quantprop.likelihoods.binary import Binary
from quantprop.parameters import values
from quantprop.plots.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INTERVALS,
    ORANGE,
    RATIO,
    RED,
    TWO_CLASSES,
    WILSON,
    Axes,
    _axes,
    _solution,
)
from quantprop.plots.effects import effect as effect
from quantprop.plots.effects import effects as effects
from quantprop.plots.hyperparameters import hyperparameter as hyperparameter
from quantprop.projections import KL, Wasserstein
from quantprop.projections.single import project
from quantprop.runtime.precision import float64


def _data(solution: Solution, X: Any, y: Any, features: int, function: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with the number of columns that a picture can show, and as many y."""
    x = inputs(X, "X")
    for name, columns in (("X", x.shape[1]), ("the model's X", solution.X.shape[1])):
        if columns != features:
            raise ValueError(f"{function} draws over {features} column(s) of X; {name} has {columns}")
    if np.shape(y)[:1] != (len(x),):
        raise ValueError(f"y must have one entry per row of X, {len(x)}; got shape {np.shape(y)}")
    return x, np.asarray(y)


def _span(column: np.ndarray, points: int, margin: float = 0.05) -> np.ndarray:
    width = np.ptp(column) or 1.0
    return np.linspace(column.min() - margin * width, column.max() + margin * width, points)


# --- posteriors ------------------------------------------------------------------------------------------------------


def posterior(
    source: Any, X: Any, y: Any, of: str = "y", *, Xnew: Any = None, exposure: Any = None, trials: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """The posterior over one input: mean, and the intervals that hold 50 % and 90 %.

    `of="y"` draws the distribution of new observations, with the data; `of="f"` the latent function (for two classes
    it says more), with the inputs of the data as ticks.
    `Xnew` are the inputs to draw at (200 over the data without it), `exposure` and `trials` those of new observations.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.posterior(solution, X, y, of="f").get_ylabel()
    'f'
    """
    if of not in ("y", "f"):
        raise ValueError(f"of must be 'y' or 'f'; got {of!r}")
    solution, ax = _solution(source), _axes(ax)
    x, y = _data(solution, X, y, 1, "posterior")
    new = np.sort(inputs(_span(x[:, 0], 200) if Xnew is None else Xnew, "Xnew", features=1), axis=0)
    if of == "f":
        latent = solution.predict(new)
        mean, quantile = latent.mean, lambda q: latent.mean + np.sqrt(latent.variance) * ndtri(q)
    else:
        predictive = solution.predict_y(new, exposure=exposure, trials=trials)
        mean, quantile = predictive.mean, predictive.quantile
    for inside, opacity in INTERVALS:
        ends = (quantile(0.5 - 0.5 * inside), quantile(0.5 + 0.5 * inside))
        ax.fill_between(new[:, 0], *ends, color=BLUE, alpha=opacity, linewidth=0, label=f"{100 * inside:.0f} %")
    ax.plot(new[:, 0], mean, color=BLUE, label="mean")
    if of == "y":
        _observations(ax, x[:, 0], solution.model.plain_likelihood.code(np.asarray(y, dtype=np.float64)))
    else:  # y has another scale than f: only where the data are
        ax.plot(x[:, 0], np.zeros(len(x)), "|", color=BLACK, transform=ax.get_xaxis_transform(), label="inputs")
    ax.set(xlabel="x", ylabel=of)
    ax.legend()
    return ax


def _observations(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Points; of censored rows (lower, upper) a line between finite ends, and an arrow at the end of an open one."""
    if y.ndim == 1:
        ax.plot(x, y, ".", color=BLACK, label="data")
        return
    lower, upper = y.T
    ax.vlines(x, lower, np.where(np.isfinite(upper), upper, lower), color=BLACK, linewidth=1.0)
    exact = lower == upper
    for marker, ends, rows in ((".", lower, exact), ("^", lower, np.isinf(upper)), ("v", upper, np.isinf(lower))):
        ax.plot(x[rows], ends[rows], marker, color=BLACK, label="data" if marker == "." else None)


def class_probability(source: Any, X: Any, y: Any, *, points: int = 80, ax: Axes | None = None) -> Axes:
    """P(y = 1) over two inputs as colours, with the line where it is ½, and the data.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]], [-1, -1, 1]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.class_probability(solution, X, y, points=10).get_xlabel()
    'x1'
    """
    solution, ax = _solution(source), _axes(ax)
    likelihood = solution.model.plain_likelihood
    if not isinstance(likelihood, Binary):
        raise ValueError(f"class_probability needs a likelihood of two classes; got {likelihood.name}")
    x, y = _data(solution, X, y, 2, "class_probability")
    left, up = np.meshgrid(_span(x[:, 0], points), _span(x[:, 1], points))
    p = np.exp(solution.predict_y(np.column_stack([left.ravel(), up.ravel()])).log_prob(1.0)).reshape(left.shape)
    mesh = ax.pcolormesh(left, up, p, cmap=TWO_CLASSES, vmin=0.0, vmax=1.0, shading="gouraud")
    ax.figure.colorbar(mesh, ax=ax, label="P(y = 1)")
    if p.min() < 0.5 < p.max():
        ax.contour(left, up, p, levels=[0.5], colors=BLACK, linewidths=1.0)
    one = y == source.classes_[1] if hasattr(source, "classes_") else likelihood.code(y.astype(np.float64)) > 0
    for rows, marker, colour, label in ((one, "o", ORANGE, "y = 1"), (~one, "s", BLUE, "the other class")):
        ax.plot(*x[rows].T, marker, color=colour, markeredgecolor=BLACK, markersize=5, label=label)
    ax.set(xlabel="x1", ylabel="x2")
    ax.legend()
    return ax


def variances(ep_source: Any, qp_source: Any, Xnew: Any, ax: Axes | None = None) -> Axes:
    """Latent predictive variances at `Xnew`, EP's across and QP's upwards, with the diagonal.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> model = Model(kernels.SquaredExponential(4.0), likelihoods.Probit())
    >>> ax = plots.variances(infer(model, X, y, "ep"), infer(model, X, y, "qp"), X)
    >>> ax.get_legend().get_texts()[0].get_text()
    'QP smaller at 3 of 3, median ratio 0.991'
    """
    ax = _axes(ax)
    ep, qp = (_solution(source).predict(Xnew).variance for source in (ep_source, qp_source))
    said = f"QP smaller at {(qp < ep).sum()} of {len(ep)}, median ratio {np.median(qp / ep):.3g}"
    ax.plot(ep, qp, ".", color=RED, label=said)
    ends = min(ep.min(), qp.min()), max(ep.max(), qp.max())
    ax.plot(ends, ends, color=GREY, linewidth=1.0, label="equal")
    scale = "log" if ends[1] > 20.0 * ends[0] else "linear"
    ax.set(xlabel="EP: variance of f", ylabel="QP: variance of f", xscale=scale, yscale=scale)
    ax.legend(loc="lower right", fontsize="small")
    return ax


# --- calibration -----------------------------------------------------------------------------------------------------


def reliability(probability: Any, outcome: Any, bins: int = 10, ax: Axes | None = None) -> Axes:
    """How often what was given probability p came true. `outcome` is 0 and 1 (or −1 and 1, or truth values).

    One point per bin of equal width, at the mean probability and the share that came true, with Wilson's 90 % interval;
    the numbers at the foot count the forecasts in each bin.

    >>> from quantprop import plots
    >>> ax = plots.reliability([0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], bins=2)
    >>> ax.lines[1].get_xydata().round(2).tolist()
    [[0.15, 0.0], [0.8, 1.0]]
    """
    p, came = finite_array(probability, "probability", ndim=1), finite_array(outcome, "outcome", ndim=1)
    if p.shape != came.shape or not len(p):
        raise ValueError(f"probability and outcome must be equally long, at least 1; got {len(p)} and {len(came)}")
    if ((p < 0) | (p > 1)).any():
        raise ValueError(f"probability must lie in [0, 1]; got {p[(p < 0) | (p > 1)][0]}")
    if not (np.isin(came, (0, 1)).all() or np.isin(came, (-1, 1)).all()):
        raise ValueError(f"outcome must hold 0 and 1, or −1 and 1; got {np.unique(came)[:5]}")
    _check_bins(bins)
    at = np.minimum((p * bins).astype(int), bins - 1)
    n, forecast, true = (np.bincount(at, weights=w, minlength=bins) for w in (np.ones_like(p), p, came > 0))
    used = n > 0
    n, forecast, share = n[used], forecast[used] / n[used], true[used] / n[used]
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, label="calibrated")
    lower, upper = _wilson(share, n)
    ax.errorbar(forecast, share, [share - lower, upper - share], fmt="o", color=BLUE, capsize=3, label="observed, 90 %")
    for centre, count in zip((np.flatnonzero(used) + 0.5) / bins, n, strict=True):
        ax.text(centre, -0.08, f"{count:.0f}", ha="center", color=GREY, fontsize="small")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.1, 1.02))
    ax.set(xlabel="forecast probability (grey: number of forecasts)", ylabel="share that came true")
    ax.legend(loc="upper left")
    return ax


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"bins must be at least 1; got {bins}")


def _wilson(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval of a proportion; it holds the share, also at 0 and 1."""
    shrunk = 1.0 / (1.0 + WILSON**2 / n)
    centre = shrunk * (share + 0.5 * WILSON**2 / n)
    half = shrunk * WILSON * np.sqrt(share * (1.0 - share) / n + 0.25 * (WILSON / n) ** 2)
    return np.clip(centre - half, 0.0, share), np.clip(centre + half, share, 1.0)  # else rounding at 0 and 1


def pit(predictive: Any, y: Any = None, bins: int = 10, ax: Axes | None = None) -> Axes:
    """Histogram of the probability integral transform F(y): flat where forecasts are calibrated.

    From a predictive distribution and y; or from the numbers F(y) themselves, for discrete y as n rows of
    P(Y < y), P(Y ≤ y). A discrete y counts evenly for all numbers between these two (Czado, Gneiting and Held 2009).
    For continuous y a band holds 90 % of what each bar would do under calibration.

    >>> from quantprop import plots
    >>> [float(bar.get_height()) for bar in plots.pit([0.1, 0.2, 0.3, 0.9], bins=2).containers[0]]
    [1.5, 0.5]
    """
    _check_bins(bins)
    ends = _transform(predictive, y)
    edges = np.linspace(0.0, 1.0, bins + 1)
    share = np.histogram(ends, edges)[0] / len(ends) if ends.ndim == 1 else np.diff(_mean_uniform(ends, edges))
    ax = _axes(ax)
    ax.bar(edges[:-1], bins * share, 1.0 / bins, align="edge", color=BLUE, alpha=0.6, edgecolor="white")
    if ends.ndim == 1:
        band = binom.ppf([0.05, 0.95], len(ends), 1.0 / bins) * bins / len(ends)
        ax.axhspan(*band, color=GREY, alpha=0.3, linewidth=0, label="90 % if calibrated")
        ax.legend()
    ax.axhline(1.0, color=BLACK, linewidth=1.0)
    ax.set(xlabel="PIT", ylabel="density", xlim=(0.0, 1.0))
    return ax


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
        ends = finite_array(predictive, "the values of the cdf")
    if ends.ndim not in (1, 2) or (ends.ndim == 2 and ends.shape[1] != 2) or not len(ends):
        raise ValueError(f"values of the cdf must have shape (n,), or (n, 2) for discrete y; got {ends.shape}")
    if ((ends < 0) | (ends > 1)).any() or (ends.ndim == 2 and (ends[:, 1] < ends[:, 0]).any()):
        raise ValueError("values of the cdf must lie in [0, 1], and P(Y < y) not above P(Y ≤ y)")
    return ends


def _coded(predictive: Predictive, y: Any) -> np.ndarray:
    """y as the likelihood counts it, one number per input."""
    if y is None:
        raise ValueError("y is needed with a predictive distribution")
    if predictive.likelihood.columns > 1:
        raise ValueError(f"the {predictive.likelihood.name} likelihood has no single y to compare with")
    scales = {name: getattr(predictive, name) for name in predictive.likelihood.scaled_by}
    return encode(predictive.likelihood, y, np.shape(predictive.latent.mean), **scales).y


def rootogram(predictive: Predictive, y: Any, most: int | None = None, ax: Axes | None = None) -> Axes:
    """A hanging rootogram of counts: bars of height √observed hang from the line of √expected.

    A bar that ends above 0 is a count seen too rarely, below 0 too often. Counts run up to `most`, by default the
    largest y; the label says what was expected and seen beyond.

    >>> import numpy as np
    >>> from quantprop import likelihoods, plots
    >>> from quantprop.gaussian import Normal
    >>> from quantprop.inference.predictive import Predictive  # or solution.predict_y(X)
    >>> latent = Normal(mean=np.array([0.0, 0.5, 0.2]), variance=np.full(3, 0.1))
    >>> predictive = Predictive(likelihoods.Poisson(), latent, exposure=np.ones(3), trials=np.ones(3))
    >>> plots.rootogram(predictive, [0, 2, 1]).get_xlabel()
    'count (beyond 2: 0.5 expected, 0 seen)'
    """
    if not isinstance(predictive, Predictive):
        raise TypeError(f"rootogram needs a predictive distribution (of predict_y); got {type(predictive).__name__}")
    if predictive.likelihood.lattice != (0.0, 1.0):
        raise ValueError(f"rootogram needs counts; the {predictive.likelihood.name} likelihood has none")
    y = _coded(predictive, y)
    most = int(y.max()) if most is None else most
    if not 0 <= most <= 1000:
        raise ValueError(f"most must lie between 0 and 1000 (a bar for each count); got {most}: give most=")
    k = np.arange(most + 1)
    below = np.array([0.0, *(predictive.cdf(float(count)).sum() for count in k)])
    expected, observed = np.diff(below), np.bincount(y[y <= most].astype(int), minlength=most + 1)
    ax, top = _axes(ax), np.sqrt(expected)
    ax.use_sticky_edges = False  # a margin below bars that end below 0
    ax.bar(k, np.sqrt(observed), bottom=top - np.sqrt(observed), color=BLUE, alpha=0.6, width=0.9, label="√observed")
    ax.plot(k, top, "o-", color=RED, markersize=4, label="√expected")
    ax.axhline(0.0, color=BLACK, linewidth=1.0)
    beyond = f"beyond {most}: {len(y) - below[-1]:.1f} expected, {(y > most).sum()} seen"
    ax.set(xlabel=f"count ({beyond})", ylabel="√frequency")
    ax.legend()
    return ax


# --- one site --------------------------------------------------------------------------------------------------------


def site(
    likelihood: Likelihood, y: Any, cavity: tuple[float, float], *, exposure: Any = None, trials: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """One datum's likelihood (scaled to fit) and cavity N(m, v), their product, and its KL and W₂ Gaussians.

    EP goes on with the first of the two Gaussians, QP with the second.

    >>> from quantprop import likelihoods, plots
    >>> ax = plots.site(likelihoods.Probit(), y=1, cavity=(-1.0, 4.0))
    >>> [line.get_label() for line in ax.lines]
    ['likelihood (scaled)', 'cavity', 'tilted', 'KL (EP)', 'W₂ (QP)']
    """
    scales = {"exposure": exposure, "trials": trials}
    kl, w2 = (project(likelihood, y, cavity, projection, **scales) for projection in (KL(), Wasserstein(2)))
    if np.ndim(kl.mean):
        raise ValueError(f"site draws one datum with one cavity; got shape {np.shape(kl.mean)}")
    f = _around((float(cavity[0]), float(cavity[1])), (float(kl.mean), float(kl.variance)))
    log_prob = _log_prob(values(likelihood), y, f, **scales)
    normals = [_normal(f, *cavity), _normal(f, kl.mean, kl.variance), _normal(f, w2.mean, w2.variance)]
    tilted = np.exp(log_prob - kl.log_normalizer) * normals[0]
    ax = _axes(ax)
    top = max(tilted.max(), *(curve.max() for curve in normals))
    ax.plot(f, top * np.exp(log_prob - log_prob.max()), ":", color=GREY, label="likelihood (scaled)")
    ax.plot(f, normals[0], "--", color=GREEN, label="cavity")
    ax.plot(f, tilted, color=BLACK, label="tilted")
    ax.fill_between(f, tilted, color=BLACK, alpha=0.08, linewidth=0)
    ax.plot(f, normals[1], color=BLUE, label="KL (EP)")
    ax.plot(f, normals[2], "-.", color=RED, label="W₂ (QP)")
    ax.set(xlabel="f", ylabel="density", ylim=(0.0, 1.05 * top))
    ax.legend()
    return ax


def _around(*gaussians: tuple[float, float]) -> np.ndarray:
    """Points fine enough for every one of some Gaussians, over five standard deviations of all."""
    pieces = [mean + np.sqrt(variance) * np.linspace(-5.0, 5.0, 801) for mean, variance in gaussians]
    return np.unique(np.concatenate(pieces))


def _normal(f: np.ndarray, mean: Any, variance: Any) -> np.ndarray:
    return np.exp(-0.5 * ((f - mean) ** 2 / variance + np.log(variance) + LOG_2PI))


@float64
def _log_prob(likelihood: Any, y: Any, f: np.ndarray, exposure: Any, trials: Any) -> np.ndarray:
    datum = encode(likelihood, y, (), exposure, trials)
    return np.asarray(jax.vmap(lambda f: likelihood.log_prob(datum, f))(f))


def variance_ratio(
    likelihood: Likelihood, y: Any, *, mean: tuple[float, float] = (-5.0, 5.0), sd: tuple[float, float] = (0.1, 10.0),
    points: int = 41, exposure: Any = None, trials: Any = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Where QP differs from EP: the ratio of the W₂ to the KL variance, over means and sds of the cavity.

    >>> from quantprop import likelihoods, plots
    >>> ax = plots.variance_ratio(likelihoods.Probit(), y=1, points=3)
    >>> ax.collections[0].get_array().round(3).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0, 0.999, 1.0, 0.924, 0.938, 0.955]
    """
    if points < 2 or not (mean[0] < mean[1] and 0 < sd[0] < sd[1]):
        raise ValueError("mean and sd must be (lower, upper), the sd positive, and points at least 2; "
                         f"got mean={mean}, sd={sd}, points={points}")  # fmt: skip
    m, s = np.linspace(*mean, points), np.geomspace(*sd, points)
    cavities = np.tile(m, points), np.repeat(s**2, points)
    kl, w2 = (
        project(likelihood, y, cavities, projection, exposure=exposure, trials=trials).variance
        for projection in (KL(), Wasserstein(2))
    )
    ratio, ax = (w2 / kl).reshape(points, points), _axes(ax)
    least = min(float(ratio.min()), 0.99)  # or the colours of a Gaussian likelihood would show rounding
    mesh = ax.pcolormesh(m, s, ratio, cmap=RATIO, vmin=least, vmax=1.0, shading="nearest")
    ax.figure.colorbar(mesh, ax=ax, label=r"$\sigma^2_{W_2}\,/\,\sigma^2_{KL}$")
    ax.set(xlabel="cavity mean", ylabel="cavity sd", yscale="log")
    return ax


# --- learning --------------------------------------------------------------------------------------------------------


def trace(fitted: Any, ax: Axes | None = None) -> Axes:
    """How learning went: objective (left) and largest entry of the projected gradient (right) at every evaluation.

    Crosses at the foot are evaluations at which inference failed, dotted lines are restarts.

    >>> from quantprop import Model, fit, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [-1, -1, 1, -1]
    >>> fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.trace(fitted).get_ylabel()
    'evidence'
    """
    steps = getattr(fitted, "trace", None)
    if not steps:
        raise TypeError(f"trace needs what fit returned; got {type(fitted).__name__}")
    ax = _axes(ax)
    number = np.arange(1, len(steps) + 1)
    value, gradient = (np.array([getattr(step, name) for step in steps]) for name in ("value", "gradient"))
    failed = np.array([step.reason != "converged" for step in steps])
    restart = np.array([step.restart for step in steps])
    ax.plot(number, np.where(failed, np.nan, value), ".-", color=BLUE)
    if failed.any():  # a line without points that is not clipped would upset the layout
        foot = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(number[failed], np.zeros(failed.sum()), "x", color=BLACK, **foot)
    for first in number[1:][np.diff(restart) != 0]:
        ax.axvline(first - 0.5, color=GREY, linestyle=":", linewidth=1.0)
    ax.set(xlabel="evaluation", ylabel=fitted.objective)
    right = ax.twinx()
    right.plot(number, np.where(failed | (gradient <= 0), np.nan, gradient), ".--", color=RED)
    right.set(ylabel="gradient", yscale="log")
    ax.yaxis.label.set_color(BLUE)
    right.yaxis.label.set_color(RED)
    return ax
