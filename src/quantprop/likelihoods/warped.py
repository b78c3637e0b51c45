"""Warped Gaussian processes (Snelson, Rasmussen and Ghahramani 2004): g(y) = f + scale · ε with a learned g."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.parameters import LogNormal, Parameter, is_parameter, vector
from quantprop.core.records import changed, field
from quantprop.likelihoods.additive import Gaussian
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Moments, Normal, Scalar, bounded, landmarks
from quantprop.numerics.mixtures import FINE, Fineness, Places
from quantprop.numerics.quadrature import frozen, integrate, panels

ITERATIONS = 200  # Newton's method within brackets, which usually takes a handful
BISECTIONS = 60


def _weakly(value: float) -> Parameter:
    return Parameter([value], prior=LogNormal(1.0, 1.0))


class Warped(Likelihood):
    """N(g(y) | f, scale²/exposure) g'(y), where g is the identity plus steps of positive heights (paper, eq. 9): g(y) =
    y + unit · Σ_j heights_j tanh((u − centres_j)/widths_j), u = (y − location)/unit.

    Given g this is Gaussian in f, so every method is exact, and quantiles of y are quantiles of f + scale · ε through
    the inverse of g. Without steps (empty lists) it is Gaussian.

    The default has one step, whose height and width have weak priors, LogNormal(1, 1): as steps outgrow the identity
    they only change the unit of f, and learning would diverge. More steps follow y more closely and take longer:
    `Warped(heights=[0.5, 0.5], widths=[1.0, 1.0], centres=[-1.0, 1.0])`, or Parameters with priors.

    Args:
        scale: Scale of the noise; learned.
        heights: Heights of the steps, in units of `unit`; learned.
        widths: Widths of the steps; learned.
        centres: Centres of the steps, relative to `location`; learned.
        location: Origin of the centres; estimators take it from y.
        unit: Unit of heights, widths and centres; estimators take it from y.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Warped(), y=1.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.6904, 0.5)
    """

    scale: Scalar = 1.0
    heights: Any = field(default_factory=lambda: _weakly(0.5), converter=vector)
    widths: Any = field(default_factory=lambda: _weakly(1.0), converter=vector)
    centres: Any = field(default=(0.0,), converter=vector)
    location: Scalar = 0.0
    unit: Scalar = 1.0

    bounds = bounded(scale=(1e-5, 1e5), heights=(1e-4, 1e3), widths=(1e-2, 1e2), centres=(-10.0, 10.0))
    name = "warped"
    observes = "real"
    noise_name = "scale"
    support = "real numbers"
    log_concave = True
    scaled_by = frozenset({"exposure"})

    def __check_init__(self) -> None:
        sizes = {np.size(part.value if is_parameter(part) else part) for part in self._terms}
        if len(sizes) > 1:
            raise ValueError(
                "Warped: heights, widths and centres must have the same length; got " + ", ".join(map(str, sizes))
            )
        heights, widths = self.heights, self.widths
        if isinstance(heights, np.ndarray) and not np.all(heights > 0):
            raise ValueError(f"Warped: heights must be positive (leave a step out instead); got {heights}")
        if isinstance(widths, np.ndarray) and not np.all(widths > 0):
            raise ValueError(f"Warped: widths must be positive; got {widths}")

    @property
    def _terms(self) -> tuple:
        return self.heights, self.widths, self.centres

    # --- the transform ---------------------------------------------------------------------------------------------

    def _steps(self, y: Any) -> Any:
        """tanh((u − centres)/widths), one entry a term."""
        on_host = all(isinstance(part, np.ndarray) for part in (y, self.widths, self.centres))
        xp = np if on_host else jnp
        return xp.tanh(((y - self.location) / self.unit)[..., None] / self.widths - self.centres / self.widths)

    def warp(self, y: Any) -> Any:
        """g(y)."""
        return y + self.unit * (self._steps(y) * self.heights).sum(axis=-1)

    def slope(self, y: Any) -> Any:
        """g'(y) ≥ 1."""
        return 1.0 + ((1.0 - self._steps(y) ** 2) * (self.heights / self.widths)).sum(axis=-1)

    def unwarp(self, z: np.ndarray) -> np.ndarray:
        """y with g(y) = z, by Newton's method inside brackets: g moves y by Σ heights at most. One step in three is a
        bisection, since a narrow step between two plateaus lets Newton's method jump to and fro.
        """
        most = self.unit * np.sum(self.heights)
        lower, upper, y = z - most, z + most, np.array(z, dtype=np.float64)
        settled = np.zeros(np.shape(z), dtype=bool)
        for k in range(ITERATIONS):
            off = self.warp(y) - z
            lower, upper = np.where(off < 0, y, lower), np.where(off > 0, y, upper)
            ahead = y - off / self.slope(y)
            near = np.abs(ahead - y) <= 8.0 * np.spacing(np.maximum(np.abs(y), np.abs(z)))
            middle = (ahead < lower) | (ahead > upper) | (k % 3 == 2)
            ahead = np.where(middle & ~near, 0.5 * (lower + upper), ahead)
            y, settled = np.where(settled, y, ahead), settled | near
            if settled.all():
                return y
        raise RuntimeError(f"Newton's method did not invert the warp in {ITERATIONS} steps")

    def measured(self, centre: float, spread: float) -> Likelihood:
        if is_parameter(self.location) or is_parameter(self.unit) or (self.location, self.unit) != (0.0, 1.0):
            return self
        return changed(self, location=centre, unit=spread)

    # --- Gaussian in f -----------------------------------------------------------------------------------------------

    @property
    def _gaussian(self) -> Gaussian:
        return Gaussian(self.scale)

    def _warped(self, datum: Datum) -> Datum:
        return datum._replace(y=self.warp(datum.y))

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self._gaussian.log_prob(self._warped(datum), f) + jnp.log(self.slope(datum.y))

    def landmarks(self, datum: Datum) -> Landmarks:
        return self._gaussian.landmarks(self._warped(datum))

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.tempered_moments(datum, cavity, 1.0)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        plain = self._gaussian.tempered_moments(self._warped(datum), cavity, exponent)
        log_z = plain.log_normalizer + exponent * jnp.log(self.slope(datum.y))
        return Moments(log_z, plain.shift, plain.ratio, plain.shrink)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        expected, *slopes = self._gaussian.expected_log_prob(self._warped(datum), marginal)
        return expected + jnp.log(self.slope(datum.y)), *slopes

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        return self._gaussian.start(self._warped(datum))

    # --- the distribution of y ---------------------------------------------------------------------------------------

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return self._moments(f, self._gaussian.variance(datum, f))[0]

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._moments(f, self._gaussian.variance(datum, f))[1]

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self._moments(*self._gaussian.predictive_moments(datum, latent))

    def _moments(self, m: Scalar, v: Scalar) -> tuple[Scalar, Scalar]:
        """Mean and variance of y when g(y) ~ N(m, v): integrals over y, so that g need not be inverted at nodes."""
        sd, most = jnp.sqrt(v), self.unit * jnp.sum(self.heights)

        def halved(_, ends):
            middle = 0.5 * (ends[0] + ends[1])
            short = self.warp(middle) < m
            return jnp.where(short, middle, ends[0]), jnp.where(short, ends[1], middle)

        peak = frozen(jax.lax.fori_loop(0, BISECTIONS, halved, (m - most, m + most))[0])

        def log_density(t):
            return -0.5 * ((self.warp(peak + t) - m) / sd) ** 2 + jnp.log(self.slope(peak + t))

        steps = zip(self.location + self.unit * self.centres - peak, self.unit * self.widths, strict=True)
        at = landmarks((0.0 * peak, sd / self.slope(peak)), *steps)
        reach = 40.0 * sd + 2.0 * most
        density = integrate(log_density, panels(log_density, -reach, reach, at))
        shift = density.expect(density.nodes)
        return peak + shift, density.expect((density.nodes - shift) ** 2)

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self._gaussian.cdf(self._warped(datum), f)

    def cdf_places(self, datum: Datum) -> Places:
        return self._gaussian.cdf_places(self._warped(datum))

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return self._gaussian.predictive_cdf(self._warped(datum), latent, fineness)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """The y of f without noise: the search for a quantile starts where it ends, at the inverse of g."""
        return self.unwarp(f)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self.unwarp(self._gaussian.draw(rng, datum, f))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
