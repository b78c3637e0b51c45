"""Neighbours against dense EP, and fields of many labels: evidence, held-out density, seconds, memory.

python -m studies.neighbours.run table                   # 4,000 rows in 2 and in 8 columns, fixed hyperparameters
python -m studies.neighbours.run field 200000 ep         # a field of short range, learned from the first call
python -m studies.neighbours.run field 1000000 ep
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import Dense, Inducing, Model, Neighbours, fit, infer, kernels, likelihoods

HELD_OUT = 20_000
WAVES = 4_000  # random Fourier features of a Matérn-3/2 field
TABLE = {
    "dense": Dense(), "256 points": Inducing(256), "32 neighbours": Neighbours(32), "64 neighbours": Neighbours(64),
    "256 and 32": Inducing(256, neighbours=32), "512 and 32": Inducing(512, neighbours=32),
}  # fmt: skip


def rows_of(n: int, columns: int, length: float) -> tuple[np.ndarray, ...]:
    """X and labels of n rows, then of those held out: a Matérn-3/2 field of variance 4 with standard normal noise."""
    rng = np.random.default_rng(0)
    total = n + HELD_OUT
    x = rng.uniform(size=(total, 2)) if columns == 2 else rng.normal(size=(total, columns))
    w = rng.normal(size=(WAVES, columns)) / np.sqrt(rng.gamma(1.5, 1 / 1.5, WAVES))[:, None] / length
    b, a = 2.0 * np.pi * rng.uniform(size=WAVES), rng.normal(size=WAVES)
    with jax.enable_x64(True):
        field = jax.jit(lambda some: 2.0 * np.sqrt(2.0 / WAVES) * jnp.cos(some @ w.T + b) @ a)
        f = np.concatenate([np.asarray(field(x[i : i + 20_000])) for i in range(0, total, 20_000)])
    y = np.sign(f + rng.normal(size=total))
    return x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT]


def loss(solution: Any, x: np.ndarray, y: np.ndarray) -> float:
    """The negative log density of held-out labels, per row."""
    return -float(np.mean(solution.predict_y(x).log_prob(y)))


def table() -> None:
    for columns, length in ((2, 0.05), (8, 3.0)):
        x, y, new, labels = rows_of(4_000, columns, length)
        for name, process in TABLE.items():
            model = Model(kernels.Matern32(4.0, length), likelihoods.Probit(), process=process)
            solution = infer(model, x, y, "ep")
            print(
                f"{columns} columns, {name}: {solution.log_evidence:.2f}, {loss(solution, new, labels):.5f}", flush=True
            )


def field(n: int, method: str) -> None:
    x, y, new, labels = rows_of(n, 2, 0.03)
    start = time.perf_counter()
    model = Model(kernels.Matern32(1.0, 0.1), likelihoods.Probit(), process=Neighbours(32))
    fitted = fit(model, x, y, method)
    seconds = time.perf_counter() - start
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", np.nan) / 1e9
    held_out = loss(fitted.solution, new, labels)
    print(f"{n} rows by {method}: {seconds:.1f} s, {memory:.1f} GB, {held_out:.5f}, {fitted.status}")


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    table() if what == "table" else field(int(given[0]), given[1])
