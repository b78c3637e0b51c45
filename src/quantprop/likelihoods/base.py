"""What a likelihood is: log p(y | f) for one datum, plus what it knows about itself.

A likelihood never sees a Gaussian process, a site or a method. All mathematics here is for one scalar f and one datum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from quantprop.gaussian import LOG_2PI, Normal, Vector
from quantprop.numerics.mixtures import FINE, Fineness, Places, expectation
from quantprop.numerics.quadrature import Density, Landmarks, fixed_panels, frozen, integrate, panels
from quantprop.numerics.quantiles import axis
from quantprop.numerics.selection import unless_trusted
from quantprop.numerics.smooth import TRUSTED, Nodes, Peak, on_nodes, place, sums
from quantprop.runtime.display import expression, expression_html
from quantprop.runtime.programs import program

Scalar = Any  # one number: a Python float, or a JAX array of shape ()
AT_A_TIME = 1024  # rows whose landmarks one program computes
OUTERMOST = 12.0  # standard deviations of a Gaussian that expectations look at
FINDABLE = 1e-8  # width of a Gaussian, in units of the likelihood's, that panels graded around the latter alone resolve


class Datum(NamedTuple):
    """One observation (or, stacked, all of them): y, and what scales it."""

    y: Vector
    exposure: Vector
    trials: Vector


class Moments(eqx.Module):
    """A Gaussian approximation to a tilted density, relative to its cavity N(m, v), so that nothing cancels.

    The approximation is N(m + shift, ratio · v); shrink is 1 − ratio, computed on its own.
    """

    log_normalizer: Scalar
    shift: Scalar
    ratio: Scalar
    shrink: Scalar


class Split(NamedTuple):
    """p(y | f) N(f | cavity) as exp(constant + rest(f)) N(f | core)."""

    rest: Callable[[Scalar], Scalar]
    core: Normal
    constant: Scalar


class Tilted(eqx.Module):
    """p(y | f) N(f | m, v), normalised, on quadrature nodes."""

    density: Density
    offset: Float[Array, "panels 16"]  # f − m at the nodes, exact where the cavity is the narrower factor
    f: Float[Array, "panels 16"]
    slope: Float[Array, "panels 16"]  # ∂ log p(y | f)/∂f


class Likelihood(eqx.Module):
    """Base of all likelihoods. A new one needs `log_prob`, `landmarks` and the class attributes."""

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}  # the numbers that learning may change, and how far
    name: eqx.AbstractClassVar[str]
    support: eqx.AbstractClassVar[str]  # what y may be, in words, for the error message
    log_concave: ClassVar[bool] = False  # in f: then no site precision can be negative. A property where it depends
    continuous: ClassVar[bool] = True  # log p(y | f) has no jump in f
    smooth: ClassVar[bool] = False  # it is analytic in f, with one peak, at the first landmark: few nodes may do
    singular: ClassVar[bool] = False  # log p(y | f) is −∞ at some f; then p to a power below 1 has a cusp there
    has_gaussian_factor: ClassVar[bool] = False  # see `gaussian_precision`. A property where it depends
    integrable: ClassVar[bool] = True  # E[log p(y | f)] under a Gaussian is finite
    projectable: ClassVar[bool] = True  # there are tilted densities to project: EP and QP exist
    differentiable: ClassVar[bool] = True  # has second derivatives wherever Newton's method may look
    scaled_by: ClassVar[frozenset[str]] = frozenset()  # of {"exposure", "trials"}: what else a datum carries
    noise: ClassVar[str | None] = None  # the parameter that is the scale of y about f; then f has the unit of y
    columns: ClassVar[int] = 1  # numbers that make up one y
    lattice: ClassVar[tuple[float, float] | None] = None  # of a discrete y: its first value and its step
    interval: ClassVar[tuple[float, float]] = (-np.inf, np.inf)  # that holds y

    def __repr__(self) -> str:
        return expression(self)

    def _repr_html_(self) -> str:
        return expression_html(self)

    # --- the mathematics -------------------------------------------------------------------------------------------

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """log p(y | f)."""
        raise NotImplementedError

    def landmarks(self, datum: Datum) -> Landmarks:
        """Where p(y | ·) lives or is rough, and on which scales."""
        raise NotImplementedError

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        """Moments of the tilted density: in closed form where a stable one exists, else by quadrature."""
        return smooth_moments(self, datum, cavity) if self.smooth else panel_moments(self, datum, cavity)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments | None:
        """Moments of p(y | f)^exponent N(f | cavity), where they have a stable closed form."""
        return None

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
        """Where P(Y ≤ y | f) changes with f, and on which scale, for rows of data; by default at the landmarks."""
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
        """P(Y ≤ y) when f ~ latent, for rows of data, with NumPy; `fineness` is that of an average over f, if any."""

        def given(rows: np.ndarray, f: np.ndarray) -> np.ndarray:
            return self.cdf(Datum(*(column[rows, None] for column in datum)), f)

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
    """Where y is one of 0, 1, 2, ..."""
    return np.isfinite(y) & (y >= 0) & (y == np.floor(y))


def tilt(likelihood: Likelihood, datum: Datum, cavity: Normal) -> Tilted:
    """The tilted density on nodes placed for both factors.

    Coordinates are measured from the narrower factor's centre (the pivot), so that a cavity of standard deviation 1e-8
    at mean 1e8, or a likelihood of width 1e-3 under a cavity of width 1e3, keeps its digits.
    """
    split = likelihood.split(datum, cavity)
    pivot, ends = _mesh(*frozen((likelihood, datum, cavity)))
    density = integrate(_log_tilted(split, pivot), ends)
    log_normalizer = density.log_normalizer + split.constant - 0.5 * (jnp.log(split.core.variance) + LOG_2PI)
    density = eqx.tree_at(lambda d: d.log_normalizer, density, log_normalizer)
    f = pivot + density.nodes
    slope = jax.vmap(jax.vmap(jax.grad(lambda f: likelihood.log_prob(datum, f))))(f)
    return Tilted(density, density.nodes - (cavity.mean - pivot), f, slope)


def _log_tilted(split: Split, pivot: Scalar) -> Callable:
    """log of rest times core at pivot + g, as a function of g, up to the Gaussian's constant."""
    m, sd = split.core.mean, jnp.sqrt(split.core.variance)
    return lambda g: split.rest(pivot + g) - 0.5 * ((g - (m - pivot)) / sd) ** 2


