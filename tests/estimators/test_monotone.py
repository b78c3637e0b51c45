"""Functions of known shape: constraints are kept, learning is exact, and their absence changes nothing."""

import json
import warnings
from copy import deepcopy

import numpy as np
import pytest
from commands.calls import call, rows_of
from safetensors.numpy import save as serialized
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from storage.cases import again, parts, same

from quantprop import (
    EP,
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Model,
    PrecisionWarning,
    active,
    comparison,
    infer,
    integrate,
    kernels,
    likelihoods,
    load,
    predict_many,
    report,
    tables,
)
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.learning.shaped import TOLERANCE, Constraint, Shape, constrained
from quantprop.likelihoods.binary import Sign
from quantprop.storage.files import checksum

RNG = np.random.default_rng(2)
X = np.linspace(0.1, 10.0, 40)[:, None]
Y = 3.0 / (1.0 + np.exp(10.0 - 2.0 * X[:, 0])) + RNG.normal(size=40)
NEW = np.linspace(0.1, 10.0, 200)[:, None]
rows = kernels.Derivatives.rows


@pytest.fixture(scope="module")
def increasing():
    return GaussianProcessRegressor(method="ep", mean="constant", monotone={0: +1}).fit(X, Y)


def test_the_mean_increases(increasing):
    free = GaussianProcessRegressor(method="ep", mean="constant").fit(X, Y)
    assert (np.diff(free.predict(NEW)) < 0).any()
    assert (np.diff(increasing.predict(NEW)) > 0).all()
    constraint = increasing.constraint_
    assert constraint.kept
    assert 0 < len(constraint.sign) <= 32
    slope = increasing.posterior_.derivative(NEW, 0)
    wrong = norm.cdf(-slope.mean / np.sqrt(slope.variance)).max()
    assert wrong == pytest.approx(constraint.wrong, abs=0.01)  # on another grid
    assert wrong < TOLERANCE


def test_it_predicts_and_has_the_attributes_of_other_models(increasing):
    mean, deviation = increasing.predict(NEW, return_std=True)
    assert np.all(deviation > increasing.likelihood_.scale)
    low, high = increasing.predict_quantiles(NEW, [0.05, 0.95]).T
    assert np.all((low < mean) & (mean < high))
    assert increasing.loo_.shape == (40,)
    assert increasing.sample_y(NEW[:5], 3, random_state=0).shape == (5, 3)
    assert increasing.posterior_.information(NEW[:3]).shape == (3,)
    assert clone(increasing).monotone == {0: 1}
    assert increasing.kernel_ is not None
    value, slope = increasing.log_marginal_likelihood(increasing.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(increasing.log_marginal_likelihood_value_, abs=1e-5)
    assert np.abs(slope).max() < 0.1
    moved = deepcopy(increasing)
    moved.log_marginal_likelihood(increasing.kernel_.theta, clone_kernel=False)
    np.testing.assert_allclose(moved.predict(NEW), increasing.predict(NEW), atol=1e-5)


def test_its_evidence_is_that_of_y_given_the_signs(increasing):
    whole, constraint = increasing.posterior_.whole, increasing.constraint_
    values, signs = whole.X[:, -1] == 0, whole.X[:, -1] != 0
    alone = infer(whole.model, whole.X[signs], whole.data.y[signs], "ep", tol=1e-8)
    assert increasing.posterior_.log_evidence == pytest.approx(whole.log_evidence - alone.log_evidence, abs=1e-6)
    assert values.sum() == 40
    np.testing.assert_array_equal(constraint.X, whole.X[signs])
    assert "increasing in 0: " in str(increasing.summary())
    assert increasing.summary().record["models"][0]["constraint"]["virtual_rows"] == len(constraint.sign)


def test_a_formula_may_have_the_constraint(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"age": np.zeros(20), "dose": X[::2, 0]})
    settings = {"optimizer": None, "method": "ep"}
    by_term = GaussianProcessRegressor("se(dose, monotone=increasing)", **settings).fit(frame, Y[::2])
    assert by_term.constraint_.shapes == INCREASING
    assert len(by_term.constraint_.sign)
    by_argument = GaussianProcessRegressor("se(dose)", monotone={"dose": 1}, **settings).fit(frame, Y[::2])
    np.testing.assert_array_equal(by_term.predict(frame), by_argument.predict(frame))
    assert same(again(by_term, tmp_path).predict(frame), by_term.predict(frame))
    assert kernels.Terms("se(dose, monotone=convex)").spelled == "se(dose, monotone=convex)"


