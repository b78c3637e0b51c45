"""Fit after fit of other shapes, likelihoods, kernels and methods, in one process.

python -m faults.endurance COUNT [MOST]    # from the folder tests; prints memory maps and resident bytes after each fit
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, fit, kernels, likelihoods
from quantprop.core.data import bucket
from quantprop.runtime import programs

SELF = Path("/proc/self")
SIZES = sorted({bucket(n) for n in range(20, 300)})
PAIRS = (
    ("gaussian", Laplace()), ("probit", EP()), ("gaussian", EP()), ("probit", Laplace()), ("gaussian", VB()),
    ("poisson", Laplace()), ("probit", QP()),
)  # fmt: skip
KERNELS = (kernels.SquaredExponential, kernels.Matern32, kernels.Matern52, kernels.RationalQuadratic)
IN_TURN = 8  # fits that differ in kernel and features alone, and share the other programs


def model_and_data(number: int) -> tuple[Model, np.ndarray, np.ndarray, object]:
    """No two of the first thousand have the same size, number of features, kernel, likelihood and method."""
    rng, turn = np.random.default_rng(number), number // IN_TURN
    round_, pair = divmod(turn, len(PAIRS))
    size, wide = divmod(round_, 2)  # few and many features by turns: programs of many features have more memory maps
    n, d = SIZES[(3 * size + pair) % len(SIZES)], 1 + number % IN_TURN + IN_TURN * wide
    x = rng.normal(size=(n, d))
    f = np.sin(2.0 * x[:, 0])
    name, method = PAIRS[pair]
    likelihood, y = {
        "gaussian": (likelihoods.Gaussian(), f + 0.1 * rng.normal(size=n)),
        "probit": (likelihoods.Probit(), np.where(f + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)),
        "poisson": (likelihoods.Poisson(), rng.poisson(np.exp(f)).astype(float)),
    }[name]
    return Model(KERNELS[(number + round_) % len(KERNELS)](), likelihood), x, y, method


def main() -> None:
    """The command line."""
    if len(sys.argv) > 2:
        programs.MAX_PROGRAMS, programs.MIN_PROGRAMS = int(sys.argv[2]), int(sys.argv[2]) // 2
    for number in range(int(sys.argv[1])):
        model, x, y, method = model_and_data(number)
        assert np.isfinite(fit(model, x, y, method).objective_value)
        maps = (SELF / "maps").read_bytes().count(b"\n")
        resident = int((SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(number + 1, maps, resident, flush=True)


if __name__ == "__main__":
    main()
