"""Small problems for tests of inducing points, and the evidence of a model at its own numbers."""

from __future__ import annotations

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, PowerEP, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare, settled
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.runtime.precision import float64

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3, 3, (30, 1)), axis=0)
LABELS = np.sign(np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=30))
COUNTS = RNG.poisson(np.exp(1 + np.sin(2 * X[:, 0]))).astype(float)
REALS = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_t(3, size=30)
NEW = np.linspace(-3, 3, 7)[:, None]
Z = np.linspace(-2.8, 2.8, 8)[:, None]
KERNEL = kernels.Matern32(1.5, 0.3)  # shorter than the typical distance: K_uu is well conditioned
DATA = {
    "probit": (likelihoods.Probit(), LABELS),
    "poisson": (likelihoods.Poisson(), COUNTS),
    "student-t": (likelihoods.StudentT(4.0, 0.3), REALS),
}
METHODS = {"ep": EP(), "qp": QP(), "power ½": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}


def point(model: Model, y, method, weights=None, theta=None, x=X):
    """The evidence with its gradient at the model's own numbers, or at others."""
    model = settled(model, x)
    surface = Landscape(model, prepare(model, x, y, method, weights, None, None), method, as_objective("evidence"),
                        tol=1e-10)  # fmt: skip
    return surface.at(packed(surface.parts) if theta is None else theta)


@float64
def fitc(power: float, y: np.ndarray, noise: float, x=X) -> tuple[float, np.ndarray, np.ndarray]:
    """Bui, Yan and Turner (2017), eqs. 14 and 15: log evidence, and mean and covariance at NEW."""
    k_uu, k_uf, k_un = (np.asarray(KERNEL.cross(Z, other)) for other in (Z, x, NEW))
    q = k_uf.T @ np.linalg.solve(k_uu, k_uf)
    d = np.diag(np.asarray(KERNEL.cross(x, x))) - np.diag(q)
    c = q + np.diag(power * d + noise**2)
    cross = k_uf.T @ np.linalg.solve(k_uu, k_un)
    value = -0.5 * (y @ np.linalg.solve(c, y) + np.linalg.slogdet(2 * np.pi * c)[1])
    extra = np.log1p(power * d / noise**2) / power if power else d / noise**2
    covariance = np.asarray(KERNEL.cross(NEW, NEW)) - cross.T @ np.linalg.solve(c, cross)
    return value - 0.5 * (1 - power) * extra.sum(), cross.T @ np.linalg.solve(c, y), covariance
