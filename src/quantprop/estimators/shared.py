"""What both estimators share: how inputs are checked, how settings become a recipe, and the objective at another θ."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import CompoundKernel
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from quantprop.data import refuse_masked, refuse_others, refuse_sizes, row_weights
from quantprop.estimators import columns
from quantprop.estimators.core import MATERN, Choice, Core, Default, Recipe, choose, warn_at_bounds, warn_if_unfinished
from quantprop.estimators.foreign import Source
from quantprop.estimators.translate import check_theirs
from quantprop.inference.results import write
from quantprop.inference.task import as_method, has_white_noise
from quantprop.learning.objectives import as_objective
from quantprop.learning.starts import blindness, warn_of_blindness
from quantprop.model import DEFAULT_PROCESS, Model
from quantprop.parameters import values
from quantprop.priors import Inducing, Markov, Process
from quantprop.priors.markov import applies
from quantprop.runtime.jobs import counted, meet
from quantprop.runtime.memory import capacity
from quantprop.runtime.names import check_name

log = logging.getLogger("quantprop")

POINTS = 512  # that "auto" takes
CPU_WORK = 3e10  # operations of a dense sweep up to which "auto" is exact: 3,100 rows, some minutes a fit
DEVICE_WORK = 1e12  # and on an accelerator: 10,000 rows
ROOM = 0.5  # of the memory for it
SHORT_WORK = 1e9  # operations of a dense sweep beyond which a state-space form is faster: 1,000 rows
NAMED = {"dense": DEFAULT_PROCESS, "markov": Markov()}


class ProcessWarning(UserWarning):
    """An approximation that was chosen because of the number of rows."""


def chosen_process(given: Process | str, n: int, in_time: bool = False) -> Process:
    """The process for n rows: as given, or for "auto" dense while that fits in memory and time. Says what it chose.

    `in_time` says that kernel and inputs have a state-space form, which is exact too, and faster for long series.
    """
    if isinstance(given, Process):
        return given
    if given != "auto":
        return NAMED[given]
    meet()
    cost, have = DEFAULT_PROCESS.cost(n), capacity()
    if in_time and cost.flops > SHORT_WORK:
        log.info("process='auto': Markov(), exact, for %d rows", n)
        return NAMED["markov"]
    work = CPU_WORK if jax.default_backend() == "cpu" else DEVICE_WORK
    if cost.flops <= work and (have is None or cost.peak <= ROOM * have):
        log.info("process='auto': dense, exact, for %d rows", n)
        return DEFAULT_PROCESS
    points = min(POINTS, n)
    warnings.warn(
        f"process='auto' holds {n} rows by {points} inducing points, which is an approximation: a dense sweep would "
        f"take {cost.flops:.0e} operations and {cost.peak / 2**30:.1f} GiB. Say process=Inducing({points}) to keep "
        "this without the warning, with more points for more accuracy, or process='dense'",
        ProcessWarning,
        stacklevel=4,
    )
    return Inducing(points)


class GaussianProcess(BaseEstimator):
    """Base of both estimators."""

    kernel: Any
    optimizer: Any
    n_restarts_optimizer: int
    random_state: Any
    method: Any
    objective: str
    process: Any
    _items: ClassVar[bool] = False  # whether a row of X stands in several data
    _remedy = ""  # of learning that did not converge
    _parameter_constraints: ClassVar[dict]
    hyperparameters: str
    _parameter_constraints: ClassVar[dict]

    def save(self, path):
        """Write the estimator to one file, to be read by `quantprop.load`."""
        write(self, path)

    def _validate_params(self) -> None:
        """As scikit-learn does, but for names: the nearest is told."""
        for argument, rules in self._parameter_constraints.items():
            names = [name for rule in rules if isinstance(rule, StrOptions) for name in sorted(rule.options)]
            if names and str not in rules and isinstance(given := getattr(self, argument), str):
                check_name(f"{type(self).__name__}: {argument}", given, names)
        super()._validate_params()

    def _learned_from(self, X: Any, **more: Any) -> tuple[np.ndarray, Any]:
        """Data as scikit-learn checks them (`more` is what it should check of y), X in the kernel's terms."""
        self._validate_params()
        check_theirs(self.kernel)
        if isinstance(self.kernel, CompoundKernel):
            raise ValueError("kernel cannot be a CompoundKernel")
        self._source = Source() if self._vectors() else Source([])
        self._coding = columns.learned(self.kernel, X)
        X = self._coding.matrix(X)
        self._check_no_dates(X)
        refuse_masked(more.get("y"), "y")
        checked = validate_data(self, X, **self._options(), **more)
        x, y = checked if "y" in more else (checked, None)
        if not self._items:
            self._coding.check(len(x))
        if self._coding.names:
            self.feature_names_in_ = np.array(self._coding.names, dtype=object)
        return self._encoded(x), y

    def _new_inputs(self, X: Any) -> np.ndarray:
        """Inputs to predict at, with the columns that were learned from."""
        if self._coding.names:
            x = check_array(self._coding.matrix(X))
        else:
            self._check_no_dates(X)
            x = self._encoded(validate_data(self, X, reset=False, **self._options()))
        self._coding.warn_of_new_levels(X, x, type(self).__name__)
        return x

    def _check_no_dates(self, X: Any) -> None:
        if self._vectors():
            refuse_others(X, "X")

    def _vectors(self) -> bool:
        return not isinstance(self.kernel, SklearnKernel) or self.kernel.requires_vector_input

    def _options(self) -> dict[str, Any]:
        vectors = self._vectors()
        return {"ensure_2d": vectors, "dtype": "numeric" if vectors else None}

    def _encoded(self, x: Any) -> np.ndarray:
        """Vectors as float64; other objects as numbers that stand for them."""
        if not self._vectors():
            return self._source.encode(list(x))
        refuse_sizes(rows := np.asarray(x, dtype=np.float64), "X", all_rows=False)
        return rows

    def _recipe(self, max_sweeps: int) -> Recipe:
        recipe = Recipe(
            as_method(self.method), as_objective(self.objective), self.optimizer,
            self.n_restarts_optimizer, self.random_state, max_sweeps, self.hyperparameters == "integrated",
        )  # fmt: skip
        if recipe.integrated and recipe.optimizer is None:
            raise ValueError("hyperparameters='integrated' needs an optimizer, which finds where their posterior lies; "
                             "with optimizer=None they are held: hyperparameters='point'")  # fmt: skip
        recipe.objective.check(recipe.method)
        return recipe

    def _choice(self, X: np.ndarray, default: Default) -> Choice:
        """The kernel to start from; a given one that sees nothing in the data brings a warning."""
        if self.process == "markov" or isinstance(self.process, Markov):
            default = replace(default, correlation=MATERN)
        chosen = choose(self.kernel, X, self._source, default, self._coding)
        if self._given():
            remedy = "pass kernel=None, which chooses one from the data"
            warn_of_blindness(blindness(chosen.translation.kernel, X), X, type(self).__name__, remedy, 4)
        return chosen

    def _process(self, chosen: Choice, X: np.ndarray) -> Process:
        return chosen_process(self.process, counted(len(X)), self._in_time(chosen, X))

    def _in_time(self, chosen: Choice, X: np.ndarray) -> bool:
        """Whether the process may be `Markov()`, and kernel and X have a state-space form."""
        may = self.process in ("auto", "markov") or isinstance(self.process, Markov)
        return may and applies(values(chosen.translation.kernel), X.shape[1])

    def _given(self) -> bool:
        """Whether the kernel is the user's own."""
        return self.kernel is not None and not isinstance(self.kernel, str)

    def _warn(self, cores: Sequence[Core]) -> None:
        warn_if_unfinished(cores, type(self).__name__, self._remedy)
        if self.optimizer is not None:
            warn_at_bounds(cores, type(self).__name__, self._given())


