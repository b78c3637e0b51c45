"""Expectation-propagation reference values for binary classification from GPy.

Writes ``gpy_reference.json`` beside this file: for three data sets at three settings
of (variance, lengthscale) each, the EP log evidence and the posterior mean and variance
of the latent function at every training input, in the row order of the CSV file.

Model: zero mean, isotropic kernel ``variance * exp(-|x - x'|**2 / (2 lengthscale**2))``,
probit Bernoulli likelihood, no jitter. The features are standardised on all rows (mean
zero, population standard deviation one); constant columns are dropped (one in ionosphere).

GPy's ``epsilon`` bounds the mean *squared* change of the site parameters per sweep; here
EP goes on until the largest change relative to the largest site parameter is below 1e-9,
and then ten sweeps further. Each record is compared with a NumPy EP written from Rasmussen
and Williams (2006), algorithm 3.5, with the evidence of equations 3.65 and 3.73 to 3.75.
The differences, stored too, are rounding only: below 1e-10, but for crabs at variance 1.5e5
(sites good to 1e-10 in double precision) 2e-10 in the evidence and 6e-9 in a moment.

Versions used: GPy 1.15.0, paramz 0.10.0, NumPy 2.4.6, SciPy 1.17.1, Python 3.11. To make
the environment: a virtual environment with ``pip install GPy==1.15.0 numpy==2.4.6
scipy==1.17.1`` (the package under test is not needed). Run with ``OMP_NUM_THREADS=1``.
"""

import argparse
import json
import platform
from pathlib import Path

import GPy
import numpy as np
import paramz
import scipy
from GPy.inference.latent_function_inference import EP
from scipy.linalg import cholesky, solve_triangular
from scipy.special import erfcx, log_ndtr

HERE = Path(__file__).resolve().parent
PACKAGE_DATA = HERE.parents[1] / "src" / "quantprop" / "datasets" / "data"
SETTINGS = {  # data set: (variance, lengthscale) pairs
    "ionosphere": [(1.0, 1.0), (64.0, 7.7), (10.0, 3.0)],
    "crabs": [(1.0, 1.0), (100.0, 5.0), (1.5e5, 21.5)],
    "sonar": [(1.0, 1.0), (31.6, 6.3), (1e3, 10.0)],
}
GPY_TOLERANCE = 1e-9  # relative change of the site parameters, before the further sweeps
EXTRA_SWEEPS = 10  # further sweeps; the evidence after half of them must agree to 1e-9
CHECK_TOLERANCE = 1e-12
CHECK_SWEEPS = 60  # at most: rounding may keep the changes above the tolerance
REPORT_ABOVE = 1e-7


def load(path):
    """Return standardised features (constant columns dropped) and labels -1/+1."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    features, labels = table[:, :-1], table[:, -1]
    features = features[:, np.ptp(features, axis=0) > 0]
    return (features - features.mean(axis=0)) / features.std(axis=0), labels


def change(new, old):
    """Largest change in units of the largest entry."""
    return np.max(np.abs(new - old)) / np.max(np.abs(new))


class ConvergedEP(EP):
    """GPy's EP, stopped by a relative criterion and then run for extra sweeps."""

    def __init__(self, extra):
        super().__init__(max_iters=1000, ep_mode="nested", always_reset=True)
        self.extra = extra

    def reset(self):
        super().reset()
        self.sweeps, self.converged_at = 1, None

    def _stop_criteria(self, ga_approx):
        self.sweeps += 1
        old = self.ga_approx_old
        self.last_change = max(change(ga_approx.tau, old.tau), change(ga_approx.v, old.v))
        if self.converged_at is None and self.last_change < GPY_TOLERANCE:
            self.converged_at = self.sweeps
        return self.converged_at is not None and self.sweeps >= self.converged_at + self.extra


def gpy_ep(features, labels, variance, lengthscale, extra):
    """Log evidence, latent means and variances, and the number of sweeps, from GPy."""
    np.random.seed(0)  # GPy visits the sites in random order  # noqa: NPY002
    method = ConvergedEP(extra)
    kernel = GPy.kern.RBF(features.shape[1], variance=variance, lengthscale=lengthscale)
    model = GPy.core.GP(
        features,
        (labels[:, None] > 0).astype(float),
        kernel=kernel,
        likelihood=GPy.likelihoods.Bernoulli(),
        inference_method=method,
    )
    assert method.converged_at is not None, f"no convergence: {method.last_change:.1e}"
    posterior = method._ep_approximation[0]
    return float(model.log_likelihood()), posterior.mu, np.diag(posterior.Sigma), method.sweeps


