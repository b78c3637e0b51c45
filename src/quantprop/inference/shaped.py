"""The posterior of a function whose shape is constrained at virtual rows, in terms of x alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import jax
import numpy as np
from scipy.special import ndtr

from quantprop.core.data import inputs
from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.terms import Parts
from quantprop.kernels import Derivatives
from quantprop.likelihoods.base import Datum
from quantprop.model import Model


@dataclass(frozen=True)
class ShapedSolution(Solution):
    """The posterior of f under signs of its derivatives: model, X, sites, marginals and loo are those of the data, the
    evidence is log p(y given the signs).

    Attributes:
        whole: the posterior at rows of `kernels.Derivatives`, values of output 0 and signs of derivatives of output 1.
    """

    whole: Any = None

    @classmethod
    def of(cls, whole: Solution, of_signs: float) -> ShapedSolution:
        """The same posterior; `of_signs` is the log evidence of the signs alone."""
        given = whole.X[:, -1] == 0
        kernel, likelihood, mean, process = (getattr(whole.model, part.name) for part in fields(Model))
        model: Any = Model(kernel.kernel, likelihood.likelihoods[0], mean.mean, process)
        rows = whole.sites, whole.marginals, whole.loo, whole.weights, whole.data
        sites, marginals, loo, weights, (y, *scales) = jax.tree.map(lambda part: part[given], rows)
        return cls(
            model, whole.method, whole.X[given, :-1], sites, marginals, whole.log_evidence - of_signs, loo,
            whole.status, weights, Datum(y[:, 0], *scales), whole=whole,
        )  # fmt: skip

    @property
    def of_signs(self) -> float:
        """The log evidence of the signs alone."""
        return self.whole.log_evidence - self.log_evidence

    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        """The posterior of f at new inputs; with `full_cov`, their joint covariance too."""
        return self.whole.predict(Derivatives.rows(inputs(Xnew, "Xnew", features=self.X.shape[1])), full_cov)

    def derivative(self, Xnew: Any, column: int, order: int = 1) -> Normal:
        """The posterior of a derivative of f at new inputs."""
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        return self.whole.predict(Derivatives.rows(x, column, order))

    def components(self, Xnew: Any, order: int = 2) -> NoReturn:
        """Refused: the kernel of an effect has no derivatives."""
        raise ValueError("components are not supported under constraints on the shape of f: use sobol, or terms(X) of "
                         "a sum of kernels")  # fmt: skip

    def wrong(self, x: np.ndarray) -> float:
        """The largest probability of a wrong sign at some inputs."""
        rows, codes = self.whole.X[:, -1] != 0, self.whole.X[:, -1]
        found = []
        for code, sign in np.unique(np.column_stack([codes, self.whole.data.y[:, 0]])[rows], axis=0):
            f = self.whole.predict(np.column_stack([x, np.full(len(x), code)]))
            found.append(ndtr(-sign * f.mean / np.sqrt(f.variance)).max())
        return float(max(found, default=0.0))

    def in_full(self, of: Parts, x: np.ndarray) -> tuple[Solution, Parts, np.ndarray]:
        """The posterior at all rows, and parts of f and inputs as it takes them."""
        whole = self.whole.model.plain_kernel
        kernels = tuple(changed(whole, kernel=part) for part in of.kernels)
        return self.whole, of._replace(kernels=kernels), Derivatives.rows(x)

    @property
    def _learned_mean(self) -> Any:
        return self.whole._learned_mean


def as_shaped(fitted: Fitted, of_signs: float) -> Fitted:
    """A fit to rows of values and signs in terms of the values alone."""
    solution = ShapedSolution.of(fitted.solution, of_signs)
    return replace(fitted, model=solution.model, solution=solution)


def as_rows(fitted: Fitted) -> Fitted:
    """The reverse, for files; other fits as they are."""
    if not isinstance(fitted.solution, ShapedSolution):
        return fitted
    return replace(fitted, model=fitted.solution.whole.model, solution=fitted.solution.whole)
