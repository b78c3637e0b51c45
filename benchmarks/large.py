"""One large problem, for accelerators: python benchmarks/large.py 10000

QP with learning from the first call, compilation included, and its peak memory in matrices of that size; then a sweep
over a factor and a triangular inverse (`inside.sweep_against_lapack`).
"""

from __future__ import annotations

import sys
import time

import jax
import numpy as np
from inside import sweep_against_lapack

from quantprop import Model, fit, kernels, likelihoods


def learned(n: int) -> str:
    """How QP's learning on n rows of two classes went."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5))
    f = 2.0 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    y = np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)
    began = time.perf_counter()
    fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), x, y, "qp")
    took = time.perf_counter() - began
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    memory = "not known here" if peak is None else f"{peak / (8 * n * n):.2f} matrices"
    return f"n = {n}: {took:.1f} s, peak memory {memory}; {fitted.status}"


def main(n: int) -> None:
    print(jax.devices()[0].device_kind)
    print(learned(n), flush=True)
    with jax.enable_x64(True):
        cost, yardstick, ratio = sweep_against_lapack(n)
    print(f"sweep {1e3 * cost:.2f} ms, yardstick {1e3 * yardstick:.2f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
