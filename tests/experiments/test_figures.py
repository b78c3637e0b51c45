"""Figures from rows: what is drawn, read back from the axes, and files that are the same on every run."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from quantprop.experiments import figures
from quantprop.experiments.rows import Row, appending, lines, read

SOURCE = Path(__file__).resolve().parents[2] / "src"


def row(dataset, method, test, fold=0, ntll=0.2, **more) -> Row:
    usual = {
        "variant": "paper", "kernel": "isotropic", "objective": "evidence", "split": "fold", "round": 0, "seed": 0,
        "te": 0.1, "hyperparameters": {}, "evidence": -3.0, "sweeps": 4, "evaluations": 9, "status": "converged",
        "converged": True, "seconds": 1.5, "versions": {}, "forecasts": {},
    }  # fmt: skip
    return Row(dataset=dataset, method=method, test=test, fold=fold, ntll=ntll, **{**usual, **more})


def both(dataset, ep, qp, ntll=(0.3, 0.2), **more) -> list[Row]:
    """EP's and QP's rows of one experiment with given latent variances."""
    same = {"y": [1.0, -1.0, 1.0][: len(ep)], "mean": [0.3, -2.0, -0.5][: len(ep)]}
    of_qp = same | {"variance": [0.9 * v for v in qp], "variance_at_ep": qp}
    return [
        row(dataset, "ep", same | {"variance": ep}, ntll=ntll[0], **more),
        row(dataset, "qp", of_qp, ntll=ntll[1], **more),
    ]


def example() -> list[Row]:
    rows = both("crabs", [1.0, 20.0, 300.0], [0.9, 19.0, 310.0]) + both("crabs", [5.0], [4.0], fold=1, ntll=(0.4, 0.5))
    rows += both("wine$2$", [0.1, 0.2], [0.1, 0.19], ntll=(math.inf, 0.1))
    return rows + both("mining", [2.0, 3.0], [1.0, 2.9], split="year", ntll=(1.6, 1.5))


def drawn(rows) -> dict:
    return dict(figures.figures(rows))


def points(ax) -> list[list]:
    """Coordinates of everything scattered, a list for each set of points."""
    return [np.asarray(collection.get_offsets()).tolist() for collection in ax.collections]


def title(figure) -> str:
    return figure.get_suptitle().splitlines()[0]


def test_every_setting_has_its_own_set_of_figures():
    rows = example() + both("crabs", [1.0], [0.5], variant="clean", kernel="ard", objective="loo")
    assert sorted(drawn(rows)) == sorted(
        ["figure1a-paper", "figure1b-paper", "ntll-paper", "reliability-crabs-paper", "reliability-wine%242%24-paper"]
        + [f"{name}-clean-ard-loo" for name in ("figure1a", "ntll", "reliability-crabs")]
    )


def test_figure_1_draws_every_pair_of_variances_at_eps_hyperparameters():
    figure = drawn(example())["figure1a-paper"]
    left, right = figure.axes
    crabs, wine = [[1.0, 0.9], [20.0, 19.0], [300.0, 310.0], [5.0, 4.0]], [[0.1, 0.1], [0.2, 0.19]]
    assert points(left) == [crabs, wine]
    assert points(right) == [[[ep, pytest.approx(qp / ep)] for ep, qp in group] for group in (crabs, wine)]
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale()) == ("log", "log", "log")
    (diagonal,) = left.lines
    assert diagonal.get_xydata().tolist() == [[0.1, 0.1], [310.0, 310.0]]
    assert right.lines[0].get_ydata() == [1.0, 1.0]
    assert title(figure) == "QP's latent variance is not above EP's at 5 of 6 test points"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["crabs", r"wine\$2\$"]


def test_figure_1b_is_the_one_of_counts():
    figure = drawn(example())["figure1b-paper"]
    assert points(figure.axes[0]) == [[[2.0, 1.0], [3.0, 2.9]]]


def test_log_likelihoods_of_every_experiment():
    figure = drawn(example())["ntll-paper"]
    crabs, mining, wine = ([drawn.get_offsets() for drawn in ax.collections] for ax in figure.axes)
    np.testing.assert_allclose(crabs, [[[0.3, -0.1], [0.4, 0.1]]], rtol=1e-12)
    np.testing.assert_allclose(mining, [[[1.6, -0.1]]], rtol=1e-12)
    assert len(wine[0]) == 0
    assert figure.axes[0].lines[0].get_ydata() == [0.0, 0.0]
    assert [ax.get_title() for ax in figure.axes] == [
        "crabs\nQP below in 1 of 2",
        "mining (by year)\nQP below in 1 of 1",
        "wine\\$2\\$\nQP below in 1 of 1; 1 infinite",
    ]


def test_reliability_bins_the_probability_of_plus_one():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=60), rng.gamma(2.0, size=60)
    y = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    halves = [slice(0, 25), slice(25, 60)]
    tests = [{"y": y[s].tolist(), "mean": mean[s].tolist(), "variance": variance[s].tolist()} for s in halves]
    rows = [row("crabs", "vb", test, fold=fold) for fold, test in enumerate(tests)]
    figure = drawn([*rows, row("crabs", "laplace", tests[0])])["reliability-crabs-paper"]
    vb, laplace = figure.axes
    assert (vb.get_title(), laplace.get_title()) == ("VB: 60 forecasts", "Laplace: 25 forecasts")
    p = norm.cdf(mean / np.sqrt(1.0 + variance))
    bins = np.digitize(p, np.linspace(0.1, 0.9, 9))
    expected = [[p[bins == k].mean(), (y[bins == k] > 0).mean()] for k in np.unique(bins)]
    observed = vb.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(observed, expected, rtol=1e-12)


def test_failed_rows_and_methods_alone_draw_no_comparison():
    ep, _ = both("crabs", [1.0], [0.5])
    nothing = {"te": None, "ntll": None, "converged": False}
    assert list(drawn([ep, row("crabs", "qp", {}, **nothing)])) == ["reliability-crabs-paper"]
    assert list(drawn([ep])) == ["reliability-crabs-paper"]
    assert drawn([]) == {}


@pytest.mark.campaign
def test_files_are_the_same_bytes_on_every_run_and_in_any_order_of_rows(tmp_path):
    runs = []
    rows = both("crabs", [1.0, 20.0, 300.0], [0.9, 19.0, 310.0])
    for name, order in (("one", rows), ("two", rows[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        with appending(folder) as append:
            append(lines(order))
        paths = figures.write(folder, read(folder))
        assert sorted(path.name for path in folder.iterdir()) == sorted([*(path.name for path in paths), "rows.jsonl"])
        runs.append({path.name: path.read_bytes() for path in paths})
    assert len(runs[0]) == 6
    assert runs[0] == runs[1]
    assert runs[0]["figure1a-paper.png"].startswith(b"\x89PNG")
    assert runs[0]["figure1a-paper.svg"].startswith(b"<?xml")


@pytest.mark.campaign
def test_without_matplotlib_the_error_says_what_to_install():
    probe = "import sys; sys.modules['matplotlib'] = None; import quantprop.experiments.figures"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'quantprop[plots]'" in done.stderr
