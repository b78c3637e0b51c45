"""scikit-learn kernels as quantprop kernels, and back.

A translated kernel has the same hyperparameters with the same bounds, but not always in the same order or scale:
θ of scikit-learn is `order` of ours divided by `factor` (2 for DotProduct's σ₀, which is the root of a variance).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.gaussian_process import kernels as sk

from quantprop import kernels
from quantprop.estimators.foreign import Foreign, Source
from quantprop.kernels import Kernel
from quantprop.kernels.base import check_size
from quantprop.parameters import Parameter, declared, free, is_parameter, named


@dataclass(frozen=True)
class Translation:
    """A quantprop kernel, and how θ of scikit-learn follows from its own."""

    kernel: Kernel
    order: np.ndarray
    factor: np.ndarray

    def to_theirs(self, theta: Float[np.ndarray, " theta"]) -> np.ndarray:
        """θ of the scikit-learn kernel from ours."""
        return (theta / self.factor)[self.order]

    def to_ours(self, theta: Float[np.ndarray, " theta"]) -> np.ndarray:
        """Our θ from scikit-learn's."""
        ours = np.empty(len(self.order))
        ours[self.order] = theta
        return ours * self.factor

    def gradient_to_theirs(self, gradient: Float[np.ndarray, " theta"]) -> np.ndarray:
        """A gradient in our θ as one in theirs."""
        return (gradient * self.factor)[self.order]


def from_sklearn(kernel: sk.Kernel) -> Kernel:
    """A scikit-learn kernel as a quantprop kernel, values, bounds and fixed parameters included.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from quantprop.estimators import from_sklearn
    >>> from_sklearn(ConstantKernel(2.0) * RBF(0.5)).right.lengthscale.value
    array(0.5)
    """
    check_theirs(kernel)
    return translate(kernel).kernel


def translate(kernel: sk.Kernel, source: Source | None = None) -> Translation:
    """Translate a kernel; one that is not known works through its own `__call__` (on `source`'s objects, if any)."""
    known = _known(kernel) if source is None or source.objects is None else None
    if known is not None:
        return known
    foreign = Foreign.of(kernel, source)
    size = len(kernel.theta)
    return Translation(foreign, np.arange(size), np.ones(size))


def check_theirs(kernel: Any) -> None:
    """Refuse a kernel of too many terms; one that is not scikit-learn's is nothing to look into."""
    if isinstance(kernel, sk.Kernel):
        check_size(kernel, lambda part: isinstance(part, sk.Kernel))


def _known(kernel: Any) -> Translation | None:
    """A translation, or None where the kernel or a part of it is not in the table."""
    if type(kernel) in (sk.Sum, sk.Product):
        left, right = _known(kernel.k1), _known(kernel.k2)
        if left is None or right is None:
            return None
        join = kernels.Sum if type(kernel) is sk.Sum else kernels.Product
        order = np.concatenate([left.order, len(left.order) + right.order])
        return Translation(join(left.kernel, right.kernel), order, np.concatenate([left.factor, right.factor]))
    if type(kernel) is sk.Exponentiation:
        base = _known(kernel.kernel)
        return base and Translation(kernels.Power(base.kernel, float(kernel.exponent)), base.order, base.factor)
    build = _LEAVES.get(type(kernel))
    return build(kernel) if build is not None else None


def _number(kernel: sk.Kernel, name: str, power: float = 1.0) -> Parameter:
    """A hyperparameter of theirs as a Parameter."""
    given = getattr(kernel, f"hyperparameter_{name}")
    value = np.asarray(getattr(kernel, name), dtype=np.float64) ** power
    if value.ndim == 1 and len(value) == 1:
        value = value[0]
    if given.fixed:
        return Parameter(value, fixed=True)
    lower, upper = np.asarray(given.bounds, dtype=np.float64).T ** power
    if value.ndim == 0:
        return Parameter(value, bounds=(float(lower[0]), float(upper[0])))
    return Parameter(value, bounds=(tuple(lower.tolist()), tuple(upper.tolist())))


_ONE = Parameter(np.ones(()), fixed=True)


def _plain(kernel: Kernel) -> Translation:
    """A kernel whose θ is scikit-learn's."""
    size = sum(np.size(p.value) for p in free(declared(kernel)))
    return Translation(kernel, np.arange(size), np.ones(size))


def _matern(kernel: sk.Matern) -> Translation | None:
    kinds = {0.5: kernels.Matern12, 1.5: kernels.Matern32, 2.5: kernels.Matern52, np.inf: kernels.SquaredExponential}
    kind = kinds.get(kernel.nu)
    return None if kind is None else _plain(kind(_ONE, _number(kernel, "length_scale")))


def _rational_quadratic(kernel: sk.RationalQuadratic) -> Translation:
    ours = kernels.RationalQuadratic(_ONE, _number(kernel, "length_scale"), _number(kernel, "alpha"))
    straight = _plain(ours)
    return Translation(ours, straight.order[::-1], straight.factor)  # theirs is (alpha, length_scale)


