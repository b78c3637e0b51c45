"""Seasons of series: found where the data have them, and only there."""

import re

import numpy as np
import pytest

from quantprop import GaussianProcessRegressor, tables

DAYS = np.arange("2025-01-01", "2025-04-11", dtype="datetime64[D]")
WEEK = np.array([0.0, 0.2, 0.1, 0.3, 0.5, 2.0, 1.5])
NOISE = np.random.default_rng(0).standard_normal(len(DAYS))
SERIES = {"date": DAYS, "y": WEEK[np.arange(len(DAYS)) % 7] + 0.3 * NOISE, "noise": NOISE}


def series(**columns):
    return tables.from_columns(columns, "a series")


def test_the_season_of_the_data_is_found():
    found = tables.seasons(series(date=DAYS, y=SERIES["y"]), "y")
    assert found.chosen == ("week",)
    assert found.gains["week"] > 50.0
    assert found.rows == len(DAYS)
    assert "periodic(date" in found.formula
    assert "period=7)" in found.formula
    assert str(found).startswith("seasons and the log evidence they add on 100 rows: week (+")


def test_rows_that_occur_twice_do_not_hide_the_season():
    """With them the evidence would have no bound as the noise vanishes."""
    twice = np.append(np.arange(len(DAYS)), np.arange(20))
    found = tables.seasons(series(date=DAYS[twice], y=SERIES["y"][twice]), "y")
    assert (found.chosen, found.rows) == (("week",), len(DAYS))
    once = tables.seasons(series(date=DAYS, y=SERIES["y"]), "y")
    assert found.gains["week"] == pytest.approx(once.gains["week"], rel=0.01)  # y is standardised by all rows


def test_the_gain_is_that_of_the_evidence_of_dense_algebra():
    """The formula's parameters, and the noise that is best for them, give nearly the evidence found; without the season
    it is less by more than the gain, since nothing is learned again.
    """
    found = tables.seasons(series(date=DAYS, y=SERIES["y"]), "y")
    t = DAYS.astype(float)[:, None]
    y = (SERIES["y"] - SERIES["y"].mean()) / SERIES["y"].std()
    gap = np.abs(t - t.T)

    profiles = {
        "matern32": lambda r: (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
        "matern12": lambda r: np.exp(-r),
        "periodic": lambda r: np.exp(-2.0 * (np.sin(np.pi * gap / 7.0) * r / np.maximum(gap, 1e-9)) ** 2),
    }

    def evidence(formula):
        terms = re.findall(r"(\w+)\(date, variance=([\d.e+-]+), lengthscale=([\d.e+-]+)", formula)
        gram = 100.0 + sum(float(v) * profiles[kind](gap / float(length)) for kind, v, length in terms)
        found = []
        for scale in np.geomspace(0.05, 1.0, 40):
            k = gram + scale**2 * np.eye(len(y))
            found.append(-0.5 * (y @ np.linalg.solve(k, y) + np.linalg.slogdet(2.0 * np.pi * k)[1]))
        return max(found)

    loss = evidence(found.formula) - evidence(found.formula.rpartition(" + ")[0])
    assert loss >= found.gains["week"] - 0.1


def test_noise_has_no_season():
    found = tables.seasons(series(date=DAYS, y=NOISE), "y")
    assert found.chosen == ()
    assert found.gains["week"] < 3.0
    assert "week (" in str(found)
    assert "omitted" in str(found)
    assert "periodic" not in found.formula


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        ("probit", np.where(SERIES["y"] > 1.0, "many", "few")),
        ("multinomial-probit", np.where(SERIES["y"] > 1.0, "many", "few")),
        ("ordinal", 1 + (SERIES["y"] > 0.3) + (SERIES["y"] > 1.0)),
        ("negative-binomial", np.random.default_rng(2).poisson(np.exp(1.0 + SERIES["y"]))),
        ("gamma", np.exp(SERIES["y"])),
        ("student-t", SERIES["y"]),
    ],
)
def test_seasons_of_any_likelihood(likelihood, y):
    assert tables.seasons(series(date=DAYS, y=y), "y", likelihood).chosen == ("week",)


def test_other_columns_have_linear_effects_and_seasons_may_be_given():
    row = np.arange(40)
    table = series(rownames=1 + row, day=row, holiday=row % 9 == 0, n=row % 5)
    found = tables.seasons(table, "n", "poisson", given=["5"], time="day")
    assert found.chosen == ("5",)
    assert found.formula.endswith("period=5) + linear(holiday)")


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        ({"date": DAYS[:30], "y": NOISE[:30]}, {"given": ["month"]}, "season must be one of day, week, year"),
        ({"day": np.arange(30), "y": NOISE[:30]}, {"given": ["week"]}, "holds numbers, not dates: pass each season"),
        ({"a": NOISE[:30], "b": NOISE[1:31], "y": NOISE[:30]}, {}, "has 2 columns that may be time"),
        ({"date": DAYS[:30], "y": np.array(list("abc" * 10))}, {}, "more than two classes"),
    ],
)
def test_errors_say_what_would_work(columns, more, words):
    with pytest.raises(ValueError, match=words):
        tables.seasons(series(**columns), "y", **more)


def test_candidates_recur_and_have_rows():
    weekly = np.arange("2020-01-06", "2023-01-01", dtype="datetime64[7D]").astype("datetime64[D]")
    y = np.random.default_rng(1).standard_normal(len(weekly))
    assert set(tables.seasons(series(date=weekly, y=y), "y").gains) == {"year"}


def test_dates_are_inputs_of_estimators():
    frame = pytest.importorskip("pandas").DataFrame(SERIES)
    model = GaussianProcessRegressor("matern32(date) + periodic(date, period=7)", method="ep", optimizer=None)
    of_dates, days = model.fit(frame, SERIES["y"]).predict(frame), DAYS.astype(float)
    numbers = GaussianProcessRegressor("matern32(0) + periodic(0, period=7)", method="ep", optimizer=None)
    np.testing.assert_allclose(of_dates, numbers.fit(days[:, None], SERIES["y"]).predict(days[:, None]), atol=1e-10)
    missing = frame.assign(date=frame["date"].where(frame.index > 0))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(missing)


def test_forecasts_of_an_estimator_are_predictions_at_the_next_times():
    model = GaussianProcessRegressor("periodic(0, period=7)", method="ep", optimizer=None, normalize_y=True)
    model.fit(DAYS.astype(float)[:, None], SERIES["y"])
    ahead = model.forecast(9, q=(0.1, 0.9))
    next_days = DAYS[-1] + np.arange(1, 10)
    np.testing.assert_array_equal(ahead["time"], next_days.astype(float))
    mean, deviation = model.predict(next_days.astype(float)[:, None], return_std=True)
    np.testing.assert_allclose(ahead["mean"], mean, rtol=1e-10)
    assert np.abs(np.array(ahead["mean"]) - WEEK[np.arange(100, 109) % 7]).max() < 0.5
    noise = np.array(ahead["sd"])
    assert (noise >= deviation - 1e-12).all()
    np.testing.assert_allclose(np.subtract(ahead["q0.9"], ahead["q0.1"]), 2.0 * 1.2815515655446004 * noise, rtol=1e-6)
    with pytest.raises(ValueError, match="horizon"):
        model.forecast(0)
