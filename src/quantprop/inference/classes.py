"""Several classes as scalar data: a datum becomes one factor for each class that it is not, and back.

With u ~ N(0, 1) the multinomial probit is p(y | f) = E_u Π_{j ≠ y} Φ(u + f_y − f_j): every factor is a probit datum,
y = +1, on a latent value of its own, and these are jointly Gaussian (`kernels.PerClass`). So methods, schedules,
learning and files are those of scalar data; here models and rows are translated, and results translated back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.data import bucket, encode, inputs, pad, row_weights
from quantprop.gaussian import Natural, Normal
from quantprop.inference.prediction import above_rounding, padded_prior, padded_sites
from quantprop.inference.solution import Solution, Status
from quantprop.kernels import PerClass
from quantprop.kernels.per_class import ClassRows
from quantprop.likelihoods import MultinomialProbit, Probit
from quantprop.means import PerClass as PerClassMean
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.numerics.largest import log_largest, log_probabilities
from quantprop.parameters import is_parameter
from quantprop.priors import Classes, ClassesPrior, Dense
from quantprop.priors.base import Predictor
from quantprop.runtime.display import html, of_solution, text
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

PIECE = 1024  # new inputs that are predicted at a time

P, R = ParamSpec("P"), TypeVar("R")


class Factors(NamedTuple):
    """A problem of several classes as one of scalar data."""

    model: Model
    X: Float[np.ndarray, "rows columns"]
    y: Float[np.ndarray, " rows"]


def by_factors(function: Callable[P, R]) -> Callable[P, R]:
    """A function of (model, X, y, ..., weights=) that several classes reach as scalar data, and leave as classes."""

    @wraps(function)
    def translated(model: Any, X: Any, y: Any, *args: Any, weights: Any = None, **more: Any) -> Any:
        plain = cast(Callable[..., Any], function)
        if not isinstance(model.likelihood, MultinomialProbit):
            return plain(model, X, y, *args, weights=weights, **more)
        return as_classes(plain(*factors_of(model, X, y, weights), *args, **more))

    return cast(Callable[P, R], translated)


def factors_of(model: Model, X: Any, y: Any, weights: Any = None) -> Factors:
    """The factors of every datum. A row of weight w is written w times: its copies have a u each."""
    x, likelihood = inputs(X, "X"), model.plain_likelihood
    if np.shape(y) != (len(x),):
        raise ValueError(f"y must have shape {(len(x),)}, one entry per row of X; got shape {np.shape(y)}")
    labels = encode(likelihood, y, (len(x),)).y.astype(int)
    total = row_weights(weights, len(x))
    if (total != np.rint(total)).any():
        raise ValueError("weights must be whole numbers for the multinomial probit likelihood, whose rows of weight w "
                         "are written w times; round them")  # fmt: skip
    copies = total.astype(int)
    x, labels = np.repeat(x, copies, axis=0), np.repeat(labels, copies)
    model = _of_factors(model, int(labels.max()) + 1)
    assert isinstance(model.kernel, PerClass)
    rows = _rows(x, labels, model.kernel.classes)
    return Factors(model, rows, np.ones(len(rows)))


def _of_factors(model: Model, seen: int) -> Model:
    """The scalar model: a probit on differences of the classes' functions."""
    kernel, likelihood = model.kernel, model.likelihood
    assert isinstance(likelihood, MultinomialProbit)
    known = kernel.classes if isinstance(kernel, PerClass) else likelihood.classes
    classes = max(seen, 2) if known is None else known
    if likelihood.classes not in (None, classes) or seen > classes:
        raise ValueError(f"classes: y shows {seen}, the kernel and the likelihood have {classes} and "
                         f"{likelihood.classes}; give the same number")  # fmt: skip
    if not isinstance(model.process, Dense):
        raise ValueError(f"process must be Dense() for the multinomial probit likelihood; got {model.process!r}")
    if not (isinstance(model.mean, PerClassMean) or (not is_parameter(model.mean) and np.ndim(model.mean) == 0)):
        raise ValueError("mean: one that all classes share cancels in every difference; leave it out, or give one mean "
                         "a class, means.PerClass((m_0, m_1, ...))")  # fmt: skip
    mean = model.mean if isinstance(model.mean, PerClassMean) else 0.0
    if isinstance(mean, PerClassMean) and len(mean.means) != classes:
        raise ValueError(f"mean: PerClass has {len(mean.means)} means for {classes} classes")
    kernel = kernel if isinstance(kernel, PerClass) else PerClass((kernel,), classes)
    return Model(kernel, Probit(), mean, Dense() if classes == 2 else Classes(classes))


