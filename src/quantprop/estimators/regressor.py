"""A drop-in for scikit-learn's GaussianProcessRegressor, for any likelihood."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quantprop import likelihoods, means
from quantprop.data import refuse_others, refuse_sizes, row_weights
from quantprop.estimators.core import Choice, Core, Default, build, with_mean
from quantprop.estimators.forecasts import Forecasts
from quantprop.estimators.labels import codes, ordered, starting_cutpoints
from quantprop.estimators.noise import ALPHA, LEVEL, REMEDY, check_factor, gaussian_by_name
from quantprop.estimators.shared import GaussianProcess, at_theta, without_theta, written_out
from quantprop.estimators.streaming import FurtherObservations
from quantprop.estimators.terms import unknown_mean
from quantprop.inference.task import has_white_noise
from quantprop.inference.terms import mean_of, terms_of
from quantprop.kernels import Constant, Kernel, Terms, summands
from quantprop.learning.starts import size_of, with_noise_from
from quantprop.likelihoods import Likelihood
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.parameters import Parameter, values
from quantprop.priors import Process
from quantprop.runtime.jobs import sums

REAL = (likelihoods.Gaussian, likelihoods.StudentT, likelihoods.DoubleExponential, likelihoods.Warped)  # y in (−∞, ∞)
LIKELIHOODS: dict[str, Any] = {
    "gaussian": None,
    "poisson": likelihoods.Poisson,
    "negative-binomial": likelihoods.NegativeBinomial,
    "binomial": likelihoods.Binomial,
    "student-t": likelihoods.StudentT,
    "double-exponential": likelihoods.DoubleExponential,
    "gamma": likelihoods.Gamma,
    "beta": likelihoods.Beta,
    "censored": likelihoods.Censored,
    "weibull": likelihoods.Weibull,
    "log-logistic": likelihoods.LogLogistic,
    "zero-inflated-poisson": likelihoods.ZeroInflatedPoisson,
    "zero-inflated-negative-binomial": likelihoods.ZeroInflatedNegativeBinomial,
    "warped": likelihoods.Warped,
    "ordinal": None,
}


class GaussianProcessRegressor(Forecasts, FurtherObservations, RegressorMixin, GaussianProcess):
    """Gaussian-process regression for any kind of y, with scikit-learn's interface.

    Takes the arguments of scikit-learn's class of the same name. With a kernel of yours and the Gaussian likelihood
    `alpha` is the fixed noise variance and results equal scikit-learn's. With kernel=None the kernel is a constant
    times an RBF, both learned, from the size of y and the typical distance between rows ("ard" has a lengthscale for
    each feature). Other text is in the language of terms, "se(age) + group(hospital) + linear(dose)", each term of
    columns of its own. Where y is no real number the constant has a weak prior, LogNormal(1, 10).

    Without a kernel of yours Gaussian noise is learned too, unlike in scikit-learn: it starts at a quarter of the
    variance of y, `likelihood_.scale` is its standard deviation, and the deviations, covariances and draws of `predict`
    and `sample_y` are those of y, as if the kernel had a WhiteKernel. An `alpha` other than the default, or a term
    white(), is the noise instead. In addition:

    - `likelihood`: a name or a likelihood; "gaussian", "poisson", "negative-binomial", "binomial", "student-t",
      "double-exponential", "gamma", "beta", "censored", "weibull", "log-logistic", "zero-inflated-poisson",
      "zero-inflated-negative-binomial", "warped", "ordinal". An object says more: StudentT(df=4.0).
      "ordinal" takes any labels that have an order: numbers, or an ordered Categorical of pandas; its cutpoints start
      from how often each label occurs, and predictions are labels. Noise is learned (but for "gaussian" by name with a
      kernel of yours), from half the spread of y unless a scale is given.
    - `mean`: "zero"; "constant" or "linear", an intercept and slopes with wide priors, integrated over as terms of the
      kernel, so that predictions and effects have their uncertainty; a number; a Parameter, which is learned; or a
      function of X.
    - `method`: "qp", "ep", "power-ep", "vb", "laplace", or a Method.
    - `objective`: "evidence", "loo", or "elbo" (VB).
    - `process`: how the Gaussian process is held; "dense"; "markov" for long series (one column, time); or a Process
      (`Inducing(512)` for many rows). "auto" is dense while that fits in memory and time; after that "markov" where
      kernel and X allow it, else inducing points, with a warning.
    - `max_sweeps`: the most sweeps of one inference.
    - `hyperparameters`: "point" predicts at the learned ones, "integrated" averages over their posterior (`integrate`).

    >>> import numpy as np
    >>> from quantprop import GaussianProcessRegressor
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = GaussianProcessRegressor(likelihood="poisson").fit(X, np.round(3 + 2 * np.sin(X[:, 0])))
    >>> model.predict_quantiles([[1.5]], [0.05, 0.95]).shape
    (1, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        "kernel": [SklearnKernel, Kernel, Terms, str, None],
        "alpha": [Interval(Real, 0, None, closed="neither"), np.ndarray],
        "optimizer": [StrOptions({"fmin_l_bfgs_b"}), callable, None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "copy_X_train": ["boolean"],
        "random_state": ["random_state"],
        "likelihood": [StrOptions(set(LIKELIHOODS)), Likelihood],
        "mean": [StrOptions({"zero", "constant", "linear"}), Real, Parameter, callable],
        "method": [str, Method],
        "objective": [StrOptions({"evidence", "loo", "elbo"})],
        "process": [StrOptions({"auto", "dense", "markov"}), Process],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
        "hyperparameters": [StrOptions({"point", "integrated"})],
    }

    def __init__(
        self,
        kernel=None,
        *,
        alpha=ALPHA,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        normalize_y=False,
        copy_X_train=True,
        random_state=None,
        likelihood="gaussian",
        mean="zero",
        method="qp",
        objective="evidence",
        max_sweeps=200,
        process="dense",
        hyperparameters="point",
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.normalize_y = normalize_y
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.likelihood = likelihood
        self.mean = mean
        self.method = method
        self.objective = objective
        self.max_sweeps = max_sweeps
        self.process = process
        self.hyperparameters = hyperparameters

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, *, exposure=None, trials=None):
        """Learn from rows X and observations y, as the likelihood codes them.

        A row of weight 2 counts as two equal rows; where the kernel contains white noise, which differs between equal
        rows, weights above 1 must be whole.
        """
        X, y = self._observed(X, y)
        likelihood = self._likelihood(y, sample_weight)
        X, y, rows = self._given_rows(X, y, sample_weight, exposure, trials)
        recipe, normalised = self._recipe(self.max_sweeps), self._normalised(y, rows)
        likelihood, mean, default = self._starts(likelihood, normalised, rows)
        chosen, mean = self._with_mean(self._choice(X, default), mean, X, default)
        model = Model(chosen.translation.kernel, likelihood, mean, self._process(chosen, X))
        if sample_weight is not None:
            X, y, rows = written_out(model, X, y, rows)
        y = self._normalised(y, rows)
        x, distinct, rows, which = self._distinct(model, X, y, rows)
        core = build(recipe, chosen, model, x, distinct, rows)
        if self._gaussian():
            check_factor(core)
        self._finish(core, X, y, which)
        self._warn([self._core])
        return self

    def _finish(self, core: Core, X: np.ndarray, y: np.ndarray, which: np.ndarray) -> None:
        """Take over what was learned, and from what; `_rows` says which row of the model stands for a training row."""
        self._core, self._rows = core, which
        self.X_train_, self.y_train_ = (X.copy() if self.copy_X_train else X), y
        self.log_marginal_likelihood_value_ = np.float64(core.fitted.objective_value)

    def _cores(self) -> list[Core]:
        return [self._core] if hasattr(self, "_core") else []

    def _observed(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """X and y, checked; ordered labels as whole numbers, in `_labels` what they stand for."""
        self._validate_params()  # before the likelihood says how many columns y has
        one = self._columns() == 1 and not self._ordinal()
        if one:
            refuse_others(y, "y")
        X, checked = self._learned_from(X, **({"y": y, "multi_output": False, "y_numeric": True} if one else {}))
        self._labels = None
        if one:
            refuse_sizes(checked, "y")
            return X, checked
        check_consistent_length(X, y)
        if not self._ordinal():
            return X, np.asarray(y, dtype=np.float64)
        self._labels = ordered(y)
        return X, codes(y, self._labels)

    def _columns(self) -> int:
        kind = LIKELIHOODS[self.likelihood] if isinstance(self.likelihood, str) else self.likelihood
        return 1 if kind is None else kind.columns

    def _given_rows(
        self, X: np.ndarray, y: np.ndarray, weights: Any, exposure: Any, trials: Any
    ) -> tuple[np.ndarray, np.ndarray, dict]:
        """The rows whose weight is not zero, with all that was given for each of them."""
        noise = self._precisions(len(y))
        rows = {"weights": weights, "exposure": exposure if noise is None else noise, "trials": trials}
        rows = {name: value for name, value in rows.items() if value is not None}
        if weights is None:
            return X, y, rows
        weights = row_weights(weights, len(X), "sample_weight")
        kept = weights > 0
        rows = {**rows, "weights": weights}
        rows = {name: np.broadcast_to(value, (len(X),))[kept] for name, value in rows.items()}
        return X[kept], y[kept], rows

    def _distinct(
        self, model: Model, X: np.ndarray, y: np.ndarray, rows: dict
    ) -> tuple[np.ndarray, np.ndarray, dict, np.ndarray]:
        """Equal rows (x, y and noise) as one that counts for all; and which one stands for each row.

        For the Gaussian likelihood given by name only: little noise leaves repeated rows few digits. Not with white
        noise in the kernel, nor with inducing points: equal rows have values of their own then, each of them.
        """
        if not self._gaussian() or model.process.copies_apart:
            return X, y, rows, np.arange(len(X))
        noise, weights = (np.broadcast_to(rows.get(name, 1.0), (len(X),)) for name in ("exposure", "weights"))
        _, first, which = np.unique(np.column_stack([X, y, noise]), axis=0, return_index=True, return_inverse=True)
        if len(first) == len(X) or has_white_noise(model.plain_kernel, X):
            return X, y, rows, np.arange(len(X))
        order = np.argsort(first)  # distinct rows in the order of their first appearance
        first, which = first[order], np.argsort(order)[which.ravel()]
        kept = {name: np.broadcast_to(value, (len(X),))[first] for name, value in rows.items()}
        return X[first], y[first], {**kept, "weights": np.bincount(which, weights)}, which

    def _named(self, name: str) -> bool:
        return isinstance(self.likelihood, str) and self.likelihood == name

    def _gaussian(self) -> bool:
        return self._named("gaussian")

    def _ordinal(self) -> bool:
        return self._named("ordinal")

    def _likelihood(self, y: np.ndarray, weights: Any) -> Likelihood:
        if isinstance(self.likelihood, likelihoods.ByOutput):
            raise ValueError("likelihood: GaussianProcessRegressor predicts one output; several are learned by "
                             "quantprop.fit, whose solution predicts each by predict_y(X, output=k)")  # fmt: skip
        if not isinstance(self.likelihood, str):
            return self.likelihood
        if self._ordinal():
            return likelihoods.Ordinal(starting_cutpoints(y, len(self.classes_), weights))
        if not self._gaussian():
            return LIKELIHOODS[self.likelihood]()
        return gaussian_by_name(self.kernel, self.alpha, y, self.normalize_y)

    def _of_f(self) -> bool:
        """Whether predictions are of f, as in scikit-learn: with known Gaussian noise."""
        learned: Any = self._core.fitted.model.likelihood
        return self._gaussian() and learned.scale.fixed

    @property
    def _remedy(self) -> str:
        return f"; the noise is alpha={self.alpha}: {REMEDY}" if self._of_f() else f"; {LEVEL}" * self._gaussian()

    def _precisions(self, n: int) -> np.ndarray | None:
        """Of Gaussian noise that differs between rows, relative to that of its mean variance, which new rows have."""
        if not self._gaussian() or np.ndim(self.alpha) == 0:
            return None
        alpha = np.asarray(self.alpha, dtype=np.float64)
        if alpha.shape != (n,):
            raise ValueError(f"alpha must be a scalar or an array with same number of entries as y. "
                             f"({alpha.shape[0] if alpha.ndim else 0} != {n})")  # fmt: skip
        return alpha.mean() / alpha

    def _normalised(self, y: np.ndarray, rows: dict) -> np.ndarray:
        """y in units of its own mean and deviation, if asked for (real y only); a row of weight 2 counts as two."""
        self._y_mean, self._y_std = 0.0, 1.0
        if not self.normalize_y:
            return y
        real = any(map(self._named, ("gaussian", "student-t", "double-exponential", "warped")))
        if not (real or isinstance(self.likelihood, REAL)):
            raise ValueError("normalize_y=True is for y on the whole real line")
        weights = np.broadcast_to(rows.get("weights", 1.0), y.shape)
        all_y, count = sums(np.sum(weights * y), np.sum(weights))
        self._y_mean = float(all_y / count)
        spread = float(np.sqrt(sums(np.sum(weights * (y - self._y_mean) ** 2))[0] / count))
        self._y_std = spread if spread > 0 else 1.0
        return (y - self._y_mean) / self._y_std

    def _starts(self, likelihood: Likelihood, y: np.ndarray, rows: dict) -> tuple[Likelihood, Any, Default]:
        """Where learning starts. Where f has the unit of y, noise, an unknown mean and the default kernel start at the
        size of y; else f has a scale of its own, and the default kernel's variance a weak prior.
        """
        size = None if likelihood.noise_name is None else size_of(likelihood.response(y), rows.get("weights"))
        centre = 0.0 if size is None else size.centre
        kinds = {"zero": 0.0, "constant": centre, "linear": centre}  # what is not known about it is in the kernel
        mean = kinds[self.mean] if isinstance(self.mean, str) else self.mean
        if size is None:
            return likelihood, mean, Default(weights=rows.get("weights"))
        level = mean.intercept if isinstance(mean, means.Linear) else 0.0 if callable(mean) else mean
        about = float(np.mean(values(level)))
        kept = self.optimizer is None and not isinstance(self.likelihood, str)
        started = likelihood if kept else with_noise_from(likelihood, size)
        return started, mean, Default(size.variance_about(about), None, weights=rows.get("weights"))

    def _with_mean(self, chosen: Choice, mean: Any, X: np.ndarray, default: Default) -> tuple[Choice, Any]:
        """The kernel with a mean that is not known, "constant" or "linear", integrated over; and what is known of it.

        Markov has no place for slopes in several columns in its kernel: there they are parameters of the mean.
        """
        if not isinstance(self.mean, str):
            return chosen, mean
        if self.mean == "linear" and self._coding.levels:
            raise ValueError("mean='linear' is linear in all columns, codes of categories too: use mean='constant' and "
                             "a linear term in the kernel, linear(column)")  # fmt: skip
        if self.mean == "linear" and X.shape[1] > 1 and self._in_time(chosen, X):
            return chosen, means.Linear(np.zeros(X.shape[1]), Parameter(mean))
        if self.mean == "constant" and any(isinstance(term, Constant) for term in summands(chosen.translation.kernel)):
            return chosen, mean
        return with_mean(chosen, *unknown_mean(self.mean, X, self._coding.names, default)), mean

    # --- what was learned --------------------------------------------------------------------------------------------

    @property
    def kernel_(self):
        """The learned kernel, a scikit-learn one where it has a counterpart."""
        return self._core.kernel

    @property
    def solution_(self):
        """The posterior of the latent function at the learned hyperparameters. With Gaussian noise by name, its X holds
        equal training rows once.
        """
        return self._core.fitted.solution

    @property
    def posterior_(self):
        """What predicts: `solution_`, or the average over hyperparameters."""
        return self._core.posterior

    @property
    def fitted_(self):
        """What learning returned: the learned model and how it ended."""
        return self._core.fitted

    @property
    def likelihood_(self):
        """The likelihood with its learned numbers."""
        return values(self._core.fitted.model.likelihood)

    @property
    def mean_(self):
        """The prior mean as learned; of an unknown one, which is integrated over, its posterior mean."""
        solution, mean = self.solution_, self._core.fitted.model.mean
        if self.mean in ("constant", "linear") and not isinstance(mean, (Parameter, means.Linear)):
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

    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """The objective at θ (of `kernel_`), with its exact gradient on request; likelihood and mean as learned."""
        check_is_fitted(self, "log_marginal_likelihood_value_")
        if theta is None:
            return without_theta(self.log_marginal_likelihood_value_, eval_gradient)
        result, self._core = at_theta(self._core, theta, eval_gradient, clone_kernel)
        return result
