"""A scikit-learn kernel without translation, used through its own `__call__`; its inputs may be any objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from quantprop.core.parameters import Parameter
from quantprop.core.records import field
from quantprop.kernels import Kernel, Pairs


class Source:
    """Inputs that are not vectors (strings, graphs): each gets a number, and compiled programs see the numbers."""

    def __init__(self, objects: list[Any] | None = None) -> None:
        self.objects = objects

    def encode(self, new: Any) -> np.ndarray:
        """A column of numbers for objects, which are remembered."""
        assert self.objects is not None
        start = len(self.objects)
        self.objects.extend(new)
        return np.arange(start, start + len(new), dtype=np.float64)[:, None]

    def decode(self, x: Any) -> Any:
        """The objects behind a column of numbers; vectors as they are."""
        x = np.asarray(x)
        return x if self.objects is None else [self.objects[int(i)] for i in x[:, 0]]


class KernelHandle:
    """A kernel and the source of its inputs, compared by identity, as compiled programs need."""

    def __init__(self, kernel: Any, source: Source) -> None:
        self.kernel, self.source = kernel, source

    def at(self, values: Any) -> Any:
        """The kernel with these hyperparameters."""
        return self.kernel.clone_with_theta(np.log(np.asarray(values, dtype=np.float64)))

    def cross(self, values: Any, x: Any, z: Any) -> np.ndarray:
        return self.at(values)(self.source.decode(x), self.source.decode(z))

    def gram(self, values: Any, x: Any) -> np.ndarray:
        return self.at(values)(self.source.decode(x))

    def pull(self, values: Any, x: Any, by: Any) -> np.ndarray:
        """Σ by_ij ∂K_ij/∂values."""
        _, slopes = self.at(values)(self.source.decode(x), eval_gradient=True)
        return np.einsum("ij,ijp->p", np.asarray(by), slopes) / np.asarray(values)

    def diagonal(self, values: Any, x: Any) -> np.ndarray:
        return self.at(values).diag(self.source.decode(x))


class Foreign(Kernel):
    """A kernel of scikit-learn's kind. `values` are its free hyperparameters, exp θ."""

    values: Any
    handle: KernelHandle = field(static=True)

    @classmethod
    def of(cls, kernel: sk.Kernel, source: Source | None = None) -> Foreign:
        """Wrap a copy of a kernel."""
        values, bounds = np.exp(kernel.theta), np.exp(kernel.bounds)
        ends = (tuple(map(float, bounds[:, 0])), tuple(map(float, bounds[:, 1]))) if len(values) else None
        parameter = Parameter(values, bounds=ends, fixed=not len(values))
        return cls(parameter, KernelHandle(clone(kernel), source if source is not None else Source()))

    def theirs(self) -> sk.Kernel:
        """The scikit-learn kernel at the current values."""
        values = self.values.value if isinstance(self.values, Parameter) else self.values
        return self.handle.at(values)

    def cross(self, x: Any, z: Any) -> Any:
        return _on_host(self.handle.cross, (len(x), len(z)), self.values, x, z)

    def gram_of(self, pairs: Pairs) -> Any:
        return _gram(self.handle, jnp.asarray(self.values), pairs["x"])

    def diagonal(self, x: Any) -> Any:
        return _on_host(self.handle.diagonal, (len(x),), self.values, x)


def _on_host(function: Callable[..., Any], shape: tuple[int, ...], *arrays: Any) -> Any:
    """A NumPy function of float64 arrays, called from compiled programs. JAX may call it in a thread in which 64-bit
    types are off, so numbers travel as pairs of 32-bit integers.
    """

    def called(*bits: Any) -> np.ndarray:
        found = function(*(np.ascontiguousarray(pairs).view(np.float64)[..., 0] for pairs in bits))
        return np.ascontiguousarray(found, dtype=np.float64)[..., None].view(np.uint32)

    bits = (jax.lax.bitcast_convert_type(jnp.asarray(array, jnp.float64), jnp.uint32) for array in arrays)
    found = jax.pure_callback(called, jax.ShapeDtypeStruct((*shape, 2), jnp.uint32), *bits)
    return jax.lax.bitcast_convert_type(found, jnp.float64)


def _call(handle: KernelHandle, values: Any, x: Any) -> Any:
    return _on_host(handle.gram, (len(x), len(x)), values, x)


_gram = jax.custom_vjp(_call, nondiff_argnums=(0,))


def _forward(handle: KernelHandle, values: Any, x: Any) -> Any:
    if x.perturbed:
        raise TypeError(
            f"{type(handle.kernel).__name__} is computed by scikit-learn, which has no derivative of it in the inputs; "
            "use a kernel of quantprop.kernels to differentiate in X"
        )
    return _call(handle, values.value, x.value), (values.value, x.value)


def _backward(handle: KernelHandle, saved: Any, by: Any) -> Any:
    values, x = saved
    return _on_host(handle.pull, jnp.shape(values), values, x, by), None


_gram.defvjp(_forward, _backward, symbolic_zeros=True)
