"""Two classes, y = ±1: probit, logit and Heaviside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, ndtr

from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Moments, Normal, Scalar, landmarks
from quantprop.numerics.expected_probit import expected_log_ndtr
from quantprop.numerics.mixtures import FINE, Fineness, Places, places
from quantprop.numerics.special import Truncated, log_ndtr, norm_logpdf, truncated_normal

SHARPEST = 1e-9  # noise of a threshold that quadrature resolves


class Binary(Likelihood):
    """Base of the likelihoods of two classes: p(y | f) depends on y f only, with a threshold at 0."""

    observes = "classes"
    support = "-1 and 1 (or 0 and 1)"
    lattice = (-1.0, 2.0)
    interval = (-1.0, 1.0)

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((jnp.zeros_like(datum.exposure), 1.0))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return 2.0 * jnp.exp(self.log_prob(datum._replace(y=jnp.ones_like(f)), f)) - 1.0

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return 1.0 - self.mean(datum, f) ** 2

    def lower(self, f: np.ndarray) -> np.ndarray:
        """P(y = −1 | f), elementwise, with NumPy."""
        raise NotImplementedError

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return _two_point_cdf(datum.y, self.lower(f))

    def cdf_places(self, datum: Datum) -> Places:
        return places((np.zeros_like(datum.exposure), 1.0))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.where(rng.uniform(size=np.shape(f)) < self.lower(-f), 1.0, -1.0)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        p, q = (
            jnp.exp(self.predictive_log_prob(datum._replace(y=y * jnp.ones_like(latent.mean)), latent))
            for y in (1.0, -1.0)
        )
        return p - q, 4.0 * p * q

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.abs(y) == 1

    def code(self, y: np.ndarray) -> np.ndarray:
        """Without a −1 among the labels, 0 stands for −1; anything else is left for the support check to name."""
        return y if (y == -1.0).any() else np.where(y == 0.0, -1.0, y)


def _two_point_cdf(y, lower) -> Scalar:
    """P(Y ≤ y) on {−1, 1} with mass `lower` at −1."""
    return np.where(y < -1.0, 0.0, np.where(y < 1.0, lower, 1.0))


@jax.custom_jvp
def _threshold_moments(z, y, v, width) -> Moments:
    """Tilt of N(m, v) by Φ(y f/√width), width = 1 (probit) or 0 (Heaviside). Rasmussen and Williams, eq. 3.58.

    With z = y m/√(v + width), n = φ(z)/Φ(z), w = v/(v + width): 1 − r = w n(z + n) and r = 1 − w + w D(z),
    D = 1 − n(z + n) the variance of a truncated normal; neither is a difference of near-equal numbers.
    """
    return _tilted(truncated_normal(z), y, v, width)


def _tilted(rest: Truncated, y, v, width) -> Moments:
    total = v + width
    share = v / total
    shift = y * rest.hazard * share * jnp.sqrt(total)
    return Moments(rest.log_mass, shift, width / total + share * rest.variance, share * (1.0 - rest.variance))


@_threshold_moments.defjvp
def _(primals, tangents):
    """In z and v; y and width are given. With t = v + width: ∂w/∂v = width/t², and ∂/∂v of the shift y n v/√t is
    y n (½ w + width/t)/√t.
    """
    (z, y, v, width), (dz, _, dv, _) = primals, tangents
    rest, by = jax.jvp(truncated_normal, (z,), (dz,))
    by_total = 1.0 / (v + width)
    share, other = v * by_total, width * by_total
    d_share, root = other * by_total * dv, jnp.sqrt(by_total)
    d_shift = y * root * (v * by.hazard + rest.hazard * (0.5 * share + other) * dv)
    d_ratio = share * by.variance - (1.0 - rest.variance) * d_share
    return _tilted(rest, y, v, width), Moments(by.log_mass, d_shift, d_ratio, -d_ratio)


class Probit(Binary):
    """p(y | f) = Φ(y f), y = ±1 (or 0 and 1): the usual choice for two classes, and the fastest.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Probit(), y=1, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.5642, 0.6817)
    """

    name = "probit"
    log_concave = True
    smooth = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return log_ndtr(datum.y * f)

    def margin(self, datum: Datum, cavity: Normal) -> Scalar:
        """z = y m/√(1 + v); Φ(z) is the probability of y."""
        return datum.y * cavity.mean / jnp.sqrt(1.0 + cavity.variance)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return _threshold_moments(self.margin(datum, cavity), datum.y, cavity.variance, 1.0)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """With ℓ = log Φ, ∂/∂μ E[ℓ] = E[ℓ'] and ∂/∂v E[ℓ] = ½ E[ℓ'']."""
        of = expected_log_ndtr(datum.y * marginal.mean, jnp.sqrt(marginal.variance))
        return of.value, datum.y * of.slope, 0.5 * of.curvature

    def lower(self, f: np.ndarray) -> np.ndarray:
        return ndtr(-f)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return _two_point_cdf(datum.y, ndtr(-latent.mean / np.sqrt(1.0 + latent.variance)))


class Logit(Binary):
    """p(y | f) = 1/(1 + exp(−y f)), y = ±1 (or 0 and 1): f is a log odds, and wrong labels pull less than with probit.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Logit(), y=1, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.4132, 0.8292)
    """

    name = "logit"
    log_concave = True
    smooth = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return jax.nn.log_sigmoid(datum.y * f)

    def lower(self, f: np.ndarray) -> np.ndarray:
        return expit(-f)


class Heaviside(Binary):
    """p(y | f) = 1 − noise if y f > 0, otherwise noise: a threshold, with labels flipped at random.

    Log-concave only without noise; with noise, site precisions may be negative.

    Args:
        noise: Probability of a wrong label; fixed unless it is a Parameter with bounds.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Heaviside(), y=1, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.7979, 0.3634)
    """

    noise: Scalar = 0.0

    name = "heaviside"
    title = "Heaviside"
    continuous = False
    differentiable = False

    @property
    def integrable(self) -> bool:
        return bool(self.noise > 0)

    def landmarks(self, datum: Datum) -> Landmarks:
        """Quantiles of a tilted density vary on the scale on which the mass beyond the threshold, `noise`, doubles."""
        return landmarks((jnp.zeros_like(datum.exposure), jnp.clip(self.noise, SHARPEST, 1.0)))

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.where(datum.y * f > 0, jnp.log1p(-self.noise), jnp.log(self.noise))

    def lower(self, f: np.ndarray) -> np.ndarray:
        return np.where(f < 0, 1.0 - self.noise, self.noise)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        beyond = ndtr(-latent.mean / np.sqrt(latent.variance))
        return _two_point_cdf(datum.y, self.noise + (1.0 - 2.0 * self.noise) * beyond)

    def margin(self, datum: Datum, cavity: Normal) -> Scalar:
        """z = y m/√v; Φ(z) is the mass on the right side of the threshold."""
        return datum.y * cavity.mean / jnp.sqrt(cavity.variance)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.tempered_moments(datum, cavity, 1.0)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        """p^a = (1 − ε)^a where y f > 0, ε^a elsewhere: a threshold again, lower by (1 − ε)^a and with more noise.

        The tilted density is a mixture of the truncated cavity (share p) and the cavity itself.
        """
        sharp = _threshold_moments(self.margin(datum, cavity), datum.y, cavity.variance, 0.0)
        log_high, log_low = exponent * jnp.log1p(-self.noise), exponent * jnp.log(self.noise)
        log_right = log_high + jnp.log(-jnp.expm1(log_low - log_high)) + sharp.log_normalizer
        log_z = jnp.logaddexp(log_right, log_low)  # Z = ε^a + ((1 − ε)^a − ε^a) Φ(z)
        p, q = jnp.exp(log_right - log_z), jnp.exp(log_low - log_z)
        between = p * q * sharp.shift**2 / cavity.variance
        return Moments(log_z, p * sharp.shift, p * sharp.ratio + q + between, p * sharp.shrink - between)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """log ε + (log(1 − ε) − log ε) Φ(z), with z the margin of the marginal."""
        z, sd = self.margin(datum, marginal), jnp.sqrt(marginal.variance)
        low, height = jnp.log(self.noise), jnp.log1p(-self.noise) - jnp.log(self.noise)
        density = height * jnp.exp(norm_logpdf(z))
        expected = low + height * jnp.exp(log_ndtr(z))
        return expected, density * datum.y / sd, -0.5 * density * z / marginal.variance


class Sign(Binary):
    """p(y | f) = 1 if y f > 0, otherwise 0: a constraint on f, of which the normaliser is Φ(y m/√v).

    >>> from quantprop import project
    >>> from quantprop.likelihoods.binary import Sign
    >>> round(float(project(Sign(), y=1, cavity=(0.0, 1.0)).mean), 4)
    0.7979
    """

    name = "sign"
    log_concave = True
    continuous = False
    differentiable = False
    integrable = False

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.where(datum.y * f > 0, 0.0, -jnp.inf)

    def lower(self, f: np.ndarray) -> np.ndarray:
        return np.where(f < 0, 1.0, 0.0)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return _threshold_moments(datum.y * cavity.mean / jnp.sqrt(cavity.variance), datum.y, cavity.variance, 0.0)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        return self.moments(datum, cavity)
