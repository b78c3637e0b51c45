"""Variational Bayes with a full-covariance Gaussian (Opper and Archambeau, 2009), by natural-gradient steps."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from quantprop.core.gaussian import Natural, Normal, Vector
from quantprop.core.sites import Marginal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.methods.base import Method, Renewal, Summary, Weight, quadratic


class VB(Method):
    """Variational Bayes with a full Gaussian: τ = −2 ∂E_q[log p]/∂v, ν = ∂E_q[log p]/∂μ + τ μ at the optimum of the
    ELBO.

    Its evidence is a lower bound of log p(y). It does not exist if E_q[log p] is −∞: for the Heaviside likelihood
    without noise, and for gamma with the square link.

    >>> from quantprop import VB, Model, infer, kernels, likelihoods
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> round(infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, VB()).log_evidence, 3)
    -2.127
    """

    ascends: ClassVar[bool] = True

    @property
    def stationary(self) -> bool:
        return True  # the sites maximise the bound

    def share(self, weight: Weight) -> Vector:
        return 0.0 * weight.copies  # power EP's limit

    def check(self, likelihood: Likelihood, weight: Weight) -> None:
        super().check(likelihood, weight)
        if not likelihood.integrable:
            raise ValueError(f"VB does not support the {likelihood.name} likelihood: E_q[log p(y | f)] is −∞ for every "
                             "Gaussian q; use EP or QP, or a different link, such as one with noise")  # fmt: skip

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        expected, by_mean, by_variance = likelihood.expected_log_prob(datum, Normal(marginal.mean, marginal.variance))
        tau = -2.0 * weight.total * by_variance
        new = Natural(weight.total * by_mean + tau * marginal.mean, tau)
        return Renewal(new, weight.total * expected, marginal.variance > 0)

    def evidence(self, values: Array, summary: Summary) -> Scalar:
        """ELBO = Σ E_q[log p] − KL(q ‖ prior); tr(K⁻¹Σ) = Σ b."""
        trace = jnp.sum(jnp.where(summary.weight > 0, summary.marginals.b - 1.0, 0.0))
        return jnp.sum(values) - quadratic(summary) - 0.5 * (summary.log_determinant + trace)
