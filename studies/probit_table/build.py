"""Build src/quantprop/projections/probit_table.npz and measure its error.

    python -m studies.probit_table.build

A quarter of a minute for the table, one minute for the error, on one core. No random number enters the table.

The tilted variable is t = z + (standard normal truncated to (−z, ∞)) + (noise of deviation c = 1/√v). Its
cumulative distribution comes from Gauss-Legendre panels summed from either end, its transport map
x(t) = Φ⁻¹(F(t)) from the smaller tail, and 1 − ρ = E[(t − μ − σ_W x)²]/σ² from a sum of squares, which keeps
the relative accuracy that 1 − σ_W²/σ² would lose. It agrees with the values of tests/oracles to 2e-16.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
from numpy.polynomial import chebyshev, legendre
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from quantprop.projections import probit_table

SHAPE_CELLS, NOISE_CELLS, DEGREE = 12, 18, 7
SAMPLES = 12  # Chebyshev points per cell and axis; the series is cut to DEGREE
SIZE_LIMIT = 128 * 1024
OUTPUT = Path(probit_table.__file__).with_suffix(".npz")

NODES, WEIGHTS = legendre.leggauss(16)
CUT = 190.0  # panels end where the density is below exp(−CUT/2) of its peak
LEFT_PANELS, GEOMETRIC_PANELS, BULK_PANELS = 12, 48, 24
FINEST = 1e-13  # smallest panel, relative to the width: what it leaves unresolved has mass 1e-13
CHUNK = 256


def cumulative_matrix() -> np.ndarray:
    """A[i, j]: the integral from −1 to NODES[i] of the j-th Lagrange polynomial of the nodes."""
    n = NODES.size
    values = legendre.legvander(NODES, n)
    degrees = np.arange(1, n)
    integrals = np.column_stack([NODES + 1.0, (values[:, 2:] - values[:, :-2]) / (2 * degrees + 1)])
    return integrals @ (WEIGHTS[:, None] * values[:, :n] * (np.arange(n) + 0.5)).T


FROM_LEFT = cumulative_matrix()
FROM_RIGHT = WEIGHTS - FROM_LEFT


def density(t: np.ndarray, z: np.ndarray, c: np.ndarray) -> np.ndarray:
    """exp(−(t − z)²/2b²) Φ((t + z c²)/(b c)) up to a constant factor, b² = 1 + c²; no exponent cancels."""
    b2 = 1.0 + c * c
    h = (t + z * c * c) / (np.sqrt(b2) * c)
    below = erfcx(-np.minimum(h, 0.0) / np.sqrt(2.0)) * np.exp(-t * t / (2.0 * c * c))
    exponent = (z * z * c * c + 2.0 * t * z - t * t) / (2.0 * b2)
    return np.where(h < 0.0, below, 2.0 * ndtr(np.maximum(h, 0.0)) * np.exp(np.where(h < 0.0, 0.0, exponent)))


def panel_edges(z: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Panels at both scales: the noise's, growing by factors of two from the edge t = 0, and the bulk's."""
    noise_end = c * np.sqrt(CUT)
    room = CUT * (1.0 + c * c) + z * z * c * c
    root = np.sqrt(z * z + room)
    bulk_end = np.where(z > 0.0, z + root, room / (np.abs(z) + root))
    end = np.where(noise_end < -z * c * c, noise_end, bulk_end)  # the noise alone reaches no further
    width = np.sqrt(1.0 / (1.0 + np.minimum(z, 0.0) ** 2) + c * c)
    first = np.maximum(c, FINEST * width)
    left = -noise_end[:, None] * np.linspace(1.0, 0.0, LEFT_PANELS + 1)
    growing = np.minimum(first[:, None] * 2.0 ** np.arange(GEOMETRIC_PANELS), end[:, None])
    bulk = end[:, None] * np.linspace(0.0, 1.0, BULK_PANELS + 1)[1:]
    return np.concatenate([left, np.sort(np.concatenate([growing, bulk], axis=1), axis=1)], axis=1)


def normal_quantile(tail: np.ndarray) -> np.ndarray:
    """Φ⁻¹ for 0 < tail ≤ ½, with one Newton step on log Φ."""
    x = ndtri(tail)
    hazard = np.exp(-0.5 * x * x) / (np.sqrt(2.0 * np.pi) * tail)
    return x - (log_ndtr(x) - np.log(tail)) / hazard


def gap_chunk(z: np.ndarray, c: np.ndarray) -> np.ndarray:
    edges = panel_edges(z, c)
    half = np.diff(edges, axis=1)[..., None] / 2.0
    t = edges[:, :-1, None] + half * (NODES + 1.0)
    mass = density(t, z[:, None, None], c[:, None, None]) * half
    panel = mass @ WEIGHTS
    total = panel.sum(axis=1)[:, None, None]
    left = np.cumsum(panel, axis=1) - panel
    right = np.cumsum(panel[:, ::-1], axis=1)[:, ::-1] - panel
    lower = (np.maximum(left, 0.0)[..., None] + mass @ FROM_LEFT.T) / total
    upper = (np.maximum(right, 0.0)[..., None] + mass @ FROM_RIGHT.T) / total
    x = normal_quantile(np.clip(np.minimum(lower, upper), 1e-300, 0.5))
    x = np.where(lower < upper, x, -x)
    p = mass * WEIGHTS / total

    def mean(values: np.ndarray) -> np.ndarray:
        return (p * values).sum(axis=(1, 2))[:, None, None]

    d = t - mean(t)
    residual = d - x * mean(d * x) / mean(x * x)
    return (mean(residual**2) / mean(d**2))[:, 0, 0]


