"""Pictures of one site: a likelihood and a cavity, and what EP and QP make of them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from quantprop.core.gaussian import LOG_2PI
from quantprop.core.parameters import values
from quantprop.likelihoods.base import Likelihood, encode
from quantprop.plots.canvas import BLACK, BLUE, GREEN, GREY, RED, Axes, axes_of, labelled
from quantprop.projections import KL, Wasserstein
from quantprop.projections.base import project
from quantprop.runtime.arguments import Rule, checked, is_number
from quantprop.runtime.precision import float64

RANGE = Rule("(lower, upper), lower < upper", lambda ends: isinstance(ends, (tuple, list)) and len(ends) == 2
             and all(map(is_number, ends)) and ends[0] < ends[1])  # fmt: skip
POSITIVE_RANGE = Rule("(lower, upper), 0 < lower < upper", lambda ends: RANGE.holds(ends) and ends[0] > 0)


def site(
    likelihood: Likelihood, y: Any, cavity: tuple[float, float], *, exposure: Any = None, trials: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot one likelihood term (scaled to fit), its cavity, their product, and its KL and W₂ Gaussians.

    EP continues with the first of the two Gaussians, QP with the second.

    Args:
        likelihood: Distribution of y given f.
        y: One observation.
        cavity: Mean and variance of the cavity.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import likelihoods, plots
    >>> ax = plots.site(likelihoods.Probit(), y=1, cavity=(-1.0, 4.0))
    >>> [line.get_label() for line in ax.lines]
    ['likelihood (scaled)', 'cavity', 'tilted', 'KL (EP)', 'W₂ (QP)']
    """
    scales = {"exposure": exposure, "trials": trials}
    kl, w2 = (project(likelihood, y, cavity, projection, **scales) for projection in (KL(), Wasserstein(2)))
    if np.ndim(kl.mean):
        raise ValueError(f"site draws one observation with one cavity; got shape {np.shape(kl.mean)}")
    reach = np.linspace(-5.0, 5.0, 801)  # standard deviations of each
    f = np.unique(np.concatenate([m + np.sqrt(v) * reach for m, v in (cavity, (kl.mean, kl.variance))]))
    log_prob = _log_prob(values(likelihood), y, f, **scales)
    normals = [_normal(f, *cavity), _normal(f, kl.mean, kl.variance), _normal(f, w2.mean, w2.variance)]
    tilted = np.exp(log_prob - kl.log_normalizer) * normals[0]
    ax = axes_of(ax)
    top = max(tilted.max(), *(curve.max() for curve in normals))
    ax.plot(f, top * np.exp(log_prob - log_prob.max()), ":", color=GREY, label="likelihood (scaled)")
    ax.plot(f, normals[0], "--", color=GREEN, label="cavity")
    ax.plot(f, tilted, color=BLACK, label="tilted")
    ax.fill_between(f, tilted, color=BLACK, alpha=0.08, linewidth=0)
    ax.plot(f, normals[1], color=BLUE, label="KL (EP)")
    ax.plot(f, normals[2], "-.", color=RED, label="W₂ (QP)")
    return labelled(ax, xlabel="f", ylabel="density", ylim=(0.0, 1.05 * top))


def _normal(f: np.ndarray, mean: Any, variance: Any) -> np.ndarray:
    return np.exp(-0.5 * ((f - mean) ** 2 / variance + np.log(variance) + LOG_2PI))


@float64
def _log_prob(likelihood: Any, y: Any, f: np.ndarray, exposure: Any, trials: Any) -> np.ndarray:
    datum = encode(likelihood, y, (), exposure, trials)
    return np.asarray(jax.vmap(lambda f: likelihood.log_prob(datum, f))(f))


@checked(mean=RANGE, sd=POSITIVE_RANGE)
def variance_ratio(
    likelihood: Likelihood, y: Any, *, mean: tuple[float, float] = (-5.0, 5.0), sd: tuple[float, float] = (0.1, 10.0),
    points: int = 41, exposure: Any = None, trials: Any = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot the ratio of the W₂ to the KL variance, over means and standard deviations of the cavity.

    Args:
        likelihood: Distribution of y given f.
        y: One observation.
        mean: Range of cavity means.
        sd: Range of cavity standard deviations.
        points: Grid points in each direction.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import likelihoods, plots
    >>> ax = plots.variance_ratio(likelihoods.Probit(), y=1, points=3)
    >>> ax.collections[0].get_array().round(3).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0, 0.999, 1.0, 0.924, 0.938, 0.955]
    """
    m, s = np.linspace(*mean, points), np.geomspace(*sd, points)
    cavities = np.tile(m, points), np.repeat(s**2, points)
    kl, w2 = (
        project(likelihood, y, cavities, projection, exposure=exposure, trials=trials).variance
        for projection in (KL(), Wasserstein(2))
    )
    ratio, ax = (w2 / kl).reshape(points, points), axes_of(ax)
    least = min(float(ratio.min()), 0.99)  # or the colours of a Gaussian likelihood would show rounding
    mesh = ax.pcolormesh(m, s, ratio, cmap="viridis", vmin=least, vmax=1.0, shading="nearest")
    ax.figure.colorbar(mesh, ax=ax, label=r"$\sigma^2_{W_2}\,/\,\sigma^2_{KL}$")
    return labelled(ax, None, xlabel="cavity mean", ylabel="cavity sd", yscale="log")
