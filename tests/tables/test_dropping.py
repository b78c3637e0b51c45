"""Rows with missing values are left out only where a model uses what is missing."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from quantprop import tables
from quantprop.cli import app

ROWS = 24
COLUMNS = ("x", "z", "years", "copies", "seen", "upper", "notes", "y")


def holed(**holes):
    """A table whose columns have holes at some rows."""
    i = np.arange(ROWS)
    columns = {"x": np.sin(i), "z": np.cos(i), "years": 1 + i % 3, "copies": 1 + i % 2, "seen": i % 2,
               "upper": 30 + i, "notes": ["same"] * ROWS, "y": i + 1}  # fmt: skip
    cells = {name: [str(value) for value in values] for name, values in columns.items()}
    for name, at in holes.items():
        for row in at:
            cells[name][row] = "NA"
    return tables.from_columns(cells, "made up")


HOLES = {name: [place] for place, name in enumerate(COLUMNS)}  # one row each: row k has the hole of column k


@pytest.mark.parametrize(
    ("kernels", "roles", "used"),
    [
        (["isotropic"], tables.Roles(), {"x", "z", "years", "copies", "seen", "upper", "y"}),
        (["ard"], tables.Roles(exposure="years"), {"x", "z", "years", "copies", "seen", "upper", "y"}),
        (["se(x)"], tables.Roles(), {"x", "y"}),
        (["se(x)"], tables.Roles(exposure="years"), {"x", "years", "y"}),
        (["se(x)"], tables.Roles(weights="copies"), {"x", "copies", "y"}),
        (["se(x)"], tables.Roles(event="seen"), {"x", "seen", "y"}),
        (["se(x)"], tables.Roles(trials="years", weights="copies"), {"x", "years", "copies", "y"}),
        (["se(x)"], tables.Roles(upper="upper"), {"x"}),  # ends of intervals may be open
        (["se(x)", "linear(z)"], tables.Roles(), {"x", "z", "y"}),  # compared on the same rows
        (["se(x)", "isotropic"], tables.Roles(), {"x", "z", "years", "copies", "seen", "upper", "y"}),
        (["linear(notes)"], tables.Roles(), {"notes", "y"}),  # what terms name is used
    ],
)
def test_a_row_is_dropped_for_each_hole_in_a_column_of_the_model_and_for_no_other(kernels, roles, used):
    found = tables.complete(holed(**HOLES), "y", kernels, roles)
    assert found.cost == {name: 1 for name in COLUMNS if name in used}
    assert found.table.lines == tuple(i + 1 for i in range(ROWS) if i >= len(COLUMNS) or COLUMNS[i] not in used)
    assert found.dropped == len(used)
    by_all = any("(" not in kernel for kernel in kernels)
    assert found.constant == (("notes",) if by_all else ())
    assert ("notes" in found.table.names) == (not by_all)


def test_a_cost_counts_rows_of_its_own_column():
    found = tables.complete(holed(x=[0, 1, 2], z=[2, 3]), "y")
    assert (found.cost, found.dropped) == ({"x": 3, "z": 2}, 4)
    assert str(found) == f"4 of {ROWS} rows have missing values: dropped (by column: 'x' 3, 'z' 2)"


def test_a_table_without_holes_stays_as_it_is():
    found = tables.complete(holed(), "y")
    assert (found.table, found.dropped, found.cost, found.constant) == (holed(), 0, {}, ())


def test_problem_refuses_only_what_terms_use():
    table = holed(**{name: holes for name, holes in HOLES.items() if name not in ("x", "years", "y")})
    assert len(tables.problem(table, "y", kernel="se(x)", roles=tables.Roles(exposure="years")).raw) == ROWS
    with pytest.raises(tables.TableError, match=r"missing values in 1 of 24 rows \(by column: 'z' 1\)"):
        tables.problem(table, "y", kernel="se(z)")


# --- frames ----------------------------------------------------------------------------------------------------------

VALUES = {"x": [0.5, 1.5, None, 3.5], "kind": ["a", "b", "b", "a"], "day": ["2026-01-0" + d for d in "1234"],
          "flag": [True, False, True, True], "y": [1, 2, 1, 2]}  # fmt: skip


@pytest.mark.parametrize("kind", ["pandas", "nullable", "polars"])
def test_a_frame_is_a_table(kind):
    frame = pl.DataFrame(VALUES) if kind == "polars" else pd.DataFrame(VALUES)
    if kind == "nullable":
        frame = frame.convert_dtypes().astype({"kind": "category", "day": "datetime64[ns]"})
        frame.loc[1, "day"] = pd.NaT
    elif kind == "polars":
        frame = frame.with_columns(pl.col("day").str.to_date())
    table = tables.from_columns(frame, "a frame")
    assert table.names == tuple(VALUES)
    assert [float(cell) if cell else None for cell in table.column("x") if cell != "<NA>"] == pytest.approx(
        [0.5, 1.5, 3.5] if kind == "nullable" else [0.5, 1.5, None, 3.5]
    )
    assert tables.missing(table) == {"x": 1} | ({"day": 1} if kind == "nullable" else {})
    assert table.column("kind") == ["a", "b", "b", "a"]
    assert tables.problem(table, "y", kernel="group(kind)").encoding.columns[0].levels == ("a", "b")
    made = tables.problem(frame, "y", kernel="group(kind)")
    assert made.table.rows == table.rows
    kept = tables.complete(frame, "y", ["se(x) + linear(flag)"]).table
    assert kept.lines == (1, 2, 4)


def test_a_frame_is_fitted_and_forecast():
    x = np.linspace(-2, 2, 12)
    frame = pd.DataFrame({"x": x, "years": np.ones(12), "y": np.where(x > 0, "yes", "no")})
    model = tables.fit(frame, "y", kernel="linear(x)")
    assert model.forecast(pl.DataFrame({"x": [-1.5, 1.5]}))["y"].tolist() == ["no", "yes"]
    assert model.known(pd.DataFrame({"x": [1.0, np.nan]})).tolist() == [True, False]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.zeros((3, 2)), TypeError, "the frame: columns must be a mapping .* got ndarray"),
        ("data.csv", TypeError, "got str \\(tables.read reads a file\\)"),
        ({"x": [1.0, 2.0], "y": [1.0]}, tables.TableError, "column 'y' has 1 values, but 'x' has 2"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), tables.TableError, "two columns are called 'x'"),
    ],
)
def test_what_is_no_table_says_what_would_be(given, error, message):
    with pytest.raises(error, match=message):
        tables.problem(given, "y")


# --- the command line ------------------------------------------------------------------------------------------------


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def written(path, table):
    pd.DataFrame(table.rows, columns=list(table.names)).to_csv(path, index=False)
    return path


def test_commands_drop_rows_for_columns_of_the_model_and_say_what_each_cost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = written(tmp_path / "holes.csv", holed(**HOLES))
    fitted = call("fit", data, "--target", "y", "--likelihood", "poisson", "--kernel", "linear(x)", "--exposure",
                  "years", "--drop-missing", "--method", "laplace", "--json")  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.stdout)["rows"] == ROWS - 3
    assert "3 of 24 rows have missing values: dropped (by column: 'x' 1, 'years' 1, 'y' 1)" in fitted.stderr

    predicted = call("predict", "model.safetensors", data, "--drop-missing", "--json")
    assert len(json.loads(predicted.stdout)) == ROWS - 2  # the target is not needed
    assert "2 of 24 rows have missing values" in predicted.stderr
    assert "(by column: 'x' 1, 'years' 1)" in predicted.stderr
    other = call("predict", "model.safetensors", data, "--blank-missing", "--exposure", "copies", "--json")
    empty = [i for i, row in enumerate(json.loads(other.stdout)) if row["mean"] is None]
    assert empty == [COLUMNS.index("x"), COLUMNS.index("copies")]

    whole = written(tmp_path / "whole.csv", holed())
    for words in (["fit", whole, "--target", "y", "--kernel", "linear(x)"], ["predict", "model.safetensors", whole]):
        complete = call(*words, "--drop-missing", "--json")
        assert complete.exit_code == 0, complete.output
        assert "missing" not in complete.stderr

    compared = call("compare", data, "--target", "y", "--kernel", "linear(x)", "--kernel", "linear(z)",
                    "--methods", "laplace", "--drop-missing", "--out", "page.html")  # fmt: skip
    assert compared.exit_code == 0, compared.output
    assert "3 of 24 rows have missing values: dropped (by column: 'x' 1, 'z' 1, 'y' 1)" in compared.stderr
    code = (tmp_path / "page.html").read_text().split("<code>from quantprop")[1]
    assert "tables.complete(tables.read(" in code
    assert "[&#x27;linear(x)&#x27;, &#x27;linear(z)&#x27;]" in code


def test_a_column_that_never_changes_costs_no_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = written(tmp_path / "holes.csv", holed(notes=range(20)))
    fitted = call("fit", data, "--target", "y", "--likelihood", "poisson", "--drop-missing", "--json",
                  "--ignore", "upper", "--kernel", "isotropic", "--method", "laplace")  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.stdout)["rows"] == ROWS
    assert "column notes has a single value besides missing ones: ignored" in fitted.stderr
