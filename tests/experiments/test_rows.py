"""Rows on disk: what is written is what is read, whatever ends the writing."""

import dataclasses
import json
import math
import subprocess
import sys

import pytest

from quantprop.experiments import rows
from quantprop.experiments.rows import Row

ROW = Row(
    dataset="wine2", variant="paper", kernel="isotropic", objective="evidence", split="fold", round=3, fold=4,
    method="qp", seed=30, te=0.1, ntll=math.inf,
    hyperparameters={"kernel.variance": 0.1 + 0.2, "kernel.lengthscale": [1.0, 2.5]},
    evidence=-8.1, sweeps=3, evaluations=12, status="converged … −∞", converged=True, seconds=1.5,
    versions={"jax": "0.10"}, forecasts={}, test={"y": [1.0], "log_prob": [-math.inf]},
)  # fmt: skip


def numbered(i):
    return dataclasses.replace(ROW, round=i)


def written(folder, many):
    with rows.locked(folder), rows.appending(folder) as append:
        append(rows.lines(many))


def test_rows_come_back_to_the_last_bit(tmp_path):
    failed = dataclasses.replace(ROW, method="vb", te=None, ntll=None, hyperparameters={}, evidence=None, test={})
    written(tmp_path, [ROW, failed])
    assert rows.read(tmp_path) == [ROW, failed]
    assert (rows.read(tmp_path)[0].failed, rows.read(tmp_path)[1].failed) == (False, True)
    lines = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["hyperparameters"]["kernel.variance"] == 0.30000000000000004


def test_no_rows_yet(tmp_path):
    assert rows.read(tmp_path) == []


@pytest.mark.parametrize("kept", [1, 100, -1])
def test_an_unfinished_last_line_is_no_row_and_is_cut_off_before_writing(tmp_path, kept):
    written(tmp_path, [numbered(0), numbered(1)])
    path = tmp_path / "rows.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:kept])
    assert rows.read(tmp_path) == [numbered(0)]
    written(tmp_path, [numbered(2)])
    assert rows.read(tmp_path) == [numbered(0), numbered(2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"dataset": "wine2"', "line 2: not JSON"),
        ("[1]", "line 2: not an object"),
        ('{"dataset": "wine2", "colour": 1}', "line 2: without .*variant.*; with unknown colour"),
        (rows.to_json(numbered(0)), "line 2: the same experiment and method as line 1"),
        ("", "line 2: not JSON"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    written(tmp_path, [numbered(0)])
    with open(tmp_path / "rows.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n" + rows.to_json(numbered(1)) + "\n")
    with pytest.raises(rows.Malformed, match=message):
        rows.read(tmp_path)


HOLDER = """
import sys, time
from pathlib import Path
from quantprop.experiments import rows
with rows.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_run_at_a_time_and_the_lock_dies_with_its_process(tmp_path, source):
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], env=source, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(rows.Busy, match="another run writes to"), rows.locked(tmp_path):
            pass
        other.kill()
        other.wait()
        written(tmp_path, [ROW])
    assert rows.read(tmp_path) == [ROW]


def test_a_system_without_locks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(OSError, match="cannot be locked on this system: run experiments on Linux or macOS"):
        written(tmp_path / "new", [ROW])
    assert not (tmp_path / "new").exists()
