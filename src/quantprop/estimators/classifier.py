"""A drop-in for scikit-learn's GaussianProcessClassifier."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.gaussian_process.kernels import CompoundKernel
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from quantprop.data import row_weights
from quantprop.estimators.core import Choice, Core, Default, Recipe, build
from quantprop.estimators.models import BinaryGaussianProcess, JointGaussianProcess, OneModel, Several
from quantprop.estimators.shared import GaussianProcess, without_theta, written_out
from quantprop.estimators.streaming import FurtherLabels, further
from quantprop.inference.classes import factors_of
from quantprop.kernels import Kernel, Terms
from quantprop.likelihoods import Heaviside, Likelihood, Logit, MultinomialProbit, Probit
from quantprop.likelihoods.binary import Binary
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.priors import Process
from quantprop.runtime.jobs import different

LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {"probit": Probit, "logit": Logit, "heaviside": Heaviside}


def _learned(recipe: Recipe, chosen: Choice, model: Model, start: Any, x: Any, y: Any, rows: dict) -> Core:
    return build(recipe, chosen, model, x, y, rows, start)


class GaussianProcessClassifier(FurtherLabels, ClassifierMixin, GaussianProcess):
    """Gaussian-process classification by quantile propagation, with scikit-learn's interface.

    Takes every argument of scikit-learn's class of the same name, with the same defaults but one: kernel=None is a
    constant times an RBF, both learned, the lengthscale from the typical distance between rows; "ard" has one for each
    feature, and other text is in the language of terms, "se(age) + group(hospital)", each term of columns of its own.
    The constant has a weak prior, LogNormal(1, 10), so that separable classes do not want it ever larger; a
    kernel that you give has none. In addition:

    - `method`: "qp", "ep", "power-ep", "vb", "laplace", or a Method.
    - `likelihood`: "probit", "logit", "heaviside", or a likelihood for two classes.
    - `multi_class`: "one_vs_rest", "one_vs_one", or "joint": one model of all classes, whose latent functions are
      learned together (`likelihoods.MultinomialProbit`); its probabilities need no normalising afterwards. For two
      classes all three are the same model.
    - `objective`: "evidence", "loo", or "elbo" (VB); what `log_marginal_likelihood` returns and learning maximises,
      together with the log density of a prior.
    - `process`: how the Gaussian process is held; "dense"; "markov" for long series (one column, time); or a Process
      (`Inducing(512)` for many rows). "auto" is dense while that fits in memory and time; after that "markov" where
      kernel and X allow it, else inducing points, with a warning.
    - `hyperparameters`: "point" predicts at the learned ones, "integrated" averages over their posterior (`integrate`).

    `max_iter_predict` bounds the sweeps of inference. `n_jobs` is accepted and has no effect: the classes of a
    multi-class problem share compiled programs, which is faster than processes.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessClassifier
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> model = GaussianProcessClassifier().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> model.predict([[-2.0], [2.0]]).tolist()
    ['no', 'yes']
    """

    _parameter_constraints: ClassVar[dict] = {
        "kernel": [SklearnKernel, Kernel, Terms, str, None],
        "optimizer": [StrOptions({"fmin_l_bfgs_b"}), callable, None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "max_iter_predict": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "copy_X_train": ["boolean"],
        "random_state": ["random_state"],
        "multi_class": [StrOptions({"one_vs_rest", "one_vs_one", "joint"})],
        "n_jobs": [Integral, None],
        "method": [str, Method],
        "likelihood": [StrOptions(set(LIKELIHOODS)), Binary],
        "objective": [StrOptions({"evidence", "loo", "elbo"})],
        "process": [StrOptions({"auto", "dense", "markov"}), Process],
        "hyperparameters": [StrOptions({"point", "integrated"})],
    }

    def __init__(
        self,
        kernel=None,
        *,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        max_iter_predict=100,
        warm_start=False,
        copy_X_train=True,
        random_state=None,
        multi_class="one_vs_rest",
        n_jobs=None,
        method="qp",
        likelihood="probit",
        objective="evidence",
        process="dense",
        hyperparameters="point",
    ):
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter_predict = max_iter_predict
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.multi_class = multi_class
        self.n_jobs = n_jobs
        self.method = method
        self.likelihood = likelihood
        self.objective = objective
        self.process = process
        self.hyperparameters = hyperparameters

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X and labels y of any type. A row of weight 2 counts as two equal rows; where the kernel
        contains white noise, which differs between equal rows, weights above 1 must be whole.
        """
        X, y = self._learned_from(X, y=y, multi_output=False)
        check_classification_targets(y)
        X, y, weights = self._counting(X, y, sample_weight)
        classes = different(y)
        if len(classes) < 2:
            raise ValueError(
                "GaussianProcessClassifier requires 2 or more distinct classes; got "
                f"{len(classes)} class{f' (only class {classes[0]} is present)' if len(classes) else ''}"
            )
        warm = self._last_sites() if self.warm_start else []
        self.classes_, self.n_classes_ = classes, len(classes)
        self._fit_all(X, y, weights, warm)
        self._warn(self._cores())
        return self

    def _counting(self, X: np.ndarray, y: np.ndarray, given: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """The rows whose weight is not zero, and their weights."""
        if given is None:
            return X, y, None
        weights = row_weights(given, len(X), "sample_weight")
        return X[weights > 0], y[weights > 0], weights[weights > 0]

    def _fit_all(self, X: np.ndarray, y: np.ndarray, weights: Any, warm: list) -> None:
        """One model for two classes or for all jointly; else one per class, or one per pair of classes."""
        recipe, chosen = self._recipe(self.max_iter_predict), self._choice(X, Default(weights=weights))
        if self._jointly():
            self.base_estimator_ = self._joint(recipe, chosen, X, y, weights, warm)
            self.log_marginal_likelihood_value_ = self.base_estimator_.log_marginal_likelihood_value_
            return
        likelihood = LIKELIHOODS[self.likelihood]() if isinstance(self.likelihood, str) else self.likelihood
        model = Model(chosen.translation.kernel, likelihood, process=self._process(chosen, X))
        if weights is not None:
            X, y, given = written_out(model, X, y, {"weights": weights})
            weights = given["weights"]

        tasks = self._tasks(y)
        if not all(rows.any() for rows, _ in tasks):
            raise ValueError("multi_class='one_vs_one' needs rows of every pair of classes to start with")
        starts = warm if len(warm) == len(tasks) else [None] * len(tasks)
        learners = [partial(_learned, recipe, chosen, model, start) for start in starts]
        self._finish([self._one(by, X, y, weights, task) for by, task in zip(learners, tasks, strict=True)])

    def _further_all(self, X: np.ndarray, y: np.ndarray, weights: Any) -> None:
        """Every model with the further rows that concern it."""
        recipe, pairs = self._recipe(self.max_iter_predict), zip(self._models(), self._tasks(y), strict=True)
        self._finish([
            self._one(partial(further, recipe, model.core), X, y, weights, task) if task[0].any() else model
            for model, task in pairs
        ])  # fmt: skip

    def _one(self, learner: Callable[..., Core], X: Any, y: Any, weights: Any, task: Any) -> BinaryGaussianProcess:
        rows, positive = task
        given = {} if weights is None else {"weights": weights[rows]}
        core = learner(X[rows], np.where(positive[rows], 1.0, -1.0), given)
        kept = X[rows].copy() if self.copy_X_train else X[rows]
        return BinaryGaussianProcess(core, np.array([0, 1]), kept, positive[rows].astype(int))

    def _finish(self, models: list[OneModel]) -> None:
        self.base_estimator_ = models[0] if self.n_classes_ == 2 else Several(models)
        self.log_marginal_likelihood_value_ = np.mean([m.log_marginal_likelihood_value_ for m in models])

    def _jointly(self) -> bool:
        return self.n_classes_ > 2 and self.multi_class == "joint"

    def _joint(
        self, recipe: Recipe, chosen: Choice, X: np.ndarray, y: np.ndarray, weights: Any, warm: list
    ) -> JointGaussianProcess:
        """One model of all classes."""
        if recipe.integrated:
            raise ValueError("hyperparameters='integrated' is not there for multi_class='joint': use 'one_vs_rest', or "
                             "hyperparameters='point'")  # fmt: skip
        if not (self.likelihood == "probit" or isinstance(self.likelihood, Probit)):
            raise ValueError(
                f"likelihood must be 'probit' with multi_class='joint'; got {self.likelihood!r}: use it, or one_vs_rest"
            )
        codes = np.searchsorted(self.classes_, y)
        model = Model(
            chosen.translation.kernel, MultinomialProbit(int(self.n_classes_)), process=self._process(chosen, X)
        )
        factors = factors_of(model, X, codes, weights)
        core = build(recipe, chosen, *factors, {}, warm[0] if len(warm) == 1 else None)
        if weights is not None:  # as the factors are of them
            X, codes = (np.repeat(rows, weights.astype(int), axis=0) for rows in (X, codes))
        return JointGaussianProcess(core, np.arange(self.n_classes_), X.copy() if self.copy_X_train else X, codes)

    def _tasks(self, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Which rows take part in each two-class problem, and which of all rows are positive in it."""
        every = np.ones(len(y), dtype=bool)
        if self.n_classes_ == 2:
            return [(every, y == self.classes_[1])]
        if self.multi_class == "one_vs_rest":
            return [(every, y == label) for label in self.classes_]
        pairs = itertools.combinations(self.classes_, 2)
        return [((y == a) | (y == b), y == b) for a, b in pairs]

    def _models(self) -> list[OneModel]:
        base = self.base_estimator_
        return base.estimators_ if isinstance(base, Several) else [base]

    def _cores(self) -> list[Core]:
        return [model.core for model in self._models()] if hasattr(self, "base_estimator_") else []

    def _last_sites(self) -> list:
        return [core.fitted.solution.sites for core in self._cores()]

    # --- what was learned --------------------------------------------------------------------------------------------

    @property
    def kernel_(self):
        """The learned kernel; for several classes a CompoundKernel of one per model."""
        models = self._models()
        return models[0].kernel_ if len(models) == 1 else CompoundKernel([m.kernel_ for m in models])

    @property
    def solution_(self):
        """The posterior of the latent function, or of all of them jointly; a list for several two-class models."""
        models = self._models()
        return models[0].solution_ if len(models) == 1 else [m.solution_ for m in models]

    @property
    def posterior_(self):
        """What predicts: `solution_`, or the average over hyperparameters; a list for several two-class models."""
        models = self._models()
        return models[0].posterior_ if len(models) == 1 else [m.posterior_ for m in models]

    @property
    def fitted_(self):
        """What learning returned: the learned model and how it ended; a list for several two-class models."""
        models = self._models()
        return models[0].fitted_ if len(models) == 1 else [m.fitted_ for m in models]

    @property
    def loo_(self):
        """Leave-one-out log predictive densities of the rows that were learned from, one column per model for several
        of them. Rows of weight 0 are left out, and with multi_class="joint" rows of weight w are there w times.
        """
        models = self._models()
        return models[0].posterior_.loo if len(models) == 1 else np.stack([m.posterior_.loo for m in models], axis=1)

    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """The objective at θ (of `kernel_`), with its exact gradient on request; for several classes the mean.

        For several classes θ is that of one kernel, used for all, or that of the compound kernel.
        """
        check_is_fitted(self)
        if theta is None:
            return without_theta(self.log_marginal_likelihood_value_, eval_gradient)
        theta, models = np.asarray(theta, dtype=np.float64), self._models()
        if len(models) == 1:
            return models[0].log_marginal_likelihood(theta, eval_gradient, clone_kernel)
        size = len(models[0].core.choice.translation.order)
        if len(theta) not in (size, size * len(models)):
            raise ValueError(
                f"Shape of theta must be either {size} or {size * len(models)}. Obtained theta with shape {len(theta)}."
            )
        shared = len(theta) == size
        parts = [theta] * len(models) if shared else np.split(theta, len(models))
        pairs = [m.log_marginal_likelihood(p, True, clone_kernel) for m, p in zip(models, parts, strict=True)]
        value = np.mean([pair[0] for pair in pairs])
        slopes = [pair[1] for pair in pairs]
        slope = np.mean(slopes, axis=0) if shared else np.concatenate(slopes) / len(models)
        return (value, slope) if eval_gradient else value

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, X):
        """The most probable class of each row."""
        if self._by_pairs():
            return self.classes_[np.argmax(self._votes(X), axis=1)]
        return self.classes_[np.argmax(self.predict_log_proba(X), axis=1)]

    def predict_proba(self, X):
        """Probabilities of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """Log probabilities of the classes, exact far into the tails."""
        check_is_fitted(self)
        if self._by_pairs():
            raise ValueError(
                "one_vs_one multi-class mode does not support predicting probability estimates. "
                "Use one_vs_rest mode instead."
            )
        x, models = self._new_inputs(X), self._models()
        if len(models) == 1:
            return models[0].log_proba(x)
        each = np.stack([m.log_proba(x)[:, 1] for m in models], axis=1)
        return each - np.logaddexp.reduce(each, axis=1, keepdims=True)

    def _by_pairs(self) -> bool:
        check_is_fitted(self)
        return self.n_classes_ > 2 and self.multi_class == "one_vs_one"

    def _votes(self, X: Any) -> np.ndarray:
        """Won pairs of each class, ties settled by the sum of its probabilities."""
        x = self._new_inputs(X)
        score = np.zeros((len(x), self.n_classes_))
        for (a, b), model in zip(itertools.combinations(range(self.n_classes_), 2), self._models(), strict=True):
            positive = np.exp(model.log_proba(x)[:, 1])
            score[:, a] += (positive < 0.5) + 1e-3 * (1.0 - positive) / self.n_classes_
            score[:, b] += (positive >= 0.5) + 1e-3 * positive / self.n_classes_
        return score

    def latent_mean_and_variance(self, X):
        """Mean and variance of the latent function (two classes; `latent` serves any number)."""
        check_is_fitted(self)
        if self.n_classes_ > 2:
            raise ValueError(
                "Returning the mean and variance of the latent function f is only supported for binary "
                f"classification, received {self.n_classes_} classes; use latent(X), which returns those of every class"
            )
        normal = self._models()[0].posterior_.predict(self._new_inputs(X))
        return normal.mean, normal.variance

    def latent(self, X):
        """Means and variances of all latent functions: one column per two-class model, in their order, or per class of
        a joint one.
        """
        check_is_fitted(self)
        x = self._new_inputs(X)
        if self._jointly():
            latent = self._models()[0].posterior_.predict(x)
            return latent.mean, latent.variance
        normals = [m.posterior_.predict(x) for m in self._models()]
        return np.stack([n.mean for n in normals], axis=1), np.stack([n.variance for n in normals], axis=1)
