"""The message of rows about the values at the inducing points: a Gaussian factor, the prior of further rows.

The sites of rows act on u = L v only through exp(hᵀv − ½ vᵀΛv) with Λ = V diag(s) Vᵀ and h = V r. As a function of u
this *message* holds for every kernel, so that the posterior of these rows is the prior of the next: with B₀ = I + Λ,

    p(v) exp(hᵀv − ½ vᵀΛv) = e^mass · N(v | c₀, B₀⁻¹), c₀ = B₀⁻¹h, mass = ½ hᵀc₀ − ½ log |B₀| + a constant.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from quantprop.core.records import Record


class Belief(Record):
    """e^mass · N(v | centre, precision⁻¹): what is known of v before the rows of a prior."""

    precision: Float[Array, "m m"]
    centre: Float[Array, " m"]
    mass: Float[Array, ""]

    def log_determinant(self) -> Float[Array, ""]:
        """log |B₀|, NaN where it is not positive definite."""
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(self.precision))))


class Message(Record):
    """exp(constant + hᵀv − ½ vᵀΛv) with v = L⁻¹u, where L is that of the kernel under which the sites were found.

    In v numbers stay of a size: Λ of u itself would be divided by the smallest eigenvalues of K_uu.
    """

    precision: Float[Array, "m m"]  # Λ
    linear: Float[Array, " m"]  # h
    lower: Float[Array, "m m"]  # L
    constant: Float[Array, ""]

    def belief(self, lower: Float[Array, "m m"]) -> Belief:
        """About v under a kernel by which the values at the points are `lower` v."""
        turn = solve_triangular(jnp.asarray(self.lower), lower, lower=True)  # from its v to the message's
        precision, linear = jnp.eye(len(lower)) + turn.T @ self.precision @ turn, turn.T @ self.linear
        precision = 0.5 * (precision + precision.T)
        factor = jnp.linalg.cholesky(precision)
        centre = cho_solve((factor, True), linear)
        mass = self.constant + 0.5 * linear @ centre - jnp.sum(jnp.log(jnp.diagonal(factor)))
        return Belief(precision, centre, mass)


def message_of(
    precision: Float[Array, "m m"], centre: Float[Array, " m"], lower: Float[Array, "m m"], log_evidence: Array | float
) -> Message:
    """The message of all rows so far, from q(v) = N(centre, precision⁻¹) and their log evidence under this prior."""
    size = jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision))))
    linear = precision @ centre
    constant = log_evidence + size - 0.5 * linear @ centre
    return Message(precision - jnp.eye(len(precision)), linear, lower, constant)
