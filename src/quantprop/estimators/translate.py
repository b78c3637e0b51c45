"""scikit-learn kernels as quantprop kernels, and back.

A translated kernel has the same hyperparameters with the same bounds, but not always in the same order or scale:
θ of scikit-learn is `order` of ours divided by `factor` (2 for DotProduct's σ₀, which is the root of a variance).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.gaussian_process import kernels as sk

from quantprop import kernels
from quantprop.core.parameters import Parameter, declared, free, is_parameter, named
from quantprop.estimators.foreign import Foreign, Source
from quantprop.kernels import Kernel
from quantprop.kernels.size import check_size


@dataclass(frozen=True)
class KernelSpec:
    """A kernel before learning: ours, scikit-learn's form of it (None if it has none), and how their θ are related.
    Entries of θ after those of the kernel, of likelihood and mean, are the same in both.
    """

    kernel: Kernel
    order: np.ndarray
    factor: np.ndarray
    theirs: sk.Kernel | None = None

    @property
    def size(self) -> int:
        """The number of entries of θ that belong to the kernel."""
        return len(self.order)

    def to_theirs(self, theta: Float[np.ndarray, " theta"]) -> np.ndarray:
        """θ of the scikit-learn kernel from ours."""
        return np.concatenate([(theta[: self.size] / self.factor)[self.order], theta[self.size :]])

    def to_ours(self, theta: Float[np.ndarray, " theta"]) -> np.ndarray:
        """Our θ from scikit-learn's."""
        ours = np.array(theta)
        ours[self.order] = theta[: self.size]
        ours[: self.size] *= self.factor
        return ours

    def gradient_to_theirs(self, gradient: Float[np.ndarray, " theta"]) -> np.ndarray:
        """A gradient in our θ as one in theirs."""
        return np.concatenate([(gradient[: self.size] * self.factor)[self.order], gradient[self.size :]])


def untranslated(kernel: Kernel) -> KernelSpec:
    """A kernel whose θ is our own, because it has no form in scikit-learn or the same θ there."""
    size = sum(np.size(p.value) for p in free(declared(kernel)))
    return KernelSpec(kernel, np.arange(size), np.ones(size))


def from_sklearn(kernel: sk.Kernel) -> Kernel:
    """Translate a scikit-learn kernel into one of this library, with values, bounds and fixed parameters.

    Args:
        kernel: A kernel of scikit-learn.

    Returns:
        The kernel as a record of this library. A kernel outside the translated set is wrapped and evaluated by its own
        `__call__`.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from quantprop.estimators import from_sklearn
    >>> float(from_sklearn(ConstantKernel(2.0) * RBF(0.5)).right.lengthscale.value)
    0.5
    """
    check_theirs(kernel)
    return translate(kernel).kernel


def translate(kernel: sk.Kernel, source: Source | None = None) -> KernelSpec:
    """Translate a kernel; an unknown one is used through its own `__call__` (on the objects of `source`, if any)."""
    found = _known(kernel) if source is None or source.objects is None else None
    if found is None:
        size = len(kernel.theta)
        found = KernelSpec(Foreign.of(kernel, source), np.arange(size), np.ones(size))
    return replace(found, theirs=kernel)


def check_theirs(kernel: Any) -> None:
    """Raise if a scikit-learn kernel has too many terms."""
    if isinstance(kernel, sk.Kernel):
        check_size(kernel, lambda part: isinstance(part, sk.Kernel))


_ONE = Parameter(np.ones(()), fixed=True)
_LENGTH = {"lengthscale": "length_scale"}
_LEAVES: tuple[tuple[type, type, dict[str, str], dict[str, Any]], ...] = (
    # ours, theirs, the names there of our parameters, further arguments of theirs
    (kernels.Constant, sk.ConstantKernel, {"variance": "constant_value"}, {}),
    (kernels.White, sk.WhiteKernel, {"variance": "noise_level"}, {}),
    (kernels.SquaredExponential, sk.RBF, _LENGTH, {}),
    (kernels.Matern12, sk.Matern, _LENGTH, {"nu": 0.5}),
    (kernels.Matern32, sk.Matern, _LENGTH, {"nu": 1.5}),
    (kernels.Matern52, sk.Matern, _LENGTH, {"nu": 2.5}),
    (kernels.SquaredExponential, sk.Matern, _LENGTH, {"nu": np.inf}),
    (kernels.RationalQuadratic, sk.RationalQuadratic, {**_LENGTH, "mixture": "alpha"}, {}),
    (kernels.Periodic, sk.ExpSineSquared, {**_LENGTH, "period": "periodicity"}, {}),
)


