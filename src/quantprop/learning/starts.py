"""Starting values of learning, and checks for starting or final points from which nothing can be learned."""

from __future__ import annotations

import dataclasses
import warnings
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from quantprop import means
from quantprop.core.data import bucket, pad
from quantprop.core.parameters import Parameter, at, declared, free, is_parameter, labels, named, packed, values
from quantprop.core.records import changed
from quantprop.inference.prediction import gram_of
from quantprop.kernels import VARIANCE, Constant, Kernel, Power, Product, Sum, summands
from quantprop.kernels.base import Transformed
from quantprop.learning.landscape import Landscape
from quantprop.learning.sizes import MAX_ROWS_CHECKED, Size, distinct, size_in, typical_distance
from quantprop.likelihoods.base import Likelihood
from quantprop.methods import EP
from quantprop.runtime.jobs import sampled
from quantprop.runtime.precision import float64

FIRST_NOISE = 0.5  # times the spread of y
NOISE_BOUNDS = (1e-5, 1e5)  # times the spread of y
SUSPICIOUS = 0.1  # an optimum with less noise than this times the spread of y, or less signal than this times the noise
MIN_CORRELATION = 1e-8  # correlations closer to 0 or to 1 carry no information
SEPARABLE_VARIANCE = 1e3  # in units of the start, for classes that can be separated
VARIANCE_CURVATURE = 0.25  # in its logarithm, once it is large
FIRST_ROWS_CHECKED = 16  # mostly enough to show that it is informative


class KernelWarning(UserWarning):
    """Warning: the initial kernel is uninformative on these data, so its gradient vanishes."""


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
    start = FIRST_NOISE * size.spread if given == default else given
    lower, upper = (end * size.spread for end in NOISE_BOUNDS)
    return changed(likelihood, **{name: Parameter(start, bounds=(min(lower, start), max(upper, start)))})


def variance_bounds(variance: float) -> tuple[float, float]:
    return VARIANCE[0] * variance, VARIANCE[1] * variance


# --- further starts --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class StartRule:
    """A further start: its noise in units of the scale of y, and lengthscales in units of the first."""

    noise: float
    lengthscale: float


NOISY_START = StartRule(noise=1.0, lengthscale=1.0)  # all of it may be noise
WIGGLY_START = StartRule(noise=0.2, lengthscale=0.25)  # most of it is a function


def further_start(
    landscape: Landscape, end: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> StartRule | None:
    """The rule for a further start where learning took all of y for noise, or none of it, or ended at a bound.

    None where the end is not suspicious, or where the likelihood has no noise to learn.
    """
    name = landscape.parts.likelihood.noise_name
    if name is None or getattr(landscape.parts.likelihood, name).fixed:
        return None
    parts = at(landscape.parts, end)
    noise, k = float(getattr(parts.likelihood, name).value), covariance_of(parts.kernel, landscape.task.x)
    signal = float(np.mean(np.diagonal(k)) - np.mean(k))  # how far f varies between rows
    if signal < SUSPICIOUS * noise**2:
        return WIGGLY_START
    correlation = np.abs(_correlations(covariance_of(varying(parts.kernel), landscape.task.x))).max(initial=0.0)
    interpolating = noise < SUSPICIOUS * size_in(landscape).spread or correlation < SUSPICIOUS
    return NOISY_START if interpolating or _stopped_by_bound(landscape, end, bounds) else None


def start_by(
    rule: StartRule, landscape: Landscape, first: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, " theta"]:
    """θ of a further start: a kernel of the size of y, with noise and lengthscales as the rule says."""
    parts, spread = at(landscape.parts, first), size_in(landscape).spread
    name, k = parts.likelihood.noise_name, covariance_of(varying(parts.kernel), landscape.task.x)
    kernel = scaled(parts.kernel, spread**2 / float(np.mean(np.diagonal(k))), rule.lengthscale)
    noise = _moved(getattr(parts.likelihood, name), rule.noise * spread)
    likelihood = changed(parts.likelihood, **{name: noise})
    return np.clip(packed(parts._replace(kernel=kernel, likelihood=likelihood)), bounds[:, 0], bounds[:, 1])


def varying(kernel: Kernel) -> Kernel:
    """The terms of a kernel with something to learn, constants left aside: what starts are judged by. A fixed wide
    prior of a level or a slope says nothing of how f varies.
    """
    terms = [term for term in summands(kernel) if not isinstance(term, Constant) and free(declared(term))]
    return reduce(Sum, terms) if terms else kernel


def at_bounds(theta: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]) -> Int[np.ndarray, " theta"]:
    """Which entries of θ touch a bound: −1 the lower, 1 the upper, 0 none."""
    edge = 1e-6 * np.maximum(1.0, np.abs(theta))
    return (theta >= bounds[:, 1] - edge).astype(int) - (theta <= bounds[:, 0] + edge)


