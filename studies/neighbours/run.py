"""Neighbours against dense EP, fields of many labels, and flights: evidence, held-out density, seconds, memory.

python -m studies.neighbours.run table                   # 4,000 rows in 2 and in 8 columns, fixed hyperparameters
python -m studies.neighbours.run field 200000 ep         # a field of short range, learned from the first call
python -m studies.neighbours.run field 1000000 ep
python -m studies.neighbours.run flights sets.npz        # the file that studies.inducing.run data writes; all models
python -m studies.neighbours.run flights sets.npz 250000 "ARD, 512" trees            # rows, and some of the models
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import Dense, Inducing, Model, Neighbours, Parameter, fit, infer, kernels, likelihoods
from studies.inducing.data import read

HELD_OUT = 20_000
WAVES = 4_000  # random Fourier features of a Matérn-3/2 field
TABLE = {
    "dense": Dense(), "256 points": Inducing(256), "32 neighbours": Neighbours(32), "64 neighbours": Neighbours(64),
    "256 and 32": Inducing(256, neighbours=32), "512 and 32": Inducing(512, neighbours=32),
}  # fmt: skip


ARD, ROUGH = (kind(1.0, np.ones(8)) for kind in (kernels.SquaredExponential, kernels.Matern32))
FLIGHTS = {
    "ARD, 512": (ARD, Inducing(512)),
    "ARD, 512 and 32": (ARD, Inducing(512, neighbours=32)),
    "Matérn-3/2, 512 and 32": (ROUGH, Inducing(512, neighbours=32)),
    "additive and ARD, 1024": (kernels.Additive(order=3) + ARD, Inducing(1024)),
    "additive and ARD, 1024 and 32": (kernels.Additive(order=3) + ARD, Inducing(1024, neighbours=32)),
}


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
    model = Model(kernels.Matern32(1.0, 0.1), likelihoods.Probit(), process=Neighbours(32))
    learned(f"{n} rows", model, x, y, new, labels, method)


def learned(name: str, model: Model, x: Any, y: Any, new: Any, labels: Any, method: str) -> None:
    start = time.perf_counter()
    fitted = fit(model, x, y, method)
    seconds = time.perf_counter() - start
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", np.nan) / 1e9
    value, count = loss(fitted.solution, new, labels), len(fitted.trace)
    print(f"{name} by {method}: {seconds:.1f} s, {memory:.1f} GB so far, {value:.5f}, {count} evaluations, "
          f"{fitted.status}", flush=True)  # fmt: skip


def flights(file: Path, n: int, names: tuple[str, ...]) -> None:
    """Delays of flights: 20,000 held out, the next n learned from, every parameter from 1, the mean from 0."""
    data = read(file, "flights")
    order = np.random.default_rng(0).permutation(len(data.x))
    (new, x), (labels, y) = (np.split(part[order[: HELD_OUT + n]], [HELD_OUT]) for part in (data.x, data.y))
    for name in names:
        if name == "trees":
            trees(x, y, new, labels)
            continue
        kernel, process = FLIGHTS[name]
        model = Model(kernel, likelihoods.Probit(), Parameter(0.0), process)
        learned(name, model, x, y, new, labels, "ep")


def trees(x: Any, y: Any, new: Any, labels: Any) -> None:
    """Boosted trees, as scikit-learn has them, and with more and larger trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    for more in ({}, {"max_iter": 1000, "max_leaf_nodes": 63, "early_stopping": True, "n_iter_no_change": 20}):
        start = time.perf_counter()
        found = HistGradientBoostingClassifier(random_state=0, **more).fit(x, y).predict_proba(new)
        value = -np.mean(np.log(np.where(labels > 0, found[:, 1], found[:, 0])))
        print(f"trees {more}: {time.perf_counter() - start:.1f} s, {value:.5f}", flush=True)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "table":
        table()
    elif what == "field":
        field(int(given[0]), given[1])
    else:
        rows, names = int(given[1]) if given[1:] else 250_000, tuple(given[2:]) or (*FLIGHTS, "trees")
        flights(Path(given[0]), rows, names)
