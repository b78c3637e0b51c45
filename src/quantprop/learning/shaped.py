"""Learning under constraints on the shape of f: signs of derivatives at virtual rows (Riihimäki and Vehtari 2010).

A virtual row has a derivative as its latent value and a threshold as its likelihood: it is positive, or negative.
Hyperparameters maximise log Z(y, c) − log Z(c), the evidence of the data given signs at a design that is the same for
all of them: given signs at few rows, chosen under long lengthscales, short ones would seem to break the constraint.
The posterior itself has as few rows as the constraint needs, each where the probability of a wrong sign is largest:
signs that add nothing narrow it, and tilt f where it is flat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import box, declared, is_parameter, labels
from quantprop.core.records import changed
from quantprop.inference.inferring import infer
from quantprop.inference.results import Fitted
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

TOLERANCE = 0.45  # largest probability of a wrong sign: below ½ the mean has the right one
MAX_ROWS = 32  # virtual rows of one constraint
MIN_DISTANCE = 0.02  # between virtual rows, in ranges of the columns
DESIGN = 16  # virtual rows of one constraint under which hyperparameters are learned; of several columns twice as many
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
    """
    none = Constraint.of(shapes, fitted.solution)
    free = _inferred(fitted.model, landscape, none, fitted.solution.sites)
    _, none = _worst(free, landscape, none)
    if none.kept:
        return fitted, none
    objective = given_design(landscape, shapes)
    if learns:
        bounds = _bounds(objective.parts, _items(landscape)[0])
        learned = learn(objective, [np.clip(fitted.theta, *bounds.T)], bounds, MAX_EVALUATIONS, FTOL)
    else:
        learned = fitted_at(objective, objective.from_cold(fitted.theta), (), fitted.status)
    whole, constraint = _placed(as_shaped(learned, 0.0).model, landscape, none, fitted.solution.sites)
    return _given(learned, landscape, constraint, whole), constraint


def conditioned(learned: Fitted, landscape: Landscape, constraint: Constraint) -> Fitted:
    """A result that was learned given the signs of a design, in terms of f given those of a constraint."""
    whole = _inferred(as_shaped(learned, 0.0).model, landscape, constraint, None)
    return _given(learned, landscape, constraint, whole)


def _given(learned: Fitted, landscape: Landscape, constraint: Constraint, whole: Solution) -> Fitted:
    """The same, with the posterior at the rows of data and constraint."""
    model, signs = learned.model, np.column_stack([constraint.sign, np.ones(len(constraint.sign))])
    alone = infer(model, constraint.X, signs, landscape.method, tol=landscape.tol)
    names = dict(zip(labels(declared(model)), labels(declared(as_shaped(learned, 0.0).model)), strict=True))
    ending = replace(learned.status, at_bounds=tuple(names.get(name, name) for name in learned.status.at_bounds))
    return as_shaped(replace(learned, model=whole.model, solution=whole, status=ending), alone.log_evidence)


def _bounds(parts: Declared, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "theta 2"]:
    """The box of θ; lengthscales of a single column are at least its range/16, since functions that vary within the
    distances of virtual rows evade them, and may have the larger evidence.
    """
    bounds, floor = box(parts), np.log(np.ptp(x[:, 0]) / DESIGN)
    own = np.array(["lengthscale" in label for label in labels(parts)]) & (x.shape[1] == 1)
    bounds[own, 0] = np.clip(floor, bounds[own, 0], bounds[own, 1])
    return bounds


def constrained(landscape: Landscape, constraint: Constraint) -> ShapedLandscape:
    """The landscape of the same rows under a constraint."""
    model = with_derivatives(landscape.model, constraint.shapes)
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


def _inferred(model: Model, landscape: Landscape, constraint: Constraint, sites: Natural | None) -> Solution:
    """The posterior at the rows of data and constraint, from sites of the first rows if there are any."""
    model = with_derivatives(model, constraint.shapes)
    task = _task(model, landscape, constraint)
    n = len(task.x)
    rows = {name: getattr(task.data, name)[:n] for name in model.likelihood.scaled_by}
    start = sites and Natural(*(np.pad(part, (0, n - len(part))) for part in (sites.nu, sites.tau)))
    return infer(model, task.x, task.data.y[:n], landscape.method, tol=landscape.tol, sites=start,
                 weights=task.weight.total[:n], **rows)  # fmt: skip


def _placed(model: Model, landscape: Landscape, constraint: Constraint, sites: Natural) -> tuple[Solution, Constraint]:
    """Virtual rows added one by one at fixed hyperparameters until the tolerance or their limit is reached, and the
    posterior given them.
    """
    while True:
        whole = _inferred(model, landscape, constraint, sites)
        worst, constraint = _worst(whole, landscape, constraint)
        if not whole.converged or worst is None or (constraint.kept and len(constraint.sign)):
            return whole, constraint
        sites, (row, sign) = whole.sites, worst
        constraint = constraint._replace(X=np.vstack([constraint.X, row]), sign=np.append(constraint.sign, sign))


def _worst(whole: Solution, landscape: Landscape, constraint: Constraint) -> tuple[Any, Constraint]:
    """The row with the largest probability of a wrong sign, at a distance from others of its kind, and this sign; None
    if all constraints have as many rows as they may. And the constraint with the largest probability of all candidates.
    """
    x, per_row = _items(landscape)
    solution, reach, found = ShapedSolution.of(whole, 0.0), np.tile(np.ptp(x, axis=0), per_row), []
    for shape in constraint.shapes:
        some = np.tile(_candidates(x, shape.column), per_row)
        rows = Derivatives.rows(some, shape.column, shape.order)
        f = solution.derivative(some, shape.column, shape.order)
        p = ndtr(-shape.sign * f.mean / np.sqrt(f.variance))
        known = constraint.X[constraint.X[:, -1] == rows[0, -1], :-1]
        near = [np.max(np.abs(some - row) / np.maximum(reach, 1e-300), axis=1) < MIN_DISTANCE for row in known]
        apart = np.where(np.any(near, axis=0), -1.0, p) if near else p
        i = int(np.argmax(apart))
        found.append((float(p.max()), apart[i] if len(known) < MAX_ROWS else -1.0, (rows[i], shape.sign)))
    _, apart, worst = max(found, key=lambda one: one[1])
    return worst if apart >= 0.0 else None, constraint._replace(wrong=max(p for p, *_ in found))


def _items(landscape: Landscape) -> tuple[Float[np.ndarray, "k d"], int]:
    """The inputs of f in the data, and their number in each row: 2 in comparisons of items."""
    x = landscape.task.x
    return (np.concatenate(halves(x)), 2) if isinstance(landscape.model.kernel, Difference) else (x, 1)


def given_design(landscape: Landscape, shapes: tuple[Shape, ...]) -> ShapedLandscape:
    """The objective under which hyperparameters are learned: signs at levels of a column across its range."""
    x, per_row = _items(landscape)
    rows, signs = [], []
    for shape in shapes:
        some = _candidates(x, shape.column)
        if x.shape[1] == 1:
            chosen = np.linspace(0, GRID - 1, DESIGN).astype(int)
        else:
            base = np.arange(min(len(x), BASES, 2 * DESIGN))
            chosen = base * LEVELS + 7 * base % LEVELS
        rows.append(Derivatives.rows(np.tile(some[chosen], per_row), shape.column, shape.order))
        signs.append(np.full(len(chosen), shape.sign))
    return constrained(landscape, Constraint(shapes, np.concatenate(rows), np.concatenate(signs)))


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
