"""Reading: what a table holds, and what is said of a file that is none."""

import polars
import pytest
from awkward import SCRIPT, awkward

from quantprop.tables import TableError, from_bytes, read


def table(text):
    return from_bytes(text if isinstance(text, bytes) else text.encode(), "t.csv")


def test_an_awkward_table():
    found = table(awkward())
    assert found.names == ("größe, cm", "farbe", "Flag", "konst", SCRIPT, "$cost$", "urteil")
    assert len(found.rows) == 28
    assert found.rows[1][1] == "blau; hell"
    assert set(found.column("urteil")) == {"ja", "nein, nie"}
    assert found.lines[:3] == (2, 4, 5)  # a blank line follows the first row


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('a,b\n"1,5",x\n2,"y ""z"""\n', (("1,5", "x"), ("2", 'y "z"'))),
        ("a;b\n1,5;2\n2,5;3\n", (("1,5", "2"), ("2,5", "3"))),
        ("a\tb\n1\t2,2\n", (("1", "2,2"),)),
        ("a, b\n1 , 2\n", (("1", "2"),)),
        ("a\n1,2;3\n", (("1,2;3",),)),
        ('a,b\n"line\nbreak",2\n\n\n3,4', (("line\nbreak", "2"), ("3", "4"))),
        ("a,b\r1,2\r", (("1", "2"),)),
    ],
)
def test_separators_and_quotes(text, rows):
    assert table(text).rows == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty"),
        ("\n\n", "t.csv is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n\n3\n", "line 4: 1 cells, but the header has 2"),
        ("a,b\n1,2,3\n", "line 2: 3 cells, but the header has 2"),
        ('a,b\n1,2\n"3,4\n5,6\n', "line 3: a quote is never closed"),
        (b"a,b\n1,2\n\xe9,3\n", "line 3: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"a,b\n1,\0\n", "line 2: a NUL byte"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        (b"PK\x03\x04more", "export the sheet as CSV"),
        ("a,\n1,2\n", "column 2 has no name"),
        (",rownames\n1,2\n", "column 1 has no name"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("1,2\n3,4\n", "the first line must name the columns"),
    ],
)
def test_faults_are_named_with_their_place(text, message):
    with pytest.raises(TableError, match=r"t\.csv") as error:
        table(text)
    assert message in str(error.value)


def test_parquet_holds_the_same_cells(tmp_path):
    path = tmp_path / "t.parquet"
    polars.DataFrame({"x": [0.1, 1 / 3], "n": [1, None], "w": ["a,b", "ü"], "b": [True, False]}).write_parquet(path)
    found = read(path)
    assert found.rows == (("0.1", "1", "a,b", "True"), ("0.3333333333333333", "", "ü", "False"))
    assert found.where(1) == "row 2"
