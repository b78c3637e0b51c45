"""What every backend must do, against formulas on its covariance written out in full."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from priors.in_full import (
    KERNEL,
    LABELS,
    NEW,
    POINTS,
    ROUGHER,
    N,
    believed,
    differences,
    held,
    in_full,
    of_the_kernel,
    ties,
    with_classes,
)
from priors.lowrank import LowRank, LowRankPrior

from quantprop import kernels
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.sites import Marginal
from quantprop.priors import (
    Classes,
    ClassesInducing,
    ClassesInducingPrior,
    ClassesPrior,
    Dense,
    DensePrior,
    Inducing,
    InducingPrior,
    Markov,
    MarkovPrior,
    Neighbours,
    NeighboursPrior,
    Prior,
    Process,
)
from quantprop.priors.base import Conditioned, Cotangent, Joint, Moves
from quantprop.priors.inducing.message import Belief, Message


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
    "neighbours": Neighbours(N),
    "neighbours and points": Neighbours(N, points=Inducing(POINTS)),
    "classes": Classes(3),
    "classes by points": ClassesInducing(3, Inducing(POINTS)),
}


KERNELS = dict.fromkeys(("classes", "classes by points"), kernels.PerClass((KERNEL, ROUGHER, KERNEL)))

RNG = np.random.default_rng(4)
MOVES, NU = RNG.normal(size=(2, N)), RNG.normal(size=N)
BY = Cotangent(RNG.normal(size=(2, N)), np.array(0.7), RNG.normal(size=N))


class Told(NamedTuple):
    """What a prior says under sites."""

    given: Conditioned
    variances: jax.Array
    followed: Marginal  # at NU, where precisions are all positive
    answer: Moves  # to MOVES
    joint: Joint
    left_out: Normal
    slope: Prior
    carried: Prior  # of BY


class Setting(NamedTuple):
    """A backend at inputs, its covariances in full, sites, and what it says under them."""

    process: Process
    kernel: kernels.Kernel
    x: np.ndarray
    new: np.ndarray
    prior: Prior
    k: np.ndarray
    cross: np.ndarray  # prior covariances of training with new values
    own: np.ndarray  # of new values
    sites: Natural
    copies: np.ndarray
    told: Told


# A program for each question would be compiled for every backend and sign; one answers all of them.


@jax.jit
def made(process: Process, kernel: kernels.Kernel, mean: jax.Array, x: jax.Array) -> Prior:
    return process.prior(kernel, mean, process.prepare(kernel, x))


@partial(jax.jit, static_argnames="signed")
def told(prior: Prior, sites: Natural, copies: jax.Array, signed: bool) -> Told:
    given, positive = prior.condition(sites, signed), Natural(sites.nu, jnp.abs(sites.tau))
    slim, factor = prior.for_derivatives(given.factor)
    kept = Conditioned(given.sites, given.marginals, given.log_determinant, given.proper, factor)
    return Told(
        given,
        prior.variances(),
        prior.follow(prior.condition(positive, signed=False), jnp.asarray(NU)),
        slim.response(kept, signed).answer(jnp.asarray(MOVES)),
        prior.joint(given, signed),
        prior.left_out(given, copies),
        prior.evidence_slope(given, signed),
        prior.response(given, signed).to_prior(jax.tree.map(jnp.asarray, BY)),
    )


@jax.jit
def is_proper(prior: Prior, sites: Natural) -> jax.Array:
    return prior.condition(sites, signed=True).proper


@partial(jax.jit, static_argnames="signed")
def predicted(process, kernel, prior, sites, x, new, signed) -> tuple[Normal, Normal]:
    """Marginally, and jointly."""
    predictor, cross = prior.predictor(sites, signed), process.cross(kernel, x, new)
    return tuple(predictor.at(jnp.full(NEW, 0.5), cross, own) for own in (kernel.diagonal(new), kernel.gram(new)))


@pytest.fixture(scope="module", autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


BY_DEFAULT = (
    "dense, positive",
    "dense, signed",
    "low rank, positive",
    "inducing, signed",
    "markov, signed",
    "neighbours and points, signed",
    "classes, positive",
    "classes by points, signed",
)
SETTINGS = [f"{name}, {sign}" for name in BACKENDS for sign in ("positive", "signed")]


@pytest.fixture(
    scope="module", params=[pytest.param(s, marks=[pytest.mark.campaign] * (s not in BY_DEFAULT)) for s in SETTINGS]
)
def setting(request) -> Setting:
    name, sign = request.param.split(", ")
    process, kernel, rng = BACKENDS[name], KERNELS.get(name, KERNEL), np.random.default_rng(3)
    x, new = np.sort(rng.uniform(-2, 2, (N, 1)), axis=0), rng.uniform(-2, 2, (NEW, 1))
    if name == "markov":  # new times before and after the data, two next to each other
        x, new = rng.permutation(x), np.array([[-3.0], [0.1], [2.5], [0.1001], [1.2]])
    cross = None
    if name in KERNELS:
        x, new, cross = with_classes(x, new)
    if isinstance(process, Neighbours):
        process = process.settled(kernel, x).facing(kernel, x, new)
    prior, own = made(process, kernel, jnp.asarray(rng.normal(size=N)), x), np.array(of_the_kernel(kernel, x, new)[1])
    if isinstance(prior, LowRankPrior):
        cross = np.array(prior.v).T @ np.array(ties(process, x, new))
    elif isinstance(prior, InducingPrior):
        v, more = np.array(held(prior)), np.array(ties(process, x, new))
        cross, own = v.T @ believed(prior) @ more, own + more.T @ (believed(prior) - np.eye(6)) @ more
    elif isinstance(prior, ClassesInducingPrior):
        v, more = np.asarray(prior.v)[0], np.asarray(process.cross(kernel, x, new).k)
        w, datum = differences()
        cross = sum(np.outer(w[:, c], new[:, 1 + c]) * (v[c].T @ more[c])[datum] for c in range(3))
    elif cross is None:
        cross = np.array(of_the_kernel(kernel, x, new)[0])
    tau = rng.uniform(0.2, 3.0, N)
    if sign == "signed":
        tau[[2, 7]] = -0.1, -0.2
    sites = Natural(jnp.asarray(rng.normal(size=N)), jnp.asarray(tau))
    copies = np.ones(N) if process.copies_apart else rng.integers(1, 4, N).astype(float)
    says = told(prior, sites, jnp.asarray(copies), signed=sign == "signed")
    return Setting(process, kernel, x, new, prior, in_full(prior), cross, own, sites, copies, says)


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
    given = setting.told.given
    covariance, mean = posterior(setting.k, np.asarray(setting.prior.mean), setting.sites)
    nu, tau, m = np.asarray(setting.sites.nu), np.asarray(setting.sites.tau), given.marginals
    np.testing.assert_allclose(m.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(m.variance, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(m.alpha, nu - tau * mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(m.b, 1.0 - tau * np.diag(covariance), rtol=1e-9)
    expected = np.linalg.slogdet(np.eye(N) + np.diag(tau) @ setting.k)[1]
    assert float(given.log_determinant) == pytest.approx(expected, rel=1e-10)
    assert bool(given.proper)
    np.testing.assert_allclose(setting.told.variances, np.diag(setting.k), rtol=1e-12)


def test_sites_that_leave_no_posterior_are_said_to(setting):
    worst = Natural(setting.sites.nu, setting.sites.tau.at[4].set(-50.0))
    assert np.linalg.eigvalsh(np.linalg.inv(setting.k) + np.diag(worst.tau))[0] < 0
    assert not bool(is_proper(setting.prior, worst))


def test_a_scaled_prior_has_a_scaled_covariance(setting):
    np.testing.assert_allclose(in_full(setting.prior.scaled(0.3)), 0.3 * setting.k, rtol=1e-12)
    np.testing.assert_array_equal(setting.prior.scaled(0.3).mean, setting.prior.mean)


def test_means_follow_a_change_of_nu(setting):
    tau, found = np.abs(setting.sites.tau), setting.told.followed
    covariance, mean = posterior(setting.k, np.asarray(setting.prior.mean), Natural(NU, tau))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(found.alpha, NU - tau * mean, rtol=1e-9, atol=1e-10)


def test_values_without_one_copy_of_their_site(setting):
    for i in range(N):
        left = np.where(np.arange(N) == i, 1.0 - 1.0 / setting.copies, 1.0)
        rest = Natural(left * np.asarray(setting.sites.nu), left * np.asarray(setting.sites.tau))
        covariance, mean = posterior(setting.k, np.asarray(setting.prior.mean), rest)
        assert float(setting.told.left_out.mean[i]) == pytest.approx(mean[i], rel=1e-9)
        assert float(setting.told.left_out.variance[i]) == pytest.approx(covariance[i, i], rel=1e-9)


def test_answers_are_correlations_and_their_squares(setting):
    covariance, _ = posterior(setting.k, np.asarray(setting.prior.mean), setting.sites)
    sd = np.sqrt(np.diag(covariance))
    rho = covariance / np.outer(sd, sd)
    np.testing.assert_allclose(setting.told.answer, [rho @ MOVES[0], rho**2 @ MOVES[1]], rtol=1e-8, atol=1e-10)


def test_the_joint_posterior(setting):
    joint = setting.told.joint
    covariance, _ = posterior(setting.k, np.asarray(setting.prior.mean), setting.sites)
    np.testing.assert_allclose(joint.covariance, covariance, rtol=1e-8, atol=1e-10)
    expected = np.linalg.inv(np.eye(N) + setting.k @ np.diag(setting.sites.tau))
    np.testing.assert_allclose(joint.transfer, expected, rtol=1e-8, atol=1e-10)


def moved(prior: Prior, direction: Prior, by: float) -> Prior:
    return jax.tree.map(lambda a, b: np.asarray(a) + by * np.asarray(b), prior, direction)


def some_direction(prior: Prior) -> Prior:
    """A direction in the prior's numbers, symmetric where they are a covariance."""
    rng = np.random.default_rng(5)
    found = jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), prior)
    if isinstance(prior, DensePrior):
        return DensePrior(found.mean, 0.1 * (found.k + found.k.T))
    if isinstance(prior, InducingPrior):  # x and the shares are given
        before = found.before and Belief(found.before.precision + found.before.precision.T, jnp.zeros(6), jnp.zeros(()))
        return found.made_of(found.mean, found.basis, before)
    if isinstance(prior, NeighboursPrior):  # x and the sets are given
        nothing = jax.tree.map(np.zeros_like, prior)
        return replace(nothing, mean=found.mean, bases=found.bases)
    if isinstance(prior, ClassesPrior):  # ω and the labels are given
        k = 0.1 * (found.k + np.swapaxes(found.k, 1, 2))
        return ClassesPrior(found.mean, k, np.zeros(()), np.zeros(len(LABELS)), 3)
    if isinstance(prior, ClassesInducingPrior):  # ω, the labels and κ are given
        nothing = jax.tree.map(np.zeros_like, prior)
        return replace(nothing, mean=found.mean, v=found.v, residual=found.residual)
    if isinstance(prior, MarkovPrior):  # Q symmetric, the order of rows as it is; slots without a row do not count
        chain = found.chain._replace(q=0.1 * (found.chain.q + np.swapaxes(found.chain.q, 1, 2)))
        still = jax.tree.map(np.zeros_like, prior.layout)
        return MarkovPrior(found.mean, chain, found.noise, found.prior_variance, still)
    return found


