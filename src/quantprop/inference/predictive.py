"""The distribution of new observations y when the latent value is Gaussian, or skewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float
from scipy.special import ndtri

from quantprop.core.data import bucket, pad, real_array, spread
from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.likelihoods.base import Datum, Likelihood, encode, scales
from quantprop.likelihoods.derived import of_output
from quantprop.numerics.mixtures import COARSE, FINE, Fineness, Places, expectation
from quantprop.numerics.quadrature import Landmarks
from quantprop.numerics.quantiles import Axis, QuantileGuess, axis, solve
from quantprop.numerics.skewed import Skewed, scored, skewed_nodes
from quantprop.runtime.arguments import checked
from quantprop.runtime.batches import rowwise
from quantprop.runtime.display import of_predictive, summarised
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

NO_VARIANCE = float(np.finfo(np.float64).tiny)  # compiled programs round smaller variances to 0
ROUGH_TOLERANCE, TOLERANCE = 1e-2, 1e-6  # in Φ⁻¹(cdf)

Latent = Normal | Skewed


@summarised(of_predictive)
@dataclass(frozen=True)
class Predictive:
    """Distributions of y at n inputs: exact if a closed form exists, otherwise by quadrature.

    Moments and densities are accurate to about 1e-12, the cdf to 1e-9 for latent standard deviations up to 40. Methods
    take y, or probabilities, that broadcast against the n inputs and return NumPy arrays.

    Args:
        likelihood: The likelihood, with its values.
        latent: The posterior of f at the inputs.
        exposure: Exposure of the new inputs.
        trials: Trials of the new inputs.
    """

    likelihood: Likelihood
    latent: Any  # Normal, or Skewed where it was corrected
    exposure: Float[np.ndarray, " n"]
    trials: Float[np.ndarray, " n"]

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self._moments()[0]

    @property
    def variance(self) -> np.ndarray:
        """Var[y]."""
        return self._moments()[1]

    @property
    def median(self) -> np.ndarray:
        """The smallest y with P(Y ≤ y) ≥ ½; it exists where the mean may not."""
        return self.quantile(0.5)

    @float64
    def log_prob(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """log p(y): of a density for continuous y, of a probability for discrete y."""
        scales = {name: getattr(self, name) for name in self.likelihood.scaled_by}
        data = encode(self.likelihood, y, np.shape(self.latent.mean), **scales)
        return self._log_density(data.y)

    @float64
    def cdf(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """P(Y ≤ y), for any real y, and for ±inf."""
        at = spread(real_array(y, "y"), np.shape(self.latent.mean), "y")
        if np.isnan(at).any():
            raise ValueError("cdf: y must not contain NaN: omit rows without y")
        out, finite = np.where(at > 0, 1.0, 0.0), np.isfinite(at)
        out[finite] = self.cdf_of(np.flatnonzero(finite), at[finite], FINE)
        return out

    def quantile(self, q: Float[np.ndarray, "*shape"] | Sequence[float] | float) -> np.ndarray:
        """The smallest y with P(Y ≤ y) ≥ q. A scalar q gives one value per input, an array of q one row each."""
        return quantiles(self, self.cdf_of, q)

    def cdf_of(self, rows: np.ndarray, y: np.ndarray, fineness: Fineness) -> np.ndarray:
        """P(Y ≤ y) of some of the inputs, which may repeat, at one y each."""
        data, latent = _some(self._data(self.exposure), self._marginal, rows)
        return _cdf(self.likelihood, data._replace(y=y), latent, fineness)

    @checked()
    @float64
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of y at every input (rows: draws)."""
        rng, latent = np.random.default_rng(seed), self.latent
        shape = (n, *np.shape(latent.mean))
        if isinstance(latent, Skewed):
            f = np.asarray(latent.value(rng.standard_normal(shape)))
        else:
            f = rng.normal(latent.mean, np.sqrt(latent.variance), size=shape)
        scales = Datum(np.zeros(shape), np.broadcast_to(self.exposure, shape), np.broadcast_to(self.trials, shape))
        return self.likelihood.draw(rng, scales, f)

    def _log_density(self, y: np.ndarray) -> np.ndarray:
        return self._rows(_log_prob, y)

    @float64
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._rows(_predictive_moments, np.zeros_like(self.exposure))

    @property
    def of_parameter(self) -> Normal | None:
        """The posterior of the function behind a parameter of the likelihood, if there is one."""
        return None

    def given_latent(self, rows: Any, latent: Normal) -> Predictive:
        """The distributions at some of the inputs if f has another distribution there."""
        return replace(self, latent=latent, exposure=self.exposure[rows], trials=self.trials[rows])

    @property
    def _marginal(self) -> Latent:
        """The latent values, each by itself."""
        latent = self.latent
        return latent if isinstance(latent, Skewed) else Normal(latent.mean, latent.variance)

    def _data(self, y: np.ndarray) -> Datum:
        return Datum(y, self.exposure, self.trials)

    def _rows(self, function: Callable, y: np.ndarray, *more: Any) -> Any:
        """A compiled function of (likelihood, data, latent, ...) over the rows, padded to a shape that recurs."""
        n = len(self.exposure)
        rows = (self._data(y), self._marginal)
        out = function(self.likelihood, *pad(rows, bucket(n)), *more)
        return jax.tree.map(lambda column: np.asarray(column)[:n], out)


