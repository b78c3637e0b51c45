"""What every backend must do, against formulas on its covariance written out in full."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from priors.lowrank import LowRank, LowRankPrior

from quantprop import kernels
from quantprop.gaussian import Natural
from quantprop.priors import Dense, DensePrior, Inducing, InducingPrior, Markov, MarkovPrior, Prior, Process
from quantprop.priors.base import Cotangent
from quantprop.priors.inducing.message import Belief, Message

N, NEW = 12, 5
KERNEL = kernels.Matern32(2.0, 0.7) + kernels.White(0.05)
POINTS = np.linspace(-2.0, 2.0, 6)[:, None]


def heard() -> Message:
    """Of earlier rows: precisions of any sign, mean 0, and an integral of 1 under KERNEL."""
    turn = np.random.default_rng(7).normal(size=(6, 6))
    lower = np.linalg.cholesky(np.eye(6) + 0.1 * turn @ turn.T)
    precision = turn @ np.diag([4.0, 2.0, 1.0, 0.5, 0.1, 0.0]) @ turn.T - 0.05 * np.eye(6)
    with jax.enable_x64(True):
        own = Inducing(POINTS).prior(KERNEL, jnp.zeros(N), jnp.zeros((N, 1))).basis.lower()
        mass = Message(precision, np.zeros(6), lower, np.zeros(())).belief(own).mass
    return Message(precision, np.zeros(6), lower, -np.asarray(mass))


BACKENDS = {
    "dense": Dense(),
    "low rank": LowRank(POINTS),
    "inducing": Inducing(POINTS, learn=True),
    "inducing after rows": Inducing(POINTS, learn=True, message=heard()),
    "markov": Markov(),
}


class Setting(NamedTuple):
    """A backend at inputs, its covariances in full, and sites."""

    process: Process
    x: np.ndarray
    new: np.ndarray
    prior: Prior
    k: np.ndarray
    cross: np.ndarray  # prior covariances of training with new values
    own: np.ndarray  # of new values
    sites: Natural


@jax.jit
def made(process: Process, mean: jax.Array, x: jax.Array) -> Prior:
    return process.prior(KERNEL, mean, process.prepare(KERNEL, x))


@partial(jax.jit, static_argnames="signed")
def predicted(process, prior, sites, x, new, own, signed):
    return prior.predictor(sites, signed).at(jnp.full(NEW, 0.5), process.cross(KERNEL, x, new), own)


def in_full(prior: Prior) -> np.ndarray:
    """The covariance as a matrix."""
    if isinstance(prior, DensePrior):
        return np.array(prior.k)
    if isinstance(prior, InducingPrior):
        basis = prior.basis
        k_uu, k_uf = basis.kernel.cross(basis.z, basis.z), basis.kernel.cross(basis.z, prior.x)
        v = np.linalg.solve(np.linalg.cholesky(k_uu + basis.jitter * np.diag(np.diag(k_uu))), k_uf)
        d = np.array(basis.kernel.diagonal(prior.x)) - np.sum(v**2, axis=0)
        return float(basis.scale) * (v.T @ believed(prior) @ v + np.diag(d))
    if isinstance(prior, MarkovPrior):
        return chain_in_full(prior)
    assert isinstance(prior, LowRankPrior)
    return np.array(prior.v.T @ prior.v) + np.diag(prior.d)


def believed(prior: InducingPrior) -> np.ndarray:
    """The covariance of v before the rows."""
    return np.eye(len(prior.basis.z)) if prior.before is None else np.linalg.inv(prior.before.precision)


def chain_in_full(prior: MarkovPrior) -> np.ndarray:
    """Of values f_i = h_iᵀx_i + noise on x_i = A_i x_{i−1} + q_i: Cov(x_j, x_i) = A_j Cov(x_{j−1}, x_i)."""
    a, q, h = (np.moveaxis(part, -1, 0).reshape(-1, *part.shape[1:-1]) for part in map(np.asarray, prior.chain))
    noise, order = (np.asarray(part).T.ravel() for part in (prior.noise, prior.layout.order))
    n, own, k = len(prior.mean), np.zeros_like(q[0]), np.zeros((len(a), len(a)))
    for i in range(len(a)):
        own = a[i] @ own @ a[i].T + q[i]
        tie = own
        k[i, i] = h[i] @ tie @ h[i] + noise[i]
        for j in range(i + 1, len(a)):
            tie = a[j] @ tie
            k[i, j] = k[j, i] = h[j] @ tie @ h[i]
    rows = order[:n].astype(int)
    found = np.zeros((n, n))
    found[np.ix_(rows, rows)] = k[:n, :n]
    return found


@pytest.fixture(scope="module", autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


BY_DEFAULT = ("dense, positive", "dense, signed", "low rank, positive", "inducing, signed", "markov, signed")
SETTINGS = [f"{name}, {sign}" for name in BACKENDS for sign in ("positive", "signed")]


@pytest.fixture(params=[pytest.param(s, marks=[pytest.mark.campaign] * (s not in BY_DEFAULT)) for s in SETTINGS])
def setting(request) -> Setting:
    name, sign = request.param.split(", ")
    process, rng = BACKENDS[name], np.random.default_rng(3)
    x, new = np.sort(rng.uniform(-2, 2, (N, 1)), axis=0), rng.uniform(-2, 2, (NEW, 1))
    if name == "markov":  # new times before and after the data, two next to each other
        x, new = rng.permutation(x), np.array([[-3.0], [0.1], [2.5], [0.1001], [1.2]])
    prior, own = made(process, jnp.asarray(rng.normal(size=N)), x), np.array(KERNEL.gram(new))
    if isinstance(prior, LowRankPrior):
        cross = np.array(prior.v).T @ np.array(process.cross(KERNEL, x, new))
    elif isinstance(prior, InducingPrior):
        v = np.array(prior.for_sweeps().rows.v[0])
        more = np.array(process.cross(KERNEL, x, new))
        cross, own = v.T @ believed(prior) @ more, own + more.T @ (believed(prior) - np.eye(6)) @ more
    else:
        cross = np.array(KERNEL.cross(x, new))
    tau = rng.uniform(0.2, 3.0, N)
    if sign == "signed":
        tau[[2, 7]] = -0.1, -0.2
    return Setting(
        process, x, new, prior, in_full(prior), cross, own, Natural(jnp.asarray(rng.normal(size=N)), jnp.asarray(tau))
    )


def signed(setting: Setting) -> bool:
    return bool((setting.sites.tau < 0).any())


def posterior(k: np.ndarray, mean: np.ndarray, sites: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Σ = (K⁻¹ + S)⁻¹ and Σ (K⁻¹ m + ν)."""
    nu, tau = np.asarray(sites.nu), np.asarray(sites.tau)
    covariance = np.linalg.inv(np.linalg.inv(k) + np.diag(tau))
    return covariance, covariance @ (np.linalg.solve(k, mean) + nu)


