"""The contract of a likelihood: log p(y | f) for one observation, with its properties; checks and codes of y.

A likelihood is independent of Gaussian processes, sites and methods. All mathematics is for one f and one observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from quantprop.core.data import check_entries, positive_rows, real_array, spread
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import bounded as bounded
from quantprop.core.records import Record, changed
from quantprop.core.sites import Datum, Moments, Scalar, Split
from quantprop.likelihoods.tilted import (
    few_node_moments,
    latent_nodes,
    panel_moments,
    quadrature_expectation,
    smooth_moments,
)
from quantprop.numerics.mixtures import FINE, Fineness, Places, expectation
from quantprop.numerics.mixtures import places as places
from quantprop.numerics.quadrature import Landmarks
from quantprop.numerics.quadrature import landmarks as landmarks
from quantprop.numerics.quantiles import axis
from quantprop.runtime.names import check_name
from quantprop.runtime.programs import program

AT_A_TIME = 1024  # rows whose landmarks one program computes
TINY = 1e-300  # stands for a y of 0 where log y must be finite

Limits = tuple[float, float]


class Likelihood(Record):
    """Base of all likelihoods.

    A new one needs `log_prob`, `landmarks`, `in_support`, `name` and `support`. A class attribute that depends on
    parameters becomes a property.

    >>> from quantprop import likelihoods
    >>> [likelihood().log_concave for likelihood in (likelihoods.Probit, likelihoods.StudentT)]
    [True, False]
    """

    name: ClassVar[str]  # by which estimators and tables take it
    title: ClassVar[str | None] = None  # in reports, if that is not the name
    support: ClassVar[str]  # what y may be, in words, for the error message
    # The kind of y: classes, ordered, counts, successes, real, positive, proportions, times, intervals or other.
    observes: ClassVar[str] = "other"
    stored: ClassVar[bool] = True  # files may hold it
    bounds: ClassVar[Mapping[str, Limits]] = {}  # the numbers that learning may change, and how far
    log_concave: ClassVar[bool] = False  # in f: then no site precision can be negative
    continuous: ClassVar[bool] = True  # log p(y | f) has no jump in f
    smooth: ClassVar[bool] = False  # analytic in f, with one peak, at the first landmark: the small rule may be enough
    singular: ClassVar[bool] = False  # log p(y | f) is −∞ at some f; then p to a power below 1 has a cusp there
    has_gaussian_factor: ClassVar[bool] = False  # see `gaussian_precision`
    integrable: ClassVar[bool] = True  # E[log p(y | f)] under a Gaussian is finite
    conjugate: ClassVar[bool] = False  # tilted densities are Gaussian
    projectable: ClassVar[bool] = True  # there are tilted densities to project: EP and QP exist
    differentiable: ClassVar[bool] = True  # it has second derivatives wherever Newton's method may look
    scaled_by: ClassVar[frozenset[str]] = frozenset()  # of {"exposure", "trials"}: what else a datum carries
    noise_name: ClassVar[str | None] = None  # the parameter that is the scale of y about f; then f has the unit of y
    columns: ClassVar[int] = 1  # numbers that make up one y
    latents: ClassVar[int] = 1  # latent values of a row; several are the entries of an array, as are their sites
    lattice: ClassVar[Limits | None] = None  # of a discrete y: its first value and its step
    interval: ClassVar[Limits] = (-np.inf, np.inf)  # that holds y
    tilted: ClassVar[Any] = None  # the tilted density, where it is all that is known

    # --- the mathematics -------------------------------------------------------------------------------------------

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """log p(y | f)."""
        raise NotImplementedError

    def landmarks(self, datum: Datum) -> Landmarks:
        """Locations where p(y | ·) is concentrated or rough, with their scales."""
        raise NotImplementedError

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        """Moments of the tilted density: in closed form if a stable one exists, otherwise by quadrature."""
        return smooth_moments(self, datum, cavity) if self.smooth else panel_moments(self, datum, cavity)

    def few_node_moments(self, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
        """The same by the small quadrature rule, and whether they are accurate."""
        return few_node_moments(self, datum, cavity)

    @property
    def closed(self) -> bool:
        """True if the likelihood has its own `moments`."""
        return type(self).moments is not Likelihood.moments

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments | None:
        """Moments of p(y | f)^exponent N(f | cavity), where they have a stable closed form."""
        return None

    def functions(self, datum: Datum, cavity: Normal) -> tuple[tuple[Likelihood, Normal], ...]:
        """For each latent value the likelihood with the others integrated out under their cavities, and its cavity."""
        return ((self, cavity),)

    def few_node_functions(self, datum: Datum, cavity: Normal) -> tuple[tuple[Likelihood, Normal], ...]:
        """The same where the small quadrature rule suffices."""
        return self.functions(datum, cavity)

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        """p(y | f)^exponent N(f | cavity) in two factors, one of them Gaussian: the cavity, unless p(y | f) has a
        Gaussian tail there, whose squares would round away what else there is to integrate.
        """
        return Split(lambda f: exponent * self.log_prob(datum, f), cavity, 0.0)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """E_q[log p(y | f)] and its derivatives in the mean and in the variance of q."""
        return quadrature_expectation(partial(self.log_prob, datum), self.landmarks(datum), marginal)

    def gaussian_precision(self, datum: Datum) -> Scalar:
        """τ of a factor exp(−½ τ f²) of p(y | f), where there is one.

        Such a likelihood can do without a proper cavity: cavity times this factor is all that must be a distribution.
        """
        return jnp.zeros_like(datum.exposure)

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """Site (ν, τ) from which inference starts."""
        return jnp.zeros_like(datum.exposure), jnp.zeros_like(datum.exposure)

    # --- the distribution of y ---------------------------------------------------------------------------------------

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        """E[y | f]; of the datum only what scales it matters."""
        raise NotImplementedError

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        """Var[y | f]."""
        raise NotImplementedError

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """P(Y ≤ y | f), elementwise, with NumPy: SciPy's special functions are many times as fast as JAX's."""
        raise NotImplementedError

    def cdf_places(self, datum: Datum) -> Places:
        """Location and scale in f of the change of P(Y ≤ y | f), for rows of data; by default the landmarks."""
        return _landmark_places(self, datum)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """A y that is typical of f, elementwise, with NumPy: where the search for a quantile starts."""
        on = axis(self.interval, self.lattice)
        return on.inside(f, np.full_like(f, on.least), np.full_like(f, on.greatest))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        """Draws of y given f, elementwise."""
        raise NotImplementedError

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        """Mean and variance of y when f ~ latent."""
        density, f = latent_nodes(self.landmarks(datum), latent)
        mean = jax.vmap(jax.vmap(lambda f: self.mean(datum, f)))(f)
        centre = density.expect(mean)
        within = density.expect(jax.vmap(jax.vmap(lambda f: self.variance(datum, f)))(f))
        return centre, within + density.expect((mean - centre) ** 2)

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        """log p(y) when f ~ latent: the tilted normaliser, exact for every likelihood."""
        return self.moments(datum, latent).log_normalizer

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        """P(Y ≤ y) when f ~ latent, for rows of data, with NumPy; `fineness` is that of an average over f, if any. A
        parameter may have a value for each row.
        """
        by_row = {name: value for name in self.bounds if np.ndim(value := getattr(self, name)) == 1}

        def given(rows: np.ndarray, f: np.ndarray) -> np.ndarray:
            own = changed(self, **{name: value[rows, None] for name, value in by_row.items()})
            return own.cdf(Datum(*(column[rows, None] for column in datum)), f)

        return expectation(given, latent.mean, np.sqrt(latent.variance), self.cdf_places(datum), fineness)

    # --- y, as the user gives it -------------------------------------------------------------------------------------

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """Which rows of y the likelihood can have produced."""
        raise NotImplementedError

    def code(self, y: np.ndarray) -> np.ndarray:
        """y in the coding that `log_prob` uses."""
        return y

    def response(self, y: np.ndarray) -> np.ndarray:
        """y, or both its ends, in the unit of f, where the likelihood has `noise`: starts are taken from its size."""
        return y

    def measured(self, centre: float, spread: float) -> Likelihood:
        """The likelihood with numbers of its own, such as places on the axis of y, in units of the data's size."""
        return self

    def greatest(self, datum: Datum) -> Scalar:
        """The largest y there is (or infinity)."""
        return self.interval[1]


