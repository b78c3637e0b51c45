"""Data drawn from each model itself: inference ends well or says why not, predictions are distributions, and they
predict held-out data better than the best constant model does (where inference converged)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_expit, log_ndtr, ndtr

from quantprop import Model, Solution, infer, kernels, likelihoods
from quantprop.core.gaussian import Normal

METHODS = ("ep", "qp", "vb", "laplace")
TRAINING, HELD_OUT, INPUTS = 200, 100, 4
NODES = 28  # INPUTS × NODES rows are padded to the same size as HELD_OUT rows, so they share compiled programs
LEVELS = (0.025, 0.5, 0.975)
CUTS = np.array([-1.0, 0.2, 1.1])
EDGES = np.array([-np.inf, *CUTS, np.inf])


def softplus(f: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, f)


def interval(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """log p of the rows (lower, upper) of y ~ N(f, 0.4²); y has its two ends in front."""
    lower, upper = y
    inside = ndtr((upper - f) / 0.4) - ndtr((lower - f) / 0.4)
    exact = stats.norm.logpdf(np.where(lower == upper, lower, 0.0), f, 0.4)
    return np.where(lower == upper, exact, np.log(np.maximum(inside, 1e-300)))


def category(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    upper, lower = EDGES[y.astype(int) + 1] - f, EDGES[y.astype(int)] - f
    return np.log(np.maximum(ndtr(upper) - ndtr(lower), 1e-300))


def flipped(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Labels that are 1 with probability p."""
    return np.where(rng.uniform(size=p.shape) < p, 1.0, -1.0)


@dataclass(frozen=True)
class Case:
    """A likelihood, y drawn by NumPy given f, and log p(y | f) by SciPy."""

    likelihood: likelihoods.Likelihood
    draw: Callable
    log_prob: Callable
    mean: float = 0.0
    scales: dict = field(default_factory=dict)


