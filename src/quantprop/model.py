"""A model: kernel, likelihood, prior mean, and how the process is represented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.data import finite_array
from quantprop.core.parameters import Parameter, declared, named, values
from quantprop.core.records import Record, field, is_record
from quantprop.kernels import Derivatives, Kernel
from quantprop.likelihoods.base import Likelihood
from quantprop.means import OfValues
from quantprop.priors import Dense, Process
from quantprop.priors.neighbours import with_neighbours
from quantprop.runtime.arguments import Rule, a
from quantprop.runtime.display import html, model_rows

DEFAULT_PROCESS = Dense()
MEAN = Rule(
    "a number, a Parameter or a function of X",
    lambda mean: callable(mean) or is_record(mean) or np.asarray(mean).dtype.kind in "iuf",
    TypeError,
)


class Model(Record):
    """f ~ GP(mean, kernel), y_i ~ likelihood(f(x_i)).

    Args:
        kernel: Covariance function of f.
        likelihood: Distribution of y given f.
        mean: Prior mean: a number (fixed), a Parameter (learned), or a function of the n × d matrix of inputs that
            returns n values, such as `means.Linear`.
        process: Representation of the process at the training inputs; `Dense()` is exact.

    >>> from quantprop import Model, kernels, likelihoods
    >>> model = Model(kernel=kernels.SquaredExponential(variance=2.0), likelihood=likelihoods.Probit())
    >>> model.kernel.variance
    2.0
    """

    kernel: Kernel
    likelihood: Likelihood
    mean: float | Parameter | Callable = 0.0
    process: Process = field(default=DEFAULT_PROCESS, converter=with_neighbours)

    def _repr_html_(self) -> str:
        return html(("Model", model_rows(self)))

    def __check_init__(self) -> None:
        for name, kind in (("kernel", Kernel), ("likelihood", Likelihood), ("process", Process)):
            a(kind).check(name, getattr(self, name))
        MEAN.check("mean", self.mean)
        if isinstance(self.kernel, Derivatives) and not isinstance(self.mean, OfValues) and self.mean != 0:
            raise ValueError("mean must be 0 with kernels.Derivatives, which have a different mean from the values of "
                             "f, or means.OfValues")  # fmt: skip
        for name, parameter in named(declared(self)):
            number, low = parameter.value, 0.0 if parameter.bounds is None else np.min(parameter.bounds[0])
            if isinstance(number, np.ndarray) and low > 0 and not (np.isfinite(number) & (number > 0)).all():
                raise ValueError(f"{name} must be positive and finite; got {number}")

    @property
    def plain_kernel(self) -> Any:
        """The kernel with numbers instead of Parameters."""
        return values(self.kernel)

    @property
    def plain_process(self) -> Any:
        """The process with numbers instead of Parameters."""
        return values(self.process)

    @property
    def plain_likelihood(self) -> Any:
        """The likelihood with numbers instead of Parameters."""
        return values(self.likelihood)

    def prior_mean(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The prior mean at the inputs."""
        mean = finite_array(mean_at(self.plain_mean, x), "mean(X)" if callable(self.plain_mean) else "mean")
        if mean.shape not in ((), (len(x),)):
            raise ValueError(f"mean(X) must return one number per row, shape ({len(x)},); got shape {mean.shape}")
        return np.broadcast_to(mean, (len(x),)).copy()

    @property
    def plain_mean(self) -> Any:
        """The mean with numbers instead of Parameters."""
        return self.mean if is_opaque(self.mean) else values(self.mean)


def is_opaque(mean: Any) -> bool:
    """Return whether a mean is a function about which nothing else is known."""
    return callable(mean) and not is_record(mean)


def mean_at(mean: Any, x: Any) -> Any:
    """A plain mean at inputs: a number, or a function of all of them."""
    return mean(x) if callable(mean) else mean
