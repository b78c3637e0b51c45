"""The posterior of the functions of several classes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, inputs, pad
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.classes.predictive import ClassPredictive
from quantprop.inference.factors import one_function
from quantprop.inference.modes import Modes
from quantprop.inference.prediction import (
    above_rounding,
    in_pieces,
    padded_prior,
    padded_rows,
    predictor_shapes,
    proper,
)
from quantprop.inference.solution import Solution
from quantprop.kernels import PerClass
from quantprop.kernels.combinations import ClassRows, in_own_form
from quantprop.likelihoods import MultinomialProbit, Softmax
from quantprop.likelihoods.classes import ClassLikelihood, SoftmaxFactor
from quantprop.model import Model
from quantprop.priors.base import Predictor
from quantprop.priors.classes import holding_functions
from quantprop.priors.classes.layout import LAYOUTS
from quantprop.runtime.arguments import checked
from quantprop.runtime.display import of_solution, summarised
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import compile_ahead, program, run_once

MAX_INPUTS = 1024  # new inputs that are predicted at a time


@summarised(of_solution)
@dataclass(frozen=True)
class ClassSolution:
    """An approximate posterior of the latent functions of a joint multi-class model.

    Attributes:
        factors: the posterior of the scalar values u + f_y − f_j, C − 1 rows per observation; `sites`, `status`,
            `converged`, `sweeps` and `log_evidence` refer to it.
    """

    factors: Solution

    method = property(attrgetter("factors.method"), doc="The method.")
    sites = property(attrgetter("factors.sites"), doc="ν and τ of every factor: a warm start for another `infer`.")
    status = property(attrgetter("factors.status"), doc="How inference ended.")
    converged = property(attrgetter("factors.converged"), doc="True if the fixed point was reached to `tol`.")
    sweeps = property(attrgetter("factors.sweeps"), doc="The number of sweeps.")
    log_evidence = property(attrgetter("factors.log_evidence"), doc="The method's approximation of log p(y).")
    weights: ClassVar[None] = None  # rows of weight w are written w times

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def model(self) -> Model:
        """The model with the numbers that inference used."""
        scalar = self.factors.model
        return Model(in_own_form(scalar.kernel), self.likelihood, scalar.mean, holding_functions(scalar.process))

    @property
    def likelihood(self) -> ClassLikelihood:
        """The likelihood of the classes."""
        kind = Softmax if isinstance(self.factors.model.likelihood, SoftmaxFactor) else MultinomialProbit
        return kind(self.classes)

    @property
    def _layout(self) -> Any:
        return LAYOUTS[getattr(self.factors.model.process, "rows", "differences")]

    @property
    def _one_difference(self) -> bool:
        """True for two classes by probit."""
        return self._layout.each(self.classes) == 1

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.factors.model.kernel.classes  # pyright: ignore[reportAttributeAccessIssue]  # of PerClass

    @property
    def _data(self) -> ClassRows:
        rows: Any = self.factors.X[:: self._layout.each(self.classes)]
        return ClassRows.of(rows, self.classes)

    @property
    def X(self) -> Float[np.ndarray, "n d"]:
        """The training inputs; a row of weight w stands there w times."""
        return np.asarray(self._data.x)

    @property
    def y(self) -> np.ndarray:
        """Their classes."""
        if isinstance(self.likelihood, Softmax):
            assert self.factors.data is not None
            return np.argmax(np.asarray(self.factors.data.y).reshape(-1, self.classes), axis=1)
        return np.argmax(self._data.weights, axis=1)

    @cached_property
    def marginals(self) -> Normal:
        """The functions of all classes at the training inputs, as `predict` has them."""
        return self.predict(self.X)

    @cached_property
    @float64
    def loo(self) -> Float[np.ndarray, " n"]:
        """log probability of every datum's class from the other data: all its factors are left out together."""
        if self._one_difference:
            return self.factors.loo
        return ClassPredictive(self.left_out, self.likelihood).log_prob(self.y)

    @cached_property
    @float64
    def left_out(self) -> Normal:
        """The functions of all classes at every datum as the other data have them (three or more classes)."""
        rows, prior = padded_rows(self.factors), padded_prior(self.factors.model, self.factors.X)
        means = pad(self._prior_means(self.X), len(prior.labels))  # pyright: ignore[reportAttributeAccessIssue]
        found = to_numpy(_left_out(prior, rows.share, rows.sites, means))
        mean, covariance = (part[: len(self.X)] for part in found)
        return Normal(mean, np.diagonal(covariance, axis1=1, axis2=2), covariance)

    def _prior_means(self, x: np.ndarray) -> Float[np.ndarray, "k classes"]:
        k, model = len(x), self.factors.model
        return model.prior_mean(one_function(x, self.classes)).reshape(k, self.classes)

    @float64
    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        """The functions of all classes at k new inputs: means and variances k × C, and covariances between classes,
        k × C × C; with `full_cov` between inputs too, k × C × k × C.
        """
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        if full_cov:
            joint, shape = self.factors.predict(one_function(x, self.classes), full_cov=True), (len(x), self.classes)
            return Normal(joint.mean.reshape(shape), joint.variance.reshape(shape), joint.covariance.reshape(shape * 2))
        mean, covariance = in_pieces(self._functions, x, MAX_INPUTS)
        return proper(Normal(mean, np.diagonal(covariance, axis1=1, axis2=2).copy(), covariance), self.status)

    def _functions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._one_difference:
            return self._two_functions(x)
        k, model, eye = len(x), self.factors.model, np.eye(self.classes)
        new = pad(one_function(x, self.classes)[:: self.classes], bucket(k))
        train = pad(self.factors.X, bucket(len(self.factors.X)))
        given = model.plain_process, model.plain_kernel, train, new
        with run_once():
            found = _functions(self._predictor_before(_functions, *given), *given)
        mean, covariance, own = (part[:k] for part in to_numpy(found))
        variance = above_rounding(np.diagonal(covariance, axis1=1, axis2=2), own, len(self.X))
        covariance = np.where(eye > 0, variance[:, :, None], covariance)
        return mean + self._prior_means(x), covariance

    def _two_functions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two classes, whose factors are one difference: 2 Cov(f_0, f_1) = Var f_0 + Var f_1 − Var(f_0 − f_1)."""
        weights = np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], (len(x), 1))
        latent = self.factors.predict(np.column_stack([np.repeat(x, 3, axis=0), weights, -np.ones(3 * len(x))]))
        mean, variance = latent.mean.reshape(-1, 3), latent.variance.reshape(-1, 3)
        tie = 0.5 * (variance[:, 0] + variance[:, 1] - variance[:, 2])
        covariance = np.stack([variance[:, 0], tie, tie, variance[:, 1]], axis=1).reshape(-1, 2, 2)
        return mean[:, :2], covariance

    def predict_y(self, Xnew: Any) -> ClassPredictive:
        """The distribution of the class at new inputs: probabilities, log_prob and sample."""
        return ClassPredictive(self.predict(Xnew), self.likelihood)

    def corrected(self) -> NoReturn:
        """Refused: corrections are those of one latent function."""
        raise ValueError(
            "corrections are not supported for several classes jointly: use "
            "GaussianProcessClassifier(multi_class='one_vs_rest'), each of whose models supports them"
        )

    def modes(self) -> Modes:
        """One: the probability of the largest of several functions is log-concave in them."""
        return Modes((self.log_evidence,), ("this start",))

    @checked()
    def sample(self, Xnew: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n k classes"]:
        """n joint draws of all functions at new inputs."""
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        return self.factors.sample(one_function(x, self.classes), n, seed).reshape(n, len(x), self.classes)

    @property
    def _predictor(self) -> Predictor:
        return self.factors._predictor

    def _predictor_before(self, ahead: Any, *given: Any) -> Predictor:
        """The predictor, while the program that takes it and what else is given is compiled."""
        if "_predictor" in vars(self.factors) or self.factors.posterior is not None:
            return self._predictor
        shapes = predictor_shapes(self.factors, self.factors.model)
        leaves, form = jax.tree.flatten((shapes, given))
        key = (ahead, form, tuple(np.shape(leaf) for leaf in leaves))
        return compile_ahead(key, [ahead.ahead(shapes, *given)], lambda: self._predictor)


@program
def _functions(by: Any, process: Any, kernel: Any, x: Any, new: Any) -> Any:
    at = ClassRows.of(new, kernel.classes).x
    own = jnp.stack([one.diagonal(at) for one in kernel.kernels])
    own = jnp.broadcast_to(own, (kernel.classes, len(new)))
    return *by.functions(process.cross(kernel, x, new).k, own), own.T


@program
def _left_out(prior: Any, share: Any, sites: Natural, means: Any) -> Any:
    """The functions at every datum under the posterior without its factors."""
    mean, covariance = prior.for_shares(share).functions_without(sites)
    return prior.layout.sign * mean + means, covariance


def as_classes(result: Any) -> Any:
    """A solution or fit of scalar factors in terms of the classes; of other models, as it is."""
    if isinstance(result, Solution):
        return ClassSolution(result) if isinstance(result.model.kernel, PerClass) else result
    solution = as_classes(result.solution)
    if solution is result.solution:
        return result
    shared = len(result.model.kernel.kernels) == 1
    names = tuple(n.replace("kernel.kernels[0]", "kernel") if shared else n for n in result.status.at_bounds)
    return replace(result, model=solution.model, solution=solution, status=replace(result.status, at_bounds=names))


def in_terms_of(model: Model, result: Any) -> Any:
    """A solution or fit in terms of the model that was given, which `prepare` replaced if it has several classes."""
    return as_classes(result) if isinstance(model.likelihood, ClassLikelihood) else result


def as_factors(fitted: Any) -> Any:
    """The reverse, for files."""
    if not isinstance(fitted.solution, ClassSolution):
        return fitted
    return replace(fitted, model=fitted.solution.factors.model, solution=fitted.solution.factors)
