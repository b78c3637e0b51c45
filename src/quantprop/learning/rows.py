"""Rows of data that are read again for every pass over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int


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
        """A range of rows."""
        return self.x[start:stop], self.y[start:stop]

    def take(self, numbers: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        """Some rows."""
        return self.x[numbers], self.y[numbers]
