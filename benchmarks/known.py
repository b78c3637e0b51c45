"""What is known about f, and what to measure next: seconds over a yardstick in the same process. Writes out/known.json.

A fit of 200 rows under a constraint, learned given 16 signs of one column or 32 of two, against an EP probit fit of 230
rows; `active.tell` of one row against the fit of 1,000; and eight suggestions out of 10,000 candidates, in seconds.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import ratio

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, active

ROUNDS = 7
MOST_CONSTRAINED, MOST_TOLD, MOST_SUGGESTED = 6.0, 0.1, 1.0  # the last in seconds


def rising(n: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and noisy values that rise in the first column."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, (n, columns))
    f = 3.0 / (1.0 + np.exp(10.0 - 2.0 * x[:, 0])) + np.sin(x[:, 1:]).sum(axis=1)
    return x, f + 0.5 * rng.standard_normal(n)


def constrained(columns: int) -> tuple[Callable, Callable]:
    """Fits under a constraint, and of labels without one."""
    x, y = rising(200, columns, 0)
    more, values = rising(230, columns, 1)
    return (lambda: GaussianProcessRegressor(monotone={0: "increasing"}, method="ep").fit(x, y).loo_,
            lambda: GaussianProcessClassifier(method="ep").fit(more, values > 1.5).loo_)  # fmt: skip


def told() -> tuple[Callable, Callable]:
    """One further row, and a fit to all."""
    x, y = rising(1000, 2, 2)
    model = GaussianProcessClassifier(method="ep").fit(x, y > 1.5)
    return (lambda: active.tell(model, [[5.0, 5.0]], [True]).loo_,
            lambda: GaussianProcessClassifier(method="ep").fit(x, y > 1.5).loo_)  # fmt: skip


def suggested() -> tuple[Callable, Callable]:
    """Eight of 10,000 candidates, beside predictions of them."""
    x, y = rising(1000, 2, 2)
    new, _ = rising(10_000, 2, 3)
    model = GaussianProcessClassifier(method="ep").fit(x, y > 1.5)
    return lambda: active.ask(model, new, 8), lambda: model.predict_proba(new)


def measure_known(out: Path) -> None:
    """Print the table and write it to the folder."""
    warnings.simplefilter("ignore")
    found = []
    print(f"{'what':<52} {'s':>9} {'yardstick s':>12} {'ratio':>6} {'at most':>8}")
    cases = [(f"monotone fit, {columns} columns, over probit, ep", constrained(columns), MOST_CONSTRAINED)
             for columns in (1, 2)]  # fmt: skip
    for what, calls, most in [*cases, ("tell of one row, n = 1,000, over a fit", told(), MOST_TOLD)]:
        found.append((what, ratio(*calls, rounds=ROUNDS), most))
        _print(*found[-1], found[-1][1][2])
    what, line = "8 of 10,000 candidates (at most in seconds)", ratio(*suggested(), rounds=ROUNDS)
    found.append((what, line, MOST_SUGGESTED))
    _print(*found[-1], line[0])
    lines = [{"what": what, "seconds": line[0], "yardstick_seconds": line[1], "ratio": line[2], "bound": most}
             for what, line, most in found]  # fmt: skip
    (out / "known.json").write_text(json.dumps(lines, indent=1))


def _print(what: str, line: tuple[float, float, float], most: float, value: float) -> None:
    verdict = "" if value <= most else "  OVER"
    print(f"{what:<52} {line[0]:>9.3f} {line[1]:>12.3f} {line[2]:>6.2f} {most:>8.2f}{verdict}", flush=True)
