"""A fitted regressor, for tests of files."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk
from storage.cases import NOISE, X

from quantprop.estimators import GaussianProcessRegressor


@pytest.fixture(scope="module")
def regressor():
    y = 100.0 + 20.0 * np.sin(X[:, 0]) + 5.0 * NOISE
    kernel = sk.RBF(1.0) + sk.WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True, random_state=1).fit(X, y)
