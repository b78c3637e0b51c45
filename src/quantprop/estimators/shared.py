"""The base of all estimators: how inputs are checked and settings become options."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from types import MethodType
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import CompoundKernel
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from quantprop.core.data import refuse_masked, refuse_others, refuse_sizes
from quantprop.core.parameters import box, labels, values
from quantprop.estimators import columns
from quantprop.estimators.core import FitOptions, FittedCore, LearnedAttributes
from quantprop.estimators.first_kernel import SMOOTHEST_MARKOV, DefaultKernel, kernel_spec
from quantprop.estimators.foreign import Source
from quantprop.estimators.rows import row_count
from quantprop.estimators.translate import KernelSpec, check_theirs
from quantprop.inference.results import write
from quantprop.kernels import Kernel, Terms
from quantprop.learning.objectives import as_objective
from quantprop.learning.starts import at_bounds
from quantprop.learning.uninformative import blindness, warn_of_blindness
from quantprop.methods import Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import DEFAULT_PROCESS
from quantprop.priors import Inducing, Markov, Process
from quantprop.priors.markov import applies
from quantprop.runtime.memory import capacity
from quantprop.runtime.names import check_name

log = logging.getLogger("quantprop")

AUTO_POINTS = 512  # inducing points of process="auto"
MAX_CPU_WORK = 3e10  # operations of a dense sweep up to which "auto" is exact: 3,100 rows, some minutes a fit
MAX_DEVICE_WORK = 1e12  # the same on an accelerator: 10,000 rows
MAX_MEMORY_SHARE = 0.5  # of the memory, for a dense prior chosen by "auto"
MIN_MARKOV_WORK = 1e9  # operations of a dense sweep beyond which a state-space form is faster: 1,000 rows
NAMED_PROCESSES = {"dense": DEFAULT_PROCESS, "markov": Markov()}
MAX_SENTENCES = 3  # of a warning about parameters at a bound
POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")


class ProcessWarning(UserWarning):
    """An approximation that was chosen because of the number of rows."""


def chosen_process(given: Process | str, n: int, in_time: bool = False) -> Process:
    """The process for n rows: as given, or for "auto" dense while that fits in memory and time, which is logged.

    `in_time` says that kernel and inputs have a state-space form, which is exact too, and faster for long series.
    """
    if isinstance(given, Process):
        return given
    if given != "auto":
        return NAMED_PROCESSES[given]
    cost, have = DEFAULT_PROCESS.cost(n), capacity()
    if in_time and cost.flops > MIN_MARKOV_WORK:
        log.info("process='auto': Markov(), exact, for %d rows", n)
        return NAMED_PROCESSES["markov"]
    work = MAX_CPU_WORK if jax.default_backend() == "cpu" else MAX_DEVICE_WORK
    if cost.flops <= work and (have is None or cost.peak <= MAX_MEMORY_SHARE * have):
        log.info("process='auto': dense, exact, for %d rows", n)
        return DEFAULT_PROCESS
    points = min(AUTO_POINTS, n)
    warnings.warn(
        f"process='auto' represents {n} rows by {points} inducing points, which is an approximation: a dense sweep "
        f"would take {cost.flops:.0e} operations and {cost.peak / 2**30:.1f} GiB. Pass process=Inducing({points}) to "
        "silence this warning, more points for higher accuracy, or process='dense' for exact inference",
        ProcessWarning,
        stacklevel=4,
    )
    return Inducing(points)


class WithFurtherRows:
    """A method that exists only if the process takes further rows; otherwise an AttributeError names one that does."""

    def __init__(self, method: Callable) -> None:
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self.method
        cores = estimator._cores()
        process = cores[0].fitted.model.process if cores else estimator.process
        if not (isinstance(process, Process) and process.takes_further_rows):
            raise AttributeError(
                f"{owner.__name__}.{self.method.__name__} takes further rows into a model with inducing points: use "
                f"process=Inducing(512), or fit(X, y) with all rows; got process={process!r}"
            )
        return MethodType(self.method, estimator)


class GaussianProcess(LearnedAttributes, BaseEstimator):
    """The base of all estimators."""

    kernel: Any
    optimizer: Any
    n_restarts_optimizer: int
    random_state: Any
    method: Any
    objective: str
    process: Any
    hyperparameters: str
    _core: FittedCore  # of estimators that learn one model
    _remedy = ""  # what to try if learning did not converge
    _parameter_constraints: ClassVar[dict] = {
        "kernel": [SklearnKernel, Kernel, Terms, str, None],
        "optimizer": [StrOptions({"fmin_l_bfgs_b"}), callable, None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
        "method": [str, Method],
        "objective": [StrOptions({"evidence", "loo", "elbo"})],
    }
    _process_constraints: ClassVar[dict] = {
        "copy_X_train": ["boolean"],
        "process": [StrOptions({"auto", "dense", "markov"}), Process],
        "hyperparameters": [StrOptions({"point", "integrated"})],
    }

    def save(self, path):
        """Write the estimator to one file, to be read by `quantprop.load`."""
        write(self, path)

    def _cores(self) -> list[FittedCore]:
        return [self._core] if hasattr(self, "_core") else []

    def _check_fitted(self) -> None:
        check_is_fitted(self, "log_marginal_likelihood_value_")

    def _validate_params(self) -> None:
        """As scikit-learn does, but an unknown name is reported together with the nearest known one."""
        for argument, rules in self._parameter_constraints.items():
            names = [name for rule in rules if isinstance(rule, StrOptions) for name in sorted(rule.options)]
            if names and str not in rules and isinstance(given := getattr(self, argument), str):
                check_name(f"{type(self).__name__}: {argument}", given, names)
        super()._validate_params()

    # --- inputs ------------------------------------------------------------------------------------------------------

    def _learned_from(self, X: Any, **more: Any) -> Any:
        """X as the kernel sees it, checked by scikit-learn; with y, if `more` has it and what to check of it, both."""
        self._validate_params()
        check_theirs(self.kernel)
        if isinstance(self.kernel, CompoundKernel):
            raise ValueError("kernel cannot be a CompoundKernel")
        refuse_masked(more.get("y"), "y")
        self._source = Source() if self._vectors() else Source([])
        self._coding = columns.coding_of(self.kernel, X)
        found = self._validated(self._coding.matrix(X), **more)
        if self._coding.names:
            self.feature_names_in_ = np.array(self._coding.names, dtype=object)
        return found

    def _new_inputs(self, X: Any) -> np.ndarray:
        """Inputs to predict at, with the columns that were learned from."""
        self._check_fitted()
        x = check_array(self._coding.matrix(X)) if self._coding.names else self._validated(X, reset=False)
        self._coding.warn_of_new_levels(X, x, type(self).__name__)
        return x

    def _validated(self, X: Any, **more: Any) -> Any:
        """Vectors as float64, other objects as the numbers that represent them; and y, if there is one."""
        vectors = self._vectors()
        if vectors:
            refuse_others(X, "X")
        found = validate_data(self, X, ensure_2d=vectors, dtype="numeric" if vectors else None, **more)
        x, y = found if "y" in more else (found, None)
        if vectors:
            refuse_sizes(x := np.asarray(x, dtype=np.float64), "X", all_rows=False)
        else:
            x = self._source.encode(list(x))
        return (x, y) if "y" in more else x

    def _vectors(self) -> bool:
        return not isinstance(self.kernel, SklearnKernel) or self.kernel.requires_vector_input

    # --- settings ----------------------------------------------------------------------------------------------------

    def _fit_options(self, max_sweeps: int) -> FitOptions:
        options = FitOptions(
            method_by_name(self.method), as_objective(self.objective), self.optimizer,
            self.n_restarts_optimizer, self.random_state, max_sweeps, self.hyperparameters == "integrated",
        )  # fmt: skip
        if options.integrated and options.optimizer is None:
            raise ValueError("hyperparameters='integrated' needs an optimizer, which finds where their posterior lies; "
                             "with optimizer=None they are fixed: hyperparameters='point'")  # fmt: skip
        options.objective.check(options.method)
        return options

    def _kernel_spec(self, X: np.ndarray, default: DefaultKernel) -> KernelSpec:
        """The kernel to start from; a given one that is uninformative about the data is warned of."""
        if self.process == "markov" or isinstance(self.process, Markov):
            default = replace(default, correlation=SMOOTHEST_MARKOV)
        spec = kernel_spec(self.kernel, X, self._source, default, self._coding)
        if self._given():
            remedy = "pass kernel=None, which chooses one from the data"
            warn_of_blindness(blindness(spec.kernel, X), X, type(self).__name__, remedy, 4)
        return spec

    def _process(self, spec: KernelSpec, X: np.ndarray) -> Process:
        return chosen_process(self.process, row_count(X), self._in_time(spec, X))

    def _in_time(self, spec: KernelSpec, X: np.ndarray) -> bool:
        """Whether the process may be `Markov()`, and kernel and X have a state-space form."""
        may = self.process in ("auto", "markov") or isinstance(self.process, Markov)
        return may and applies(values(spec.kernel), X.shape[1])

    def _given(self) -> bool:
        """Whether the kernel is the user's own."""
        return self.kernel is not None and not isinstance(self.kernel, str)

    def _warn(self) -> None:
        cores = self._cores()
        warn_if_unfinished(cores, type(self).__name__, self._remedy)
        if self.optimizer is not None:
            warn_at_bounds(cores, type(self).__name__, self._given())


