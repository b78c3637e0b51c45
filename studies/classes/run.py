"""Three and more classes: joint models beside one-vs-rest, scikit-learn's and a gradient-boosted tree; what they cost.

    python -m studies.classes.run compare iris wine --data FOLDER --jobs 12 --out folds.jsonl
    python -m studies.classes.run compare segment --models joint --data FOLDER --out folds.jsonl    # on an accelerator
    python -m studies.classes.run table --out folds.jsonl
    python -m studies.classes.run time

`compare` appends one line to the file for every data set, model and stratified fold, and leaves out those that it has
already: parts of it may run at different times and on different machines; `--seconds` ends it. `table` makes of them
the mean test log-probability of the class, the error, and the calibration error (the mean of |confidence − accuracy|
over ten bins, weighted by their rows), and paired
differences between models. FOLDER holds NAME.npz with X and y, or NAME.csv with a header and the class in
the last column (an Id is left out); iris and wine come with scikit-learn. `time` prints how long learning takes for 200
rows of three classes, in a process that has learned such a model before, and how the time of one inference and of one
gradient grows with the number of classes; the exponent is that of the processor's time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier as Theirs
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import StratifiedKFold

from quantprop import GaussianProcessClassifier, LogNormal, Model, Parameter, fit, infer, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.experiments.pool import in_processes
from quantprop.experiments.protocol import TEST_TO_TRAIN
from quantprop.experiments.summary import difference
from quantprop.inference.classes import factors_of
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.methods import by_name as method_by_name
from studies.shared.parts import ON_CPU

BINS = 10
PAIRS = (("joint QP", "one-vs-rest QP"), ("joint EP", "one-vs-rest EP"))
TOGETHER = 5  # folds that one process learns from, one after the other
ONE_CORE = ON_CPU | {"LOKY_MAX_CPU_COUNT": "1"}  # of scikit-learn too, which fits a class on every core
SMALLEST = 1e-12  # a probability of 0 counts as this: trees and scikit-learn's model can say 0


@dataclass
class BySoftmax:
    """A model of all classes jointly by softmax; its kernel starts, and is held back, as the estimators' is."""

    method: str

    def fit(self, X: np.ndarray, y: np.ndarray) -> BySoftmax:
        variance = Parameter(1.0, prior=LogNormal(1.0, 10.0))
        kernel = kernels.SquaredExponential(variance, np.sqrt(X.shape[1]))
        self.solution = fit(Model(kernel, likelihoods.Softmax()), X, y, self.method).solution
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.solution.predict_y(X).probabilities


LEARNERS: dict[str, Callable] = {
    "joint QP": partial(GaussianProcessClassifier, multi_class="joint", method="qp"),
    "joint EP": partial(GaussianProcessClassifier, multi_class="joint", method="ep"),
    "joint VB": partial(GaussianProcessClassifier, multi_class="joint", method="vb"),
    "softmax VB": partial(BySoftmax, "vb"),
    "softmax Laplace": partial(BySoftmax, "laplace"),
    "one-vs-rest QP": partial(GaussianProcessClassifier, method="qp"),
    "one-vs-rest EP": partial(GaussianProcessClassifier, method="ep"),
    "scikit-learn": lambda: Theirs(ConstantKernel() * RBF(), random_state=0, n_jobs=-1),
    "gradient-boosted trees": partial(HistGradientBoostingClassifier, random_state=0),
}