def log_integral(k: np.ndarray, mean: np.ndarray, sites: Natural) -> float:
    """log ∫ N(f | m, K) Π exp(ν f − ½ τ f²) df."""
    nu, tau = np.asarray(sites.nu), np.asarray(sites.tau)
    _, mu = posterior(k, mean, sites)
    size = np.linalg.slogdet(np.eye(len(k)) + np.diag(tau) @ k)[1]
    at_mean = nu @ mu - 0.5 * tau @ mu**2
    return float(at_mean - 0.5 * (mu - mean) @ np.linalg.solve(k, mu - mean) - 0.5 * size)


def test_marginals_and_determinant(setting):
    given = setting.prior.condition(setting.sites, signed(setting))
    covariance, mean = posterior(setting.k, np.asarray(setting.prior.mean), setting.sites)
    nu, tau, m = np.asarray(setting.sites.nu), np.asarray(setting.sites.tau), given.marginals
    np.testing.assert_allclose(m.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(m.variance, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(m.alpha, nu - tau * mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(m.b, 1.0 - tau * np.diag(covariance), rtol=1e-9)
    expected = np.linalg.slogdet(np.eye(N) + np.diag(tau) @ setting.k)[1]
    assert float(given.log_determinant) == pytest.approx(expected, rel=1e-10)
    assert bool(given.proper)
    np.testing.assert_allclose(setting.prior.variances(), np.diag(setting.k), rtol=1e-12)


def test_sites_that_leave_no_posterior_are_said_to(setting):
    worst = Natural(setting.sites.nu, setting.sites.tau.at[4].set(-50.0))
    assert np.linalg.eigvalsh(np.linalg.inv(setting.k) + np.diag(worst.tau))[0] < 0
    assert not bool(setting.prior.condition(worst, signed=True).proper)


def test_a_scaled_prior_has_a_scaled_covariance(setting):
    np.testing.assert_allclose(in_full(setting.prior.scaled(0.3)), 0.3 * setting.k, rtol=1e-12)
    np.testing.assert_array_equal(setting.prior.scaled(0.3).mean, setting.prior.mean)


def test_means_follow_a_change_of_nu(setting):
    tau, nu = jnp.abs(setting.sites.tau), setting.sites.nu + 0.3  # followed where precisions are all positive
    given = setting.prior.condition(Natural(setting.sites.nu, tau), signed=False)
    found = setting.prior.follow(given, nu)
    _, mean = posterior(setting.k, np.asarray(setting.prior.mean), Natural(nu, tau))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance, given.marginals.variance, rtol=1e-12)
    np.testing.assert_allclose(found.alpha, nu - tau * mean, rtol=1e-9, atol=1e-10)


def test_answers_are_correlations_and_their_squares(setting):
    prior, moves = setting.prior, np.random.default_rng(4).normal(size=(2, N))
    slim, factor = prior.for_derivatives((given := prior.condition(setting.sites, signed(setting))).factor)
    given = type(given)(given.sites, given.marginals, given.log_determinant, given.proper, factor)
    found = slim.response(given, signed(setting)).answer(jnp.asarray(moves))
    covariance, _ = posterior(setting.k, np.asarray(prior.mean), setting.sites)
    sd = np.sqrt(np.diag(covariance))
    rho = covariance / np.outer(sd, sd)
    np.testing.assert_allclose(found, [rho @ moves[0], rho**2 @ moves[1]], rtol=1e-8, atol=1e-10)


def test_the_joint_posterior(setting):
    given = setting.prior.condition(setting.sites, signed(setting))
    joint = setting.prior.joint(given, signed(setting))
    covariance, _ = posterior(setting.k, np.asarray(setting.prior.mean), setting.sites)
    np.testing.assert_allclose(joint.covariance, covariance, rtol=1e-8, atol=1e-10)
    expected = np.linalg.inv(np.eye(N) + setting.k @ np.diag(setting.sites.tau))
    np.testing.assert_allclose(joint.transfer, expected, rtol=1e-8, atol=1e-10)


def moved(prior: Prior, direction: Prior, by: float) -> Prior:
    return jax.tree.map(lambda a, b: a + by * b, prior, direction)


def some_direction(prior: Prior) -> Prior:
    """A direction in the prior's numbers, symmetric where they are a covariance."""
    rng = np.random.default_rng(5)
    found = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=np.shape(leaf))), prior)
    if isinstance(prior, DensePrior):
        return DensePrior(found.mean, 0.1 * (found.k + found.k.T))
    if isinstance(prior, InducingPrior):  # x and the shares are given
        before = found.before and Belief(found.before.precision + found.before.precision.T, jnp.zeros(6), jnp.zeros(()))
        return found.made_of(found.mean, found.basis, before)
    if isinstance(prior, MarkovPrior):  # Q symmetric, the order of rows as it is; slots without a row do not count
        chain = found.chain._replace(q=0.1 * (found.chain.q + np.swapaxes(found.chain.q, 1, 2)))
        still = jax.tree.map(jnp.zeros_like, prior.layout)
        return MarkovPrior(found.mean, chain, found.noise, found.prior_variance, still)
    return found


