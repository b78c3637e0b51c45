"""The probit table against 20-digit values, at its borders, in its limits, and through its derivatives."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from functools import partial
from importlib import resources
from pathlib import Path

import jax
import numpy as np
import pytest

from quantprop.projections import probit_table

REFERENCE = json.loads((Path(__file__).parents[1] / "oracles" / "probit_ratio_reference.json").read_text())
BLOCK = 4096
EXPONENTIAL_GAP = 0.18423466334146702  # 1 − σ_W² of the standard exponential distribution (mpmath)


VALUE = jax.jit(jax.vmap(probit_table.variance_gap))
GRADIENT = jax.jit(jax.vmap(jax.grad(probit_table.variance_gap, argnums=(0, 1))))
HESSIAN = jax.jit(jax.vmap(jax.hessian(probit_table.variance_gap, argnums=(0, 1))))


def padded(function, z, v) -> np.ndarray:
    """function(z, v) in float64, broadcast; blocks of one length, so that each function is compiled once."""
    z, v = np.broadcast_arrays(np.asarray(z, float), np.asarray(v, float))
    blocks, n = -(-z.size // BLOCK), z.size
    flat = [np.resize(a.ravel(), (blocks, BLOCK)) for a in (z, v)]
    with jax.enable_x64(True):
        parts = [np.asarray(function(*block)) for block in zip(*flat, strict=True)]
    return np.concatenate(parts, axis=-1)[..., :n].reshape(*parts[0].shape[:-1], *z.shape)


def gap(z, v) -> np.ndarray:
    return padded(VALUE, z, v)


def gradient(z, v) -> np.ndarray:
    """∂gap/∂z and ∂gap/∂v, stacked on the first axis."""
    return padded(GRADIENT, z, v)


def whole_plane(n: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """z in ±[1e-3, 1e3] and √v in [1e-8, 1e6], evenly in logarithms."""
    rng = np.random.default_rng(1)
    return rng.choice([-1.0, 1.0], n) * 10 ** rng.uniform(-3, 3, n), 10 ** rng.uniform(-16, 12, n)


def shape_borders() -> np.ndarray:
    """The z of the borders between cells, and of the last cell's end."""
    cells = probit_table.coefficients().shape[1]
    u = probit_table.BEND * (cells / (probit_table.SHAPE_MAX * np.arange(1, cells + 1)) - 1.0)
    return 1.0 + probit_table.BEND**2 / u - u


def noise_borders(z: float) -> np.ndarray:
    """The v of the borders between cells at one z."""
    cells = probit_table.coefficients().shape[2]
    low, high = np.zeros(cells - 1), np.full(cells - 1, 60.0)  # −log λ, by bisection
    with jax.enable_x64(True):
        for _ in range(70):
            middle = (low + high) / 2.0
            coordinate = np.asarray(probit_table.noise_coordinate(np.exp(-2.0 * middle)))
            left = coordinate > np.arange(1, cells) / cells
            low, high = np.where(left, middle, low), np.where(left, high, middle)
        d = 1.0 + (float(probit_table.bend(z)[0]) - 0.5) ** 2
    return d * np.expm1(2.0 * low)


