"""fit, predict, compare and explain: on an awkward table, against Python to the last digit, and where they cannot."""

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from awkward import COLOURS, SCRIPT, awkward
from typer.testing import CliRunner

import quantprop
from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    comparison,
    likelihoods,
    report,
    tables,
)
from quantprop.cli import app
from quantprop.cli.options import LIKELIHOODS
from quantprop.estimators import insight

ROOT = Path(__file__).resolve().parent.parent
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


def call(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def data(folder):
    path = folder / "awkward.csv"
    path.write_text(awkward(), encoding="utf-8", newline="")
    return path


@pytest.fixture(scope="module")
def fitted(folder, data):
    """A model of the awkward table by ARD, and what was said of it."""
    out = folder / "model.safetensors"
    return out, call("fit", data, "--target", "urteil", "--kernel", "ard", "--out", out, "--json")


def numbers(more, n=20):
    x = np.linspace(0, 3, n)
    return "when,calls\n" + "".join(f"{t!r},{round(3 + 2 * np.sin(2 * t)) + more}\n" for t in x.tolist())


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
    from quantprop.tables import dates, models, reading, targets

    assert set(options.LIKELIHOODS) == set(targets.LIKELIHOODS)
    assert set(options.METHODS) == set(methods.METHODS)
    assert (tuple(models.KERNELS), dates.DATES, (".", ",")) == (options.KERNELS, options.DATES, reading.DECIMALS)


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
    assert text.index(min(ranked, key=ranked.get)) < text.index(max(ranked, key=ranked.get))
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

DAYS = np.arange(36.0)
LEVEL = 0.05 * DAYS + np.sin(2.0 * np.pi * DAYS / 7.0) + 0.3 * np.random.default_rng(0).normal(size=len(DAYS))
SERIES = "day,level,other\n" + "".join(f"{day},{y},{day % 5}\n" for day, y in zip(DAYS, LEVEL, strict=True))


@pytest.mark.parametrize(
    "kernel",
    [
        "matern32(day, lengthscale=6) + matern12(day, lengthscale=30) + linear(day)",  # smooth, so noise is learned
        pytest.param("matern32(day) + periodic(day, period=7)", marks=pytest.mark.campaign),
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


# --- comparison ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(data, folder):
    """What compare printed as JSON, its page, and the comparison that they are of."""
    page, kept, real = folder / "report.html", [], comparison.compare
    words = ("compare", data, "--target", "urteil", "--methods", "qp", "--folds", "2", "--kernel", "ard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "compare", lambda *given: kept.append(real(*given)) or kept[0])
        result = call(*words, "--out", page, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), page.read_text(encoding="utf-8"), kept[0]


def test_compare_scores_rows_that_were_not_learned_from(compared, data):
    said, _, found = compared
    assert [record["method"] for record in said["methods"]] == ["qp"]
    problem = tables.problem(tables.read(data), "urteil", kernel="ard")
    p, came = np.empty(28), problem.target.y == "nein, nie"
    division = comparison.folds(problem, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lengthscales that end at a bound, as they do here
        models = [problem.fit("qp", train) for train, _ in division.splits]
    for (train, test), model in zip(division.splits, models, strict=True):
        x = (problem.raw[test] - problem.raw[train].mean(0)) / problem.raw[train].std(0)
        p[test] = model.estimator.predict_proba(x)[:, 1]
    wrong, brier = (p > 0.5) != came, (p - came) ** 2
    qp = said["methods"][0]
    assert qp["error"] == pytest.approx(wrong.mean(), abs=1e-12)
    apart = abs(np.diff([wrong[test].mean() for _, test in division.splits])[0])
    # Two folds: S² = apart²/2, and as many rows are learned from as scored: (1/2 + 1) S².
    assert qp["error_se"] == pytest.approx(np.sqrt(1.5 * apart**2 / 2), abs=1e-12)
    assert qp["brier"] == pytest.approx(brier.mean(), abs=1e-9)
    assert qp["ntll_less_first"] == qp["ntll_less_first_se"] == 0.0
    assert 0 < qp["calibration_if_perfect"] < qp["calibration_if_perfect_95"] < 1
    assert qp["seconds_to_compile"] >= 0  # 0 where another test has compiled the programs
    assert qp["seconds"] > 0
    rows = {one.method: one.rows["ntll"] for one in found.all}
    constant, linear, boosting = said["baselines"]
    shares = [
        -np.log(np.where(came[test], came[train].mean(), 1 - came[train].mean())) for train, test in division.splits
    ]
    assert (constant["method"], linear["method"]) == ("constant", "linear")
    assert constant["ntll"] == pytest.approx(np.mean(shares), abs=0.01)
    for one in (linear, boosting):
        less = np.concatenate(rows[one["method"]]) - np.concatenate(rows["qp"])
        assert one["ntll_less_first"] == pytest.approx(less.mean(), abs=1e-12)
    assert (boosting["method"], boosting["converged"]) == ("boosting", None)


LEAKS = re.compile(
    r"\w_\w|\b(?:kernel|likelihood|mean|left|right)\.\w|\b[A-Z][a-z]+[A-Z]\w*|\bNone\b|\bnan\b|\w\(\)"
    r"|max-sweeps|improper-|nothing-to-learn|max-evaluations|no-progress|small-gain|inference-failed|no-covariance|no-variance|not-finite"
)


def test_compare_writes_a_page_without_names_of_the_code(compared):
    said, text, found = compared
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert text.count("<svg") == 4  # differences, reliability, latent f, lengthscales
    assert "http://" not in text.replace('xmlns="http://www.w3.org', "").replace('xlink="http://www.w3.org', "")
    shown = html.unescape(re.sub(r"<(style|pre|svg)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL))
    assert said["conclusion"] in shown
    assert "Nadeau and Bengio" in shown
    captions = re.findall(r'aria-label="([^"]*)"', text)
    for printed in (shown, "\n".join(report.lines(found)), *map(html.unescape, captions)):
        assert not LEAKS.findall(printed), printed


COLUMNS = {
    "test error": "not the most probable one",
    "Brier": "half the squared",
    "RMSE": "root mean squared",
    "MAE": "mean absolute",
}


@pytest.fixture(scope="module")
def compared_numbers(folder):
    """A folder in which compare has written a page about numbers, and another, and then has met a full disk."""
    place, kept, real = folder / "twice", [], comparison.compare
    place.mkdir()
    (place / "numbers.csv").write_text(numbers(0.5, 10), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(comparison, "compare", lambda *given: (kept or kept.append(real(*given)) or kept)[0])
        words = ("compare", "numbers.csv", "--target", "calls", "--methods", "laplace", "--folds", "2")
        results = [call(*words), call(*words)]
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        results.append(call(*words))
    return place, results


def test_a_page_explains_the_columns_that_it_has(compared, compared_numbers):
    place, _ = compared_numbers
    pages = {True: compared[1], False: (place / "report.html").read_text(encoding="utf-8")}
    for classes, text in pages.items():
        shown = " ".join(
            html.unescape(re.sub(r"<(style|pre|svg)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)).split()
        )
        for name, words in COLUMNS.items():
            there = name in (("test error", "Brier") if classes else ("RMSE", "MAE"))
            assert (name in shown) == there
            assert (words in shown) == there
        assert "smaller than those of the scores" not in shown


def test_pages_that_nobody_asked_to_replace_stay(compared_numbers):
    place, (first, second, failed) = compared_numbers
    assert (first.exit_code, second.exit_code, failed.exit_code) == (0, 0, 1)
    assert "wrote report.html" in first.stdout
    assert "wrote report-2.html" in second.stdout
    assert sorted(path.name for path in place.iterdir()) == ["numbers.csv", "report-2.html", "report.html"]
    assert first.stdout.splitlines()[:-1] == second.stdout.splitlines()[:-1] == failed.stdout.splitlines()
    assert "No space left on device" in failed.stderr


def test_a_model_that_was_written_but_cannot_be_described_is_a_success(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("quantprop.estimators.insight.surprise", lambda _: 1 / 0)
    (folder / "few.csv").write_text(numbers(0.5, 8), encoding="utf-8")
    words = ("fit", "few.csv", "--target", "calls", "--kernel", "isotropic", "--method", "laplace", "--out",
             "few.safetensors")  # fmt: skip
    for more in ((), ("--json",)):
        result = call(*words, *more)
        assert result.exit_code == 0, result.output
        assert "few.safetensors was written, but cannot be described: division by zero" in result.stderr
        assert tables.load(folder / "few.safetensors").target == "calls"
    assert json.loads(result.stdout) == {"model": "few.safetensors", "warning": "division by zero"}
    assert call(*words, "--debug").exit_code == 1


# --- what cannot be done ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "stdin", "code", "message"),
    [
        (["fit", "nowhere.csv", "--target", "y"], None, 1, "No such file or directory: nowhere.csv"),
        (["fit", "-", "--target", "z"], b"x,y\n1,2\n", 2, "no column 'z'; it has 'x', 'y'"),
        (["fit", "-", "--target", "y"], b"x,y\n1,2\n3\n", 1, "line 3: 1 cells, but the header has 2"),
        (["fit", "-", "--target", "y"], b"x,y\n1,a\nNA,b\n", 1, "(by column: 'x' 1)"),
        (
            ["fit", "-", "--target", "y", "--drop-missing"],
            b"x,y\n1,\n2,\nNA,b\n",
            1,
            "in column 'y', which the model needs",
        ),
        (["fit", "-", "--target", "y", "--ignore", "q"], b"x,y\n1,2\n", 2, "no column 'q'"),
        (["fit", "-", "--target", "y", "--ignore", "y"], b"x,y\n1,2\n", 2, "cannot ignore y: it is the target"),
        (["fit", "-", "--target", "y", "--likelihood", "cauchy"], b"x,y\n1,2\n2,3\n", 2, "must be one of probit"),
        (["fit", "-", "--target", "y", "--kernel", "rbf"], b"x,y\n1,2\n2,3\n", 2, "must be one of isotropic"),
        (["fit", "-", "--target", "y", "--kernel", "grow"], b"x,y\n1,2\n2,3\n", 2, "replaced by --kernel auto"),
        (["fit", "-", "--target", "y", "--method", "mcmc"], b"x,y\n1,2\n2,3\n", 2, "got 'mcmc'"),
        (["fit", "-", "--target", "y", "--objective", "mse"], b"x,y\n1,2\n2,3\n", 2, "must be one of evidence, loo"),
        (["fit", "-", "--target", "y", "--dates", "iso"], b"x,y\n1,2\n2,3\n", 2, "must be one of number, parts"),
        (["fit", "-", "--target", "y", "--decimal", "x"], b"x,y\n1,2\n2,3\n", 2, "must be one of ., ,"),
        (["fit", "-", "--target", "y", "--weights", "w"], b"x,y\n1,2\n2,3\n", 2, "no column 'w'"),
        (["fit", "-", "--target", "y", "--exposure", "y"], b"x,y\n1,2\n2,3\n", 2, "column 'y' has two roles"),
        (
            ["fit", "-", "--target", "y", "--trials", "n"],
            b"x,n,y\n1,2,1\n2,3,4\n",
            1,
            "line 3: 4 in column 'y' must be",
        ),
        (["fit", "-", "--target", "y", "--likelihood", "binomial"], b"x,y\n1,2\n2,3\n", 2, "--trials names its column"),
        (["fit", "-", "--target", "y", "--likelihood", "poisson", "--log"], b"x,y\n1,2\n2,3\n", 2, "log is for"),
        (["fit", "-", "--target", "y", "--event", "e=9"], b"x,e,y\n1,1,2\n2,0,3\n", 2, "no row has '9'"),
        (["fit", "-", "--target", "y", "--drop-missing"], b"x,z,y\n1,,2\n2,,3\n3,,4\n,a,5\n,b,6\n", 1, "--ignore 'z'"),
        (["fit", "-", "--target", "y", "--out", "no/such/folder"], b"x,y\n1,2\n", 2, "--out"),
        (["fit", "-"], b"x,y\n1,2\n", 2, "--target"),
        (["predict", "MODEL", "-"], b"farbe\nrot\n", 1, "lacks the columns 'größe, cm', 'Flag'"),
        (["predict", "MODEL", "-", "--exposure", "2"], b"x\n1\n", 2, "the model was fitted without exposure"),
        (["predict", "MODEL", "DATA", "--key", "who"], None, 2, "no column 'who'"),
        (["predict", "MODEL", "DATA", "--drop-missing", "--blank-missing"], None, 2, "pass one of"),
        (["predict", "MODEL", "-", "--quantiles", "5"], b"x\n1\n", 2, "between 0 and 1"),
        (["predict", "DATA", "DATA"], None, 1, "is not a quantprop model"),
        (["explain", "DATA"], None, 1, "is not a quantprop model"),
        (["compare", "DATA", "--target", "urteil", "--methods", "qp,hmc"], None, 2, "got qp,hmc"),
        (["compare", "DATA", "--target", "urteil", "--folds", "90"], None, 2, "between 2 and the number of rows, 28"),
        (
            ["compare", "-", "--target", "y", "--folds", "2"],
            b"x,y\n1,a\n2,a\n3,b\n",
            1,
            "label b of column 'y' is in one row only",
        ),
    ],
)
def test_errors_say_what_to_change(words, stdin, code, message, fitted, data, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    result = call(*({"MODEL": fitted[0], "DATA": data}.get(word, word) for word in words), stdin=stdin)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output
    assert sorted(folder.iterdir()) == before


def test_debug_shows_where(folder):
    result = call("fit", "-", "--target", "y", "--debug", stdin=b"x,y\n1,2\n1,2\n")
    assert isinstance(result.exception, tables.TableError)


def test_an_interrupt_leaves_the_old_file(data, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    out = folder / "kept.html"
    out.write_text("old")
    monkeypatch.setattr("os.replace", interrupted)
    monkeypatch.setattr("quantprop.comparison.compare", lambda *_: interrupted())
    result = call("compare", data, "--target", "urteil", "--out", out)
    assert (result.exit_code, out.read_text()) == (130, "old")
    assert "nothing was written" in result.stderr
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_demo_prints_and_writes_where_it_is_told(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr("quantprop.report.demo.main", lambda out, progress: told.append(out) or [])
    result = call("demo", "--out", tmp_path / "page.html")
    assert (result.exit_code, told) == (0, [tmp_path / "page.html"])
    assert f"wrote {tmp_path / 'page.html'}" in result.stdout


# --- stacks ----------------------------------------------------------------------------------------------------------

DOSE, AGE = np.random.default_rng(2).uniform(0.0, 9.0, size=(2, 50))
DOSES = "dose,age,level\n" + "".join(
    f"{d},{a},{y}\n"
    for d, a, y in zip(DOSE, AGE, np.sin(DOSE) + 0.1 * np.random.default_rng(3).normal(size=50), strict=True)
)


@pytest.fixture(scope="module")
def stacked(folder):
    """A model by the default kernel, and what was said of it."""
    out = folder / "stack.safetensors"
    return out, call("fit", "-", "--target", "level", "--method", "ep", "--out", out, stdin=DOSES.encode())


def test_by_default_several_models_are_stacked(stacked):
    out, result = stacked
    assert result.exit_code == 0, result.output
    model = tables.load(out)
    (stack,) = model.stacks
    lines = result.stdout.splitlines()
    error = stack.loo.std(ddof=1) / np.sqrt(len(stack.loo))
    assert lines[1] == f"leave-one-out {stack.loo.mean():.4f} ({error:.2g}) per row"
    place = lines.index("stacked models (weight; leave-one-out log density per row):") + 2  # below the names of columns
    ranked = sorted(stack.members, key=lambda one: -one.weight)
    said = [line.rsplit(maxsplit=2) for line in lines[place : place + len(ranked)]]
    assert said == [[f"  {one.name}", f"{one.weight:.4g}", f"{one.score:.4g}"] for one in ranked]
    assert lines[place + len(ranked)] == f"the model of largest weight, {stack.heaviest.name}:"
    np.testing.assert_array_equal(insight.surprise(model), -stack.loo)


def test_a_stack_predicts_and_is_explained(stacked):
    out, _ = stacked
    predicted = rows_of(call("predict", out, "-", "--quantiles", "0.1,0.9", stdin=DOSES.encode()).stdout)
    model = tables.load(out)
    x = model.encoding.matrix(tables.from_columns({"dose": DOSE, "age": AGE}, "doses"))
    assert [float(row["mean"]) for row in predicted] == model.estimator.predict(x).tolist()
    assert [float(row["q0.9"]) for row in predicted] == model.estimator.predict_quantiles(x, [0.9])[:, 0].tolist()
    page = out.with_suffix(".html")
    explained = call("explain", out, "--out", page, "--json")
    assert explained.exit_code == 0, explained.output
    said = json.loads(explained.stdout)
    (part,) = said["models"]
    assert said["page"] == str(page)
    assert sum(one["weight"] for one in part["members"].values()) == pytest.approx(1.0, abs=1e-12)
    assert part["members"]["linear"]["weight"] < 0.1
    assert next(iter(part["columns"])) == "dose"
    assert part["columns"]["dose"]["share"] > 0.9
    assert set(part["components"]) == {"dose", "age", "dose:age"}
    shown = page.read_text(encoding="utf-8")
    for name, one in part["members"].items():
        assert f"<td>{name}</td><td>{one['weight']:.2f}</td><td>{one['score']:.4f}</td>" in shown
    for name, one in part["columns"].items():
        share, interval = f"{one['share']:.1%}", f"{one['lower']:.1%} to {one['upper']:.1%}"
        assert f"<td>{name}</td><td>{share}</td><td>{interval}</td>" in shown
    assert shown.count("<figure>") == 2 + (part["components"]["dose:age"]["share"] >= 0.01)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--series"], "--series"),
        (["--integrate"], "--integrate"),
        (["--checkpoint", "kept"], "--checkpoint"),
        (["--coordinator", "here:1", "--processes", "2", "--process", "0"], "a job of several processes"),
    ],
)
def test_a_stack_is_refused_where_one_model_is_needed(words, named):
    result = call("fit", "-", "--target", "level", "--kernel", "auto", *words, stdin=SERIES.encode())
    assert result.exit_code == 2, result.output
    assert f"{named} needs one: omit it" in " ".join(re.sub(r"[│╭╰─]", " ", result.output).split())


def test_options_that_take_one_model_have_one_kernel(folder):
    words = ("--target", "level", "--ignore", "other", "--series", "--method", "laplace", "--json")
    result = call("fit", "-", *words, "--out", folder / "one.safetensors", stdin=SERIES.encode())
    assert result.exit_code == 0, result.output
    assert "members" not in json.loads(result.stdout)["models"][0]


def test_a_stack_of_many_rows_takes_inducing_points(folder, monkeypatch):
    monkeypatch.setattr("quantprop.cli.fit.MAX_QUICK_ROWS", 20)
    monkeypatch.setattr("quantprop.cli.fit.STACK_POINTS", 6)
    out = folder / "points.safetensors"
    words = ("--target", "level", "--ignore", "other", "--method", "laplace", "--out", out)
    result = call("fit", "-", *words, stdin=SERIES.encode())
    assert result.exit_code == 0, result.output
    assert "36 rows: every model of the stack represents them by 6 inducing points" in result.stderr
    (stack,) = tables.load(out).stacks
    assert [one.fitted.model.process.count for one in stack.members] == [6] * len(stack.members)


OF_LIKELIHOODS = {
    **dict.fromkeys(("probit", "logit", "heaviside"), "yes"),
    "multinomial-probit": "kind",
    "ordinal": "grade",
    **dict.fromkeys(("poisson", "negative-binomial", "zero-inflated-poisson",
                     "zero-inflated-negative-binomial"), "count"),
    "binomial": "count --trials trials",
    **dict.fromkeys(("gaussian", "student-t", "double-exponential", "warped"), "level"),
    "censored": "size --upper upper",
    **dict.fromkeys(("gamma", "weibull", "log-logistic"), "size"),
    "beta": "part",
}  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_likelihood_is_stacked(likelihood, folder):
    rng = np.random.default_rng(5)
    x, other = rng.normal(size=(2, 60))
    level = np.sin(2.0 * x) + 0.2 * rng.normal(size=60)
    table = {
        "yes": np.where(level > 0, "yes", "no"), "kind": np.digitize(level, [-0.5, 0.5]),
        "grade": np.digitize(level, [-0.5, 0.5]) + 1, "count": rng.poisson(2.0 * np.exp(level)), "level": level,
        "size": np.exp(level), "upper": np.where(level > 0.8, np.inf, np.exp(level)),
        "part": 1.0 / (1.0 + np.exp(-level)), "trials": np.full(60, 40),
    }  # fmt: skip
    target, *more = OF_LIKELIHOODS[likelihood].split()
    path, out = folder / f"{likelihood}.csv", folder / "one.safetensors"
    columns = {"x": x, "other": other, target: table[target], **{name: table[name] for name in more[1:]}}
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))
    result = call("fit", path, "--target", target, *more, "--likelihood", likelihood, "--method", "laplace"
                  if likelihood != "heaviside" else "ep", "--out", out, "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert about["likelihood"] == likelihood
    members = about["models"][0]["members"]
    assert about["loo"] > max(one["score"] for one in members.values()) - 0.1
    assert call("explain", out).exit_code == 0
    assert call("predict", out, path).exit_code == 0


def test_suggest_chooses_the_rows_of_largest_information(folder):
    from quantprop import active, tables

    x = np.linspace(0.0, 4.0, 40)
    text = "x,y\n" + "".join(f"{a:.3f},{'yes' if np.sin(2 * a) > 0 else 'no'}\n" for a in x)
    path, out = folder / "labels.csv", folder / "labels.safetensors"
    path.write_text(text, encoding="utf-8")
    assert call("fit", path, "--target", "y", "--kernel", "isotropic", "--method", "ep", "--out", out).exit_code == 0
    new = folder / "candidates.csv"
    new.write_text("x\n" + "".join(f"{a:.3f}\n" for a in np.linspace(-1.0, 7.0, 30)), encoding="utf-8")
    found = json.loads(call("suggest", out, new, "--n", "3", "--json").stdout)
    model, table = tables.load(out), tables.read(str(new))
    solution, grid = model.estimator.solution_, model.encoding.matrix(table)
    chosen = active.ask(solution, grid, 3)
    assert [row["line"] for row in found] == (chosen + 2).tolist()
    assert [row["x"] for row in found] == [table.column("x")[i] for i in chosen]
    assert found[0]["information"] == pytest.approx(solution.information(grid).max(), rel=1e-9)
    refused = call("suggest", out, new, "--n", "31")
    assert refused.exit_code == 2
    assert "at most the number of rows" in refused.stderr
