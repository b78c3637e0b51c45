"""What both estimators share: a kernel from whatever the user gave, and a learned model behind scikit-learn's θ."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import check_random_state

from quantprop.estimators.foreign import Source
from quantprop.estimators.translate import Translation, to_sklearn, translate
from quantprop.infer import infer, prepare
from quantprop.kernels import VARIANCE, Kernel
from quantprop.landscape import Landscape, Point
from quantprop.learn import Ending, Fitted, fitted_at, learn
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.objectives import Objective
from quantprop.parameters import box, declared, free, packed, values
from quantprop.precision import float64

MAX_EVALUATIONS = 300
TOLERANCE = 1e-8  # of inference
FTOL = 1e-12  # of learning
FLAT = 1e-8  # correlations that differ from 0, or from 1, by less than this carry nothing
SOME = 200  # rows that stand for all when the kernel is looked at


class KernelWarning(UserWarning):
    """A kernel that cannot learn from the data it was given."""


@dataclass(frozen=True)
class Choice:
    """A kernel ready for use: the scikit-learn form (None if it has none) and ours."""

    theirs: sk.Kernel | None
    translation: Translation


def choose(kernel: Any, x: np.ndarray, source: Source | None) -> Choice:
    """A kernel of either library, or None for one with a lengthscale taken from the data."""
    if kernel is None:
        kernel = default_kernel(x)
    elif isinstance(kernel, Kernel):
        try:
            kernel = to_sklearn(kernel)
        except TypeError:  # of the user's own, or with a prior: it stays as it is
            size = sum(np.size(p.value) for p in free(declared(kernel)))
            return Choice(None, Translation(kernel, np.arange(size), np.ones(size)))
    kernel = clone(kernel)
    return Choice(kernel, translate(kernel, source))


def default_kernel(x: np.ndarray) -> sk.Kernel:
    """A constant times an RBF, both learned, from the typical distance between rows."""
    length = typical_distance(x)
    return sk.ConstantKernel(1.0, VARIANCE) * sk.RBF(length, (1e-3 * length, 1e3 * length))


def typical_distance(x: np.ndarray) -> float:
    """The median distance between (at most 500) different rows; 1 if all are equal."""
    rows = np.unique(x, axis=0)
    rows = rows[:: max(1, len(rows) // 500)]
    scale = np.abs(rows).max() if rows.size and np.abs(rows).max() > 0 else 1.0
    distances = pdist(rows / scale)
    distances = distances[distances > 0]
    return float(np.median(distances) * scale) if len(distances) else 1.0


def warn_if_blind(kernel: Kernel, x: np.ndarray, name: str) -> None:
    """Warn where the kernel is flat or diagonal on the data: nothing can be learned from there."""
    rows = np.unique(x, axis=0)
    rows = rows[:: max(1, len(rows) // SOME)]
    if len(rows) < 2:
        return
    k = _gram_of(kernel, rows)
    sd = np.sqrt(np.diagonal(k))
    correlation = (k / (sd[:, None] * sd))[np.triu_indices(len(rows), 1)]
    if np.abs(correlation).max() < FLAT:
        problem, remedy = "diagonal (no two rows are correlated)", "longer"
    elif correlation.min() > 1.0 - FLAT:
        problem, remedy = "flat (all rows are the same to it)", "shorter"
    else:
        return
    warnings.warn(
        f"{name}: the kernel starts {problem} on these data, where its gradient vanishes: give it a {remedy} "
        f"lengthscale (typical distance between rows: {typical_distance(x):.3g}), scale the features, or pass "
        "kernel=None, which chooses one from the data",
        KernelWarning,
        stacklevel=4,
    )


@float64
def _gram_of(kernel: Kernel, rows: np.ndarray) -> np.ndarray:
    return np.asarray(values(kernel).gram(rows))


@dataclass
class Core:
    """A learned model. θ of `log_marginal_likelihood` is that of the scikit-learn kernel."""

    choice: Choice
    landscape: Landscape
    fitted: Fitted

    @property
    def kernel(self) -> Any:
        """The learned kernel, in scikit-learn's form where it has one."""
        if self.choice.theirs is None:
            return self.fitted.model.kernel
        return self.choice.theirs.clone_with_theta(self._theirs(self.fitted.theta))

    def _theirs(self, theta: np.ndarray) -> np.ndarray:
        return self.choice.translation.to_theirs(theta[: len(self.choice.translation.order)])

    def full(self, theta: Float[np.ndarray, " kernel"]) -> np.ndarray:
        """Our θ, with the kernel's part from scikit-learn's θ."""
        ours = self.choice.translation.to_ours(np.asarray(theta, dtype=np.float64))
        return np.concatenate([ours, self.fitted.theta[len(ours) :]])

    def at(self, theta: Float[np.ndarray, " kernel"]) -> Point:
        """The objective at scikit-learn's θ, whatever was evaluated before."""
        return self.landscape.from_cold(self.full(theta))

    def slope(self, point: Point) -> np.ndarray:
        """The gradient at a point, in scikit-learn's θ."""
        return self.choice.translation.gradient_to_theirs(point.gradient[: len(self.choice.translation.order)])

    def moved(self, point: Point) -> Core:
        """The same data at another point."""
        fitted = fitted_at(self.landscape, point, (), _ending(point, "nothing-to-learn"))
        return Core(self.choice, self.landscape, fitted)