def predictive_of(likelihood: Likelihood, latent: Any, exposure: Any, trials: Any, output: int | None) -> Predictive:
    """The distribution of y given a plain likelihood, or that of one `output`, and the arguments of `predict_y`."""
    own = of_output(likelihood, output)
    return Predictive(own, latent, **scales(own, np.shape(latent.mean), exposure, trials))


@dataclass(frozen=True)
class Forecast:
    """The distribution of y at later times.

    Attributes:
        times: the times, in the unit of X.
        y: the distribution of y at each of them (mean, variance, cdf, quantile, log_prob, sample).
    """

    times: Float[np.ndarray, " horizon"]
    y: Predictive


def ahead(X: Float[np.ndarray, "n d"], horizon: int, step: float | None) -> Float[np.ndarray, " horizon"]:
    """The times of a forecast: `horizon` steps after the last, by default each the median of those between the data."""
    if X.shape[1] != 1:
        raise ValueError(
            f"forecast needs one column of X, time; got {X.shape[1]}: use predict_y at inputs of your choice"
        )
    times = np.unique(X[:, 0])
    if step is None and len(times) < 2:
        raise ValueError("forecast needs two different times to infer the step: pass step=")
    by: Any = np.median(np.diff(times)) if step is None else step
    return times[-1] + by * np.arange(1, horizon + 1)


def _per_row(function: Callable) -> Callable:
    """A likelihood's method, over all rows, compiled."""
    return program(lambda likelihood, *rows: rowwise(lambda *row: function(likelihood, *row), *rows))


def _some(data: Datum, latent: Latent, rows: np.ndarray) -> tuple[Datum, Latent]:
    return jax.tree.map(lambda column: column[rows], (data, latent))


def _unless_known(latent: Latent, given: Any, averaged: Callable) -> Any:
    """The values `given` f = mean if f has no variance, otherwise those `averaged` over f."""
    known = latent.variance < NO_VARIANCE
    spread = changed(latent, variance=jnp.where(known, 1.0, latent.variance))
    return jax.tree.map(lambda at_mean, mixed: jnp.where(known, at_mean, mixed), given, averaged(spread))


@_per_row
def _log_prob(likelihood: Likelihood, datum: Datum, latent: Latent) -> Any:
    def averaged(spread: Latent) -> Any:
        if isinstance(spread, Normal):
            return likelihood.predictive_log_prob(datum, spread)
        density, f = skewed_nodes(likelihood.landmarks(datum), spread)
        return logsumexp(jax.vmap(jax.vmap(lambda f: likelihood.log_prob(datum, f)))(f), b=density.mass)

    return _unless_known(latent, likelihood.log_prob(datum, latent.mean), averaged)


@_per_row
def _predictive_moments(likelihood: Likelihood, datum: Datum, latent: Latent) -> Any:
    def averaged(spread: Latent) -> Any:
        if isinstance(spread, Normal):
            return likelihood.predictive_moments(datum, spread)
        density, f = skewed_nodes(likelihood.landmarks(datum), spread)
        mean, within = (jax.vmap(jax.vmap(lambda f, of=of: of(datum, f)))(f)
                        for of in (likelihood.mean, likelihood.variance))  # fmt: skip
        centre = density.expect(mean)
        return centre, density.expect(within) + density.expect((mean - centre) ** 2)

    given = likelihood.mean(datum, latent.mean), likelihood.variance(datum, latent.mean)
    return _unless_known(latent, given, averaged)


