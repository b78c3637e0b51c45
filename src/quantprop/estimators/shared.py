"""The base of all estimators: how inputs are checked and settings become options."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Integral
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

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
from quantprop.estimators.first_kernel import SMOOTHEST_MARKOV, DefaultKernel, kernel_choices, kernel_spec
from quantprop.estimators.foreign import Source
from quantprop.estimators.translate import check_theirs
from quantprop.estimators.varying import kernel_of
from quantprop.inference.integrated import Integrated
from quantprop.inference.results import write
from quantprop.inference.stacked import Stack
from quantprop.kernels import Kernel, Terms
from quantprop.learning.objectives import as_objective
from quantprop.learning.starts import at_bounds, blindness, warn_of_blindness
from quantprop.methods import Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import DEFAULT_PROCESS
from quantprop.priors import Inducing, Markov, Process
from quantprop.priors.markov import applies
from quantprop.runtime.jobs import job_total, meet
from quantprop.runtime.memory import capacity
from quantprop.runtime.names import check_name

log = logging.getLogger("quantprop")

AUTO_POINTS = 512  # inducing points of process="auto"
MAX_CPU_WORK = 3e10  # operations of a dense sweep up to which "auto" is exact: 3,100 rows, some minutes a fit
MAX_DEVICE_WORK = 1e12  # the same on an accelerator: 10,000 rows
MAX_MEMORY_FRACTION = 0.5  # process="auto" chooses a dense prior up to this fraction of the memory
MIN_MARKOV_WORK = 1e9  # operations of a dense sweep beyond which a state-space form is faster: 1,000 rows
NAMED_PROCESSES = {"dense": DEFAULT_PROCESS, "markov": Markov()}
MAX_BOUNDS_SHOWN = 3  # parameters at a bound that one warning describes
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
    if cost.flops <= work and (have is None or cost.peak <= MAX_MEMORY_FRACTION * have):
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
        if isinstance(estimator.kernel, str) and estimator.kernel == "auto":
            raise AttributeError(f"{owner.__name__}.{self.method.__name__} updates a single model, but kernel='auto' "
                                 "stacks several: use a different kernel, or fit(X, y)")  # fmt: skip
        cores = estimator._cores()
        process = cores[0].fitted.model.process if cores else estimator.process
        if not (isinstance(process, Process) and process.takes_further_rows):
            raise AttributeError(
                f"{owner.__name__}.{self.method.__name__} needs a model with inducing points: use "
                f"process=Inducing(512), or fit(X, y) with all rows; got process={process!r}"
            )
        return MethodType(self.method, estimator)


@dataclass(eq=False, repr=False)
class GaussianProcess(LearnedAttributes, BaseEstimator):
    """The base of all estimators, with the parameters that they share."""

    kernel: Any = None
    _: KW_ONLY
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: Any = 0
    random_state: Any = None
    method: Any = "qp"
    objective: Any = "evidence"

    if TYPE_CHECKING:  # of the subclasses
        process: Any = field(init=False)
        hyperparameters: Any = field(init=False)
        _core: FittedCore = field(init=False)
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

    def _inside(self, core: FittedCore) -> str:
        return super()._inside(core) or ("that encodes the columns of a frame" if self._coding.names else "")

    def _validate_params(self) -> None:
        """As scikit-learn does, but an unknown name is reported together with the nearest known one."""
        for argument, rules in self._parameter_constraints.items():
            names = [name for rule in rules if isinstance(rule, StrOptions) for name in sorted(rule.options)]
            if names and str not in rules and isinstance(given := getattr(self, argument), str):
                check_name(f"{type(self).__name__}: {argument}", given, names)
        super()._validate_params()

    def _learned_from(self, X: Any, **more: Any) -> Any:
        """X as the kernel sees it, checked by scikit-learn; with y, if `more` has it and what to check of it, both."""
        self._validate_params()
        check_theirs(self.kernel)
        if isinstance(self.kernel, CompoundKernel):
            raise ValueError("kernel cannot be a CompoundKernel")
        refuse_masked(more.get("y"), "y")
        self._source = Source() if self._vectors() else Source([])
        self._coding = columns.coding_of(self.kernel, X, kernel_of(getattr(self, "varying", None)))
        found = self._validated(self._coding.matrix(X), **more)
        if self._coding.names:
            self.feature_names_in_ = np.array(self._coding.names, dtype=object)
        return found

    def _new_inputs(self, X: Any) -> np.ndarray:
        """Inputs to predict at, with the columns that were learned from."""
        self._check_fitted()
        found = self._coding.matrix(X)
        x = check_array(found) if self._coding.names else self._validated(found, reset=False)
        self._coding.warn_of_new_levels(X, x, type(self).__name__)
        return x

    def _validated(self, X: Any, **more: Any) -> Any:
        """Vectors as float64, other objects as the numbers that represent them; and y, if there is one."""
        vectors = self._vectors()
        if vectors:
            refuse_others(X, "X")
        try:
            found = validate_data(self, X, ensure_2d=vectors, dtype="numeric" if vectors else None, **more)
        except ValueError:
            columns.refuse_unusable(X)
            raise
        x, y = found if "y" in more else (found, None)
        if vectors:
            refuse_sizes(x := np.asarray(x, dtype=np.float64), "X", all_rows=False)
        else:
            x = self._source.encode(list(x))
        return (x, y) if "y" in more else x

    def _vectors(self) -> bool:
        return not isinstance(self.kernel, SklearnKernel) or self.kernel.requires_vector_input

    def _fit_options(self, max_sweeps: int) -> FitOptions:
        options = FitOptions(
            method_by_name(self.method), as_objective(self.objective), self.optimizer,
            self.n_restarts_optimizer, self.random_state, max_sweeps, self.hyperparameters == "integrated",
        )  # fmt: skip
        if options.integrated and options.optimizer is None:
            raise ValueError("hyperparameters='integrated' needs an optimizer to locate their posterior; with "
                             "optimizer=None use hyperparameters='point'")  # fmt: skip
        options.objective.check(options.method)
        return options

    def _check_auto(self) -> None:
        """Raise for settings that a stack of models does not have."""
        refused = {"hyperparameters": "integrated", "warm_start": True, "process": "markov"}
        for name, value in refused.items():
            given = getattr(self, name, None)
            if given == value or (name == "process" and isinstance(given, Markov)):
                raise ValueError(f"kernel='auto' stacks several models, which {name}={value!r} does not take: use a "
                                 "different kernel, such as 'shrunk' or 'additive'")  # fmt: skip

    def _kernel_spec(self, X: np.ndarray, default: DefaultKernel) -> Any:
        """The kernel to start from; a given one that is uninformative about the data is warned of."""
        if self.process == "markov" or isinstance(self.process, Markov):
            default = replace(default, correlation=SMOOTHEST_MARKOV)
        if isinstance(self.kernel, str) and self.kernel == "auto":
            self._check_auto()
            return kernel_choices(X, self._source, default, self._coding)
        spec = kernel_spec(self.kernel, X, self._source, default, self._coding)
        if self._given():
            remedy = "pass kernel=None, which chooses one from the data"
            warn_of_blindness(blindness(spec.kernel, X), X, type(self).__name__, remedy, 4)
        return spec

    def _process(self, spec: Any, X: np.ndarray) -> Process:
        meet()
        return chosen_process(self.process, job_total(len(X)), self._in_time(spec, X))

    def _in_time(self, spec: Any, X: np.ndarray) -> bool:
        """Return whether the process may be `Markov()`, and kernel and X have a state-space form."""
        may = self.process in ("auto", "markov") or isinstance(self.process, Markov)
        return may and applies(values(spec.kernel), X.shape[1])

    def _given(self) -> bool:
        """Return whether the kernel is the user's own."""
        return self.kernel is not None and not isinstance(self.kernel, str)

    def _warn(self) -> None:
        """One warning of each kind per fit. A parameter at its bound is named once for all models."""
        cores = self._cores()
        texts = list(_unfinished(cores, self._remedy))
        if self.optimizer is not None:
            bounds = list(dict.fromkeys(text for core in cores for text in _at_bounds(core, self._given())))
            more = f" And {len(bounds) - MAX_BOUNDS_SHOWN} more." if len(bounds) > MAX_BOUNDS_SHOWN else ""
            texts += [f"{' '.join(bounds[:MAX_BOUNDS_SHOWN])}{more}"] if bounds else []
        for text in texts:
            warnings.warn(f"{type(self).__name__}: {text}", ConvergenceWarning, stacklevel=3)


