"""Observations y: their likelihoods by name, Gaussian noise that is known or learned, and labels that have an order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.special import ndtri

from quantprop.core.data import bucket, pad
from quantprop.core.parameters import Parameter
from quantprop.estimators.core import FittedCore
from quantprop.estimators.first_kernel import has_white
from quantprop.estimators.rows import label_counts
from quantprop.inference.prediction import gram_of
from quantprop.kernels import Terms
from quantprop.learning.sizes import size_of
from quantprop.likelihoods import KINDS, Gaussian, Likelihood
from quantprop.likelihoods.binary import Binary
from quantprop.model import DEFAULT_PROCESS
from quantprop.runtime import jobs
from quantprop.runtime.precision import float64

DEFAULT_ALPHA = 1e-10
NOISE_REMEDY = "learn the noise with likelihood=likelihoods.Gaussian() or + WhiteKernel(), or pass a larger alpha"
LEVEL_REMEDY = "if y lies far from 0, use mean='constant' or normalize_y=True"


OF_CLASSES = {name: kind for name, kind in KINDS.items() if issubclass(kind, Binary)}
OF_NUMBERS = {name: kind for name, kind in KINDS.items() if kind.observes not in ("classes", "other")}


def is_on_real_line(likelihood: Likelihood) -> bool:
    """Return whether y is one number between −∞ and ∞, in the unit of f."""
    unbounded = likelihood.interval == (-np.inf, np.inf)
    return likelihood.noise_name is not None and likelihood.columns == 1 and unbounded


def gaussian_by_name(kernel: Any, alpha: Any, y: np.ndarray, normalize_y: bool) -> Gaussian:
    """Noise of variance `alpha`, or of the mean of an array; learned, if alpha is the default and the kernel is not the
    user's own.

    A term white() is learned instead. Beside it, `alpha` is in units of the variance of y.
    """
    known = float(np.mean(alpha))
    if np.ndim(alpha) == 0 and known == DEFAULT_ALPHA and (kernel is None or isinstance(kernel, (str, Terms))):
        if not has_white(kernel):
            return Gaussian()
        known *= 1.0 if normalize_y else size_of(y).spread ** 2
    return Gaussian(Parameter(np.sqrt(known), fixed=True))


def relative_precisions(alpha: Any, n: int) -> np.ndarray:
    """Precisions of noise that differs between rows, relative to the mean variance, which new rows have."""
    alpha = np.asarray(alpha, dtype=np.float64)
    if alpha.shape != (n,):
        raise ValueError(f"alpha must be a scalar or an array with same number of entries as y. "
                         f"({alpha.shape[0]} != {n})")  # fmt: skip
    return alpha.mean() / alpha


def check_factor(core: FittedCore) -> None:
    """Raise scikit-learn's error if the covariance of y, noise included, cannot be factorised."""
    if _is_singular(core):
        likelihood: Any = core.fitted.model.likelihood
        raise np.linalg.LinAlgError(
            f"The kernel, {core.kernel}, is not returning a positive definite matrix. Try gradually increasing the "
            "'alpha' parameter of your GaussianProcessRegressor estimator; or "
            + (NOISE_REMEDY if likelihood.scale.fixed else LEVEL_REMEDY)
        )


@float64
def _is_singular(core: FittedCore) -> bool:
    solution = core.fitted.solution
    if solution.status.reason == "improper-start" or solution.model.process != DEFAULT_PROCESS:
        return solution.status.reason == "improper-start"
    n = len(solution.X)
    k = np.array(gram_of(solution.model.plain_kernel, pad(solution.X, bucket(n)))[:n, :n])
    k[np.diag_indices(n)] += 1.0 / solution.sites.tau
    _, failed = lapack.dpotrf(k, overwrite_a=True)  # pyright: ignore[reportAttributeAccessIssue]
    return failed != 0


def ordered(y: Any) -> np.ndarray:
    """The different labels of y in their order: that of numbers, or of the categories of an ordered Categorical."""
    kind: Any = getattr(y, "dtype", None)
    if getattr(kind, "ordered", False):
        return np.asarray(kind.categories)
    found = np.asarray(y)
    if found.ndim != 1:
        raise ValueError(f"y must have one label per row; got shape {found.shape}")
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"y holds labels such as {found.flat[0]!r}, whose order is not known: code them as numbers, or pass "
            "pandas.Categorical(y, categories=[lowest, ..., highest], ordered=True)"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"y[{int(np.argmin(np.isfinite(found)))}] is NaN or infinite, which is not a label")
    labels = jobs.different(found)
    if len(labels) < 2:
        raise ValueError(f"y must hold two or more different labels; got only {labels.tolist()}")
    return labels


def codes(y: Any, labels: np.ndarray) -> np.ndarray:
    """The position of every label of y among the ordered ones."""
    place = {label: i for i, label in enumerate(labels.tolist())}
    given = np.asarray(y).tolist()
    for row, label in enumerate(given):
        if label not in place:
            raise ValueError(f"y[{row}] = {label!r} is not one of the labels {labels.tolist()}")
    return np.array([place[label] for label in given], dtype=np.float64)


def starting_cutpoints(codes: np.ndarray, n: int, weights: Any) -> np.ndarray:
    """Cutpoints c_j with P(f + ε ≤ c_j) = share of y up to label j, when f + ε ~ N(0, 2).

    Half a row is added to each label, so that one without rows has a place too.
    """
    counts = 0.5 + label_counts(codes, n, weights)
    shares = np.cumsum(counts)[:-1] / np.sum(counts)
    return np.sqrt(2.0) * ndtri(shares)