@pytest.mark.parametrize(("formula", "words"), [
    ("se(0, monotone=rising)", "increasing, decreasing, convex, concave"), ("se(0, monotone=1)", "increasing, decr"),
    ("se(0, 1, monotone=convex)", "one column"), ("se(0, monotone~convex)", "takes '='"),
    ("linear(0, monotone=convex)", "no option 'monotone'"),
])  # fmt: skip
def test_wrong_constraints_of_formulas_are_named(formula, words):
    with pytest.raises(ValueError, match=words):
        kernels.Terms(formula)


@pytest.mark.campaign
def test_utilities_of_comparisons(tmp_path):
    """The posterior of differences of utilities is that of comparisons; the utility increases."""
    rng = np.random.default_rng(5)
    pairs = rng.permutation(40).reshape(20, 2)
    gain = np.tanh(X[pairs, 0] - 5.0) @ [1.0, -1.0] + rng.normal(size=20)
    pairs = np.where(gain[:, None] > 0, pairs, pairs[:, ::-1])
    kernel, settings = 4.0 * RBF(1.5), {"optimizer": None, "method": "ep"}
    assert (np.diff(GaussianProcessRanker(kernel, **settings).fit(X, pairs).predict(NEW)) < 0).any()
    ranker = GaussianProcessRanker(kernel, monotone={0: 1}, **settings).fit(X, pairs)
    assert (np.diff(ranker.predict(NEW)) > 0).all()
    mean, covariance = ranker.predict(NEW[::40], return_cov=True)
    compared = ranker.posterior_.predict(np.hstack([NEW[[0]], NEW[[40]]]))
    assert compared.mean[0] == pytest.approx(mean[0] - mean[1], abs=1e-9)
    spread = covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]
    assert compared.variance[0] == pytest.approx(spread, abs=1e-9)
    assert same(again(ranker, tmp_path).predict(NEW), ranker.predict(NEW))


def test_the_command_line_has_the_constraint(tmp_path):
    data, path = tmp_path / "data.csv", tmp_path / "model.safetensors"
    data.write_text(
        "dose,y\n" + "".join(f"{x!r},{y!r}\n" for x, y in zip(X[::2, 0].tolist(), Y[::2].tolist(), strict=True))
    )
    given = ("--monotone", "dose=increasing", "--method", "ep", "--out", path)
    fitted = call("fit", data, "--target", "y", *given)
    assert "increasing in dose: " in fitted.stdout
    assert "increasing in dose: " in call("explain", path).stdout
    assert (np.diff([float(row["mean"]) for row in rows_of(call("predict", path, data).stdout)]) > 0).all()


