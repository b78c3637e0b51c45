"""Where sweeps do not converge: Newton's method, and continuation from an easy problem to the one asked.

A fixed point of the sites that sweeps diverge from, or circle, is still a root of R(s) − s. Newton's method finds it
from nearby. From afar it is reached along a path: a family of problems with a parameter t in (0, 1], easy where t is
small and the problem itself at t = 1. The fixed points (s, t) form a curve, which is followed by its arc length and
not by t, so that it may turn back (Allgower and Georg 2003, Introduction to Numerical Continuation Methods,
chapter 6): a predictor step along the tangent, then Newton's method as the corrector. A curve ends short of t = 1 only
where a cavity or the posterior becomes improper, or where sites diverge.

Coordinates are the scaled ones of `implicit`: p = σ(δν − μ δτ), q = σ² δτ of each datum, stacked.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.gaussian import Natural
from quantprop.inference.engine import Evaluation, InferenceProblem, climb, conditioned, swept
from quantprop.likelihoods.base import Scalar
from quantprop.methods import EP, Laplace
from quantprop.methods.base import Weight, renewal
from quantprop.priors.base import Joint
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program
from quantprop.sites import moved

MOST_ROWS = 1024  # the equations are dense, 2n × 2n
NEWTON_STEPS = 20
FIRST_SWEEPS = 8  # at the easy end of a path
SHORTEST = 2.0**-6  # step of Newton's method
CORRECTIONS = 6
ON_THE_WAY = 1e-4  # residual of points on a path
MOST_VISITS = 2500  # of one path
MOST_INTEGRATED = 1000  # where a visit differentiates quadratures of tilted densities: a tenth of a second for 32 rows
MOST_WORK = 200_000  # visits times rows of one path: fewer visits where each takes long
GROWTH = (2.0, 2.0, 2.0, 1.3, 0.8, 0.8)  # of steps, by the corrections that the last one took
FIRST_STEP, LONGEST, SHORTEST_ON_PATH = 0.25, 1e4, 1e-7
STANDSTILL, BARELY = 15, 1e-2  # points on which log t moved less than this: the sites are diverging


# --- paths -----------------------------------------------------------------------------------------------------------


class Path(eqx.Module):
    """A family of problems in u = log t ≤ 0."""

    def exists(self, problem: InferenceProblem) -> bool:
        """Whether the family is defined for this problem."""
        return True

    def at(self, problem: InferenceProblem, u: Scalar) -> InferenceProblem:
        """The problem at u; at 0 it is the given one."""
        raise NotImplementedError

    def weighted(self, weight: Weight, u: Scalar) -> Weight:
        """A datum's weight after a small move along u."""
        return weight

    def surroundings(self, at: Evaluation, joint: Joint) -> Float[Array, "2 n"]:
        """How the marginals respond to a move along u with the sites held fixed: δμ/σ and −δσ²/σ²."""
        return jnp.zeros((2, len(at.sites.nu)))

    def start(self, problem: InferenceProblem) -> float:
        """log t of a problem that plain sweeps solve."""
        raise NotImplementedError


class Narrow(Path):
    """The prior covariance times t: for small t every likelihood is Gaussian as far as the prior reaches."""

    def at(self, problem: InferenceProblem, u: Scalar) -> InferenceProblem:
        return eqx.tree_at(lambda p: p.prior, problem, problem.prior.scaled(jnp.exp(u)))

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
        weight = self.weighted(problem.weight, u)
        return eqx.tree_at(lambda p: p.weight, problem, weight, is_leaf=lambda x: x is None)

    def weighted(self, weight: Weight, u: Scalar) -> Weight:
        exponent = jnp.ones_like(weight.copies) if weight.exponent is None else weight.exponent
        return Weight(weight.total * jnp.exp(u), weight.copies, exponent * jnp.exp(u))

    def start(self, problem: InferenceProblem) -> float:
        return float(np.log(1e-10))


# --- one point -------------------------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """A sweep at some sites on a path, and the equations of Newton's method there."""

    u: float
    at: Evaluation
    change: Float[np.ndarray, " 2n"]  # R(s) − s
    matrix: Float[np.ndarray, "2n 2n"]  # I − ∂R/∂s
    along: Float[np.ndarray, " 2n"]  # ∂R/∂u

    @property
    def usable(self) -> bool:
        """Whether the posterior and all cavities are proper, and everything is finite."""
        finite = np.isfinite(self.matrix).all() and np.isfinite(self.along).all()
        return bool(self.at.proper) and int(self.at.improper_cavities) == 0 and bool(finite)

    @property
    def residual(self) -> float:
        """How far the sites are from convergence."""
        return float(self.at.residual)

    def converged(self, tol: float) -> bool:
        """Whether the sites have converged."""
        return self.usable and self.residual <= tol


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


