"""Where learning starts, and how to tell that it starts, or has ended, where nothing can be learned."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from quantprop import means
from quantprop.core.parameters import Parameter, at, is_parameter, labels, named, packed
from quantprop.core.records import changed
from quantprop.kernels import VARIANCE, Columns, Power, Product, Sum
from quantprop.learning.uninformative import correlations_of, covariance_of, varying
from quantprop.likelihoods.base import Likelihood
from quantprop.runtime.jobs import sampled

NORMAL_MAD = 0.6744897501960817  # median of |z| for z ~ N(0, 1)
ROUNDING = 1e-12  # of the largest y: deviations below this are none
NOISE = 0.5  # of the spread of y, where learning starts
NOISE_BOUNDS = (1e-5, 1e5)  # times the spread of y
SUSPICIOUS = 0.1  # an end with less noise than this times the spread of y, or less signal than this times the noise
FAR = 3.0  # logarithms, or sizes of y, between a start and the one in the unit of y


# --- the size of y and of X ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Size:
    """Where y lies and how far it spreads, outliers left aside; a row of weight 2 counts as two equal rows."""

    centre: float
    spread: float

    def variance_about(self, mean: float) -> float:
        """Of y about a prior mean: what a kernel has to explain."""
        return self.spread**2 + (self.centre - mean) ** 2


def size_of(y: np.ndarray, weights: Float[np.ndarray, " n"] | None = None) -> Size:
    """The median, and the median absolute deviation as the standard deviation of a normal distribution has it.

    Of a censored y the middle counts, or its finite end. Where more than half of y are equal, the standard deviation
    takes the place of the median one; where all are, their size does.
    """
    weights = sampled(np.ones(len(y)) if weights is None else weights)
    y = sampled(y)
    ends = np.where(np.isfinite(y), y, np.nan)
    points = ends if ends.ndim == 1 else np.nanmean(ends, axis=1)
    centre = _median(points, weights)
    spread = _median(np.abs(points - centre), weights) / NORMAL_MAD
    largest = float(np.abs(points).max())
    if spread > ROUNDING * largest:
        return Size(centre, spread)
    unit = largest if largest > 0 else 1.0
    around = (points - np.average(points, weights=weights)) / unit
    deviation = float(np.sqrt(np.average(around**2, weights=weights)))
    return Size(centre, unit * deviation if deviation > ROUNDING else unit)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.quantile(values, 0.5, weights=weights, method="inverted_cdf"))


def size_in(landscape: Any) -> Size:
    """The size of a landscape's y, in the unit of f, rows that do not count left out."""
    n, weights = len(landscape.task.x), landscape.task.weight.total
    counted = weights[:n] > 0
    y = landscape.parts.likelihood.response(np.asarray(landscape.task.data.y[:n][counted]))
    return size_of(y, weights[:n][counted])


# --- the first start -------------------------------------------------------------------------------------------------


def with_noise_from(likelihood: Likelihood, size: Size) -> Likelihood:
    """A likelihood whose noise starts at the spread of y, where it was left at its default, within bounds of that size.

    A Parameter stays as it is, bounds and all; another number stays where learning starts.
    """
    name, likelihood = likelihood.noise_name, likelihood.measured(size.centre, size.spread)
    if name is None or is_parameter(getattr(likelihood, name)):
        return likelihood
    given = float(getattr(likelihood, name))
    default = next(field.default for field in dataclasses.fields(likelihood) if field.name == name)
    start = NOISE * size.spread if given == default else given
    lower, upper = (end * size.spread for end in NOISE_BOUNDS)
    return changed(likelihood, **{name: Parameter(start, bounds=(min(lower, start), max(upper, start)))})


def variance_bounds(variance: float) -> tuple[float, float]:
    """Bounds of a kernel's variance that starts at a value from the data."""
    return VARIANCE[0] * variance, VARIANCE[1] * variance


# --- further starts --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class StartRule:
    """How a further start explains y: its noise in units of the spread of y, and lengthscales in units of the first."""

    noise: float
    lengthscale: float


CALM = StartRule(noise=1.0, lengthscale=1.0)  # all of it may be noise
ROUGH = StartRule(noise=0.2, lengthscale=0.25)  # most of it is a function


