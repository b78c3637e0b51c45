"""The paper's results on one update (section 4.3), as far as they hold: equal means, ordered variances, ordered sites.

"Smaller variance of the site" is read in precisions, τ_QP ≥ τ_EP: a site's precision may be negative, and then the
paper's site variances are not variances.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from local_rule import BLOCK, renewals

from quantprop import likelihoods

COUNTS = np.array([0.0, 1.0, 2.0, 7.0, 40.0])
SIGNS = np.array([-1.0, 1.0])
REALS = np.array([-2.0, 0.0, 0.3, 5.0])
CASES = {
    "gaussian": (likelihoods.Gaussian(0.7), REALS),
    "probit": (likelihoods.Probit(), SIGNS),
    "logit": (likelihoods.Logit(), SIGNS),
    "heaviside": (likelihoods.Heaviside(), SIGNS),
    "heaviside with noise": (likelihoods.Heaviside(0.05), SIGNS),
    "poisson, exp": (likelihoods.Poisson("exp"), COUNTS),
    "poisson, square": (likelihoods.Poisson("square"), COUNTS),
    "poisson, softplus": (likelihoods.Poisson("softplus"), COUNTS),
    "student-t": (likelihoods.StudentT(3.0, 0.5), REALS),
}
EPS = np.finfo(float).eps
IN_CAMPAIGNS = {
    "logit",
    "heaviside",
    "heaviside with noise",
    "poisson, exp",
    "poisson, softplus",
    "student-t",
}  # like others here
every_likelihood = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.campaign] * (case in IN_CAMPAIGNS)) for case in CASES]
)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def cavities(seed: int, log10_sd: tuple[float, float], distance: float) -> tuple[np.ndarray, np.ndarray]:
    """BLOCK cavities: sd log-uniform, mean up to `distance` sd from 0 with the near ones as likely as the far."""
    rng = np.random.default_rng(seed)
    sd = 10 ** rng.uniform(*log10_sd, BLOCK)
    away = rng.choice([-1.0, 1.0], BLOCK) * 10 ** rng.uniform(-2, np.log10(distance), BLOCK)
    return away * sd, sd**2


def observations(case: str, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).choice(CASES[case][1], BLOCK)


def ordered(case: str, seed: int, log10_sd: tuple[float, float], distance: float):
    """The renewals of one batch, after the checks that hold everywhere."""
    mean, variance = cavities(seed, log10_sd, distance)
    out = renewals(CASES[case][0], observations(case, seed), mean, variance)
    for part in (out.kl, out.w2):
        for name in ("log_normalizer", "shift", "ratio", "shrink"):
            assert np.isfinite(getattr(part, name)).all(), (name, mean[~np.isfinite(getattr(part, name))])
        assert (part.ratio > 0).all()
    np.testing.assert_array_equal(out.w2.log_normalizer, out.kl.log_normalizer)
    assert (out.w2.ratio <= out.kl.ratio).all()  # Theorem 2
    assert (out.w2.shrink >= out.kl.shrink).all()
    # Corollary 1, to rounding: τ is a quotient of two numbers that are ordered each.
    assert (out.qp_site.tau >= out.ep_site.tau - 8 * EPS * np.abs(out.ep_site.tau)).all()
    return mean, variance, out


@every_likelihood
@few
@given(seed=seeds)
def test_means_are_equal_and_variances_ordered(case, seed):
    mean, variance, out = ordered(case, seed, (-2, 2), 8)
    sd = np.sqrt(out.kl.ratio * variance)
    assert np.all(np.abs(out.w2.shift - out.kl.shift) <= 1e-9 * sd + 4 * EPS * np.abs(mean))


@every_likelihood
@few
@given(seed=seeds)
def test_variances_are_equal_only_if_the_tilted_density_is_gaussian(case, seed):
    # Cavities about as wide as the likelihood and near to where it bends: there is no tilted density that is Gaussian
    # to 16 digits. (Square link, y = 0: p(y | f) = exp(−f²) is itself a Gaussian.)
    mean, _, out = ordered(case, seed, (-0.3, 0.7), 2)
    strict = out.w2.ratio < out.kl.ratio * (1 - 4 * EPS)
    gaussian = case == "gaussian" or ((case == "poisson, square") & (observations(case, seed) == 0))
    np.testing.assert_array_equal(strict, np.broadcast_to(np.logical_not(gaussian), strict.shape), str(mean))


@every_likelihood
@few
@given(seed=seeds)
def test_one_update_of_one_site_orders_posterior_and_predictive_variances(case, seed):
    """Corollaries 1 and 2 by dense algebra: four training inputs, three new ones, site 0 renewed by EP and by QP."""
    rng = np.random.default_rng(seed)
    likelihood, support = CASES[case]
    x = rng.uniform(-2, 2, (7, 2))
    scale = 10 ** rng.uniform(-1, 1.5)
    k = scale * np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=2)) + 1e-6 * scale * np.eye(7)
    tau = np.append(0.0, rng.uniform(0, 2 / scale, 3))
    nu = rng.normal(0, 1 / np.sqrt(scale), 4) * (tau > 0)

    def posterior(tau: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of f at all seven inputs: (K⁻¹ + S)⁻¹ with S on the four."""
        covariance = np.linalg.inv(np.linalg.inv(k) + np.diag(np.append(tau, np.zeros(3))))
        return covariance @ np.append(nu, np.zeros(3)), covariance

    mean, covariance = posterior(tau, nu)  # without site 0: at input 0 this is its cavity
    y = np.resize(rng.choice(support), BLOCK)
    out = renewals(likelihood, y, np.full(BLOCK, mean[0]), np.full(BLOCK, covariance[0, 0]))
    after = {}
    for name, site, projected in (("ep", out.ep_site, out.kl), ("qp", out.qp_site, out.w2)):
        after[name] = posterior(np.append(site.tau[0], tau[1:]), np.append(site.nu[0], nu[1:]))
        # The renewed site turns the cavity into the projection, whatever the sign of its precision.
        np.testing.assert_allclose(after[name][1][0, 0], projected.ratio[0] * covariance[0, 0], rtol=1e-7)
        got, expected = after[name][0][0] - mean[0], projected.shift[0]
        assert abs(got - expected) <= 1e-6 * np.sqrt(covariance[0, 0])
    ep, qp = np.diag(after["ep"][1]), np.diag(after["qp"][1])
    assert (ep > 0).all()
    assert (qp <= ep * (1 + 1e-8)).all()
    # All means agree too: the renewed site moves them along the same direction by the same amount.
    np.testing.assert_allclose(after["qp"][0], after["ep"][0], atol=1e-6 * np.sqrt(scale), rtol=0)
    # The order holds for the whole covariance: EP's minus QP's is positive semi-definite.
    assert np.linalg.eigvalsh(after["ep"][1] - after["qp"][1]).min() >= -1e-8 * scale


@every_likelihood
@few
@given(seed=seeds)
@example(seed=0)
def test_far_outside_the_usual_range_all_is_finite_positive_and_ordered(case, seed):
    ordered(case, seed, (-8, 8), 1e6)
