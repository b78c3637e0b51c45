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
from quantprop.estimators.rows import column_moments
from quantprop.estimators.translate import KernelSpec, to_sklearn, translate, untranslated
from quantprop.kernels import Columns, Constant, Kernel, Linear, Sum, Terms, located
from quantprop.kernels.base import KernelSizeError
from quantprop.kernels.grammar import parsed
from quantprop.kernels.structure import centred, with_levels
from quantprop.kernels.terms import Place, Start, summed, terms_of
from quantprop.learning.starts import variance_bounds
from quantprop.learning.uninformative import typical_distance

WEAK_PRIOR = LogNormal(median=1.0, deviation=10.0)  # of a variance: 95 % of its root between 1/22,000 and 22,000
SMOOTHEST_MARKOV = partial(sk.Matern, nu=2.5)  # the smoothest correlation with a state-space form
WIDE_VARIANCE = 100.0  # of an unknown effect, in units of the variance of y (or of 1, if f has no unit)
WIDE_TERMS = ("linear", "constant")  # the terms of such effects
LENGTHSCALE_RANGE = 1e3  # a lengthscale's start over its lower bound, and its upper bound over its start


@dataclass(frozen=True)
class DefaultKernel:
    """The kernel of estimators that are given none: a constant times an RBF (or another `correlation`), both learned.

    The constant starts at `variance`, the lengthscale at the typical distance between rows, and both have bounds of
    that size; with "ard" there is a lengthscale for each feature. `prior` is the constant's.
    """

    variance: float = 1.0
    prior: LogNormal | None = WEAK_PRIOR
    correlation: Callable[..., sk.Kernel] = sk.RBF
    weights: np.ndarray | None = field(default=None, repr=False)  # of the rows: one of weight 2 counts as two

    def of(self, x: np.ndarray, ard: bool) -> KernelSpec:
        """The kernel for rows x."""
        length = typical_distance(x)
        lengths: Any = np.full(x.shape[1], length) if ard else length
        constant = sk.ConstantKernel(self.variance, variance_bounds(self.variance))
        spec = translate(constant * self.correlation(lengths, (1e-3 * length, 1e3 * length)))
        product: Any = spec.kernel
        variance = changed(product.left.variance, prior=self.prior)
        return replace(spec, kernel=changed(product, left=changed(product.left, variance=variance)))


def kernel_spec(
    kernel: Any, x: np.ndarray, source: Source | None, default: DefaultKernel, coding: Coding = Coding()
) -> KernelSpec:
    """A kernel of either library, of terms, or the default one: None, or "ard".

    Linear terms that are given as text pass through 0 at the mean of their columns, so that neither effects nor their
    errors depend on where the zero of a column is.
    """
    if kernel is None or kernel == "ard":
        return default.of(x, kernel == "ard")
    if isinstance(kernel, (str, Terms)):
        terms = Terms(kernel) if isinstance(kernel, str) else kernel
        kernel = centred(_started(terms, x, coding.names, default), column_moments(x, default.weights)[0])
    if isinstance(kernel, Kernel):
        kernel = located(kernel, coding.names) if coding.names else kernel
        kernel = with_levels(kernel, level_counts(kernel, coding, x))
        try:
            kernel = to_sklearn(kernel)
        except (TypeError, KernelSizeError):  # of the user's own, with a prior, or too large there
            return untranslated(kernel)
    theirs: Any = clone(kernel)
    return translate(theirs, source)


# --- starts of kernels in terms --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartFromData(Start):
    """Starts from rows x, and from the variance that the terms have to explain together."""

    x: Float[np.ndarray, "n d"] = field(repr=False)
    weights: Float[np.ndarray, " n"] | None = field(repr=False)
    each: float  # variance of a term
    whole: float  # variance of y
    prior: LogNormal | None

    def variance(self, place: Place) -> Any:
        unit = self._unit(place)
        if place.kind in WIDE_TERMS and not place.in_product:
            return Parameter(WIDE_VARIANCE * self.whole / unit, fixed=True)
        start = self.each / unit
        prior = self.prior and LogNormal(self.prior.median / unit, self.prior.deviation)
        return Parameter(start, bounds=variance_bounds(start), prior=prior)

    def _unit(self, place: Place) -> float:
        """The variance between rows that a linear term of variance 1 gives to f."""
        if place.kind != "linear":
            return 1.0
        spread = float(np.sum(column_moments(self.x[:, np.array(place.columns)], self.weights)[1]))
        return spread if spread > 0 else 1.0

    def lengthscale(self, place: Place, ard: bool) -> Any:
        columns = [[column] for column in place.columns] if ard else [list(place.columns)]
        lengths = np.array([typical_distance(self.x[:, np.array(group)]) for group in columns])
        lower, upper = (lengths / LENGTHSCALE_RANGE).tolist(), (lengths * LENGTHSCALE_RANGE).tolist()
        if ard:
            return Parameter(lengths, bounds=(tuple(lower), tuple(upper)))
        return Parameter(float(lengths[0]), bounds=(lower[0], upper[0]))


def _started(terms: Terms, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: DefaultKernel) -> Kernel:
    """The kernel of some terms; `default` says how much they have to explain."""
    features, called = x.shape[1], names or terms.names
    for call in terms_of(terms.tree):
        for named in call.columns:
            if not called and not (isinstance(named.column, int) and named.column < features):
                raise ValueError(f"kernel: column {named.column!r} is none of the {features} columns of X, which has "
                                 "no names: give positions from 0, or a frame")  # fmt: skip
    parts = [terms_of(part) for part in summed(terms.tree)]
    learned = [calls for calls in parts if not (len(calls) == 1 and calls[0].kind in WIDE_TERMS)]
    each = default.variance / max(len(learned), 1)
    return terms.kernel(StartFromData(x, default.weights, each, default.variance, default.prior), called)


def has_white(kernel: Any) -> bool:
    """Whether a kernel in terms contains the noise of y itself."""
    text = kernel.text if isinstance(kernel, Terms) else kernel or ""
    return "(" in text and any(call.kind == "white" for call in terms_of(parsed(text)))


# --- a mean that is not known ----------------------------------------------------------------------------------------


def with_unknown_mean(
    spec: KernelSpec, kind: str, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: DefaultKernel
) -> KernelSpec:
    """The kernel plus an unknown prior mean, "constant" or "linear", as terms with wide fixed variances.

    Slopes are 0 at the mean of x. If the sum has no form in scikit-learn, the kernel's own linear terms pass through 0
    there too: the level is not known anyway.
    """
    if kind == "zero":
        return spec
    centre, spread = column_moments(x, default.weights)
    mean: Kernel = Constant(Parameter(WIDE_VARIANCE * default.variance, fixed=True))
    if kind == "constant" and spec.theirs is not None:
        return replace(spec, kernel=Sum(spec.kernel, mean), theirs=sk.Sum(spec.theirs, to_sklearn(mean)))
    if kind == "linear":
        variance = Parameter(WIDE_VARIANCE * default.variance / np.where(spread > 0, spread, 1.0), fixed=True)
        mean = Sum(Columns(Linear(variance, centre), tuple(range(x.shape[1])), names), mean)
    return untranslated(Sum(centred(spec.kernel, centre), mean))