def inner(a: Prior, b: Prior) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))


def difference(function, prior: Prior, direction: Prior, h: float = 1e-5) -> float:
    """A central difference of fourth order."""
    f = [function(moved(prior, direction, s * h)) for s in (-2, -1, 1, 2)]
    return float((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h))


def test_the_slope_of_the_log_integral(setting):
    prior, direction = setting.prior, some_direction(setting.prior)
    expected = difference(lambda p: log_integral(in_full(p), np.asarray(p.mean), setting.sites), prior, direction)
    assert inner(setting.told.slope, direction) == pytest.approx(expected, rel=1e-6)


def test_cotangents_reach_the_priors_numbers(setting):
    prior, direction = setting.prior, some_direction(setting.prior)
    at, tau = setting.told.given.marginals, np.asarray(setting.sites.tau)

    def weighed(p: Prior) -> float:
        covariance, mean = posterior(in_full(p), np.asarray(p.mean), setting.sites)
        answer = [(mean - at.mean) / np.sqrt(at.variance), 1.0 - np.diag(covariance) / at.variance]
        size = np.linalg.slogdet(np.eye(N) + np.diag(tau) @ in_full(p))[1]
        return float(np.sum(BY.answer * np.array(answer)) + 0.7 * size + BY.mean @ p.mean)

    assert inner(setting.told.carried, direction) == pytest.approx(difference(weighed, prior, direction), rel=1e-6)


@pytest.mark.parametrize("joint", [False, True])
def test_predictions(setting, joint):
    at = (setting.process, setting.kernel, setting.prior, setting.sites, setting.x, setting.new)
    found = predicted(*at, signed=signed(setting))[joint]
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

    @jax.jit
    def under(x, tau):
        process, kernel = Markov(), kernels.Matern32(1.0, 1.0)
        prior = process.prior(kernel, jnp.zeros(2), process.prepare(kernel, x))
        return prior.condition(Natural(jnp.array([0.5, 1.0]), tau), signed=True)

    x = np.zeros((2, 1))
    given = under(x, jnp.array([-2.0, 5.0]))
    assert bool(given.proper)  # 1 − 2 + 5 = 4
    np.testing.assert_allclose(given.marginals.variance, 0.25, rtol=1e-12)
    np.testing.assert_allclose(given.marginals.mean, 1.5 / 4, rtol=1e-12)
    assert float(given.log_determinant) == pytest.approx(np.log(4.0), rel=1e-12)
    for tau in ([-2.0, 0.5], [-2.0, -0.5], [0.5, -2.0]):
        assert not bool(under(x, jnp.array(tau)).proper)
