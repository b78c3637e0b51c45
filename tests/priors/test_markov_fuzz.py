"""Series as awkward as they come: steps of 1e-12 and 1e12 lengthscales, repeated times, variances from 1e-5 to 1e8."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

from quantprop import EP, QP, Dense, Markov, Model, infer, kernels, likelihoods
from quantprop.inference.prediction import PrecisionWarning

N, NEW = 60, 9
SWEEPS_ALONE = 59  # with fewer than 60 `infer` does not go on by paths of problems, which take a minute a series
PATIENT = 24  # series of each kernel, not log-concave, that get `infer`'s own limit and its paths
EACH = 168  # series of the campaign for each likelihood and kernel: 2,016 in all
CASES = (
    ("poisson", likelihoods.Poisson(), EP(), True),
    ("probit", likelihoods.Probit(), QP(), True),
    ("student-t", likelihoods.StudentT(4.0, 0.3), EP(), False),
)


KERNELS = {
    "matern52": kernels.Matern52,
    "constant": lambda v, s: kernels.Matern12(v, s) + kernels.Constant(0.1 * v),
    "oscillation": lambda v, s: kernels.Oscillation(v, s, 0.7 * s) + kernels.Matern32(0.1 * v, 3.0 * s),
    "product": lambda v, s: kernels.Matern12(1.0, 10.0 * s) * kernels.Matern32(v, s) + kernels.White(0.01 * v),
}


def times(rng: np.random.Generator, lengthscale: float) -> np.ndarray:
    """Steps of all sizes, in units of the lengthscale, in no order."""
    kinds = rng.choice(4, size=N, p=[0.6, 0.15, 0.15, 0.1])
    sizes = np.array([1.0, 0.0, 1e-12, 1e12])[kinds] * rng.uniform(0.1, 1.0, N) * 10.0 ** rng.uniform(-2, 1)
    if rng.random() < 0.7:  # most series have no step that dwarfs all others' digits
        sizes = np.where(kinds == 3, 30.0, sizes)
    return rng.permutation(lengthscale * np.cumsum(sizes))


def draw(rng: np.random.Generator, name: str, t: np.ndarray, lengthscale: float) -> np.ndarray:
    f = rng.uniform(0, 3) * np.sin(t / lengthscale) + rng.normal()
    draws = {
        "poisson": lambda: rng.poisson(np.exp(f)),
        "probit": lambda: np.where(f + rng.normal(size=N) > 0, 1.0, -1.0),
        "student-t": lambda: f + 0.3 * rng.standard_t(3, size=N),
    }
    return draws[name]().astype(float)


def tried(seed: int, case, kind: str = "matern52", max_sweeps: int = 200) -> bool:
    """Whether inference on one series converged; anything worse than that is an error."""
    name, likelihood, method, _ = case
    rng = np.random.default_rng(seed)
    lengthscale, variance = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-5, 8)
    t = times(rng, lengthscale)
    y, kernel = draw(rng, name, t, lengthscale), KERNELS[kind](variance, lengthscale)
    weights = np.where(rng.random(N) < 0.1, 0.0, 1.0)
    weights[0] = 1.0
    new = np.concatenate([rng.choice(t, 4), rng.uniform(t.min() - lengthscale, t.max() + lengthscale, NEW - 4)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        model = Model(kernel, likelihood, process=Markov())
        solution = infer(model, t[:, None], y, method, weights=weights, max_sweeps=max_sweeps)
        latent = solution.predict(new[:, None])
    assert np.isfinite(solution.marginals.mean).all(), seed
    assert (solution.marginals.variance > 0).all(), seed
    with jax.enable_x64(True):
        prior = np.asarray(kernel.diagonal(t[:, None]))
    assert (solution.marginals.variance <= prior * (1 + 1e-9)).all() or not likelihood.log_concave, seed
    assert np.isfinite(solution.log_evidence), seed
    assert np.isfinite(latent.mean).all(), seed
    assert (latent.variance > 0).all(), seed
    assert solution.converged == (solution.status.residual <= solution.status.tol), seed
    if solution.converged and 1e-3 < variance < 1e3 and np.ptp(t) < 1e4 * lengthscale and seed % 10 == 0:
        dense = infer(Model(kernel, likelihood, process=Dense()), t[:, None], y, method, weights=weights)
        if dense.converged:
            assert solution.log_evidence == pytest.approx(dense.log_evidence, rel=1e-5, abs=1e-5), seed
    return solution.converged


@pytest.mark.campaign
def test_some_series():
    assert np.mean([tried(seed, CASES[1]) for seed in range(50)]) >= 0.98


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_two_thousand_series(case, kind):
    """168 series each; of those with a log-concave likelihood at most one in 200 may not converge: none of 168.

    With Student-t noise some have no proper cavities, or several modes: nine in ten converge, most of the
    rest by paths.
    """
    *_, log_concave = case
    seeds = range(1000, 1000 + EACH)
    patient = seeds if log_concave else seeds[:PATIENT]
    found = np.array([tried(seed, case, kind) for seed in patient])
    assert np.mean(found) >= (0.995 if log_concave else 0.9), np.flatnonzero(~found) + 1000
    for seed in seeds[len(patient) :]:
        tried(seed, case, kind, max_sweeps=SWEEPS_ALONE)
