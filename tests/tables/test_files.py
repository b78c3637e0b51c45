"""Files that cannot be read or written: messages name the user's file and say what to do."""

import errno
import os
import sys

import numpy as np
import polars as pl
import pytest

from quantprop import tables
from quantprop.cli.predict import _to_parquet
from quantprop.storage.files import replace_file, replacing
from quantprop.tables.encoding import learned


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "good.parquet"
    pl.DataFrame({"x": np.arange(2000.0), "y": np.arange(2000.0) % 7}).write_parquet(path)
    return path.read_bytes()


READERS = {
    "read": tables.read,
    "chunks": lambda path: list(tables.Chunks(str(path)).tables()),
    "spooled": lambda path: tables.spooled(path, "y", path.with_suffix(".rows")),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("harm", ["cut", "damaged", "magic alone"])
def test_damaged_parquet(harm, reader, parquet, tmp_path):
    data = {"cut": parquet[: len(parquet) // 2], "damaged": parquet[:200] + bytes(700) + parquet[900:]}
    path = tmp_path / "table.parquet"
    path.write_bytes(data.get(harm, b"PAR1"))
    with pytest.raises(tables.TableError, match="cut short or damaged: copy it again") as caught:
        READERS[reader](path)
    assert str(caught.value).startswith(f"{path} cannot be read")


@pytest.mark.parametrize("reader", READERS)
def test_parquet_without_a_library_for_it(reader, parquet, tmp_path, monkeypatch):
    for library in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path / "table.parquet"
    path.write_bytes(parquet)
    with pytest.raises(tables.TableError, match="which needs polars: pip install") as caught:
        READERS[reader](path)
    assert str(caught.value).startswith(str(path))


def test_a_full_disk_is_said_of_the_file_that_was_to_be_written(tmp_path):
    path = tmp_path / "model"
    path.write_text("old")
    for number, words in ((errno.ENOSPC, "No space left on device .make room"), (errno.EACCES, "Permission denied")):
        with pytest.raises(OSError, match=words) as caught, replacing(str(path)) as temporary:
            raise OSError(number, os.strerror(number), temporary)
        assert caught.value.filename == str(path)
        assert path.read_text() == "old"


@pytest.mark.parametrize("error", [pl.exceptions.ComputeError("no space left"), OSError("no space left")])
def test_parquet_that_cannot_be_written(error, tmp_path, monkeypatch):
    def failing(*_):
        raise error

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", failing)
    path = tmp_path / "forecasts.parquet"
    with (
        pytest.raises(OSError, match="Parquet cannot be written") as caught,
        replacing(str(path)) as out,
    ):
        _to_parquet(iter([{"mean": [1.0]}]), out)
    assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Is a folder, a pipe or a device"):
        replace_file(str(tmp_path / "pipe"), b"")
    assert not os.path.isfile(tmp_path / "pipe")


# --- many columns ----------------------------------------------------------------------------------------------------


class Counted(str):
    """A name that counts how often it is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("work", [tables.missing, lambda table: learned(table)[0].raw(table)])
def test_work_grows_with_the_columns_and_not_with_their_square(work):
    names = tuple(Counted(f"c{i}") for i in range(400))
    table = tables.Table(names, (("1",) * 400, ("2",) * 400), (1, 2), "made up")
    Counted.compared = 0
    work(table)
    assert Counted.compared < 10 * len(names)