def _mesh(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Scalar, Float[Array, " points"]]:
    """The pivot, and panel ends measured from it."""
    at, split = likelihood.landmarks(datum), likelihood.split(datum, cavity)
    core = split.core
    locations, scales = jnp.append(at.location, core.mean), jnp.append(at.scale, jnp.sqrt(core.variance))
    pivot = locations[jnp.argmin(scales)]
    if likelihood.log_concave:  # one peak; else the cavity may make one of its own, far from the likelihood's
        relative = _within_reach(Landmarks(at.location - pivot, at.scale), core.mean - pivot, jnp.sqrt(core.variance))
    else:
        relative = Landmarks(locations - pivot, scales)
    lower = jnp.min(locations - pivot - 40.0 * scales)
    upper = jnp.max(locations - pivot + 40.0 * scales)
    return pivot, panels(_log_tilted(split, pivot), lower, upper, relative)


def _within_reach(at: Landmarks, mean: Scalar, sd: Scalar) -> Landmarks:
    """The landmarks, or, where a Gaussian is too narrow to be found by zooming in on them, those within its reach."""
    narrow = sd < FINDABLE * jnp.min(at.scale)
    near = jnp.clip(at.location, mean - 40.0 * sd, mean + 40.0 * sd)
    return Landmarks(jnp.where(narrow, near, at.location), jnp.where(narrow, sd, at.scale))


