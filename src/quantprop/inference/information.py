"""Value of an observation: mutual information of a new y with f, or with the event f > level; expected improvement.

With Z(y) = ∫ p(y | f) N(f) df and expectations under the tilted density of f after y, the information is
E_y[E_{f|y}[log p(y | f)] − log Z(y)] (Houlsby et al. 2011, as an average over y of what is gained by observing it).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, xlogy
from jaxtyping import Float
from scipy import special

from quantprop.core.data import bucket, pad
from quantprop.core.gaussian import Normal
from quantprop.core.sites import Datum, Scalar
from quantprop.inference.predictive import NO_VARIANCE, Predictive
from quantprop.likelihoods.base import Likelihood, encode
from quantprop.likelihoods.tilted import latent_nodes, on_few_nodes
from quantprop.likelihoods.varying import OverParameter
from quantprop.numerics.quadrature import Landmarks, landmarks
from quantprop.numerics.trusted import unless_trusted
from quantprop.runtime.batches import rowwise
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

TAIL = 1e-9  # probability of the values of y beyond the last node
MAX_SCORE, SCORE_STEP = 6.0, 0.25  # Φ⁻¹(P(Y ≤ y)) at the nodes of a continuous y
UPPER = 1.645  # standard deviations of f
MAX_VALUES = 256  # a discrete y with more values has nodes at some of them, densely near the first


class Revealed(NamedTuple):
    """Information of one y on f and on the event f > level; `expected` returns averages over y."""

    of_f: Any  # E[log p(y | f)] − log Z under f given y, in nats
    of_event: Any  # divergence of P(f > level | y) from P(f > level), in nats; 0 without a level
    variance: Any  # Var(f | y)


class Values(NamedTuple):
    """Values of y at each input and their weights: probabilities, or for a discrete y multiples of p(y)."""

    y: Float[np.ndarray, "k n"]
    weight: Float[np.ndarray, "k n"]


@float64
def expected(new: Predictive, level: float | None = None) -> Revealed:
    """The expected information of a new observation at each input, by quadrature over y and over f."""
    likelihood, latent = new.likelihood, new.latent
    if not isinstance(latent, Normal):
        raise TypeError("information needs a Gaussian posterior of f: use solution.predict_y(X), not corrected()")
    n, known = len(latent.mean), latent.variance < NO_VARIANCE
    spread: Any = Normal(latent.mean, np.where(known, 1.0, latent.variance)), new.of_parameter
    at = _continuous(new) if likelihood.lattice is None else _discrete(new, likelihood.lattice)
    k = len(at.y)
    y = at.y.reshape(-1) if likelihood.columns == 1 else np.repeat(at.y.reshape(-1, 1), likelihood.columns, axis=1)
    used = {name: np.tile(getattr(new, name), k) for name in likelihood.scaled_by}
    each = jax.tree.map(lambda rows: np.tile(rows, k), spread)
    data, (f, g) = pad((encode(likelihood, y, (k * n,), **used), each), bucket(k * n))
    log_z, found = _revealed(likelihood, data, f, g, level)
    log_z, *found = (np.asarray(part)[: k * n].reshape(k, n) for part in (log_z, *found))
    mass = at.weight if likelihood.lattice is None else at.weight * np.exp(log_z)
    return Revealed(*(np.where(known, 0.0, np.sum(mass * part, axis=0) / np.sum(mass, axis=0)) for part in found))


@program
def _revealed(likelihood: Likelihood, data: Datum, latent: Normal, g: Normal | None, level: Scalar | None) -> Any:
    if g is not None:
        return rowwise(lambda g, datum, f: _by_panels(OverParameter(likelihood, g), datum, f, level), g, data, latent)
    if level is None:
        of_f = _smooth if likelihood.smooth else _by_panels
        return rowwise(lambda datum, latent: of_f(likelihood, datum, latent), data, latent)
    return rowwise(lambda datum, latent: _by_panels(likelihood, datum, latent, level), data, latent)


def _by_panels(
    likelihood: Likelihood, datum: Datum, latent: Normal, level: Scalar | None = None
) -> tuple[Scalar, Revealed]:
    """log Z, and the information of one y. A level is a landmark, hence the end of a panel."""
    at, sd = likelihood.landmarks(datum), jnp.sqrt(latent.variance)
    if level is not None:
        at = Landmarks(jnp.append(at.location, level), jnp.append(at.scale, sd))
    density, f = latent_nodes(at, latent)
    log_p = jax.vmap(jax.vmap(lambda f: likelihood.log_prob(datum, f)))(f)
    top = jnp.max(log_p)
    tilted = density.mass * jnp.exp(log_p - top)
    z = jnp.sum(tilted)
    tilted, log_z = tilted / z, top + jnp.log(z)
    gain = jnp.sum(jnp.where(tilted > 0, tilted * log_p, 0.0)) - log_z
    u = density.nodes - jnp.sum(tilted * density.nodes)
    found = Revealed(gain, jnp.zeros(()), latent.variance * jnp.sum(tilted * u * u))
    if level is None:
        return log_z, found
    both = jnp.array([jnp.sum(tilted * (f > level)), jnp.sum(tilted * (f <= level))])
    before = ndtr(jnp.array([1.0, -1.0]) * (latent.mean - level) / sd)
    return log_z, found._replace(of_event=jnp.sum(_divergence(both, before)))


def _by_few_nodes(likelihood: Likelihood, datum: Datum, latent: Normal) -> tuple[tuple[Scalar, Revealed], Any]:
    """The same without a level by the small rule, and whether it is accurate."""
    few = on_few_nodes(likelihood, datum, latent)
    log_p = jax.vmap(lambda d: likelihood.log_prob(datum, latent.mean + d))(few.nodes.offset)
    gain = jnp.sum(jnp.where(few.nodes.mass > 0, few.nodes.mass * log_p, 0.0)) / few.total
    log_z, variance = few.moments.log_normalizer, latent.variance * few.moments.ratio
    return (log_z, Revealed(gain - log_z, jnp.zeros(()), variance)), few.trusted


_smooth = unless_trusted(_by_few_nodes, _by_panels)


def _divergence(p: Scalar, q: Scalar) -> Scalar:
    """p log(p/q); 0 where q has underflowed, and p with it."""
    return jnp.where(q > 0, xlogy(p, p) - xlogy(p, jnp.where(q > 0, q, 1.0)), 0.0)


def _continuous(new: Predictive) -> Values:
    """Quantiles at equal steps of Φ⁻¹(P(Y ≤ y)): for smooth functions the trapezium rule converges geometrically."""
    z = np.arange(-MAX_SCORE, MAX_SCORE + SCORE_STEP, SCORE_STEP)
    low, high = new.likelihood.interval
    y = np.clip(new.quantile(special.ndtr(z)), np.nextafter(low, np.inf), np.nextafter(high, -np.inf))
    return Values(y, np.broadcast_to(np.exp(-0.5 * z * z)[:, None], y.shape))


def _discrete(new: Predictive, lattice: tuple[float, float]) -> Values:
    """All values of y without extreme tails; of more than MAX_VALUES some, weighted by their distances."""
    first, step = lattice
    scales = Datum(np.zeros_like(new.exposure), new.exposure, new.trials)
    last = np.broadcast_to(new.likelihood.greatest(scales), new.exposure.shape)
    low = np.zeros(last.shape)
    if not np.all((last - first) / step < MAX_VALUES):
        low, last = (new.quantile([TAIL, 1.0 - TAIL]) - [[first], [0.0]]) / [[step], [1.0]]
    count = np.round((last - first) / step) - low
    k = min(1 << int(count.max()).bit_length(), MAX_VALUES)
    every = np.minimum(np.arange(k)[:, None], count)
    some = np.round(count * (np.arange(k)[:, None] / (k - 1)) ** 2)
    place = np.where(count < k, every, some)
    middle = 0.5 * (place[1:] + place[:-1])
    ends = np.concatenate([np.full((1, len(low)), -0.5), middle, count[None] + 0.5])
    return Values(first + step * (low + place), np.diff(ends, axis=0))


@float64
def of_mean(new: Predictive, best: float) -> tuple[np.ndarray, np.ndarray]:
    """E[max(E[y | f] − best, 0)], and the 95 % quantile of E[y | f] for links that are monotone or even."""
    n, spread = len(new.exposure), Normal(new.latent.mean, np.maximum(new.latent.variance, NO_VARIANCE))
    data, f, g = pad((Datum(np.zeros(n), new.exposure, new.trials), spread, new.of_parameter), bucket(n))
    return jax.tree.map(lambda part: np.asarray(part)[:n], _of_mean(new.likelihood, data, f, g, float(best)))


@program
def _of_mean(likelihood: Likelihood, data: Datum, latent: Normal, g: Normal | None, best: Scalar) -> Any:
    def one(datum: Datum, latent: Normal, g: Normal | None) -> tuple[Scalar, Scalar]:
        of_f = likelihood if g is None else OverParameter(likelihood, g)
        density, f = latent_nodes(landmarks((latent.mean, jnp.sqrt(latent.variance))), latent)
        gain = jnp.maximum(jax.vmap(jax.vmap(lambda f: of_f.mean(datum, f)))(f) - best, 0.0)
        low, high = (latent.mean + sign * UPPER * jnp.sqrt(latent.variance) for sign in (-1.0, 1.0))
        return density.expect(gain), jnp.maximum(of_f.mean(datum, low), of_f.mean(datum, high))

    return rowwise(one, data, latent, g)
