"""Corrections of EP and QP against brute-force integration, closed forms and stored truths."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.truths import read
from scipy import optimize, special, stats
from scipy.special import log_ndtr, logsumexp

from quantprop import EP, QP, VB, Inducing, Laplace, Markov, Model, PowerEP, infer, kernels, likelihoods
from quantprop.estimators.insight import trust
from quantprop.inference.predictive import Predictive
from quantprop.numerics.skewed import Skewed

TRUTHS = Path(__file__).parent / "oracles" / "ground_truth.npz"
NODES, REACH = 61, 7.5
Y = np.array([1.0, -1.0, 1.0])
SPACED, NEW = np.array([0.0, 1.0, 2.1]), np.array([[0.55]])


class Truth:
    """Evidence, and the first three cumulants of f at the training inputs and one new input, on a grid over f."""

    def __init__(self, k: np.ndarray, cross: np.ndarray, own: float, log_prob) -> None:
        n = len(k)
        lower = np.linalg.cholesky(k)
        u = np.stack([a.ravel() for a in np.meshgrid(*[np.linspace(-REACH, REACH, NODES)] * n)])
        f = lower @ u
        log_weight = -0.5 * np.sum(u**2, axis=0) + sum(log_prob(i, f[i]) for i in range(n))
        step = 2 * REACH / (NODES - 1)
        self.evidence = logsumexp(log_weight) + n * np.log(step) - 0.5 * n * np.log(2 * np.pi)
        weight = np.exp(log_weight - logsumexp(log_weight))
        slope = np.linalg.solve(k, cross)
        given, left = slope @ f, own - slope @ cross  # f_new | f is Gaussian
        about = f - (f @ weight)[:, None]
        self.at = np.stack([f @ weight, about**2 @ weight, about**3 @ weight], axis=1)
        beyond = given - given @ weight
        self.new = np.array([[given @ weight, beyond**2 @ weight + left, beyond**3 @ weight]])


@cache
def solved(variance: float, r: float, method: EP) -> tuple:
    """Three rows, neighbours with the prior correlation r; the solution, and the truth."""
    lengthscale = 1.0 / np.sqrt(-2.0 * np.log(r))
    x, kernel = SPACED[:, None], kernels.SquaredExponential(variance, lengthscale)
    solution = infer(Model(kernel, likelihoods.Probit()), x, Y, method, tol=1e-13, max_sweeps=2000)

    def covariance(a, b):
        return variance * np.exp(-0.5 * ((a - b.T) / lengthscale) ** 2)

    truth = Truth(covariance(x, x), covariance(x, NEW)[:, 0], variance, lambda i, f: log_ndtr(Y[i] * f))
    return solution, truth


Powers = dict[str, tuple[float, float]]


def errors(variance: float, r: float, method: EP) -> Powers:
    """The largest error of each quantity without and with correction, in units of posterior standard deviations."""
    solution, truth = solved(variance, r, method)
    better = solution.corrected()

    def largest(*pair) -> tuple[float, float]:
        without, corrected = (float(np.max(np.abs(one))) for one in pair)
        return without, corrected

    found = {"evidence": largest(solution.log_evidence - truth.evidence, better.log_evidence - truth.evidence)}
    for where, (q, p), true in (
        ("", (solution.marginals, better.marginals), truth.at),
        ("new ", (solution.predict(NEW), better.predict(NEW)), truth.new),
    ):
        mean, square, third = true.T
        sd = np.sqrt(square)
        found[f"{where}mean"] = largest((q.mean - mean) / sd, (p.mean - mean) / sd)
        found[f"{where}variance"] = largest(q.variance / square - 1.0, p.variance / square - 1.0)
        found[f"{where}skewness"] = largest(third / sd**3, p.skewness - third / sd**3)
    return found


def orders(large: Powers, small: Powers, factor: float) -> Powers:
    """The power of the scale with which errors fall, without and with correction."""

    def power(name: str, which: int) -> float:
        return float(np.log(large[name][which] / small[name][which]) / np.log(factor))

    return {name: (power(name, 0), power(name, 1)) for name in large}


# The cumulants of a probit's tilted density are c_l = O(v^(l/2)) in the prior variance v: every line of the expansion
# has a power of v, and the first that is left out a higher one, at least this.
THEORY = {"evidence": (3.0, 4.0), "mean": (3.5, 4.5), "variance": (3.0, 4.0), "skewness": (1.5, 3.5)}


@pytest.mark.campaign
@pytest.mark.parametrize("method", [EP(), QP()], ids=repr)
def test_errors_fall_with_the_prior_variance_as_the_theory_says(method):
    found = orders(errors(0.1, 0.6, method), errors(0.05, 0.6, method), 2.0)
    for name, (without, corrected) in found.items():
        power, better = THEORY[name.removeprefix("new ")]
        assert without == pytest.approx(power, abs=0.4), name
        assert corrected > better - 0.4, name


def test_errors_fall_with_the_correlation_as_the_theory_says():
    """Pairs of rows contribute ρ^l with l = 3 and more: EP's evidence and means err by ρ³, corrected ones by ρ⁴."""
    large, small = errors(4.0, 0.16, EP()), errors(4.0, 0.08, EP())
    for name in ("evidence", "mean"):
        without, corrected = orders(large, small, 2.0)[name]
        assert without == pytest.approx(3.0, abs=0.3), name
        assert corrected > 3.7, name
    assert all(small[name][1] < small[name][0] / 20 for name in small)


