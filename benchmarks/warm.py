"""What users call, warm, on four sets: estimators beside `fit`, methods beside EP, the classifier beside
scikit-learn's.

CPU seconds of one core, medians of calls that alternate, all programs compiled. Writes benchmarks/out/warm.json.
"""

from __future__ import annotations

import json
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier as TheirClassifier
from sklearn.gaussian_process.kernels import RBF
from splits import SETS, split
from timing import medians

from quantprop import EP, QP, VB, GaussianProcessClassifier, Model, fit, kernels, likelihoods

ROUNDS = 7
SHARE, MORE = 0.05, 3e-3  # of `fit`, and seconds, that an estimator may add
GIVEN = 1.0 * RBF(1.0)
LINE = "QP {:.2f} and VB {:.2f} of EP, classifier {:.2f} of scikit-learn's"


def estimators(x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """Seconds of the classifier, and of `fit` of the model that it makes, by method and kernel."""
    found = {}
    for word, kernel in (("kernel=None", None), ("1.0 * RBF(1.0)", GIVEN)):
        for method in ("ep", "qp"):

            def whole(kernel=kernel, method=method):
                return GaussianProcessClassifier(kernel, method=method).fit(x, y)

            start = whole().base_estimator_.spec.kernel
            model, signs = Model(start, likelihoods.Probit()), np.where(y == np.unique(y)[1], 1.0, -1.0)
            bare = partial(fit, model, x, signs, method)
            times = medians(whole, bare, rounds=ROUNDS, clock=time.process_time)
            found[f"{method}, {word}"] = times.tolist()
    return found


def methods(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Seconds of `fit` by EP, QP and VB; of the classifier with a given kernel, and of scikit-learn's."""
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    return medians(
        *(lambda method=method: fit(model, x, y, method) for method in (EP(), QP(), VB())),
        lambda: GaussianProcessClassifier(GIVEN).fit(x, y),
        lambda: TheirClassifier(GIVEN).fit(x, y),
        rounds=ROUNDS,
        clock=time.process_time,
    ).tolist()


def measure_warm(out: Path) -> None:
    """Measure, print and store every line."""
    warnings.simplefilter("ignore")  # a kernel's variance at its bound
    results, ratios = {}, []
    for name, variant in SETS.items():
        parts = split(name, variant)
        x, y = parts["x"], parts["y"]
        results[name] = {"estimators": estimators(x, y), "methods": methods(x, y)}
        for what, (whole, bare) in results[name]["estimators"].items():
            verdict = "" if whole <= (1.0 + SHARE) * bare + MORE else "  OVER"
            print(f"{name:<12} {what:<20} estimator {1e3 * whole:7.1f} ms, fit {1e3 * bare:7.1f} ms{verdict}")
        ep, qp, vb, ours, theirs = results[name]["methods"]
        ratios.append([qp / ep, vb / ep, ours / theirs])
        print(f"{name:<12} {LINE.format(qp / ep, vb / ep, ours / theirs)}", flush=True)
    means = np.exp(np.mean(np.log(ratios), axis=0))
    print("geometric means:", LINE.format(*means))
    (out / "warm.json").write_text(json.dumps({"sets": results, "geometric_means": means.tolist()}, indent=1))
