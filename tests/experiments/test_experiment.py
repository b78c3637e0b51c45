"""One experiment: rows against plain fits and scipy, forecasts of counts against sums and integrals."""

import dataclasses
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from experiments.pretend import made_up
from scipy import integrate, stats

from quantprop import Model, PrecisionWarning, fit, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural, Normal
from quantprop.experiments import as_coded, experiment, learning
from quantprop.experiments.experiment import Forecast, carry_out, negative_binomial
from quantprop.experiments.learning import hyperparameters, model_at, starts
from quantprop.experiments.protocol import METHODS, Experiment, model_of, split
from quantprop.inference.predictive import Predictive
from quantprop.inference.results import Ending
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.methods import EP, Method
from quantprop.methods.base import Renewal

FOLD = Experiment("wine2", round=1, fold=2)


@pytest.fixture(scope="module")
def ep():
    return carry_out(FOLD, "ep")


@pytest.fixture(scope="module")
def qp(ep):
    return carry_out(FOLD, "qp", ep)


def check_against(row, fitted, x_test, y_test):
    """The numbers of a row from a fit, by scipy's normal distribution."""
    f = fitted.solution.predict(x_test)
    assert row.hyperparameters == pytest.approx(fitted.hyperparameters, rel=1e-6)
    assert row.te == np.mean(np.sign(f.mean) != y_test)
    log_prob = stats.norm.logcdf(y_test * f.mean / np.sqrt(1.0 + f.variance))
    np.testing.assert_allclose(row.test["log_prob"], log_prob, rtol=1e-6)
    assert row.ntll == pytest.approx(-np.mean(log_prob), rel=1e-6)
    assert row.evidence == pytest.approx(fitted.solution.log_evidence, rel=1e-9)
    assert row.test["y"] == y_test.tolist()


def plain_ep():
    x, y, _, _ = split(FOLD)
    start = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit())
    return fit(start, x, y, "ep", max_evaluations=1000, ftol=1e-9)


def test_ep_is_a_plain_fit(ep):
    check_against(ep, plain_ep(), *split(FOLD)[2:])
    assert ep.converged
    assert (ep.seed, ep.round, ep.fold, ep.method) == (10, 1, 2, "ep")


@pytest.mark.campaign
def test_qp_is_a_plain_fit_from_eps_optimum(qp):
    x, y, x_test, y_test = split(FOLD)
    second = fit(plain_ep().model, x, y, "qp", gradient="partial", max_evaluations=1000, ftol=1e-9)
    check_against(qp, second, x_test, y_test)
    assert qp.status.startswith(str(second.status))


@pytest.mark.campaign
def test_qps_variance_is_below_eps_at_eps_hyperparameters(ep, qp):
    x, y, x_test, _ = split(FOLD)
    kernel = kernels.SquaredExponential(*(ep.hyperparameters[f"kernel.{n}"] for n in ("variance", "lengthscale")))
    again = infer(Model(kernel, likelihoods.Probit()), x, y, "qp", schedule="sequential", tol=1e-9)
    np.testing.assert_allclose(qp.test["variance_at_ep"], again.predict(x_test).variance, rtol=1e-5)
    assert (np.array(qp.test["variance_at_ep"]) < np.array(ep.test["variance"])).all()


def test_a_failed_fit_is_a_row_that_says_why(monkeypatch):
    def fails(*_):
        raise FloatingPointError("the posterior is improper at row 3")

    monkeypatch.setattr(experiment, "by_the_text", fails)
    row = carry_out(FOLD, "vb")
    assert (row.te, row.ntll, row.evidence, row.hyperparameters, row.converged) == (None, None, None, {}, False)
    assert row.status == "failed: the posterior is improper at row 3"
    failed = dataclasses.replace(made_up(FOLD, "ep"), te=None, status="failed: no posterior")
    assert carry_out(FOLD, "qp", failed).status.endswith("has none: failed: no posterior")
    with pytest.raises(ValueError, match="run ep first"):
        carry_out(FOLD, "qp")