def inner(a: Prior, b: Prior) -> float:
    return float(sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))


def difference(function, prior: Prior, direction: Prior, h: float = 1e-5) -> float:
    """A central difference of fourth order."""
    f = [function(moved(prior, direction, s * h)) for s in (-2, -1, 1, 2)]
    return float((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h))


def test_the_slope_of_the_log_integral(setting):
    prior, direction = setting.prior, some_direction(setting.prior)
    found = prior.evidence_slope(prior.condition(setting.sites, signed(setting)), signed(setting))
    expected = difference(lambda p: log_integral(in_full(p), np.asarray(p.mean), setting.sites), prior, direction)
    assert inner(found, direction) == pytest.approx(expected, rel=1e-6)


def test_cotangents_reach_the_priors_numbers(setting):
    prior, direction, rng = setting.prior, some_direction(setting.prior), np.random.default_rng(6)
    by = Cotangent(jnp.asarray(rng.normal(size=(2, N))), jnp.asarray(0.7), jnp.asarray(rng.normal(size=N)))
    given = prior.condition(setting.sites, signed(setting))
    found = prior.response(given, signed(setting)).to_prior(by)
    at, tau = given.marginals, np.asarray(setting.sites.tau)

    def told(p: Prior) -> float:
        covariance, mean = posterior(in_full(p), np.asarray(p.mean), setting.sites)
        answer = [(mean - at.mean) / np.sqrt(at.variance), 1.0 - np.diag(covariance) / at.variance]
        size = np.linalg.slogdet(np.eye(N) + np.diag(tau) @ in_full(p))[1]
        return float(np.sum(by.answer * np.array(answer)) + 0.7 * size + by.mean @ p.mean)

    assert inner(found, direction) == pytest.approx(difference(told, prior, direction), rel=1e-6)


