"""compare: scores against Python, its page, and models that cannot be described."""

import html
import json
import re
import warnings

import numpy as np
import pytest
from commands.calls import call, numbers

from quantprop import comparison, report, tables


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
    assert text.count("<svg") == 5  # checks, differences, reliability, latent f, lengthscales
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


def test_forecasts_from_rolling_origins():
    rows = "".join(
        f"2026-{1 + i // 28:02d}-{1 + i % 28:02d},{[0, 2, 1, 3, 9, 20, 15][i % 7] + i % 3}\n" for i in range(84)
    )
    kernel = "periodic(date, variance=1, lengthscale=1, period=7) + white(variance=0.01)"
    words = ("compare", "-", "--target", "y", "--methods", "ep", "--likelihood", "gaussian", "--origins", "2")
    stdin = f"date,y\n{rows}".encode()
    result = call(*words, "--horizon", "5", "--kernel", kernel, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["model"] for row in found][:2] == [kernel, "seasonal naive (week)"]
    assert all(0.0 <= row["within 90 %"] <= 1.0 for row in found)
    refused = call(*words, "--out", "page.html", stdin=stdin)
    assert refused.exit_code == 2
    assert "without a page" in " ".join(refused.output.split())
