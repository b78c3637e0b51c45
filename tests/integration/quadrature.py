"""Gaussian-process regression with its hyperparameters integrated by brute force, in NumPy alone."""

from typing import NamedTuple

import numpy as np


class Truth(NamedTuple):
    """Moments of θ = (log variance, log lengthscale[, log noise]), log evidence, and log p(y_new)."""

    mean: np.ndarray
    sd: np.ndarray
    log_evidence: float
    log_density: np.ndarray
    theta: np.ndarray  # the lattice
    weights: np.ndarray

    def cdf(self, i: int, at: np.ndarray) -> np.ndarray:
        """P(θ_i ≤ at), each point of the lattice standing for its cell."""
        places, which = np.unique(self.theta[:, i], return_inverse=True)
        half = 0.5 * (places[1] - places[0])
        below = np.concatenate([[0.0], np.cumsum(np.bincount(which, self.weights))])
        return np.interp(at, np.append(places - half, places[-1] + half), below)


def _covariance(a, b, theta):
    variance, lengthscale = np.exp(theta[:, 0]), np.exp(theta[:, 1])
    squares = (a[:, None] - b) ** 2
    return variance[:, None, None] * np.exp(-0.5 * squares / lengthscale[:, None, None] ** 2)


def truth(x, y, x_new, y_new, axes, log_prior, noise=None) -> Truth:
    """The trapezoidal sum over a lattice of θ; `axes` are its coordinates, `noise` the fixed noise if it is not one."""
    theta = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
    volume = np.prod([axis[1] - axis[0] for axis in axes])
    sigma = np.full(len(theta), noise) if noise is not None else np.exp(theta[:, 2])
    k = _covariance(x, x, theta) + sigma[:, None, None] ** 2 * np.eye(len(x))
    factor = np.linalg.cholesky(k)
    white = np.linalg.solve(factor, np.broadcast_to(y[:, None], (len(theta), len(y), 1)))[:, :, 0]
    logs = -0.5 * (white**2).sum(1) - np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
    logs += log_prior(theta) - 0.5 * len(y) * np.log(2 * np.pi)
    total = np.logaddexp.reduce(logs)
    w = np.exp(logs - total)
    cross = np.linalg.solve(factor, _covariance(x, x_new, theta))
    mean = np.einsum("kin,ki->kn", cross, white)
    variance = np.exp(theta[:, :1]) - (cross**2).sum(1) + sigma[:, None] ** 2
    density = -0.5 * ((y_new - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    centre = w @ theta
    sd, mixed = np.sqrt(w @ (theta - centre) ** 2), np.log(w @ np.exp(density))
    return Truth(centre, sd, total + np.log(volume), mixed, theta, w)
