"""Fingerprints of a problem's rows in their order, however they are divided among processes.

They detect data that have changed. They are not secure: other data with the same fingerprint can be constructed.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

STEP = np.uint64(0x9E3779B97F4A7C15)
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))  # splitmix64 (Steele, Lea and Flood 2014)


def of_rows(start: int, *columns: Float[np.ndarray, "n ..."]) -> np.uint64:
    """The fingerprint of rows from row `start` on; fingerprints of parts add up, modulo 2⁶⁴, to that of all rows."""
    n = len(columns[0])
    words = np.column_stack([np.asarray(one, np.float64).reshape(n, -1) for one in columns]).view(np.uint64)
    weights = _mixed(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    place = np.arange(start, start + n, dtype=np.uint64) * STEP
    return np.sum(_mixed(_mixed(words * weights).sum(axis=1, dtype=np.uint64) + place), dtype=np.uint64)


def _mixed(words: np.ndarray) -> np.ndarray:
    for shift, factor in MIXERS:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words


def together(parts: Any) -> str:
    """The fingerprint of all rows, as text, from the fingerprints of their parts."""
    return f"{int(np.sum(parts, dtype=np.uint64)):016x}"


def of_numbers(tree: Any) -> str:
    made = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf, np.float64)
        made.update(repr(array.shape).encode() + array.tobytes())
    return made.hexdigest()[:16]
