"""The argument `varying` of regressors: a parameter of the likelihood as a function of columns of X."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quantprop.estimators.columns import Coding, refuse_offsets
from quantprop.estimators.first_kernel import DefaultKernel, KernelChoices, kernel_spec
from quantprop.estimators.observations import DEFAULT_ALPHA
from quantprop.estimators.translate import KernelSpec, untranslated
from quantprop.kernels import PerParameter
from quantprop.likelihoods import Likelihood, Varying


def kernel_of(varying: Mapping[str, Any] | None) -> Any:
    """The kernel of the parameter that varies, as it was given."""
    return None if varying is None else next(iter(varying.values()), None)


def check(estimator: Any) -> None:
    """Raise unless the argument is one parameter with its kernel, and other arguments agree."""
    varying = estimator.varying
    if len(varying) != 1:
        raise ValueError("varying must name one parameter of the likelihood, as in {'scale': 'se(x)'}; "
                         f"got {dict(varying)}")  # fmt: skip
    if np.ndim(estimator.alpha) or estimator.alpha != DEFAULT_ALPHA:
        raise ValueError(f"alpha={estimator.alpha} is a fixed noise variance, but varying= learns a parameter as a "
                         "function: omit alpha")  # fmt: skip
    if estimator.monotone is not None:
        raise ValueError("monotone is not supported with varying=: use one of them")


def with_varying(estimator: Any, spec: Any, likelihood: Likelihood, X: np.ndarray, weights: Any) -> tuple[Any, Varying]:
    """The kernels of both functions, and the likelihood with the parameter that varies."""
    ((parameter, kernel),) = estimator.varying.items()
    refuse_offsets(kernel, "in a parameter that varies", "add it to kernel=, or leave it out")
    of_parameter = Varying(likelihood, parameter)  # before the kernel: it checks the name
    names = estimator._coding.names or tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    default, coding = DefaultKernel(weights=weights), Coding(names, estimator._coding.levels)
    own = kernel_spec(kernel, X, estimator._source, default, coding).kernel

    def pair(one: KernelSpec) -> KernelSpec:
        return untranslated(PerParameter(one.kernel, own))

    if isinstance(spec, KernelChoices):
        return KernelChoices({name: pair(one) for name, one in spec.specs.items()}), of_parameter
    return pair(spec), of_parameter
