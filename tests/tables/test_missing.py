"""Missing predictors: an effect of their own beside the mean, against a regression with both columns by hand."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from typer.testing import CliRunner

from quantprop import GaussianProcessRegressor, tables
from quantprop.cli import app


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    age, x = rng.normal(50, 10, 150), rng.normal(size=150)
    gone = rng.random(150) < 0.3
    y = 0.1 * age + x + 2.0 * gone + 0.5 * rng.normal(size=150)
    return pd.DataFrame({"age": np.where(gone, np.nan, age.round(1)), "x": x.round(3), "y": y.round(3)})


FORMULA = "y ~ age + missing(age) + x"


def test_an_indicator_and_the_mean(frame, tmp_path):
    """As least squares with an indicator and the mean of the ages that are known; new rows get the same mean."""
    model = tables.problem(frame, "y", "gaussian", FORMULA).fit("ep")
    gone = frame["age"].isna()
    mean = frame["age"].mean()
    filled = np.column_stack([frame["age"].fillna(mean), gone, frame["x"], np.ones(len(frame))]).astype(float)
    theirs = sm.OLS(frame["y"], filled).fit()
    effects = model.summary().record["models"][0]["fixed_effects"]
    for k, name in enumerate(("linear(age)", "linear(missing(age))", "linear(x)")):
        assert effects[name]["estimate"] == pytest.approx(theirs.params.iloc[k], abs=0.05 * theirs.bse.iloc[k])
        assert effects[name]["error"] == pytest.approx(theirs.bse.iloc[k], rel=0.02)
    model.save(tmp_path / "model")
    new = pd.DataFrame({"age": [np.nan, 40.0], "x": [0.5, 0.5]})
    expected = theirs.predict(np.array([[mean, 1, 0.5, 1], [40.0, 0, 0.5, 1]]))
    assert tables.load(tmp_path / "model").forecast(new)["mean"] == pytest.approx(expected, abs=0.02)


def test_the_command_line_has_the_same(frame, tmp_path):
    data, out = tmp_path / "data.csv", tmp_path / "model.safetensors"
    frame.to_csv(data, index=False, quoting=csv.QUOTE_MINIMAL)

    def run(*words):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output
        return done

    run("fit", data, "--target", "y", "--likelihood", "gaussian", "--kernel", FORMULA, "--method", "ep", "--out", out,
        "--drop-missing")  # fmt: skip
    rows = json.loads(run("predict", out, data, "--json").stdout)
    expected = tables.problem(frame, "y", "gaussian", FORMULA).fit("ep").forecast(frame)["mean"]
    assert [row["mean"] for row in rows] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "kernel", "said"),
    [
        ({}, "y ~ age + x", "give rows that miss x a separate effect"),
        ({}, "y ~ x + missing(x)", "of which some are missing"),
        ({"age": ["a", None] * 75}, "y ~ age + missing(age)", "needs a column of numbers"),
        ({}, "y ~ group(age) + missing(age)", "another term takes it as a group"),
    ],
)
def test_other_missing_values_are_refused(frame, change, kernel, said):
    with pytest.raises(tables.TableError, match=said):
        tables.problem(frame.assign(**change), "y", "gaussian", kernel)


def test_estimators_name_the_way(frame):
    with pytest.raises(ValueError, match="a function of tables: use"):
        GaussianProcessRegressor(FORMULA).fit(frame, frame["y"])