def probit_moments(label, mean, var):
    """Log mass, mean and variance of Phi(label * f) N(f; mean, var) (eq. 3.58)."""
    scale = np.sqrt(1.0 + var)
    z = label * mean / scale
    ratio = np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))  # N(z) / Phi(z)
    new_mean = mean + label * var * ratio / scale
    return log_ndtr(z), new_mean, var - var**2 * ratio * (z + ratio) / (1.0 + var)


def posterior_from_sites(gram, tau, nu):
    """Posterior mean and covariance and the Cholesky factor of B (eq. 3.53, 3.67 to 3.68)."""
    root = np.sqrt(tau)
    chol = cholesky(np.eye(len(tau)) + root[:, None] * gram * root, lower=True)
    half = solve_triangular(chol, root[:, None] * gram, lower=True)
    sigma = gram - half.T @ half
    return sigma @ nu, sigma, chol


def check_ep(features, labels, variance, lengthscale):
    """EP by algorithm 3.5: log evidence, latent means and variances, last change."""
    distance = np.sum((features[:, None, :] - features[None, :, :]) ** 2, axis=2)
    gram = variance * np.exp(-0.5 * distance / lengthscale**2)
    tau, nu = np.zeros((2, len(labels)))
    mu, sigma = np.zeros(len(labels)), gram.copy()
    for _ in range(CHECK_SWEEPS):
        old_tau, old_nu = tau.copy(), nu.copy()
        for i, label in enumerate(labels):
            cavity_tau = 1.0 / sigma[i, i] - tau[i]
            cavity_nu = mu[i] / sigma[i, i] - nu[i]
            _, mean, var = probit_moments(label, cavity_nu / cavity_tau, 1.0 / cavity_tau)
            step = 1.0 / var - cavity_tau - tau[i]
            tau[i] += step
            nu[i] = mean / var - cavity_nu
            column = sigma[:, i].copy()
            sigma -= step / (1.0 + step * column[i]) * np.outer(column, column)
            mu = sigma @ nu
        mu, sigma, chol = posterior_from_sites(gram, tau, nu)
        last_change = max(change(tau, old_tau), change(nu, old_nu))
        if last_change < CHECK_TOLERANCE:
            break
    cavity_tau = 1.0 / np.diag(sigma) - tau
    cavity_mean = (mu / np.diag(sigma) - nu) / cavity_tau
    log_mass, _, _ = probit_moments(labels, cavity_mean, 1.0 / cavity_tau)
    total = cavity_tau + tau
    evidence = (
        np.sum(log_mass)
        + 0.5 * np.sum(np.log1p(tau / cavity_tau))
        - np.sum(np.log(np.diag(chol)))
        + 0.5 * (nu @ mu - np.sum(nu**2 / total))
        + 0.5 * np.sum(cavity_mean * cavity_tau / total * (tau * cavity_mean - 2.0 * nu))
    )
    return float(evidence), mu, np.diag(sigma), last_change


def record(features, labels, variance, lengthscale, name):
    """One reference record, checked and reported."""
    args = (features, labels, variance, lengthscale)
    evidence, mean, var, sweeps = gpy_ep(*args, extra=EXTRA_SWEEPS)
    settled = abs(evidence - gpy_ep(*args, extra=EXTRA_SWEEPS // 2)[0])
    check = check_ep(*args)
    differences = {
        "log_evidence": abs(evidence - check[0]),
        "mean": float(np.max(np.abs(mean - check[1]))),
        "variance": float(np.max(np.abs(var - check[2]))),
    }
    print(
        f"{name:10s} variance {variance:g} lengthscale {lengthscale:g}: log evidence "
        f"{evidence:.12f}, {sweeps} sweeps, settled to {settled:.1e}, check to {check[3]:.0e};\n"
        f"    max |mean| {np.max(np.abs(mean)):.4g}, variance in [{var.min():.4g}, "
        f"{var.max():.4g}]; differences "
        + ", ".join(f"{key} {value:.1e}" for key, value in differences.items())
        + (" DEVIATES" if max(differences.values()) > REPORT_ABOVE else ""),
        flush=True,
    )
    assert settled < 1e-9
    return {
        "variance": variance,
        "lengthscale": lengthscale,
        "log_evidence": evidence,
        "latent_mean": mean.tolist(),
        "latent_variance": var.tolist(),
        "difference_from_check": differences,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=PACKAGE_DATA, help="folder of CSV files")
    parser.add_argument("--out", type=Path, default=HERE / "gpy_reference.json")
    options = parser.parse_args()
    versions = {m.__name__: m.__version__ for m in (GPy, paramz, np, scipy)}
    result = {"versions": versions | {"python": platform.python_version()}, "records": {}}
    for name, settings in SETTINGS.items():
        features, labels = load(options.data / f"{name}.csv")
        result["records"][name] = [record(features, labels, *pair, name) for pair in settings]
    options.out.write_text(json.dumps(result, indent=0) + "\n")


if __name__ == "__main__":
    main()