class Linked(Likelihood):
    """Base of likelihoods with a `link`, the inverse of the function that f goes through."""

    links: ClassVar[tuple[str, ...]]

    def __check_init__(self) -> None:
        check_name(f"{type(self).__name__}: link", self.link, self.links)

    @property
    def link(self) -> Any:
        """A field of each, after those of its own."""
        raise NotImplementedError


_places_of = program(lambda likelihood, data: jax.vmap(likelihood.landmarks)(data))


def _landmark_places(likelihood: Likelihood, datum: Datum) -> Places:
    """The landmarks of rows of data, computed for a fixed number of rows at a time, so that one program does."""
    parts = []
    for start in range(0, len(datum.exposure), AT_A_TIME):
        some = Datum(*(np.asarray(column[start : start + AT_A_TIME]) for column in datum))
        n = len(some.exposure)
        at = _places_of(likelihood, Datum(*(np.resize(column, (AT_A_TIME, *column.shape[1:])) for column in some)))
        parts.append((np.asarray(at.location)[:n].T, np.asarray(at.scale)[:n].T))
    return Places(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def is_count(y: np.ndarray) -> np.ndarray:
    """Return whether y is one of 0, 1, 2, ..."""
    return np.isfinite(y) & (y >= 0) & (y == np.floor(y))


def scales(likelihood: Likelihood, shape: tuple[int, ...], exposure: Any, trials: Any) -> dict[str, np.ndarray]:
    """Exposure and trials per datum, or an error where the likelihood has no use for one."""
    given = {"exposure": exposure, "trials": trials}
    for name, value in given.items():
        if value is not None and name not in likelihood.scaled_by:
            raise ValueError(f"{name} was given, but the {likelihood.name} likelihood does not use it")
    return {name: positive_rows(value, name, shape) for name, value in given.items()}


def observed(y: Any, likelihood: Likelihood, n: int) -> np.ndarray:
    """The observations of n rows, in the shape that the likelihood takes."""
    expected = (n,) if likelihood.columns == 1 else (n, likelihood.columns)
    if (array := real_array(y, "y")).shape != expected:
        raise ValueError(f"y must have shape {expected}, one entry per row of X; got shape {array.shape}")
    return array


def encode(likelihood: Likelihood, y: Any, shape: tuple[int, ...], exposure: Any = None, trials: Any = None) -> Datum:
    """Observations as the likelihood takes them, every one checked against its support."""
    tail = (likelihood.columns,) if likelihood.columns > 1 else ()
    array = real_array(y, "y")
    check_entries(np.isnan(array), array, "y", ": NaN is not allowed")
    array = spread(array, shape + tail, "y")
    more = scales(likelihood, shape, exposure, trials)
    array = likelihood.code(array)
    outside = f" is outside the support of the {likelihood.name} likelihood: {likelihood.support}"
    check_entries(~likelihood.in_support(array, more["trials"]), array, "y", outside)
    return Datum(array, **more)
