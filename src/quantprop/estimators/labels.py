"""Labels that have an order: which they are, their codes 0, 1, ..., and where cutpoints between them start."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from quantprop.runtime.jobs import different, sums


def ordered(y: Any) -> np.ndarray:
    """The different labels of y in their order: that of numbers, or of the categories of an ordered Categorical."""
    kind: Any = getattr(y, "dtype", None)
    if getattr(kind, "ordered", False):
        return np.asarray(kind.categories)
    found = np.asarray(y)
    if found.ndim != 1:
        raise ValueError(f"y must hold one label for each row; got shape {found.shape}")
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"y holds labels such as {found.flat[0]!r}, whose order is not known: code them as numbers, or pass "
            "pandas.Categorical(y, categories=[lowest, ..., highest], ordered=True)"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"y[{int(np.argmin(np.isfinite(found)))}] is NaN or infinite, which is no label")
    labels = different(found)
    if len(labels) < 2:
        raise ValueError(f"y must hold two or more different labels; got only {labels.tolist()}")
    return labels


def codes(y: Any, labels: np.ndarray) -> np.ndarray:
    """The place of every label of y among the ordered ones."""
    place = {label: i for i, label in enumerate(labels.tolist())}
    found = [place.get(label) for label in np.asarray(y).tolist()]
    if None in found:
        row = found.index(None)
        raise ValueError(f"y[{row}] = {np.asarray(y)[row]!r} is none of the labels {labels.tolist()}")
    return np.array(found, dtype=np.float64)


def starting_cutpoints(codes: np.ndarray, n: int, weights: Any) -> np.ndarray:
    """Cutpoints c_j with P(f + ε ≤ c_j) = share of y up to label j, when f + ε ~ N(0, 2).

    Half a row is added to each label, so that one without rows has a place too.
    """
    counts = 0.5 + sums(np.bincount(codes.astype(int), weights, minlength=n))[0]
    shares = np.cumsum(counts)[:-1] / np.sum(counts)
    return np.sqrt(2.0) * ndtri(shares)
