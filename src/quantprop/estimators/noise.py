"""The noise of the regressor's Gaussian likelihood by name: known, as in scikit-learn, or learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from quantprop.data import bucket, pad
from quantprop.estimators.core import Core
from quantprop.estimators.terms import with_white
from quantprop.inference.prediction import gram_of
from quantprop.kernels import Terms
from quantprop.learning.starts import size_of
from quantprop.likelihoods import Gaussian
from quantprop.model import DEFAULT_PROCESS
from quantprop.parameters import Parameter
from quantprop.runtime.precision import float64

ALPHA = 1e-10  # by default
REMEDY = "learn the noise, by likelihood=likelihoods.Gaussian() or by + WhiteKernel(), or give a larger alpha"
LEVEL = "where y lies far from 0, use mean='constant' or normalize_y=True"


def gaussian_by_name(kernel: Any, alpha: Any, y: np.ndarray, normalize_y: bool) -> Gaussian:
    """Noise of variance `alpha`, of the mean of an array; learned, where this is the default and the kernel is not the
    user's own.

    A term white() is learned instead. Beside it, `alpha` is in units of the variance of y.
    """
    known = float(np.mean(alpha))
    if np.ndim(alpha) == 0 and known == ALPHA and (kernel is None or isinstance(kernel, (str, Terms))):
        if not with_white(kernel):
            return Gaussian()
        known *= 1.0 if normalize_y else size_of(y).spread ** 2
    return Gaussian(Parameter(np.sqrt(known), fixed=True))


def check_factor(core: Core) -> None:
    """Raise scikit-learn's error where the covariance of y, noise included, cannot be factorised."""
    if _singular(core):
        likelihood: Any = core.fitted.model.likelihood
        raise np.linalg.LinAlgError(
            f"The kernel, {core.kernel}, is not returning a positive definite matrix. Try gradually increasing the "
            "'alpha' parameter of your GaussianProcessRegressor estimator; or "
            + (REMEDY if likelihood.scale.fixed else LEVEL)
        )


@float64
def _singular(core: Core) -> bool:
    solution = core.fitted.solution
    if solution.status.reason == "improper-start" or solution.model.process != DEFAULT_PROCESS:
        return solution.status.reason == "improper-start"
    n = len(solution.X)
    k = np.array(gram_of(solution.model.plain_kernel, pad(solution.X, bucket(n)))[:n, :n])
    k[np.diag_indices(n)] += 1.0 / solution.sites.tau
    _, failed = lapack.dpotrf(k, overwrite_a=True)  # pyright: ignore[reportAttributeAccessIssue]
    return failed != 0