@pytest.mark.parametrize("unit", [1e6, 1e-6])
def test_units_of_x_change_nothing(increasing, unit):
    """Rows of derivatives have units of their own: none of them warns of lost digits."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        other = GaussianProcessRegressor(method="ep", mean="constant", monotone={0: +1}).fit(unit * X, Y)
    np.testing.assert_allclose(other.predict(unit * NEW), increasing.predict(NEW), rtol=1e-4)


def test_its_terms_add_up(increasing):
    terms = increasing.posterior_.terms(NEW)
    np.testing.assert_allclose(sum(part.mean for part in terms.values()), increasing.predict(NEW), atol=1e-9)


def test_rows_are_told_under_the_constraint(increasing):
    told = active.tell(increasing.fitted_, [[5.0], [5.1]], [9.0, 9.0]).solution
    assert told.X.shape == (42, 1)
    assert (np.diff(told.predict(NEW).mean) > 0).all()
    model = told.whole.model
    again = infer(model, told.whole.X, told.whole.data.y, "ep", tol=1e-8)
    np.testing.assert_allclose(told.predict(NEW).mean, again.predict(rows(NEW)).mean, atol=1e-5)


def test_rows_that_contradict_the_constraint_are_told_aloud(increasing):
    last = [[9.5], [9.7]]
    with pytest.warns(UserWarning, match=r"contradict the constraint .* fit again"):
        told = active.tell(increasing.fitted_, last, [-8.0, -12.0]).solution
    slope = told.derivative(told.X, 0)
    assert told.wrong(told.X) == pytest.approx(norm.sf(slope.mean / np.sqrt(slope.variance)).max(), abs=1e-12)
    with pytest.raises(ValueError, match="components are not supported under constraints"):
        increasing.solution_.components(X)


@pytest.mark.parametrize("call", [
    lambda one: predict_many([one.posterior_], [NEW]), lambda one: one.posterior_.corrected(),
    lambda one: integrate(one.fitted_),
])  # fmt: skip
def test_what_knows_the_rows_of_the_data_alone_is_refused(increasing, call):
    with pytest.raises(ValueError, match="not supported with a constraint on the shape"):
        call(increasing)


def landscape_of(model, x, y, constraint):
    task = prepare(model, x, y, EP())
    return constrained(Landscape(task.model, task, EP(), as_objective("evidence"), tol=1e-12), constraint)


INCREASING = (Shape(0, 1, 1.0),)
MODEL = Model(kernels.SquaredExponential(1.5, 2.0), likelihoods.Gaussian(0.8))


def test_one_virtual_row_is_exact():
    """log Z(y, c) − log Z(c) with one sign: the Gaussian evidence and Φ of the slope's mean given y, over Φ(0)."""
    x, y = X[::8], Y[::8]
    constraint = Constraint(INCREASING, rows([[4.0]], 0), np.ones(1))
    landscape = landscape_of(MODEL, x, y, constraint)
    given = infer(Model(kernels.Derivatives(MODEL.kernel), MODEL.likelihood), rows(x), y, "ep")
    slope = given.predict(rows([[4.0]], 0))
    expected = given.log_evidence + norm.logcdf(slope.mean[0] / np.sqrt(slope.variance[0])) - np.log(0.5)
    assert landscape.from_cold(packed(landscape.parts)).value == pytest.approx(expected, abs=1e-9)


def test_the_gradient_is_that_of_differences():
    constraint = Constraint(INCREASING, rows([[2.0], [4.0], [9.0]], 0), np.ones(3))
    landscape = landscape_of(MODEL, X, Y, constraint)
    theta = packed(landscape.parts)
    slope = landscape.from_cold(theta).gradient
    for way, found in zip(1e-5 * np.eye(3), slope, strict=True):
        up, down = (landscape.from_cold(theta + sign * way).value for sign in (1, -1))
        assert found == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_what_obeys_the_constraint_is_unchanged(tmp_path):
    y = 0.5 * X[:, 0] + 0.1 * RNG.normal(size=40)
    free = GaussianProcessRegressor(method="ep").fit(X, y)
    kept = GaussianProcessRegressor(method="ep", monotone={0: "increasing"}).fit(X, y)
    assert not len(kept.constraint_.sign)
    np.testing.assert_array_equal(kept.predict(NEW), free.predict(NEW))
    assert same(again(kept, tmp_path).constraint_, kept.constraint_)


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "order", "sign"), [("decreasing", 1, -1), ("convex", 2, 1), ("concave", 2, -1)])
def test_other_shapes(shape, order, sign):
    truth = {"decreasing": -Y, "convex": 0.05 * (X[:, 0] - 4.0) ** 2, "concave": np.sqrt(X[:, 0])}[shape]
    y = truth + 0.5 * np.random.default_rng(1).normal(size=40)
    model = GaussianProcessRegressor(method="ep", mean="constant", monotone={0: shape}).fit(X, y)
    assert model.constraint_.kept
    assert np.all(sign * np.diff(model.predict(NEW), order) > -1e-8)


