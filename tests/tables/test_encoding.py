"""Encoding: words to columns, standardisation, and the likelihood that a target asks for."""

import json

import numpy as np
import pytest
from awkward import COLOURS, awkward

from quantprop import tables
from quantprop.tables import TableError, from_bytes
from quantprop.tables.encoding import learned
from quantprop.tables.stored import from_json, to_json
from quantprop.tables.targets import target


def table(text):
    return from_bytes(text.encode(), "t.csv")


def test_columns_become_standardised_numbers():
    found = table(awkward()).without(["urteil"])
    encoding, left_out = learned(found)
    assert left_out == {"konst": "is constant"}
    assert encoding.features[:5] == ("größe, cm", "farbe=blau; hell", "farbe=grün", "farbe=rot", "Flag=true")
    raw = np.column_stack([
        [float(cell) for cell in found.column("größe, cm")],
        *([cell == colour for cell in found.column("farbe")] for colour in sorted(COLOURS)),
        [cell == "True" for cell in found.column("Flag")],
        *([float(cell) for cell in found.column(name)] for name in found.names[4:]),
    ])  # fmt: skip
    np.testing.assert_array_equal(encoding.matrix(found), (raw - raw.mean(0)) / raw.std(0))


def test_row_names_are_no_feature():
    rows = [(1, 3.0, 1), (2, 1.0, 2), (5, 2.0, 3)]
    numbered, named = (
        from_bytes("\n".join([header, *(",".join(map(str, row)) for row in rows)]).encode(), "t.csv")
        for header in ("rownames,x,time", "place,x,time")
    )
    encoding, left_out = learned(numbered)
    assert (encoding.features, left_out) == (("x", "time"), {"rownames": "names the rows"})
    assert learned(named)[1] == {}
    shuffled = from_bytes(b"Unnamed: 0,x\n2,3\n1,4\n", "t.csv")
    assert learned(shuffled)[0].features == ("x",)
    assert learned(from_bytes(b"Unnamed: 0,x\n2,3\n2,4\n1,5\n", "t.csv"))[0].features == ("Unnamed: 0", "x")
    assert learned(from_bytes(b',x\n"2",3\n"1",4\n', "t.csv"))[0].features == ("x",)
    cars = "\n".join(["rownames,x", *(f"car {i},{i % 7}" for i in range(60))])  # too many levels for a feature
    assert learned(from_bytes(cars.encode(), "t.csv"))[0].features == ("x",)


def test_an_encoding_comes_back_from_json_and_finds_columns_by_name():
    found = table(awkward()).without(["urteil"])
    encoding, _ = learned(found)
    back = from_json(json.loads(json.dumps(to_json(encoding))))
    assert back == encoding
    turned = from_bytes(b"b,a\ntrue,1.5\nFALSE,2\n", "t.csv")
    (small, _) = learned(from_bytes(b"a,extra,b\n1.5,1,True\n2,2,False\n", "t.csv").without(["extra"]))
    np.testing.assert_array_equal(small.matrix(turned), [[-1.0, 1.0], [1.0, -1.0]])


@pytest.mark.parametrize("change", [{"scale": [0.0, 1.0]}, {"centre": [0.0]}, {"columns": []}, {"scale": ["x", 1.0]}])
def test_a_changed_encoding_is_refused(change):
    node = to_json(learned(table("a,b\n1,2\n3,5\n"))[0])
    assert from_json(node).features == ("a", "b")
    with pytest.raises(ValueError, match=r"."):
        from_json({**node, **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,NA\n,2\n?,3\n", "missing values in 3 of 3 rows (by column: 'a' 2, 'b' 1)"),
        ("a;b\n1,5;x\n2,5;y\n", "line 2: '1,5' in column 'a' has a decimal comma: read the table with --decimal ,"),
        ("a,b\n1/2/2020,1\n2/1/2020,2\n", "line 2: '1/2/2020' in column 'a' is a date with slashes"),
        ("a,b\n" + "2020-01-02,1\n" * 9 + "2020-02-30,1\n", "line 11: '2020-02-30' in column 'a' is not a date"),
        ("a,b\n" + "1,2\n" * 9 + "oops,2\n", "line 11: 'oops' in column 'a' is not a number"),
        ("a,b\n" + "".join(f"n{i},{i}\n" for i in range(12)), "column 'a' has 12 different text values in 12 rows"),
        ("a,b\n1,inf\n2,3\n", "'inf' in column 'b' is not a finite number"),
        ("a,b\n1,yes\n1,yes\n", "has no column, except the target"),
    ],
)
def test_what_cannot_be_encoded_is_said(text, message):
    with pytest.raises(TableError) as error:
        learned(table(text))
    assert message in str(error.value)


