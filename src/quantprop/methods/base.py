"""The contract of a method: the rule that updates one site, and the evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import Natural, Vector
from quantprop.core.records import Record
from quantprop.core.sites import Marginal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.runtime.batches import rowwise
from quantprop.runtime.programs import part


class Weight(NamedTuple):
    """Weight of an observation: `copies` equal sites, each of p(y | f)^exponent; total = copies · exponent.

    copies = max(total, 1), integer or not, and exponent = min(total, 1): continuous in the total, and an integer w is
    the same as w equal rows. `exponent` is None if all exponents are 1.
    """

    total: Vector
    copies: Vector
    exponent: Vector | None


class Renewal(Record):
    """One datum's outcome: its new site, its term of the method's objective, and whether its cavity was proper."""

    site: Natural
    value: Scalar
    proper: Bool[Array, ""]


class Summary(Record):
    """The quantities of a posterior that an objective needs, for any backend."""

    prior_mean: Float[Array, "..."]
    sites: Natural
    marginals: Marginal
    log_determinant: Scalar
    weight: Array


class Method(Record):
    """Base of all methods."""

    ascends: ClassVar[bool] = False  # its `merit` must grow from step to step (else: its residual must shrink)

    @property
    def stationary(self) -> bool:
        """True if the evidence does not change, to first order, with the sites at the fixed point."""
        return False

    @property
    def stand_in(self) -> Method | None:
        """The method whose answer `infer` gives, and names, where this one has no fixed point."""
        return None

    def check(self, likelihood: Likelihood, weight: Weight) -> None:
        """Raise if the method does not support the likelihood, or such weights."""
        if likelihood.latents > 1:
            raise ValueError(f"{type(self).__name__} does not support a parameter that varies with x: use EP or QP")

    def share(self, weight: Weight) -> Vector:
        """The fraction of each row's site that is removed at a time: that of one copy."""
        return 1.0 / weight.copies

    def quick(self, likelihood: Likelihood, weight: Weight) -> bool:
        """Return whether updating sites is cheap relative to the prior's factor, and may be done more than once."""
        return False

    def on_few_nodes(self, likelihood: Likelihood, weight: Weight) -> bool:
        """Return whether updating sites integrates, and the small rule is accurate enough for most of them."""
        return False

    def tells_left_out(self, likelihood: Likelihood, weight: Weight) -> bool:
        """Return whether an observation's value contains its leave-one-out density (`left_out`)."""
        return False

    def left_out(self, weight: Weight, marginal: Marginal, site: Natural, value: Scalar) -> Scalar:
        """log p(y_i) without one copy of datum i, from its value."""
        raise NotImplementedError

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        """The updated site of this observation under the current marginal."""
        raise NotImplementedError

    def merit(self, values: Array, summary: Summary) -> Scalar:
        """The objective whose growth guards the steps of a method that ascends."""
        return self.evidence(values, summary)

    def evidence(self, values: Array, summary: Summary) -> Scalar:
        """The log evidence of the method, given every datum's value."""
        raise NotImplementedError


@part  # a rule is needed in many places, as are its derivatives: half of the time to trace
def renewal(
    method: Method, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural
) -> Renewal:
    """`method.renew`, as engines and derivatives call it."""
    return method.renew(likelihood, datum, weight, marginal, site)


def each_row(rule: Callable, *rows: Any) -> Any:
    """A rule for every row of data, weights, marginals, sites and so on; several latent values of a row, whose axis is
    the first, are an array for the rule.
    """
    found = rowwise(rule, *(row if isinstance(row, Datum) else _transposed(row) for row in rows))
    return jax.tree.map(lambda part: jnp.moveaxis(part, 0, -1), found)


def _transposed(rows: Any) -> Any:
    return jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), rows)


def quadratic(summary: Summary) -> Scalar:
    """½ (μ − m)ᵀ K⁻¹ (μ − m) = ½ (μ − m)ᵀ α."""
    return 0.5 * jnp.sum((summary.marginals.mean - summary.prior_mean) * summary.marginals.alpha)
