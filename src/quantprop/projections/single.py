"""One projection by itself: what EP or QP does to a single datum."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, finite_array, first_bad, pad, real_array
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.core.records import Record
from quantprop.likelihoods.base import Likelihood
from quantprop.likelihoods.encoding import encode
from quantprop.projections import KL, Projection
from quantprop.runtime.arguments import Rule, a, checked
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

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
    (1.427299, 1.962817, 1.931829)
    """
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