def test_warnings_of_lost_digits_end_in_the_status(monkeypatch):
    def fails(*_):
        for _ in range(2):
            warnings.warn("3 of 10 variances are lost", PrecisionWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
        raise FloatingPointError("no posterior")

    monkeypatch.setattr(experiment, "by_the_text", fails)
    with pytest.warns(UserWarning, match="something else") as others:
        row = carry_out(FOLD, "vb")
    assert row.status == "failed: no posterior; 3 of 10 variances are lost"
    assert len(others) == 1


def test_stored_numbers_are_where_learning_goes_on():
    model = model_of(Experiment("wine2", kernel="ard"), "ep", 13)
    stored = {"kernel.variance": np.nextafter(1e8, np.inf), "kernel.lengthscale": np.linspace(1.0, 2.0, 13).tolist()}
    start = model_at(model, stored)
    assert hyperparameters(start) == {**stored, "kernel.variance": 1e8}  # back on the bound it had rounded over


def test_minus_infinity_stays():
    certain = Forecast(np.array([1.0]), np.array([0.0, 1.0]), np.array([-math.inf, -1.0]))
    assert experiment._scores(certain) == {"te": 0.5, "ntll": math.inf}


LATENTS = [(0.0, 1.0), (1.0, 0.01), (1.7, 0.3), (2.5, 1.0), (-3.0, 4.0), (5.0, 0.5), (0.3, 30.0)]


@pytest.mark.parametrize(("mean", "variance"), LATENTS)
def test_the_negative_binomial_is_a_poisson_mixed_by_the_gamma_of_the_square(mean, variance):
    latent = Normal(np.full(6, mean), np.full(6, variance))
    counts = np.array([0.0, 1.0, 2.0, 5.0, 13.0, 40.0])
    square = stats.ncx2(1, mean**2 / variance, scale=variance)  # f² / v is noncentral χ²
    k, c = square.mean() ** 2 / square.var(), square.var() / square.mean()  # of the gamma with its moments
    found = negative_binomial(latent, counts)
    np.testing.assert_allclose(found.log_prob, stats.nbinom(k, 1.0 / (1.0 + c)).logpmf(counts), rtol=1e-9)
    mixed = stats.gamma(k, scale=c).expect(lambda g: stats.poisson.pmf(5, g), limit=200)
    assert np.exp(found.log_prob[3]) == pytest.approx(mixed, rel=1e-5)
    mode = np.argmax(stats.nbinom(k, 1.0 / (1.0 + c)).pmf(np.arange(1000)))
    assert (found.point == mode).all()
    np.testing.assert_array_equal(found.error, np.abs(mode - counts))


def test_the_mode_of_the_exact_forecast():
    mean, variance = map(np.array, zip(*LATENTS, strict=True))
    predictive = Predictive(
        likelihoods.Poisson(link="square"), Normal(mean, variance), np.ones(len(mean)), np.ones(len(mean))
    )

    def probability(y, m, v):
        f = np.linspace(m - 12.0 * np.sqrt(v), m + 12.0 * np.sqrt(v), 40_001)
        return integrate.simpson(stats.poisson.pmf(y, f**2) * stats.norm.pdf(f, m, np.sqrt(v)), x=f)

    expected = [np.argmax([probability(y, m, v) for y in range(60)]) for m, v in LATENTS]
    assert experiment.mode(predictive).tolist() == expected


def rounds_of_ep(k, y, sweeps):
    """Probit EP as in textbooks, by inverses: one site after the other, precisions clipped, at most so many sweeps."""
    n = len(y)
    tau, nu = np.full(n, np.finfo(float).eps), np.zeros(n)
    for _ in range(sweeps):
        before = tau.copy(), nu.copy()
        for i in range(n):
            sigma = np.linalg.inv(np.linalg.inv(k) + np.diag(tau))
            mu = sigma @ nu
            v = 1.0 / (1.0 / sigma[i, i] - tau[i])
            m = v * (mu[i] / sigma[i, i] - nu[i])
            z = y[i] * m / np.sqrt(1.0 + v)
            ratio = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
            mean = m + y[i] * v * ratio / np.sqrt(1.0 + v)
            variance = v - v**2 * ratio * (z + ratio) / (1.0 + v)
            tau[i] = max(1.0 / variance - 1.0 / v, np.finfo(float).eps)
            nu[i] = mean / variance - m / v
        if all(np.mean((new - old) ** 2) < 1e-6 for new, old in zip((tau, nu), before, strict=True)):
            break
    return tau, nu


def small_landscape():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(9, 2))
    y = np.where(x[:, 0] + 0.5 * rng.normal(size=9) > 0, 1.0, -1.0)
    model = Model(kernels.SquaredExponential(4.0, 1.5), likelihoods.Probit())
    return Landscape(model, prepare(model, x, y, EP(), None, None, None), EP(), Evidence(), exact=False), x, y