# --- marginals as densities ------------------------------------------------------------------------------------------

SKEWED = Skewed(np.array([1.0, -2.0, 0.5, 3.0]), np.array([4.0, 0.25, 1.0, 2.0]), np.array([0.8, -1.7, 0.0, 1e-12]))


def test_moments_of_the_density_are_those_that_it_was_made_of():
    x = np.linspace(-200.0, 200.0, 2_000_001)[:, None]
    sd = np.sqrt(SKEWED.variance)
    density = np.exp(SKEWED.log_prob(SKEWED.mean + sd * x)) * sd * (x[1] - x[0])
    for power, wanted in enumerate((np.ones(4), np.zeros(4), np.ones(4), SKEWED.skewness)):
        np.testing.assert_allclose((x**power * density).sum(axis=0), wanted, atol=3e-4 if power == 3 else 1e-5)


def bend_of(skewness: float) -> float:
    """β with (exp(β²) + 2)√(exp(β²) − 1) = skewness, by bisection."""
    found: Any = optimize.brentq(
        lambda b: (np.exp(b * b) + 2.0) * np.sqrt(np.expm1(b * b)) - skewness, 1e-3, 2.0, xtol=1e-14
    )
    return found


def test_cdf_and_quantiles_are_those_of_scipys_log_normal():
    row, (mean, sd, bend) = 0, (1.0, 2.0, bend_of(0.8))
    scale = sd / np.sqrt(np.expm1(bend**2)) * np.exp(-0.5 * bend**2)
    same = stats.lognorm(bend, loc=mean - sd / np.sqrt(np.expm1(bend**2)), scale=scale)
    levels = np.array([1e-5, 0.3, 0.5, 0.99])  # within 5 standard scores
    f = SKEWED.quantile(levels)
    np.testing.assert_allclose(f[:, row], same.ppf(levels), rtol=1e-10)
    np.testing.assert_allclose([SKEWED.cdf(one)[row] for one in f], levels, rtol=1e-10)
    np.testing.assert_allclose(np.stack([SKEWED.cdf(one) for one in f]), np.repeat(levels[:, None], 4, 1), rtol=1e-10)
    assert SKEWED.quantile(1.0)[0] == np.inf
    with pytest.raises(ValueError, match=r"q must lie in \[0, 1\]"):
        SKEWED.quantile(1.5)


