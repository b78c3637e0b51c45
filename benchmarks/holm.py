"""Several tests at a time: p-values after Holm's correction."""

from __future__ import annotations

import numpy as np


def holm(p_values: list[float]) -> list[float]:
    """The level at which each hypothesis is rejected, if the chance of any false rejection is to be below it.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    order = np.argsort(p)
    stepped = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    return np.minimum(1.0, stepped)[np.argsort(order)].tolist()
