"""The command line: what it prints, what it writes, and how it ends."""

import json

import pytest
from experiments.pretend import PLAN, Pretend
from typer.testing import CliRunner

import quantprop
from quantprop import datasets
from quantprop.cli import app
from quantprop.experiments import rows
from quantprop.experiments.sweep import run

OPTIONS = ["--datasets", "wine2,mining", "--rounds", "2", "--jobs", "1"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_version():
    result = call("version")
    assert (result.exit_code, result.stdout) == (0, f"{quantprop.__version__}\n")


def test_datasets():
    assert [line.split()[0] for line in call("datasets").stdout.splitlines()] == list(datasets.names())
    records = {record["name"]: record for record in json.loads(call("datasets", "--variant", "paper", "--json").stdout)}
    assert (records["pima"]["rows"], records["pima"]["columns"]) == (732, 7)
    assert "exact copies" in records["pima"]["description"]
    assert call("datasets", "--variant", "dirty").exit_code == 2


def test_table1_from_a_folder_that_has_all_rows(tmp_path):
    run(PLAN, tmp_path, Pretend())
    result = call("reproduce", "table1", *OPTIONS, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["failed"], summary["not_converged"]) == (66, 0, 0)
    made = {path.name for path in tmp_path.iterdir()}
    assert {"table1.md", "figure1a-paper.svg", "figure1b-paper.svg"} <= made
    assert {str(tmp_path / name) for name in ("table1.md", "figure1a-paper.svg")} <= set(summary["files"])


@pytest.mark.campaign
def test_figure1_is_ep_and_qp_and_no_table(tmp_path):
    run(PLAN, tmp_path, Pretend())
    result = call("reproduce", "figure1", *OPTIONS, "--out", tmp_path)
    assert result.stdout.startswith(f"44 rows in {tmp_path}: 0 without a result, 0 not converged")
    assert not (tmp_path / "table1.md").exists()
    assert (tmp_path / "figure1a-paper.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table2"], "table2"),
        (["table1", "--datasets", "iris"], "got iris"),
        (["table1", "--methods", "ep,mcmc"], "got mcmc"),
        (["table1", "--rounds", "0"], "--rounds"),
        (["table1", "--jobs", "-1"], "--jobs"),
        (["table1", "--variant", "papers"], "papers"),
        (["table1", "--split", "month"], "month"),
        (["figure1", "--methods", "vb"], "figure1"),
        (["table1", "--jobs", "2", "--dask", "tcp://host:8786"], "pass one of them"),
    ],
)
def test_bad_options_are_named(tmp_path, words, message):
    result = call("reproduce", *words, "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "new").exists()


def test_a_failure_is_one_line(tmp_path):
    with rows.locked(tmp_path):
        result = call("reproduce", "table1", *OPTIONS, "--out", tmp_path)
        shown = call("reproduce", "table1", *OPTIONS, "--out", tmp_path, "--debug")
    assert result.exit_code == 1
    assert f"error: another run writes to {tmp_path}" in result.stderr
    assert "Traceback" not in result.output
    assert isinstance(shown.exception, rows.Busy)


def test_an_interrupt_has_its_own_code(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("quantprop.experiments.sweep.run", interrupted)
    result = call("reproduce", "table1", *OPTIONS, "--out", tmp_path)
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr
