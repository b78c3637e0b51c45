"""Laplace's approximation: Newton's method for the posterior mode, in the language of sites."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from quantprop.core.gaussian import Natural
from quantprop.core.sites import Marginal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.methods.base import Method, Renewal, Summary, Weight, quadratic


class Laplace(Method):
    """Laplace's approximation: τ = −∂² log p, ν = ∂ log p + τ f at the mode (Rasmussen and Williams, section 3.4).

    The cheapest method, and inaccurate if the posterior is skewed: nearly separable or very unbalanced classes. It
    needs second derivatives, so it does not exist for the Heaviside and the double-exponential likelihood.

    >>> from quantprop import Laplace, Model, infer, kernels, likelihoods
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> round(infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, Laplace()).log_evidence, 3)
    -2.141
    """

    ascends: ClassVar[bool] = True

    def check(self, likelihood: Likelihood, weight: Weight) -> None:
        super().check(likelihood, weight)
        if not likelihood.differentiable:
            raise ValueError(f"Laplace does not support the {likelihood.name} likelihood: log p(y | f) has no second "
                             "derivative at a possible mode; use EP, QP or VB")  # fmt: skip

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        def log_prob(f):
            return weight.total * likelihood.log_prob(datum, f)

        value, slope = jax.value_and_grad(log_prob)(marginal.mean)
        tau = -jax.grad(jax.grad(log_prob))(marginal.mean)
        return Renewal(Natural(slope + tau * marginal.mean, tau), value, jnp.isfinite(tau))

    def merit(self, values: Array, summary: Summary) -> Scalar:
        """log p(y | f) − ½ (f − m)ᵀ K⁻¹ (f − m): what Newton's method maximises."""
        return jnp.sum(values) - quadratic(summary)

    def evidence(self, values: Array, summary: Summary) -> Scalar:
        return self.merit(values, summary) - 0.5 * summary.log_determinant
