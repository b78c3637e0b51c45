"""Offsets, sum coding and correlated slopes, against other libraries and the same models written otherwise."""

import numpy as np
import pandas as pd
import pytest

from quantprop import GaussianProcessClassifier, GaussianProcessRanker, GaussianProcessRegressor, kernels, tables

smf = pytest.importorskip("statsmodels.formula.api")


@pytest.fixture(scope="module")
def claims():
    rng = np.random.default_rng(0)
    x, n, g = rng.uniform(0, 3, 120), rng.uniform(0.5, 200, 120), rng.integers(0, 4, 120)
    y = rng.poisson(n * np.exp(0.3 * x - 1 + 0.2 * g))
    return pd.DataFrame({"x": x, "n": n, "g": [f"g{level}" for level in g], "y": y})


def test_an_offset_of_a_logarithm_is_exposure(claims):
    """The same evidence, coefficients and predictions as with exposure=n, for a log link."""
    offset = GaussianProcessRegressor("y ~ x + factor(g) + offset(log(n))", likelihood="poisson", method="ep")
    exposed = GaussianProcessRegressor("y ~ x + factor(g)", likelihood="poisson", method="ep")
    offset.fit(claims, claims["y"])
    exposed.fit(claims, claims["y"], exposure=claims["n"])
    assert offset.log_marginal_likelihood_value_ == pytest.approx(exposed.log_marginal_likelihood_value_, abs=1e-7)
    for name, effect in exposed.solution_.fixed_effects().items():
        assert offset.solution_.fixed_effects()[name] == pytest.approx(effect, abs=1e-7)
    assert offset.predict(claims[:9]) == pytest.approx(exposed.predict(claims[:9], exposure=claims["n"][:9]), rel=1e-7)


def test_an_offset_is_subtracted_from_a_real_y(claims):
    """Far from zero, in units of y, and from a table with its file: as if y were y minus the offset."""
    y = 2.0 * claims["x"] + claims["n"] + 1000.0 + np.random.default_rng(1).normal(0, 0.1, len(claims))
    both = {}
    for text, observed in (("y ~ x + offset(n)", y), ("y ~ x", y - claims["n"])):
        model = GaussianProcessRegressor(text, mean="constant", method="ep", normalize_y=True)
        both[text] = model.fit(claims, observed)
    with_offset, without = both.values()
    difference = with_offset.log_marginal_likelihood_value_ - without.log_marginal_likelihood_value_
    assert difference == pytest.approx(0.0, abs=1e-5)
    assert with_offset.predict(claims) == pytest.approx(without.predict(claims) + claims["n"], abs=1e-5)
    assert with_offset.mean_ == pytest.approx(without.mean_, abs=1e-5)


def test_an_offset_of_a_table_is_stored(claims, tmp_path):
    problem = tables.problem(claims, "y", "poisson", "y ~ x + factor(g) + offset(log(n))")
    problem.fit("ep").save(tmp_path / "model")
    found = tables.load(tmp_path / "model")
    glm = smf.poisson("y ~ x + C(g)", claims, offset=np.log(claims["n"])).fit(disp=False)
    effects = found.summary().record["models"][0]
    assert "offset(log(n))" in effects["shares"]
    for ours, theirs in {"linear(x)": "x", "factor(g)[g3]": "C(g)[T.g3]"}.items():
        estimate = effects["fixed_effects"][ours]
        assert estimate["estimate"] == pytest.approx(glm.params[theirs], abs=0.1 * glm.bse[theirs])
        assert estimate["error"] == pytest.approx(glm.bse[theirs], rel=0.05)
    twice = found.forecast(claims.assign(n=2 * claims["n"]))["mean"]
    assert twice == pytest.approx(2.0 * found.forecast(claims)["mean"], rel=1e-9)


