"""A drop-in for scikit-learn's GaussianProcessRegressor, for any likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length

from quantprop import means
from quantprop.core.data import refuse_others, refuse_sizes
from quantprop.core.parameters import Parameter, values
from quantprop.estimators.columns import offset_mean
from quantprop.estimators.core import FittedCore, build
from quantprop.estimators.first_kernel import DefaultKernel, with_unknown_mean
from quantprop.estimators.forecasts import Forecasts
from quantprop.estimators.observations import (
    DEFAULT_ALPHA,
    LEVEL_REMEDY,
    NOISE_REMEDY,
    OF_NUMBERS,
    check_factor,
    codes,
    gaussian_by_name,
    is_on_real_line,
    ordered,
    relative_precisions,
    starting_cutpoints,
)
from quantprop.estimators.readable import Readable
from quantprop.estimators.rows import Rows, given_rows, mean_and_deviation, merged, with_weight, written_out
from quantprop.estimators.shaping import with_shape
from quantprop.estimators.shared import POSITIVE_INTEGER, GaussianProcess, WithFurtherRows
from quantprop.estimators.translate import KernelSpec
from quantprop.estimators.varying import check, with_varying
from quantprop.inference.terms import mean_of, terms_of
from quantprop.kernels import Constant, summands
from quantprop.learning.sizes import size_of
from quantprop.learning.starts import with_noise_from
from quantprop.likelihoods import ByOutput, Gaussian, Likelihood, Ordinal
from quantprop.model import Model


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessRegressor(Readable, Forecasts):
    """Gaussian-process regression for any kind of y, with scikit-learn's interface.

    Takes the arguments of scikit-learn's class of the same name. With your own kernel and the Gaussian likelihood,
    `alpha` is the fixed noise variance and results equal scikit-learn's.

    Otherwise Gaussian noise is learned, unlike in scikit-learn. It starts at a quarter of the variance of y,
    `likelihood_.scale` is its standard deviation, and the standard deviations, covariances and draws of `predict` and
    `sample_y` refer to y, as if the kernel had a WhiteKernel.

    Args:
        kernel: A kernel of scikit-learn or of this library. None is a constant times an RBF, both learned; "ard" has
            one lengthscale per feature, "shrunk" the same with priors that favour few relevant features, "additive" a
            curve per feature and a surface per pair; "auto" stacks models with these and a linear one. Any other text
            is a kernel formula, "se(age) + group(hospital) + linear(dose)".
            If y is not real, the constant has a weak prior, LogNormal(1, 10).
        optimizer: "fmin_l_bfgs_b" selects the library's own search, None leaves the hyperparameters as they are; or a
            function as in scikit-learn.
        n_restarts_optimizer: Number of additional starts, drawn at random within the bounds.
        random_state: Seed or generator of the additional starts.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        objective: The objective that learning maximises: "evidence", "loo", or "elbo" (VB).
        alpha: Fixed noise variance of likelihood="gaussian", one value or one per row. Without a kernel of yours the
            default learns the noise.
        normalize_y: If True, y is standardised first (real y only).
        copy_X_train: Accepted for compatibility and ignored: X is always copied.
        likelihood: "gaussian", "poisson", "negative-binomial", "binomial", "student-t", "double-exponential", "gamma",
            "beta", "censored", "weibull", "log-logistic", "zero-inflated-poisson", "zero-inflated-negative-binomial",
            "warped", "ordinal", or an object such as StudentT(df=4.0). "ordinal" takes any ordered labels, numbers or
            an ordered Categorical of pandas, and predicts labels.
        mean: "zero"; "constant" or "linear", an intercept and slopes with vague priors, integrated out; a number; a
            Parameter, which is learned; or a function of X.
        max_sweeps: Maximum number of sweeps per inference.
        process: Representation of the Gaussian process: "dense"; "markov" for long series (one column, time); a Process
            such as `Inducing(512)` for many rows; or "auto", dense while it fits in memory and time, then "markov" if
            kernel and X allow it, otherwise inducing points, with a warning.
        hyperparameters: "point" predicts at the learned values; "integrated" averages over their posterior
            (`integrate`).
        monotone: Constraints on the shape of f, by column: {"dose": +1} for increasing, −1 for decreasing; or
            "increasing", "decreasing", "convex", "concave", or a tuple of these. `constraint_` has the virtual rows and
            the largest probability of a wrong sign left.
        varying: A parameter of the likelihood as a function of X, with its kernel: {"scale": "se(x) + linear(z)"}. The
            kernel is one of the kinds that `kernel` may be. EP and QP only.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessRegressor
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = GaussianProcessRegressor(likelihood="poisson").fit(X, np.round(3 + 2 * np.sin(X[:, 0])))
    >>> model.predict_quantiles([[1.5]], [0.05, 0.95]).shape
    (1, 2)
    """

    alpha: Any = DEFAULT_ALPHA
    normalize_y: Any = False
    copy_X_train: Any = True
    likelihood: Any = "gaussian"
    mean: Any = "zero"
    max_sweeps: Any = 200
    process: Any = "dense"
    hyperparameters: Any = "point"
    monotone: Any = None
    varying: Any = None

    _parameter_constraints: ClassVar[dict] = {
        **GaussianProcess._parameter_constraints,
        **GaussianProcess._process_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither"), np.ndarray],
        "normalize_y": ["boolean"],
        "likelihood": [StrOptions(set(OF_NUMBERS)), Likelihood],
        "mean": [StrOptions({"zero", "constant", "linear"}), Real, Parameter, callable],
        "max_sweeps": [POSITIVE_INTEGER],
        "monotone": [Mapping, None],
        "varying": [Mapping, None],
    }

    def fit(self, X, y, sample_weight=None, *, exposure=None, trials=None):
        """Learn from rows X and observations y, as the likelihood codes them.

        A row of weight 2 counts as two equal rows; if the kernel contains white noise, which differs between equal
        rows, weights above 1 must be integers.
        """
        X, y = self._observed(X, y)
        X, y, rows = self._with_weight(X, y, sample_weight, exposure, trials)
        likelihood = self._likelihood(y, rows)
        known = self._offset(X)
        y = self._normalised(likelihood, y, rows, known)
        likelihood, mean, default = self._starts(likelihood, y, rows, known / self._y_std)
        spec, mean = self._with_mean(self._kernel_spec(X, default), mean, X, default)
        mean = offset_mean(self.kernel, mean, self._y_std, self._coding)
        if self.varying is not None:
            check(self)
            spec, likelihood = with_varying(self, spec, likelihood, X, rows.get("weights"))
        model = Model(spec.kernel, likelihood, mean, self._process(spec, X))
        X, y, rows = written_out(model, X, y, rows)
        x, distinct, which = X, y, np.arange(len(X))
        if self._named(Gaussian):  # known noise of 1e-10 leaves repeated rows few digits
            x, distinct, rows, which = merged(model, X, y, rows)
        options = self._fit_options(self.max_sweeps)
        core = build(options, spec, model, x, distinct, rows)
        if self._named(Gaussian):
            check_factor(core)
        self._finish(with_shape(self, core, options), X, y, which)
        self._warn()
        return self

    @WithFurtherRows
    def partial_fit(self, X, y, sample_weight=None, *, exposure=None, trials=None):
        """Take further rows into a model with inducing points (`process=Inducing(512)`); the first call learns one.

        The information of earlier rows about the values at the inducing points is not revised. Points, prior mean, the
        labels of "ordinal" and the scale of `normalize_y` stay as the first rows made them. The hyperparameters are
        learned again, unless `optimizer` is None. `X_train_`, `loo_` and `solution_`'s rows are the last ones.
        """
        if not self._cores():
            return self.fit(X, y, sample_weight, exposure=exposure, trials=trials)
        X = self._new_inputs(X)
        check_consistent_length(X, y)
        if self._labels is not None:
            y = codes(y, self._labels)
        elif self._columns() == 1:
            y = column_or_1d(y, dtype=np.float64)
        X, y, rows = self._with_weight(X, np.asarray(y), sample_weight, exposure, trials)
        y = (y - self._y_mean) / self._y_std
        prior = self._core.fitted.solution.as_prior()
        core = build(self._fit_options(self.max_sweeps), self._core.spec, prior, X, y, rows)
        self._finish(core, X, y, np.arange(len(X)))
        self._warn()
        return self

    def _finish(self, core: FittedCore, X: np.ndarray, y: np.ndarray, which: np.ndarray) -> None:
        """Store what was learned, and from what; `_rows` says which row of the model represents a training row."""
        self._core, self._rows = core, which
        self.X_train_, self.y_train_ = (X.copy() if self.copy_X_train else X), y
        self.log_marginal_likelihood_value_ = np.float64(core.fitted.objective_value)

    def _observed(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """X and y, checked; ordered labels as their codes, the labels themselves in `_labels`."""
        one = self._columns() == 1 and not self._named(Ordinal)
        if one:
            refuse_others(y, "y")
            if np.asarray(y).dtype.kind in "SU":
                raise ValueError("y must hold real numbers: got text")
            X, y = self._learned_from(X, y=y, multi_output=False, y_numeric=True)
            refuse_sizes(y, "y")
        else:
            X = self._learned_from(X)
            check_consistent_length(X, y)
        self._coding.check(len(X))
        self._labels = ordered(y) if self._named(Ordinal) else None
        return X, np.asarray(y, dtype=np.float64) if self._labels is None else codes(y, self._labels)

    def _columns(self) -> int:
        kind = OF_NUMBERS.get(self.likelihood) if isinstance(self.likelihood, str) else self.likelihood
        return getattr(kind, "columns", 1)

    def _with_weight(
        self, X: np.ndarray, y: np.ndarray, weights: Any, exposure: Any, trials: Any
    ) -> tuple[np.ndarray, np.ndarray, Rows]:
        """The rows whose weight is not zero; noise that differs between rows is passed as exposure."""
        if self._named(Gaussian) and np.ndim(self.alpha):
            exposure = relative_precisions(self.alpha, len(y))
        return with_weight(X, y, given_rows(weights=weights, exposure=exposure, trials=trials))

    def _likelihood(self, y: np.ndarray, rows: Rows) -> Likelihood:
        if isinstance(self.likelihood, ByOutput):
            raise ValueError("likelihood: GaussianProcessRegressor predicts one output; for several use quantprop.fit "
                             "and solution.predict_y(X, output=k)")  # fmt: skip
        if not isinstance(self.likelihood, str):
            return self.likelihood
        if self._named(Ordinal):
            return Ordinal(starting_cutpoints(y, len(self.classes_), rows.get("weights")))
        if self._named(Gaussian):
            return gaussian_by_name(self.kernel, self.alpha, y, self.normalize_y)
        return OF_NUMBERS[self.likelihood]()

    @property
    def _remedy(self) -> str:
        if not self._named(Gaussian):
            return ""
        return f"; the noise is alpha={self.alpha}: {NOISE_REMEDY}" if self._of_f() else f"; {LEVEL_REMEDY}"

    def _offset(self, X: np.ndarray) -> Any:
        """The part of f that is known from X; 0 without offsets."""
        mean = offset_mean(self.kernel, 0.0, 1.0, self._coding)
        return np.asarray(values(mean)(X)) if callable(mean) else 0.0

    def _normalised(self, likelihood: Likelihood, y: np.ndarray, rows: Rows, known: Any) -> np.ndarray:
        """y in units of its own mean and deviation, without the known part of f, if asked for; a row of weight 2
        counts as two.
        """
        self._y_mean, self._y_std = 0.0, 1.0
        if not self.normalize_y:
            return y
        if not is_on_real_line(likelihood):
            raise ValueError("normalize_y=True is supported only for likelihoods of any real y")
        self._y_mean, self._y_std = mean_and_deviation(y - known, rows.get("weights", 1.0))
        return (y - self._y_mean) / self._y_std

    def _starts(
        self, likelihood: Likelihood, y: np.ndarray, rows: Rows, known: Any
    ) -> tuple[Likelihood, Any, DefaultKernel]:
        """Likelihood, known mean and default kernel to start from; `known` is a known part of f. If f has the unit of
        y, their size is that of y; otherwise f has a scale of its own, and the default kernel's variance a weak prior.
        """
        weights = rows.get("weights")
        size = None if likelihood.noise_name is None else size_of(likelihood.response(y) - known, weights)
        mean = self.mean
        if isinstance(mean, str):  # the unknown part is in the kernel
            mean = 0.0 if mean == "zero" or size is None else size.centre
        if size is None:
            return likelihood, mean, DefaultKernel(weights=weights, residuals=likelihood.name == "poisson")
        level = mean.intercept if isinstance(mean, means.Linear) else 0.0 if callable(mean) else mean
        if self.optimizer is not None or isinstance(self.likelihood, str):
            likelihood = with_noise_from(likelihood, size)
        about = float(np.mean(values(level)))
        return likelihood, mean, DefaultKernel(size.variance_about(about), None, weights=weights)

    def _with_mean(self, spec: KernelSpec, mean: Any, X: np.ndarray, default: DefaultKernel) -> tuple[KernelSpec, Any]:
        """The kernel with an unknown mean, "constant" or "linear", integrated over; and the known part of the mean.

        The kernel of a Markov process cannot contain slopes in several columns: they are parameters of the mean there.
        """
        if not isinstance(self.mean, str):
            return spec, mean
        if self.mean == "linear" and self._coding.levels:
            raise ValueError("mean='linear' is linear in all columns, including codes of categories: use "
                             "mean='constant' and a linear term in the kernel, linear(column)")  # fmt: skip
        if self.mean == "linear" and X.shape[1] > 1 and self._in_time(spec, X):
            return spec, means.Linear(np.zeros(X.shape[1]), Parameter(mean))
        if self.mean == "constant" and any(isinstance(term, Constant) for term in summands(spec.kernel)):
            return spec, mean
        return with_unknown_mean(spec, self.mean, X, self._coding.names, default), mean

    @property
    def likelihood_(self):
        """The likelihood with its learned parameters."""
        return values(self._core.fitted.model.likelihood)

    @property
    def mean_(self):
        """The prior mean as learned; of an unknown one, which is integrated over, its posterior mean."""
        solution, mean = self.solution_, self._core.fitted.model.mean
        if self.mean in ("constant", "linear") and not solution._learned_mean.names:
            linear = [name for name in terms_of(solution.model.plain_kernel) if name.startswith("linear(")]
            return mean_of(solution, linear[-1] if self.mean == "linear" else None)
        return mean.value if isinstance(mean, Parameter) else mean

    @property
    def classes_(self) -> np.ndarray:
        """The labels of an ordinal y, in their order."""
        labels = getattr(self, "_labels", None)
        if labels is None:
            raise AttributeError(f"{type(self).__name__} has classes_ only if fitted with likelihood='ordinal'")
        return labels

    @property
    def loo_(self):
        """Leave-one-out log predictive densities of the training rows, per unit of y as it was given."""
        return self.posterior_.loo[self._rows] - np.log(self._y_std)
