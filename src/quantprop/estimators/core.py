"""Learned models behind scikit-learn's θ and attributes, and how they are learned from a kernel and checked rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import check_random_state

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import box, packed
from quantprop.estimators.first_kernel import KernelChoices
from quantprop.estimators.rows import Rows
from quantprop.estimators.translate import KernelSpec
from quantprop.inference.classes import ClassPredictive, ClassSolution, as_classes
from quantprop.inference.inferring import infer
from quantprop.inference.integrated import Integrated
from quantprop.inference.mixed import MixedClasses
from quantprop.inference.results import Ending, Fitted
from quantprop.inference.stacked import Stack
from quantprop.inference.task import prepare
from quantprop.kernels.combinations import in_form_of, in_own_form
from quantprop.learning.fitting import first_start, fitted_at, learn
from quantprop.learning.integration.integrating import integrated_over
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Objective
from quantprop.learning.shaped import Constraint, conditioned, given_design
from quantprop.learning.stacking import stack
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.runtime import jobs
from quantprop.runtime.batches import side_by_side

MAX_EVALUATIONS = 300
INFERENCE_TOLERANCE = 1e-8
LEARNING_FTOL = 1e-12


@dataclass(frozen=True)
class FitOptions:
    """Settings of an estimator that do not belong to the model."""

    method: Method
    objective: Objective
    optimizer: Any
    restarts: int
    random_state: Any
    max_sweeps: int
    integrated: bool = False


class LearnedAttributes:
    """The attributes of one learned model, or lists of those of several."""

    log_marginal_likelihood_value_: Any

    def _cores(self) -> list[FittedCore]:
        """The learned models; none before `fit`."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        """Raise if there is nothing learned."""

    def _inside(self, core: FittedCore) -> str:
        """A step of the estimator outside its models, if there is one."""
        return "" if core.mixture is None else "that averages several models"

    def _each(self, attribute: Callable[[FittedCore], Any], joined: Callable[[list], Any] = list) -> Any:
        found = [attribute(core) for core in self._cores()]
        if not found:
            raise AttributeError(f"{type(self).__name__} is not fitted: call fit first")
        return found[0] if len(found) == 1 else joined(found)

    @property
    def kernel_(self):
        """The learned kernel, a scikit-learn one if it has a counterpart; of several models a CompoundKernel."""
        return self._each(lambda core: core.kernel, sk.CompoundKernel)

    @property
    def solution_(self):
        """The posterior of the latent function at the learned hyperparameters; a list for several models.

        With Gaussian noise by name, its X holds equal training rows once.
        """
        return self._each(lambda core: as_classes(core.fitted.solution))

    @property
    def posterior_(self):
        """The posterior that predicts: `solution_`, or the average over hyperparameters; a list for several models."""
        return self._each(lambda core: core.posterior)

    @property
    def constraint_(self):
        """The constraint on the shape of f with its virtual rows, or None; a list for several models."""
        return self._each(lambda core: core.constraint)

    @property
    def fitted_(self):
        """The result of learning: the learned model and its status; a list for several models."""
        return self._each(lambda core: replace(as_classes(core.fitted), inside=self._inside(core)))

    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """The objective at θ (of `kernel_`), with its exact gradient on request; likelihood and mean as learned.

        Of several models it is the mean, and θ is that of one kernel, used for all, or that of the compound kernel.
        With clone_kernel=False the model moves to θ.
        """
        self._check_fitted()
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None")
            return self.log_marginal_likelihood_value_
        theta, cores = np.asarray(theta, dtype=np.float64), self._cores()
        size, k = cores[0].spec.size, len(cores)
        if len(theta) not in (size, size * k):
            raise ValueError(
                f"Shape of theta must be either {size} or {size * k}. Obtained theta with shape {len(theta)}."
            )
        parts = [theta] * k if len(theta) == size else np.split(theta, k)
        found = [core.objective_at(part, not clone_kernel) for core, part in zip(cores, parts, strict=True)]
        value, slopes = np.mean([value for value, _ in found]), [slope for _, slope in found]
        slope = np.mean(slopes, axis=0) if len(theta) == size else np.concatenate(slopes) / k
        return (value, slope) if eval_gradient else value


@dataclass
class FittedCore(LearnedAttributes):
    """A learned model with its data and its kernel before learning, and with scikit-learn's attributes of a two-class
    model. θ is that of the scikit-learn kernel, if any.
    """

    spec: KernelSpec
    landscape: Landscape
    fitted: Fitted
    mixture: Integrated | Stack | None = None  # over its hyperparameters, or of models of which this is the heaviest
    constraint: Constraint | None = None  # on the shape of f

    @property
    def posterior(self) -> Any:
        """The posterior that predicts: at the learned hyperparameters, or averaged over them or over models."""
        return as_classes(self.fitted.solution) if self.mixture is None else self.mixture

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The inputs that it was learned from, each once, and their weights."""
        return self.fitted.solution.X, self.fitted.solution.weights

    @property
    def kernel(self) -> Any:
        """The learned kernel of one latent function, in scikit-learn's form if it has one."""
        if self.spec.theirs is not None:
            return self.spec.theirs.clone_with_theta(self.spec.to_theirs(self.fitted.theta)[: self.spec.size])
        return in_own_form(self.fitted.model.kernel)

    def objective_at(self, theta: Float[np.ndarray, " kernel"], move: bool) -> tuple[float, np.ndarray]:
        """The objective at the kernel's θ, and its gradient; with `move` the core moves to θ."""
        if self.fitted.solution.posterior is not None and self.landscape.task.mesh is None:
            raise ValueError("the file of this model contains only the rows of one process of a job: it can predict, "
                             "but not evaluate its objective at another theta")  # fmt: skip
        size = self.spec.size
        point = self.objective.from_cold(self.spec.to_ours(np.concatenate([theta, self.fitted.theta[size:]])))
        if move:
            self.fitted, self.mixture = self.fitted_at(point), None
        return point.value, self.spec.gradient_to_theirs(point.gradient)[:size]

    @property
    def objective(self) -> Landscape:
        """The objective at any θ, given the constraint if the free fit breaks it."""
        kept = self._needed
        return self.landscape if kept is None else given_design(self.landscape, kept.shapes)

    def fitted_at(self, point: Point) -> Fitted:
        """The same data at another point."""
        found, kept = _fitted(self.objective, point, "nothing-to-learn"), self._needed
        return found if kept is None else conditioned(found, self.landscape, kept)

    @property
    def _needed(self) -> Constraint | None:
        """The constraint, unless the free fit obeys it."""
        return self.constraint if self.constraint is not None and len(self.constraint.sign) else None

    def _cores(self) -> list[FittedCore]:
        return [self]

    @property
    def classes_(self) -> np.ndarray:
        """The codes of its classes: 0, 1, ..."""
        solution = self.solution_
        return np.arange(solution.classes if isinstance(solution, ClassSolution) else 2)

    @property
    def X_train_(self) -> np.ndarray:
        """The inputs that it was learned from."""
        return self.solution_.X

    @property
    def y_train_(self) -> np.ndarray:
        """The codes of the classes that it was learned from."""
        solution, task = self.solution_, self.landscape.task
        return solution.y if isinstance(solution, ClassSolution) else (task.data.y[: len(task.x)] > 0).astype(int)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The objective at the learned hyperparameters."""
        return self.fitted.objective_value

    def log_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """Log probabilities of its classes."""
        y = self.posterior_.predict_y(x)
        if isinstance(y, ClassPredictive | MixedClasses):
            return y.log_probabilities
        return np.stack([y.log_prob(-1.0), y.log_prob(1.0)], axis=1)


def build(
    options: FitOptions, spec: Any, model: Model, x: Any, y: Any, rows: Rows, warm: Natural | None = None
) -> FittedCore:
    """Learn a model from checked data, or several, stacked, where `spec` holds several kernels (`KernelChoices`);
    `warm` are sites to start from.
    """
    if isinstance(spec, KernelChoices):
        return _stacked(options, spec.specs, model, x, y, rows)
    task = prepare(model, x, y, options.method, *(rows.get(name) for name in ("weights", "exposure", "trials")))
    landscape = Landscape(
        task.model, task, options.method, options.objective, True, INFERENCE_TOLERANCE, options.max_sweeps
    )
    theta, bounds = packed(landscape.parts), box(landscape.parts)
    if warm is not None and jobs.all_true(len(warm.nu) == len(task.x)):
        landscape.warmed(theta, warm)
    if options.optimizer is None or not len(theta):
        fitted = _unlearned(options, landscape, theta, x, y, rows)
    else:
        starts = [np.clip(theta, bounds[:, 0], bounds[:, 1]), *random_starts(options, bounds)]  # as scikit-learn does
        if callable(options.optimizer):
            fitted = _learned_by(options.optimizer, spec, landscape, starts, bounds)
        else:
            starts[0] = first_start(landscape, starts[0])
            fitted = learn(landscape, starts, bounds, MAX_EVALUATIONS, LEARNING_FTOL)
    integrated = integrated_over(fitted, task, options.max_sweeps) if options.integrated else None
    return FittedCore(spec, landscape, fitted, integrated)


def _stacked(options: FitOptions, specs: dict[str, KernelSpec], model: Model, x: Any, y: Any, rows: Rows) -> FittedCore:
    """The heaviest of several models that differ in the kernel, with the stack of all."""

    def learned(spec: KernelSpec) -> FittedCore:
        return build(options, spec, replace(model, kernel=in_form_of(model.kernel, spec.kernel)), x, y, rows)

    one_by_one = options.restarts or callable(options.optimizer)  # random numbers in their order; the user's own code
    run = map if one_by_one else partial(side_by_side, cost=model.process.cost(len(x)))
    cores = dict(zip(specs, run(learned, list(specs.values())), strict=True))
    found = stack({name: as_classes(core.fitted) for name, core in cores.items()})
    return replace(cores[found.heaviest.name], mixture=found)


def random_starts(options: FitOptions, bounds: np.ndarray) -> list[np.ndarray]:
    """Starts uniform in θ over the bounds, as in scikit-learn; in a job the same ones in all processes."""
    if options.restarts and not np.isfinite(bounds).all():
        raise ValueError("n_restarts_optimizer > 0 requires that all bounds are finite")
    draws = check_random_state(options.random_state)
    return [jobs.agreed(draws.uniform(bounds[:, 0], bounds[:, 1])) for _ in range(options.restarts)]


def _unlearned(options: FitOptions, landscape: Landscape, theta: np.ndarray, x: Any, y: Any, rows: Rows) -> Fitted:
    limits = {"tol": INFERENCE_TOLERANCE, "max_sweeps": options.max_sweeps}
    solution = infer(landscape.model, x, y, options.method, **limits, **rows)
    value = solution.log_evidence
    if options.objective.name == "loo":
        value = float(jobs.sums(np.sum(solution.loo * landscape.task.weight.total[: len(solution.loo)]))[0])
    reason = "nothing-to-learn" if solution.converged else "inference-failed"
    ending = Ending(reason, 1, int(not solution.converged), 0.0, ())
    return Fitted(solution.model, solution, options.objective.name, value, theta, (), ending)


def _fitted(landscape: Landscape, point: Point, reason: str) -> Fitted:
    ending = Ending(reason if point.usable else "inference-failed", 1, int(not point.usable), 0.0, ())
    return fitted_at(landscape, point, (), ending)


def _learned_by(
    optimizer: Any, spec: KernelSpec, landscape: Landscape, starts: list[np.ndarray], bounds: np.ndarray
) -> Fitted:
    """Learning by the user's optimiser, called as scikit-learn calls it: obj_func(θ, eval_gradient) returns what to
    minimise. θ is scikit-learn's, followed by the likelihood's and the mean's.
    """

    def obj_func(theta: np.ndarray, eval_gradient: bool = True) -> Any:
        point = landscape.at(spec.to_ours(np.asarray(theta, dtype=np.float64)))
        value = -point.value if point.usable else np.inf
        return (value, -spec.gradient_to_theirs(point.gradient)) if eval_gradient else value

    ends = np.stack([spec.to_theirs(bounds[:, 0]), spec.to_theirs(bounds[:, 1])], axis=1)
    found = [optimizer(obj_func, spec.to_theirs(start), bounds=ends) for start in starts]
    best = min(found, key=lambda pair: pair[1])[0]
    point = landscape.at(spec.to_ours(np.asarray(best, dtype=np.float64)))
    return _fitted(landscape, point, "converged")
