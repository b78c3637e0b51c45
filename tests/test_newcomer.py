"""Nine things that a newcomer does on the command line. Each ends in a fit whose forecasts are right, or in an error
whose advice works: the test takes the advice from the message and follows it.

By default with few rows and Laplace; `make test-all` repeats it with more rows and by QP, as somebody does who gives no
options.
"""

import csv
import io
import json
import re
import shlex
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from quantprop import GaussianProcessRegressor, likelihoods, load, tables
from quantprop.cli import app
from quantprop.inference import task

FLAGS = ("--drop-missing", "--blank-missing", "--log")
ADVICE = re.compile(r"(--[a-z-]+)(?: ([^-\s(;:][^\s(;:]*))?")


class Size(NamedTuple):
    """How large the tables are, and what a fit is told beside the target."""

    rows: int
    options: tuple[str, ...]


SMALL, FULL = Size(30, ("--kernel", "isotropic", "--method", "laplace")), Size(160, ())
BOTH = pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.campaign)], ids=["small", "full"])


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of one's own to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words):
    return CliRunner().invoke(app, list(words))


def said(result):
    return " ".join(result.stderr.split())


def fitted(data, target, size, *more):
    """What `fit` says as JSON, and beside it."""
    result = call("fit", data, "--target", target, "--json", *size.options, *more)
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert about["converged"], about
    return about, said(result)


