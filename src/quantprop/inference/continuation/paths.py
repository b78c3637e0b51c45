"""Families of problems along which a fixed point is followed, from an easy one to the one asked."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record, changed
from quantprop.inference.engine import Evaluation, InferenceProblem
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import Weight
from quantprop.priors.base import Joint


class Path(Record):
    """A family of problems in u = log t ≤ 0."""

    def exists(self, problem: InferenceProblem) -> bool:
        """Return whether the family is defined for this problem."""
        return True

    def at(self, problem: InferenceProblem, u: Scalar) -> InferenceProblem:
        """The problem at u; at 0 it is the given one."""
        raise NotImplementedError

    def weighted(self, weight: Weight, u: Scalar) -> Weight:
        """A datum's weight after a small move along u."""
        return weight

    def surroundings(self, at: Evaluation, joint: Joint) -> Float[Array, "2 n"]:
        """Response of the marginals to a move along u with fixed sites: δμ/σ and −δσ²/σ²."""
        return jnp.zeros((2, len(at.sites.nu)))

    def start(self, problem: InferenceProblem) -> float:
        """log t of a problem that plain sweeps solve."""
        raise NotImplementedError


class Narrow(Path):
    """The prior covariance times t: for small t every likelihood is Gaussian as far as the prior reaches."""

    def at(self, problem: InferenceProblem, u: Scalar) -> InferenceProblem:
        return changed(problem, prior=problem.prior.scaled(jnp.exp(u)))

    def surroundings(self, at: Evaluation, joint: Joint) -> Float[Array, "2 n"]:
        """δK = K δu: δμ = A K α δu = Σ α δu and δΣ = A K Aᵀ δu = Σ Aᵀ δu."""
        sd = jnp.sqrt(at.marginals.variance)
        widened = jnp.sum(joint.covariance * joint.transfer, axis=1)
        return jnp.stack([joint.covariance @ at.marginals.alpha / sd, -widened / sd**2])

    def start(self, problem: InferenceProblem) -> float:
        return float(np.log(1e-20 / max(1.0, float(np.max(problem.prior.variances())))))


class Flat(Path):
    """The likelihood to the power t: for small t it says next to nothing, and the posterior is the prior."""

    def exists(self, problem: InferenceProblem) -> bool:
        return not problem.likelihood.singular

    def at(self, problem: InferenceProblem, u: Scalar) -> InferenceProblem:
        return changed(problem, weight=self.weighted(problem.weight, u))

    def weighted(self, weight: Weight, u: Scalar) -> Weight:
        exponent = jnp.ones_like(weight.copies) if weight.exponent is None else weight.exponent
        return Weight(weight.total * jnp.exp(u), weight.copies, exponent * jnp.exp(u))

    def start(self, problem: InferenceProblem) -> float:
        return float(np.log(1e-10))