@pytest.mark.campaign
def test_two_classes_and_two_columns_by_name():
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, (120, 2))
    y = np.where(rng.uniform(size=120) < norm.cdf(x[:, 0] - 2.0 + 0.3 * np.sin(3 * x[:, 1])), "yes", "no")
    frame = pd.DataFrame(x, columns=["dose", "age"])
    model = GaussianProcessClassifier("ard", method="ep", monotone={"dose": +1}).fit(frame, y)
    grid = pd.DataFrame({"dose": np.tile(np.linspace(0, 4, 30), 5), "age": np.repeat(np.linspace(0.5, 3.5, 5), 30)})
    assert np.all(np.diff(model.predict_proba(grid)[:, 1].reshape(5, 30), axis=1) > -1e-3)


def test_signs_are_half_lines():
    """Moments of a truncated normal by scipy."""
    from scipy.stats import truncnorm

    from quantprop import project

    found = project(Sign(), y=-1, cavity=(0.7, 2.0))
    exact = truncnorm(-np.inf, -0.7 / np.sqrt(2.0), loc=0.7, scale=np.sqrt(2.0))
    assert float(found.mean) == pytest.approx(exact.mean(), abs=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_a_sign_has_no_scale_of_its_own(unit):
    """W₂ to a truncated normal: the standard deviation is ∫ q(u) Φ⁻¹(u) du of its quantiles q, in any unit of f."""
    from scipy.integrate import quad
    from scipy.stats import truncnorm

    from quantprop import project, projections

    exact = truncnorm(-np.inf, -0.7 / np.sqrt(2.0), loc=0.7, scale=np.sqrt(2.0))
    sigma = quad(lambda u: exact.ppf(u) * norm.ppf(u), 0.0, 1.0, epsabs=1e-10, limit=400)[0]
    cavity = (0.7 * unit, 2.0 * unit**2)
    found = project(Sign(), y=-1, cavity=cavity, projection=projections.Wasserstein(2))
    assert float(found.mean) / unit == pytest.approx(exact.mean(), abs=1e-12)
    assert float(found.variance) / unit**2 == pytest.approx(sigma**2, abs=1e-7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"monotone": {3: 1}}, "no column 3"),
        ({"monotone": {"dose": 1}}, "no column 'dose'"),
        ({"monotone": {}}, "must name a column"),
        ({"monotone": {0: "rising"}}, "increasing"),
        ({"monotone": {0: 1}, "method": "vb"}, "method='ep'"),
        ({"monotone": {0: 1}, "objective": "loo"}, "objective='evidence'"),
        ({"monotone": {0: 1}, "kernel": kernels.Matern12()}, "no first derivative"),
        ({"monotone": {0: "convex"}, "kernel": kernels.Matern32()}, "no second derivative"),
        pytest.param({"monotone": {0: 1}, "kernel": "auto"}, "single model", marks=pytest.mark.campaign),
        ({"monotone": {0: 1}, "process": "markov", "kernel": kernels.Matern52()}, "process='dense'"),
    ],
)
def test_what_is_not_supported_is_named(given, words):
    settings = {"method": "ep", "optimizer": None} | given
    with pytest.raises(ValueError, match=words):
        GaussianProcessRegressor(**settings).fit(X[:10], Y[:10])
    with pytest.raises(ValueError, match="two classes"):
        GaussianProcessClassifier(monotone={0: 1}).fit(X, np.arange(40) % 3)


def test_files_hold_the_constraint(increasing, tmp_path):
    increasing.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert same(loaded.predict(NEW, return_std=True), increasing.predict(NEW, return_std=True))
    assert same(loaded.constraint_, increasing.constraint_)
    assert same(loaded.loo_, increasing.loo_)
    assert same(loaded.X_train_, increasing.X_train_)
    assert loaded.monotone == {0: 1}
    assert same(loaded.posterior_.whole, increasing.posterior_.whole)
    theta = increasing.kernel_.theta
    assert same(loaded.log_marginal_likelihood(theta, True), increasing.log_marginal_likelihood(theta, True))
    fitted = again(increasing.fitted_, tmp_path)
    assert same(fitted, increasing.fitted_)


