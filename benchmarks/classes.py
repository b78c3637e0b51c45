"""Three and more classes: joint models beside one-vs-rest, scikit-learn's and a gradient-boosted tree; what they cost.

    python benchmarks/classes.py compare [--folds 10] [--data FOLDER] [name ...]
    python benchmarks/classes.py time

`compare` prints, for every data set, the mean test log-probability of the class, the error, and the calibration error
(the mean of |confidence − accuracy| over ten bins, weighted by their rows) over stratified folds. Iris and wine come
with scikit-learn; other sets are CSV files in FOLDER, with a header and the class in the last column (an Id is left
out). `time` prints how long learning takes for 200 rows of three classes, in a process that has learned such a model
before, and how the time of one inference and of one gradient grows with the number of classes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier as Theirs
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import StratifiedKFold

from quantprop import GaussianProcessClassifier, Model, fit, infer, kernels, likelihoods
from quantprop.inference.classes import factors_of
from quantprop.inference.task import as_method, prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.parameters import packed

BINS = 10
SMALLEST = 1e-12  # a probability of 0 counts as this: trees and scikit-learn's model can say 0
LEARNERS: dict[str, Callable] = {
    "joint QP": partial(GaussianProcessClassifier, multi_class="joint", method="qp"),
    "joint EP": partial(GaussianProcessClassifier, multi_class="joint", method="ep"),
    "joint VB": partial(GaussianProcessClassifier, multi_class="joint", method="vb"),
    "one-vs-rest QP": partial(GaussianProcessClassifier, method="qp"),
    "one-vs-rest EP": partial(GaussianProcessClassifier, method="ep"),
    "scikit-learn": lambda: Theirs(ConstantKernel() * RBF(), random_state=0),
    "gradient-boosted trees": partial(HistGradientBoostingClassifier, random_state=0),
}


def rows_of(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes as codes."""
    if name in ("iris", "wine"):
        return (load_iris if name == "iris" else load_wine)(return_X_y=True)
    with open(folder / f"{name}.csv", encoding="utf-8") as file:
        header = file.readline().strip().split(",")
        table = np.array([line.strip().split(",") for line in file])
    features = [i for i, column in enumerate(header[:-1]) if column != "Id"]
    return table[:, features].astype(float), np.unique(table[:, -1], return_inverse=True)[1]


def scores(probabilities: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean log-probability of the class, error and calibration error."""
    chosen, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    bins = np.minimum((BINS * confidence).astype(int), BINS - 1)
    gaps = [abs(np.sum(confidence[bins == b] - (chosen == y)[bins == b])) for b in range(BINS)]
    of_class = np.maximum(probabilities[np.arange(len(y)), y], SMALLEST)
    return np.array([np.mean(np.log(of_class)), np.mean(chosen != y), np.sum(gaps) / len(y)])


def compare(names: list[str], folds: int, folder: Path) -> None:
    print(f"| data | rows, classes | model | log-likelihood | error | calibration | seconds a fold |\n|{'---|' * 7}")
    for name in names:
        X, y = rows_of(name, folder)
        for learner, make in LEARNERS.items():
            predicted, start = np.zeros((len(y), y.max() + 1)), time.perf_counter()
            for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y):
                centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
                spread = np.where(spread > 0, spread, 1.0)
                model = make().fit((X[train] - centre) / spread, y[train])
                predicted[test] = model.predict_proba((X[test] - centre) / spread)
            seconds = (time.perf_counter() - start) / folds
            log_prob, error, calibration = scores(predicted, y)
            size = f"{len(y)}, {y.max() + 1}"
            print(f"| {name} | {size} | {learner} | {log_prob:.4f} | {error:.4f} | {calibration:.4f} | {seconds:.1f} |")


def made(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy classes of two features, as equal in number as can be."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(X @ rng.normal(size=(2, classes)) + rng.uniform(0, 6, classes)) * 3 + rng.normal(size=(n, classes))
    return X, np.where(rng.uniform(size=n) < 0.5, np.arange(n) % classes, f.argmax(axis=1))


def timed(function: Callable) -> float:
    function()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def evaluation(X: np.ndarray, y: np.ndarray, method: str) -> Callable:
    """One evaluation of the objective with its gradient, from the likelihood's own sites."""
    kernel = kernels.SquaredExponential(4.0, 1.0)
    model, rows, ones = factors_of(Model(kernel, likelihoods.MultinomialProbit(int(y.max()) + 1)), X, y)
    task = prepare(model, rows, ones, as_method(method), None, None, None)
    landscape = Landscape(model, task, as_method(method), as_objective("evidence"))
    return lambda: landscape.from_cold(packed(landscape.parts))


def costs() -> None:
    model = Model(kernels.SquaredExponential(4.0, 1.0), likelihoods.MultinomialProbit())
    for method in ("ep", "qp"):
        learn = partial(fit, model, *made(200, 3), method)
        print(f"learning, 200 rows, 3 classes, {method}: {timed(learn):.2f} s")
    for method in ("ep", "qp"):
        seconds = []
        for classes in (3, 6, 12):
            X, y = made(200, classes)
            one = timed(partial(infer, model, X, y, method))
            seconds.append(timed(evaluation(X, y, method)))
            print(f"200 rows, {classes} classes, {method}: inference {one:.3f} s, with gradient {seconds[-1]:.3f} s")
        print(f"{method}: exponent in the number of classes {np.log(seconds[-1] / seconds[0]) / np.log(4.0):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compare", "time"])
    parser.add_argument("names", nargs="*", default=["iris", "wine"])
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # lengthscales at their bounds, of every fold
    costs() if given.what == "time" else compare(given.names, given.folds, given.data)
