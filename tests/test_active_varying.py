"""Information and choice of observations if a parameter varies with x, against sums over both functions and y."""

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp, xlogy
from scipy.stats import norm

from quantprop import Inducing, Model, active, infer, kernels, likelihoods
from quantprop.inference.information import expected, of_mean
from quantprop.likelihoods import Varying

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 6.0, 30))[:, None]
Y = np.sin(X[:, 0]) + 0.5 * np.exp(0.5 * np.sin(2.0 * X[:, 0])) * RNG.standard_normal(30)
COUNTS = RNG.poisson(2.0 * np.exp(0.5 * np.sin(X[:, 0]))) * (RNG.random(30) > 0.3).astype(float)
KERNEL = kernels.PerParameter(kernels.SquaredExponential(), kernels.SquaredExponential(0.5, 1.5))
NEW = np.array([[0.5], [3.0], [7.5]])
Z, OF_G = np.linspace(-7.0, 7.0, 481), np.linspace(-7.0, 7.0, 51)  # f and g in standard deviations
MASS, MASS_OF_G = (norm.pdf(z) / norm.pdf(z).sum() for z in (Z, OF_G))


def real(y, f, g):
    return norm.logpdf(y, f, 0.5 * np.exp(g))


def poisson(y, f):
    return xlogy(y, np.exp(f)) - np.exp(f) - gammaln(y + 1.0)


def counted(y, f, g):
    """Zeros of their own, whose odds are multiplied by exp(g)."""
    share = expit(np.log(0.3 / 0.7) + g)
    return np.logaddexp(np.where(y == 0, np.log(share), -np.inf), np.log1p(-share) + poisson(y, f))


def of_nb(y, f, g):
    size = 1.0 / (0.8 * np.exp(g))
    logs = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0) - size * np.log1p(np.exp(f) / size)
    return logs + y * (f - np.log(np.exp(f) + size))


CASES = {
    "gaussian": (Varying(likelihoods.Gaussian(0.5), "scale"), Y, real, np.linspace(-20.0, 20.0, 401)),
    "zero-inflated": (Varying(likelihoods.ZeroInflatedPoisson(0.3), "inflation"), COUNTS, counted, np.arange(100.0)),
    "negative binomial": (Varying(likelihoods.NegativeBinomial(0.8), "dispersion"), COUNTS, of_nb, np.arange(1000.0)),
}
EACH = ["gaussian", *(pytest.param(one, marks=pytest.mark.campaign) for one in ("zero-inflated", "negative binomial"))]


def averaged(log_prob, y, new, i):
    """p(y | f) at values of f (rows) and of y (columns), g integrated out; and values and masses of f."""
    f, g = (part.mean[i] + np.sqrt(part.variance[i]) * z
            for part, z in ((new.latent, Z), (new.parameter, OF_G)))  # fmt: skip
    return np.array([logsumexp(log_prob(y, value, g[:, None]), b=MASS_OF_G[:, None], axis=0) for value in f]), f


@pytest.mark.parametrize("case", EACH)
def test_information_is_a_sum_over_both_functions_and_y(case):
    likelihood, y, log_prob, values = CASES[case]
    solution = infer(Model(KERNEL, likelihood), X, y, "ep")
    new, level = solution.predict_y(NEW), 0.2
    of_f, (of_event, left) = solution.information(NEW), expected(new, level)[1:]
    np.testing.assert_allclose(solution.information(NEW, level), of_event, rtol=1e-12)
    step = values[1] - values[0]
    for i in range(len(NEW)):
        logs, f = averaged(log_prob, values, new, i)
        joint = MASS[:, None] * np.exp(logs) * step
        z = np.maximum(joint.sum(0), 1e-300)
        assert of_f[i] == pytest.approx(np.sum(joint * (logs + np.log(step / z))), rel=2e-3)
        mean = (joint * f[:, None]).sum(0) / z
        assert left[i] == pytest.approx((joint * (f[:, None] - mean) ** 2).sum(), rel=2e-3)
        above, p = joint[f > level].sum(0), MASS[f > level].sum()
        event = xlogy(above, above / (z * p)).sum() + xlogy(z - above, (z - above) / (z * (1.0 - p))).sum()
        assert of_event[i] == pytest.approx(event, rel=0.03, abs=1e-4)  # the level is between two f


@pytest.mark.parametrize("case", EACH)
def test_improvement_and_upper_bound_of_the_mean_of_y(case):
    likelihood, y, log_prob, values = CASES[case]
    solution = infer(Model(KERNEL, likelihood), X, y, "ep")
    new, best = solution.predict_y(NEW), 0.7
    gain, upper = of_mean(new, best)
    for i in range(len(NEW)):
        logs, f = averaged(log_prob, values, new, i)
        mean = np.sum(values * np.exp(logs), axis=1) * (values[1] - values[0])
        assert gain[i] == pytest.approx(np.sum(MASS * np.maximum(mean - best, 0.0)), rel=2e-3, abs=1e-5)
        quantile = new.latent.mean[i] + 1.645 * np.sqrt(new.latent.variance[i])
        assert upper[i] == pytest.approx(np.interp(quantile, f, mean), rel=1e-3)


@pytest.mark.parametrize("process", [None, pytest.param(Inducing(20), marks=pytest.mark.campaign)], ids=repr)
def test_choice_and_telling(process):
    likelihood, y, _, _ = CASES["gaussian"]
    model = Model(KERNEL, likelihood) if process is None else Model(KERNEL, likelihood, process=process)
    before = infer(model, X[:27], y[:27], "ep", tol=1e-9)
    for criterion in ("information", "level", "improvement", "upper"):
        level = 0.2 if criterion == "level" else None
        chosen = active.ask(before, NEW, 3, criterion, level)
        assert sorted(chosen.tolist()) == [0, 1, 2]
        assert chosen[0] == active.ask(before, NEW, 1, criterion, level)[0]
    told, whole = active.tell(before, X[27:], y[27:]), infer(before.model, X, y, "ep", tol=1e-9)
    assert told.sites.nu.shape == (2, 30)
    assert told.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    np.testing.assert_allclose(told.parameter_at(NEW).median, whole.parameter_at(NEW).median, rtol=1e-5)
    assert active.tell(before, X[27:28], y[27:28]).sweeps <= whole.sweeps