def test_few_sweeps_are_those_of_the_authors():
    landscape, x, y = small_landscape()
    theta = np.log([4.0, 1.5])
    nothing = Natural(np.zeros(32), np.zeros(32))
    point = as_coded.visited(landscape, theta, nothing)
    k = 4.0 * np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=2) / 1.5**2)
    tau, nu = rounds_of_ep(k, y, 3)
    np.testing.assert_allclose(point.out.at.sites.tau[:9], tau, rtol=1e-9)
    np.testing.assert_allclose(point.out.at.sites.nu[:9], nu, rtol=1e-9)
    assert int(point.out.sweeps) == 3
    rested, _ = rounds_of_ep(k, y, 50)
    assert not np.allclose(rested, tau, rtol=1e-6)  # three sweeps are not enough, and that is the point


def test_the_gradient_as_coded_holds_the_sites_fixed():
    landscape, x, y = small_landscape()
    nothing = Natural(np.zeros(32), np.zeros(32))
    point = as_coded.visited(landscape, np.log([4.0, 1.5]), nothing)
    tau, nu = (np.asarray(part)[:9] for part in (point.out.at.sites.tau, point.out.at.sites.nu))

    def evidence(theta):  # Rasmussen and Williams, section 3.6: log ∫ N(f|0,K) Π t_i(f_i) Z_i df with the sites given
        k = np.exp(theta[0]) * np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=2) / np.exp(2.0 * theta[1]))
        sigma = np.linalg.inv(np.linalg.inv(k) + np.diag(tau))
        mu = sigma @ nu
        v = 1.0 / (1.0 / np.diag(sigma) - tau)
        m = v * (mu / np.diag(sigma) - nu)
        log_z = stats.norm.logcdf(y * m / np.sqrt(1.0 + v))
        site = 0.5 * ((nu + m / v) ** 2 / (tau + 1.0 / v) - m**2 / v) - 0.5 * np.log1p(tau * v)
        whole = 0.5 * nu @ mu - 0.5 * np.linalg.slogdet(np.eye(len(y)) + k * tau)[1]
        return whole + np.sum(log_z - site)

    theta, h = np.log([4.0, 1.5]), 1e-5
    assert point.value == pytest.approx(evidence(theta), rel=1e-10)
    slope = [(evidence(theta + h * e) - evidence(theta - h * e)) / (2.0 * h) for e in np.eye(2)]
    np.testing.assert_allclose(point.gradient, slope, rtol=1e-6)


class Fixed(Method):
    """A rule that always asks for the same site."""

    def renew(self, likelihood, datum, weight, marginal, site):
        return Renewal(Natural(2.0, -3.0), 0.0, True)


def test_a_precision_below_zero_becomes_machine_epsilon():
    clipped = as_coded.Clipped(Fixed()).renew(None, None, None, None, None).site
    assert (float(clipped.nu), float(clipped.tau)) == (2.0, pytest.approx(2.0**-52, rel=1e-6))


@pytest.mark.campaign
def test_as_coded_ends_near_eps_optimum_and_says_what_it_is(ep):
    code = dataclasses.replace(FOLD, variant="code")
    first = carry_out(code, "ep")
    assert first.hyperparameters == pytest.approx(ep.hyperparameters, rel=1e-3)
    assert first.ntll == pytest.approx(ep.ntll, rel=1e-3)
    second = carry_out(code, "qp", first)
    assert second.status.startswith("as-coded: ")
    assert second.ntll < first.ntll
    assert second.converged == (float(second.status.rsplit(" ", 1)[1]) <= 1e-6)