def further_start(
    landscape: Any, end: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> StartRule | None:
    """The rule for a further start where learning took all of y for noise, or none of it, or ended at a bound.

    None where the end is not suspicious, or where the likelihood has no noise to learn.
    """
    name = learned_noise(landscape)
    if name is None:
        return None
    parts = at(landscape.parts, end)
    noise, k = float(getattr(parts.likelihood, name).value), covariance_of(parts.kernel, landscape.task.x)
    signal = float(np.mean(np.diagonal(k)) - np.mean(k))  # how far f varies between rows
    if signal < SUSPICIOUS * noise**2:
        return ROUGH
    correlation = np.abs(correlations_of(covariance_of(varying(parts.kernel), landscape.task.x))).max(initial=0.0)
    interpolating = noise < SUSPICIOUS * size_in(landscape).spread or correlation < SUSPICIOUS
    return CALM if interpolating or _stopped_by_bound(landscape, end, bounds) else None


def start_by(
    rule: StartRule, landscape: Any, first: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, " theta"]:
    """θ of a further start: a kernel of the size of y, with noise and lengthscales as the rule says."""
    parts, spread = at(landscape.parts, first), size_in(landscape).spread
    name, k = parts.likelihood.noise_name, covariance_of(varying(parts.kernel), landscape.task.x)
    kernel = scaled(parts.kernel, spread**2 / float(np.mean(np.diagonal(k))), rule.lengthscale)
    noise = _moved(getattr(parts.likelihood, name), rule.noise * spread)
    likelihood = changed(parts.likelihood, **{name: noise})
    return np.clip(packed(parts._replace(kernel=kernel, likelihood=likelihood)), bounds[:, 0], bounds[:, 1])


def learned_noise(landscape: Any) -> str | None:
    """The name of the noise of y in its likelihood, if that is learned."""
    likelihood = landscape.parts.likelihood
    name = likelihood.noise_name
    return None if name is None or getattr(likelihood, name).fixed else name


def in_unit_of_y(
    landscape: Any, first: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, " theta"] | None:
    """The start with noise, kernel and mean of the size of y, which depends on no unit, if that is far away."""
    if learned_noise(landscape) is None:
        return None
    parts = at(landscape.parts, start_by(CALM, landscape, first, bounds))
    mean, centre = parts.mean, size_in(landscape).centre
    if is_parameter(mean) and not mean.fixed:
        mean = _moved(mean, np.full(np.shape(mean.value), centre))
    elif isinstance(mean, means.Linear) and is_parameter(mean.intercept) and not mean.intercept.fixed:
        mean = changed(mean, intercept=_moved(mean.intercept, centre))
    start = np.clip(packed(parts._replace(mean=mean)), bounds[:, 0], bounds[:, 1])
    return start if (np.abs(start - first) / units(landscape)).max(initial=0.0) > FAR else None


def at_bounds(theta: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]) -> Int[np.ndarray, " theta"]:
    """Which entries of θ touch a bound: −1 the lower, 1 the upper, 0 none."""
    edge = 1e-6 * np.maximum(1.0, np.abs(theta))
    return (theta >= bounds[:, 1] - edge).astype(int) - (theta <= bounds[:, 0] + edge)


def _stopped_by_bound(landscape: Any, end: np.ndarray, bounds: np.ndarray) -> bool:
    """Whether a bound stops learning; a longest lengthscale only says that a feature does not matter."""
    sides = zip(labels(landscape.parts), at_bounds(end, bounds), strict=True)
    return any(side < 0 or (side > 0 and "lengthscale" not in label) for label, side in sides)


def scaled(kernel: Any, variance: float, lengthscale: float) -> Any:
    """A declared kernel with its variance, and all its lengthscales, times factors, as far as they are free."""
    if isinstance(kernel, Sum):
        return Sum(scaled(kernel.left, variance, lengthscale), scaled(kernel.right, variance, lengthscale))
    if isinstance(kernel, Product):
        left = scaled(kernel.left, variance, lengthscale)
        taken = any(not p.fixed and name.endswith("variance") for name, p in named(kernel.left))
        return Product(left, scaled(kernel.right, 1.0 if taken else variance, lengthscale))
    if isinstance(kernel, Power):
        return Power(scaled(kernel.base, variance ** (1.0 / kernel.exponent), lengthscale), kernel.exponent)
    if isinstance(kernel, Columns):
        return Columns(scaled(kernel.kernel, variance, lengthscale), kernel.columns, kernel.names)
    for name, factor in (("variance", variance), ("lengthscale", lengthscale)):
        given = getattr(kernel, name, None)
        if is_parameter(given) and not given.fixed:
            kernel = changed(kernel, **{name: _moved(given, factor * given.value)})
    return kernel


def _moved(parameter: Parameter, value: Any) -> Parameter:
    return changed(parameter, value=np.asarray(value, dtype=np.float64))


# --- units of θ ------------------------------------------------------------------------------------------------------


def units(landscape: Any) -> Float[np.ndarray, " theta"]:
    """What a step of 1 is for each entry of θ: 1 for logarithms; for a constant or linear mean the spread of y, over
    that of the feature, and for inducing points that of the feature, so that learning does not depend on the units of X
    and y.
    """
    parts, x = landscape.parts, landscape.task.x
    names = [label.split("[")[0] for label in labels(parts)]
    unit = np.ones(len(names))
    if not any(name.startswith(("mean", "process")) for name in names):
        return unit
    size = 1.0 if parts.likelihood.noise_name is None else size_in(landscape).spread
    spread = sampled(x).std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    known: dict[str, Any] = {"mean": size} if is_parameter(parts.mean) else {}
    if isinstance(parts.mean, means.Linear):
        known = {"mean.intercept": size, "mean.coefficients": size / parts.mean.of(spread[None])[0]}
    known["process.points"] = np.resize(spread, names.count("process.points"))
    for name, step in known.items():
        unit[np.array(names) == name] = step
    return unit