def test_an_offset_of_log_odds_shifts_them():
    """Of two classes, against a logistic regression with the offset; of more there is none."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=400), "z": rng.normal(size=400)})
    frame["y"] = (rng.uniform(size=400) < 1 / (1 + np.exp(-frame["x"] - 2 * frame["z"]))).astype(int)
    model = GaussianProcessClassifier("y ~ x + offset(z)", likelihood="logit", method="ep").fit(frame, frame["y"])
    theirs = smf.logit("y ~ x", frame, offset=frame["z"]).fit(disp=False)
    slope = model.solution_.fixed_effects()["linear(x)"]
    assert slope.estimate == pytest.approx(theirs.params["x"], abs=0.1 * theirs.bse["x"])
    with pytest.raises(ValueError, match="offset\\(z\\) is not supported with more than two classes"):
        GaussianProcessClassifier("y ~ x + offset(z)").fit(frame, np.arange(400) % 3)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (lambda f: GaussianProcessRanker("se(x) + offset(n)").fit(f, [[0, 1]]), "in a ranker"),
        (lambda f: GaussianProcessRegressor("se(x) + offset(n)", mean=np.sin).fit(f, f["y"]), "constant mean"),
        (lambda f: tables.problem(f.assign(c=1), "y", "censored", "se(x) + offset(n)", tables.Roles(event="c")),
         "weibull or log-logistic"),
        (lambda f: GaussianProcessRegressor("se(x)", varying={"scale": "se(x) + offset(n)"}).fit(f, f["y"]),
         "in a parameter that varies"),
    ],
)  # fmt: skip
def test_offsets_without_a_meaning_are_refused(claims, fit, said):
    with pytest.raises(ValueError, match=said):
        fit(claims)


def test_sum_coding_as_statsmodels_has_it(claims):
    """Differences from the mean of all levels, for counts; the summary states it."""
    problem = tables.problem(claims, "y", "poisson", "y ~ x + factor(g, coding=sum) + offset(log(n))")
    part = problem.fit("ep").summary().record["models"][0]
    glm = smf.poisson("y ~ x + C(g, Sum)", claims, offset=np.log(claims["n"])).fit(disp=False)
    levels = [part["fixed_effects"][f"factor(g, coding=sum)[g{level}]"] for level in range(4)]
    assert sum(level["estimate"] for level in levels) == pytest.approx(0.0, abs=1e-9)
    for level in range(3):
        theirs = f"C(g, Sum)[S.g{level}]"
        assert levels[level]["estimate"] == pytest.approx(glm.params[theirs], abs=0.1 * glm.bse[theirs])
        assert levels[level]["error"] == pytest.approx(glm.bse[theirs], rel=0.05)
    assert part["references"] == {"g": "the mean of all levels"}


def test_predictions_do_not_depend_on_the_coding():
    frame = pd.DataFrame({"g": list("abcabcabcabc"), "y": np.random.default_rng(5).normal(size=12)})
    settings = {"mean": "constant", "method": "ep"}
    by = [GaussianProcessRegressor(text, **settings).fit(frame, frame["y"]).predict(frame)
          for text in ("y ~ factor(g)", "y ~ factor(g, coding=sum)")]  # fmt: skip
    assert by[0] == pytest.approx(by[1], abs=0.02)  # their priors of variance 100 differ
    assert kernels.written(kernels.Terms("factor(g, coding=sum)").kernel()) == "factor(g, variance=1, coding=sum)"


def test_correlated_slopes_as_mixedlm_has_them():
    """Three effects per group with a full covariance: by REML, to 1e-3 of each; levels are their BLUPs."""
    rng = np.random.default_rng(1)
    g, a, b = np.repeat(np.arange(30), 12), rng.uniform(0, 5, 360), rng.normal(2, 1, 360)
    effects = rng.normal(size=(30, 3)) @ np.array([[2, 0.5, -0.3], [0, 0.8, 0.4], [0, 0, 0.6]])
    y = 3 + 1.5 * a - 0.7 * b + np.sum(effects[g] * np.stack([np.ones(360), a, b], axis=1), axis=1)
    frame = pd.DataFrame({"a": a, "b": b, "g": [f"g{i:02d}" for i in g], "y": y + rng.normal(size=360)})
    theirs = smf.mixedlm("y ~ a + b", frame, groups="g", re_formula="~ a + b").fit(reml=True)
    model = GaussianProcessRegressor("y ~ a + b + (1 + a + b | g)", mean="constant", method="ep")
    model.fit(frame, frame["y"])
    ours = model.solution_.fixed_effects()
    for name in ("a", "b"):
        assert ours[f"linear({name})"].estimate == pytest.approx(theirs.params[name], abs=1e-3 * theirs.bse[name])
        assert ours[f"linear({name})"].error == pytest.approx(theirs.bse[name], rel=1e-3)
    lines = next(t for t in kernels.summands(model.solution_.model.plain_kernel) if kernels.groups_of(t)).left.kernel
    to_zero = np.eye(3)
    to_zero[0, 1:] = -np.asarray(lines.centre)  # our level is at the mean of the columns, theirs at 0
    found, expected = to_zero @ np.asarray(lines.covariance()) @ to_zero.T, theirs.cov_re.to_numpy()
    assert found == pytest.approx(expected, abs=2e-3 * np.abs(expected).max())
    levels = model.levels("g").frame().set_index(["term", "level"])["estimate"]
    blups = pd.DataFrame(theirs.random_effects).T
    for name in ("a", "b"):
        own = levels[f"lines(a, b) * group(g): {name}"]
        assert own.to_numpy() == pytest.approx(blups[name].loc[own.index].to_numpy(), abs=5e-3)
    groups = model.summary().record["models"][0]["groups"]["lines(a, b) * group(g)"]
    spread = np.sqrt(np.diagonal(expected))
    assert groups["slopes"]["b"] == pytest.approx(spread[2], rel=2e-3)
    assert groups["correlations"]["a:b"] == pytest.approx(expected[1, 2] / (spread[1] * spread[2]), abs=5e-3)