def _cdf(likelihood: Likelihood, data: Datum, latent: Latent, fineness: Fineness) -> np.ndarray:
    """P(Y ≤ y) row by row: that given f = mean where f has no variance."""
    out, known = np.empty(len(latent.mean)), latent.variance < NO_VARIANCE
    if known.any():
        some, at = _some(data, latent, known)
        out[known] = likelihood.cdf(some, at.mean)
    if not known.all():
        out[~known] = _averaged_cdf(likelihood, *_some(data, latent, ~known), fineness)
    return out


def _averaged_cdf(likelihood: Likelihood, data: Datum, latent: Latent, fineness: Fineness) -> np.ndarray:
    if isinstance(latent, Normal):
        return likelihood.predictive_cdf(data, latent, fineness)
    at = likelihood.cdf_places(data)
    where = scored(Landmarks(at.location, at.scale), latent)  # pyright: ignore[reportArgumentType]

    def given(rows: np.ndarray, z: np.ndarray) -> np.ndarray:
        some, spread = jax.tree.map(lambda column: column[rows, None], (data, latent))
        return likelihood.cdf(some, np.asarray(spread.value(z)))

    n = len(latent.mean)
    return expectation(
        given, np.zeros(n), np.ones(n), Places(*map(np.asarray, (where.location, where.scale))), fineness
    )


@float64
def quantiles(like: Predictive, cdf_of: Callable, q: Any) -> np.ndarray:
    """The smallest y with P(Y ≤ y) ≥ q of distributions similar to `like`: first on a coarse grid, then on a fine one.

    `cdf_of(rows, y, fineness)` is their cdf at one y for each of these rows.
    """
    probability = real_array(q, "q")
    outside = ~((probability >= 0) & (probability <= 1))
    if outside.any():
        raise ValueError(f"q must lie in [0, 1]; got {probability[outside].flat[0]}")
    levels, likelihood, n = probability.ravel(), like.likelihood, len(like.exposure)
    q, rows = np.repeat(levels, n), np.tile(np.arange(n), len(levels))
    scales = Datum(np.zeros_like(q), like.exposure[rows], like.trials[rows])
    y = np.where(q > 0, likelihood.greatest(scales), likelihood.interval[0])
    inner = (q > 0) & (q < 1)
    on, q, rows = axis(likelihood.interval, likelihood.lattice), q[inner], rows[inner]
    with np.errstate(all="ignore"):  # brackets without an end have no width, and no middle
        latent = Normal(like.latent.mean[rows], like.latent.variance[rows])  # all that a first guess needs
        guess = _guess(likelihood, on, Datum(*(column[inner] for column in scales)), latent, q)
        rough = solve(lambda some, at: cdf_of(rows[some], at, COARSE), q, on, guess, ROUGH_TOLERANCE)
        y[inner] = solve(lambda some, at: cdf_of(rows[some], at, FINE), q, on, rough, TOLERANCE).y
    return y.reshape((*probability.shape, n))


def _guess(likelihood: Likelihood, on: Axis, scales: Datum, latent: Normal, q: np.ndarray) -> QuantileGuess:
    """y at the quantile of f, when f varies by what y adds to it too."""

    def typical(f: np.ndarray) -> np.ndarray:
        y = likelihood.typical(scales, f)
        return on.inside(y, np.full_like(f, on.below), np.full_like(f, np.inf))

    middle = scales._replace(y=typical(latent.mean))
    spread = np.sqrt(latent.variance + np.max(likelihood.cdf_places(middle).scale, axis=0) ** 2)
    z = np.clip(ndtri(q), -6.0, 6.0)
    y = typical(latent.mean + spread * z)
    unit = np.abs(on.apart(typical(latent.mean + spread * (z + 0.5)), y)) / 0.5
    return QuantileGuess(y, np.where((unit > 0) & np.isfinite(unit), unit, 1.0))