def test_new_rows_must_have_the_columns_and_their_categories():
    encoding, _ = learned(table("a,b\n1,u\n2,v\n3,w\n"))
    with pytest.raises(TableError, match="lacks the column 'a'"):
        encoding.matrix(table("b,c\nu,1\n"))
    with pytest.raises(TableError, match=r"line 3: 'x' in column 'b' is not one of the categories .*'u', 'v', 'w'"):
        encoding.matrix(table("b,a\nu,1\nx,2\n"))
    with pytest.raises(TableError, match=r"line 2: 'one' in column 'a' is not a finite number"):
        encoding.matrix(table("b,a\nu,one\n"))


@pytest.mark.parametrize(
    ("cells", "likelihood", "y"),
    [
        (["yes", "no", "yes"], "probit", ["yes", "no", "yes"]),
        (["a", "b", "c"], "probit", ["a", "b", "c"]),
        (["True", "FALSE", "true"], "probit", ["true", "false", "true"]),
        (["1", "2", "1.0"], "probit", [1, 2, 1]),
        (["0", "3", "7"], "poisson", [0.0, 3.0, 7.0]),
        (["-1", "3", "7"], "gaussian", [-1.0, 3.0, 7.0]),
        (["0.5", "3", "7"], "gaussian", [0.5, 3.0, 7.0]),
    ],
)
def test_the_likelihood_is_guessed(cells, likelihood, y):
    found = target(table("\n".join(["x,y", *(f"1,{cell}" for cell in cells)])), "y")
    assert (found.likelihood, found.y.tolist()) == (likelihood, y)


@pytest.mark.parametrize(
    ("text", "likelihood", "message"),
    [
        ("x,y\n1,a\n2,a\n", None, "always holds a"),
        ("x,y\n1,a\n2,b\n", "poisson", "needs numbers, and column 'y' of t.csv holds text ('a', 'b')"),
        ("x,y\n1,1\n2,\n", None, "missing values in 1 of 2 rows"),
        ("x,y\n1,1\n2,3\n", "cauchy", "likelihood must be one of"),
        ("x,z\n1,1\n", None, "no column 'y'; it has 'x', 'z'"),
    ],
)
def test_a_target_that_cannot_be_learned_is_named(text, likelihood, message):
    with pytest.raises(ValueError, match=r".") as error:
        target(table(text), "y", likelihood)
    assert message in str(error.value)


# --- dates -----------------------------------------------------------------------------------------------------------


def test_dates_are_days_and_places_in_their_cycles():
    """Against pandas, which knows days, weekdays and the lengths of years."""
    import pandas

    cells = [
        "1969-12-31",
        "2024-02-29 18:00",
        "2025-07-01T06:30:15.5Z",
        "2026-12-31T23:00+02:00",
        "01.03.2000",
        "2023-11",
    ]
    given = table("when,y\n" + "".join(f"{cell},1\n" for cell in cells)).without(["y"])
    when = pandas.to_datetime(
        ["1969-12-31", "2024-02-29 18:00", "2025-07-01T06:30:15.5", "2026-12-31T21:00", "2000-03-01", "2023-11-01"],
        format="ISO8601",
    )
    days = (when - pandas.Timestamp("1970-01-01")) / pandas.Timedelta(days=1)
    hours = (when - when.normalize()) / pandas.Timedelta(days=1)
    turns = [
        (when.day_of_year - 1 + hours) / np.where(when.is_leap_year, 366, 365),
        (when.day_of_week + hours) / 7,
        hours,
    ]
    waves = [wave(2 * np.pi * turn) for turn in turns for wave in (np.sin, np.cos)]
    encoding, _ = learned(given, "parts")
    assert encoding.features == (
        "when", *(f"when: {wave} of {cycle}" for cycle in ("year", "week", "day") for wave in ("sin", "cos"))
    )  # fmt: skip
    np.testing.assert_allclose(encoding.raw(given), np.column_stack([days, *waves]), atol=1e-9)
    plain, _ = learned(given)
    assert plain.features == ("when",)
    np.testing.assert_allclose(plain.raw(given)[:, 0], days, rtol=1e-15)
    for one in (encoding, plain):
        assert from_json(json.loads(json.dumps(to_json(one)))) == one


