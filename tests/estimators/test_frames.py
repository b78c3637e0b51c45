"""Frames as X: columns that share a name or hold no numbers are refused by name, wherever a frame or a table enters."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from quantprop import GaussianProcessClassifier, GaussianProcessRanker, GaussianProcessRegressor, tables
from quantprop.cli import app

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(12, 3)), columns=["a", "x", "z"])
TWICE = FRAME.set_axis(["x", "x", "z"], axis=1)
Y = 3.0 * FRAME["z"].to_numpy()
LABELS = np.where(Y > 0, "up", "down")


def regressor(kernel=None, **more):
    return GaussianProcessRegressor(kernel, optimizer=None, **more)


def classifier(kernel=None):
    return GaussianProcessClassifier(kernel, optimizer=None)


LEARNED = {
    "terms": lambda X: regressor("linear(x) + linear(z)", mean="constant").fit(X, Y),
    "one term": lambda X: regressor("se(z)").fit(X, Y),
    "default": lambda X: regressor().fit(X, Y),
    "ard": lambda X: regressor("ard").fit(X, Y),
    "varying": lambda X: regressor("se(z)", varying={"scale": "linear(x)"}, method="ep").fit(X, Y),
    "classes": lambda X: classifier("se(z)").fit(X, LABELS),
    "items": lambda X: GaussianProcessRanker("se(z)", optimizer=None).fit(X, [(0, 1), (2, 3), (4, 1)]),
}


@pytest.mark.parametrize("which", LEARNED)
def test_repeated_names_are_refused_by_estimators(which):
    """When they learn and when they predict: X[name] would be two columns, and all later ones out of place."""
    with pytest.raises(ValueError, match="X has several columns 'x': rename or omit all except one"):
        LEARNED[which](TWICE)
    model = LEARNED[which](FRAME)
    with pytest.raises(ValueError, match="X has several columns 'x'"):
        model.predict(TWICE)


@pytest.mark.parametrize("ask", ["predict_proba", "sample_y", "predict_quantiles", "predict_interval", "contrasts"])
def test_repeated_names_are_refused_by_everything_that_predicts(ask):
    if ask == "predict_proba":
        model = classifier("group(z)").fit(FRAME.round(0), LABELS)
    else:
        model = regressor("group(z)", mean="constant").fit(FRAME.round(0), Y)
    with pytest.raises(ValueError, match="X has several columns 'x'"):
        model.contrasts("z", X=TWICE) if ask == "contrasts" else getattr(model, ask)(TWICE)


def test_repeated_names_are_refused_by_tables_and_commands(tmp_path):
    good, bad = FRAME.assign(y=Y), TWICE.assign(y=Y)
    model = tables.fit(good, "y", "gaussian", "ep", "linear(z)")
    for use in (lambda: tables.problem(bad, "y"), lambda: model.forecast(bad), lambda: tables.from_columns(bad, "it"),
                lambda: tables.seasons(bad, "y", "gaussian")):  # fmt: skip
        with pytest.raises(tables.TableError, match="two columns are called 'x'"):
            use()
    good.to_csv(tmp_path / "good.csv", index=False)
    bad.to_csv(tmp_path / "bad.csv", index=False)
    model.save(out := tmp_path / "model.safetensors")
    for words in (["fit", "bad.csv", "--target", "y"], ["compare", "bad.csv", "--target", "y"],
                  ["predict", str(out), "bad.csv"]):  # fmt: skip
        done = CliRunner().invoke(app, [str(tmp_path / word) if word.endswith(".csv") else word for word in words])
        assert done.exit_code != 0
        assert "two columns are called 'x'" in " ".join(done.output.split())


@pytest.mark.parametrize("kernel", [None, "ard", "linear(x) + se(z)"])
@pytest.mark.parametrize(
    ("value", "words"),
    [("Adelie", r"X\['z'\].*hold.* numbers.*group\(z\)"), (np.nan, r"X\['z'\], row 4: NaN or infinite: fill it in"),
     (-np.inf, r"X\['z'\], row 4: NaN or infinite")],
)  # fmt: skip
def test_a_column_without_finite_numbers_is_named(kernel, value, words):
    """In a frame, when a model is learned and when it predicts."""
    X = FRAME.astype({"z": object}) if isinstance(value, str) else FRAME.copy()
    X.loc[4, "z"] = value
    model = regressor(kernel, mean="constant").fit(FRAME, Y)
    for use in (lambda: regressor(kernel, mean="constant").fit(X, Y), lambda: model.predict(X)):
        with pytest.raises(ValueError, match=words):
            use()
