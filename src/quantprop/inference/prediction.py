"""Priors and predictions of a model at concrete inputs, padded; in programs that many shapes of model share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, pad
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.task import Task, more_columns, refuse_shaped, weight_of
from quantprop.kernels import Kernel
from quantprop.methods import Method
from quantprop.methods.base import Weight
from quantprop.model import Model
from quantprop.priors import Prior, Process
from quantprop.priors.base import Cost, Predictor
from quantprop.runtime.memory import check_memory
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program
from quantprop.runtime.threads import blas_threads_for

MAX_INPUTS = 16_384  # new inputs that are predicted at a time
JOINT_MATRICES = 4  # prior, posterior and intermediate covariances of a joint prediction
Solution = Any  # of `solution`, which imports this


class PrecisionWarning(UserWarning):
    """Warning: a result is near the limit of double precision."""


def prior_of(process: Any, kernel: Any, mean: Any, x: Any) -> Prior:
    """The prior at inputs where its mean is known."""
    return process.prior(kernel, mean, process.prepare(kernel, x))


# Kernels and linear algebra in programs of their own: the latter then serve every kernel and number of features.
_prior = program(prior_of)
_around = program(lambda process, kernel, x, new: (process.cross(kernel, x, new), kernel.diagonal(new)))
gram_of = program(lambda kernel, x: kernel.gram(x))
_predictor = program(
    lambda prior, share, sites, signed: prior.for_shares(share).predictor(sites, signed), static_argnames="signed"
)


def _alpha_under(prior: Prior, share: Any, sites: Natural, signed: bool) -> Any:
    prior = prior.for_shares(share)
    return prior.alpha(prior.condition(sites, signed), signed)


_alpha = program(_alpha_under, static_argnames="signed")
_message = program(lambda prior, share, sites, log_evidence: prior.for_shares(share).message(sites, log_evidence))
latent_at = program(lambda by, mean, cross, own: by.at(mean, cross, own))
_around_of = program(
    lambda process, kernel, other, x, new: (process.cross_of(kernel, other, x, new), other.diagonal(new))
)


class PaddedRows(NamedTuple):
    """The rows of a solution as programs take them; rows of weight 0, whose sites are 0, fill them up."""

    weight: Weight
    share: Any  # the fraction of each site that the method removes at a time
    sites: Natural
    signed: bool  # True if a site has a negative precision


def padded_rows(solution: Solution) -> PaddedRows:
    """The rows of a solution, padded."""
    refuse_shaped(solution)
    n, sites = len(solution.X), solution.sites
    weight = weight_of(np.ones(n) if solution.weights is None else solution.weights, bucket(n))
    padded = jax.tree.map(lambda part: more_columns(np.asarray(part), bucket(n) - n), sites)
    return PaddedRows(weight, solution.method.share(weight), padded, bool((sites.tau < 0).any()))


def padded_prior(model: Model, x: np.ndarray) -> Prior:
    """The prior of a model at its padded inputs."""
    size = bucket(len(x))
    return _prior(model.plain_process, model.plain_kernel, pad(model.prior_mean(x), size), pad(x, size))


def prior_at(model: Model, task: Task) -> Prior:
    """The prior of a model at the padded inputs of a task, on its devices."""
    mean, x = task.placed((pad(model.prior_mean(task.x), len(task.padded)), task.padded))
    return _prior(model.plain_process, model.plain_kernel, mean, x)


def predictor_of(solution: Solution, model: Model) -> Predictor:
    """The predictor under the sites of a solution, and the prior of its model or a similar one."""
    by = padded_rows(solution)
    with blas_threads_for(model.process.cost(len(solution.X))):
        return _predictor(padded_prior(model, solution.X), by.share, by.sites, signed=by.signed)


def predictor_shapes(solution: Solution, model: Model) -> Predictor:
    """The same with shapes and types instead of numbers."""
    by, x, size = padded_rows(solution), solution.X, bucket(len(solution.X))
    rows = pad(model.prior_mean(x), size), pad(x, size)
    prior = _prior.shapes(model.plain_process, model.plain_kernel, *rows)
    return _predictor.shapes(prior, by.share, by.sites, signed=by.signed)


def alpha_of(solution: Solution, model: Model) -> Float[np.ndarray, " n"]:
    """The derivative of the sites' Gaussian integral in the prior mean at the training inputs, likewise."""
    by = padded_rows(solution)
    alpha = _alpha(padded_prior(model, solution.X), by.share, by.sites, signed=by.signed)
    return np.asarray(alpha)[: len(solution.X)]


def predictor_at(model: Model, method: Method, task: Task, sites: Natural) -> Predictor:
    """The predictor from all rows of a task, sites on its devices: for predictions by any process on its own."""
    share, signed = task.placed(method.share(task.weight)), bool(jnp.any(sites.tau < 0))
    return to_numpy(_predictor(prior_at(model, task), share, sites, signed=signed))


