"""The kernel that learning starts from: the user's, of either library, one in terms, or the default one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from quantprop.core.parameters import LogNormal, Parameter
from quantprop.core.records import changed
from quantprop.estimators.columns import Coding, level_counts
from quantprop.estimators.foreign import Source
from quantprop.estimators.rows import column_moments, sampled_rows
from quantprop.estimators.translate import KernelSpec, to_sklearn, translate, untranslated
from quantprop.kernels import (
    VARIANCE,
    Additive,
    Columns,
    Constant,
    Kernel,
    Linear,
    Product,
    RankNormal,
    SquaredExponential,
    Standardised,
    Sum,
    Terms,
    White,
    located,
)
from quantprop.kernels.additive import LENGTHSCALE, START
from quantprop.kernels.building import Place, Start
from quantprop.kernels.categories import ANY
from quantprop.kernels.formulas import is_formula, is_wide, parsed, summed, terms_of
from quantprop.kernels.size import KernelSizeError
from quantprop.kernels.structure import centred, measured, with_levels
from quantprop.kernels.variables import variables
from quantprop.learning.sizes import typical_distance
from quantprop.learning.starts import variance_bounds
from quantprop.runtime.precision import float64

WEAK_PRIOR = LogNormal(median=1.0, deviation=10.0)  # 95 % of √variance between 1/22,000 and 22,000
SMOOTHEST_MARKOV = partial(sk.Matern, nu=2.5)  # the smoothest correlation with a state-space form
SHRUNK_VARIANCE = LogNormal(median=2.0, deviation=1.5)  # in units of the variance of y (or of 1)
WIDE_VARIANCE = 100.0  # prior variance of an effect, in units of the variance of y (of 1, if f has no unit)
RESIDUALS = Parameter(0.1, VARIANCE, LogNormal(median=0.1, deviation=2.0))  # variance of residuals of a log rate
LENGTHSCALE_RANGE = 1e3  # a lengthscale's start over its lower bound, and its upper bound over its start


def _shrunk_variance() -> Parameter:
    return Parameter(SHRUNK_VARIANCE.median, VARIANCE, SHRUNK_VARIANCE)


@dataclass(frozen=True)
class DefaultKernel:
    """The kernel of estimators that are given none: a constant times an RBF (or another `correlation`), both learned.

    The constant starts at `variance`, the lengthscale at the typical distance between rows, and both have bounds of
    that size; with "ard" there is a lengthscale for each feature. `prior` is the constant's. With `residuals`, the
    members of "auto" have a term of each row's own: counts that vary more than their likelihood says.
    """

    variance: float = 1.0
    prior: LogNormal | None = WEAK_PRIOR
    correlation: Callable[..., sk.Kernel] = sk.RBF
    weights: np.ndarray | None = field(default=None, repr=False)  # of the rows: one of weight 2 counts as two
    residuals: bool = False

    def of(self, x: np.ndarray, ard: bool) -> KernelSpec:
        """The kernel for rows x."""
        length = typical_distance(x)
        lengths: Any = np.full(x.shape[1], length) if ard else length
        constant = sk.ConstantKernel(self.variance, variance_bounds(self.variance))
        spec = translate(constant * self.correlation(lengths, (1e-3 * length, 1e3 * length)))
        product: Any = spec.kernel
        variance = changed(product.left.variance, prior=self.prior)
        return replace(spec, kernel=changed(product, left=changed(product.left, variance=variance)))

    @float64
    def members(self, x: np.ndarray) -> dict[str, Any]:
        """The kernels of "auto": straight lines, one lengthscale, many shrunk ones, sums of curves and surfaces, and
        the last two of rank-normal scores, which differ from the columns if one of these has more than two values.
        """
        found = {"linear": self.lines(x)} | self._flexible(x)
        ranked = RankNormal(Constant()).measured(*sampled_rows(x, self.weights))
        if np.shape(ranked.values)[1] > 2:
            scored = self._flexible(np.asarray(ranked.of(x)))
            found |= {f"{name} on ranks": changed(ranked, kernel=kernel) for name, kernel in scored.items()}
        if self.residuals:
            found = {name: Sum(kernel, White(RESIDUALS)) for name, kernel in found.items()}
        return {"linear": found.pop("linear"), "isotropic": None, **found}

    def _flexible(self, x: np.ndarray) -> dict[str, Kernel]:
        return {"shrunk + linear": Sum(self.shrunk(x), self.lines(x)), "additive": self.additive(x)}

    def lines(self, x: np.ndarray) -> Kernel:
        """A straight line in each column, and a constant."""
        slopes = self._standardised(Linear(_shrunk_variance(), np.zeros(x.shape[1])), x)
        return self._in_units_of_y(Sum(slopes, Constant(_shrunk_variance())))

    def shrunk(self, x: np.ndarray) -> Kernel:
        """A lengthscale for each column, in its standard deviations, with priors that favour few relevant columns."""
        start = START * float(np.sqrt(x.shape[1]))
        prior, bounds = LogNormal(start, 1.0), (start * LENGTHSCALE[0], start * LENGTHSCALE[1])
        lengths = Parameter(np.full(x.shape[1], start), bounds, prior)
        return self._in_units_of_y(self._standardised(SquaredExponential(_shrunk_variance(), lengths), x))

    def additive(self, x: np.ndarray) -> Kernel:
        """Curves and surfaces of the columns, whose priors favour few relevant columns."""
        rows, counts = sampled_rows(x, self.weights)
        factors = variables(rows)
        varying = sum(np.ptp(rows[:, list(one)], axis=0).any() for one in factors)
        return self._in_units_of_y(Additive(min(2, varying), factors=factors).measured(rows, counts))

    def _standardised(self, kernel: Kernel, x: np.ndarray) -> Kernel:
        centre, spread = column_moments(x, self.weights)
        return Standardised(kernel, centre, np.sqrt(np.where(spread > 0, spread, 1.0)))

    def _in_units_of_y(self, kernel: Kernel) -> Kernel:
        return kernel if self.variance == 1.0 else Product(Constant(Parameter(self.variance, fixed=True)), kernel)


@dataclass(frozen=True)
class KernelChoices:
    """Several kernels to start from, by name: each is learned, and the models are stacked."""

    specs: dict[str, KernelSpec]

    @property
    def kernel(self) -> Kernel:
        """The first of them."""
        return next(iter(self.specs.values())).kernel


def kernel_choices(
    x: np.ndarray, source: Source | None, default: DefaultKernel, coding: Coding = Coding()
) -> KernelChoices:
    """The kernels of "auto"."""
    return KernelChoices({n: kernel_spec(k, x, source, default, coding) for n, k in default.members(x).items()})


def kernel_spec(
    kernel: Any, x: np.ndarray, source: Source | None, default: DefaultKernel, coding: Coding = Coding()
) -> KernelSpec:
    """A kernel of either library, of terms, or one by name: None, "ard", "shrunk" or "additive".

    Linear terms that are given as text pass through 0 at the mean of their columns, so that neither effects nor their
    errors depend on where the zero of a column is.
    """
    if kernel is None or kernel == "ard":
        return default.of(x, kernel == "ard")
    if isinstance(kernel, str) and kernel in ("shrunk", "additive"):
        kernel = default.shrunk(x) if kernel == "shrunk" else default.additive(x)
    elif isinstance(kernel, (str, Terms)):
        terms = Terms(kernel) if isinstance(kernel, str) else kernel
        kernel = centred(_started(terms, x, coding.names, default), column_moments(x, default.weights)[0])
    if isinstance(kernel, Kernel):
        kernel = located(kernel, coding.names) if coding.names else kernel
        kernel = with_levels(kernel, level_counts(kernel, x))
        kernel = measured(kernel, *sampled_rows(x, default.weights))
        try:
            kernel = to_sklearn(kernel)
        except (TypeError, KernelSizeError):  # of the user's own, with a prior, or too large there
            return untranslated(kernel)
    theirs: Any = clone(kernel)
    return translate(theirs, source)


@dataclass(frozen=True)
class StartFromData(Start):
    """Starts from rows x, and from the variance that the terms have to explain together."""

    x: Float[np.ndarray, "n d"] = field(repr=False)
    weights: Float[np.ndarray, " n"] | None = field(repr=False)
    each: float  # variance of a term
    whole: float  # variance of y
    prior: LogNormal | None

    def variance(self, place: Place) -> Any:
        unit = 1.0
        if place.kind == "linear":  # the variance between rows that a linear term of variance 1 gives to f
            scale = float(np.sum(column_moments(self.x[:, np.array(place.columns)], self.weights)[1]))
            unit = scale if scale > 0 else 1.0
        if place.kind in ("linear", "factor", "constant") and not place.in_product:
            return Parameter(WIDE_VARIANCE * self.whole / unit, fixed=True)
        start = self.each / unit
        prior = self.prior and LogNormal(self.prior.median / unit, self.prior.deviation)
        return Parameter(start, bounds=variance_bounds(start), prior=prior)

    def lengthscale(self, place: Place, ard: bool) -> Any:
        columns = [[column] for column in place.columns] if ard else [list(place.columns)]
        lengths = np.array([typical_distance(self.x[:, np.array(group)]) for group in columns])
        lower, upper = (lengths / LENGTHSCALE_RANGE).tolist(), (lengths * LENGTHSCALE_RANGE).tolist()
        if ard:
            return Parameter(lengths, bounds=(tuple(lower), tuple(upper)))
        return Parameter(float(lengths[0]), bounds=(lower[0], upper[0]))

    def centre(self, place: Place) -> Any:
        return float(column_moments(self.x[:, np.array(place.columns)], self.weights)[0][0])

    def reference(self, place: Place) -> float:
        return float(self.x[:, np.array(place.columns)].min())

    def levels(self, place: Place) -> tuple[float, ...]:
        return tuple(np.unique(self.x[:, np.array(place.columns)]).tolist())

    def covariance(self, place: Place) -> Any:
        spread = column_moments(self.x[:, np.array(place.columns)], self.weights)[1]
        each = np.sqrt(self.each / (1 + len(spread))) / np.array([1.0, *np.where(spread > 0, spread, 1.0)])
        return Parameter(np.diag(each)[np.tril_indices(len(each))], ANY)


def _started(terms: Terms, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: DefaultKernel) -> Kernel:
    """The kernel of some terms; `default` says how much they have to explain."""
    features, called = x.shape[1], names or terms.names
    for call in terms_of(terms.tree):
        for named in call.columns:
            if not called and not (isinstance(named.column, int) and named.column < features):
                raise ValueError(f"kernel: column {named.column!r} is not one of the {features} columns of X, which "
                                 "has no names: pass positions from 0, or a data frame")  # fmt: skip
    learned = sum(not is_wide(part) for part in summed(terms.tree))
    each = default.variance / max(learned, 1)
    return terms.kernel(StartFromData(x, default.weights, each, default.variance, default.prior), called)


def has_white(kernel: Any) -> bool:
    """Return whether a kernel in terms contains the noise of y itself."""
    text = kernel.text if isinstance(kernel, Terms) else kernel or ""
    return is_formula(text) and any(call.kind == "white" for call in terms_of(parsed(text)))


def with_unknown_mean(
    spec: Any, kind: str, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: DefaultKernel
) -> Any:
    """The kernel plus an unknown prior mean, "constant" or "linear", as terms with wide fixed variances.

    Slopes are 0 at the mean of x. If the sum has no form in scikit-learn, the kernel's own linear terms pass through 0
    there too: the level is not known anyway.
    """
    if kind == "zero":
        return spec
    if isinstance(spec, KernelChoices):
        return KernelChoices({n: with_unknown_mean(one, kind, x, names, default) for n, one in spec.specs.items()})
    centre, spread = column_moments(x, default.weights)
    mean: Kernel = Constant(Parameter(WIDE_VARIANCE * default.variance, fixed=True))
    if kind == "constant" and spec.theirs is not None:
        return replace(spec, kernel=Sum(spec.kernel, mean), theirs=sk.Sum(spec.theirs, to_sklearn(mean)))
    if kind == "linear":
        variance = Parameter(WIDE_VARIANCE * default.variance / np.where(spread > 0, spread, 1.0), fixed=True)
        mean = Sum(Columns(Linear(variance, centre), tuple(range(x.shape[1])), names), mean)
    return untranslated(Sum(centred(spec.kernel, centre), mean))
