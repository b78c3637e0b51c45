"""What both estimators share: a kernel from whatever the user gave, and a learned model behind scikit-learn's θ."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import check_random_state

from quantprop.estimators.columns import Coding, level_counts
from quantprop.estimators.foreign import Source
from quantprop.estimators.terms import moments, started
from quantprop.estimators.translate import Translation, to_sklearn, translate
from quantprop.inference.inferring import infer
from quantprop.inference.integrated import Integrated
from quantprop.inference.results import Ending, Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.task import prepare
from quantprop.kernels import Constant, Kernel, Sum, Terms, located
from quantprop.kernels.base import KernelSizeError
from quantprop.kernels.structure import centred, with_levels
from quantprop.learning.fitting import fitted_at, learn
from quantprop.learning.integration.integrating import integrated_over
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Objective
from quantprop.learning.starts import KernelWarning as KernelWarning  # whose place this was
from quantprop.learning.starts import at_bounds, typical_distance, variance_bounds
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.parameters import LogNormal, Parameter, box, declared, free, is_parameter, labels, packed
from quantprop.records import changed
from quantprop.runtime.jobs import agreed, all_true, sums

MAX_EVALUATIONS = 300
TOLERANCE = 1e-8  # of inference
FTOL = 1e-12  # of learning
SHOWN = 3  # numbers at a bound that a warning names
WEAK = LogNormal(median=1.0, deviation=10.0)  # of a variance: 95 % of its root between 1/22,000 and 22,000


@dataclass(frozen=True)
class Choice:
    """A kernel ready for use: the scikit-learn form (None if it has none) and ours."""

    theirs: sk.Kernel | None
    translation: Translation


MATERN = partial(sk.Matern, nu=2.5)  # the smoothest correlation with a state-space form


@dataclass(frozen=True)
class Default:
    """The kernel of estimators that are given none: a constant times an RBF (or another `correlation`), both learned.

    The constant starts at `variance`, the lengthscale at the typical distance between rows, and both have bounds of
    that size; with "ard" there is a lengthscale for each feature. `prior` is the constant's.
    """

    variance: float = 1.0
    prior: LogNormal | None = WEAK
    correlation: Callable[..., sk.Kernel] = sk.RBF
    weights: np.ndarray | None = field(default=None, repr=False)  # of the rows: one of weight 2 counts as two

    def of(self, x: np.ndarray, name: str | None) -> Choice:
        """The kernel for rows x; `name` is None or "ard"."""
        length = typical_distance(x)
        lengths: Any = length if name is None else np.full(x.shape[1], length)
        constant = sk.ConstantKernel(self.variance, variance_bounds(self.variance))
        theirs = constant * self.correlation(lengths, (1e-3 * length, 1e3 * length))
        translation: Any = translate(theirs)
        known = Parameter(self.variance, prior=self.prior)
        kernel = changed(translation.kernel, left=changed(translation.kernel.left, variance=known))
        return Choice(theirs, with_priors_of(kernel, translation))


def with_priors_of(kernel: Kernel, translation: Translation) -> Translation:
    """A translation whose parameters have the priors of another kernel of the same form."""
    own, form = jax.tree.flatten(translation.kernel, is_leaf=is_parameter)
    other = jax.tree.leaves(kernel, is_leaf=is_parameter)
    known = [Parameter(a.value, a.bounds, b.prior, a.fixed) for a, b in zip(own, other, strict=True)]
    return replace(translation, kernel=jax.tree.unflatten(form, known))


def choose(kernel: Any, x: np.ndarray, source: Source | None, default: Default, coding: Coding = Coding()) -> Choice:
    """A kernel of either library, of terms, or the default one: None, or "ard".

    Linear terms that are given as text pass through 0 at the mean of their columns, so that neither effects nor their
    errors depend on where the zero of a column is.
    """
    if kernel is None or kernel == "ard":
        return default.of(x, kernel)
    if isinstance(kernel, (str, Terms)):
        terms = Terms(kernel) if isinstance(kernel, str) else kernel
        kernel = centred(started(terms, x, coding.names, default), moments(x, default.weights)[0])
    if isinstance(kernel, Kernel):
        kernel = located(kernel, coding.names) if coding.names else kernel
        kernel = with_levels(kernel, level_counts(kernel, coding, x))
        try:
            kernel = to_sklearn(kernel)
        except (TypeError, KernelSizeError):  # of the user's own, with a prior, or too large there: it stays as it is
            return untranslated(kernel)
    kernel = clone(kernel)
    return Choice(kernel, translate(kernel, source))


def with_mean(choice: Choice, mean: Kernel | None, centre: np.ndarray) -> Choice:
    """The same and a prior mean that is not known, as terms of the kernel. Where that has no form in scikit-learn its
    linear terms pass through 0 at the `centre` of their columns: the level is not known anyway.
    """
    if mean is None:
        return choice
    kernel = choice.translation.kernel
    if choice.theirs is None or not isinstance(mean, Constant):
        return untranslated(Sum(centred(kernel, centre), mean))
    return Choice(sk.Sum(choice.theirs, to_sklearn(mean)), replace(choice.translation, kernel=Sum(kernel, mean)))


def untranslated(kernel: Kernel) -> Choice:
    """A kernel that has no form in scikit-learn: θ is our own."""
    size = sum(np.size(p.value) for p in free(declared(kernel)))
    return Choice(None, Translation(kernel, np.arange(size), np.ones(size)))


@dataclass
class Core:
    """A learned model. θ of `log_marginal_likelihood` is that of the scikit-learn kernel."""

    choice: Choice
    landscape: Landscape
    fitted: Fitted
    integrated: Integrated | None = None  # over its hyperparameters

    @property
    def posterior(self) -> Solution | Integrated:
        """What predicts: at the learned hyperparameters, or averaged over them."""
        return self.fitted.solution if self.integrated is None else self.integrated

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
        if self.fitted.solution.posterior is not None and self.landscape.task.mesh is None:
            raise ValueError(
                "the file of this model holds a part of its rows only, those of one process of a job: it predicts, but "
                "its objective at another theta is not known here"
            )
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
    integrated: bool = False


def integrated(core: Core) -> Core:
    """The same averaged over its hyperparameters, under the evidence and their priors."""
    found = integrated_over(core.fitted, core.landscape.task, core.landscape.max_sweeps)
    return replace(core, integrated=found)


def build(recipe: Recipe, choice: Choice, model: Model, x: Any, y: Any, rows: dict[str, Any], warm: Any = None) -> Core:
    """Learn a model from checked data."""
    core = _learned(recipe, choice, model, x, y, rows, warm)
    return integrated(core) if recipe.integrated else core


def _learned(recipe: Recipe, choice: Choice, model: Model, x: Any, y: Any, rows: dict[str, Any], warm: Any) -> Core:
    task = prepare(model, x, y, recipe.method, rows.get("weights"), rows.get("exposure"), rows.get("trials"))
    landscape = Landscape(task.model, task, recipe.method, recipe.objective, True, TOLERANCE, recipe.max_sweeps)
    theta, bounds = packed(landscape.parts), box(landscape.parts)
    if warm is not None and all_true(len(warm.nu) == len(task.x)):
        landscape = landscape.warmed(theta, warm)
    if recipe.optimizer is None or not len(theta):
        return Core(choice, landscape, _unlearned(recipe, landscape, theta, x, y, rows))
    theta = np.clip(theta, bounds[:, 0], bounds[:, 1])  # as scikit-learn does
    if callable(recipe.optimizer):
        return Core(choice, landscape, _by_callable(recipe, choice, landscape, theta, bounds))
    landscape.compile()
    starts = [theta, *random_starts(recipe, bounds)]
    return Core(choice, landscape, learn(landscape, starts, bounds, MAX_EVALUATIONS, FTOL))


def random_starts(recipe: Recipe, bounds: np.ndarray) -> list[np.ndarray]:
    """Uniform in θ over the bounds, as scikit-learn does it; in a job those of the first process, since without a
    random_state each would draw others.
    """
    if recipe.restarts and not np.isfinite(bounds).all():
        raise ValueError("n_restarts_optimizer > 0 requires that all bounds are finite")
    draws = check_random_state(recipe.random_state)
    return [agreed(draws.uniform(bounds[:, 0], bounds[:, 1])) for _ in range(recipe.restarts)]


def _unlearned(recipe: Recipe, landscape: Landscape, theta: np.ndarray, x: Any, y: Any, rows: dict) -> Fitted:
    model = landscape.model
    solution = infer(model, x, y, recipe.method, tol=TOLERANCE, max_sweeps=recipe.max_sweeps, **rows)
    value = float(sums(np.sum(solution.loo * landscape.task.weight.total[: len(solution.loo)]))[0])
    value = value if recipe.objective.name == "loo" else solution.log_evidence
    reason = "nothing-to-learn" if solution.converged else "inference-failed"
    ending = Ending(reason, 1, int(not solution.converged), 0.0, ())
    return Fitted(solution.model, solution, recipe.objective.name, value, theta, (), ending)


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
    for start in random_starts(recipe, bounds):
        new, value = recipe.optimizer(obj_func, theirs(start), bounds=ends)
        if value < least:
            best, least = new, value
    point = landscape.at(ours(np.asarray(best, dtype=np.float64)))
    return fitted_at(landscape, point, (), _ending(point, "converged"))


# --- warnings, one of each kind per fit -------------------------------------------------------------------------------


def warn_at_bounds(cores: Sequence[Core], name: str, given: bool) -> None:
    """Say which numbers ended at a bound, each once for all models of an estimator, whether its kernel was given."""
    every = list(dict.fromkeys(text for core in cores for text in _at_bounds(core, given)))
    if every:
        more = f" And {len(every) - SHOWN} more." if len(every) > SHOWN else ""
        warnings.warn(f"{name}: {' '.join(every[:SHOWN])}{more}", ConvergenceWarning, stacklevel=4)


def _at_bounds(core: Core, given: bool) -> Iterator[str]:
    """A sentence for each number at a bound: of a given kernel as scikit-learn says it, else without numbers, which
    would make another sentence of it in every fold of a cross-validation. A longest lengthscale of our own kernel only
    says that a feature does not matter.
    """
    theta, bounds = core.fitted.theta, box(core.landscape.parts)
    kernel, size = core.kernel, len(core.choice.translation.order)
    if given and isinstance(kernel, sk.Kernel):
        yield from _in_their_words(kernel)
        theta, bounds = theta[size:], bounds[size:]
    sides = zip(labels(core.landscape.parts)[-len(theta) :], at_bounds(theta, bounds), strict=True)
    for label, side in sides if len(theta) else ():
        if side and (given or not (side > 0 and "lengthscale" in label)):
            words = re.sub(r"^kernel\.((left|right|base|kernel|kernels\[\d+\])\.)*", "the kernel's ", label)
            yield (
                f"The optimal value found for {words} is close to its {'upper' if side > 0 else 'lower'} bound; to "
                "change that, give a Parameter with other bounds, or fixed=True, in a kernel or likelihood of your own."
            )


def _in_their_words(kernel: sk.Kernel) -> Iterator[str]:
    position = 0
    for hyper in kernel.hyperparameters:
        for dimension in range(0 if hyper.fixed else hyper.n_elements):
            theta, (lower, upper) = kernel.theta[position], kernel.bounds[position]
            for bound, which, change in ((lower, "lower", "Decreasing"), (upper, "upper", "Increasing")):
                if np.isclose(theta, bound):
                    limit = np.atleast_2d(hyper.bounds)[dimension if len(np.atleast_2d(hyper.bounds)) > 1 else 0]
                    yield (
                        f"The optimal value found for dimension {dimension} of parameter {hyper.name} is close to "
                        f"the specified {which} bound {limit[0 if which == 'lower' else 1]}. {change} the bound and "
                        "calling fit again may find a better value."
                    )
            position += 1


def warn_if_unfinished(cores: Sequence[Core], name: str, remedy: str) -> None:
    """Say so where learning or inference did not converge; of several models the first of them in full."""
    bad = [core.fitted for core in cores if not core.fitted.converged]
    if bad:
        share = f"{len(bad)} of {len(cores)} models did not converge, the first of them: " if len(cores) > 1 else ""
        warnings.warn(
            f"{name}: {share}learning {bad[0].status}; inference {bad[0].solution.status}{remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )
    rough = [core.integrated for core in cores if core.integrated is not None and not core.integrated.converged]
    if rough:
        warnings.warn(f"{name}: integration {rough[0].status}", ConvergenceWarning, stacklevel=4)
