"""The contract of a projection, a rule that picks one Gaussian for a tilted density; KL, the projection of expectation
propagation; and `project`, the update of EP or QP for one observation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.data import bucket, finite_array, first_bad, pad, real_array
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.core.records import Record, changed
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar, encode
from quantprop.likelihoods.tilted import Tilted, tilt
from quantprop.numerics.special import normal_score
from quantprop.runtime.arguments import Rule, a, checked
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program


class Projection(Record):
    """Base of all projections; `project` sees one datum and its cavity.

    A projection of your own is one method. `tilted_scores` gives it the tilted density on quadrature nodes,
    `relative` states its choice. Here least squares of f on z = Φ⁻¹(F(f)), as in Wasserstein(2), but with weights
    that fade towards the tails:

    >>> import jax.numpy as jnp
    >>> from quantprop import likelihoods, project
    >>> from quantprop.projections import Projection, relative, tilted_scores
    >>> class Central(Projection):
    ...     def project(self, likelihood, datum, cavity):
    ...         tilted, z = tilted_scores(likelihood, datum, cavity)
    ...         expect, f, weight = tilted.density.expect, tilted.f, jnp.exp(-(z**2))
    ...         mean = expect(weight * f) / expect(weight)
    ...         sd = expect(weight * z * (f - mean)) / expect(weight * z**2)
    ...         return relative(cavity, mean, sd**2, tilted.density.log_normalizer)
    >>> mine = project(likelihoods.Probit(), y=1, cavity=(0.0, 4.0), projection=Central())
    >>> float(mine.mean.round(6)), float(mine.variance.round(6))
    (1.352735, 1.907209)
    """

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        """The Gaussian that stands for p(y | f) N(f | cavity), relative to the cavity."""
        raise NotImplementedError

    def quick(self, likelihood: Likelihood) -> bool:
        """Return whether it needs no quadrature."""
        return False

    def on_few_nodes(self, likelihood: Likelihood) -> bool:
        """Return whether the small rule is accurate enough for most tilted densities of this likelihood."""
        return False


def projected(projection: Projection, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    """The Gaussians of all latent values of a datum: each of its own tilted density, the others integrated out."""
    if likelihood.latents == 1 or isinstance(projection, KL):  # whose moments are those of the joint density
        return projection.project(likelihood, datum, cavity)
    parts = [projection.project(one, datum, its) for one, its in likelihood.functions(datum, cavity)]
    whole = jax.tree.map(lambda *each: jnp.stack(each), *parts)
    return changed(whole, log_normalizer=parts[-1].log_normalizer)


def tilted_scores(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Tilted, Float[Array, "panels 16"]]:
    """Evaluate the tilted density on quadrature nodes, and z = Φ⁻¹(F(f)) at them.

    Args:
        likelihood: Distribution of y given f.
        datum: The observation.
        cavity: Mean and variance of f given all other observations.

    Returns:
        The tilted density and z. `.density.expect(g)` is the expectation from values g at the nodes `.f`;
        `.density.tails()` are F and 1 − F.
    """
    tilted = tilt(likelihood, datum, cavity)
    return tilted, normal_score(*tilted.density.tails())


def relative(cavity: Normal, mean: Scalar, variance: Scalar, log_normalizer: Scalar) -> Moments:
    """State N(mean, variance) relative to the cavity, as a projection returns it.

    The differences from the cavity are taken here, so a likelihood that hardly moves the cavity loses digits.

    Args:
        cavity: Mean and variance of f given all other observations.
        mean: Mean of the chosen Gaussian.
        variance: Its variance.
        log_normalizer: Log integral of likelihood times cavity.

    Returns:
        The moments relative to the cavity.
    """
    ratio = variance / cavity.variance
    return Moments(log_normalizer, mean - cavity.mean, ratio, 1.0 - ratio)


class KL(Projection):
    """The Gaussian with the tilted density's mean and variance.

    >>> from quantprop import likelihoods, project, projections
    >>> found = project(likelihoods.Heaviside(), 1, (0.0, 1.0), projections.KL())
    >>> round(float(found.variance), 4)  # of a half-normal: 1 − 2/π
    0.3634
    """

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        return likelihood.moments(datum, cavity)

    def quick(self, likelihood: Likelihood) -> bool:
        return likelihood.closed

    def on_few_nodes(self, likelihood: Likelihood) -> bool:
        return likelihood.smooth and not likelihood.closed


PAIR = Rule("a pair (mean, variance)", lambda value: isinstance(value, (tuple, list)) and len(value) == 2)


class Projected(Record):
    """Projection of a tilted density: N(mean, variance), with its log normaliser.

    Args:
        log_normalizer: log ∫ p(y | f) N(f | cavity) df.
        mean: Means.
        variance: Variances.
    """

    log_normalizer: Float[np.ndarray, "*shape"]
    mean: Float[np.ndarray, "*shape"]
    variance: Float[np.ndarray, "*shape"]


@checked(
    likelihood=a(Likelihood), projection=a(Projection, "a Projection, such as KL() or Wasserstein(2)"), cavity=PAIR
)
@float64
def project(
    likelihood: Likelihood,
    y: Any,
    cavity: tuple[Any, Any],
    projection: Projection = KL(),
    *,
    exposure: Any = None,
    trials: Any = None,
) -> Projected:
    """Project one tilted density p(y | f) N(f | cavity) onto a Gaussian. y and the cavity's moments broadcast.

    Args:
        likelihood: Distribution of y given f.
        y: One observation, or several.
        cavity: Mean and variance of f given all other observations.
        projection: Projection of the tilted density onto Gaussians: `KL()`, `Wasserstein(p)`, or your own.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.

    Returns:
        Mean and variance of the Gaussian, and the log normaliser of the tilted density.

    >>> from quantprop import likelihoods, project, projections
    >>> kl = project(likelihoods.Probit(), y=1, cavity=(0.0, 4.0))
    >>> w2 = project(likelihoods.Probit(), y=1, cavity=(0.0, 4.0), projection=projections.Wasserstein(2))
    >>> float(kl.mean.round(6)), float(kl.variance.round(6)), float(w2.variance.round(6))
    (1.427299, 1.962817, 1.940511)
    """
    if likelihood.latents > 1:
        raise ValueError(f"likelihood: project takes one latent value, and {type(likelihood).__name__} has "
                         f"{likelihood.latents}: pass the likelihood with a constant parameter")  # fmt: skip
    likelihood, y = values(likelihood), real_array(y, "y")
    mean, variance = finite_array(cavity[0], "cavity mean"), finite_array(cavity[1], "cavity variance")
    bad = variance <= 0
    if bad.any():
        raise ValueError(f"{first_bad(bad, variance, 'cavity variance')}: must be positive")
    tail = 1 if likelihood.columns > 1 else 0
    y_shape = y.shape[: y.ndim - tail]
    shapes = {"cavity mean": mean.shape, "cavity variance": variance.shape, "y": y_shape,
              "exposure": np.shape(exposure), "trials": np.shape(trials)}  # fmt: skip
    try:
        shape = np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"the shapes of y and the cavity do not broadcast: {listed}") from None
    data = encode(likelihood, y, shape, exposure, trials)
    cavities = Normal(np.broadcast_to(mean, shape), np.broadcast_to(variance, shape))
    rows = jax.tree.map(lambda column: column.reshape(-1, *column.shape[len(shape) :]), (data, cavities))
    count = len(rows[1].mean)
    out = _project(projection, likelihood, *pad(rows, bucket(count)))
    return Projected(*(np.asarray(column)[:count].reshape(shape)[()] for column in out))


@program
def _project(projection: Projection, likelihood: Likelihood, data, cavities: Normal):
    def one(datum, cavity):
        moments = projection.project(likelihood, datum, cavity)
        return moments.log_normalizer, cavity.mean + moments.shift, cavity.variance * moments.ratio

    return jax.vmap(one)(data, cavities)
