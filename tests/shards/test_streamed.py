"""Rows that are read for every pass give what rows in memory give."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars
import pytest

from quantprop import EP, QP, Inducing, Model, Parameter, fit, infer, kernels, likelihoods, tables
from quantprop.core.parameters import as_fixed, packed
from quantprop.inference.engine import streamed as engine
from quantprop.inference.task import prepare, settled
from quantprop.learning import streamed
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.learning.streamed import Arrays, StreamedLandscape, fit_streamed
from shards.job import NEW, problem


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 96)


def model_of(points=8):
    return Model(kernels.SquaredExponential(1.0, np.ones(2)), likelihoods.Probit(), Parameter(0.1), Inducing(points))


def test_streamed_rows_have_the_evidence_and_the_gradient_of_rows_in_memory():
    rows = problem(250)
    model = settled(model_of(), rows["x"])
    whole = Landscape(model, prepare(model, rows["x"], rows["label"], EP(), None, None, None), EP(), Evidence())
    land = StreamedLandscape.of(model_of(), Arrays(rows["x"], rows["label"]), EP(), 1e-8)
    theta = packed(whole.parts) + 0.2
    one, other = whole.at(theta), land.at(theta)
    assert one.usable
    assert other.usable
    assert other.value == pytest.approx(one.value, rel=1e-11)
    assert np.max(np.abs(other.gradient - one.gradient)) <= 1e-7 * np.max(np.abs(one.gradient))
    sites = one.out.at.sites
    assert np.allclose(land.sites.tau, np.asarray(sites.tau)[:250], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("order", ["mixed", pytest.param("sorted", marks=pytest.mark.campaign)])
def test_a_pilot_shortens_the_way_to_the_same_end(order, monkeypatch):
    """Every third chunk goes ahead; of sorted rows they are no sample, which costs sweeps and nothing else."""
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 64)
    rows = problem(1200)
    by = np.argsort(rows["x"][:, 0]) if order == "sorted" else np.arange(1200)
    ends = []
    for chunks in (100, 6):
        monkeypatch.setattr(streamed, "PILOT", chunks)
        land = StreamedLandscape.of(model_of(), Arrays(rows["x"][by], rows["label"][by]), EP(), 1e-10)
        theta = packed(land.parts)
        assert (land.pilot(theta) is None) == (chunks == 100)
        points = [land.at(theta + step) for step in (0.0, 0.7)]
        ends.append((points, np.concatenate([land.sites.nu, land.sites.tau])))
    (plain, sites), (led, same) = ends
    for one, other in zip(plain, led, strict=True):
        assert other.reason == "converged"
        assert other.value == pytest.approx(one.value, rel=1e-12)
        np.testing.assert_allclose(other.gradient, one.gradient, atol=1e-7 * np.abs(one.gradient).max())
    np.testing.assert_allclose(same, sites, rtol=1e-7, atol=1e-9)
    if order == "mixed":
        assert sum(at.out.sweeps for at in led) < sum(at.out.sweeps for at in plain)


def test_a_pilot_that_finds_no_end_leaves_all_as_it_was(monkeypatch):
    rows = problem(300)
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 32)
    monkeypatch.setattr(streamed, "PILOT", 3)
    land = StreamedLandscape.of(model_of(), Arrays(rows["x"], rows["label"]), EP(), 1e-10)
    theta = packed(land.parts)
    expected, before = land.at(theta), np.concatenate([land.sites.nu, land.sites.tau])
    after, led = [], engine._led

    def watched(*args):
        factor = led(*args)
        assert factor is args[2]
        after.append(np.concatenate([land.sites.nu, land.sites.tau]))
        return factor

    monkeypatch.setattr(engine, "LEADING", 1)
    monkeypatch.setattr(engine, "_led", watched)
    found = land.at(theta + 0.3)
    np.testing.assert_array_equal(after, [before])
    assert found.reason == "converged"
    again = land.at(theta)
    assert again.value == pytest.approx(expected.value, rel=1e-12)


def test_a_file_is_learned_from_as_arrays_are(tmp_path):
    rows = problem(250)
    frame = polars.DataFrame({"a": rows["x"][:, 0], "b": rows["x"][:, 1], "y": rows["label"]})
    frame.write_parquet(tmp_path / "some.parquet", row_group_size=70)
    spool = tables.spooled(tmp_path / "some.parquet", "y", tmp_path / "rows")
    x = (rows["x"] - rows["x"].mean(axis=0)) / rows["x"].std(axis=0)
    assert np.allclose(spool.read(0, 250)[0], x, rtol=1e-12, atol=1e-12)
    precise: dict[str, Any] = {
        "tol": 1e-11,
        "gtol": 1e-8,
    }  # by slopes of 1e-4 an optimum as flat as this one is known to 1e-4
    found, expected = fit_streamed(model_of(), spool, **precise), fit(model_of(), x, rows["label"], EP(), **precise)
    assert found.status.reason == expected.status.reason == "converged"
    assert found.objective_value == pytest.approx(expected.objective_value, rel=1e-9)
    assert np.max(np.abs(found.theta - expected.theta)) <= 1e-6
    in_memory = replace(
        expected.solution, model=as_fixed(expected.model)
    )  # streamed predictions take the mean as known
    new, known = found.solution.predict(NEW), in_memory.predict(NEW)
    assert np.allclose(new.mean, known.mean, rtol=1e-6, atol=1e-6)
    assert np.allclose(new.variance, known.variance, rtol=1e-6)
    assert np.allclose(found.solution.loo, expected.solution.loo[:96], atol=1e-7)


def test_what_cannot_be_streamed_is_refused(tmp_path):
    rows = problem(40)
    with pytest.raises(ValueError, match="EP or power EP"):
        fit_streamed(model_of(), Arrays(rows["x"], rows["label"]), QP())


def written(file, n=4000):
    rows = problem(n)
    polars.DataFrame({"a": rows["x"][:, 0], "y": rows["label"]}).write_parquet(file, row_group_size=1000)
    return file.read_bytes()


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_a_damaged_file_is_named(tmp_path, damage):
    file = tmp_path / "damaged.parquet"
    whole = written(file)
    half = len(whole) // 2
    file.write_bytes(whole[:half] if damage == "cut" else whole[:half] + bytes(2000) + whole[half + 2000 :])
    with pytest.raises(tables.TableError, match=r"damaged\.parquet cannot be read completely"):
        tables.spooled(file, "y", tmp_path / "rows")


def test_a_full_disk_is_named(tmp_path, small_files):
    written(tmp_path / "some.parquet")
    with small_files(20_000), pytest.raises(tables.TableError, match=r"rows cannot be written \(File too large\)"):
        tables.spooled(tmp_path / "some.parquet", "y", tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


@pytest.mark.campaign
def test_sweeps_that_need_short_steps_converge():
    """Student-t noise with outliers: steps of ½ let residuals grow, shorter ones do not."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-3, 3, (120, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * draw.standard_t(2, 120)
    y[::9] += 8 * draw.normal(size=len(y[::9]))
    model = Model(kernels.SquaredExponential(10.0, 0.5), likelihoods.StudentT(2.0, 0.05), process=Inducing(20))
    land = StreamedLandscape.of(model, Arrays(x, y), EP(), 1e-8)
    point = land.at(packed(land.parts))
    assert point.usable, point.reason
    assert point.value == pytest.approx(infer(land.model, x, y, "ep", tol=1e-8).log_evidence, abs=1e-6)
