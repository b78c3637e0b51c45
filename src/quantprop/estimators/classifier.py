"""A drop-in for scikit-learn's GaussianProcessClassifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_consistent_length

from quantprop.estimators.columns import offset_mean, refuse_offsets
from quantprop.estimators.core import FittedCore, build
from quantprop.estimators.first_kernel import DefaultKernel
from quantprop.estimators.observations import OF_CLASSES, codes
from quantprop.estimators.readable import Readable
from quantprop.estimators.rows import Rows, given_rows, with_weight, written_out
from quantprop.estimators.shaping import shapes_of, with_shape
from quantprop.estimators.shared import POSITIVE_INTEGER, GaussianProcess, WithFurtherRows
from quantprop.estimators.translate import KernelSpec
from quantprop.estimators.two_class import MultiClassModels, two_class_problems, votes
from quantprop.inference.classes import factors_of
from quantprop.likelihoods import MultinomialProbit, Probit
from quantprop.likelihoods.binary import Binary
from quantprop.model import Model
from quantprop.runtime.jobs import different


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessClassifier(ClassifierMixin, Readable, GaussianProcess):
    """Gaussian-process classification by quantile propagation, with scikit-learn's interface.

    Takes every argument of scikit-learn's class of the same name, with the same defaults except for the kernel, which
    is learned even if none is given. The classes of a multi-class problem share compiled programs.

    Args:
        kernel: A kernel of scikit-learn or of this library. None is a constant times an RBF, both learned, with a weak
            prior on the constant, LogNormal(1, 10), which stops it from diverging on separable classes. "ard" has one
            lengthscale per feature, "shrunk" the same with priors that favour few relevant features, "additive" a curve
            per feature and a surface per pair; "auto" stacks models with these and a linear one. Any other text is a
            kernel formula, "se(age) + group(hospital)".
        optimizer: "fmin_l_bfgs_b" selects the library's own search, None leaves the hyperparameters as they are; or a
            function as in scikit-learn.
        n_restarts_optimizer: Number of additional starts, drawn at random within the bounds.
        random_state: Seed or generator of the additional starts.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        objective: The objective that learning maximises and `log_marginal_likelihood` returns: "evidence", "loo", or
            "elbo" (VB). Log prior densities are added.
        max_iter_predict: Maximum number of sweeps per inference.
        warm_start: If True, the next fit starts from the sites of the last one.
        copy_X_train: Accepted for compatibility and ignored: X is always copied.
        multi_class: "one_vs_rest", "one_vs_one", or "joint": one model of all classes
            (`likelihoods.MultinomialProbit`), whose probabilities need no normalisation. For two classes all three are
            the same model.
        n_jobs: Accepted for compatibility and ignored.
        likelihood: "probit", "logit", "heaviside", or a likelihood for two classes.
        process: Representation of the Gaussian process: "dense"; "markov" for long series (one column, time); a Process
            such as `Inducing(512)` for many rows; or "auto", dense while it fits in memory and time, then "markov" if
            kernel and X allow it, otherwise inducing points, with a warning.
        hyperparameters: "point" predicts at the learned values; "integrated" averages over their posterior
            (`integrate`).
        monotone: Constraints on the shape of f for two classes, as in `GaussianProcessRegressor`.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessClassifier
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> model = GaussianProcessClassifier().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> model.predict([[-2.0], [2.0]]).tolist()
    ['no', 'yes']
    """

    max_iter_predict: Any = 100
    warm_start: Any = False
    copy_X_train: Any = True
    multi_class: Any = "one_vs_rest"
    n_jobs: Any = None
    likelihood: Any = "probit"
    process: Any = "dense"
    hyperparameters: Any = "point"
    monotone: Any = None

    _parameter_constraints: ClassVar[dict] = {
        **GaussianProcess._parameter_constraints,
        **GaussianProcess._process_constraints,
        "max_iter_predict": [POSITIVE_INTEGER],
        "warm_start": ["boolean"],
        "multi_class": [StrOptions({"one_vs_rest", "one_vs_one", "joint"})],
        "n_jobs": [Integral, None],
        "likelihood": [StrOptions(set(OF_CLASSES)), Binary],
        "monotone": [Mapping, None],
    }

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X and labels y of any type. A row of weight 2 counts as two equal rows; if the kernel
        contains white noise, which differs between equal rows, weights above 1 must be integers.
        """
        X, y = self._learned_from(X, y=y, multi_output=False)
        self._coding.check(len(X))
        check_classification_targets(y)
        X, y, rows = with_weight(X, y, given_rows(weights=sample_weight))
        classes = different(y)
        if len(classes) < 2:
            raise ValueError(
                "GaussianProcessClassifier requires 2 or more distinct classes; got "
                f"{len(classes)} class{f' (only class {classes[0]} is present)' if len(classes) else ''}"
            )
        if len(classes) > 2 and shapes_of(self):
            raise ValueError(f"monotone is a constraint on two classes; got {len(classes)}: merge classes, or model "
                             "ordered ones by GaussianProcessRegressor(likelihood='ordinal')")  # fmt: skip
        warm = [core.fitted.solution.sites for core in self._cores()] if self.warm_start else []
        self._finish(self._shaped(list(starmap(build, self._problems(X, y, rows, classes, warm)))))
        self._warn()
        return self

    @WithFurtherRows
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Take further rows into a model with inducing points (`process=Inducing(512)`); the first call learns one.

        The first call needs `classes`, all labels that will come. The information of earlier rows about the values at
        the inducing points is not revised, and these points stay where the first rows put them. The hyperparameters are
        learned again, unless `optimizer` is None. `X_train_`, `loo_` and `solution_`'s rows are the last ones.
        """
        first = not self._cores()
        labels = _labels(None if first else self.classes_, classes)
        if first:
            X, y = self._learned_from(X, y=y, multi_output=False)
            self._coding.check(len(X))
        else:
            X, y = self._new_inputs(X), column_or_1d(y)
            check_consistent_length(X, y)
        check_classification_targets(y)
        codes(y, labels)  # raises for an unknown label
        X, y, rows = with_weight(X, y, given_rows(weights=sample_weight))
        if first:
            cores = self._shaped(list(starmap(build, self._problems(X, y, rows, labels, []))))
        else:
            cores = self._cores()
            for i, (chosen, positive) in enumerate(two_class_problems(y, labels, self.multi_class)):
                if chosen.any():
                    spec, prior = cores[i].spec, cores[i].fitted.solution.as_prior()
                    cores[i] = build(*self._two_classes(spec, prior, X, rows, chosen, positive))
        self._finish(cores)
        self._warn()
        return self

    def _shaped(self, cores: list[FittedCore]) -> list[FittedCore]:
        options = self._fit_options(self.max_iter_predict)
        return [with_shape(self, core, options) for core in cores]

    def _problems(self, X: np.ndarray, y: np.ndarray, rows: Rows, classes: np.ndarray, warm: list) -> Iterator[tuple]:
        """The models to learn, as arguments of `build`: one model for two classes or for all jointly; otherwise one
        per class, or one per pair of classes.
        """
        self.classes_, self.n_classes_ = classes, len(classes)
        if len(classes) > 2:
            refuse_offsets(self.kernel, "with more than two classes", "fit one class against the others")
        spec = self._kernel_spec(X, DefaultKernel(weights=rows.get("weights")))
        process = self._process(spec, X)
        if self._jointly():
            if self.hyperparameters == "integrated":
                raise ValueError("hyperparameters='integrated' is not supported with multi_class='joint'; use "
                                 "multi_class='one_vs_rest' or hyperparameters='point'")  # fmt: skip
            if not (self.likelihood == "probit" or isinstance(self.likelihood, Probit)):
                raise ValueError(f"likelihood must be 'probit' with multi_class='joint'; got {self.likelihood!r}: use "
                                 "'probit', or multi_class='one_vs_rest'")  # fmt: skip
            model = Model(spec.kernel, MultinomialProbit(self.n_classes_), process=process)
            factors = factors_of(model, X, np.searchsorted(classes, y), rows.get("weights"))
            start = warm[0] if len(warm) == 1 else None
            yield self._fit_options(self.max_iter_predict), spec, *factors, {}, start
            return
        likelihood = OF_CLASSES[self.likelihood]() if isinstance(self.likelihood, str) else self.likelihood
        model = Model(spec.kernel, likelihood, offset_mean(self.kernel, 0.0, 1.0, self._coding), process)
        X, y, rows = written_out(model, X, y, rows)
        problems = two_class_problems(y, classes, self.multi_class)
        if not all(chosen.any() for chosen, _ in problems):
            raise ValueError("multi_class='one_vs_one' needs rows of every pair of classes in its first call")
        starts = warm if len(warm) == len(problems) else [None] * len(problems)
        for (chosen, positive), start in zip(problems, starts, strict=True):
            yield *self._two_classes(spec, model, X, rows, chosen, positive), start

    def _two_classes(
        self, spec: KernelSpec, model: Model, X: np.ndarray, rows: Rows, chosen: np.ndarray, positive: np.ndarray
    ) -> tuple:
        """Arguments of `build` for a two-class problem: the rows that take part, and those that are positive."""
        rows = {name: value[chosen] for name, value in rows.items()}
        signs = np.where(positive[chosen], 1.0, -1.0)
        return self._fit_options(self.max_iter_predict), spec, model, X[chosen], signs, rows

    def _finish(self, cores: list[FittedCore]) -> None:
        self.base_estimator_: Any = cores[0] if len(cores) == 1 else MultiClassModels(cores)
        self.log_marginal_likelihood_value_ = np.mean([core.fitted.objective_value for core in cores])

    def _jointly(self) -> bool:
        return self.n_classes_ > 2 and self.multi_class == "joint"

    def _cores(self) -> list[FittedCore]:
        base = getattr(self, "base_estimator_", None)
        return list(base.estimators_) if isinstance(base, MultiClassModels) else [] if base is None else [base]

    @property
    def loo_(self):
        """Leave-one-out log predictive densities of the training rows, one column per model if there are several.
        Rows of weight 0 are omitted, and with multi_class="joint" rows of weight w appear w times.
        """
        return self._each(lambda core: core.posterior.loo, lambda columns: np.stack(columns, axis=1))

    def predict(self, X):
        """The most probable class of each row."""
        self._check_fitted()
        if self._by_pairs():
            return self.classes_[np.argmax(votes(self._cores(), self._new_inputs(X), self.n_classes_), axis=1)]
        return self.classes_[np.argmax(self.predict_log_proba(X), axis=1)]

    def predict_proba(self, X):
        """Probabilities of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """Log probabilities of the classes, exact far into the tails."""
        self._check_fitted()
        if self._by_pairs():
            raise ValueError(
                "one_vs_one multi-class mode does not support predicting probability estimates. "
                "Use one_vs_rest mode instead."
            )
        x, models = self._new_inputs(X), self._cores()
        if len(models) == 1:
            return models[0].log_proba(x)
        each = np.stack([model.log_proba(x)[:, 1] for model in models], axis=1)
        return each - np.logaddexp.reduce(each, axis=1, keepdims=True)

    def _inside(self, core: FittedCore) -> str:
        as_coded = self.classes_.tolist() in ([-1, 1], [0, 1])
        return super()._inside(core) if as_coded else "that codes labels"

    def _by_pairs(self) -> bool:
        return self.n_classes_ > 2 and self.multi_class == "one_vs_one"

    def latent_mean_and_variance(self, X):
        """Mean and variance of the latent function (two classes; `latent` serves any number)."""
        self._check_fitted()
        if self.n_classes_ > 2:
            raise ValueError(
                "Returning the mean and variance of the latent function f is only supported for binary "
                f"classification, received {self.n_classes_} classes; use latent(X), which covers every class"
            )
        return tuple(each[:, 0] for each in self.latent(X))

    def latent(self, X):
        """Means and variances of all latent functions: one column per two-class model, in their order, or per class of
        a joint one.
        """
        x = self._new_inputs(X)
        found = [core.posterior.predict(x) for core in self._cores()]
        if self._jointly():
            return found[0].mean, found[0].variance
        return np.stack([n.mean for n in found], axis=1), np.stack([n.variance for n in found], axis=1)


def _labels(known: np.ndarray | None, given: Any) -> np.ndarray:
    """The classes of a model: given at its first rows, known afterwards."""
    if known is not None:
        if given is not None and not np.array_equal(unique_labels(given), known):
            raise ValueError(f"classes={given!r} differ from those in the first call, {known.tolist()}; omit classes")
        return known
    if given is None:
        raise ValueError("pass classes= in the first call of partial_fit, with all labels that later calls may contain")
    labels = np.asarray(unique_labels(given))
    if len(labels) < 2:
        raise ValueError(f"classes must hold 2 or more different labels; got {labels.tolist()}")
    return labels
