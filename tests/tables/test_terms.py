"""Tables with kernels of terms: columns by name in their own units, groups as codes, and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

from quantprop import GaussianProcessRegressor, tables
from quantprop.estimators import insight
from quantprop.estimators.summary import record
from quantprop.kernels import NewLevelWarning, TermError
from quantprop.report.figures import components

RNG = np.random.default_rng(0)
N = 40
WHO = np.array(["Anna", "Berta", "Clara"])[RNG.integers(0, 3, N)]
COLUMNS = {
    "note": ["-", "."] * 20, "dose": RNG.normal(size=N) + 100.0, "who": WHO, 
    "warm": np.where(RNG.random(N) < 0.5, "no", "yes"),
    "age": RNG.uniform(20, 60, N),
}  # fmt: skip
Y = np.sin(COLUMNS["age"] / 8) + 0.3 * COLUMNS["dose"] + (WHO == "Anna") + 0.2 * RNG.normal(size=N)
TABLE = tables.from_columns({**COLUMNS, "y": Y}, "a list")
TEXT = "se(age) + group(who) + linear(dose) + linear(warm)"


@pytest.fixture(scope="module")
def model():
    return tables.fit(TABLE, "y", "gaussian", "ep", TEXT)


def test_columns_in_their_own_units(model):
    assert model.encoding.features == ("age", "who", "dose", "warm=yes")
    assert model.encoding.scale == (1.0, 1.0, 1.0, 1.0)
    x = model.encoding.matrix(TABLE)
    np.testing.assert_array_equal(x[:, 1], np.searchsorted(["Anna", "Berta", "Clara"], WHO))
    np.testing.assert_allclose(x[:, [0, 2]].mean(axis=0), 0.0, atol=1e-12)


def test_order_and_files_do_not_matter(model, tmp_path):
    expected = model.forecast(TABLE)["mean"]
    turned = tables.from_columns(dict(reversed(COLUMNS.items())), "turned")
    model.save(tmp_path / "model.safetensors")
    loaded = tables.load(tmp_path / "model.safetensors")
    for one in (model, loaded):
        np.testing.assert_array_equal(one.forecast(turned)["mean"], expected)
    assert loaded.estimator.kernel.text == TEXT
    assert insight.term_summary(loaded) == insight.term_summary(model)


def test_what_was_learned_is_said_by_term(model):
    found = insight.term_summary(model)
    assert found.kernel.startswith("se(age, variance=")
    assert sum(found.shares.values()) == pytest.approx(1.0, abs=1e-9)
    assert set(found.fixed) == {"linear(dose)", "linear(warm=yes)", "mean"}
    dose = found.fixed["linear(dose)"]
    assert dose.lower < 0.3 < dose.upper
    assert set(insight.hyperparameters(model)) == {
        "variance of se(age)", "lengthscale of se(age)", "variance of group(who)", "scale of the likelihood",
    }  # fmt: skip


def test_new_levels_are_named_once(model):
    new = tables.from_columns(
        {name: list(column[:2]) for name, column in COLUMNS.items()} | {"who": ["Zoe", "Anna"]}, "new"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.forecast(new)
    assert [one.category for one in caught] == [NewLevelWarning]
    assert "new: levels unseen in training get the prior of their term (who: Zoe)" in str(caught[0].message)
    assert model.known(new).all()


@pytest.mark.parametrize(
    ("kernel", "error", "said"),
    [
        ("se(age) + group(whom)", TermError, "position 17: there is no column 'whom'"),
        ("se(who)", tables.TableError, r"'who' holds text \('Anna', .*only group\(who\)"),
        ("group(age)", ValueError, "'age' has too many levels for a group, 40 in 40 rows"),
        ("constant()", tables.TableError, "the kernel uses no column"),
        ("smooth", ValueError, r"isotropic, ard, shrunk, additive, auto or terms such as se\(age\)"),
    ],
)
def test_mistakes_are_said(kernel, error, said):
    with pytest.raises(error, match=said):
        tables.problem(TABLE, "y", "gaussian", kernel)


# --- functions of columns --------------------------------------------------------------------------------------------

GROWTH = {"x": RNG.uniform(1.0, 9.0, N), "z": RNG.uniform(0.0, 4.0, N)}
GROWTH["y"] = 2.0 * np.log(GROWTH["x"]) - np.sqrt(GROWTH["z"]) + 0.1 * RNG.normal(size=N)
NEW = {"x": [1.5, 7.0], "z": [0.0, 2.0]}


def test_functions_of_columns_are_columns_of_their_values(tmp_path):
    """By least squares on log x and √z; the same from a table, a frame and a file."""
    design = np.column_stack([np.ones(N), np.log(GROWTH["x"]), np.sqrt(GROWTH["z"])])
    expected, *_ = np.linalg.lstsq(design, GROWTH["y"], rcond=None)
    frame = pd.DataFrame(GROWTH)
    model = GaussianProcessRegressor("y ~ log(x) + sqrt(z)", method="ep").fit(frame, frame["y"])
    slopes = [model.solution_.fixed_effects()[f"linear({name})"].estimate for name in ("log(x)", "sqrt(z)")]
    np.testing.assert_allclose(slopes, expected[1:], rtol=1e-3)
    at = np.column_stack([np.ones(2), np.log(NEW["x"]), np.sqrt(NEW["z"])]) @ expected
    np.testing.assert_allclose(model.predict(pd.DataFrame(NEW)), at, rtol=1e-3)
    found = tables.fit(tables.from_columns(GROWTH, "a list"), "y", "gaussian", "ep", "linear(log(x)) + linear(sqrt(z))")
    assert found.encoding.features == ("log(x)", "sqrt(z)")
    assert found.columns == ("x", "z")
    found.save(tmp_path / "model.safetensors")
    new = tables.from_columns(NEW, "new")
    for one in (found, tables.load(tmp_path / "model.safetensors")):
        np.testing.assert_allclose(one.forecast(new)["mean"], at, rtol=1e-3)


def test_a_value_outside_the_domain_is_named_with_its_row():
    frame = pd.DataFrame(GROWTH).assign(x=[*GROWTH["x"][:-1], -2.0])
    with pytest.raises(ValueError, match=r"X\['x'\], row 39: log\(-2\) is not a finite number: correct or leave out"):
        GaussianProcessRegressor("y ~ log(x)").fit(frame, frame["y"])
    with pytest.raises(tables.TableError, match=r"row 40: '-2.0' in column 'x': log\(-2\) is not a finite number"):
        tables.problem(frame, "y", "gaussian", "se(log(x))")
    with pytest.raises(ValueError, match="X is an array without names: pass a data frame"):
        GaussianProcessRegressor("y ~ log(x)").fit(frame.to_numpy(), frame["y"])


def test_a_column_of_the_name_of_a_function_comes_first():
    frame = pd.DataFrame({"x": -GROWTH["x"], "log(x)": GROWTH["x"], "y": GROWTH["y"]})
    problem = tables.problem(frame, "y", "gaussian", 'linear("log(x)") + se(x)')
    np.testing.assert_array_equal(problem.raw[:, 0], GROWTH["x"])
    assert problem.encoding.columns[0].function == ""


# --- factors ---------------------------------------------------------------------------------------------------------


def test_a_factor_is_unpenalised_and_listed_by_level(model):
    """By least squares with dummy columns; the same in a table, whose levels have names, and in an array of codes."""
    dummies = np.column_stack([np.ones(N), WHO == "Berta", WHO == "Clara", COLUMNS["dose"] - COLUMNS["dose"].mean()])
    expected, residual, *_ = np.linalg.lstsq(dummies, Y, rcond=None)
    inverse = np.linalg.inv(dummies.T @ dummies)
    found = tables.fit(TABLE, "y", "gaussian", "ep", "factor(who) + linear(dose)")
    record = found.summary().record["models"][0]
    effects = record["fixed_effects"]
    assert [*effects] == ["linear(dose)", "factor(who)[Berta]", "factor(who)[Clara]", "mean"]
    assert record["references"] == {"who": "Anna"}
    assert record["groups"] == {}
    assert "factor(who): differences from Anna" in repr(found.summary())
    np.testing.assert_allclose([effects[name]["estimate"] for name in effects], expected[[3, 1, 2, 0]], atol=0.02)
    errors = np.sqrt(residual / (N - 4) * np.diagonal(inverse))[[3, 1, 2, 0]]
    np.testing.assert_allclose([effects[name]["error"] for name in effects], errors, rtol=0.02)
    X = np.column_stack([5.0 + np.searchsorted(["Anna", "Berta", "Clara"], WHO), COLUMNS["dose"]])
    array = GaussianProcessRegressor("y ~ factor(0) + linear(1)", method="ep").fit(X, Y)
    assert [*array.solution_.fixed_effects()] == ["linear(1)", "factor(0)[6]", "factor(0)[7]", "mean"]
    assert array.solution_.fixed_effects()["factor(0)[6]"].estimate == pytest.approx(expected[1], abs=0.02)
    levels = found.levels("who")
    assert (levels["level"][0], levels["estimate"][0], levels["error"][0]) == ("Anna", 0.0, 0.0)


def test_a_text_column_is_one_variable_of_an_additive_model():
    model = tables.fit(TABLE, "y", "gaussian", "ep", "additive")
    assert model.encoding.features[1:5] == ("dose", "who=Anna", "who=Berta", "who=Clara")
    (found,) = record(model)["models"]
    assert set(found["columns"]) == {"note=.", "dose", "who", "warm=yes", "age"}
    assert {"who", "dose:who", "who:age"} <= set(found["components"])
    assert found["columns"]["who"]["share"] > 0.05
    pictures = list(components(model, model.fits[0].solution, model.fits[0].solution.sobol()))
    (who,) = [one for one in pictures if one.caption.startswith("who: ")]
    (ax,) = who.figure.axes
    assert [text.get_text() for text in ax.get_xticklabels()][-1] == "Anna"
    assert ax.get_xlabel() == "who (3 levels)"