def _known(kernel: Any) -> KernelSpec | None:
    """The translation, or None if the kernel or a part of it has no counterpart."""
    if type(kernel) in (sk.Sum, sk.Product):
        left, right = _known(kernel.k1), _known(kernel.k2)
        if left is None or right is None:
            return None
        join = kernels.Sum if type(kernel) is sk.Sum else kernels.Product
        order = np.concatenate([left.order, left.size + right.order])
        return KernelSpec(join(left.kernel, right.kernel), order, np.concatenate([left.factor, right.factor]))
    if type(kernel) is sk.Exponentiation:
        base = _known(kernel.kernel)
        return base and replace(base, kernel=kernels.Power(base.kernel, float(kernel.exponent)))
    return _dot_product(kernel) if type(kernel) is sk.DotProduct else _leaf(kernel)


def _leaf(kernel: sk.Kernel) -> KernelSpec | None:
    for ours, theirs, names, settings in _LEAVES:
        if type(kernel) is theirs and all(getattr(kernel, name) == value for name, value in settings.items()):
            parameters = {own: _parameter(kernel, name) for own, name in names.items()}
            spec = untranslated(ours(**{"variance": _ONE, **parameters}))
            alphabetical = list(names.values()) == sorted(names.values())  # θ is, in scikit-learn
            return spec if alphabetical else replace(spec, order=spec.order[::-1])
    return None


def _dot_product(kernel: sk.DotProduct) -> KernelSpec:
    if kernel.hyperparameter_sigma_0.fixed and kernel.sigma_0 == 0.0:
        return untranslated(kernels.Linear(_ONE))
    spec = untranslated(kernels.Sum(kernels.Constant(_parameter(kernel, "sigma_0", 2.0)), kernels.Linear(_ONE)))
    return replace(spec, factor=2.0 * spec.factor)


def _parameter(kernel: sk.Kernel, name: str, power: float = 1.0) -> Parameter:
    """A power of one of their hyperparameters."""
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


def to_sklearn(kernel: Kernel) -> sk.Kernel:
    """Translate a kernel of this library into one of scikit-learn.

    Raises an error that names the part without a counterpart.

    Args:
        kernel: A kernel of this library.

    Returns:
        The kernel of scikit-learn.

    >>> from quantprop import kernels
    >>> from quantprop.estimators import to_sklearn
    >>> to_sklearn(kernels.SquaredExponential(2.0, 0.5))
    1.41**2 * RBF(length_scale=0.5)
    """
    with_prior = [name for name, parameter in named(declared(kernel)) if parameter.prior is not None]
    if with_prior:
        raise TypeError(f"a prior has no counterpart in scikit-learn: {', '.join(with_prior)}")
    theirs = _back(declared(kernel))
    check_theirs(theirs)
    return theirs


def _back(kernel: Any) -> sk.Kernel:
    if isinstance(kernel, Foreign):
        return kernel.theirs()
    if isinstance(kernel, kernels.Sum):
        return sk.Sum(_back(kernel.left), _back(kernel.right))
    if isinstance(kernel, kernels.Product):
        return sk.Product(_back(kernel.left), _back(kernel.right))
    if isinstance(kernel, kernels.Power):
        return sk.Exponentiation(_back(kernel.base), kernel.exponent)
    if isinstance(kernel, kernels.Columns):
        raise TypeError(f"on({list(kernel.columns)}) has no counterpart in scikit-learn, whose kernels use all columns")
    if isinstance(kernel, kernels.Linear) and kernel.centre is not None:
        raise TypeError("a centre has no counterpart in scikit-learn, whose DotProduct is 0 where x is")
    return _leaf_back(kernel)


def _leaf_back(kernel: Any) -> sk.Kernel:
    if type(kernel) is kernels.Linear:
        return _scaled(kernel, sk.DotProduct(sigma_0=0.0, sigma_0_bounds="fixed"))
    for ours, theirs, names, settings in _LEAVES:
        if type(kernel) is ours:
            found = theirs(**settings, **_arguments(kernel, names))
            return found if "variance" in names else _scaled(kernel, found)
    raise TypeError(f"{type(kernel).__name__} has no counterpart in scikit-learn")


def _arguments(kernel: Kernel, names: dict[str, str]) -> dict[str, Any]:
    """Values and bounds of parameters as the arguments that scikit-learn takes."""
    found = {}
    for own, name in names.items():
        parameter = getattr(kernel, own)
        found[name] = float(parameter.value) if np.ndim(parameter.value) == 0 else np.asarray(parameter.value)
        if parameter.fixed or parameter.bounds is None:
            found[f"{name}_bounds"] = "fixed"
        else:
            lower, upper = parameter.bounds
            found[f"{name}_bounds"] = (lower, upper) if np.ndim(lower) == 0 else np.stack([lower, upper], axis=1)
    return found


def _scaled(kernel: Any, shape: sk.Kernel) -> sk.Kernel:
    """variance · shape, without the factor if that is a fixed 1."""
    variance = kernel.variance
    if is_parameter(variance) and variance.fixed and np.all(variance.value == 1.0):
        return shape
    return sk.ConstantKernel(**_arguments(kernel, {"variance": "constant_value"})) * shape
