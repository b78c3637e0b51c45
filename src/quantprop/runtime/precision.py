"""float64 for every computation of the library, without touching the user's JAX settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from quantprop.runtime.memory import explained
from quantprop.runtime.system import check_fork

P = ParamSpec("P")
R = TypeVar("R")


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run a public function with 64-bit types, whatever the caller's global setting is.

    JAX caches programs per setting, so a user's own float32 programs are unaffected.
    """

    @wraps(function)
    def in_float64(*args: P.args, **kwargs: P.kwargs) -> R:
        check_fork()
        with jax.enable_x64(True), explained((args, kwargs)):  # an accelerator may raise only when its numbers are read
            return function(*args, **kwargs)

    return in_float64


def to_numpy(tree: Any) -> Any:
    """Every array leaf as a NumPy array, since a float64 JAX array turns float32 at a user's next `+`; the rows of this
    process if they are divided among several.
    """
    return jax.tree.map(_to_numpy, tree)


def _to_numpy(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    parts = sorted(leaf.addressable_shards, key=lambda part: part.index[0].start or 0)
    return np.concatenate([np.asarray(part.data) for part in parts])
