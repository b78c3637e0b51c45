"""Pieces of what a kernel needs of all pairs of points, by name; see `Kernel.pairs`."""

from __future__ import annotations

from jaxtyping import Array

Pairs = dict[str, Array]


def prefixed(prefix: str, pairs: Pairs) -> Pairs:
    """Pieces of pairs under names that no other kernel's have."""
    return {prefix + name: piece for name, piece in pairs.items()}


def without_prefix(prefix: str, pairs: Pairs) -> Pairs:
    """The pieces that `prefixed` has renamed, under their own names."""
    return {name.removeprefix(prefix): piece for name, piece in pairs.items() if name.startswith(prefix)}
