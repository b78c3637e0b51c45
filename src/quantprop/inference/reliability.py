"""Rows whose leave-one-out density is unreliable: their cavity is improper, or approximate and uncertain."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.inference.classes import ClassSolution
from quantprop.likelihoods import Gaussian
from quantprop.likelihoods.base import Datum
from quantprop.runtime.precision import float64

UNRELIABLE = 0.4  # posterior variance of a row's log density (Vehtari, Gelman and Gabry 2017, section 2.2)
NODES = 32
DRAWS_OF_F = 400  # in multi-class models


def unreliable(solution: Any) -> np.ndarray:
    """Rows whose cavity is improper, or for which the posterior variance of log p(y_i | f_i) is above 0.4. Cavities of
    the Gaussian likelihood are exact, whatever that variance.
    """
    if isinstance(solution, ClassSolution):
        return ~(_class_spread(solution) <= UNRELIABLE)
    improper = np.isnan(solution.loo)
    several = solution.data is None or np.ndim(solution.marginals.mean) > 1
    exact = isinstance(solution.model.likelihood, Gaussian) or several
    return improper if exact else improper | ~(_spread(solution) <= UNRELIABLE)


@float64
def _class_spread(solution: Any) -> Float[np.ndarray, " n"]:
    """Var log p(y_i | f_i) of the functions of all classes, over draws of them."""
    latent = solution.marginals
    values, vectors = np.linalg.eigh(latent.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    z = np.random.default_rng(0).standard_normal((DRAWS_OF_F, *np.shape(latent.mean)))
    f = latent.mean + np.einsum("ncd,snd->snc", root, z)
    one = np.ones(len(solution.y))
    each = jax.vmap(solution.likelihood.log_prob, (Datum(0, 0, 0), 0))
    return np.var(np.asarray(jax.jit(jax.vmap(each, (None, 0)))(Datum(solution.y, one, one), f)), axis=0)


@float64
def _spread(solution: Any) -> Float[np.ndarray, " n"]:
    """Var log p(y_i | f_i) under the marginal posterior of f_i: WAIC's penalty of a row."""
    likelihood, latent = solution.model.plain_likelihood, solution.marginals
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    f = latent.mean[:, None] + np.sqrt(latent.variance)[:, None] * nodes
    each = jax.vmap(lambda datum, fs: jax.vmap(lambda f: likelihood.log_prob(datum, f))(fs))
    logs = np.asarray(each(solution.data, f))
    with np.errstate(invalid="ignore"):
        mean = logs @ weights
        return ((logs - mean[:, None]) ** 2) @ weights