def test_a_file_without_dates_is_still_read():
    node = {"columns": [{"name": "a", "levels": []}], "centre": [0.0], "scale": [1.0]}
    assert from_json(node).features == ("a",)
    for bad in ({"dates": True, "levels": ["u", "v"]}, {"cycles": ["year"]}, {"dates": True, "cycles": ["era"]}):
        with pytest.raises(ValueError, match="neither numeric nor text nor dates"):
            from_json({**node, "columns": [{**node["columns"][0], **bad}]})


def test_rows_that_can_be_encoded():
    encoding, _ = learned(table("a,b,c\n1,u,True\n2,v,False\n3,w,True\n"))
    new = table("c,b,a\ntrue,u,1\nFALSE,x,2\nTrue,w,NA\n,u,1\nFalse,v,7\n")
    assert encoding.known(new).tolist() == [True, False, False, False, True]
    assert len(encoding.matrix(new.only([0, 4]))) == 2


def test_a_decimal_comma_on_request():
    given = from_bytes(b"a;b;c\n1,5;x,y;1.234,5\n-2,25e3;3,4,5;7\n", "t.csv", decimal=",")
    assert given.rows == (("1.5", "x,y", "1234.5"), ("-2.25e3", "3,4,5", "7"))
    with pytest.raises(ValueError, match=r"decimal must be one of"):
        from_bytes(b"a;b\n1;2\n", "t.csv", decimal=";")


# --- numbers at the edge of double precision -------------------------------------------------------------------------

NAMES = ["gaussian", "student-t", "warped", "weibull", "gamma", "poisson", "censored"]
ROLES = {"poisson": tables.Roles(exposure="w"), "censored": tables.Roles(upper="w")}


def numbered(**changed):
    """Columns of twelve numbers that every likelihood takes, some of them changed."""
    columns = {"x": [f"{0.1 * i}" for i in range(12)], "y": list(range(1, 13)), "w": list(range(13, 25))}
    return tables.from_columns({**columns, **changed}, "a list")


@pytest.mark.parametrize("column", ["y", "x", "w"])
@pytest.mark.parametrize("likelihood", NAMES)
@pytest.mark.parametrize("cell", ["1e308", "-1.5e155", "1" * 400])
def test_a_number_too_large_is_named_before_anything_is_learned(cell, likelihood, column):
    table = numbered(**{column: [*range(1, 8), cell, *range(9, 13)]})
    with pytest.raises(TableError, match=f"a list, row 8: .* in column '{column}' is too large.*unit") as caught:
        tables.problem(table, "y", likelihood, roles=ROLES.get(likelihood, tables.Roles()))
    assert len(str(caught.value)) < 150  # a long cell is not written out


@pytest.mark.parametrize("column", ["y", "x"])
@pytest.mark.parametrize("likelihood", [name for name in NAMES if name not in ROLES])
def test_columns_of_nothing_but_tiny_numbers_are_named(likelihood, column):
    table = numbered(**{column: [f"{i + 1}e-320" for i in range(12)]})
    with pytest.raises(TableError, match=f"column '{column}' (are too small|differ by less).*its unit"):
        tables.problem(table, "y", likelihood)


def test_columns_of_small_and_large_numbers_beside_others_are_learned_from():
    p = ["0.5", "1e-200", "1e-320", "0.25", "0", "0.75"]
    huge = ["1e149", "-1e149", "0", "1", "2", "3"]
    table = tables.from_columns({"p": p, "huge": huge, "y": [1, 2, 1, 2, 1, 2]}, "t")
    encoding = tables.problem(table, "y").encoding
    assert np.isfinite(encoding.matrix(table)).all()
    assert encoding.matrix(table.only([1, 2]))[:, 0] == pytest.approx(-np.mean([0.5, 0.25, 0.75, 0, 0, 0]) / np.std(
        [0.5, 0.25, 0.75, 0, 0, 0]))  # fmt: skip


def test_counts_that_are_no_whole_numbers_any_more():
    table = tables.from_columns({"x": [1, 2, 3], "y": [1, 2, 10**16]}, "t")
    with pytest.raises(tables.TableError, match=r"row 3: 1e\+16 in column 'y' must be below"):
        tables.problem(table, "y", "poisson")