@pytest.mark.campaign
def test_files_of_classifiers(tmp_path):
    model = GaussianProcessClassifier(4.0 * RBF(2.0), optimizer=None, method="ep", monotone={0: "increasing"})
    loaded = again(model.fit(X, Y > 2.0), tmp_path)
    assert same(loaded.predict_proba(NEW), model.predict_proba(NEW))
    assert same(loaded.constraint_, model.constraint_)
    np.testing.assert_array_equal(loaded.base_estimator_.y_train_, Y > 2.0)


@pytest.mark.parametrize("change", [
    lambda core: core.update(shapes=None), lambda core: core.update(wrong=None),
    lambda core: core.update(shapes={"tuple": [{"tuple": [1, 1, 1.0]}]}),
    lambda core: core.update(shapes={"tuple": [{"tuple": [0, 3, 1.0]}]}),
    lambda core: core["fitted"].pop("of_signs"),
    lambda core: core["fitted"]["model"]["fields"].update(mean=0.0),
])  # fmt: skip
def test_files_whose_constraint_does_not_fit(increasing, tmp_path, change):
    path = tmp_path / "model.safetensors"
    increasing.save(path)
    metadata, content, tensors = parts(path.read_bytes())
    change(content["cores"][0])
    metadata["content"] = json.dumps(content)
    metadata["sha256"] = checksum(metadata, tensors)
    path.write_bytes(serialized(tensors, metadata))
    with pytest.raises(ValueError, match="is not a quantprop model"):
        load(path)


SIX = {  # Neelon and Dunson (2004)
    "flat": lambda x: 3.0 + 0.0 * x,
    "sinusoidal": lambda x: 0.32 * (x + np.sin(x)),
    "step": lambda x: np.where(x <= 8.0, 3.0, 6.0),
    "linear": lambda x: 0.3 * x,
    "exponential": lambda x: 0.15 * np.exp(0.6 * x - 3.0),
    "logistic": lambda x: 3.0 / (1.0 + np.exp(10.0 - 2.0 * x)),
}


@pytest.mark.campaign
def test_errors_of_six_functions():
    """20 data sets each of 100 rows: smaller for most, larger than the standard error for none but the step."""
    x, fine = np.arange(1, 101)[:, None] / 10.0, np.linspace(0.1, 10.0, 500)[:, None]
    changes = {}
    for name, truth in SIX.items():
        f, change = truth(x[:, 0]), []
        for seed in range(20):
            y = f + np.random.default_rng(seed).normal(size=100)
            free = GaussianProcessRegressor(method="ep", mean="constant").fit(x, y)
            kept = GaussianProcessRegressor(method="ep", mean="constant", monotone={0: 1}).fit(x, y)
            assert np.diff(kept.predict(fine)).min() > -1e-9
            change.append(np.subtract(*(np.sqrt(np.mean((one.predict(x) - f) ** 2)) for one in (kept, free))))
        changes[name] = np.mean(change), np.std(change, ddof=1) / np.sqrt(20.0)
    assert sum(mean < 0.0 for mean, _ in changes.values()) >= 4, changes
    assert all(mean < error for name, (mean, error) in changes.items() if name != "step"), changes


@pytest.mark.campaign
def test_comparison_finds_functions_that_are_not_monotone():
    """Twenty data sets of a hump: the formula without the constraint is clearly better in at least 17."""
    x, clear = np.linspace(0.0, 10.0, 100), 0
    for seed in range(20):
        y = 3.0 * np.exp(-0.5 * ((x - 5.0) / 2.0) ** 2) + np.random.default_rng(seed).normal(size=100)
        table = tables.from_columns({"x": x, "y": y}, "a hump")
        made = comparison.candidates(
            lambda likelihood, kernel, table=table: tables.problem(table, "y", likelihood, kernel),
            ["gaussian"], ["se(x)", "se(x, monotone=increasing)"],
        )  # fmt: skip
        found = report.concluded(comparison.choose(made, "ep"))
        clear += "clearly better than se(x, monotone=increasing)" in found
    assert clear >= 17
