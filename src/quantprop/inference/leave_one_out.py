"""Each datum as the rest of the data predict it, from its cavity: no refit is needed."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jaxtyping import Array

from quantprop.core.gaussian import Natural
from quantprop.core.sites import Marginal, Removal, cavity
from quantprop.inference.engine import Evaluation
from quantprop.inference.task import Task
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.likelihoods.derived import WithFewNodes
from quantprop.methods.base import Method, Weight, each_row
from quantprop.priors import Prior
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program, seldom


def loo_log_prob(likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Scalar:
    """log p(y_i) under the posterior without one copy of datum i: log Z_i of its cavity, NaN where that is improper."""
    return likelihood.predictive_log_prob(datum, cavity(marginal, site, Removal(1.0 / weight.copies)))


def loo_of(method: Method | None, likelihood: Likelihood, data: Datum, weight: Weight, at: Evaluation) -> jax.Array:
    """log p(y_i) without datum i, for all data: from what the rule of a method has integrated, where that tells it, or
    by an integral over the cavity, as always without a method.
    """
    if method is not None and method.tells_left_out(likelihood, weight):
        return each_row(method.left_out, weight, at.marginals, at.sites, at.values)
    return each_row(partial(loo_log_prob, likelihood), data, weight, at.marginals, at.sites)


loo_program = seldom(loo_of)


@partial(program, static_argnames="signed")
def loo_apart(
    likelihood: Likelihood, prior: Prior, share: Array, data: Datum, weight: Weight, sites: Natural, signed: bool
) -> Array:
    """The same if a marginal contains only a fraction of the independent part of its value (`Prior.for_shares`)."""
    shared = prior.for_shares(share)
    rest = shared.left_out(shared.condition(sites, signed), weight.copies)
    return each_row(likelihood.predictive_log_prob, data, rest)


@float64
def loo_at(method: Method, likelihood: Likelihood, task: Task, at: Evaluation) -> jax.Array:
    """The same for a task. The small rule may not be accurate enough for a row of weight 0, which no sweep checks."""
    data, weight = task.placed((task.data, task.weight))
    if task.mesh is None:
        found = loo_program(*for_loo(method, likelihood, weight), data, weight, at)
        if not _integrated(likelihood) or np.isfinite(np.asarray(found)[: len(task.x)]).all():
            return found
    return loo_program(None, likelihood, data, weight, at)


def for_loo(method: Method, likelihood: Likelihood, weight: Weight) -> tuple[Method | None, Likelihood]:
    """Method and likelihood as `loo_at` tries them first: from the rule itself, or by the small quadrature rule."""
    if method.tells_left_out(likelihood, weight):
        return method, likelihood
    return None, WithFewNodes(likelihood) if _integrated(likelihood) else likelihood


def _integrated(likelihood: Likelihood) -> bool:
    return likelihood.smooth and not likelihood.closed
