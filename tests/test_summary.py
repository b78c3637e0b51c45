"""The summary of a learned model: degrees of freedom by dense algebra, and the same record from Python and the command
line.
"""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, Model, infer, kernels, likelihoods
from quantprop import tables as tables_of
from quantprop.cli import app
from quantprop.estimators.reading import Estimated
from quantprop.estimators.summary import described, record
from quantprop.inference.degrees import effective_degrees

RNG = np.random.default_rng(5)
N = 40
WHO = np.repeat(np.arange(8), 5)
AGE, DOSE = RNG.uniform(0, 6, N), RNG.normal(size=N)
Y = np.sin(AGE) + 0.7 * DOSE + RNG.normal(size=8)[WHO] + 0.2 * RNG.normal(size=N) + 10.0
FRAME = pd.DataFrame({"age": AGE, "dose": DOSE, "who": [f"w{i}" for i in WHO], "y": Y})
X = np.column_stack([AGE, DOSE, WHO])
KERNEL = kernels.SquaredExponential(1.5, 1.1).on(0) + kernels.Linear(0.8).on(1) + kernels.Categories(0.6).on(2)


def covariances(x, z):
    """The covariances of the terms, written out."""
    return [1.5 * np.exp(-0.5 * ((x[:, [0]] - z[:, 0]) / 1.1) ** 2), 0.8 * x[:, [1]] * z[:, 1], 
            0.6 * (x[:, [2]] == z[:, 2])]  # fmt: skip


@pytest.mark.parametrize(
    ("likelihood", "y", "process"),
    [
        pytest.param(likelihoods.Gaussian(0.3), Y, None, marks=pytest.mark.campaign),
        (likelihoods.StudentT(3.0, 0.2), Y, None),  # some precisions are negative
        pytest.param(likelihoods.Probit(), np.sign(Y - 10), Inducing(X), marks=pytest.mark.campaign),
    ],
)
def test_effective_degrees_of_freedom_by_dense_algebra(likelihood, y, process):
    model = Model(KERNEL, likelihood, **({} if process is None else {"process": process}))
    solution = infer(model, X, y, "ep", tol=1e-12)
    each = covariances(X, X)
    inner = np.linalg.inv(sum(each) + np.diag(1.0 / solution.sites.tau))
    expected = [np.trace(part @ inner) for part in each]
    found = effective_degrees(solution)
    assert list(found) == ["se(0)", "linear(1)", "group(2)"]
    np.testing.assert_allclose(list(found.values()), expected, rtol=0, atol=1e-6 if process else 1e-8)
    assert effective_degrees(solution, ["linear(1)"]) == {"linear(1)": pytest.approx(expected[1], abs=1e-6)}


def test_a_single_term_has_all_degrees():
    solution = infer(Model(kernels.SquaredExponential(1.5, 1.1).on(0), likelihoods.Gaussian(0.3)), X, Y, "ep")
    covariance = covariances(X, X)[0]
    expected = np.trace(covariance @ np.linalg.inv(covariance + 0.09 * np.eye(N)))
    assert effective_degrees(solution)["se(0)"] == pytest.approx(expected, abs=1e-8)


@pytest.fixture(scope="module")
def model():
    text = "se(age) + linear(dose) + group(who) + linear(dose) * group(who)"
    return GaussianProcessRegressor(text, mean="constant", method="ep").fit(FRAME, FRAME["y"])


def test_the_record_has_what_the_parts_of_the_model_say(model):
    record, solution = model.summary().record, model.solution_
    (part,) = record["models"]
    assert record["rows"] == N
    assert record["log_evidence"] == solution.log_evidence
    assert record["loo"] == pytest.approx(solution.loo.mean())
    assert record["loo_error"] == pytest.approx(solution.loo.std(ddof=1) / np.sqrt(N))
    assert part["fixed_effects"] == {name: e._asdict() for name, e in solution.fixed_effects().items()}
    assert part["effective_degrees"] == {"se(age)": pytest.approx(effective_degrees(solution)["se(age)"])}
    group, slopes = part["groups"]["group(who)"], part["groups"]["linear(dose) * group(who)"]
    assert group["levels"] == slopes["levels"] == 8
    assert group["sd"] == pytest.approx(np.sqrt(part["hyperparameters"]["variance of group(who)"]))
    assert slopes["sd"] == pytest.approx(np.sqrt(part["hyperparameters"]["variance of linear(dose)"]))
    levels = model.levels("who").frame()
    for name, ends in (("group(who)", group), ("linear(dose) * group(who)", slopes)):
        own = levels[levels["term"] == name].sort_values("estimate", ascending=False).set_index("level")["estimate"]
        assert ends["largest"] == pytest.approx(own[:5].to_dict())
        assert ends["smallest"] == pytest.approx(own[5:].to_dict())


def test_text_frames_and_notebooks_show_the_same(model):
    summary = model.summary()
    text, frames = repr(summary), summary.frames
    effects = frames["linear effects (standard error, 95 % interval)"].set_index("effect")
    assert effects.loc["mean", "estimate"] == summary.record["models"][0]["fixed_effects"]["mean"]["estimate"]
    assert f"{effects.loc['mean', 'estimate']:.4g}" in text
    assert all(f"{title}:\n" in text for title in frames)
    html = summary._repr_html_()
    assert html.count("<table>") == len(frames) >= 4
    assert "se(age)" in html


def test_a_share_of_rounding_errors_prints_as_zero(model):
    known = record(Estimated(model))
    known["models"][0]["shares"] = {"se(age)": 1.0000010, "linear(dose)": -1.087e-06}
    (shares,) = (part for part in described(Estimated(model), known) if "each term explains" in str(part))
    assert dict(zip(shares["term"], shares["share"], strict=True)) == {"se(age)": 1.0, "linear(dose)": 0.0}
    assert "-" not in str(shares)


def test_explain_prints_the_summary_of_the_table(tmp_path):
    data, out = tmp_path / "data.csv", tmp_path / "model.safetensors"
    FRAME.to_csv(data, index=False)
    call = CliRunner().invoke
    options = ["--target", "y", "--kernel", "se(age) + linear(dose) + group(who)", "--method", "ep"]
    assert call(app, ["fit", str(data), *options, "--out", str(out)]).exit_code == 0
    found = json.loads(call(app, ["explain", str(out), "--json"]).stdout)
    summary = tables_of.load(out).summary()
    record = json.loads(json.dumps(summary.record))
    assert {name: found[name] for name in record} == record
    assert {*found} - {*record} == {"page", "surprise", "influence", "doubt"}
    assert repr(summary) in call(app, ["explain", str(out)]).stdout
    # in units of y, whatever the model has inside
    assert record["models"][0]["fixed_effects"]["mean"]["estimate"] == pytest.approx(10.0, abs=0.8)
    assert 0.4 < record["models"][0]["groups"]["group(who)"]["sd"] < 2.5


@pytest.mark.campaign
def test_classes_are_summarised_one_by_one():
    y = np.array(["a", "b", "c"])[np.digitize(Y, np.quantile(Y, [0.33, 0.66]))]
    model = GaussianProcessClassifier("se(age) + group(who)", optimizer=None, method="ep").fit(FRAME, y)
    summary = model.summary()
    assert [sorted(part["groups"]) for part in summary.record["models"]] == [["group(who)"]] * 3
    assert "b against the rest" in repr(summary)
    assert "<div>b against the rest:</div>" in summary._repr_html_()