def _dot_product(kernel: sk.DotProduct) -> Translation:
    if kernel.hyperparameter_sigma_0.fixed and kernel.sigma_0 == 0.0:
        return _plain(kernels.Linear(_ONE))
    ours = kernels.Sum(kernels.Constant(_number(kernel, "sigma_0", 2.0)), kernels.Linear(_ONE))
    straight = _plain(ours)
    return Translation(ours, straight.order, 2.0 * straight.factor)


_LEAVES: dict[type, Callable[[Any], Translation | None]] = {
    sk.ConstantKernel: lambda k: _plain(kernels.Constant(_number(k, "constant_value"))),
    sk.WhiteKernel: lambda k: _plain(kernels.White(_number(k, "noise_level"))),
    sk.RBF: lambda k: _plain(kernels.SquaredExponential(_ONE, _number(k, "length_scale"))),
    sk.Matern: _matern,
    sk.RationalQuadratic: _rational_quadratic,
    sk.ExpSineSquared: lambda k: _plain(kernels.Periodic(_ONE, _number(k, "length_scale"), _number(k, "periodicity"))),
    sk.DotProduct: _dot_product,
}


# --- and back --------------------------------------------------------------------------------------------------------


def to_sklearn(kernel: Kernel) -> sk.Kernel:
    """A quantprop kernel as a scikit-learn one, or an error that names the part that has no counterpart."""
    with_prior = [name for name, parameter in named(declared(kernel)) if parameter.prior is not None]
    if with_prior:
        raise TypeError(f"a prior has no counterpart in scikit-learn: {', '.join(with_prior)}")
    theirs = _back(declared(kernel))
    check_theirs(theirs)
    return theirs


def _back(kernel: Kernel) -> sk.Kernel:
    if isinstance(kernel, Foreign):
        return kernel.theirs()
    if isinstance(kernel, kernels.Sum):
        return sk.Sum(_back(kernel.left), _back(kernel.right))
    if isinstance(kernel, kernels.Product):
        return sk.Product(_back(kernel.left), _back(kernel.right))
    if isinstance(kernel, kernels.Power):
        return sk.Exponentiation(_back(kernel.base), kernel.exponent)
    if isinstance(kernel, kernels.Columns):
        raise TypeError(f"on({list(kernel.columns)}) has no counterpart in scikit-learn, whose kernels see all columns")
    build = _BACK.get(type(kernel))
    if build is None:
        raise TypeError(f"{type(kernel).__name__} has no counterpart in scikit-learn")
    return build(kernel)


def _argument(name: str, parameter: Parameter) -> dict[str, Any]:
    """Value and bounds of a parameter as the two arguments that scikit-learn takes."""
    value = parameter.value
    value = float(value) if np.ndim(value) == 0 else np.asarray(value)
    if parameter.fixed or parameter.bounds is None:
        return {name: value, f"{name}_bounds": "fixed"}
    lower, upper = parameter.bounds
    bounds = (lower, upper) if np.ndim(lower) == 0 else np.stack([lower, upper], axis=1)
    return {name: value, f"{name}_bounds": bounds}


def _scaled(kernel: Any, shape: sk.Kernel) -> sk.Kernel:
    """variance · shape, without the factor where it is a fixed 1."""
    variance = kernel.variance
    if is_parameter(variance) and variance.fixed and np.all(variance.value == 1.0):
        return shape
    return sk.ConstantKernel(**_argument("constant_value", variance)) * shape


def _linear(kernel: kernels.Linear) -> sk.Kernel:
    if kernel.centre is not None:
        raise TypeError("a centre has no counterpart in scikit-learn, whose DotProduct is 0 where x is")
    return _scaled(kernel, sk.DotProduct(sigma_0=0.0, sigma_0_bounds="fixed"))


_BACK: dict[type, Callable[[Any], sk.Kernel]] = {
    kernels.Constant: lambda k: sk.ConstantKernel(**_argument("constant_value", k.variance)),
    kernels.White: lambda k: sk.WhiteKernel(**_argument("noise_level", k.variance)),
    kernels.Linear: _linear,
    kernels.SquaredExponential: lambda k: _scaled(k, sk.RBF(**_argument("length_scale", k.lengthscale))),
    kernels.Matern12: lambda k: _scaled(k, sk.Matern(nu=0.5, **_argument("length_scale", k.lengthscale))),
    kernels.Matern32: lambda k: _scaled(k, sk.Matern(nu=1.5, **_argument("length_scale", k.lengthscale))),
    kernels.Matern52: lambda k: _scaled(k, sk.Matern(nu=2.5, **_argument("length_scale", k.lengthscale))),
    kernels.RationalQuadratic: lambda k: _scaled(
        k, sk.RationalQuadratic(**_argument("length_scale", k.lengthscale), **_argument("alpha", k.mixture))
    ),
    kernels.Periodic: lambda k: _scaled(
        k, sk.ExpSineSquared(**_argument("length_scale", k.lengthscale), **_argument("periodicity", k.period))
    ),
}