def process_after(solution: Solution) -> Process:
    """The process of a solution's model, its rows replaced by a message from their sites."""
    model, by = solution.model, padded_rows(solution)
    if not model.process.takes_further_rows:
        raise TypeError(f"{type(model.process).__name__} cannot summarise earlier rows: use process=Inducing(512)")
    prior = padded_prior(model, solution.X)
    return model.process.after(to_numpy(_message(prior, by.share, by.sites, solution.log_evidence)))


def predicted(by: Predictor, model: Model, x: np.ndarray, new: np.ndarray, full_cov: bool) -> Normal:
    """The posterior of f at new inputs, without the padding, in NumPy; with `full_cov`, their joint covariance too.

    Many inputs are taken in pieces, unless their joint covariance is asked for.
    """
    if full_cov:
        need, what = 8 * JOINT_MATRICES * bucket(len(new)) ** 2, f"{JOINT_MATRICES} matrices of as many rows"
        check_memory(Cost(need, 0, 0.0, f"the joint posterior at {len(new)} rows", what))

    def latent(piece: np.ndarray) -> Normal:
        return _latent(by, at_new(model, x, piece), model.plain_kernel, piece, len(x), full_cov)

    return in_pieces(latent, new, len(new) if full_cov else MAX_INPUTS)


def in_pieces(function: Callable[[np.ndarray], Any], rows: np.ndarray, most: int) -> Any:
    """A function of rows, computed for at most this many at a time: a tree of arrays, one entry per row."""
    parts = [function(rows[at : at + most]) for at in range(0, len(rows), most)]
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)


def predicted_of(by: Predictor, model: Model, other: Kernel, x: np.ndarray, new: np.ndarray, full_cov: bool) -> Normal:
    """The posterior of another function, of mean 0, at its own inputs: `other.cross(x, new)` ties it to f at x."""
    more = pad(new, bucket(len(new)))
    process = model.plain_process.facing(model.plain_kernel, x, new)
    around = _around_of(process, model.plain_kernel, other, pad(x, bucket(len(x))), more)
    return _latent(by, (np.zeros(len(more)), *around), other, new, len(x), full_cov)


def _latent(by: Predictor, around: Any, kernel: Kernel, new: np.ndarray, n: int, full_cov: bool) -> Normal:
    """The posterior at new inputs given n rows, variances above what double precision resolves."""
    (mean, cross, own), k = around, len(new)
    latent = latent_at(by, mean, cross, gram_of(kernel, pad(new, bucket(k))) if full_cov else own)
    latent, prior = to_numpy((latent, own))
    variance = above_rounding(latent.variance[:k], prior[:k], n)
    if not full_cov:
        return Normal(latent.mean[:k], variance)
    joint = np.array(latent.covariance[:k, :k])
    np.fill_diagonal(joint, variance)
    return Normal(latent.mean[:k], variance, joint)


def draws(joint: Normal, n: int, seed: int) -> Float[np.ndarray, "n k"]:
    """n draws of a joint normal distribution (rows: draws)."""
    values, vectors = np.linalg.eigh(joint.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # a covariance's eigenvalues below 0 are rounding
    return joint.mean + np.random.default_rng(seed).standard_normal((n, len(values))) @ root.T


def proper(latent: Any, status: Any) -> Any:
    """The prediction, or an error if it is not finite; `status` says how inference ended."""
    bad = ~(np.isfinite(latent.mean) & np.isfinite(latent.variance))
    if bad.any():
        raise np.linalg.LinAlgError(
            f"the posterior of f at row {int(np.argwhere(bad)[0][0])} of the new inputs is not finite: inference "
            f"stopped with status {status}; if it converged, these inputs are too large for the kernel"
        )
    return latent


def at_new(model: Model, x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, Any, Any]:
    """The arguments of `Predictor.at` for new inputs, padded: prior means, covariances with x, and prior variances."""
    k, kernel, more = len(new), model.plain_kernel, pad(new, bucket(len(new)))
    process = model.plain_process.facing(kernel, x, new)
    return pad(model.prior_mean(new), bucket(k)), *_around(process, kernel, pad(x, bucket(len(x))), more)


def above_rounding(variance: np.ndarray, prior: np.ndarray, n: int) -> np.ndarray:
    """A predictive variance is prior minus explained: below n ε of the prior it is rounding, and that is returned."""
    bound = n * np.finfo(float).eps * prior
    lost = variance < bound
    if lost.any():
        warnings.warn(
            f"{lost.sum()} of {len(lost)} predictive variances are below what double precision resolves "
            f"(kernel variance {prior[lost].max():.1e} × {n} rows): the bound is returned for them, the first at row "
            f"{int(np.argmax(lost))}; a smaller kernel variance or a longer lengthscale avoids this",
            PrecisionWarning,
            stacklevel=6,
        )
    return np.where(lost, bound, variance)
