"""The distribution of new observations y when the latent value is Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.data import bucket, encode, pad, real_array
from quantprop.display import html, of_predictive, text
from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.precision import float64
from quantprop.programs import program


@dataclass(frozen=True)
class Predictive:
    """Distributions of y at n inputs: exact where a closed form exists, by quadrature to about 1e-12 where not.

    `exposure` and `trials` are those of the new inputs. Methods take y (or probabilities) that broadcast against the n
    inputs and return NumPy arrays.
    """

    likelihood: Likelihood
    latent: Normal
    exposure: Float[np.ndarray, " n"]
    trials: Float[np.ndarray, " n"]

    def __repr__(self) -> str:
        return text(of_predictive(self))

    def _repr_html_(self) -> str:
        return html(of_predictive(self))

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self._moments()[0]

    @property
    def variance(self) -> np.ndarray:
        """Var[y]."""
        return self._moments()[1]

    @float64
    def log_prob(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """log p(y): of a density for continuous y, of a probability for discrete y."""
        scales = {name: getattr(self, name) for name in self.likelihood.scaled_by}
        data = encode(self.likelihood, y, np.shape(self.latent.mean), **scales)
        return self._rows(_log_prob, data.y)

    @float64
    def cdf(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """P(Y ≤ y), for any real y."""
        return self._rows(_cdf, np.broadcast_to(real_array(y, "y"), np.shape(self.latent.mean)))

    @float64
    def quantile(self, q: Float[np.ndarray, "*shape"] | float) -> np.ndarray:
        """The smallest y with P(Y ≤ y) ≥ q. A scalar q gives one value an input, an array of q one row each."""
        probability = np.asarray(q, dtype=np.float64)
        outside = ~((probability >= 0) & (probability <= 1))
        if outside.any():
            raise ValueError(f"q must lie in [0, 1]; got {probability[outside].flat[0]}")
        solve = _lattice_quantile if self.likelihood.lattice is not None else _real_quantile
        rows = [self._rows(solve, np.zeros_like(self.exposure), p) for p in probability.ravel()]
        return np.stack(rows).reshape(probability.shape + rows[0].shape)

    @float64
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of y at every input (rows: draws)."""
        rng = np.random.default_rng(seed)
        shape = (n, *np.shape(self.latent.mean))
        f = rng.normal(self.latent.mean, np.sqrt(self.latent.variance), size=shape)
        scales = Datum(np.zeros(shape), np.broadcast_to(self.exposure, shape), np.broadcast_to(self.trials, shape))
        return self.likelihood.draw(rng, scales, f)

    @float64
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._rows(_predictive_moments, np.zeros_like(self.exposure))

    def _rows(self, function: Callable, y: np.ndarray, *more: Any) -> Any:
        """A compiled function of (likelihood, data, latent, ...) over the rows, padded to a shape that recurs."""
        n = len(self.exposure)
        rows = (Datum(y, self.exposure, self.trials), Normal(self.latent.mean, self.latent.variance))
        out = function(self.likelihood, *pad(rows, bucket(n)), *more)
        return jax.tree.map(lambda column: np.asarray(column)[:n], out)


def _per_row(function: Callable) -> Callable:
    """A likelihood's method, over all rows, compiled."""
    return program(lambda likelihood, *rows: jax.vmap(lambda *row: function(likelihood, *row))(*rows))


_log_prob = _per_row(lambda likelihood, datum, latent: likelihood.predictive_log_prob(datum, latent))
_cdf = _per_row(lambda likelihood, datum, latent: likelihood.predictive_cdf(datum, latent))
_predictive_moments = _per_row(lambda likelihood, datum, latent: likelihood.predictive_moments(datum, latent))


def _bisect(below: Callable, lower: Array, upper: Array, middle: Callable, unfinished: Callable) -> Array:
    """The upper end of the last bracket of { y : cdf(y) < q } from above; `below` says where that holds."""

    def halve(ends):
        lower, upper = ends
        centre = middle(lower, upper)
        short = below(centre)
        return jnp.where(short, centre, lower), jnp.where(short, upper, centre)

    return jax.lax.while_loop(lambda ends: jnp.any(unfinished(*ends)), halve, (lower, upper))[1]


def _cdf_below(likelihood: Likelihood, scales: Datum, latent: Normal, q: Array) -> Callable:
    def below(y):
        return jax.vmap(lambda d, f: likelihood.predictive_cdf(d, f))(scales._replace(y=y), latent) < q

    return below


@program
def _lattice_quantile(likelihood: Likelihood, scales: Datum, latent: Normal, q: Array) -> Array:
    """The smallest point of the lattice where the cdf reaches q: its index by doubling, then bisection."""
    assert likelihood.lattice is not None
    first, step = likelihood.lattice
    short = _cdf_below(likelihood, scales, latent, jnp.minimum(q, 1.0 - 2.0**-53))

    def below(k):
        return short(first + step * k)

    zero = jnp.zeros_like(latent.mean)
    upper = jax.lax.while_loop(
        lambda k: jnp.any(below(k) & (k < 2.0**52)), lambda k: jnp.where(below(k), 2.0 * k + 1.0, k), zero
    )
    index = _bisect(below, zero - 1.0, upper, lambda a, b: jnp.floor(0.5 * (a + b)), lambda a, b: b - a > 1.0)
    return jnp.where(q == 1.0, likelihood.greatest(scales), first + step * index)


@program
def _real_quantile(likelihood: Likelihood, scales: Datum, latent: Normal, q: Array) -> Array:
    """The y where the cdf reaches q, by doubling and bisection of t with y = t, exp t or 1/(1 + exp −t)."""
    ends = likelihood.interval
    image = {(-np.inf, np.inf): lambda t: t, (0.0, np.inf): jnp.exp, (0.0, 1.0): jax.nn.sigmoid}[ends]
    short = _cdf_below(likelihood, scales, latent, q)

    def below(t):
        return short(image(t))

    one = jnp.ones_like(latent.mean)
    upper = jax.lax.while_loop(
        lambda t: jnp.any(below(t) & (t < 1e300)), lambda t: jnp.where(below(t), 2.0 * t, t), one
    )
    lower = jax.lax.while_loop(
        lambda t: jnp.any(~below(t) & (t > -1e300)), lambda t: jnp.where(below(t), t, 2.0 * t), -one
    )

    def unfinished(a, b):
        size = jnp.maximum(jnp.maximum(jnp.abs(a), jnp.abs(b)), 1e-3 * jnp.sqrt(latent.variance))
        return b - a > 4.0 * jnp.finfo(b.dtype).eps * size

    y = image(_bisect(below, lower, upper, lambda a, b: a + 0.5 * (b - a), unfinished))
    return jnp.where(q == 0.0, ends[0], jnp.where(q == 1.0, ends[1], y))
