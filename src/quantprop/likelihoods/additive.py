"""Noise that is added to f, y = f + scale · ε: Gaussian, Student-t and double-exponential."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, ndtr
from scipy import special

from quantprop.core.gaussian import LOG_2PI
from quantprop.likelihoods.base import (
    FINE,
    Datum,
    Fineness,
    Landmarks,
    Likelihood,
    Moments,
    Normal,
    Places,
    Scalar,
    bounded,
    landmarks,
    places,
)
from quantprop.numerics.special import norm_logpdf


class Additive(Likelihood):
    """Base of likelihoods y = f + scale · ε, with ε of one distribution, around 0, for all f."""

    bounds = bounded(scale=(1e-5, 1e5))
    noise_name = "scale"
    support = "real numbers"
    observes = "real"

    @property
    def scale(self) -> Scalar:
        """A field of each, after those of its own."""
        raise NotImplementedError

    def width(self, datum: Datum) -> Scalar:
        """The scale of y about f, of an array in NumPy or JAX."""
        return self.scale

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, self.width(datum)))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return f

    def cdf_places(self, datum: Datum) -> Places:
        return places((datum.y, self.width(datum)))

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self.mean(datum, latent.mean), latent.variance + self.variance(datum, latent.mean)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)


class GaussianNoise(Additive):
    """Base of likelihoods of y = f + N(0, scale²/exposure), which may be observed in part."""

    log_concave = True

    def width(self, datum: Datum) -> Scalar:
        return self._noise(datum) ** 0.5

    def _noise(self, datum: Datum) -> Scalar:
        """The variance of y given f."""
        return self.scale**2 / datum.exposure

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise(datum) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return special.ndtr((datum.y - f) / self.width(datum))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.normal(f, self.width(datum))

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return special.ndtr((datum.y - latent.mean) / np.sqrt(latent.variance + self._noise(datum)))


class Gaussian(GaussianNoise):
    """N(y | f, scale²/exposure). The only likelihood for which every method is exact.

    `exposure` is the number of measurements that y averages, or any other relative precision; 1 by default.

    Args:
        scale: Standard deviation of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Gaussian(1.0), y=2.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (1.0, 0.5)
    """

    scale: Scalar = 1.0

    name = "gaussian"
    title = "Gaussian"
    conjugate = True
    scaled_by = frozenset({"exposure"})

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        noise = self._noise(datum)
        return -0.5 * ((datum.y - f) ** 2 / noise + jnp.log(noise) + LOG_2PI)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.tempered_moments(datum, cavity, 1.0)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        """N(y | f, s²)^a = (2π s²)^((1 − a)/2) a^(−½) N(y | f, s²/a)."""
        noise = self._noise(datum) / exponent
        total = cavity.variance + noise
        residual = datum.y - cavity.mean
        log_z = -0.5 * (residual**2 / total + jnp.log(total) + LOG_2PI)
        gain = cavity.variance / total
        log_z = log_z + 0.5 * ((1.0 - exponent) * (jnp.log(noise * exponent) + LOG_2PI) - jnp.log(exponent))
        return Moments(log_z, gain * residual, noise / total, gain)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        precision = 1.0 / self._noise(datum)
        residual = datum.y - marginal.mean
        expected = self.log_prob(datum, marginal.mean) - 0.5 * precision * marginal.variance
        return expected, precision * residual, -0.5 * precision

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """The likelihood is its own site: inference starts where it ends."""
        precision = 1.0 / self._noise(datum)
        return datum.y * precision, precision


class StudentT(Additive):
    """y = f + scale · t, where t has `df` degrees of freedom: outliers lose their pull. Not log-concave.

    The variance of y is infinite for df ≤ 2, and its mean does not exist for df ≤ 1. df is learned above 2.1, unless
    you pass a Parameter with other bounds.

    Args:
        df: Degrees of freedom: fewer have heavier tails; learned.
        scale: Scale of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.StudentT(), y=3.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (1.0886, 0.8716)
    """

    df: Scalar = 4.0
    scale: Scalar = 1.0

    name = "student-t"
    title = "Student-t"
    bounds = bounded(df=(2.1, 100.0), **Additive.bounds)
    smooth = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        df, scale = self.df, self.scale
        constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * (jnp.log(df) + np.log(np.pi)) - jnp.log(scale)
        return constant - 0.5 * (df + 1.0) * jnp.log1p(((datum.y - f) / scale) ** 2 / df)

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.where(self.df > 1.0, f, jnp.nan)  # does not exist for df ≤ 1

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        exists = self.scale**2 * self.df / jnp.where(self.df > 2.0, self.df - 2.0, 1.0)
        return jnp.where(self.df > 2.0, exists, jnp.inf) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return special.stdtr(self.df, (datum.y - f) / self.scale)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, size=np.shape(f))


def _height_times_mills(z: np.ndarray, c: np.ndarray, t: np.ndarray) -> np.ndarray:
    """φ(z) R(x), x = c + z, R Mills's ratio, given t = c z: exp(−½ z²) · ½ erfcx(x/√2), or exp(½ c² + t) Φ(−x).

    The first where x > 0, the second elsewhere: there z² may be large, and must not enter the exponent.
    """
    x = c + z
    positive = 0.5 * np.exp(-0.5 * z * z) * special.erfcx(np.maximum(x, 0.0) / np.sqrt(2.0))
    negative = np.exp(np.where(x > 0, 0.0, 0.5 * c * c + t)) * special.ndtr(-x)
    return np.where(x > 0, positive, negative)


class DoubleExponential(Additive):
    """p(y | f) = exp(−|y − f|/scale)/(2 scale): log-concave, with a kink at f = y.

    Args:
        scale: Mean absolute deviation of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.DoubleExponential(), y=3.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.9742, 0.9419)
    """

    scale: Scalar = 1.0

    name = "double-exponential"
    log_concave = True
    differentiable = False

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return -jnp.abs(datum.y - f) / self.scale - jnp.log(2.0 * self.scale)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """E|f − y| = d (2Φ(z) − 1) + 2 σ φ(z) with d = μ − y, z = d/σ (the mean of a folded normal)."""
        sd, distance = jnp.sqrt(marginal.variance), marginal.mean - datum.y
        sign, height = 2.0 * ndtr(distance / sd) - 1.0, jnp.exp(norm_logpdf(distance / sd))
        expected = -(distance * sign + 2.0 * sd * height) / self.scale - jnp.log(2.0 * self.scale)
        return expected, -sign / self.scale, -height / (sd * self.scale)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return 2.0 * self.scale**2 + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        t = (datum.y - f) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t > 0, 1.0 - tail, tail)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        """Φ(z) − ½ φ(z) (R(c − z) − R(c + z)), z = (y − m)/σ, c = σ/scale, R Mills's ratio (Reed 2006, eq. 4)."""
        sd = np.sqrt(latent.variance)
        z, c, t = (datum.y - latent.mean) / sd, sd / self.scale, (datum.y - latent.mean) / self.scale
        return special.ndtr(z) - 0.5 * (_height_times_mills(-z, c, -t) - _height_times_mills(z, c, t))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.laplace(f, self.scale)
