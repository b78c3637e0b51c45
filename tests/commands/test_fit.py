"""fit, predict and explain: on an awkward table, against Python to the last digit; and their help."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from awkward import COLOURS, SCRIPT
from commands.calls import LEVEL, SERIES, call, numbers, rows_of

import quantprop
from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, likelihoods, tables
from quantprop.estimators import insight

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "fit",
    "predict",
    "compare",
    "explain",
    "split",
    "survival",
    "rank",
    "suggest",
    "reproduce",
    "datasets",
    "demo",
    "version",
)


# --- help ------------------------------------------------------------------------------------------------------------


def test_help_says_what_there_is_and_the_exit_codes():
    shown = call("--help").stdout
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert "0 success, 1 error, 2 invalid arguments, 130 interrupt" in " ".join(shown.split())
    for command in COMMANDS:
        result = call(command, "--help")
        assert result.exit_code == 0
        assert f"quantprop {command}" in result.stdout or "Usage" in result.stdout
    assert "--drop-missing" in call("fit", "--help").stdout


def test_help_does_not_wait_for_jax():
    probe = (
        "import sys\nfrom quantprop.cli import app\n"
        "try:\n    app(['version'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('jax', 'numpy', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.splitlines() == [quantprop.__version__, "[]"], done.stderr


def test_choices_in_help_are_those_of_the_library():
    from quantprop import methods
    from quantprop.cli import options
    from quantprop.tables import dates, problems, reading, targets

    assert set(options.LIKELIHOODS) == set(targets.LIKELIHOODS)
    assert set(options.METHODS) == set(methods.METHODS)
    assert (tuple(problems.KERNELS), dates.DATES, (".", ",")) == (options.KERNELS, options.DATES, reading.DECIMALS)


# --- classes ---------------------------------------------------------------------------------------------------------


def encoded(table):
    """X of the awkward table, by hand."""
    column = table.column
    raw = np.column_stack([
        [float(cell) for cell in column("größe, cm")],
        *([cell == colour for cell in column("farbe")] for colour in sorted(COLOURS)),
        [cell == "True" for cell in column("Flag")],
        [float(cell) for cell in column(SCRIPT)],
        [float(cell) for cell in column("$cost$")],
    ])  # fmt: skip
    return (raw - raw.mean(0)) / raw.std(0)


def test_fit_says_what_it_did(fitted):
    _, result = fitted
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert (about["rows"], about["likelihood"], about["labels"]) == (28, "probit", ["ja", "nein, nie"])
    assert about["converged"]
    assert about["features"][5:] == [SCRIPT, "$cost$"]
    assert "urteil: 2 different values (ja, nein, nie): probit likelihood (guessed" in result.stderr
    assert "konst is constant" in result.stderr


def test_fit_and_predict_equal_python_to_the_last_digit(folder, data):
    out = folder / "isotropic.safetensors"
    said = json.loads(call("fit", data, "--target", "urteil", "--kernel", "isotropic", "--out", out, "--json").stdout)
    predicted = rows_of(call("predict", out, data).stdout)
    table = tables.read(data)
    x, y = encoded(table), np.array(table.column("urteil"))
    model = GaussianProcessClassifier().fit(x, y)
    assert said["log_evidence"] == model.solution_.log_evidence
    p = model.predict_proba(x)
    assert [float(row["p(ja)"]) for row in predicted] == p[:, 0].tolist()
    assert [float(row["p(nein, nie)"]) for row in predicted] == p[:, 1].tolist()
    assert [row["urteil"] for row in predicted] == model.predict(x).tolist()
    assert quantprop.load(out).predict_proba(x).tolist() == p.tolist()


def test_columns_may_come_in_another_order_with_others_beside(fitted, data, folder):
    model, _ = fitted
    table = tables.read(data)
    turned = [*table.names[:0:-1], table.names[0], "more"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(turned)
    writer.writerows([*row[:0:-1], row[0], "?"] for row in table.rows)
    same = call("predict", model, "-", stdin=text.getvalue().encode())
    assert same.exit_code == 0, same.output
    assert "not used by the model: konst, more" in same.stderr
    assert same.stdout == call("predict", model, data).stdout
    records = json.loads(call("predict", model, data, "--json").stdout)
    assert [record["urteil"] for record in records] == [row["urteil"] for row in rows_of(same.stdout)]
    out = folder / "p.csv"
    assert call("predict", model, data, "--out", out).stdout == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == same.stdout


def test_explain_ranks_features_and_rows(fitted):
    model, _ = fitted
    about = json.loads(call("explain", model, "--rows", "3", "--json").stdout)
    learned = tables.load(model)
    loo = learned.estimator.loo_
    worst = np.argsort(loo)[:3]
    assert [row["line"] for row in about["surprise"]] == [learned.lines[i] for i in worst]
    assert [row["surprise"] for row in about["surprise"]] == (-loo[worst]).tolist()
    ranked = insight.relevance(learned)
    lengths = {name.split(" of ")[1]: v for name, v in about["models"][0]["hyperparameters"].items() if " of " in name}
    assert list(ranked) == sorted(lengths, key=lengths.get)
    text = call("explain", model).stdout
    order = text[text.index("features by relevance") :]
    assert order.index(min(ranked, key=ranked.get)) < order.index(max(ranked, key=ranked.get))
    assert f"line {learned.lines[worst[0]]} " in text
    better = learned.fits[0].solution.corrected()
    assert about["trust"][0]["evidence_shift"] == pytest.approx(better.evidence_shift)
    assert about["trust"][0]["doubt_median"] == pytest.approx(np.median(better.doubt))
    assert about["doubt"][0] == {"line": learned.lines[int(better.doubt.argmax())], "doubt": better.doubt.max()}
    assert f"trust: a correction changes the log evidence by {better.evidence_shift:+.3g} nats" in text


def test_influence_is_the_divergence_of_the_marginal_from_the_cavity(fitted):
    solution = tables.load(fitted[0]).fits[0].solution
    v, m = solution.marginals.variance, solution.marginals.mean
    cavity = 1.0 / (1.0 / v - solution.sites.tau)
    centre = cavity * (m / v - solution.sites.nu)
    nats = 0.5 * (v / cavity - 1.0 - np.log(v / cavity) + (m - centre) ** 2 / cavity)
    np.testing.assert_allclose(insight.influence(tables.load(fitted[0])), nats, rtol=1e-8)


def test_three_classes(folder):
    x = np.tile([0.0, 1.0, 2.0], 8) + np.linspace(0, 0.3, 24)
    text = "x,kind\n" + "".join(f"{v!r},{'abc'[i % 3]}\n" for i, v in enumerate(x.tolist()))
    out = folder / "three.safetensors"
    result = call("fit", "-", "--target", "kind", "--kernel", "isotropic", "--out", out, stdin=text.encode())
    assert result.exit_code == 0, result.output
    assert "b against the rest:" in result.stdout
    predicted = rows_of(call("predict", out, "-", stdin=b"x\n0.1\n1.1\n2.1\n").stdout)
    assert [row["kind"] for row in predicted] == ["a", "b", "c"]
    assert sum(float(predicted[0][f"p({label})"]) for label in "abc") == pytest.approx(1.0)
    assert len(json.loads(call("explain", out, "--json").stdout)["models"]) == 3
    refused = call("predict", out, "-", "--quantiles", "0.1", stdin=b"x\n0.1\n")
    assert refused.exit_code == 2
    assert "predicts classes, which have no quantiles" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--likelihood", "multinomial-probit", "--integrate"], "fit each class against the others"),
        (["--likelihood", "multinomial-probit", "--series"], "fit each class against the others"),
        (["--minutes", "3"], "pass --checkpoint"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(more, words):
    text = "x,kind\n" + "".join(f"{i / 3!r},{'abc'[i % 3]}\n" for i in range(12))
    result = call("fit", "-", "--target", "kind", *more, stdin=text.encode())
    assert result.exit_code == 2, result.output
    assert more[-1 if len(more) == 3 else 0] in result.output
    assert words in re.sub(r"[^\w-]+", " ", result.output)


# --- series ----------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize(
    "kernel",
    [
        "matern32(day, lengthscale=6) + matern12(day, lengthscale=30) + linear(day)",  # smooth, so noise is learned
        "matern32(day) + periodic(day, period=7)",
    ],
)
def test_a_series_as_a_sum_of_terms(kernel, folder):
    """Its terms are those of the dense process at the same hyperparameters."""
    out = folder / "series.safetensors"
    options = ("--target", "level", "--ignore", "other", "--method", "ep", "--kernel", kernel, "--out", out, "--json")
    result = call("fit", "-", *options, "--series", stdin=SERIES.encode())
    assert result.exit_code == 0, result.output
    explained = call("explain", out, "--json")
    assert explained.exit_code == 0, explained.output
    (found,) = json.loads(explained.stdout)["models"]
    assert found["shares"] == json.loads(result.stdout)["models"][0]["shares"]
    solution = tables.load(out).fits[0].solution
    y = (LEVEL - LEVEL.mean()) / LEVEL.std()
    dense = quantprop.infer(replace(solution.model, process=quantprop.Dense()), solution.X, y, "ep")
    shares = dense.terms(solution.X).shares
    expected = {name: share for name, share in shares.items() if name not in ("mean", "constant()")}
    assert found["shares"] == pytest.approx(expected, abs=1e-9)
    for name, effect in dense.fixed_effects().items():
        assert solution.fixed_effects()[name] == pytest.approx(effect, abs=1e-9)


def test_seasons_of_dates(folder):
    days = np.arange("2026-01-01", "2026-02-20", dtype="datetime64[D]")
    y = np.random.default_rng(0).poisson(np.where(np.arange(len(days)) % 7 == 2, 20, 5))
    text = "date,sold\n" + "".join(f"{day},{count}\n" for day, count in zip(days, y, strict=True))
    out = folder / "seasons.safetensors"
    words = ("--target", "sold", "--series", "--season", "week", "--likelihood", "poisson", "--method", "ep")
    result = call("fit", "-", *words, "--out", out, stdin=text.encode())
    assert result.exit_code == 0, result.output
    assert "note: seasons and the log evidence they add on 50 rows: week (+" in result.output
    assert "periodic(date, period=7)" in result.output
    ahead = rows_of(call("predict", out, "-", stdin=b"date\n2026-02-21\n2026-02-22\n").stdout)
    assert float(ahead[0]["mean"]) > 2.0 * float(ahead[1]["mean"])
    refused = call("fit", "-", "--target", "sold", "--season", "week", stdin=text.encode())
    assert refused.exit_code == 2
    assert "--season" in refused.output


def test_a_series_with_numbers_for_times_says_that_no_season_was_looked_for(folder):
    text = "day,level\n" + "".join(f"{day},{(day % 7) ** 2}\n" for day in range(1, 29))
    words = ("--target", "level", "--series", "--method", "ep", "--likelihood", "gaussian", "--out", folder / "numbers")
    result = call("fit", "-", *words, stdin=text.encode())
    assert result.exit_code == 0, result.output
    assert "no column holds dates, so no seasons were tried: --season" in " ".join(result.output.split())


def test_long_series_with_seasons_have_inducing_points(folder, monkeypatch):
    monkeypatch.setattr("quantprop.tables.series.MAX_DENSE_ROWS", 20)
    monkeypatch.setattr("quantprop.tables.series.POINTS", 6)
    text = "date,level\n" + "".join(f"2026-01-{day:02d},{(day % 7) ** 2}\n" for day in range(1, 31))
    words = ("--target", "level", "--series", "--season", "week", "--likelihood", "gaussian", "--method", "ep")
    result = call("fit", "-", *words, "--out", folder / "long.safetensors", stdin=text.encode())
    assert result.exit_code == 0, result.output
    assert "note: 30 rows: the series is represented by Inducing" in " ".join(result.output.split()), result.output
    assert tables.load(folder / "long.safetensors").fits[0].model.process.points is not None


def test_what_is_no_series_names_options_of_the_command_line():
    kernel = "matern32(day) + se(other)"
    result = call("fit", "-", "--target", "level", "--series", "--kernel", kernel, stdin=SERIES.encode())
    assert result.exit_code == 1
    assert "omit --series" in result.output


# --- numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = {
    "gaussian": GaussianProcessRegressor(
        likelihood=likelihoods.Gaussian(0.5), mean="constant", normalize_y=True, method="laplace"
    ),
    "poisson": GaussianProcessRegressor(likelihood="poisson", mean="constant", method="laplace"),
}


@pytest.mark.parametrize("likelihood", ["gaussian", pytest.param("poisson", marks=pytest.mark.campaign)])
def test_numbers_have_means_and_quantiles(likelihood, folder):
    path, out = folder / "numbers.csv", folder / "numbers.safetensors"
    path.write_text(numbers(0.0 if likelihood == "poisson" else 0.5), encoding="utf-8")
    words = ("--target", "calls", "--likelihood", likelihood, "--kernel", "isotropic", "--method", "laplace")
    result = call("fit", path, *words, "--out", out, "--json")
    assert json.loads(result.stdout)["likelihood"] == likelihood, result.output
    predicted = rows_of(call("predict", out, path, "--quantiles", "0.1,0.9").stdout)
    table = tables.read(path)
    x = np.array([[float(cell)] for cell in table.column("when")])
    x, y = (x - x.mean(0)) / x.std(0), np.array([float(cell) for cell in table.column("calls")])
    model = NUMBERS[likelihood].fit(x, y)
    mean, deviation = model.predict(x, return_std=True)
    columns = np.column_stack([mean, deviation, model.predict_quantiles(x, [0.1, 0.9])])
    assert [[float(row[name]) for name in ("mean", "sd", "q0.1", "q0.9")] for row in predicted] == columns.tolist()
    reached = model.predictive_cdf(x, columns[:, 3])
    assert (reached >= 0.9 - 1e-9).all()
    assert likelihood == "poisson" or (reached <= 0.9 + 1e-9).all()
