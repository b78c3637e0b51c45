"""The posterior of a function whose shape is constrained at virtual rows, in terms of x alone."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from quantprop.core.data import inputs
from quantprop.core.gaussian import Normal
from quantprop.inference.predictive import Predictive, predictive_of
from quantprop.inference.solution import Solution
from quantprop.kernels import Derivatives


@dataclass(frozen=True)
class ShapedSolution(Solution):
    """A `Solution` of rows of `kernels.Derivatives`, values of output 0 and signs of derivatives of output 1, whose
    predictions are of values. X, sites and marginals begin with the rows of the data; loo has only these.
    """

    @classmethod
    def of(cls, solution: Solution) -> ShapedSolution:
        """The same posterior."""
        given: dict[str, Any] = {field.name: getattr(solution, field.name) for field in fields(solution)}
        given["loo"] = solution.loo[solution.X[:, -1] == 0]
        return cls(**given)

    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        """The posterior of f at new inputs; with `full_cov`, their joint covariance too."""
        x = inputs(Xnew, "Xnew", features=self.X.shape[1] - 1)
        return super().predict(Derivatives.rows(x), full_cov)

    def derivative(self, Xnew: Any, column: int, order: int = 1) -> Normal:
        """The posterior of a derivative of f at new inputs."""
        x = inputs(Xnew, "Xnew", features=self.X.shape[1] - 1)
        return super().predict(Derivatives.rows(x, column, order))

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> Predictive:
        """The distribution of y at new inputs: mean, variance, cdf, quantile, log_prob and sample."""
        likelihood: Any = self.model.plain_likelihood
        return predictive_of(likelihood.likelihoods[0], self.predict(Xnew), exposure, trials, output)

    def terms(self, Xnew: Any) -> Any:
        """Raise: terms of a constrained function are not available."""
        raise ValueError("terms is not supported with a constraint on the shape of f: fit without monotone=")
