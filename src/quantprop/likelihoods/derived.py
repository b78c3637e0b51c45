"""Likelihoods made of others: a power, the rest beside a Gaussian factor, the small rule alone, and several outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Moments, Normal, Scalar, Split
from quantprop.likelihoods.classes import ClassLikelihood
from quantprop.numerics.trusted import if_trusted

_moments = if_trusted(lambda likelihood, datum, cavity: likelihood.few_node_moments(datum, cavity))


class Derived(Likelihood):
    """Base of likelihoods made of another, `base`."""

    base: Likelihood

    support = "as its base"
    stored = False
    continuous: ClassVar[Any] = property(lambda self: self.base.continuous)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f)

    def landmarks(self, datum: Datum) -> Landmarks:
        return self.base.landmarks(datum)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)


class Tempered(Derived):
    """p(y | f)^exponent, not normalised in y: power EP and weights below 1 tilt with it."""

    exponent: Scalar

    name = "tempered"
    log_concave: ClassVar[Any] = property(lambda self: self.base.log_concave)
    smooth: ClassVar[Any] = property(lambda self: self.base.smooth)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.exponent * self.base.log_prob(datum, f)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        closed = self.base.tempered_moments(datum, cavity, self.exponent)
        return super().moments(datum, cavity) if closed is None else closed

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent * self.exponent)


class Remainder(Derived):
    """p(y | f) / exp(−½ τ f²), τ = base.gaussian_precision: what is left when that factor is kept exact."""

    name = "remainder"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f) + 0.5 * self.base.gaussian_precision(datum) * f * f


class WithFewNodes(Derived):
    """The same likelihood, NaN where the small quadrature rule is not accurate enough. Its program lacks the panels,
    which are most of a program's size; callers must be able to start again with `base`.
    """

    name = "with the small rule"
    log_concave: ClassVar[Any] = property(lambda self: self.base.log_concave)
    closed: ClassVar[Any] = property(lambda self: self.base.closed)
    latents: ClassVar[Any] = property(lambda self: self.base.latents)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.base.moments(datum, cavity) if self.base.closed else _moments(self.base, datum, cavity)

    def functions(self, datum: Datum, cavity: Normal) -> tuple[tuple[Likelihood, Normal], ...]:
        return super().functions(datum, cavity) if self.latents == 1 else self.base.few_node_functions(datum, cavity)

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent)


ANYWHERE = 1.0  # a value, mean and variance of f at which every likelihood and its derivatives are finite
INSIDE = (1.0, 0.5, 0.0)  # one of them is a possible y of every likelihood


def shared(rule: Callable, name: str) -> property:
    """A fact about the likelihoods of all outputs, or of any of them."""
    return property(lambda self: rule(getattr(part, name) for part in self.likelihoods))


class ByOutput(Likelihood):
    """p(y | f) = p_k(y | f) for a row of output k. y has two columns: the observation, and k = 0, 1, ...

    Each row has one latent value, so the outputs share what their kernel shares: times `kernels.Coregion` of the column
    of X that holds k, functions of all outputs have a learned covariance; without, f is the same for all of them. Two
    classes are −1 and 1 (or 0 and 1). Exposure and trials are used by those outputs that have them.

    Args:
        likelihoods: One likelihood per output, in the order of the codes 0, 1, ...

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods
    >>> t, output = np.tile(np.linspace(0, 3, 6), 2), np.repeat([0, 1], 6)
    >>> y = np.array([2, 1, 4, 6, 9, 7, 0, 0, 0, 1, 1, 1])
    >>> kernel = kernels.SquaredExponential().on(0) * kernels.Coregion(1, 2, [[1.0], [0.8]], [0.1, 0.1]).on(1)
    >>> model = Model(kernel, likelihoods.ByOutput((likelihoods.Poisson(), likelihoods.Probit())))
    >>> X = np.column_stack([t, output])
    >>> solution = infer(model, X, np.column_stack([y, output]), "ep")
    >>> solution.predict_y([[3.0, 0]], output=0).mean.round(1).tolist()
    [6.5]
    >>> solution.predict_y([[3.0, 1]], output=1).mean.round(1).tolist()
    [0.8]
    """

    likelihoods: tuple[Likelihood, ...] = field(converter=tuple)

    name = "by-output"
    support = "(y, k) with y in the support of the likelihood of output k = 0, 1, ..."
    columns = 2

    def __check_init__(self) -> None:
        if not self.likelihoods or not all(isinstance(part, Likelihood) for part in self.likelihoods):
            raise TypeError(f"ByOutput: likelihoods must be a tuple of likelihoods; got {self.likelihoods!r}")
        for part in self.likelihoods:
            if part.columns != 1 or isinstance(part, (ByOutput, ClassLikelihood)):
                raise ValueError(f"ByOutput: {type(part).__name__} cannot be one of several outputs, which have one "
                                 "number y and one latent value per row; fit it separately")  # fmt: skip

    # --- what holds where it holds for all of them -------------------------------------------------------------------

    log_concave: ClassVar[Any] = shared(all, "log_concave")
    continuous: ClassVar[Any] = shared(all, "continuous")
    closed: ClassVar[Any] = shared(all, "closed")
    singular: ClassVar[Any] = shared(any, "singular")
    has_gaussian_factor: ClassVar[Any] = shared(any, "has_gaussian_factor")
    integrable: ClassVar[Any] = shared(all, "integrable")
    differentiable: ClassVar[Any] = shared(all, "differentiable")

    @property
    def scaled_by(self) -> frozenset[str]:
        return frozenset().union(*(part.scaled_by for part in self.likelihoods))

    # --- the mathematics: that of the row's own output ---------------------------------------------------------------

    def each(self, function: Callable, datum: Datum, *given: Any) -> Any:
        """function(likelihood, datum, ...) of the row's own likelihood.

        All of them are computed, those of other outputs at numbers where nothing overflows: neither values nor
        derivatives of one reach another.
        """
        y, output = datum.y
        found = []
        for k, part in enumerate(self.likelihoods):
            own = output == k
            scales = (jnp.where(own, scale, 1.0) for scale in (datum.exposure, datum.trials))
            at = jax.tree.map(lambda number, own=own: jnp.where(own, number, ANYWHERE), given)
            found.append((own, function(part, Datum(jnp.where(own, y, _inside(part)), *scales), *at)))
        result = found[0][1]
        for own, other in found[1:]:
            result = jax.tree.map(lambda new, old, own=own: jnp.where(own, new, old), other, result)
        return result

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.each(lambda part, datum, f: part.log_prob(datum, f), datum, f)

    def landmarks(self, datum: Datum) -> Landmarks:
        """Landmarks of the row's output; the first is repeated if another output has more."""
        most = max(len(jax.eval_shape(part.landmarks, Datum(1.0, 1.0, 1.0)).location) for part in self.likelihoods)

        def as_many(part: Likelihood, datum: Datum) -> Landmarks:
            at = part.landmarks(datum)
            which = jnp.maximum(jnp.arange(most) - (most - len(at.location)), 0)
            return Landmarks(at.location[which], at.scale[which])

        return self.each(as_many, datum)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.each(lambda part, *row: part.moments(*row), datum, cavity)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        return self.each(lambda part, *row: Tempered(part, exponent).moments(*row), datum, cavity)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        return self.each(lambda part, *row: part.expected_log_prob(*row), datum, marginal)

    def gaussian_precision(self, datum: Datum) -> Scalar:
        return self.each(lambda part, datum: part.gaussian_precision(datum), datum)

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        return self.each(lambda part, datum: part.start(datum), datum)

    # --- y, as the user gives it -------------------------------------------------------------------------------------

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        rows = [(y[..., 1] == k) & part.in_support(y[..., 0], trials) for k, part in enumerate(self.likelihoods)]
        return np.any(rows, axis=0)

    def code(self, y: np.ndarray) -> np.ndarray:
        """The observations of each output as its likelihood codes them."""
        coded = np.array(y, dtype=np.float64)
        for k, part in enumerate(self.likelihoods):
            own = y[..., 1] == k
            coded[own, 0] = part.code(y[own, 0])
        return coded


def _inside(likelihood: Likelihood) -> float:
    """A y that the likelihood can produce."""
    return next(y for y in INSIDE if np.all(likelihood.in_support(np.array([y]), np.ones(1))))


def of_output(likelihood: Likelihood, output: int | None) -> Likelihood:
    """The likelihood of new observations: of a model with several outputs that of one of them."""
    if not isinstance(likelihood, ByOutput):
        if output is not None:
            raise ValueError(f"output was given, but the {likelihood.name} likelihood has a single output")
        return likelihood
    known = range(len(likelihood.likelihoods))
    if not isinstance(output, int | np.integer) or isinstance(output, bool) or output not in known:
        raise ValueError(f"output must be one of {', '.join(map(str, known))}, which applies to all new rows, as in "
                         f"predict_y(X, output=0); got {output!r}")  # fmt: skip
    return likelihood.likelihoods[output]
