"""Draws of observations from a model that has seen none."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.data import inputs
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import LogNormal, is_parameter, values
from quantprop.core.sites import Datum
from quantprop.inference.prediction import draws, gram_of
from quantprop.likelihoods.base import scales
from quantprop.model import Model
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.precision import float64, to_numpy


@checked(model=a(Model))
@float64
def prior_predictive(
    model: Model, X: Any, n: int = 10, seed: int = 0, *, exposure: Any = None, trials: Any = None
) -> Float[np.ndarray, "n rows"]:
    """Draw observations from the prior: what a model expects before any data, to check kernel, scales and priors.

    Args:
        model: The model. In each draw a Parameter with a LogNormal prior has a value drawn from it; all others have
            their starting values.
        X: Inputs, one row each.
        n: Number of draws.
        seed: Seed of the random numbers.
        exposure: Exposure of counts; one value, or one per row.
        trials: Number of trials; one value, or one per row.

    Returns:
        One row per draw, one column per input.

    >>> import numpy as np
    >>> from quantprop import Model, kernels, likelihoods, prior_predictive
    >>> model = Model(kernels.SquaredExponential(0.1, 2.0), likelihoods.Poisson(), mean=1.0)
    >>> prior_predictive(model, np.arange(4.0), n=3).shape
    (3, 4)
    """
    x, rng, found = inputs(X, "X"), np.random.default_rng(seed), []
    each = scales(model.likelihood, (len(x),), exposure, trials)
    for _ in range(n):
        one = jax.tree.map(lambda leaf: _drawn(rng, leaf), model, is_leaf=is_parameter)
        covariance = to_numpy(gram_of(one.plain_kernel, x))
        prior = Normal(one.prior_mean(x), np.diagonal(covariance), covariance)
        f = draws(prior, 1, int(rng.integers(2**31)))[0]
        found.append(one.plain_likelihood.draw(rng, Datum(np.zeros(len(x)), each["exposure"], each["trials"]), f))
    return np.stack(found)


def _drawn(rng: np.random.Generator, leaf: Any) -> Any:
    if not is_parameter(leaf) or leaf.fixed or not isinstance(leaf.prior, LogNormal):
        return leaf
    return leaf.prior.median * np.exp(leaf.prior.deviation * rng.standard_normal(np.shape(values(leaf))))