@pytest.mark.parametrize(
    "likelihood",
    [pytest.param(kind, marks=pytest.mark.campaign) for kind in (likelihoods.Poisson(), likelihoods.Probit())],
    ids=lambda one: one.name,
)
def test_y_under_a_skewed_f_is_that_of_quadrature(likelihood):
    """Of counts, and of classes where f is so wide that a probit is a step beside it."""
    wide = 1.0 if likelihood.name == "poisson" else 1e4
    latent = Skewed(np.array([0.4, 1.0]), np.array([0.3, 0.2]) * wide**2, np.array([0.7, -0.5]))
    found = Predictive(likelihood, latent, np.ones(2), np.ones(2))
    x = np.linspace(-30.0, 30.0, 240_001)[:, None]
    grid = latent.mean + np.sqrt(latent.variance) * x
    mass = np.exp(latent.log_prob(grid)) * np.sqrt(latent.variance) * (x[1] - x[0])
    for row in range(2):
        f, weights = grid[:, row], mass[:, row]
        if likelihood.name == "probit":
            p = weights @ special.ndtr(f)
            assert np.exp(found.log_prob(1.0)[row]) == pytest.approx(p, abs=1e-5)
            assert found.cdf(0.0)[row] == pytest.approx(1.0 - p, abs=1e-5)
            continue
        rate = np.exp(f)
        cdf = np.array([weights @ stats.poisson.cdf(k, rate) for k in range(30)])
        assert found.mean[row] == pytest.approx(weights @ rate, rel=1e-6)
        assert found.variance[row] == pytest.approx(weights @ (rate + rate**2) - (weights @ rate) ** 2, rel=1e-6)
        assert np.exp(found.log_prob(2)[row]) == pytest.approx(cdf[2] - cdf[1], rel=1e-6)
        assert found.cdf(3)[row] == pytest.approx(cdf[3], abs=1e-8)
        assert found.quantile(0.9)[row] == np.searchsorted(cdf, 0.9)


# --- rows, weights, backends -----------------------------------------------------------------------------------------


def test_of_one_row_only_the_skewness_is_corrected():
    """Its tilted density is the posterior: N(0, v) Φ(f), whose third cumulant is v³ ∂³ log Φ(m/√(1 + v))."""
    v = 9.0
    solution = infer(Model(kernels.SquaredExponential(v), likelihoods.Probit()), [[0.0]], [1.0], "ep", tol=1e-12)
    better = solution.corrected()
    assert better.log_evidence == pytest.approx(np.log(0.5), abs=1e-10)
    assert better.marginals.variance == pytest.approx(solution.marginals.variance, rel=1e-8)
    hazard = np.sqrt(2.0 / np.pi)
    third = v**3 / (1.0 + v) ** 1.5 * hazard * (2.0 * hazard**2 - 1.0)
    assert better.marginals.skewness == pytest.approx(third / solution.marginals.variance**1.5, rel=1e-8)
    assert better.doubt == pytest.approx(better.marginals.skewness / np.sqrt(24.0), rel=1e-6)


X = np.linspace(-2.0, 2.0, 9)[:, None]
LABELS = np.array([-1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0])
KERNEL = kernels.Matern32(4.0, 1.0)
ELSEWHERE = np.array([[-1.3], [0.1], [4.0]])


def numbers(solution) -> np.ndarray:
    better = solution.corrected()
    rows = [np.stack([q.mean, q.variance, q.skewness]).T for q in (better.marginals, better.predict(ELSEWHERE))]
    return np.concatenate([np.full((1, 3), better.log_evidence), *rows])


@cache
def dense() -> np.ndarray:
    return numbers(infer(Model(KERNEL, likelihoods.Probit()), X, LABELS, "ep", tol=1e-11))


def test_a_row_that_counts_twice_is_two_rows():
    weights = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    twice = np.repeat(np.arange(9), weights.astype(int))
    model = Model(KERNEL, likelihoods.Probit())
    found = numbers(infer(model, X, LABELS, "ep", tol=1e-11, weights=weights))
    repeated = numbers(infer(model, X[twice], LABELS[twice], "ep", tol=1e-11))
    first = [0, *(1 + np.unique(twice, return_index=True)[1]), *(1 + len(twice) + np.arange(3))]
    counted = [0, *(1 + np.flatnonzero(weights)), 10, 11, 12]
    np.testing.assert_allclose(found[counted], repeated[first], rtol=2e-6, atol=1e-8)


