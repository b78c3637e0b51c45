"""A model: kernel, likelihood and prior mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from quantprop.data import finite_array
from quantprop.kernels import Kernel
from quantprop.likelihoods.base import Likelihood
from quantprop.parameters import Parameter, values


class Model(eqx.Module):
    """f ~ GP(mean, kernel), y_i ~ likelihood(f(x_i)).

    `mean` is a number, a Parameter, or a function of the n × d matrix of inputs that returns n numbers.

    >>> from quantprop import Model, kernels, likelihoods
    >>> model = Model(kernel=kernels.SquaredExponential(variance=2.0), likelihood=likelihoods.Probit())
    >>> model.kernel.variance
    2.0
    """

    kernel: Kernel
    likelihood: Likelihood
    mean: float | Parameter | Callable = 0.0

    def __check_init__(self) -> None:
        for name, kind in (("kernel", Kernel), ("likelihood", Likelihood)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}; got {getattr(self, name)!r}")

    @property
    def plain_kernel(self) -> Any:
        """The kernel with numbers in place of Parameters."""
        return values(self.kernel)

    @property
    def plain_likelihood(self) -> Any:
        """The likelihood with numbers in place of Parameters."""
        return values(self.likelihood)

    def prior_mean(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The prior mean at the inputs."""
        if not isinstance(self.mean, Parameter) and callable(self.mean):
            mean = finite_array(self.mean(x), "mean(X)")
            if mean.shape != (len(x),):
                raise ValueError(f"mean(X) must return one number per row, shape ({len(x)},); got shape {mean.shape}")
            return mean
        return np.full(len(x), finite_array(values(self.mean), "mean", ndim=0))