@dataclass(frozen=True)
class Recipe:
    """How to learn: everything of an estimator's settings that is not the model."""

    method: Method
    objective: Objective
    optimizer: Any
    restarts: int
    random_state: Any
    max_sweeps: int


def build(recipe: Recipe, choice: Choice, model: Model, x: Any, y: Any, rows: dict[str, Any], warm: Any = None) -> Core:
    """Learn a model from checked data."""
    task = prepare(model, x, y, recipe.method, rows.get("weights"), rows.get("exposure"), rows.get("trials"))
    landscape = Landscape(model, task, recipe.method, recipe.objective, True, TOLERANCE, recipe.max_sweeps)
    theta, bounds = packed(landscape.parts), box(landscape.parts)
    if warm is not None and len(warm.nu) == len(task.x):
        landscape.warmed(theta, warm)
    if recipe.optimizer is None or not len(theta):
        return Core(choice, landscape, _unlearned(recipe, landscape, theta, x, y, rows))
    theta = np.clip(theta, bounds[:, 0], bounds[:, 1])  # as scikit-learn does
    if callable(recipe.optimizer):
        return Core(choice, landscape, _by_callable(recipe, choice, landscape, theta, bounds))
    starts = [theta, *_random_starts(recipe, theta, bounds)]
    return Core(choice, landscape, learn(landscape, starts, bounds, MAX_EVALUATIONS, FTOL))


def _random_starts(recipe: Recipe, theta: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """Uniform in θ over the bounds, as scikit-learn does it."""
    if recipe.restarts and not np.isfinite(bounds).all():
        raise ValueError("n_restarts_optimizer > 0 requires that all bounds are finite")
    draws = check_random_state(recipe.random_state)
    return [draws.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(recipe.restarts)]


def _unlearned(recipe: Recipe, landscape: Landscape, theta: np.ndarray, x: Any, y: Any, rows: dict) -> Fitted:
    model = landscape.model
    solution = infer(model, x, y, recipe.method, tol=TOLERANCE, max_sweeps=recipe.max_sweeps, **rows)
    value = float(np.sum(solution.loo * landscape.task.weight.total[: len(solution.loo)]))
    value = value if recipe.objective.name == "loo" else solution.log_evidence
    reason = "nothing-to-learn" if solution.converged else "inference-failed"
    ending = Ending(reason, 1, int(not solution.converged), 0.0, ())
    return Fitted(model, solution, recipe.objective.name, value, theta, (), ending)


def _ending(point: Point, reason: str) -> Ending:
    return Ending(reason if point.usable else "inference-failed", 1, int(not point.usable), 0.0, ())


def _by_callable(recipe: Recipe, choice: Choice, landscape: Landscape, theta: np.ndarray, bounds: np.ndarray) -> Fitted:
    """The user's optimiser, called as scikit-learn calls it: obj_func(θ, eval_gradient) returns what to minimise.

    θ is scikit-learn's, followed by the likelihood's and the mean's.
    """
    size, translation = len(choice.translation.order), choice.translation

    def theirs(vector: np.ndarray) -> np.ndarray:
        return np.concatenate([translation.to_theirs(vector[:size]), vector[size:]])

    def ours(vector: np.ndarray) -> np.ndarray:
        return np.concatenate([translation.to_ours(vector[:size]), vector[size:]])

    def obj_func(vector: np.ndarray, eval_gradient: bool = True) -> Any:
        point = landscape.at(ours(np.asarray(vector, dtype=np.float64)))
        value = -point.value if point.usable else np.inf
        slope = np.concatenate([translation.gradient_to_theirs(point.gradient[:size]), point.gradient[size:]])
        return (value, -slope) if eval_gradient else value

    ends = np.stack([theirs(bounds[:, 0]), theirs(bounds[:, 1])], axis=1)
    best, least = recipe.optimizer(obj_func, theirs(theta), bounds=ends)
    for start in _random_starts(recipe, theta, bounds):
        new, value = recipe.optimizer(obj_func, theirs(start), bounds=ends)
        if value < least:
            best, least = new, value
    point = landscape.at(ours(np.asarray(best, dtype=np.float64)))
    return fitted_at(landscape, point, (), _ending(point, "converged"))


def warn_at_bounds(kernel: Any) -> None:
    """Say which hyperparameters of a scikit-learn kernel ended at a bound."""
    if not isinstance(kernel, sk.Kernel):
        return
    position = 0
    for hyper in kernel.hyperparameters:
        if hyper.fixed:
            continue
        for dimension in range(hyper.n_elements):
            theta, (lower, upper) = kernel.theta[position], kernel.bounds[position]
            for bound, which, change in ((lower, "lower", "Decreasing"), (upper, "upper", "Increasing")):
                if np.isclose(theta, bound):
                    limit = np.atleast_2d(hyper.bounds)[dimension if len(np.atleast_2d(hyper.bounds)) > 1 else 0]
                    warnings.warn(
                        f"The optimal value found for dimension {dimension} of parameter {hyper.name} is close to "
                        f"the specified {which} bound {limit[0 if which == 'lower' else 1]}. {change} the bound and "
                        "calling fit again may find a better value.",
                        ConvergenceWarning,
                        stacklevel=4,
                    )
            position += 1


def warn_if_unfinished(core: Core, name: str) -> None:
    """Say so where learning or inference did not converge."""
    if not core.fitted.converged:
        warnings.warn(
            f"{name}: learning {core.fitted.status}; inference {core.fitted.solution.status}",
            ConvergenceWarning,
            stacklevel=4,
        )