# --- warnings, one of each kind per fit -------------------------------------------------------------------------------


def warn_at_bounds(cores: Sequence[FittedCore], name: str, given: bool) -> None:
    """Warn of parameters that ended at a bound, each once for all models; `given` if the kernel is the user's own.

    Of a kernel that was not given the text holds no numbers, which would differ in every fold of a cross-validation.
    """
    every = list(dict.fromkeys(text for core in cores for text in _at_bounds(core, given)))
    if every:
        more = f" And {len(every) - MAX_SENTENCES} more." if len(every) > MAX_SENTENCES else ""
        warnings.warn(f"{name}: {' '.join(every[:MAX_SENTENCES])}{more}", ConvergenceWarning, stacklevel=4)


def _at_bounds(core: FittedCore, given: bool) -> Iterator[str]:
    theta, bounds, kernel = core.fitted.theta, box(core.landscape.parts), core.kernel
    if given and isinstance(kernel, SklearnKernel):
        yield from _in_their_words(kernel)
        theta, bounds = theta[core.spec.size :], bounds[core.spec.size :]
    sides = zip(labels(core.landscape.parts)[-len(theta) :], at_bounds(theta, bounds), strict=True)
    for label, side in sides if len(theta) else ():
        # the longest lengthscale of our own kernel only says that a feature does not matter
        if side and (given or not (side > 0 and "lengthscale" in label)):
            words = re.sub(r"^kernel\.((left|right|base|kernel|kernels\[\d+\])\.)*", "the kernel's ", label)
            yield (
                f"The optimal value found for {words} is close to its {'upper' if side > 0 else 'lower'} bound; to "
                "change that, give a Parameter with other bounds, or fixed=True, in a kernel or likelihood of your own."
            )


def _in_their_words(kernel: SklearnKernel) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        kernel._check_bounds_params()
    return [str(warning.message) for warning in caught]


def warn_if_unfinished(cores: Sequence[FittedCore], name: str, remedy: str) -> None:
    """Warn if learning or inference did not converge; of several models, about the first of them in full."""
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