def beta(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return 30.0 * expit(f), 30.0 * expit(-f)


CASES = {
    "gaussian": Case(
        likelihoods.Gaussian(0.5), lambda r, f: r.normal(f, 0.5), lambda y, f: stats.norm.logpdf(y, f, 0.5)
    ),
    "probit": Case(likelihoods.Probit(), lambda r, f: flipped(r, ndtr(f)), lambda y, f: log_ndtr(y * f)),
    "logit": Case(likelihoods.Logit(), lambda r, f: flipped(r, expit(f)), lambda y, f: log_expit(y * f)),
    "heaviside": Case(
        likelihoods.Heaviside(0.05),
        lambda r, f: flipped(r, np.where(f > 0, 0.95, 0.05)),
        lambda y, f: np.log(np.where(y * f > 0, 0.95, 0.05)),
    ),
    "poisson, exp": Case(
        likelihoods.Poisson("exp"),
        lambda r, f: r.poisson(np.exp(f)),
        lambda y, f: stats.poisson.logpmf(y, np.exp(f)),
        mean=0.5,
    ),
    "poisson, square": Case(
        likelihoods.Poisson("square"),
        lambda r, f: r.poisson(f**2),
        lambda y, f: stats.poisson.logpmf(y, f**2),
        mean=2.0,
    ),
    "poisson, softplus": Case(
        likelihoods.Poisson("softplus"),
        lambda r, f: r.poisson(softplus(f)),
        lambda y, f: stats.poisson.logpmf(y, softplus(f)),
        mean=1.0,
    ),
    "negative binomial": Case(
        likelihoods.NegativeBinomial(0.4, "exp"),
        lambda r, f: r.negative_binomial(2.5, 1.0 / (1.0 + 0.4 * np.exp(f))),
        lambda y, f: stats.nbinom.logpmf(y, 2.5, 1.0 / (1.0 + 0.4 * np.exp(f))),
        mean=1.0,
    ),
    "binomial": Case(
        likelihoods.Binomial("logit"),
        lambda r, f: r.binomial(6, expit(f)),
        lambda y, f: stats.binom.logpmf(y, 6, expit(f)),
        scales={"trials": 6.0},
    ),
    "student-t": Case(
        likelihoods.StudentT(4.0, 0.4),
        lambda r, f: f + 0.4 * r.standard_t(4.0, size=f.shape),
        lambda y, f: stats.t.logpdf(y, 4.0, f, 0.4),
    ),
    "double exponential": Case(
        likelihoods.DoubleExponential(0.4), lambda r, f: r.laplace(f, 0.4), lambda y, f: stats.laplace.logpdf(y, f, 0.4)
    ),
    "gamma": Case(
        likelihoods.Gamma(2.0, "exp"),
        lambda r, f: r.gamma(2.0, np.exp(f) / 2.0),
        lambda y, f: stats.gamma.logpdf(y, 2.0, scale=np.exp(f) / 2.0),
    ),
    "beta": Case(
        likelihoods.Beta(30.0, "logit"), lambda r, f: r.beta(*beta(f)), lambda y, f: stats.beta.logpdf(y, *beta(f))
    ),
    "ordinal": Case(
        likelihoods.Ordinal(CUTS), lambda r, f: np.searchsorted(CUTS, r.normal(f, 1.0)).astype(float), category
    ),
    "censored": Case(likelihoods.Censored(0.4), lambda r, f: r.normal(f, 0.4), interval),
}


def inflated(log_pmf: Callable) -> Callable:
    """log p(y | f) where a quarter of the rows are 0 whatever f is."""
    return lambda y, f: np.logaddexp(np.where(y == 0, np.log(0.25), -np.inf), np.log(0.75) + log_pmf(y, f))


def lifetime(log_density: Callable, outlived: Callable) -> Callable:
    """log p of the rows (lower, upper) of log y = f + 0.4 ε; y has its two ends in front."""

    def log_prob(y: np.ndarray, f: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            low, high = ((np.log(end) - f) / 0.4 for end in y)
        seen = y[0] == y[1]
        exact = log_density(np.where(seen, low, 0.0)) - np.log(0.4) - np.log(np.where(seen, y[0], 1.0))
        with np.errstate(over="ignore"):
            inside = outlived(low) - outlived(high)
        return np.where(seen, exact, np.log(np.maximum(inside, 1e-300)))

    return log_prob


WARP = likelihoods.Warped(0.3, [0.8, 0.5], [0.5, 1.0], [-0.5, 1.0])


def warped(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    steps = np.tanh((y[..., None] - [-0.5, 1.0]) / [0.5, 1.0])
    slope = 1.0 + ((1.0 - steps**2) * [1.6, 0.5]).sum(axis=-1)
    return stats.norm.logpdf(y + steps @ [0.8, 0.5], f, 0.3) + np.log(slope)


CASES |= {
    "zero-inflated poisson": Case(
        likelihoods.ZeroInflatedPoisson(0.25),
        lambda r, f: np.where(r.uniform(size=f.shape) < 0.25, 0, r.poisson(np.exp(f))),
        inflated(lambda y, f: stats.poisson.logpmf(y, np.exp(f))),
        mean=1.0,
    ),
    "zero-inflated negative binomial": Case(
        likelihoods.ZeroInflatedNegativeBinomial(0.25, 0.4),
        lambda r, f: np.where(
            r.uniform(size=f.shape) < 0.25, 0, r.negative_binomial(2.5, 1.0 / (1.0 + 0.4 * np.exp(f)))
        ),
        inflated(lambda y, f: stats.nbinom.logpmf(y, 2.5, 1.0 / (1.0 + 0.4 * np.exp(f)))),
        mean=1.0,
    ),
    "weibull": Case(
        likelihoods.Weibull(0.4),
        lambda r, f: np.exp(f) * r.exponential(size=f.shape) ** 0.4,
        lifetime(lambda w: w - np.exp(w), lambda w: np.exp(-np.exp(w))),
    ),
    "log-logistic": Case(
        likelihoods.LogLogistic(0.4),
        lambda r, f: np.exp(f + 0.4 * r.logistic(size=f.shape)),
        lifetime(lambda w: log_expit(w) + log_expit(-w), lambda w: expit(-w)),
    ),
    "warped": Case(WARP, lambda r, f: WARP.unwarp(r.normal(f, 0.3)), warped),
}


class Data(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_held_out: np.ndarray
    y_held_out: np.ndarray


def censored(y: np.ndarray) -> np.ndarray:
    """Rows (lower, upper): above 0.8 only that is known, below −1 only the interval of length ½."""
    cell = np.floor(2.0 * y) / 2.0
    lower = np.where(y > 0.8, 0.8, np.where(y < -1.0, cell, y))
    upper = np.where(y > 0.8, np.inf, np.where(y < -1.0, cell + 0.5, y))
    return np.stack([lower, upper], axis=1)


def censored_times(y: np.ndarray) -> np.ndarray:
    """Rows (lower, upper): above 2 only that is known, below ½ only that."""
    lower = np.where(y > 2.0, 2.0, np.where(y < 0.5, 0.0, y))
    upper = np.where(y > 2.0, np.inf, np.where(y < 0.5, 0.5, y))
    return np.stack([lower, upper], axis=1)


def generated(case: Case, seed: int) -> Data:
    """f from a Gaussian process of variance 1 and lengthscale 1 on [−3, 3], and y given f."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3.0, 3.0, (TRAINING + HELD_OUT, 1))
    value, vector = np.linalg.eigh(np.exp(-0.5 * (x - x.T) ** 2))
    f = case.mean + vector @ (np.sqrt(np.maximum(value, 0.0)) * rng.normal(size=len(x)))
    y = case.draw(rng, f).astype(float)
    training, held_out = y[:TRAINING], y[TRAINING:]
    if case.likelihood.columns == 2:
        seen = censored if case.likelihood.name == "censored" else censored_times
        training, held_out = seen(training), np.stack([held_out, held_out], axis=1)
    return Data(x[:TRAINING], training, x[TRAINING:], held_out)


@cache
def solved(name: str, method: str, seed: int) -> tuple[Data, Solution]:
    case = CASES[name]
    data = generated(case, seed)
    model = Model(kernels.SquaredExponential(), case.likelihood, case.mean)
    return data, infer(model, data.x, data.y, method, tol=1e-8, **case.scales)


def constant_score(case: Case, data: Data) -> float:
    """Mean log p of the held-out y under the constant f that is most likely given the training y."""
    grid = np.linspace(-6.0, 6.0, 1201)
    best = grid[np.argmax(case.log_prob(data.y.T[..., None], grid).sum(axis=0))]
    return float(case.log_prob(data.y_held_out.T, best).mean())


def gain(name: str, data: Data, solution: Solution) -> float:
    """How much better the held-out y are predicted than by a constant model: mean difference of log p."""
    log_density = solution.predict_y(data.x_held_out, **CASES[name].scales).log_prob(data.y_held_out)
    return float(log_density.mean()) - constant_score(CASES[name], data)


def density(name: str, data: Data, solution: Solution, y: np.ndarray) -> np.ndarray:
    """p(y) at the first inputs held out; y has one row of NODES values for each."""
    case, rows = CASES[name], np.repeat(data.x_held_out[:INPUTS], NODES, axis=0)
    at = np.stack([y.ravel()] * 2, axis=1) if case.likelihood.columns == 2 else y.ravel()
    return np.exp(solution.predict_y(rows, **case.scales).log_prob(at)).reshape(y.shape)


def worst_sum(name: str, data: Data, solution: Solution) -> float:
    """Largest |Σ p(y) − 1|, y from the first value to the last, or to where nothing is left."""
    first, step = CASES[name].likelihood.lattice
    last = {"ordinal": 3, "binomial": 6}.get(name, 1 if step == 2.0 else np.inf)
    total, mass, k = np.zeros(INPUTS), np.ones(INPUTS), np.arange(NODES)
    while k[0] <= last and (mass.max() > 1e-14 or total.min() < 0.5):
        y = np.tile(first + step * np.minimum(k, last), (INPUTS, 1))
        mass = np.where(k <= last, density(name, data, solution, y), 0.0).sum(axis=1)
        total, k = total + mass, k + NODES
    return float(np.abs(total - 1.0).max())


def change_of_variable(name: str, latent: Normal, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y(u) and dy/du for u in [−1, 1], an increasing map onto nearly all that y may be."""
    if CASES[name].likelihood.interval == (0.0, 1.0):
        y = expit(35.0 * u)
        return y, 35.0 * y * expit(-35.0 * u)
    if CASES[name].likelihood.interval == (0.0, np.inf):
        y = np.exp(20.0 * u)
        return y, 20.0 * y
    width = 0.1 * np.sqrt(1.0 + latent.variance[:, None])
    return latent.mean[:, None] + width * np.sinh(9.0 * u), width * 9.0 * np.cosh(9.0 * u)


def worst_integral(name: str, data: Data, solution: Solution) -> float:
    """Largest |∫ p(y) dy − 1| by Gauss-Legendre panels."""
    node, weight = np.polynomial.legendre.leggauss(NODES)
    latent = solution.predict(data.x_held_out[:INPUTS])
    ends, total = np.linspace(-1.0, 1.0, 29), np.zeros(INPUTS)
    for left, right in pairwise(ends):
        y, slope = change_of_variable(name, latent, 0.5 * (left + right + (right - left) * node))
        y, slope = np.broadcast_to(y, (INPUTS, NODES)), np.broadcast_to(slope, (INPUTS, NODES))
        total += density(name, data, solution, y) * slope @ weight * 0.5 * (right - left)
    return float(np.abs(total - 1.0).max())


def worst_quantile(name: str, data: Data, solution: Solution) -> float:
    """Largest |cdf(quantile(q)) − q|; for a discrete y 0 if every quantile is the first y with cdf ≥ q, else 1."""
    predictive = solution.predict_y(data.x_held_out[:INPUTS], **CASES[name].scales)
    lattice, worst = CASES[name].likelihood.lattice, 0.0
    for level, y in zip(LEVELS, predictive.quantile(np.array(LEVELS)), strict=True):
        if lattice is None:
            worst = max(worst, np.abs(predictive.cdf(y) - level).max())
        else:
            first = (predictive.cdf(y) >= level) & (predictive.cdf(y - lattice[1]) < level)
            worst = max(worst, float(not first.all()))
    return worst


def check(name: str, method: str, seed: int) -> None:
    data, solution = solved(name, method, seed)
    assert solution.converged or solution.status.remedy
    assert np.isfinite([*solution.marginals.mean, solution.log_evidence]).all()
    if solution.converged:
        assert gain(name, data, solution) > 0.0
    adds_up = worst_integral if CASES[name].likelihood.lattice is None else worst_sum
    assert adds_up(name, data, solution) <= 1e-8
    assert worst_quantile(name, data, solution) <= 1e-8


EXISTING = [
    (name, method)
    for name, case in CASES.items()
    for method in METHODS
    if method != "laplace" or case.likelihood.differentiable
]


@pytest.mark.campaign
def test_one_data_set_of_one_model():
    check("ordinal", "laplace", 0)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "method"), EXISTING)
def test_three_data_sets_of_every_model(name, method, seed):
    check(name, method, seed)


@pytest.mark.parametrize(
    ("likelihood", "method", "reason"),
    [
        (likelihoods.Heaviside(), "vb", r"VB does not support the heaviside likelihood: .*use EP or QP"),
        (likelihoods.Heaviside(), "laplace", r"Laplace does not support the heaviside likelihood: .*use EP, QP"),
        (likelihoods.Heaviside(0.05), "laplace", r"Laplace does not support the heaviside likelihood: .*use EP, QP"),
        (likelihoods.DoubleExponential(), "laplace", r"Laplace does not support the double-exponential .*use EP, QP"),
    ],
)
def test_a_method_that_does_not_exist_says_so(likelihood, method, reason):
    labels = np.where(np.arange(8) % 2, 1.0, -1.0)
    with pytest.raises(ValueError, match=reason):
        infer(Model(kernels.SquaredExponential(), likelihood), np.arange(8.0), labels, method)