def advised(result, option, code=1):
    """The option as an error advises it, with the value that it names."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    found = {name: value for name, value in ADVICE.findall(said(result))}
    assert option in found, said(result)
    return [option] if option in FLAGS else [option, *shlex.split(found[option])]


def forecasts(data, *more):
    result = call("predict", "model.safetensors", data, *more)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout))), said(result)


class Begun(Exception):
    """Learning would begin now."""


@pytest.fixture
def begun(monkeypatch):
    """The problem that a command gets as far as learning from, without learning."""

    def stop(problem, *_, **__):
        raise Begun(problem)

    def begin(*words):
        with monkeypatch.context() as patch:
            patch.setattr(tables.Problem, "fit", stop)
            result = call(*words, "--debug")
        assert isinstance(result.exception, Begun), result.output
        return result.exception.args[0]

    return begin


def method_of(size):
    return "laplace" if size is SMALL else "qp"


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def write(path, names, *columns, separator=","):
    lines = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([separator.join(names), *lines]) + "\n", encoding="utf-8")
    return str(path)


def inputs(size, seed=0):
    return np.sort(np.random.default_rng(seed).uniform(-2, 2, size.rows)).round(3)


# --- the nine --------------------------------------------------------------------------------------------------------


@BOTH
def test_three_classes_coded_as_numbers(home, size):
    x = inputs(size)
    data = write(home / "flowers.csv", ["x", "kind"], x, np.digitize(x, [-0.7, 0.7]))
    about, notes = fitted(data, "kind", size)
    assert (about["likelihood"], about["labels"]) == ("probit", ["0", "1", "2"])
    assert "kind: 3 different integers (0, 1, 2)" in notes
    assert all(f"--likelihood {other} if" in notes for other in ("ordinal", "poisson", "gaussian"))
    rows, _ = forecasts(write(home / "new.csv", ["x"], [-1.5, 0.0, 1.5]))
    assert [row["kind"] for row in rows] == ["0", "1", "2"]


@BOTH
def test_counts_with_an_exposure(home, size):
    x, rng = inputs(size), np.random.default_rng(1)
    years = rng.uniform(1, 50, size.rows).round(1)
    y = rng.poisson(years * np.exp(0.5 * x))
    data = write(home / "claims.csv", ["x", "years", "claims"], x, years, y)
    wrong = call("fit", data, "--target", "claims", "--exposure", "year", *size.options)
    assert wrong.exit_code == 2
    assert "no column 'year'; it has 'x', 'years', 'claims'" in " ".join(wrong.stderr.replace("│", " ").split())
    about, notes = fitted(data, "claims", size, "--exposure", "years")
    assert (about["likelihood"], about["features"]) == ("poisson", ["x"])
    assert "counts, since they have an exposure (years): poisson" in notes
    few = ("--quantiles", "") if size is SMALL else ()  # which need a program more
    once, _ = forecasts(write(home / "new.csv", ["x", "years"], [0.5, 0.5], [1, 10]), *few)
    assert column(once, "mean")[1] == pytest.approx(10 * column(once, "mean")[0])
    new = write(home / "rates.csv", ["x"], [0.5])
    rates, _ = forecasts(new, *few, *advised(call("predict", "model.safetensors", new), "--exposure"))
    assert column(rates, "mean")[0] == column(once, "mean")[0]
    standard = ((x - x.mean()) / x.std())[:, None]
    model = GaussianProcessRegressor(likelihood="poisson", mean="constant", method=method_of(size))
    mean = model.fit(standard, y, exposure=years).predict([[(0.5 - x.mean()) / x.std()]], exposure=10.0)
    assert column(once, "mean")[1] == mean[0]


def graded(size):
    x, rng = inputs(size), np.random.default_rng(2)
    return x, np.digitize(2.0 * x + rng.normal(size=size.rows), [-2.0, 0.0, 2.0])


WORDS = np.array(["poor", "fair", "good", "excellent"])


def test_grades(home, begun):
    x, grade = graded(SMALL)
    found = begun("fit", write(home / "numbers.csv", ["x", "grade"], x, grade + 1), "--target", "grade").target
    assert (found.likelihood, found.labels, found.y.tolist()) == ("ordinal", ("1", "2", "3", "4"), grade.tolist())
    shares = stats.norm(scale=2**0.5).cdf(found.model().cutpoints)  # learning starts where f ~ N(0, 1) has these shares
    np.testing.assert_allclose(shares, [np.mean(grade <= k) for k in range(3)], rtol=1e-12)
    data = write(home / "words.csv", ["x", "grade"], x, WORDS[grade])
    option, labels = advised(call("fit", data, "--target", "grade", "--likelihood", "ordinal"), "--order", code=2)
    assert sorted(labels.split(",")) == sorted(WORDS)  # to be put in order
    ordered = begun("fit", data, "--target", "grade", option, ",".join(WORDS)).target
    assert (ordered.likelihood, ordered.labels, ordered.y.tolist()) == ("ordinal", tuple(WORDS), grade.tolist())


@pytest.mark.campaign
@pytest.mark.parametrize("size", [SMALL, FULL], ids=["small", "full"])
def test_grades_are_learned(home, size):
    x, grade = graded(size)
    new = write(home / "new.csv", ["x"], [-1.9, 1.9])
    about, _ = fitted(write(home / "numbers.csv", ["x", "grade"], x, grade + 1), "grade", size)
    cutpoints = [value for key, value in about["models"][0]["hyperparameters"].items() if "cutpoints" in key]
    assert len(cutpoints) == 3
    assert cutpoints == sorted(cutpoints)
    numbered, _ = forecasts(new)
    fitted(write(home / "words.csv", ["x", "grade"], x, WORDS[grade]), "grade", size, "--order", ",".join(WORDS))
    named, _ = forecasts(new)
    assert [row["grade"] for row in named] == ["poor", "excellent"]
    p = np.array([[float(row[f"p({word})"]) for word in WORDS] for row in named])
    assert p.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert p.tolist() == [[float(row[f"p({i + 1})"]) for i in range(4)] for row in numbered]


def survived(home, size):
    """Times of which those from 6 on were censored; x, times, which were observed, and the file."""
    x, rng = inputs(size), np.random.default_rng(3)
    time = np.exp(1.0 + 0.8 * x + 0.4 * rng.normal(size=size.rows)).round(3)
    seen = time < 6.0
    names = ["x", "time", "status"]
    return x, time, seen, write(home / "lung.csv", names, x, np.minimum(time, 6.0), np.where(seen, 2, 1))


def test_survival_times_that_were_censored(home, begun):
    _, time, seen, data = survived(home, SMALL)
    words = ("fit", data, "--target", "time", "--log", "--event")
    option, value = advised(call(*words, "status"), "--event")
    assert (option, value) == ("--event", "status=2")
    found = begun(*words, value)
    assert found.encoding.features == ("x",)
    ends = np.column_stack([np.minimum(time, 6.0), np.where(seen, time, np.inf)])
    np.testing.assert_array_equal(found.target.y, ends)
    known = np.log(ends[np.isfinite(ends)])
    np.testing.assert_allclose(found.target.units.inward(ends), (np.log(ends) - known.mean()) / known.std())
    intervals = write(home / "both.csv", ["x", "low", "high"], time, ends[:, 0], np.where(seen, ends[:, 0], ""))
    option, _ = advised(call("fit", intervals, "--target", "low", "--likelihood", "censored"), "--upper", code=2)
    np.testing.assert_array_equal(begun("fit", intervals, "--target", "low", option, "high").target.y, ends)


@pytest.mark.campaign
@pytest.mark.parametrize("size", [SMALL, FULL], ids=["small", "full"])
def test_survival_times_are_learned(home, size):
    """Against the estimator with intervals made by hand, in units of log time."""
    x, time, seen, data = survived(home, size)
    about, notes = fitted(data, "time", size, "--log", "--event", "status=2")
    assert about["likelihood"] == "censored"
    assert f"{seen.sum()} of {size.rows} rows were observed" in notes
    rows, _ = forecasts(write(home / "new.csv", ["x"], [-1.0, 1.9]), "--quantiles", "0.1,0.5")
    ends = np.log(np.column_stack([np.minimum(time, 6.0), np.where(seen, time, np.inf)]))
    known = ends[np.isfinite(ends)]
    ends, standard = (ends - known.mean()) / known.std(), ((x - x.mean()) / x.std())[:, None]
    model = GaussianProcessRegressor(likelihood=likelihoods.Censored(0.5), mean="constant", method=method_of(size))
    model.fit(standard, ends)
    mean, sd = model.predict((np.array([[-1.0], [1.9]]) - x.mean()) / x.std(), return_std=True)
    law = stats.lognorm(s=known.std() * sd, scale=np.exp(known.mean() + known.std() * mean))
    np.testing.assert_allclose(column(rows, "q0.1"), law.ppf(0.1), rtol=1e-6)
    np.testing.assert_allclose(column(rows, "mean"), law.mean(), rtol=1e-9)
    np.testing.assert_allclose(column(rows, "sd"), law.std(), rtol=1e-9)
    assert column(rows, "q0.5")[1] > 6.0  # beyond what was ever observed


@pytest.mark.campaign
def test_survival_times_by_weibull(home):
    """Against the estimator with rows made by hand, in units of the geometric mean of what is known."""
    x, time, seen, data = survived(home, SMALL)
    about, _ = fitted(data, "time", SMALL, "--likelihood", "weibull", "--event", "status=2")
    assert about["likelihood"] == "weibull"
    rows, _ = forecasts(write(home / "new.csv", ["x"], [-1.0, 1.9]), "--quantiles", "0.1,0.5")
    ends = np.column_stack([np.minimum(time, 6.0), np.where(seen, time, np.inf)])
    unit = np.exp(np.log(ends[np.isfinite(ends)]).mean())
    model = GaussianProcessRegressor(likelihood="weibull", mean="constant", method=method_of(SMALL))
    model.fit(((x - x.mean()) / x.std())[:, None], ends / unit)
    new = (np.array([[-1.0], [1.9]]) - x.mean()) / x.std()
    by_hand = unit * model.predict_quantiles(new, [0.1, 0.5])
    np.testing.assert_allclose([column(rows, "q0.1"), column(rows, "q0.5")], by_hand.T, rtol=1e-6)
    np.testing.assert_allclose(column(rows, "mean"), unit * model.predict(new), rtol=1e-6)
    assert column(rows, "q0.5")[1] > 6.0  # beyond what was ever observed


@BOTH
def test_dates(home, size):
    rng = np.random.default_rng(4)
    day = np.sort(rng.choice(np.arange("2024-01-01", "2026-01-01", dtype="datetime64[D]"), size.rows, replace=False))
    since = day.astype(float)
    warm = np.where(np.cos(2 * np.pi * (since - 200) / 365.25) > 0, "warm", "cold")
    slashed = [f"{d.day}/{d.month}/{d.year}" for d in day.tolist()]
    data = write(home / "slashed.csv", ["when", "weather"], slashed, warm)
    result = call("fit", data, "--target", "weather", *size.options)
    assert result.exit_code == 1
    assert "write the dates of this column as 2026-12-31" in said(result)
    data = write(home / "dates.csv", ["when", "weather"], day, warm)  # as advised
    about, notes = fitted(data, "weather", size)
    assert about["features"] == ["when"]
    assert "column when holds dates, encoded as days since 1970" in notes
    option, how = re.search(r"(--dates) (\w+)", notes).groups()
    about, _ = fitted(data, "weather", size, option, how)
    waves = [f"when: {wave} of {cycle}" for cycle in ("year", "week") for wave in ("sin", "cos")]
    assert about["features"] == ["when", *waves]  # no hour of the day: all are midnight
    rows, _ = forecasts(write(home / "new.csv", ["when"], ["2025-07-15", "2025-01-15"]))
    assert [row["weather"] for row in rows] == ["warm", "cold"]


@BOTH
def test_missing_values(home, size):
    x = inputs(size)
    kind, cells = np.where(x > 0.1, "yes", "no"), x.astype(str)
    cells[::7] = "NA"
    data = write(home / "holes.csv", ["id", "x", "y"], np.arange(size.rows) + 100, cells, kind)
    result = call("fit", data, "--target", "y", "--ignore", "id", *size.options)
    holes = len(cells[::7])
    assert f"missing values in {holes} of {size.rows} rows (by column: 'x' {holes})" in said(result)
    about, notes = fitted(data, "y", size, "--ignore", "id", *advised(result, "--drop-missing"))
    assert about["rows"] == size.rows - holes
    assert f"{holes} of {size.rows} rows have missing values: dropped" in notes
    failing = call("predict", "model.safetensors", data)
    dropped, notes = forecasts(data, *advised(failing, "--drop-missing"), "--key", "id")
    assert [int(row["id"]) - 100 for row in dropped] == [i for i in range(size.rows) if i % 7]
    blank, _ = forecasts(data, *advised(failing, "--blank-missing"), "--key", "id")
    assert [int(row["id"]) - 100 for row in blank] == list(range(size.rows))
    assert [row for row in blank if row["y"]] == dropped
    assert {(row["y"], row["p(yes)"]) for row in blank[::7]} == {("", "")}
    none = write(home / "none.csv", ["id", "x"], ["a", "b"], ["", "NA"])
    assert forecasts(none, "--blank-missing", "--key", "id")[0] == [
        {"id": name, "y": "", "p(no)": "", "p(yes)": ""} for name in ("a", "b")
    ]
    with pytest.warns(UserWarning, match=r"holds the model of a table.*quantprop\.tables\.load"):
        load("model.safetensors")
    clash = call("predict", "model.safetensors", data, "--drop-missing", "--key", "y")
    assert clash.exit_code == 2
    assert "also the name of an output column" in said(clash)


@BOTH
def test_categories_never_seen(home, size):
    x = inputs(size)
    colour = np.where(np.arange(size.rows) % 3, "red", "blue")
    fitted(write(home / "old.csv", ["x", "colour", "y"], x, colour, np.where(x > 0, "yes", "no")), "y", size)
    new = write(home / "new.csv", ["x", "colour"], [-1.5, 1.5, 1.5], ["red", "green", "blue"])
    failing = call("predict", "model.safetensors", new)
    assert "line 3: 'green' in column 'colour' is not one of the categories" in said(failing)
    rows, notes = forecasts(new, *advised(failing, "--blank-missing"), "--key", "colour")
    assert [(row["colour"], row["y"]) for row in rows] == [("red", "no"), ("green", ""), ("blue", "yes")]
    assert "1 of 3 rows have missing values or categories unseen in training" in notes
    left, _ = forecasts(new, *advised(failing, "--drop-missing"))
    assert [row["p(yes)"] for row in left] == [row["p(yes)"] for row in rows if row["y"]]


@BOTH
def test_semicolons_and_decimal_commas(home, size):
    x = inputs(size)
    kind = np.where(x > 0, "ja", "nein")
    data = write(home / "deutsch.csv", ["größe", "urteil"], [str(v).replace(".", ",") for v in x], kind, separator=";")
    failing = call("fit", data, "--target", "urteil", *size.options)
    about, _ = fitted(data, "urteil", size, *advised(failing, "--decimal"))
    assert about["features"] == ["größe"]
    rows, _ = forecasts(data, "--decimal", ",")
    same, _ = forecasts(write(home / "english.csv", ["größe"], x))
    assert rows == same


@BOTH
def test_five_thousand_rows(home, size, monkeypatch):
    """Told what it takes before it begins; refused where memory is short; a sample of the rows does."""
    x = inputs(Size(5000, ()))
    data = write(home / "long.csv", ["x", "y"], x, np.where(x > 0.1, "yes", "no"))

    def full(_):
        raise MemoryError("a dense prior over 5000 rows takes about 1.3 GiB, and 0.2 GiB are free: use fewer rows")

    monkeypatch.setattr(task, "check_memory", full)
    failing = call("fit", data, "--target", "y", *size.options)
    assert "note: 5000 rows: time grows with their cube, 125 times as long as for 1000" in said(failing)
    assert "1.3 GiB" in said(failing)
    option, count = advised(failing, "--sample")
    assert count == "1000"
    monkeypatch.undo()
    monkeypatch.chdir(home)
    about, notes = fitted(data, "y", size, option, count if size is FULL else str(size.rows))
    assert about["rows"] == (1000 if size is FULL else size.rows)
    assert "of 5000 rows drawn at random, seed 0" in notes
    rows, _ = forecasts(data)
    assert len(rows) == 5000
    right = np.mean([(row["y"] == "yes") == (v > 0.1) for row, v in zip(rows, x, strict=True)])
    assert right > 0.9