def reference(inner: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = [r for r in REFERENCE if (abs(r["z"]) <= 40.0 and r["v"] <= 1e8) == inner]
    z, v = (np.array([r[name] for r in rows]) for name in ("z", "v"))
    return z, v, np.array([float(1 - Decimal(r["rho"])) for r in rows])


def test_the_reference_is_large_and_sharp():
    assert len(REFERENCE) >= 150
    assert max(r["bound"] for r in REFERENCE) <= 1e-13


@pytest.mark.parametrize(("inner", "bound"), [(True, 1e-10), (False, 1e-8)])
def test_error_against_the_reference(inner, bound):
    z, v, expected = reference(inner)
    assert z.size >= 40
    np.testing.assert_allclose(gap(z, v), expected, rtol=0, atol=bound)


def test_relative_error_where_the_gap_vanishes():
    z, v, expected = (np.concatenate(part) for part in zip(reference(True), reference(False), strict=True))
    small = (expected > 1e-19) & (z < 6.5)  # the reference carries 25 digits of ρ
    assert (expected[small] < 1e-12).sum() >= 10
    np.testing.assert_allclose(gap(z, v)[small], expected[small], rtol=1e-4, atol=1e-11)
    np.testing.assert_allclose(gap(z, v)[small], expected[small], rtol=0.02)


def test_the_gap_lies_between_zero_and_the_exponential_limit():
    values = gap(*whole_plane())
    assert values.min() >= 0.0
    assert values.max() <= EXPONENTIAL_GAP + 1e-10


def test_the_gap_decays_smoothly():
    for v in (0.1, 1.0, 100.0, np.inf):
        values = gap(np.linspace(3.0, 20.0, 500), v)
        assert np.all(np.diff(values) < 0.0)
    assert np.all(np.diff(gap(-2.0, 10.0 ** np.linspace(-100, -1, 500))) > 0.0)


def test_extreme_inputs_reach_their_limits():
    largest = np.finfo(float).max
    exponential = [(-1e300, np.inf), (-largest, 1e308), (-1e60, 1e200)]
    gaussian = [(-1e300, 1.0), (1e300, 1e300), (largest, np.inf), (-1e300, 0.0), (0.0, 0.0), (0.0, 5e-324)]
    for points, limit in ((exponential, EXPONENTIAL_GAP), (gaussian, 0.0)):
        z, v = np.array(points).T
        np.testing.assert_allclose(gap(z, v), limit, rtol=0, atol=1e-10)
        assert np.isfinite(gradient(z, v)).all()
    z, v = np.array([*exponential, *gaussian]).T
    assert np.isfinite(padded(lambda *at: np.array(HESSIAN(*at)), z, v)).all()
    decades = 10.0 ** np.arange(-300, 309, 8)
    z, v = np.meshgrid(np.r_[-decades, 0.0, decades], decades)
    assert np.all((gap(z, v) >= 0.0) & (gap(z, v) <= EXPONENTIAL_GAP + 1e-10))
    assert np.isfinite(gradient(z, v)).all()


def test_huge_variances_are_the_heaviside_likelihood():
    z = np.array([r["z"] for r in REFERENCE if r["v"] == np.inf])
    expected = np.array([float(1 - Decimal(r["rho"])) for r in REFERENCE if r["v"] == np.inf])
    for v in (1e30, 1e300, np.inf):
        np.testing.assert_allclose(gap(z, v), expected, rtol=0, atol=1e-10)


def test_nan_is_not_hidden():
    assert np.isnan(gap([np.nan, 0.0], [1.0, np.nan])).all()


def test_derivatives_match_differences():
    z, v = whole_plane(4_000)
    z[:3] = 0.0, 1.0, -1.0
    v[:3] = 2.0
    dz, dv = gradient(z, v)
    assert np.isfinite(dz).all()
    assert np.isfinite(dv).all()
    h, t = 1e-3 * np.maximum(1.0, np.abs(z)), 1e-3

    def difference(f, step):
        return (8.0 * (f(step) - f(-step)) - (f(2.0 * step) - f(-2.0 * step))) / (12.0 * step)

    np.testing.assert_allclose(dz, difference(lambda e: gap(z + e, v), h), rtol=0, atol=1e-6)
    np.testing.assert_allclose(v * dv, difference(lambda e: gap(z, v * np.exp(e)), t), rtol=0, atol=1e-6)


@pytest.mark.parametrize("place", [(50.0, 1.0), (-1e75, 1.0), (0.0, np.inf)])
def test_beyond_the_limits_nothing_moves_the_ratio(place):
    away = tuple(np.inf if abs(x) > 40.0 else 0.0 for x in place)  # along the coordinate that is beyond its limit
    with jax.enable_x64(True):
        _, moved = jax.jit(partial(jax.jvp, probit_table.variance_gap))(place, away)
    assert moved == 0.0


def assert_continuous(below: tuple, above: tuple) -> None:
    np.testing.assert_allclose(gap(*below), gap(*above), rtol=0, atol=1e-10)
    (dz_below, dv_below), (dz_above, dv_above) = gradient(*below), gradient(*above)
    np.testing.assert_allclose(dz_below, dz_above, rtol=0, atol=1e-6)
    scale = np.where(np.isinf(below[1]), 0.0, below[1])
    np.testing.assert_allclose(scale * dv_below, scale * dv_above, rtol=0, atol=1e-6)  # along log v


def test_values_and_derivatives_are_continuous_across_cells():
    z, v = shape_borders()[:, None], np.r_[10.0 ** np.linspace(-6, 12, 60), 1e300]
    assert_continuous((z - 1e-13 * np.abs(z), v), (z + 1e-13 * np.abs(z), v))
    z = np.array([-1e3, -40.0, -5.0, -1.0, 0.0, 1.5, 4.0])
    v = np.array([noise_borders(margin) for margin in z])
    assert_continuous((z[:, None], v * (1 - 1e-12)), (z[:, None], v * (1 + 1e-12)))


def test_the_file_is_small():
    file = resources.files("quantprop.projections").joinpath("probit_table.npz")
    assert len(file.read_bytes()) <= 128 * 1024
    assert probit_table.coefficients().dtype == np.float64


def test_importing_leaves_jax_alone():
    program = (
        "import jax, quantprop.projections.probit_table as table\n"
        "assert not jax.live_arrays() and not jax.config.jax_enable_x64\n"
        "assert table.coefficients.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
