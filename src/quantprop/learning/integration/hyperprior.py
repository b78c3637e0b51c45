"""Priors of the hyperparameters: those that parameters were given, and weak ones for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr

from quantprop.core.gaussian import LOG_2PI
from quantprop.core.parameters import LogNormal, Parameter, box, free, labels, logarithms, named
from quantprop.kernels import Columns
from quantprop.learning.landscape import Landscape
from quantprop.learning.sizes import size_in, typical_distance
from quantprop.learning.starts import FIRST_NOISE, units

# Standard deviations of logarithms, and of entries without a logarithm in their unit.
LENGTHSCALE_SD = 2.0  # 95 % within a factor of 50 of the typical distance between rows
VARIANCE_SD = 5.0  # 95 % of its root within a factor of 130 of the size of y, or of 1: separable classes need it large
NOISE_SD = 1.5
OTHER_SD = 2.0
UNITS_SD = 10.0


@dataclass(frozen=True)
class HyperPrior:
    """Independent normal distributions of the entries of θ, inside their bounds.

    Entries whose parameter has its own prior have an infinite deviation here: the landscape counts that prior.
    `widest` bounds the standard deviations of the posterior. With `constant` all of them are densities of θ, as far as
    they are known: LogNormal priors and the normal ones.
    """

    centre: Float[np.ndarray, " theta"]
    deviation: Float[np.ndarray, " theta"]
    widest: Float[np.ndarray, " theta"]
    constant: float
    words: dict[str, str]

    def log_density(self, theta: Float[np.ndarray, "*b theta"]) -> Float[np.ndarray, "*b"]:
        """The log density without the constant and without the priors that parameters were given."""
        return -0.5 * (((theta - self.centre) / self.deviation) ** 2).sum(axis=-1)

    def gradient(self, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
        return (self.centre - theta) / self.deviation**2


def hyperprior_of(landscape: Landscape) -> HyperPrior:
    """The priors of a landscape's hyperparameters: LogNormal(typical size, ...) where none was given."""
    parts, unit = landscape.parts, units(landscape)
    names, logs = labels(parts), logarithms(parts)
    given = [node.prior for node in free(parts) for _ in range(np.size(node.value))]
    level, spread = 0.0, 1.0
    if parts.likelihood.noise_name is not None:  # f has the unit of y
        level, spread = (size := size_in(landscape)).centre, size.spread
    sizes = [size for path, node in named(parts) if not node.fixed for size in _typical(landscape, path, node, spread)]
    centre, deviation, words = np.zeros(len(names)), np.full(len(names), UNITS_SD), {}
    for i, name in enumerate(names):
        if logs[i]:
            median, deviation[i] = sizes[i]
            centre[i] = np.log(median)
            words[name] = f"LogNormal({median:.3g}, {deviation[i]:g})"
        else:
            centre[i] = level if name in ("mean", "mean.intercept") else 0.0
            deviation[i] *= unit[i]
            words[name] = f"Normal({centre[i]:.3g}, {deviation[i]:.3g})"
        if given[i] is not None:
            words[name] = repr(given[i]) if isinstance(given[i], LogNormal) else "given"
    weak = np.array([prior is None for prior in given], dtype=bool)
    widest = np.array([getattr(prior, "deviation", d) for prior, d in zip(given, deviation, strict=True)])
    constant = _constant(given, centre, deviation, box(parts))
    return HyperPrior(centre, np.where(weak, deviation, np.inf), widest, constant, words)


def _constant(given: list[Any], centre: np.ndarray, deviation: np.ndarray, bounds: np.ndarray) -> float:
    """−log of the integrals over the bounds; a user's function is taken to be a normalised density."""
    total = 0.0
    for prior, middle, spread, ends in zip(given, centre, deviation, bounds, strict=True):
        if isinstance(prior, LogNormal):
            middle, spread = np.log(prior.median), prior.deviation
        elif prior is not None:
            continue
        lower, upper = (ends - middle) / spread
        inside = np.log(ndtr(upper) - ndtr(lower)) if lower < 0 < upper else _log_tail(lower, upper)
        total -= 0.5 * LOG_2PI + np.log(spread) + inside
    return float(total)


def _log_tail(lower: float, upper: float) -> float:
    """log(Φ(upper) − Φ(lower)) where both have one sign."""
    near, far = (-lower, -upper) if lower >= 0 else (upper, lower)
    return float(log_ndtr(near) + np.log1p(-np.exp(log_ndtr(far) - log_ndtr(near))))


def _typical(landscape: Landscape, path: str, node: Parameter, spread: float) -> list[tuple[float, float]]:
    """The median, and the standard deviation of the logarithm, of each entry of a parameter; f varies by `spread`."""
    part, name, count = path.split(".")[0], path.split(".")[-1], int(np.size(node.value))
    if part == "kernel" and name in ("lengthscale", "period"):
        kernel, x = landscape.parts.kernel, landscape.task.x
        lengths = _distances(x[:, _columns(kernel, path, x.shape[1])], count)
        return [(length, LENGTHSCALE_SD if name == "lengthscale" else OTHER_SD) for length in lengths]
    if part == "kernel" and name in ("variance", "own"):
        return [(spread**2, VARIANCE_SD)] * count
    if path == f"likelihood.{landscape.parts.likelihood.noise_name}":
        return [(FIRST_NOISE * spread, NOISE_SD)] * count
    return [(1.0, OTHER_SD)] * count


def _columns(kernel: Any, path: str, d: int) -> np.ndarray:
    """The columns of X that the part of a kernel at a path acts on."""
    node, columns = kernel, np.arange(d)
    for step in path.split(".")[1:]:
        if isinstance(node, Columns):
            columns = columns[np.array(node.columns, dtype=int)]
        node = getattr(node, step, None)
    return columns


def _distances(x: Float[np.ndarray, "n d"], count: int) -> list[float]:
    """The typical distance between rows; in a single feature, the same multiple of its spread as in all of them."""
    if count != x.shape[1] or count == 1:
        return [typical_distance(x)] * count
    unit = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    return list(typical_distance(x / unit) * unit)
