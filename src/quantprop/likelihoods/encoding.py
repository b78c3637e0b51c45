"""Observations as a likelihood takes them, checked against its support."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantprop.core.data import check_entries, positive_rows, real_array, spread
from quantprop.likelihoods.base import Datum, Likelihood


def scales(likelihood: Likelihood, shape: tuple[int, ...], exposure: Any, trials: Any) -> dict[str, np.ndarray]:
    """Exposure and trials per datum, or an error where the likelihood has no use for one."""
    given = {"exposure": exposure, "trials": trials}
    for name, value in given.items():
        if value is not None and name not in likelihood.scaled_by:
            raise ValueError(f"{name} was given, but the {likelihood.name} likelihood does not use it")
    return {name: positive_rows(value, name, shape) for name, value in given.items()}


def observed(y: Any, likelihood: Likelihood, n: int) -> np.ndarray:
    """The observations of n rows, in the shape that the likelihood takes."""
    expected = (n,) if likelihood.columns == 1 else (n, likelihood.columns)
    if (array := real_array(y, "y")).shape != expected:
        raise ValueError(f"y must have shape {expected}, one entry per row of X; got shape {array.shape}")
    return array


def encode(likelihood: Likelihood, y: Any, shape: tuple[int, ...], exposure: Any = None, trials: Any = None) -> Datum:
    """Observations as the likelihood takes them, every one checked against its support."""
    tail = (likelihood.columns,) if likelihood.columns > 1 else ()
    array = real_array(y, "y")
    check_entries(np.isnan(array), array, "y", ": NaN is not allowed")
    array = spread(array, shape + tail, "y")
    more = scales(likelihood, shape, exposure, trials)
    array = likelihood.code(array)
    outside = f" is outside the support of the {likelihood.name} likelihood: {likelihood.support}"
    check_entries(~likelihood.in_support(array, more["trials"]), array, "y", outside)
    return Datum(array, **more)