def exact_gap(z: np.ndarray, c: np.ndarray) -> np.ndarray:
    """1 − ρ for z ≤ 8 and noise deviation c = 1/√v > 0 (flat arrays)."""
    return np.concatenate([gap_chunk(z[k : k + CHUNK], c[k : k + CHUNK]) for k in range(0, z.size, CHUNK)])


def noise_exponent(y: np.ndarray) -> np.ndarray:
    """ℓ = −log λ at noise_coordinate(λ²) = y.

    The coordinate is convex and decreasing in ℓ, so Newton's method rises monotonically from ℓ = 0.
    """
    powers, weights = np.array([0.25, 0.5, 2.0, 4.0]), np.array([3.0, 2.0, 1.0, 3.0]) / 9.0
    ell = np.zeros_like(y)
    for _ in range(200):
        terms = np.exp(-ell[..., None] * powers)
        ell = ell + (terms @ weights - y) / (terms @ (weights * powers))
    return np.maximum(ell, 0.0)


def inverse_coordinates(shape: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z, v and log B at coordinates in (0, 1): the maps of probit_table, backwards."""
    u = probit_table.BEND / (probit_table.SHAPE_MAX * shape) - probit_table.BEND
    w = probit_table.BEND**2 / u
    ell = noise_exponent(noise)
    s = -np.expm1(-2.0 * ell)
    return (
        1.0 + w - u,
        (1.0 + (u - 0.5) ** 2) * np.expm1(2.0 * ell),
        3.0 * np.log(s) - (1.0 + w) ** 2 / (1.0 + s),
    )


def build() -> np.ndarray:
    """Chebyshev series of log G per cell, cut to DEGREE, as monomials."""
    x = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
    series = np.linalg.inv(chebyshev.chebvander(x, SAMPLES - 1))[: DEGREE + 1]
    to_monomials = np.zeros((DEGREE + 1, DEGREE + 1))
    for k, unit in enumerate(np.eye(DEGREE + 1)):
        monomials = chebyshev.cheb2poly(unit)
        to_monomials[: monomials.size, k] = monomials
    project = to_monomials @ series
    shape = (np.arange(SHAPE_CELLS)[:, None] + (x + 1.0) / 2.0) / SHAPE_CELLS
    noise = (np.arange(NOISE_CELLS)[:, None] + (x + 1.0) / 2.0) / NOISE_CELLS
    grid = np.broadcast_arrays(shape[:, None, :, None], noise[None, :, None, :])
    z, v, log_b = inverse_coordinates(*grid)
    log_g = np.log(exact_gap(z.ravel(), 1.0 / np.sqrt(v.ravel()))).reshape(z.shape) - log_b
    return np.einsum("pa,ijab,qb->pijq", project, log_g, project)


def check_points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """z ≤ 8 and v > 0, a quarter each: at cell borders, inside cells, log-uniform, at the range's ends."""
    rng = np.random.default_rng(0)
    n = count // 4
    shape, noise = rng.uniform(1e-4, 1.0, (2, 2 * n))
    for coordinate, cells, part in (
        (shape, SHAPE_CELLS, slice(0, n, 2)),
        (noise, NOISE_CELLS, slice(1, n, 2)),
    ):
        border = coordinate[part]
        border[:] = np.ceil(border * (cells - 1)) / cells + rng.uniform(-1e-9, 1e-9, border.size)
    z, v = inverse_coordinates(shape, noise)[:2]
    wide_z = np.where(rng.uniform(size=n) < 0.5, rng.uniform(0.0, 8.0, n), -(10.0 ** rng.uniform(-2.0, 3.0, n)))
    corner_z = rng.choice([-1e3, -40.0, 0.0, 8.0], n) * (1.0 - rng.uniform(0.0, 0.02, n))
    wide_v = 10.0 ** rng.uniform(-16.0, 12.0, n)
    corner_v = rng.choice([1e-16, 1.0, 1e8, 1e12], n) * (1.0 - rng.uniform(0.0, 0.02, n))
    return np.concatenate([z, wide_z, corner_z]), np.concatenate([v, wide_v, corner_v])


def report(count: int) -> None:
    """Largest error of the stored table per region."""
    z, v = check_points(count)
    with jax.enable_x64(True):
        table = np.asarray(jax.jit(jax.vmap(probit_table.variance_gap))(z, v))
    error = np.abs(table - exact_gap(z, 1.0 / np.sqrt(v)))
    inner = (np.abs(z) <= 40.0) & (v <= 1e8)
    for name, part in (("|z| ≤ 40, √v ≤ 1e4", inner), ("beyond", ~inner)):
        k = np.argmax(np.where(part, error, -1.0))
        print(f"{name}: {part.sum()} points, error {error[k]:.2e} at z = {z[k]:.6g}, v = {v[k]:.6g}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the probit table and measure its error.")
    parser.add_argument("--points", type=int, default=200_000, help="points at which the error is measured")
    arguments = parser.parse_args()
    start = time.perf_counter()
    np.savez(OUTPUT, coefficients=build())
    size = OUTPUT.stat().st_size
    print(f"{OUTPUT}: {size} bytes, built in {time.perf_counter() - start:.1f} s")
    if size > SIZE_LIMIT:
        sys.exit(f"the table is larger than {SIZE_LIMIT} bytes")
    report(arguments.points)


if __name__ == "__main__":
    main()