@pytest.mark.campaign
@pytest.mark.parametrize("process", [Inducing(X), Markov()], ids=["inducing", "markov"])
def test_other_backends_give_what_the_dense_one_gives(process):
    solution = infer(Model(KERNEL, likelihoods.Probit(), process=process), X, LABELS, "ep", tol=1e-11)
    np.testing.assert_allclose(numbers(solution), dense(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [VB(), Laplace(), PowerEP(0.5), QP(1.0)], ids=repr)
def test_other_methods_are_refused_by_name(method):
    solution = infer(Model(KERNEL, likelihoods.Probit()), X, LABELS, "ep", max_sweeps=2)
    with pytest.raises(ValueError, match=r"corrections are supported for EP and QP.*method='ep'"):
        replace(solution, method=method).corrected()
    with pytest.raises(ValueError, match="did not converge"):
        solution.corrected()
    with pytest.raises(ValueError, match="has no observations"):
        replace(solution, data=None, status=replace(solution.status, reason="converged")).corrected()


def test_several_classes_are_refused_by_name():
    """Of corrections; a number for trust says why there is none, and how many modes there are."""
    kernel = kernels.SquaredExponential(2.0)
    solution = infer(Model(kernel, likelihoods.MultinomialProbit(3)), X, np.arange(9) % 3, "ep")
    with pytest.raises(ValueError, match="several classes jointly"):
        solution.corrected()
    said = trust(solution)
    assert np.isnan(said.shift)
    assert said.doubt.shape == (9,)
    assert str(said).startswith("no correction: corrections are not supported for several classes")
    assert str(said).endswith("no other mode was found")


def test_too_many_rows_of_another_process_are_refused_by_name():
    """The joint posterior that corrections need exists for the first 1,024 rows of a process other than Dense."""
    x = np.linspace(-3.0, 3.0, 1100)[:, None]
    model = Model(kernels.SquaredExponential(1.0), likelihoods.Probit(), process=Inducing(8))
    solution = infer(model, x, np.sign(np.sin(x[:, 0]) + 0.1), "ep")
    with pytest.raises(ValueError, match=r"Inducing computes for at most 1024 rows; got 1100"):
        solution.corrected()
    assert "Inducing computes for at most 1024 rows" in str(trust(solution))


# --- several modes ---------------------------------------------------------------------------------------------------


def test_a_log_concave_likelihood_has_one_mode():
    solution = infer(Model(KERNEL, likelihoods.Probit()), X, LABELS, "ep", tol=1e-11)
    modes = solution.modes()
    assert not modes.several
    assert str(modes) == "no other mode was found"


@pytest.mark.campaign
def test_a_square_link_has_modes_of_either_sign():
    """Four rows that share one f: each mode holds the integral over its half of the line."""
    m, v, y = 0.3, 4.0, np.array([6, 9, 7, 8])
    model = Model(kernels.SquaredExponential(v, 1e3), likelihoods.Poisson("square"), m)
    modes = infer(model, np.arange(4.0)[:, None], y, "ep").modes()
    f = np.linspace(-12.0, 12.0, 200_001)[1::2]
    log_density = y.sum() * np.log(f**2) - 4 * f**2 - 0.5 * (f - m) ** 2 / v
    density = np.exp(log_density - log_density.max())
    assert modes.several
    assert modes.others == pytest.approx(density[f < 0].sum() / density.sum(), rel=0.05)
    assert "from the other sign" in str(modes)


# --- stored truths ---------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["wine2", "wine3"])
def test_evidence_and_variances_of_stored_truths(name):
    (truth,) = (one for one in read(TRUTHS) if (one.dataset, one.setting) == (name, "learned"))
    data = truth.data
    solution = infer(data.model(truth.variance, truth.lengthscale), data.x, data.y, "ep", tol=1e-8)
    better, spread = solution.corrected(), truth.posterior_variance.value
    assert abs(better.log_evidence - truth.evidence) < 0.1 * abs(solution.log_evidence - truth.evidence)
    off = [np.median(np.abs(q.variance / spread - 1.0)) for q in (solution.marginals, better.marginals)]
    assert off[1] < 0.2 * off[0]
