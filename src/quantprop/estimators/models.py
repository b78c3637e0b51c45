"""The models behind a classifier, with the attributes that scikit-learn's have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.estimators.core import Core
from quantprop.estimators.shared import at_theta, without_theta
from quantprop.inference.classes import as_classes
from quantprop.kernels import PerClass


@dataclass
class OneModel:
    """One learned model of a classifier; `y_train_` are codes of its `classes_`."""

    core: Core
    classes_: np.ndarray
    X_train_: Any
    y_train_: np.ndarray

    @property
    def kernel_(self) -> Any:
        """The learned kernel."""
        return self.core.kernel

    @property
    def fitted_(self) -> Any:
        """What learning returned."""
        return self.core.fitted

    @property
    def solution_(self) -> Any:
        """The posterior at the learned hyperparameters."""
        return self.fitted_.solution

    @property
    def posterior_(self) -> Any:
        """What predicts: that, or the average over hyperparameters."""
        return self.core.posterior

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The objective at the learned hyperparameters."""
        return self.core.fitted.objective_value

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True) -> Any:
        """The objective at θ, and its exact gradient. With clone_kernel=False the model moves to θ."""
        if theta is None:
            return without_theta(self.log_marginal_likelihood_value_, eval_gradient)
        result, self.core = at_theta(self.core, theta, eval_gradient, clone_kernel)
        return result

    def log_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """Log probabilities of its classes."""
        raise NotImplementedError


class BinaryGaussianProcess(OneModel):
    """A model of two classes."""

    def log_proba(self, x: Any) -> Float[np.ndarray, "n 2"]:
        y = self.posterior_.predict_y(x)
        return np.stack([y.log_prob(-1.0), y.log_prob(1.0)], axis=1)


class JointGaussianProcess(OneModel):
    """A model of three or more classes; its core is that of their factors."""

    @property
    def kernel_(self) -> Any:
        kernel = self.core.kernel
        return kernel.kernels[0] if isinstance(kernel, PerClass) and len(kernel.kernels) == 1 else kernel

    @property
    def fitted_(self) -> Any:
        return as_classes(self.core.fitted)

    @property
    def posterior_(self) -> Any:
        return self.solution_

    def log_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        return self.solution_.predict_y(x).log_probabilities


@dataclass
class Several:
    """The two-class models behind a multi-class classifier."""

    estimators_: list[OneModel]