def _stepped(problem: InferenceProblem, here: Visit, step: Float[np.ndarray, " 2n"]) -> Natural:
    """Sites after a step; where the likelihood is log-concave, a τ below 0 becomes 0 with the same pull at the mean."""
    p, q = step.reshape(2, -1)
    marginals, sites = here.at.marginals, here.at.sites
    d_tau = q / marginals.variance
    tau = sites.tau + d_tau
    nu = sites.nu + p / np.sqrt(marginals.variance) + marginals.mean * d_tau
    if problem.negative_sites:
        return Natural(nu, tau)
    return Natural(np.where(tau < 0, nu - marginals.mean * tau, nu), np.maximum(tau, 0.0))


# --- Newton's method, and along a path -------------------------------------------------------------------------------


class Follower:
    """Newton's method and path following for one problem; `visits` counts the sweeps they took."""

    def __init__(self, problem: InferenceProblem, path: Path) -> None:
        self.problem, self.path, self.visits = problem, path, 0
        counts = np.asarray(problem.weight.total) > 0
        self.scale = 1.0 / (2.0 * counts.sum())  # of squared lengths in the scaled coordinates

    def visit(self, u: float, sites: Natural) -> Visit:
        self.visits += 1
        return Visit(u, *to_numpy(_visited(self.problem, self.path, u, sites)))

    def newton(self, here: Visit, tol: float) -> Visit:
        """Newton's method with backtracking until R(s) − s shrinks; ends with a residual up to `tol`, or stalled."""
        for _ in range(NEWTON_STEPS):
            if not here.usable or here.residual <= tol:
                break
            after = self._backtracked(here)
            if after is None:
                break
            here = after
        return here

    def _backtracked(self, here: Visit) -> Visit | None:
        """Newton's step, halved until R(s) − s has shrunk enough; None where no step is short enough."""
        step, size = _solved(here.matrix, here.change), 1.0
        while step is not None and size >= SHORTEST:
            after = self.visit(here.u, _stepped(self.problem, here, size * step))
            if after.usable and self._distance(after, here) < (1.0 - 0.1 * size) * self._distance(here, here):
                return after
            size *= 0.5
        return None

    def _distance(self, here: Visit, base: Visit) -> float:
        """The root mean square of R(s) − s over rows, whatever their weights, in the coordinates of `base`.

        Newton's steps shrink it if they are short enough; in coordinates of its own a point with wider marginals may
        look farther away.
        """
        d_nu, d_tau, at = here.at.change.nu, here.at.change.tau, base.at.marginals
        squares = (at.variance * d_tau) ** 2 + at.variance * (d_nu - at.mean * d_tau) ** 2
        return float(np.sqrt(self.scale * squares.sum()))

    def _near(self, here: Visit) -> bool:
        """Whether a point lies on the curve, as exactly as a path needs it."""
        return here.usable and self._distance(here, here) <= ON_THE_WAY

    def follow(self) -> Visit | None:
        """The end of the path, near its fixed point; or None where the path could not be followed to it."""
        here = self._started()
        tangent, before, size = None, None, FIRST_STEP
        seen: list[float] = []
        most = self._most_visits()
        while self.visits < most and self._near(here):
            seen.append(here.u)
            tangent = self._tangent(here, before, tangent)
            if tangent is None or (len(seen) > STANDSTILL and np.ptp(seen[-STANDSTILL:]) < BARELY):
                return None
            after, size = self._next(here, tangent, size)
            if after is None or after.u < seen[0] - 1.0:
                return None
            if after.u == 0.0:
                return after
            before, here = here, after
        return None

    def _most_visits(self) -> int:
        likelihood, method, weight = self.problem.likelihood, self.problem.method, self.problem.weight
        integrated = isinstance(method, EP) and not method.quick(likelihood, weight)
        return min(MOST_INTEGRATED if integrated else MOST_VISITS, MOST_WORK // len(weight.total))

    def _started(self) -> Visit:
        """Plain sweeps at the easy end of the path."""
        n = len(self.problem.weight.total)
        here = self.visit(self.path.start(self.problem), Natural(np.zeros(n), np.zeros(n)))
        for _ in range(FIRST_SWEEPS):
            if not here.usable or self._near(here):
                break
            here = self.visit(here.u, jax.tree.map(np.add, here.at.sites, here.at.change))
        return here

    def _tangent(self, here: Visit, before: Visit | None, old: np.ndarray | None) -> np.ndarray | None:
        """The curve's unit tangent (δs, δu), forwards: the side on which the old one lies."""
        if before is None or old is None:
            step = _solved(here.matrix, here.along)
            tangent = None if step is None else np.append(step, 1.0)
        else:
            right = np.append(np.zeros_like(here.change), 1.0)
            tangent = _solved(self._bordered(here, before, old), right)
        if tangent is None:
            return None
        return tangent / np.sqrt(self.scale * tangent[:-1] @ tangent[:-1] + tangent[-1] ** 2)

    def _bordered(self, here: Visit, base: Visit, tangent: np.ndarray) -> np.ndarray:
        """Newton's matrix on the path, bordered by the direction along it, in the coordinates of `here`."""
        p, q = tangent[:-1].reshape(2, -1)
        b, c = base.at.marginals, here.at.marginals
        # A step (p, q) here is one of (p σ_b/σ + q σ_b(μ − μ_b)/σ², q σ_b²/σ²) there.
        by_p = p * np.sqrt(b.variance / c.variance)
        by_q = p * np.sqrt(b.variance) * (c.mean - b.mean) / c.variance + q * b.variance / c.variance
        row = self.scale * np.concatenate([by_p, by_q])
        return np.block([[here.matrix, -here.along[:, None]], [row[None], np.array([[tangent[-1]]])]])

    def _next(self, here: Visit, tangent: np.ndarray, size: float) -> tuple[Visit | None, float]:
        """The next point, and the size of the step after it: as long as corrections stay few."""
        while size > SHORTEST_ON_PATH:
            last = here.u + size * tangent[-1] >= 0.0
            step = -here.u / tangent[-1] if last else size
            after, corrections = self._corrected(here, tangent, step, last)
            if after is not None:
                return after, min(size * GROWTH[corrections], LONGEST)
            size *= 0.5
        return None, size

    def _corrected(self, base: Visit, tangent: np.ndarray, step: float, last: bool) -> tuple[Visit | None, int]:
        """From a step along the tangent back to the curve, across it; at the end of the path with u held at 0."""
        ahead = 0.0 if last else base.u + step * tangent[-1]
        u, sites, distance = ahead, _stepped(self.problem, base, step * tangent[:-1]), np.inf
        for corrections in range(CORRECTIONS):
            here = self.visit(u, sites)
            if self._near(here):
                return here, corrections
            before, distance = distance, self._distance(here, here)
            if not here.usable or (distance > 0.7 * before and distance > 10.0 * ON_THE_WAY):
                break
            matrix = here.matrix if last else self._bordered(here, base, tangent)
            move = _solved(matrix, here.change if last else np.append(here.change, 0.0))
            if move is None:
                break
            u, sites = u if last else u + move[-1], _stepped(self.problem, here, move[: len(here.change)])
            if u > 0.0 or abs(u - ahead) > 0.5 * step:  # beyond the end, or onto another part of the curve
                break
        return None, CORRECTIONS


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution of linear equations, if there is one in double precision."""
    try:
        solution = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return solution if np.isfinite(solution).all() else None


@np.errstate(over="ignore", invalid="ignore")  # of points that are tried and found unusable
def continued(problem: InferenceProblem, sites: Natural, tol: float) -> tuple[Evaluation | None, int]:
    """A fixed point by Newton's method from these sites, else from the end of a path; and how many sweeps it took."""
    if isinstance(problem.method, Laplace) and problem.negative_sites:  # modes have no paths between them
        mode, visits = climb(problem, sites, tol)
        return (mode if mode.residual <= tol else None), visits
    if len(sites.nu) > MOST_ROWS:
        return None, 0
    direct = Follower(problem, Narrow())
    end, visits = direct.newton(direct.visit(0.0, sites), tol), 0
    for path in (Flat(), Narrow()) if problem.negative_sites else (Narrow(), Flat()):
        if end.converged(tol):
            break
        if not path.exists(problem):
            continue
        search = Follower(problem, path)
        reached = search.follow()
        visits += search.visits
        if reached is not None:
            end = direct.newton(direct.visit(0.0, reached.at.sites), tol)
    return (end.at if end.converged(tol) else None), visits + direct.visits


@np.errstate(over="ignore", invalid="ignore")
def by_newton(problem: InferenceProblem, sites: Natural, tol: float) -> tuple[Evaluation | None, int]:
    """A fixed point by Newton's method from these sites alone, which are taken to be near it."""
    if len(sites.nu) > MOST_ROWS:
        return None, 0
    direct = Follower(problem, Narrow())
    end = direct.newton(direct.visit(0.0, sites), tol)
    return (end.at if end.converged(tol) else None), direct.visits