def _at_bounds(core: FittedCore, given: bool) -> Iterator[str]:
    """A sentence for each parameter at a bound; `given` if the kernel is the user's own. Of another kernel the text has
    no numbers, which would differ in every fold of a cross-validation.
    """
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
                "change it, pass a kernel or likelihood whose Parameter has other bounds, or fixed=True."
            )


def _in_their_words(kernel: SklearnKernel) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        kernel._check_bounds_params()
    return [str(warning.message) for warning in caught]


def _unfinished(cores: Sequence[FittedCore], remedy: str) -> Iterator[str]:
    """A sentence if learning or inference did not converge, on the first of several models; another on integration."""
    bad = [core.fitted for core in cores if not core.fitted.converged]
    if bad:
        share = f"{len(bad)} of {len(cores)} models did not converge, the first of them: " if len(cores) > 1 else ""
        yield f"{share}learning {bad[0].status}; inference {bad[0].solution.status}{remedy}"
    yield from dict.fromkeys(note for core in cores if (note := core.fitted.status.note))
    mixtures = [core.mixture for core in cores]
    rough = [one for one in mixtures if isinstance(one, Integrated) and not one.converged]
    if rough:
        yield f"integration {rough[0].status}"
    failed = [f"{name} ({why})" for one in mixtures if isinstance(one, Stack) for name, why in one.failed.items()]
    if failed:
        yield "excluded from the stack: " + "; ".join(dict.fromkeys(failed))
