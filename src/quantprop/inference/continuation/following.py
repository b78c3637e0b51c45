"""Newton's method from nearby sites, and along a path from afar: `continued`."""

from __future__ import annotations

import jax
import numpy as np

from quantprop.core.gaussian import Natural
from quantprop.inference.continuation.equations import Visit, solved, stepped, visited
from quantprop.inference.continuation.paths import Flat, Narrow, Path
from quantprop.inference.engine import Evaluation, InferenceProblem, climb
from quantprop.methods import EP, Laplace

MAX_ROWS = 1024  # the equations are dense, 2n × 2n
NEWTON_STEPS = 20
FIRST_SWEEPS = 8  # at the easy end of a path
SHORTEST = 2.0**-6  # step of Newton's method
CORRECTIONS = 6
PATH_TOLERANCE = 1e-4  # residual at intermediate points of a path
MAX_VISITS = 2500  # per path
MAX_INTEGRATED_VISITS = 1000  # if a visit differentiates quadratures: 0.1 s for 32 rows
MAX_WORK = 200_000  # visits × rows per path
STEP_GROWTH = (2.0, 2.0, 2.0, 1.3, 0.8, 0.8)  # indexed by the number of corrections of the last step
FIRST_STEP, LONGEST, SHORTEST_ON_PATH = 0.25, 1e4, 1e-7
STANDSTILL, BARELY = 15, 1e-2  # points on which log t moved less than this: the sites are diverging


class Follower:
    """Newton's method and path following for one problem; `visits` counts the sweeps they took."""

    def __init__(self, problem: InferenceProblem, path: Path) -> None:
        self.problem, self.path, self.visits = problem, path, 0
        counts = np.asarray(problem.weight.total) > 0
        self.scale = 1.0 / (2.0 * counts.sum())  # of squared lengths in the scaled coordinates

    def visit(self, u: float, sites: Natural) -> Visit:
        self.visits += 1
        return visited(self.problem, self.path, u, sites)

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
        step, size = solved(here.matrix, here.change), 1.0
        while step is not None and size >= SHORTEST:
            after = self.visit(here.u, stepped(self.problem, here, size * step))
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
        """Return whether a point lies on the curve, as exactly as a path needs it."""
        return here.usable and self._distance(here, here) <= PATH_TOLERANCE

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
        return min(MAX_INTEGRATED_VISITS if integrated else MAX_VISITS, MAX_WORK // len(weight.total))

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
            step = solved(here.matrix, here.along)
            tangent = None if step is None else np.append(step, 1.0)
        else:
            right = np.append(np.zeros_like(here.change), 1.0)
            tangent = solved(self._bordered(here, before, old), right)
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
                return after, min(size * STEP_GROWTH[corrections], LONGEST)
            size *= 0.5
        return None, size

    def _corrected(self, base: Visit, tangent: np.ndarray, step: float, last: bool) -> tuple[Visit | None, int]:
        """From a step along the tangent back to the curve, across it; at the end of the path with u held at 0."""
        ahead = 0.0 if last else base.u + step * tangent[-1]
        u, sites, distance = ahead, stepped(self.problem, base, step * tangent[:-1]), np.inf
        for corrections in range(CORRECTIONS):
            here = self.visit(u, sites)
            if self._near(here):
                return here, corrections
            before, distance = distance, self._distance(here, here)
            if not here.usable or (distance > 0.7 * before and distance > 10.0 * PATH_TOLERANCE):
                break
            matrix = here.matrix if last else self._bordered(here, base, tangent)
            move = solved(matrix, here.change if last else np.append(here.change, 0.0))
            if move is None:
                break
            u, sites = u if last else u + move[-1], stepped(self.problem, here, move[: len(here.change)])
            if u > 0.0 or abs(u - ahead) > 0.5 * step:  # beyond the end, or onto another part of the curve
                break
        return None, CORRECTIONS


@np.errstate(over="ignore", invalid="ignore")  # of points that are tried and found unusable
def continued(problem: InferenceProblem, sites: Natural, tol: float) -> tuple[Evaluation | None, int]:
    """A fixed point by Newton's method from these sites or from the end of a path, and the number of sweeps."""
    if isinstance(problem.method, Laplace) and problem.negative_sites:  # modes have no paths between them
        mode, visits = climb(problem, sites, tol)
        return (mode if mode.residual <= tol else None), visits
    if len(sites.nu) > MAX_ROWS:
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
    if len(sites.nu) > MAX_ROWS:
        return None, 0
    direct = Follower(problem, Narrow())
    end = direct.newton(direct.visit(0.0, sites), tol)
    return (end.at if end.converged(tol) else None), direct.visits
