"""Rows of X and y that are read again and again, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from quantprop.core.data import inputs, pad, row_weights
from quantprop.inference.task import weight_of
from quantprop.likelihoods.base import Datum, Likelihood, encode
from quantprop.methods.base import Weight

CHUNK_ROWS = 2**16


@runtime_checkable
class Rows(Protocol):
    """Rows of X and y that can be read again and again: a file, or arrays."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> tuple[Float[np.ndarray, "n d"], np.ndarray]:
        """X and y of a range of rows."""
        ...

    def take(self, numbers: Int[np.ndarray, " k"]) -> tuple[Float[np.ndarray, "k d"], np.ndarray]:
        """X and y of some rows, by their numbers."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Rows in memory."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[start:stop], self.y[start:stop]

    def take(self, numbers: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        return self.x[numbers], self.y[numbers]


def chunks(
    rows: Rows, likelihood: Likelihood, size: int, every: int = 1
) -> Iterator[tuple[slice, np.ndarray, Datum, Weight]]:
    """Every chunk of `size` rows, or every `every`-th, checked and padded; the next is read during the computation."""
    n = len(rows)

    def one(start: int) -> tuple[slice, np.ndarray, Datum, Weight]:
        stop = min(start + size, n)
        x, y = rows.read(start, stop)
        x, data = inputs(x, f"X from row {start}"), encode(likelihood, y, (len(x),))
        return slice(start, stop), pad(x, size), pad(data, size), weight_of(row_weights(None, len(x)), size)

    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(one, 0)
        for start in range(every * size, n, every * size):
            found, ahead = ahead.result(), reader.submit(one, start)
            yield found
        yield ahead.result()