def written_out(model: Model, X: np.ndarray, y: np.ndarray, rows: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Rows of whole weights above 1 repeated, where white noise in the kernel makes equal rows data of their own and
    the process does not see to that itself.
    """
    kernel, weights = model.kernel, row_weights(rows["weights"], len(X))
    several = (weights > 1.0) & (weights == np.rint(weights))
    if model.process.copies_apart or not several.any() or not has_white_noise(values(kernel), X[several]):
        return X, y, rows
    which = np.repeat(np.arange(len(X)), np.where(several, weights, 1.0).astype(int))
    rows = {**rows, "weights": np.where(several, 1.0, weights)}
    return X[which], y[which], {name: np.broadcast_to(value, (len(X),))[which] for name, value in rows.items()}


def without_theta(value: Any, eval_gradient: bool) -> Any:
    """The objective at the optimum, as scikit-learn returns it for theta=None."""
    if eval_gradient:
        raise ValueError("Gradient can only be evaluated for theta!=None")
    return value


def at_theta(core: Core, theta: Any, eval_gradient: bool, clone_kernel: bool) -> tuple[Any, Core]:
    """The objective at θ with its gradient on request, and the model: moved to θ with clone_kernel=False."""
    point = core.at(theta)
    value = np.float64(point.value)
    return (value, core.slope(point)) if eval_gradient else value, core if clone_kernel else core.moved(point)
