"""Survival curves as lines with bands, and from the command line."""

import csv

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from quantprop import plots, tables
from quantprop.cli import app
from quantprop.runtime.listing import Listing


def curves(rows):
    at = [0.0, 1.0, 2.0]
    alive = {row: np.exp(-0.1 * row * np.array(at)) for row in rows}
    both = {"survival": 1.0, "lower": 0.9, "upper": 1.1}
    return Listing("curves", {
        "row": [row for row in rows for _ in at], "time": at * len(rows),
        **{name: [float(factor * s) for row in rows for s in alive[row]] for name, factor in both.items()},
    })  # fmt: skip


def test_a_line_and_a_band_for_each_row():
    ax = plots.survival(curves([2, 5]), {2: "early", 5: "late"}, time="years")
    assert [line.get_label() for line in ax.lines] == ["early", "late"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.exp([0.0, -0.5, -1.0]))
    lower = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert lower.min() == pytest.approx(0.9 * np.exp(-0.4))
    assert ax.get_xlabel() == "years"
    assert not plots.survival(curves(range(5))).collections
    with pytest.raises(ValueError, match="at most 8 curves"):
        plots.survival(curves(range(9)))


def test_curves_by_stage_from_the_command_line(tmp_path):
    """A model of times, and curves of new rows named by a column."""
    rng = np.random.default_rng(0)
    stage = np.repeat([1, 2, 3], 20)
    frame = pd.DataFrame({"stage": stage, "years": rng.exponential(9.0 / stage).round(2) + 0.01, "died": 1})
    frame.to_csv(tmp_path / "data.csv", index=False, quoting=csv.QUOTE_MINIMAL)
    (tmp_path / "new.csv").write_text("stage\n1\n3\n")

    def run(*words):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output

    model, picture = tmp_path / "model", tmp_path / "curves.svg"
    run("fit", tmp_path / "data.csv", "--target", "years", "--event", "died", "--likelihood", "weibull", "--kernel",
        "factor(stage)", "--method", "ep", "--out", model)  # fmt: skip
    run(
        "survival", model, tmp_path / "new.csv", "--time", "years", "--at", "1,5", "--picture", picture, "--by", "stage"
    )
    assert "<svg" in picture.read_text()
    found = tables.survival(tables.load(model), {"stage": [1, 3]}, "years", [5.0])
    assert found["survival"][0] > found["survival"][1] + 0.2