def quadrature_moments(likelihood: Likelihood, tilted: Tilted, cavity: Normal) -> Moments:
    """log Z, mean and variance of a tilted density from its nodes."""
    density, offset = tilted.density, tilted.offset
    shift = density.expect(offset)
    deviation = offset - shift
    ratio = density.expect(deviation**2) / cavity.variance
    shrink = 1.0 - ratio
    if likelihood.continuous:
        # Stein's identity: 1 − Var(f)/v = −Cov(f, ∂ log p). Without it a flat likelihood's shrink is rounding noise of
        # either sign; with it, it has all digits and the right sign for every log-concave likelihood.
        around = tilted.slope - density.expect(tilted.slope)  # far from the data slopes are huge, and nearly equal
        shrink = jnp.where(ratio < 0.5, shrink, -density.expect(deviation * around))
        ratio = jnp.where(ratio < 0.5, ratio, 1.0 - shrink)  # both from one number: sites see m (1 − ratio − shrink)
    return Moments(density.log_normalizer, shift, ratio, shrink)


def panel_moments(likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    """Moments of the tilted density by panels."""
    return quadrature_moments(likelihood, tilt(likelihood, datum, cavity), cavity)


class FewNodes(NamedTuple):
    """The tilted density on few nodes, its moments, and whether the nodes resolve it."""

    nodes: Nodes
    total: Scalar
    moments: Moments
    trusted: Bool[Array, ""]


def on_few_nodes(likelihood: Likelihood, datum: Datum, cavity: Normal, kept: Callable = lambda x: x) -> FewNodes:
    """Moments as in `quadrature_moments`, whose two ways to the variance must agree where both matter.

    Improper cavities are trusted: nothing resolves them. `kept` is that of `on_nodes`.
    """

    def peak(likelihood, datum, cavity):
        at = likelihood.landmarks(datum)
        location, scale = at.location[0] - cavity.mean, at.scale[0]
        return Peak(lambda d: likelihood.log_prob(datum, cavity.mean + d), location, scale, likelihood.log_concave)

    fixed, v = frozen((likelihood, datum, cavity)), cavity.variance
    at = place(peak(*fixed), fixed[2].variance)
    nodes = on_nodes(peak(likelihood, datum, cavity).log_prob, v, at, kept)
    of = sums(nodes, at)
    ratio, shrink = of.variance / v, -of.covariance  # Stein's identity
    narrow, left = ratio < 0.5, jnp.where(ratio < 0.5, 0.0, jnp.abs(1.0 - ratio - shrink))
    log_normalizer = at.top + jnp.log(of.total) - 0.5 * (jnp.log(v) + LOG_2PI)
    moments = Moments(
        log_normalizer, of.mean, jnp.where(narrow, ratio, 1.0 - shrink), jnp.where(narrow, 1.0 - ratio, shrink)
    )
    trusted = at.whole & (of.error <= TRUSTED) & (left <= TRUSTED)
    return FewNodes(nodes, of.total, moments, trusted | ~(jnp.isfinite(cavity.mean) & (v > 0)))


def few_node_moments(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
    """Moments of the tilted density from few nodes, and whether they do."""
    few = on_few_nodes(likelihood, datum, cavity)
    return few.moments, few.trusted


smooth_moments = unless_trusted(few_node_moments, panel_moments)


def latent_nodes(at: Landmarks, latent: Normal) -> tuple[Density, Float[Array, "panels 16"]]:
    """N(latent) itself on nodes that resolve the landmarks: the density of u = (f − mean)/sd, and f."""
    mean, sd = latent.mean, jnp.sqrt(latent.variance)
    relative = frozen(Landmarks((at.location - mean) / sd, at.scale / sd))

    density = integrate(lambda u: -0.5 * u * u, fixed_panels(-OUTERMOST, OUTERMOST, relative))
    return density, mean + sd * density.nodes


def quadrature_expectation(ell: Callable, at: Landmarks, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
    """E_q[ℓ], ∂/∂μ = E_q[u ℓ]/σ and ∂/∂v = E_q[(u² − 1) ℓ]/(2v) with u = (f − μ)/σ, ℓ(f) = log p(y | f).

    The forms with derivatives of ℓ diverge for a square link and miss the kink of double-exponential noise.
    """
    density, f = latent_nodes(at, marginal)
    u = density.nodes
    value = jax.vmap(jax.vmap(ell))(f)
    expected = density.expect(value)
    centred = value - expected  # the derivatives do not see constants
    by_mean = density.expect(u * centred) / jnp.sqrt(marginal.variance)
    return expected, by_mean, density.expect((u * u - 1.0) * centred) / (2.0 * marginal.variance)
