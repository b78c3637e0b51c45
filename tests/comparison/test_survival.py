"""Scores of survival curves against other computations, and models of the hazard beside a Cox model."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from quantprop import comparison
from quantprop.cli import app
from quantprop.comparison.survival import brier, concordance

sm = pytest.importorskip("statsmodels.api")
RNG = np.random.default_rng(4)
N = 60
TIMES = np.round(RNG.exponential(2.0, N) + 0.05, 1)  # with ties
DIED = RNG.random(N) < 0.6
ALIVE = RNG.uniform(size=N)


def kept(t, just_before):
    """P(not censored) from statsmodels, with censoring as the event, after events of the same time."""
    censored = sm.SurvfuncRight(np.where(DIED, TIMES - 1e-6, TIMES), (~DIED).astype(int))
    before = censored.surv_times < t if just_before else censored.surv_times <= t
    return np.prod(1.0 - (censored.n_events / censored.n_risk)[before])


@pytest.mark.parametrize("at", [0.7, 2.0, 3.3])
def test_scores_row_by_row(at):
    """A loop over rows and pairs, with statsmodels' estimate of the censoring."""
    terms, pairs, won = [], 0.0, 0.0
    for t, died, alive in zip(TIMES, DIED, ALIVE, strict=True):
        gone = died and t <= at
        terms.append(alive**2 / kept(t, True) if gone else (1 - alive) ** 2 / kept(at, False) if t > at else 0.0)
        for later, other in zip(TIMES, ALIVE, strict=True):
            if died and t < at and t < later:
                weight = kept(t, True) ** -2
                pairs, won = pairs + weight, won + weight * (0.5 if alive == other else float(alive < other))
    np.testing.assert_allclose(brier(TIMES, DIED, ALIVE, at), terms, rtol=1e-12)
    assert concordance(TIMES, DIED, 1.0 - ALIVE, at) == pytest.approx(won / pairs, rel=1e-12)


def test_scores_without_censoring():
    """The mean square error of a probability, and Somers' D of times and risks."""
    every, times = np.ones(N, dtype=bool), RNG.permutation(N) + 1.0
    expected = ((times > 30.0) - ALIVE) ** 2
    np.testing.assert_allclose(brier(times, every, ALIVE, 30.0), expected)
    d = stats.somersd(times, ALIVE).statistic
    assert concordance(times, every, 1.0 - ALIVE, np.inf) == pytest.approx(0.5 * (1.0 + d))


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """Hazards that grow fourfold with x, of 120 rows of which a third are censored."""
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, 120)
    times, ends = rng.exponential(np.exp(-1.4 * x)), rng.exponential(2.0, 120)
    frame = pd.DataFrame({"x": x.round(3), "t": np.minimum(times, ends).round(3) + 0.001, "died": times <= ends})
    path = tmp_path_factory.mktemp("survival") / "patients.csv"
    frame.to_csv(path, index=False, quoting=csv.QUOTE_MINIMAL)
    return frame, path


def test_a_hazard_beside_a_cox_model(patients):
    """Both are better than no covariates, and close to each other: the hazard is what a Cox model assumes."""
    frame, path = patients
    found = comparison.survival_scores(frame, "t", "died", [0.3, 1.0], kernels=["linear(x)"], folds=3)
    rows = {(row["model"], row["time"]): row for row in found.rows}
    assert list(dict.fromkeys(found["model"])) == ["linear(x)", "Cox", "Kaplan-Meier"]
    for t in (0.3, 1.0):
        assert abs(rows["Cox", t]["difference"]) < 0.01
        assert rows["linear(x)", t]["concordance"] == pytest.approx(rows["Cox", t]["concordance"], abs=0.02)
        assert rows["linear(x)", t]["concordance"] > 0.65
        assert rows["Kaplan-Meier", t]["difference"] > 0.0
    words = ["compare", path, "--target", "t", "--event", "died", "--at", "0.3,1", "--kernel", "linear(x)",
             "--methods", "ep", "--folds", "3", "--json"]  # fmt: skip
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    for ours, theirs in zip(json.loads(done.stdout), found.rows, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "said"), [({"folds": 1}, "between 2 and the number of rows"), ({"at": [99.0]}, "before the last one")]
)
def test_mistakes_are_named(patients, change, said):
    given = {"time": "t", "event": "died", "at": [1.0], **change}
    with pytest.raises(ValueError, match=said):
        comparison.survival_scores(patients[0], **given)
