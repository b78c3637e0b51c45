"""Constraints on the shape of f: are they kept where nobody chose the data, and does `compare` find them wrong?

    python -m studies.monotone.run run --jobs 16      # adds rows to rows.jsonl in this folder, and prints the page
    python -m studies.monotone.run page

`kept`: 100 data sets, drawn by their seed: 30 to 150 rows, one to three columns, normal noise, Student-t noise, counts
or classes, one of the four shapes; in three of ten the truth has waves against the shape. Probabilities of a wrong sign
are computed again on a grid that learning does not have: 997 inputs, or 33 levels of the column at all rows.

`compare`: functions on (0, 10], 100 rows, 20 seeds each, none of them used in choosing anything; the formula with
monotone=increasing beside the one without, as `quantprop compare` judges them. The last three do rise.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtr
from sklearn.exceptions import ConvergenceWarning

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, comparison, infer, report, tables
from quantprop.kernels import Derivatives
from quantprop.kernels.derivatives import SHAPES
from quantprop.learning.shaped import TOLERANCE, with_derivatives
from studies.shared.parts import Row, carry_out, read

OUT = Path(__file__).with_name("rows.jsonl")
SETS, SEEDS = 100, 20
CLEAR = 17  # of SEEDS
LIKELIHOODS = ("gaussian", "student-t", "poisson", "probit")
BOTH = ("se(x)", "se(x, monotone=increasing)")


# --- kept ------------------------------------------------------------------------------------------------------------


def truth(rng: np.random.Generator, x: np.ndarray, shape: str, waves: bool) -> np.ndarray:
    """f of inputs between 0 and 1, of this shape in the first column unless it has waves; other columns add to it."""
    order, sign = SHAPES[shape]
    at, width, size = rng.uniform(size=3), rng.uniform(0.02, 0.5, 3), rng.dirichlet(np.ones(3))
    z = (x[:, :1] - at) / width
    rises = ndtr(z) if order == 1 else np.logaddexp(0.0, z) / np.logaddexp(0.0, (1.0 - at) / width)
    f = 2.0 * sign * (rises @ size)
    if waves:
        f += rng.uniform(0.3, 1.0) * np.sin(rng.uniform(5.0, 15.0) * x[:, 0] + rng.uniform(0.0, 6.0))
    return f + sum(rng.uniform(0.0, 1.0) * np.sin(4.0 * column) for column in x.T[1:])


def kept(part: Row) -> Row:
    rng = np.random.default_rng(part["seed"])
    n, columns = int(rng.integers(30, 151)), int(rng.choice([1, 1, 2, 3]))
    name, shape = str(rng.choice(LIKELIHOODS)), str(rng.choice(list(SHAPES)))
    x, waves = rng.uniform(size=(n, columns)), bool(rng.uniform() < 0.3)
    f = truth(rng, x, shape, waves)
    settings: dict[str, Any] = {"kernel": "ard", "method": "ep", "monotone": {0: shape}}
    if name == "probit":
        y: Any = rng.uniform(size=n) < ndtr(2.0 * (f - np.median(f)))
        model: Any = GaussianProcessClassifier(**settings)
    else:
        y = f + 0.3 * rng.standard_t(4.0 if name == "student-t" else 1e9, size=n)
        y = rng.poisson(np.exp(f)).astype(float) if name == "poisson" else y
        model = GaussianProcessRegressor(likelihood=name, mean="constant", **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y)
    said = any(issubclass(w.category, ConvergenceWarning) and "wrong sign" in str(w.message) for w in caught)
    constraint, (order, sign) = model.constraint_, SHAPES[shape]
    slope = slope_of(model.fitted_.solution, constraint, _fine(x), order)
    wrong = float(ndtr(-sign * slope.mean / np.sqrt(slope.variance)).max())
    return {
        "n": n, "columns": columns, "likelihood": name, "shape": shape, "waves": waves, "rows": len(constraint.sign),
        "left": constraint.wrong, "fine": wrong, "kept": bool(constraint.kept), "warned": said,
        "converged": bool(model.fitted_.converged),
    }  # fmt: skip


def slope_of(solution: Any, constraint: Any, x: np.ndarray, order: int) -> Any:
    """The posterior of a derivative, also of a free fit, which is returned where it obeys the constraint."""
    if hasattr(solution, "derivative"):
        return solution.derivative(x, 0, order)
    y = np.column_stack([solution.data.y, np.zeros(len(solution.X))])
    model = with_derivatives(solution.model, constraint.shapes)
    return infer(model, Derivatives.rows(solution.X), y, "ep").predict(Derivatives.rows(x, 0, order))


def _fine(x: np.ndarray) -> np.ndarray:
    """Inputs over the range of the first column, at other places than those of learning."""
    low, high = x[:, 0].min(), x[:, 0].max()
    if x.shape[1] == 1:
        return np.linspace(low, high, 997)[:, None]
    found = np.repeat(x, 33, axis=0)
    found[:, 0] = np.tile(np.linspace(low, high, 33), len(x))
    return found


# --- compare ---------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[str, Callable]] = {
    "a fall after a rise": ("gaussian", lambda x: x * np.exp(1.0 - x / 3.0)),
    "a valley": ("gaussian", lambda x: 0.12 * (x - 5.0) ** 2),
    "a wave": ("gaussian", lambda x: 1.5 * np.sin(x)),
    "a dip in a rise": ("gaussian", lambda x: 0.5 * x - 3.0 * np.exp(-0.5 * (x - 6.0) ** 2)),
    "counts with a hump": ("poisson", lambda x: 2.0 * np.exp(-0.5 * ((x - 4.0) / 1.5) ** 2)),
    "rising: root": ("gaussian", lambda x: np.sqrt(x)),
    "rising: two steps": ("gaussian", lambda x: 1.5 * (expit(5.0 * (x - 3.0)) + expit(5.0 * (x - 7.0)))),
    "rising: counts": ("poisson", lambda x: 0.2 * x),
}


def compare(part: Row) -> Row:
    likelihood, function = FUNCTIONS[part["function"]]
    x, rng = np.linspace(0.1, 10.0, 100), np.random.default_rng(part["seed"])
    f = function(x)
    y = rng.poisson(np.exp(f)) if likelihood == "poisson" else f + rng.normal(size=100)
    table = tables.from_columns({"x": x, "y": y.astype(float)}, part["function"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of constraints that the data contradict
        made = comparison.candidates(
            lambda likelihood, kernel: tables.problem(table, "y", likelihood, kernel), [likelihood], list(BOTH)
        )
        found = report.concluded(comparison.choose(made, "ep"))
    return {"says": found, "clear": f"clearly better than {BOTH[1]}" in found}


def work(part: Row) -> Row:
    started = time.process_time()
    row = kept(part) if part["what"] == "kept" else compare(part)
    return row | {"seconds": round(time.process_time() - started, 1)}


# --- all of them -----------------------------------------------------------------------------------------------------


def wanted(sets: int, seeds: int) -> list[Row]:
    parts: list[Row] = [{"what": "kept", "function": None, "seed": seed} for seed in range(sets)]
    return parts + [{"what": "compare", "function": name, "seed": seed} for seed in range(seeds) for name in FUNCTIONS]


def page(rows: list[Row]) -> None:
    sets = [row for row in rows if row["what"] == "kept"]
    obeyed = [row for row in sets if row["kept"]]
    again = [row["fine"] for row in obeyed]
    broken = [row for row in sets if not row["kept"]]
    free, said = sum(not row["rows"] for row in obeyed), sum(row["warned"] for row in broken)
    above, wrong = (sum(p > bound for p in again) for bound in (TOLERANCE, 0.5))
    print(f"{len(sets)} data sets: {len(obeyed)} kept at {TOLERANCE} ({free} by the free fit), {len(broken)} not, of "
          f"which {said} with a warning\non the other grid the largest probability of a wrong sign of those kept: "
          f"{max(again, default=0):.3f}, above the tolerance in {above}, above one half in {wrong}")  # fmt: skip
    counts = [row["rows"] for row in sets] or [0]
    print(f"virtual rows: median {np.median(counts):.0f}, largest {max(counts)}; not converged "
          f"{sum(not row['converged'] for row in sets)}")  # fmt: skip
    for row in broken:
        print({name: row[name] for name in ("seed", "n", "columns", "likelihood", "shape", "waves", "rows", "left",
                                            "fine", "warned")})  # fmt: skip
    print("\n| function | clearly better without the constraint |\n|---|---|")
    for name in FUNCTIONS:
        own = [row["clear"] for row in rows if row["what"] == "compare" and row["function"] == name]
        short = not name.startswith("rising") and len(own) == SEEDS and sum(own) < CLEAR
        print(f"| {name} | {sum(own)} of {len(own)}{' SHORT' if short else ''} |")
    print(f"\nCPU seconds {sum(row['seconds'] for row in rows):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no part is begun")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.what == "run":
        carry_out(work, wanted(given.sets, given.seeds), read([given.out]), given.out, given.jobs, given.seconds)
    page(read([given.out]))


if __name__ == "__main__":
    main()
