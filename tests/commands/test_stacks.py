"""Stacks of several models on the command line, and the rows to observe next."""

import json
import re

import numpy as np
import pytest
from commands.calls import SERIES, call, rows_of

from quantprop import tables
from quantprop.cli.options import LIKELIHOODS
from quantprop.estimators import insight

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
    assert "fraction of the variance of f of the stack" in result.stdout
    assert "relevance" not in result.stdout  # one order of features: that of the shares


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
    effects = 2 + (part["components"]["dose:age"]["share"] >= 0.01)
    assert shown.count("<figure>") == effects + shown.count("Panels that check the model")


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


@pytest.mark.campaign
@pytest.mark.usefixtures("two_members")
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
    from quantprop.cli import suggest

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
    assert suggest.CRITERIA == active.CRITERIA
    for more in (["--criterion", "level"], ["--level", "0.5"]):
        assert "only then" in call("suggest", out, new, *more).stderr
    refused = call("suggest", out, new, "--n", "31")
    assert refused.exit_code == 2
    assert "at most the number of rows" in refused.stderr


@pytest.mark.parametrize(("kernel", "more"), [
    ("se(x) + group(g)", []),
    pytest.param("se(x) + group(g)", ["--likelihood", "censored", "--upper", "upper"], marks=pytest.mark.campaign),
    pytest.param("auto", [], marks=pytest.mark.campaign),
])  # fmt: skip
def test_suggest_takes_categories_and_levels_in_units_of_the_target(folder, kernel, more):
    """Of y × 1000 + 5000 and a level changed alike it chooses the same rows, with the same information."""
    rng = np.random.default_rng(3)
    x, g = rng.uniform(0.0, 6.0, 40), rng.choice(["left", "right"], 40)
    y = np.sin(x) + (g == "left") + 0.2 * rng.normal(size=40)
    new = folder / "new.csv"
    new.write_text("g,x\n" + "".join(f"{name},{at}\n" for name in ("left", "right") for at in np.linspace(0, 9, 10)))
    chosen = []
    for start, unit in ((0.0, 1.0), (5000.0, 1000.0)):
        path, out = folder / "y.csv", folder / "y.safetensors"
        values = [(a, b, start + unit * c) for a, b, c in zip(x, g, y, strict=True)]
        path.write_text("x,g,y,upper\n" + "".join(f"{a},{b},{c},{c}\n" for a, b, c in values))
        ignored = [] if more else ["--ignore", "upper"]
        fitted = call("fit", path, "--target", "y", "--kernel", kernel, *more, *ignored, "--method", "ep", "--out", out)
        assert fitted.exit_code == 0, fitted.output
        for given in (["level", "--level", str(start + 0.8 * unit)], ["improvement"], ["upper"], ["information"]):
            result = call("suggest", out, new, "--n", "2", "--criterion", *given, "--json")
            assert result.exit_code == 0, result.output
            chosen.append(json.loads(result.stdout))
    for one, other in zip(chosen[:4], chosen[4:], strict=True):
        assert [row["line"] for row in one] == [row["line"] for row in other]
        assert [row["information"] for row in one] == pytest.approx([row["information"] for row in other], rel=0.01)
