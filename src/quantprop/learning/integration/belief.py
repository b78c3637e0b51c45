"""What is believed of hyperparameters before data are seen: priors that were given, and weak ones for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr

from quantprop.gaussian import LOG_2PI
from quantprop.kernels import Columns
from quantprop.learning.landscape import Landscape
from quantprop.learning.starts import NOISE, size_in, typical_distance, units
from quantprop.parameters import LogNormal, box, free, labels, logarithms, named

LENGTHSCALE = 2.0  # deviation of a logarithm: 95 % within a factor of 50 of the typical distance between rows
VARIANCE = 5.0  # 95 % of its root within a factor of 130 of the size of y, or of 1: separable classes want it large
NOISE_SCALE = 1.5
OTHER = 2.0
WIDE = 10.0  # deviation of what has no logarithm, in its unit


@dataclass(frozen=True)
class Belief:
    """Independent normal distributions of the entries of θ, inside their bounds.

    Entries whose parameter has a prior of its own have an infinite deviation here: the landscape counts that prior.
    `widest` are deviations that no posterior is expected to exceed. `constant` makes all of them densities of θ, as far
    as they are known: those of LogNormal and the normal ones.
    """

    centre: Float[np.ndarray, " theta"]
    deviation: Float[np.ndarray, " theta"]
    widest: Float[np.ndarray, " theta"]
    constant: float
    words: dict[str, str]

    def log_density(self, theta: Float[np.ndarray, "*b theta"]) -> Float[np.ndarray, "*b"]:
        """Without the constant, in addition to the priors that parameters were given."""
        return -0.5 * (((theta - self.centre) / self.deviation) ** 2).sum(axis=-1)

    def slope(self, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
        """Its gradient."""
        return (self.centre - theta) / self.deviation**2


def belief_of(landscape: Landscape) -> Belief:
    """The priors of a landscape's hyperparameters: LogNormal(typical size, ...) where none was given."""
    parts = landscape.parts
    names, logs, given = labels(parts), logarithms(parts), _given(parts)
    sizes, unit = _typical(landscape), units(landscape)
    centre, deviation, words = np.zeros(len(names)), np.full(len(names), WIDE), {}
    f_centre, _ = _size_of_f(landscape)
    for i, name in enumerate(names):
        if logs[i]:
            median, spread = sizes[i]
            centre[i], deviation[i] = np.log(median), spread
            words[name] = f"LogNormal({median:.3g}, {spread:g})"
        else:
            centre[i] = f_centre if name in ("mean", "mean.intercept") else 0.0
            deviation[i] = WIDE * unit[i]
            words[name] = f"Normal({centre[i]:.3g}, {deviation[i]:.3g})"
        if given[i] is not None:
            words[name] = repr(given[i]) if isinstance(given[i], LogNormal) else "given"
    weak = np.array([prior is None for prior in given], dtype=bool)
    widest = np.array([getattr(prior, "deviation", d) for prior, d in zip(given, deviation, strict=True)])
    constant = _constant(given, centre, deviation, box(parts))
    return Belief(centre, np.where(weak, deviation, np.inf), widest, constant, words)


def _given(parts: Any) -> list[Any]:
    """The prior that the parameter of each entry of θ was given, or None."""
    return [node.prior for node in free(parts) for _ in range(np.size(node.value))]


def _constant(given: list[Any], centre: np.ndarray, deviation: np.ndarray, bounds: np.ndarray) -> float:
    """−log of the integrals over the bounds; priors that are functions of the user's count as they are."""
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


# --- typical sizes ---------------------------------------------------------------------------------------------------


def _size_of_f(landscape: Landscape) -> tuple[float, float]:
    """Where f lies and how far it spreads: as y does, where it has the unit of y, else 0 and 1."""
    if landscape.parts.likelihood.noise_name is None:
        return 0.0, 1.0
    size = size_in(landscape)
    return size.centre, size.spread


def _typical(landscape: Landscape) -> list[tuple[float, float]]:
    """A median, and the deviation of the logarithm, for each entry of θ."""
    parts, (_, spread) = landscape.parts, _size_of_f(landscape)
    found = _of_kernel(parts.kernel, landscape.task.x, spread)
    noise = None if parts.likelihood.noise_name is None else getattr(parts.likelihood, parts.likelihood.noise_name)
    for node in free(parts.likelihood):
        found += [(NOISE * spread, NOISE_SCALE) if node is noise else (1.0, OTHER)] * np.size(node.value)
    rest = sum(np.size(node.value) for part in (parts.mean, parts.process) for node in free(part))
    return found + [(1.0, OTHER)] * rest


def _of_kernel(kernel: Any, x: Float[np.ndarray, "n d"], spread: float) -> list[tuple[float, float]]:
    """The same for the kernel's entries: each lengthscale by the columns that it is of."""
    found: list[tuple[float, float]] = []
    for path, parameter in named(kernel):
        count, name = int(np.size(parameter.value)), path.split(".")[-1]
        if parameter.fixed:
            continue
        if name in ("lengthscale", "period"):
            deviation = LENGTHSCALE if name == "lengthscale" else OTHER
            found += [(length, deviation) for length in _distances(x[:, _columns(kernel, path, x.shape[1])], count)]
        else:
            found += [(spread**2, VARIANCE) if name in ("variance", "own") else (1.0, OTHER)] * count
    return found


def _columns(kernel: Any, path: str, d: int) -> np.ndarray:
    """The columns of X that reach the part of a kernel which a path leads to."""
    node, columns = kernel, np.arange(d)
    for step in path.split("."):
        if isinstance(node, Columns):
            columns = columns[np.array(node.columns, dtype=int)]
        node = getattr(node, step, None)
    return columns


def _distances(x: Float[np.ndarray, "n d"], count: int) -> list[float]:
    """The typical distance between rows; of one feature each, as many times its spread as with all features alike."""
    if count != x.shape[1] or count == 1:
        return [typical_distance(x)] * count
    unit = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    return list(typical_distance(x / unit) * unit)