def _stopped_by_bound(landscape: Landscape, end: np.ndarray, bounds: np.ndarray) -> bool:
    """Return whether a bound stops learning; a longest lengthscale only says that a feature does not matter."""
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
    if isinstance(kernel, Transformed):
        return kernel.rebuilt(lambda part: scaled(part, variance, lengthscale))
    for name, factor in (("variance", variance), ("lengthscale", lengthscale)):
        given = getattr(kernel, name, None)
        if is_parameter(given) and not given.fixed:
            kernel = changed(kernel, **{name: _moved(given, factor * given.value)})
    return kernel


def _moved(parameter: Parameter, value: Any) -> Parameter:
    return changed(parameter, value=np.asarray(value, dtype=np.float64))


def start_of_separable_classes(
    landscape: Landscape, first: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, " theta"]:
    """θ with the variances that classes need if they can be separated, in EP and QP of one function per class; in other
    models, and if no variance is free, θ as it is.
    """
    if not (landscape.parts.process.several_sites and isinstance(landscape.method, EP)):
        return first
    parts = at(landscape.parts, first)
    kernel: Any = parts.kernel
    larger = tuple(scaled(one, SEPARABLE_VARIANCE, 1.0) for one in kernel.kernels)
    return np.clip(packed(parts._replace(kernel=changed(kernel, kernels=larger))), bounds[:, 0], bounds[:, 1])


def expected_curvature(landscape: Landscape) -> Float[np.ndarray, " theta"] | None:
    """The curvature of log evidence that EP and QP of one function per class mostly have along the logarithms, once the
    variance is large; None for other models.
    """
    if not (landscape.parts.process.several_sites and isinstance(landscape.method, EP)):
        return None
    return np.array([VARIANCE_CURVATURE if "variance" in label else 1.0 for label in labels(landscape.parts)])


# --- units of θ ------------------------------------------------------------------------------------------------------


def units(landscape: Any) -> Float[np.ndarray, " theta"]:
    """Unit of a step for each entry of θ: 1 for logarithms; for a constant or linear mean the scale of y, divided by
    that of the feature; for inducing points that of the feature. Learning then does not depend on the units of X and y.
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


# --- kernels that see nothing ----------------------------------------------------------------------------------------


def _correlations(k: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " pairs"]:
    """Correlations of all pairs of rows with a positive variance."""
    some = np.diagonal(k) > 0
    k = k[np.ix_(some, some)]
    sd = np.sqrt(np.diagonal(k))
    return (k / (sd[:, None] * sd))[np.triu_indices(len(k), 1)]


def blindness(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> tuple[str, str] | None:
    """Describe a kernel that is diagonal or constant on the data, from which nothing can be learned, with the change
    of the lengthscale that would help; None if it is neither.
    """
    if all(label.split(".")[-1] == "variance" for label, _ in named(declared(kernel))):
        return None
    kernel = varying(kernel)
    if _without_sight(_correlations(covariance_of(kernel, x[:FIRST_ROWS_CHECKED]))) is None:
        return None
    correlations = _correlations(covariance_of(kernel, x))
    return _without_sight(correlations) if len(correlations) else None


def _without_sight(correlations: Float[np.ndarray, " pairs"]) -> tuple[str, str] | None:
    """The common defect of all correlations, and the remedy; None if some are neither 0 nor 1."""
    if np.abs(correlations).max(initial=0.0) < MIN_CORRELATION:
        return "diagonal (no two rows are correlated)", "longer"
    if correlations.min(initial=1.0) > 1.0 - MIN_CORRELATION:
        return "constant (all rows are perfectly correlated)", "shorter"
    return None


def warn_of_blindness(
    blind: tuple[str, str] | None, x: Float[np.ndarray, "n d"], name: str, remedy: str, stacklevel: int
) -> None:
    if blind is not None:
        problem, change = blind
        warnings.warn(
            f"{name}: the initial kernel is {problem} on these data, so its gradient is zero: start from a {change} "
            f"lengthscale (typical distance between rows: {typical_distance(x):.3g}), scale the features, or {remedy}",
            KernelWarning,
            stacklevel=stacklevel,
        )


@float64
def covariance_of(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k k"]:
    """The covariance that a kernel gives `distinct` rows of x; in a long series, every other one is the neighbour of
    the one before, since those far apart say nothing of each other.
    """
    x = sampled(x)
    rows = x[distinct(x)]
    if x.shape[1] == 1 and len(line := np.unique(x)) > MAX_ROWS_CHECKED:
        spread = np.linspace(0, len(line) - 2, MAX_ROWS_CHECKED // 2).astype(int)
        rows = line[np.sort(np.concatenate([spread, spread + 1]))][:, None]
    k = gram_of(values(kernel), pad(rows, bucket(len(rows))))
    return np.asarray(k)[: len(rows), : len(rows)]