def rows_of(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes as codes."""
    if (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as file:
            return file["X"], file["y"].astype(int)
    if name in ("iris", "wine"):
        return (load_iris if name == "iris" else load_wine)(return_X_y=True)
    with open(folder / f"{name}.csv", encoding="utf-8") as file:
        header = file.readline().strip().split(",")
        table = np.array([line.strip().split(",") for line in file])
    features = [i for i, column in enumerate(header[:-1]) if column != "Id"]
    return table[:, features].astype(float), np.unique(table[:, -1], return_inverse=True)[1]


class Counts(NamedTuple):
    """What the scores of some rows are made of; those of several folds add up."""

    rows: int
    log_prob: float
    wrong: int
    gaps: list[float]  # of every bin, Σ (confidence − 1 where the class was right)

    @staticmethod
    def of(probabilities: np.ndarray, y: np.ndarray) -> Counts:
        chosen, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        bins = np.minimum((BINS * confidence).astype(int), BINS - 1)
        gaps = [float(np.sum((confidence - (chosen == y))[bins == b])) for b in range(BINS)]
        of_class = np.maximum(probabilities[np.arange(len(y)), y], SMALLEST)
        return Counts(len(y), float(np.sum(np.log(of_class))), int(np.sum(chosen != y)), gaps)

    def scores(self) -> tuple[float, float, float]:
        """Mean log-probability of the class, error and calibration error."""
        return self.log_prob / self.rows, self.wrong / self.rows, float(np.abs(self.gaps).sum() / self.rows)


class Fold(NamedTuple):
    """One fit."""

    data: str
    model: str
    fold: int
    folds: int


def of_folds(task: tuple[list[Fold], Path]) -> list[dict[str, Any]]:
    """Of some folds of one data set and model, which share compiled programs."""
    return [of_fold(fold, task[1]) for fold in task[0]]


def of_fold(of: Fold, folder: Path) -> dict[str, Any]:
    """The counts of one fold, and the seconds that it took."""
    name, learner, fold, folds = of
    warnings.simplefilter("ignore")  # lengthscales at their bounds
    X, y = rows_of(name, folder)
    train, test = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y))[fold]
    centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - centre) / np.where(spread > 0, spread, 1.0)
    start = time.perf_counter()
    p = LEARNERS[learner]().fit(X[train], y[train]).predict_proba(X[test])
    seconds = time.perf_counter() - start
    return of._asdict() | Counts.of(p, y[test])._asdict() | {"classes": int(y.max()) + 1, "seconds": seconds}


def known(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def compare(given: argparse.Namespace) -> None:
    chosen = [learner for learner in LEARNERS if any(part in learner for part in given.models or [""])]
    there = {tuple(row[field] for field in Fold._fields) for row in known(given.out)}
    tasks, began = [], time.perf_counter()
    for first in range(0, given.folds, TOGETHER):
        some = range(first, min(first + TOGETHER, given.folds))
        for name, model in itertools.product(given.names, chosen):
            missing = [fold for f in some if (fold := Fold(name, model, f, given.folds)) not in there]
            tasks += [(missing, given.data)] * bool(missing)
    found = ([of_fold(fold, folder)] for folds, folder in tasks for fold in folds) if given.jobs == 1 else (
        rows for _, rows in in_processes(of_folds, tasks, given.jobs, ONE_CORE)
    )  # fmt: skip
    for rows in found:
        for row in rows:
            with open(given.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(row["data"], row["model"], row["fold"], f"{row['seconds']:.1f} s", flush=True)
        if time.perf_counter() - began > given.seconds:
            break


def table(given: argparse.Namespace) -> None:
    print(f"| data | rows, classes | model | log-likelihood | error | calibration | seconds a fold |\n|{'---|' * 7}")
    rows = known(given.out)
    for name, learner in dict.fromkeys((row["data"], row["model"]) for row in rows):
        some = [row for row in rows if (row["data"], row["model"]) == (name, learner)]
        sums = {field: sum(row[field] for row in some) for field in ("rows", "log_prob", "wrong")}
        gaps = np.sum([row["gaps"] for row in some], axis=0)
        log_prob, error, calibration = Counts(sums["rows"], sums["log_prob"], sums["wrong"], list(gaps)).scores()
        part = "" if len(some) == some[0]["folds"] else f" ({len(some)} of {some[0]['folds']} folds)"
        print(f"| {name} | {sums['rows']}, {some[0]['classes']} | {learner}{part} | {log_prob:.4f} | {error:.4f} | "
              f"{calibration:.4f} | {np.median([row['seconds'] for row in some]):.1f} |")  # fmt: skip

    for name, (own, base) in itertools.product(dict.fromkeys(row["data"] for row in rows), PAIRS):
        means = {(row["model"], row["fold"]): row["log_prob"] / row["rows"] for row in rows if row["data"] == name}
        folds = [fold for model, fold in means if model == own and (base, fold) in means]
        if len(folds) > 1:
            joint, apart = (np.array([means[model, fold] for fold in folds]) for model in (own, base))
            less = difference(joint, apart, TEST_TO_TRAIN["fold"])
            print(f"{name}: {own} less {base} {less.mean:+.4f} ± {less.standard_error:.4f} (p = {less.p_value:.2f}, "
                  f"{len(folds)} folds)")  # fmt: skip


def made(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy classes of two features, as equal in number as can be."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(X @ rng.normal(size=(2, classes)) + rng.uniform(0, 6, classes)) * 3 + rng.normal(size=(n, classes))
    return X, np.where(rng.uniform(size=n) < 0.5, np.arange(n) % classes, f.argmax(axis=1))


def timed(function: Callable) -> tuple[float, float]:
    """The least of three: seconds, and seconds of the processor."""
    function()
    times = []
    for _ in range(3):
        start = time.perf_counter(), time.process_time()
        function()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return min(wall for wall, _ in times), min(busy for _, busy in times)


def evaluation(X: np.ndarray, y: np.ndarray, method: str) -> Callable:
    """One evaluation of the objective with its gradient, from the likelihood's own sites."""
    kernel = kernels.SquaredExponential(4.0, 1.0)
    model, rows, ones = factors_of(Model(kernel, likelihoods.MultinomialProbit(int(y.max()) + 1)), X, y)
    task = prepare(model, rows, ones, method_by_name(method), None, None, None)
    landscape = Landscape(model, task, method_by_name(method), as_objective("evidence"))
    return lambda: landscape.at(packed(landscape.parts))


def costs() -> None:
    model = Model(kernels.SquaredExponential(4.0, 1.0), likelihoods.MultinomialProbit())
    for method in ("ep", "qp"):
        learn = partial(fit, model, *made(200, 3), method)
        wall, busy = timed(learn)
        print(f"learning, 200 rows, 3 classes, {method}: {wall:.2f} s, {busy:.2f} s of the processor", flush=True)
    for method in ("ep", "qp"):
        seconds = []
        for classes in (3, 6, 12):
            X, y = made(200, classes)
            one, (wall, busy) = timed(partial(infer, model, X, y, method))[1], timed(evaluation(X, y, method))
            seconds.append(busy)
            print(f"200 rows, {classes} classes, {method}: inference {one:.3f} s, with gradient {busy:.3f} s of the "
                  f"processor ({wall:.3f} s)", flush=True)  # fmt: skip
        print(f"{method}: exponent in the number of classes {np.log(seconds[-1] / seconds[0]) / np.log(4.0):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compare", "table", "time"])
    parser.add_argument("names", nargs="*", default=["iris", "wine"])
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", nargs="*", help="only those whose name has one of these in it")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--seconds", type=float, default=np.inf, help="start nothing after these")
    parser.add_argument("--out", type=Path, default=Path("folds.jsonl"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # lengthscales at their bounds, of every fold
    {"compare": compare, "table": table, "time": lambda given: costs()}[given.what](given)
