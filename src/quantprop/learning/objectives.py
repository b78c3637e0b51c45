"""Objectives of learning: a sum of local terms over the data, and a term of the whole posterior."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.core.sites import Marginal
from quantprop.inference.leave_one_out import loo_log_prob
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.methods.base import Method, Renewal, Summary, Weight
from quantprop.methods.vb import VB
from quantprop.runtime.names import check_name


class Objective(Record):
    """Base of all objectives; `local` sees one datum, `total` all of them."""

    name: ClassVar[str]

    def check(self, method: Method) -> None:
        """Raise where the objective does not exist for a method."""

    def stationary(self, method: Method) -> bool:
        """Return whether the objective is stationary in the sites at the method's fixed point; the value of an
        observation is then given by the method's rule.
        """
        return False

    def local(
        self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural, renewal: Renewal
    ) -> Scalar:
        """One datum's value."""
        raise NotImplementedError

    def total(self, method: Method, values: Array, summary: Summary) -> Scalar:
        """The objective from all values."""
        raise NotImplementedError


class Evidence(Objective):
    """The method's own approximation of log p(y)."""

    name: ClassVar[str] = "evidence"

    def stationary(self, method: Method) -> bool:
        return method.stationary

    def local(self, likelihood, datum, weight, marginal, site, renewal) -> Scalar:
        return renewal.value

    def total(self, method: Method, values: Array, summary: Summary) -> Scalar:
        return method.evidence(values, summary)


class ELBO(Evidence):
    """VB's lower bound of log p(y), which is its evidence."""

    name: ClassVar[str] = "elbo"

    def check(self, method: Method) -> None:
        if not isinstance(method, VB):
            raise ValueError(
                f"objective='elbo' is supported for VB only; {type(method).__name__} has 'evidence' and 'loo'"
            )


class LeaveOneOut(Objective):
    """Σ log p(y_i) under the posterior without datum i (one copy of it), from the cavities."""

    name: ClassVar[str] = "loo"

    def local(self, likelihood, datum, weight, marginal, site, renewal) -> Scalar:
        return weight.total * loo_log_prob(likelihood, datum, weight, marginal, site)

    def total(self, method: Method, values: Array, summary: Summary) -> Scalar:
        return jnp.sum(values)


OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in (Evidence, LeaveOneOut, ELBO)}


def as_objective(objective: Objective | str) -> Objective:
    if isinstance(objective, Objective):
        return objective
    check_name("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective]()
