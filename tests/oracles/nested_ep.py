"""Nested EP for the multinomial probit in NumPy, after Riihimäki, Jylänki and Vehtari (2013): an oracle.

Nothing is shared with the library. The outer loop has one site for each datum, a Gaussian in its C latent values with a
full precision matrix; the inner loop finds it by EP for the tilted distribution in (f, u), one probit factor at a time,
until it has converged. All matrices are written out: (C n)³ a sweep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm


class Inner(NamedTuple):
    """A datum's tilted distribution as a Gaussian: log mass, mean and covariance of f, and the site (ν, T)."""

    log_mass: float
    mean: np.ndarray
    covariance: np.ndarray


def inner_ep(mean: np.ndarray, covariance: np.ndarray, label: int, sweeps: int = 300) -> Inner:
    """EP for ∫ N(u | 0, 1) N(f | mean, covariance) Π_j Φ(u + f_label − f_j), in the C + 1 variables (f, u)."""
    c = len(mean)
    prior = np.zeros((c + 1, c + 1))
    prior[:c, :c], prior[c, c] = covariance, 1.0
    start = np.append(mean, 0.0)
    others = [j for j in range(c) if j != label]
    b = np.zeros((c - 1, c + 1))
    b[:, label], b[:, c] = 1.0, 1.0
    b[np.arange(c - 1), others] = -1.0
    tau, nu, log_z = np.zeros(c - 1), np.zeros(c - 1), np.zeros(c - 1)
    precision, pull = np.linalg.inv(prior), np.linalg.solve(prior, start)
    for _ in range(sweeps):
        before = tau.copy(), nu.copy()
        for j in range(c - 1):
            posterior = np.linalg.inv(precision + b.T @ np.diag(tau) @ b)
            mu = posterior @ (pull + b.T @ nu)
            v, m = b[j] @ posterior @ b[j], b[j] @ mu
            v_cavity = 1.0 / (1.0 / v - tau[j])
            m_cavity = v_cavity * (m / v - nu[j])
            z = m_cavity / np.sqrt(1.0 + v_cavity)
            hazard = np.exp(norm.logpdf(z) - norm.logcdf(z))
            new_m = m_cavity + v_cavity * hazard / np.sqrt(1.0 + v_cavity)
            new_v = v_cavity - v_cavity**2 * hazard * (z + hazard) / (1.0 + v_cavity)
            tau[j], nu[j] = 1.0 / new_v - 1.0 / v_cavity, new_m / new_v - m_cavity / v_cavity
            # log of the site's scale: Z = scale × ∫ N(cavity) exp(ν h − ½ τ h²)
            log_z[j] = norm.logcdf(z) - _log_site_integral(m_cavity, v_cavity, nu[j], tau[j])
        if max(np.abs(tau - before[0]).max(), np.abs(nu - before[1]).max()) < 1e-13:
            break
    posterior = np.linalg.inv(precision + b.T @ np.diag(tau) @ b)
    mu = posterior @ (pull + b.T @ nu)
    log_mass = log_z.sum() + _log_gaussian_integral(start, prior, b.T @ nu, b.T @ np.diag(tau) @ b)
    return Inner(log_mass, mu[:c], posterior[:c, :c])


def _log_site_integral(m: float, v: float, nu: float, tau: float) -> float:
    return float(_log_gaussian_integral(np.array([m]), np.array([[v]]), np.array([nu]), np.array([[tau]])))


def _log_gaussian_integral(m: np.ndarray, k: np.ndarray, nu: np.ndarray, t: np.ndarray) -> float:
    """log ∫ N(f | m, k) exp(νᵀf − ½ fᵀ t f) df."""
    size = np.linalg.slogdet(np.eye(len(m)) + k @ t)[1]
    mu = np.linalg.solve(np.eye(len(m)) + k @ t, m + k @ nu)
    return float(-0.5 * size + 0.5 * nu @ mu + 0.5 * (nu - t @ mu) @ m)


class NestedEP(NamedTuple):
    """Evidence, and mean and covariance of all latent values, data by classes."""

    log_evidence: float
    mean: np.ndarray
    covariance: np.ndarray


def nested_ep(kernels: list[np.ndarray], labels: np.ndarray, sweeps: int = 200) -> NestedEP:
    """`kernels` has a covariance matrix for every class, of the data."""
    c, n = len(kernels), len(labels)
    prior = np.zeros((n, c, n, c))
    for j, k in enumerate(kernels):
        prior[:, j, :, j] = k
    prior = prior.reshape(n * c, n * c)
    t, nu, log_z = np.zeros((n, c, c)), np.zeros((n, c)), np.zeros(n)
    for _ in range(sweeps):
        before = t.copy()
        for i in range(n):
            mean, covariance = _posterior(prior, t, nu)
            at = slice(i * c, (i + 1) * c)
            own = np.linalg.inv(covariance[at, at])
            v = np.linalg.inv(own - t[i])
            m = v @ (own @ mean[at] - nu[i])
            found = inner_ep(m, v, int(labels[i]))
            new = np.linalg.inv(found.covariance)
            t[i], nu[i] = new - np.linalg.inv(v), new @ found.mean - np.linalg.solve(v, m)
            log_z[i] = found.log_mass - _log_gaussian_integral(m, v, nu[i], t[i])
        if np.abs(t - before).max() < 1e-11:
            break
    mean, covariance = _posterior(prior, t, nu)
    whole = _log_gaussian_integral(np.zeros(n * c), prior, nu.ravel(), _block_diagonal(t))
    return NestedEP(float(log_z.sum() + whole), mean.reshape(n, c), covariance)


def _block_diagonal(t: np.ndarray) -> np.ndarray:
    n, c, _ = t.shape
    full = np.zeros((n, c, n, c))
    full[np.arange(n), :, np.arange(n), :] = t
    return full.reshape(n * c, n * c)


def _posterior(prior: np.ndarray, t: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    covariance = np.linalg.solve(np.eye(len(prior)) + prior @ _block_diagonal(t), prior)
    covariance = 0.5 * (covariance + covariance.T)
    return covariance @ nu.ravel(), covariance
