"""The equations of Newton's method at one point of a path, in the scaled coordinates of the package's docstring."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.sites import moved
from quantprop.inference.continuation.paths import Path
from quantprop.inference.engine import Evaluation, InferenceProblem, conditioned, swept
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import renewal
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program


class Visit(NamedTuple):
    """A sweep at some sites on a path, and the equations of Newton's method there."""

    u: float
    at: Evaluation
    change: Float[np.ndarray, " 2n"]  # R(s) − s
    matrix: Float[np.ndarray, "2n 2n"]  # I − ∂R/∂s
    along: Float[np.ndarray, " 2n"]  # ∂R/∂u

    @property
    def usable(self) -> bool:
        """True if the posterior and all cavities are proper, and everything is finite."""
        finite = np.isfinite(self.matrix).all() and np.isfinite(self.along).all()
        return bool(self.at.proper) and int(self.at.improper_cavities) == 0 and bool(finite)

    @property
    def residual(self) -> float:
        return float(self.at.residual)

    def converged(self, tol: float) -> bool:
        return self.usable and self.residual <= tol


def visited(problem: InferenceProblem, path: Path, u: float, sites: Natural) -> Visit:
    return Visit(u, *to_numpy(_visited(problem, path, u, sites)))


@program
def _visited(
    problem: InferenceProblem, path: Path, u: Scalar, sites: Natural
) -> tuple[Evaluation, Array, Array, Array]:
    problem = path.at(problem, u)
    at, factor = swept(problem, sites)
    joint = problem.prior.joint(conditioned(at, factor), problem.negative_sites)
    around, site, along = _slopes(problem, path, at, path.surroundings(at, joint))
    sd = jnp.sqrt(at.marginals.variance)
    correlation = joint.covariance / (sd[:, None] * sd)
    own = jnp.eye(len(sd))
    others = (correlation - own, correlation**2 - own)
    slope = jnp.block([
        [around[:, i, j, None] * others[j] + jnp.diag(site[:, i, j]) for j in range(2)] for i in range(2)
    ])  # fmt: skip
    change = jnp.concatenate([sd * (at.change.nu - at.marginals.mean * at.change.tau), sd**2 * at.change.tau])
    return at, change, jnp.eye(2 * len(sd)) - slope, along.T.ravel()


def _slopes(
    problem: InferenceProblem, path: Path, at: Evaluation, answer: Float[Array, "2 n"]
) -> tuple[Array, Array, Array]:
    """Derivatives of every datum's renewed site (p, q) in its surroundings, its site, and u; 0 without weight."""

    here, sd = at.marginals, jnp.sqrt(at.marginals.variance)

    def rules(c, s, u):
        near, own = moved(here, at.sites, c[:, None] + u * answer, s[:, None])
        weight = path.weighted(problem.weight, u)
        new = jax.vmap(partial(renewal, problem.method, problem.likelihood))(problem.data, weight, near, own).site
        return jnp.stack([sd * (new.nu - here.mean * new.tau), sd**2 * new.tau], axis=1)

    slopes = jax.jacfwd(rules, argnums=(0, 1, 2))(jnp.zeros(2), jnp.zeros(2), jnp.zeros(()))
    counts = problem.weight.total > 0
    return jax.tree.map(lambda x: jnp.where(counts.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0.0), slopes)


def stepped(problem: InferenceProblem, here: Visit, step: Float[np.ndarray, " 2n"]) -> Natural:
    """Sites after a step; where the likelihood is log-concave, a τ below 0 becomes 0 with the same pull at the mean."""
    p, q = step.reshape(2, -1)
    marginals, sites = here.at.marginals, here.at.sites
    d_tau = q / marginals.variance
    tau = sites.tau + d_tau
    nu = sites.nu + p / np.sqrt(marginals.variance) + marginals.mean * d_tau
    if problem.negative_sites:
        return Natural(nu, tau)
    return Natural(np.where(tau < 0, nu - marginals.mean * tau, nu), np.maximum(tau, 0.0))


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution of linear equations, if there is one in double precision."""
    try:
        solution = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return solution if np.isfinite(solution).all() else None