@pytest.mark.campaign
def test_mining_has_both_forecasts():
    paper, clean = (carry_out(Experiment("mining", v, split="year"), "ep") for v in ("paper", "clean"))
    parts = split(Experiment("mining", "paper", split="year"))
    latent = Normal(np.array(paper.test["mean"]), np.array(paper.test["variance"]))
    expected = negative_binomial(latent, parts.y_test)
    assert paper.ntll == paper.forecasts["negative-binomial"]["ntll"] == pytest.approx(-np.mean(expected.log_prob))
    assert paper.te == pytest.approx(np.mean(np.abs(expected.point - parts.y_test)))
    assert clean.ntll == clean.forecasts["exact"]["ntll"] != clean.forecasts["negative-binomial"]["ntll"]
    assert isinstance(paper.hyperparameters["kernel.variance"], float)


class End:
    """A stand-in for a fit: how it ended, and its objective."""

    def __init__(self, reason, value):
        self.objective_value, self.converged = value, reason == "converged"
        self.status = Ending(reason, 5, 0, 0.0, ())
        self.solution = SimpleNamespace(converged=True, status="converged after 3 sweeps")


@pytest.mark.parametrize(
    ("ends", "value"),
    [
        ([("converged", -9.0), ("converged", -8.0)], -8.0),
        ([("no-progress", -7.0), ("converged", -8.0)], -7.0),
        ([("inference-failed", 0.0), ("converged", -8.0)], -8.0),
        ([("inference-failed", 0.0), ("inference-failed", 0.0)], None),
    ],
)
def test_the_best_of_the_ends_is_kept(monkeypatch, ends, value):
    clean, given = dataclasses.replace(FOLD, variant="clean"), iter(ends)
    begun = []

    def fake(model, *_, **__):
        begun.append(model.kernel.variance)
        return End(*next(given))

    monkeypatch.setattr(learning, "fit", fake)
    at_ep = {"kernel.variance": 50.0, "kernel.lengthscale": 2.0}
    if value is None:
        with pytest.raises(learning.Failed, match="inference-failed after 5 evaluations"):
            learning.by_the_text(clean, "vb", split(clean), at_ep)
    else:
        result = learning.by_the_text(clean, "vb", split(clean), at_ep)
        assert (result.value, result.evaluations) == (value, 10)
        usable = sum(reason != "inference-failed" for reason, _ in ends)
        assert result.status.endswith(f"; the best of {usable} ends from 2 starts")
    assert begun == [50.0, 1.0]


def test_where_methods_start():
    at_ep = {"kernel.variance": 50.0, "kernel.lengthscale": 2.0}

    def variances(variant, method):
        return [m.kernel.variance for m in starts(dataclasses.replace(FOLD, variant=variant), method, 13, at_ep)]

    assert {method: variances("paper", method) for method in METHODS} == {
        "ep": [1.0], "qp": [50.0], "vb": [1.0], "laplace": [1.0]
    }  # fmt: skip
    assert {method: variances("clean", method) for method in METHODS} == {
        "ep": [1.0], "qp": [50.0], "vb": [50.0, 1.0], "laplace": [50.0, 1.0]
    }  # fmt: skip


@pytest.mark.campaign
def test_clean_vb_on_separable_data_has_a_result(ep):
    clean = dataclasses.replace(FOLD, variant="clean")
    start = carry_out(clean, "ep")
    assert start.hyperparameters == pytest.approx(ep.hyperparameters, rel=1e-9)  # wine2 has no fault to remove
    x, y, x_test, y_test = split(clean)
    fitted = fit(model_of(clean, "vb", 13), x, y, "vb", max_evaluations=1000, ftol=1e-9)
    check_against(carry_out(clean, "vb", start), fitted, x_test, y_test)