@pytest.mark.parametrize("joint", [False, True])
def test_predictions(setting, joint):
    own = KERNEL.gram(setting.new) if joint else KERNEL.diagonal(setting.new)
    at = (setting.process, setting.prior, setting.sites, setting.x, setting.new, own)
    found = predicted(*at, signed=signed(setting))
    k, cross, tau = setting.k, setting.cross, np.asarray(setting.sites.tau)
    weights = np.linalg.inv(k + np.diag(1.0 / tau))
    pseudo = np.asarray(setting.sites.nu) / tau - np.asarray(setting.prior.mean)
    np.testing.assert_allclose(found.mean, 0.5 + cross.T @ weights @ pseudo, rtol=1e-9)
    covariance = setting.own - cross.T @ weights @ cross
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-9)
    if joint:
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-11)


def test_a_filter_may_pass_through_negative_variances():
    """Two data at one time, prior variance 1: after τ = −2 alone there is no posterior, after τ = 5 there is again."""
    process, x = Markov(), np.zeros((2, 1))
    prior = process.prior(kernels.Matern32(1.0, 1.0), jnp.zeros(2), process.prepare(kernels.Matern32(), x))
    nu = jnp.array([0.5, 1.0])
    given = prior.condition(Natural(nu, jnp.array([-2.0, 5.0])), signed=True)
    assert bool(given.proper)  # 1 − 2 + 5 = 4
    np.testing.assert_allclose(given.marginals.variance, 0.25, rtol=1e-12)
    np.testing.assert_allclose(given.marginals.mean, 1.5 / 4, rtol=1e-12)
    assert float(given.log_determinant) == pytest.approx(np.log(4.0), rel=1e-12)
    for tau in ([-2.0, 0.5], [-2.0, -0.5], [0.5, -2.0]):
        assert not bool(prior.condition(Natural(nu, jnp.array(tau)), signed=True).proper)