def _rows(x: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """u + f_y − f_j for every other class j; of two classes (f_y − f_j)/√2, the u being integrated out exactly."""
    slot = np.tile(np.arange(classes - 1), (len(x), 1))
    other = (slot + (slot >= labels[:, None])).ravel()
    datum, eye = np.repeat(np.arange(len(x)), classes - 1), np.eye(classes)
    weights = eye[labels[datum]] - eye[other]
    if classes == 2:
        return np.column_stack([x, weights / np.sqrt(2.0), -np.ones(len(x))])
    return np.column_stack([x[datum], weights, datum])


def as_classes(result: Any) -> Any:
    """What scalar inference or learning returned, in terms of the classes; results of other models as they are."""
    if isinstance(result, Solution):
        return ClassSolution(result) if isinstance(result.model.kernel, PerClass) else result
    if isinstance(result, list):
        return [as_classes(one) for one in result]
    solution = as_classes(result.solution)
    if solution is result.solution:
        return result
    shared = len(result.model.kernel.kernels) == 1
    names = tuple(n.replace("kernel.kernels[0]", "kernel") if shared else n for n in result.status.at_bounds)
    return replace(result, model=solution.model, solution=solution, status=replace(result.status, at_bounds=names))


def as_factors(fitted: Any) -> Any:
    """The other way round, for files."""
    if not isinstance(fitted.solution, ClassSolution):
        return fitted
    return replace(fitted, model=fitted.solution.factors.model, solution=fitted.solution.factors)


@dataclass(frozen=True)
class ClassPredictive:
    """Distributions of the class at k inputs, of latent values with means k × C and covariances k × C × C."""

    latent: Normal

    @cached_property
    @float64
    def log_probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Logarithms of the classes' probabilities, to about 1e-6: the noise of each class, and the correlations of the
        functions, are integrated out.
        """
        k = len(self.latent.mean)
        rows = pad((self.latent.mean, self.latent.covariance), bucket(k))
        return np.asarray(_log_probabilities(*rows))[:k]

    @property
    def probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Of the classes."""
        return np.exp(self.log_probabilities)

    def log_prob(self, y: Any) -> Float[np.ndarray, " k"]:
        """log P(class y)."""
        k, classes = np.shape(self.latent.mean)
        labels = encode(MultinomialProbit(classes), y, (k,)).y.astype(int)
        return self.log_probabilities[np.arange(k), labels]

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of the class at every input (rows: draws)."""
        rng = np.random.default_rng(seed)
        levels = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.sum(rng.uniform(size=(n, len(levels), 1)) > levels, axis=2)


_log_probabilities = program(
    lambda mean, covariance: jax.lax.map(
        lambda row: log_probabilities(row[0], row[1] + jnp.eye(len(row[0]))), (mean, covariance)
    )
)


@dataclass(frozen=True)
class ClassSolution:
    """An approximate posterior of the functions of several classes, from that of the factors of all data.

    Attributes:
        factors: the posterior of the scalar values u + f_y − f_j, C − 1 rows a datum; `sites`, `status`, `converged`,
            `sweeps` and `log_evidence` are its own.
    """

    factors: Solution

    def __repr__(self) -> str:
        return text(of_solution(self))

    def _repr_html_(self) -> str:
        return html(of_solution(self))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def model(self) -> Model:
        """The model with the numbers that inference used."""
        kernel = self._kernel
        own = kernel.kernels[0] if len(kernel.kernels) == 1 else kernel
        return Model(own, MultinomialProbit(self.classes), self.factors.model.mean)

    @property
    def _kernel(self) -> PerClass:
        kernel = self.factors.model.kernel
        assert isinstance(kernel, PerClass)
        return kernel

    @property
    def classes(self) -> int:
        """How many there are."""
        return self._kernel.classes

    @property
    def method(self) -> Method:
        """The method."""
        return self.factors.method

    @property
    def _data(self) -> ClassRows:
        return ClassRows.of(self.factors.X[:: self.classes - 1], self.classes)

    @property
    def X(self) -> Float[np.ndarray, "n d"]:
        """The training inputs; a row of weight w stands there w times."""
        return np.asarray(self._data.x)

    @property
    def y(self) -> np.ndarray:
        """Their classes."""
        return np.argmax(self._data.weights, axis=1)

    @property
    def sites(self) -> Natural:
        """ν and τ of every factor: a warm start for another `infer`."""
        return self.factors.sites

    @property
    def status(self) -> Status:
        """How inference ended."""
        return self.factors.status

    @property
    def converged(self) -> bool:
        """Whether the fixed point was reached to `tol`."""
        return self.factors.converged

    @property
    def sweeps(self) -> int:
        """How many sweeps it took."""
        return self.factors.sweeps

    @property
    def log_evidence(self) -> float:
        """The method's approximation of log p(y)."""
        return self.factors.log_evidence

    @cached_property
    def marginals(self) -> Normal:
        """The functions of all classes at the training inputs, as `predict` has them."""
        return self.predict(self.X)

    @cached_property
    @float64
    def loo(self) -> Float[np.ndarray, " n"]:
        """log probability of every datum's class from the other data: all its factors are left out together."""
        if self.classes == 2:
            return self.factors.loo
        model, sites = self.factors.model, self.factors.sites
        size = bucket(len(sites.nu))
        data = -(-size // (self.classes - 1))
        means = pad(self._prior_means(self.X), data)
        found = _left_out(padded_prior(model, self.factors.X), padded_sites(sites), means)
        return np.asarray(found)[: len(self.X)]

    def _prior_means(self, x: np.ndarray) -> Float[np.ndarray, "k classes"]:
        k, model = len(x), self.factors.model
        return model.prior_mean(_one_function(x, self.classes)).reshape(k, self.classes)

    @float64
    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        """The functions of all classes at k new inputs: means and variances k × C, and covariances between classes,
        k × C × C; with `full_cov` between inputs too, k × C × k × C.
        """
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        if full_cov:
            joint, shape = self.factors.predict(_one_function(x, self.classes), full_cov=True), (len(x), self.classes)
            return Normal(joint.mean.reshape(shape), joint.variance.reshape(shape), joint.covariance.reshape(shape * 2))
        parts = [self._functions(x[at : at + PIECE]) for at in range(0, len(x), PIECE)]
        mean, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Normal(mean, np.diagonal(covariance, axis1=1, axis2=2).copy(), covariance)

    def _functions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.classes == 2:
            return self._two_functions(x)
        k, model, eye = len(x), self.factors.model, np.eye(self.classes)
        new = pad(_one_function(x, self.classes)[:: self.classes], bucket(k))
        train = pad(self.factors.X, bucket(len(self.factors.X)))
        found = _functions(self._predictor, model.plain_process, model.plain_kernel, train, new)
        mean, covariance, own = (part[:k] for part in to_numpy(found))
        variance = above_rounding(np.diagonal(covariance, axis1=1, axis2=2), own, len(self.X))
        covariance = np.where(eye > 0, variance[:, :, None], covariance)
        return mean + self._prior_means(x), covariance

    def _two_functions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of two classes, whose factors are one difference: 2 Cov(f_0, f_1) = Var f_0 + Var f_1 − Var(f_0 − f_1)."""
        rows = ClassRows(np.repeat(x, 3, axis=0), np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], (len(x), 1)),
                         -np.ones(3 * len(x)))  # fmt: skip
        latent = self.factors.predict(np.column_stack(rows))
        mean, variance = latent.mean.reshape(-1, 3), latent.variance.reshape(-1, 3)
        tie = 0.5 * (variance[:, 0] + variance[:, 1] - variance[:, 2])
        covariance = np.stack([variance[:, 0], tie, tie, variance[:, 1]], axis=1).reshape(-1, 2, 2)
        return mean[:, :2], covariance

    def predict_y(self, Xnew: Any) -> ClassPredictive:
        """The distribution of the class at new inputs: probabilities, log_prob and sample."""
        return ClassPredictive(self.predict(Xnew))

    def sample(self, Xnew: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n k classes"]:
        """n joint draws of all functions at new inputs."""
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        return self.factors.sample(_one_function(x, self.classes), n, seed).reshape(n, len(x), self.classes)

    @cached_property
    def _predictor(self) -> Predictor:
        return self.factors._predictor


def _one_function(x: np.ndarray, classes: int) -> np.ndarray:
    """Rows that are one function at one input each: of every input, its classes in order."""
    weights = np.tile(np.eye(classes), (len(x), 1))
    return np.column_stack([np.repeat(x, classes, axis=0), weights, -np.ones(len(x) * classes)])


@program
def _functions(by: Any, process: Any, kernel: Any, x: Any, new: Any) -> Any:
    at = ClassRows.of(new, kernel.classes).x
    own = jnp.stack([one.diagonal(at) for one in kernel.kernels])
    own = jnp.broadcast_to(own, (kernel.classes, len(new)))
    return *by.functions(process.cross(kernel, x, new).k, own), own.T


@program
def _left_out(prior: ClassesPrior, sites: Natural, means: Any) -> Any:
    """log p(y) of every datum under the posterior without its factors.

    A datum's factors are a Gaussian in f with precision P = D − d dᵀ/s, s = 1ᵀd, and linear term −ν + d 1ᵀν/s (u being
    integrated out); the posterior N(μ, V) without it has covariance (I − V P)⁻¹ V.
    """
    mean, covariance = prior.of_functions(sites)
    layout = prior.layout
    d, nu = layout.grid(sites.tau, 1.0 / prior.own).T, layout.grid(sites.nu - sites.tau * prior.mean, 0.0).T

    def one(row: Any) -> Any:
        mu, v, d, nu, m, label = row
        precision = jnp.diag(d) - d[:, None] * d / jnp.sum(d)
        pull = d * (jnp.sum(nu) / jnp.sum(d)) - nu
        apart = jnp.eye(len(d)) - v @ precision
        rest = jnp.linalg.solve(apart, jnp.concatenate([v, (mu - v @ pull)[:, None]], axis=1))
        return log_largest(rest[:, -1] + m, rest[:, :-1] + jnp.eye(len(d)), label.astype(int))

    return jax.lax.map(one, (mean, covariance, d, nu, means, prior.labels))
