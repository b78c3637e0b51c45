"""Targets: the likelihood that a column asks for and why, what else it could be, and the columns that go with it."""

import numpy as np
import pytest

from quantprop.tables import RoleError, Roles, TableError, from_bytes, from_columns, problem
from quantprop.tables.guess import against_counts, guess
from quantprop.tables.targets import target

RNG = np.random.default_rng(7)


def looks(values):
    return guess(np.asarray(values))


# --- guesses ---------------------------------------------------------------------------------------------------------

COLUMNS = {
    "iris, coded": (np.repeat([0, 1, 2], 50), "probit"),
    "three classes of unequal size": (np.repeat([0, 1, 2], [90, 20, 10]), "probit"),
    "wine, coded from 1": (np.repeat([1, 2, 3], [59, 71, 48]), "probit"),
    "glass, with a gap": (np.repeat([1, 2, 3, 5, 6, 7], [70, 76, 17, 13, 9, 29]), "probit"),
    "digits": (np.repeat(np.arange(10), 178), "probit"),
    "cylinders": (np.repeat([4, 6, 8], [11, 7, 14]), "probit"),
    "ratings": (np.repeat([1, 2, 3, 4, 5], [5, 12, 30, 35, 18]), "ordinal"),
    "ratings, as many of each": (np.repeat([1, 2, 3, 4, 5], 30), "ordinal"),
    "ratings, most of them the best": (np.repeat([1, 2, 3, 4, 5], [10, 5, 8, 20, 57]), "ordinal"),
    "quality of wines": (np.repeat([3, 4, 5, 6, 7, 8], [10, 53, 681, 638, 199, 18]), "ordinal"),
    "from bad to good": (np.repeat([-2, -1, 0, 1, 2], 20), "ordinal"),
    "progression of diabetes": (np.rint(RNG.gamma(3.9, 39, 442)).astype(int) + 25, "gaussian"),
    "years": (np.arange(1950, 2020), "gaussian"),
    "below 0 too": (np.arange(-30, 40), "gaussian"),
    "coal mining": (np.repeat([0, 1, 2, 3, 4, 5], [33, 40, 13, 17, 7, 2]), "poisson"),
    "rare events": (np.repeat([0, 1, 2, 3], [300, 80, 15, 3]), "poisson"),
    "visits, overdispersed": (RNG.poisson(RNG.gamma(1.0, 3.0, 300)), "poisson"),
    "three counts": (np.array([0, 3, 7]), "poisson"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_guessed_by_what_it_looks_like(name):
    values, likelihood = COLUMNS[name]
    found = looks(values)
    assert found.likelihood == likelihood, found
    others = [other for other, _ in found.others]
    assert likelihood not in others
    assert len(set(others)) == len(others) >= 1
    few = len(np.unique(values)) <= 10 and len(values) >= 30 and values.min() >= 0
    assert not few or {"probit", "ordinal", "poisson", "gaussian"} <= {likelihood, *others}


@pytest.mark.parametrize("rate", [0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("shape", [0.5, 2.0, np.inf])
def test_counts_are_hardly_ever_taken_for_something_else(rate, shape):
    """Of 200 columns of counts with rates that vary as a gamma distribution (not at all for an infinite shape)."""
    rng = np.random.default_rng(int(10 * rate))
    wrong = 0
    for _ in range(200):
        rates = np.full(100, rate) if np.isinf(shape) else rng.gamma(shape, rate / shape, 100)
        wrong += bool(against_counts(*np.unique(rng.poisson(rates), return_counts=True)))
    assert wrong <= 14  # a one-sided test at two standard errors is wrong in 2.3 %, beside those of the ceiling


def test_the_guess_says_why_and_what_else():
    found = looks(np.repeat(np.arange(10), 178))
    assert found.why == (
        "10 different integers (0, 1, 2, 3, 4, ...), none above 9, where counts would have about 159 rows with 10"
    )
    assert dict(found.others)["poisson"] == "they are counts"
    found = looks(np.repeat([0, 1, 2], 50))
    assert found.why.endswith("(0, 1, 2), whose variance, 0.667, is below their mean, 1, unlike for counts")
    assert dict(looks(np.array([0.1, 0.2, 0.7])).others)["beta"] == "they are proportions"
    assert dict(looks(np.array(["low", "mid", "top"])).others)["ordinal"].endswith("--order names them from the lowest")


# --- roles -----------------------------------------------------------------------------------------------------------


def table(**columns):
    return from_columns(columns, "t")


def test_exposure_weights_and_trials_go_with_the_rows():
    given = table(x=[1, 2, 3], n=[4, 5, 6], w=[1, 0, 2.5], y=[0, 2, 6])
    found = problem(given, "y", roles=Roles(trials="n", weights="w"))
    assert found.target.likelihood == "binomial"
    assert found.encoding.features == ("x",)
    assert {name: rows.tolist() for name, rows in found.target.rows.items()} == {
        "trials": [4, 5, 6],
        "weights": [1, 0, 2.5],
    }
    assert found.scales(np.array([2, 0]))["trials"].tolist() == [6, 4]
    counts = problem(given, "y", roles=Roles(exposure="n")).target
    assert (counts.likelihood, counts.rows["exposure"].tolist()) == ("poisson", [4, 5, 6])


def test_intervals_from_two_columns_and_from_an_event():
    given = from_bytes(b"x,low,high,seen\n1,0.5,0.5,yes\n2,2,,no\n3,,1.5,NO\n4,1,2,Yes\n", "t.csv")
    ends = target(given, "low", roles=Roles(upper="high")).y
    np.testing.assert_array_equal(ends, [[0.5, 0.5], [2, np.inf], [-np.inf, 1.5], [1, 2]])
    assert len(given.complete(("low", "high")).rows) == 4
    seen = target(given.only([0, 1, 3]), "low", roles=Roles(event="seen")).y
    np.testing.assert_array_equal(seen, [[0.5, 0.5], [2, np.inf], [1, 1]])


def test_survival_times_are_rows_in_units_of_their_geometric_mean():
    given = table(x=[1, 2, 3], low=["", 2.0, 4.0], high=[1.0, 2.0, ""], time=[1.0, 2.0, 4.0], seen=[1, 0, 1])
    ends = target(given, "low", "weibull", Roles(upper="high"))
    np.testing.assert_array_equal(ends.y, [[0, 1], [2, 2], [4, np.inf]])
    assert (ends.units.centre, ends.units.log) == (0.0, False)
    assert ends.units.scale == pytest.approx(np.exp(np.log([1.0, 2.0, 2.0, 4.0]).mean()))
    seen = target(given, "time", "log-logistic", Roles(event="seen"))
    np.testing.assert_array_equal(seen.y, [[1, 1], [2, np.inf], [4, 4]])
    assert seen.why == "2 of 3 rows were observed, the others censored"
    np.testing.assert_array_equal(target(given, "time", "weibull").y, [[1, 1], [2, 2], [4, 4]])


@pytest.mark.parametrize(
    ("columns", "roles", "message"),
    [
        ({"time": [1, 0, 3]}, Roles(), "row 2: 0 in column 'time' must be positive, as times are"),
        ({"time": [1, -2, 3], "seen": [1, 1, 0]}, Roles(event="seen"), "row 2: -2 in column 'time' must be positive"),
        ({"time": [0, 1, 3], "seen": [0, 1, 0]}, Roles(event="seen"), "row 1: 0 in column 'time' must be known on one"),
        ({"time": [1, 2, 3]}, Roles(log=True), "log is for the likelihoods gaussian and censored, not weibull"),
    ],
)
def test_times_that_cannot_be(columns, roles, message):
    with pytest.raises(TableError) as error:
        target(table(x=[1, 2, 3], **columns), "time", "weibull", roles)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("roles", "likelihood", "message"),
    [
        (Roles(upper="n", event="w"), None, "upper and event both specify"),
        (
            Roles(exposure="n"),
            "gaussian",
            "exposure is for the likelihoods negative-binomial and poisson and zero-inflated-negative-binomial",
        ),
        (Roles(trials="n"), "poisson", "trials is for the likelihoods binomial, not poisson"),
        (Roles(), "censored", "--upper names the upper ends"),
        (Roles(order=("a", "b")), None, "must name every label of column 'y' once (0, 2, 6)"),
        (Roles(weights="y"), None, "column 'y' has two roles"),
        (
            Roles(upper="n"),
            "gaussian",
            "upper and event are for the likelihoods censored, log-logistic, weibull, not gaussian",
        ),
    ],
)
def test_roles_that_do_not_go_together(roles, likelihood, message):
    with pytest.raises(RoleError) as error:
        target(table(x=[1, 2, 3], n=[4, 5, 6], w=[1, 0, 2], y=[0, 2, 6]), "y", likelihood, roles)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (Roles(exposure="bad"), "row 2: 0 in column 'bad' must be positive, as exposure"),
        (Roles(weights="low"), "row 1: -1 in column 'low' must be at least 0, as weights"),
        (Roles(trials="half"), "row 1: 1.5 in column 'half' must be an integer of at least 1, as trials"),
        (Roles(upper="low"), "row 1: 0 in column 'y' must be at most the upper end (low)"),
        (Roles(event="x"), "such as --event x=3"),
        (Roles(log=True), "row 1: 0 in column 'y' must be positive to have a logarithm"),
    ],
)
def test_bad_cells_of_roles_are_named(roles, message):
    given = table(x=[1, 2, 3], bad=[1, 0, 2], low=[-1, 9, 9], half=[1.5, 2, 9], y=[0, 2, 6])
    with pytest.raises(TableError) as error:
        target(given, "y", None, roles)
    assert message in str(error.value)


def test_units_of_a_log_normal_are_its_own():
    from scipy import stats

    units = target(table(x=[1, 2, 3], y=[1.0, 2.0, 8.0]), "y", roles=Roles(log=True)).units
    law = stats.lognorm(s=0.4, scale=np.exp(0.7))
    mean, sd = units.moments(np.array([0.7]), np.array([0.4]))
    np.testing.assert_allclose([mean[0], sd[0]], [law.mean(), law.std()], rtol=1e-12)
    np.testing.assert_allclose(units.outward(units.inward(np.array([0.5, 3.0]))), [0.5, 3.0], rtol=1e-12)
