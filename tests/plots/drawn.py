"""Solutions with given sites, and what is read back from axes."""

from __future__ import annotations

import numpy as np

from quantprop import EP, Model, kernels, likelihoods
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.solution import Solution, Status

KERNEL = kernels.SquaredExponential(variance=1.5, lengthscale=0.8)
SITES = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 0.5])  # ν and τ
LINE = np.array([[0.0], [1.0], [2.5]])
PLANE = np.array([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0]])


def solution(likelihood, X=LINE, sites=SITES) -> Solution:
    """A Solution with given sites: what a picture shows depends on nothing else."""
    status = Status("converged", 1, 0.0, 1e-6, "parallel", 0)
    nothing = Normal(np.zeros(3), np.ones(3))
    return Solution(Model(KERNEL, likelihood), EP(), X, Natural(*sites), nothing, 0.0, np.zeros(3), status)


def latent(X, new, sites=SITES) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at new inputs: regression on ν/τ with noise variances 1/τ."""

    def k(a, b):
        return 1.5 * np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=2) / 0.8**2)

    gain = np.linalg.solve(k(X, X) + np.diag(1.0 / sites[1]), k(X, new)).T
    return gain @ (sites[0] / sites[1]), 1.5 - np.sum(gain.T * k(X, new), axis=0)


def predictive(likelihood, mean, variance=1e-12, trials=1.0) -> Predictive:
    mean = np.asarray(mean, dtype=float)
    return Predictive(likelihood, Normal(mean, np.full_like(mean, variance)), np.ones_like(mean), trials + 0.0 * mean)


def heights(ax) -> np.ndarray:
    return np.array([bar.get_height() for bar in ax.containers[0]])


def band(collection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, lower and upper ends of a fill_between (its polygon runs along the lower ends and back along the upper)."""
    corners = collection.get_paths()[0].vertices
    n = (len(corners) - 3) // 2
    return corners[1 : n + 1, 0], corners[1 : n + 1, 1], corners[n + 2 : 2 * n + 2, 1][::-1]


def step(restart: int, value: float, gradient: float = 1.0, reason: str = "converged") -> Step:
    return Step(restart, np.zeros(1), value, gradient, reason, 3, 0.1)


def fitted(steps: list[Step], found: Solution | None = None) -> Fitted:
    found = solution(likelihoods.Probit()) if found is None else found
    ending = Ending("converged", len(steps), 0, 0.0, ())
    return Fitted(found.model, found, "loo", 0.0, np.zeros(1), tuple(steps), ending)
