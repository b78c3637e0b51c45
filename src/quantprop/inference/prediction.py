"""Priors and predictions of a model at concrete inputs, padded; in programs that many shapes of model share."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from quantprop.data import bucket, pad
from quantprop.gaussian import Natural, Normal
from quantprop.inference.task import Task, weight_of
from quantprop.kernels import Kernel
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.priors import Prior, Process
from quantprop.priors.base import Predictor
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

PIECE = 16_384  # new inputs that are predicted at a time


class PrecisionWarning(UserWarning):
    """A result is near the limit of double precision."""


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
_message = program(lambda prior, share, sites, log_evidence: prior.for_shares(share).message(sites, log_evidence))
_at = program(lambda by, mean, cross, own: by.at(mean, cross, own))
_around_of = program(
    lambda process, kernel, other, x, new: (process.cross_of(kernel, other, x, new), other.diagonal(new))
)


def padded_prior(model: Model, x: np.ndarray) -> Prior:
    """The prior of a model at its padded inputs."""
    size = bucket(len(x))
    return _prior(model.plain_process, model.plain_kernel, pad(model.prior_mean(x), size), pad(x, size))


def prior_at(model: Model, task: Task) -> Prior:
    """The prior of a model at the padded inputs of a task, on its devices."""
    mean, x = task.placed((pad(model.prior_mean(task.x), len(task.padded)), task.padded))
    return _prior(model.plain_process, model.plain_kernel, mean, x)


def padded_sites(sites: Natural) -> Natural:
    """Sites with nothing to say for the rows that are padded."""
    more = bucket(len(sites.nu)) - len(sites.nu)
    return Natural(np.pad(sites.nu, (0, more)), np.pad(sites.tau, (0, more)))


def shares(method: Method, weights: np.ndarray | None, n: int) -> np.ndarray:
    """The share of each padded row's site that a method removes at a time."""
    return method.share(weight_of(np.ones(n) if weights is None else weights, bucket(n)))


def predictor_of(model: Model, method: Method, x: np.ndarray, sites: Natural, weights: np.ndarray | None) -> Predictor:
    """What predictions under these sites need."""
    share, signed = shares(method, weights, len(x)), bool((sites.tau < 0).any())
    return _predictor(padded_prior(model, x), share, padded_sites(sites), signed=signed)


def predictor_at(model: Model, method: Method, task: Task, sites: Natural) -> Predictor:
    """The same of all rows of a task, sites on its devices: for predictions by any process on its own."""
    share, signed = task.placed(method.share(task.weight)), bool(jnp.any(sites.tau < 0))
    return to_numpy(_predictor(prior_at(model, task), share, sites, signed=signed))


def process_after(
    model: Model, method: Method, x: np.ndarray, sites: Natural, weights: np.ndarray | None, log_evidence: float
) -> Process:
    """The model's process, with what the sites of these rows say in the place of the rows."""
    if not model.process.takes_further_rows:
        raise TypeError(f"{type(model.process).__name__} cannot keep rows as a message: use process=Inducing(512)")
    share, prior = shares(method, weights, len(x)), padded_prior(model, x)
    return model.process.after(to_numpy(_message(prior, share, padded_sites(sites), log_evidence)))


def predicted(by: Predictor, model: Model, x: np.ndarray, new: np.ndarray, full_cov: bool) -> Normal:
    """The posterior of f at new inputs, without the padding, in NumPy; with `full_cov`, their joint covariance too.

    Many inputs are taken in pieces, unless their joint covariance is asked for.
    """
    if full_cov or len(new) <= PIECE:
        return _predicted(by, model, x, new, full_cov)
    parts = [_predicted(by, model, x, new[at : at + PIECE], False) for at in range(0, len(new), PIECE)]
    return Normal(np.concatenate([part.mean for part in parts]), np.concatenate([part.variance for part in parts]))


def _predicted(by: Predictor, model: Model, x: np.ndarray, new: np.ndarray, full_cov: bool) -> Normal:
    k = len(new)
    mean, cross, own = at_new(model, x, new)
    latent = _at(by, mean, cross, gram_of(model.plain_kernel, pad(new, bucket(k))) if full_cov else own)
    latent, prior = to_numpy((latent, own))
    return _bounded(latent, prior, k, len(x), full_cov)


def predicted_of(by: Predictor, model: Model, other: Kernel, x: np.ndarray, new: np.ndarray, full_cov: bool) -> Normal:
    """The posterior of another function, of mean 0, at its own inputs: `other.cross(x, new)` ties it to f at x."""
    k, more = len(new), pad(new, bucket(len(new)))
    cross, own = _around_of(model.plain_process, model.plain_kernel, other, pad(x, bucket(len(x))), more)
    latent = _at(by, np.zeros(len(more)), cross, gram_of(other, more) if full_cov else own)
    latent, prior = to_numpy((latent, own))
    return _bounded(latent, prior, k, len(x), full_cov)


def _bounded(latent: Normal, prior: np.ndarray, k: int, n: int, full_cov: bool) -> Normal:
    """The first k of what was predicted from n rows, variances above what double precision resolves."""
    variance = above_rounding(latent.variance[:k], prior[:k], n)
    if not full_cov:
        return Normal(latent.mean[:k], variance)
    joint = np.array(latent.covariance[:k, :k])
    np.fill_diagonal(joint, variance)
    return Normal(latent.mean[:k], variance, joint)


def proper(latent: Any, status: Any) -> Any:
    """What was predicted, or an error where it is not finite; `status` says how inference ended."""
    bad = ~(np.isfinite(latent.mean) & np.isfinite(latent.variance))
    if bad.any():
        raise np.linalg.LinAlgError(
            f"the posterior of f at row {int(np.argwhere(bad)[0][0])} of the new inputs is not finite: inference ended "
            f"{status}; if it converged, these inputs are too large for the kernel"
        )
    return latent


def at_new(model: Model, x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, Any, Any]:
    """What `Predictor.at` needs of new inputs, padded: prior means, what ties them to x, and prior variances."""
    k, kernel, more = len(new), model.plain_kernel, pad(new, bucket(len(new)))
    return pad(model.prior_mean(new), bucket(k)), *_around(model.plain_process, kernel, pad(x, bucket(len(x))), more)


def above_rounding(variance: np.ndarray, prior: np.ndarray, n: int) -> np.ndarray:
    """A predictive variance is prior minus explained: below n ε of the prior it is rounding, and that is returned."""
    bound = n * np.finfo(float).eps * prior
    lost = variance < bound
    if lost.any():
        warnings.warn(
            f"{lost.sum()} of {len(lost)} predictive variances are below what double precision resolves "
            f"(kernel variance {prior.max():.1e} × {n} rows): the bound is returned for them, the first at row "
            f"{int(np.argmax(lost))}; a smaller kernel variance or a longer lengthscale avoids this",
            PrecisionWarning,
            stacklevel=6,
        )
    return np.where(lost, bound, variance)
