"""Limits of the size of a kernel, of this library or another: Python and JAX go through it by recursion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_TERMS = 200
MAX_DEPTH = 240  # kernels inside each other


class KernelSizeError(ValueError):
    """A kernel of too many terms."""


def check_size(kernel: Any, is_kernel: Callable[[Any], bool]) -> None:
    """Refuse a kernel of too many terms, or nested too deep, before anything goes through it by recursion."""
    terms, level = 0, [kernel]
    for _ in range(MAX_DEPTH):
        inside = [[part for part in vars(node).values() if is_kernel(part)] for node in level]
        terms += sum(not parts for parts in inside)
        level = [part for parts in inside for part in parts]
        if not level:
            return
        if terms + len(level) > MAX_TERMS:
            raise KernelSizeError(f"kernel: more than {MAX_TERMS} terms: one term can take several columns: "
                                  "SquaredExponential().on(columns, ard=True)")  # fmt: skip
    raise KernelSizeError(f"kernel: more than {MAX_DEPTH} kernels inside each other")
