"""Evaluations that `fit` takes where the variance of f has no best value, with and without following the tail.

    python -m studies.search.tails

fits three random nine tenths each of the data sets that a surface separates, by EP and QP.
"""

from __future__ import annotations

import numpy as np

from quantprop import Model, datasets, fit, kernels, likelihoods
from quantprop.learning import ascent

SETS = ("sonar", "glass", "wine1", "wine2", "wine3")


def evaluations(name: str, method: str) -> list[tuple[int, float]]:
    """The number of evaluations and the evidence at the end, of each nine tenths."""
    data, found = datasets.load(name, "clean"), []
    x = (data.X - data.X.mean(0)) / data.X.std(0)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(x))[: int(0.9 * len(x))]
        model = Model(kernels.SquaredExponential(), likelihoods.Probit())
        fitted = fit(model, x[rows], data.y[rows], method)
        found.append((len(fitted.trace), fitted.solution.log_evidence))
    return found


def main() -> None:
    """Print both numbers of evaluations, and by how much following ends higher."""
    follows = ascent.MAX_TAIL_SLOPE
    for name in SETS:
        for method in ("ep", "qp"):
            ascent.MAX_TAIL_SLOPE = 0.0  # no derivative is as small
            before = evaluations(name, method)
            ascent.MAX_TAIL_SLOPE = follows
            after = evaluations(name, method)
            counts = "  ".join(f"{old} -> {new}" for (old, _), (new, _) in zip(before, after, strict=True))
            gain = min(new - old for (_, old), (_, new) in zip(before, after, strict=True))
            print(f"{name:<6} {method}  {counts}  evidence at least {gain:+.1e}", flush=True)


if __name__ == "__main__":
    main()
