"""Learning under constraints on the shape of f: signs of derivatives at virtual rows (Riihimäki and Vehtari 2010).

A virtual row has a derivative as its latent value and a threshold as its likelihood: it is positive, or negative. Rows
are added where the posterior probability of the wrong sign is largest. Hyperparameters maximise log Z(y, c) − log Z(c),
the evidence of the data given the constraint, since log Z(y, c) alone changes with every virtual row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import box, is_parameter, labels, packed
from quantprop.core.records import changed
from quantprop.inference.inferring import infer
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.shaped import ShapedSolution, as_shaped
from quantprop.inference.solution import Solution
from quantprop.inference.task import Task, prepare
from quantprop.kernels import Derivatives, Difference
from quantprop.kernels.combinations import halves
from quantprop.kernels.derivatives import SHAPES
from quantprop.learning.evaluation import Declared
from quantprop.learning.fitting import MAX_EVALUATIONS, fitted_at, learn
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.search import FTOL
from quantprop.likelihoods import ByOutput
from quantprop.likelihoods.binary import Sign
from quantprop.means import OfValues
from quantprop.model import Model

TOLERANCE = 0.16  # largest probability of a wrong sign: Φ(−1), of slopes that the data push against 0 (exponential)
MAX_ROWS = 32  # virtual rows of one constraint
ROWS_PER_ROUND = 4
MIN_DISTANCE = 0.02  # between virtual rows, in ranges of the columns
MAX_SEARCHES = 3
GRID, LEVELS, BASES = 128, 16, 64  # candidates: of one column; of others, levels of the column at this many rows


class Shape(NamedTuple):
    """The sign of a derivative of f in one column: order 1 for monotone, 2 for convex or concave functions."""

    column: int
    order: int
    sign: float

    @property
    def name(self) -> str:
        """As users write it."""
        return next(name for name, shape in SHAPES.items() if shape == self[1:])


class Constraint(NamedTuple):
    """Shapes, their virtual rows with codes of derivatives, and the signs of these; the largest probability of a wrong
    sign left on the candidates, which span the data.
    """

    shapes: tuple[Shape, ...]
    X: Float[np.ndarray, "m d+1"]
    sign: Float[np.ndarray, " m"]
    wrong: float = 1.0

    @classmethod
    def of(cls, shapes: tuple[Shape, ...], solution: Solution, wrong: float = 1.0) -> Constraint:
        """The virtual rows behind a solution."""
        if not isinstance(solution, ShapedSolution):
            return cls(shapes, np.zeros((0, solution.X.shape[1] + 1)), np.zeros(0), wrong)
        virtual = solution.whole.X[:, -1] != 0
        return cls(shapes, solution.whole.X[virtual], solution.whole.data.y[virtual, 0], wrong)

    @property
    def kept(self) -> bool:
        """True if no probability of a wrong sign exceeds the tolerance."""
        return self.wrong <= TOLERANCE


@dataclass
class ShapedLandscape(Landscape):
    """log Z(y, c) − log Z(c), with the log prior densities of the hyperparameters."""

    constraint: Landscape | None = None  # of the virtual rows alone, without priors of hyperparameters

    def _from(self, theta: Any, start: Natural, tol: float, *stages: Any) -> Point:
        point = super()._from(theta, start, tol, *stages)
        if not point.usable or self.constraint is None:
            return point
        alone = self.constraint.at(theta, tol)
        if not alone.usable:
            return point._replace(reason=alone.reason, value=np.nan)
        return point._replace(value=point.value - alone.value, gradient=point.gradient - alone.gradient)


def shaped(landscape: Landscape, fitted: Fitted, shapes: tuple[Shape, ...], learns: bool) -> tuple[Fitted, Constraint]:
    """The result and virtual rows under constraints, from a free fit to the same rows, which is returned if it
    obeys them.

    Otherwise learning starts from the starting values of the kernel, at which the first virtual rows are placed.
    """
    none, free, rounds = Constraint.of(shapes, fitted.solution), fitted.solution.sites, 1 if learns else MAX_ROWS
    constraint, sites = _placed(fitted.model, landscape, none, free, rounds)
    if not len(constraint.sign):
        return fitted, constraint
    model, start = fitted.model, packed(landscape.parts)
    if learns:
        model = landscape.model
        first, its_sites = _placed(model, landscape, none, free)
        constraint, sites = (first, its_sites) if len(first.sign) else (constraint, sites)
    for _ in range(MAX_SEARCHES if learns else 0):
        both, before = constrained(landscape, constraint, model), len(constraint.sign)
        both.warmed(packed(both.parts), sites)
        bounds = _bounds(both.parts, _items(landscape)[0])
        learned = learn(both, [np.clip(start, *bounds.T)], bounds, MAX_EVALUATIONS, FTOL)
        fitted, start = as_shaped(learned, 0.0), learned.theta
        model = fitted.model
        constraint, sites = _placed(model, landscape, constraint, learned.solution.sites)
        if len(constraint.sign) == before:
            break
    both = constrained(landscape, constraint, model)
    both.warmed(packed(both.parts), sites)
    names = dict(zip(labels(both.parts), labels(landscape.parts), strict=True))
    ending = replace(fitted.status, at_bounds=tuple(names.get(name, name) for name in fitted.status.at_bounds))
    return fitted_under(both, both.at(packed(both.parts)), fitted.trace, ending), constraint


def fitted_under(landscape: ShapedLandscape, point: Point, trace: tuple[Step, ...], ending: Ending) -> Fitted:
    """The result at a point of a landscape, in terms of f."""
    signs: Any = landscape.constraint
    return as_shaped(fitted_at(landscape, point, trace, ending), float(signs.at(point.theta).value))


def _bounds(parts: Declared, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "theta 2"]:
    """The box of θ; lengthscales of a single column are at least its range/16, since functions that vary within the
    distances of virtual rows evade them, and may have the larger evidence.
    """
    bounds, floor = box(parts), np.log(2.0 * np.ptp(x[:, 0]) / MAX_ROWS)
    own = np.array(["lengthscale" in label for label in labels(parts)]) & (x.shape[1] == 1)
    bounds[own, 0] = np.clip(floor, bounds[own, 0], bounds[own, 1])
    return bounds


def constrained(landscape: Landscape, constraint: Constraint, values: Model | None = None) -> ShapedLandscape:
    """The landscape of the same rows under a constraint, of its own model or one at other values."""
    model = with_derivatives(values or landscape.model, constraint.shapes)
    settings = landscape.method, landscape.objective, True, landscape.tol, landscape.max_sweeps
    signs = np.column_stack([constraint.sign, np.ones(len(constraint.sign))])
    whole = ShapedLandscape(model, _task(model, landscape, constraint), *settings)
    alone = Landscape(model, prepare(model, constraint.X, signs, landscape.method), *settings,
                      known_parts=_without_priors(whole.parts))  # fmt: skip
    return replace(whole, constraint=alone)


def with_derivatives(model: Model, shapes: tuple[Shape, ...]) -> Any:
    """The model whose rows may be derivatives, with signs as a second output."""
    order, columns = max(shape.order for shape in shapes), tuple(sorted({shape.column for shape in shapes}))
    return Model(
        Derivatives(model.kernel, order, columns), ByOutput((model.likelihood, Sign())), OfValues(model.mean),
        model.process,
    )  # fmt: skip


def _task(model: Model, landscape: Landscape, constraint: Constraint) -> Task:
    """The rows of data and constraint together."""
    task, n, m = landscape.task, len(landscape.task.x), len(constraint.sign)
    X = np.concatenate([Derivatives.rows(task.x), constraint.X])
    y = np.column_stack([np.append(task.data.y[:n], constraint.sign), np.repeat([0.0, 1.0], [n, m])])
    rows = {"weights": task.weight.total, "exposure": task.data.exposure, "trials": task.data.trials}
    used = {"weights", *model.likelihood.scaled_by}
    more = {name: np.append(np.asarray(own)[:n], np.ones(m)) for name, own in rows.items() if name in used}
    return prepare(model, X, y, landscape.method, **more)


def _without_priors(parts: Declared) -> Declared:
    return jax.tree.map(lambda p: changed(p, prior=None) if is_parameter(p) else p, parts, is_leaf=is_parameter)


def _placed(
    model: Model, landscape: Landscape, constraint: Constraint, sites: Natural, rounds: int = MAX_ROWS
) -> tuple[Constraint, Natural]:
    """Virtual rows added at fixed hyperparameters until the tolerance or their limit is reached, and all sites."""
    first, model = len(constraint.sign), with_derivatives(model, constraint.shapes)
    x, per_row = _items(landscape)
    reach = np.tile(np.ptp(x, axis=0), per_row)
    candidates = {shape: np.tile(_candidates(x, shape.column), per_row) for shape in constraint.shapes}
    while True:
        task = _task(model, landscape, constraint)
        n = len(task.x)
        rows = {name: getattr(task.data, name)[:n] for name in model.likelihood.scaled_by}
        sites = Natural(*(np.pad(part, (0, n - len(part))) for part in (sites.nu, sites.tau)))
        solution = ShapedSolution.of(infer(
            model, task.x, task.data.y[:n], landscape.method, tol=landscape.tol, sites=sites,
            weights=task.weight.total[:n], **rows,
        ), 0.0)  # fmt: skip
        sites, new, wrong = solution.whole.sites, [], 0.0
        for shape, some in candidates.items():
            f = solution.derivative(some, shape.column, shape.order)
            p = ndtr(-shape.sign * f.mean / np.sqrt(f.variance))
            wrong = max(wrong, float(p.max()))
            code = Derivatives.rows(some[:1], shape.column, shape.order)[0, -1]
            known = constraint.X[constraint.X[:, -1] == code, :-1]
            most = min(ROWS_PER_ROUND, MAX_ROWS - len(known))
            new += [(row, code, shape.sign) for row in some[_worst(p, some, known, reach, most)]]
        constraint = constraint._replace(wrong=wrong)
        if not new or not solution.converged or len(constraint.sign) - first >= rounds:
            return constraint, sites
        added = np.array([[*row, code] for row, code, _ in new])
        constraint = constraint._replace(
            X=np.concatenate([constraint.X, added]), sign=np.append(constraint.sign, [sign for *_, sign in new])
        )


def _worst(p: np.ndarray, candidates: np.ndarray, known: np.ndarray, reach: np.ndarray, most: int) -> list[int]:
    """Candidates with the largest probabilities above the tolerance, at a distance from each other and the known."""
    found: list[int] = []
    near = [_near(candidates, row, reach) for row in known]
    p = np.where(np.any(near, axis=0), 0.0, p) if near else np.array(p)
    while len(found) < most and p.max() > TOLERANCE:
        found.append(int(np.argmax(p)))
        p[_near(candidates, candidates[found[-1]], reach)] = 0.0
    return found


def _near(x: np.ndarray, row: np.ndarray, reach: np.ndarray) -> np.ndarray:
    return np.max(np.abs(x - row) / np.maximum(reach, 1e-300), axis=1) < MIN_DISTANCE


def _items(landscape: Landscape) -> tuple[Float[np.ndarray, "k d"], int]:
    """The inputs of f in the data, and their number in each row: 2 in comparisons of items."""
    x = landscape.task.x
    return (np.concatenate(halves(x)), 2) if isinstance(landscape.model.kernel, Difference) else (x, 1)


def _candidates(x: Float[np.ndarray, "n d"], column: int) -> Float[np.ndarray, "k d"]:
    """Inputs over the range of one column: a grid, or levels of the column at rows of the data."""
    low, high = x[:, column].min(), x[:, column].max()
    if x.shape[1] == 1:
        return np.linspace(low, high, GRID)[:, None]
    some = x[np.random.default_rng(0).permutation(len(x))[:BASES]]
    levels = np.linspace(low, high, LEVELS)
    found = np.repeat(some, LEVELS, axis=0)
    found[:, column] = np.tile(levels, len(some))
    return np.concatenate([found, x])
