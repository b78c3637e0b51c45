"""The same adversarial problems through other libraries: binary classification with a squared-exponential kernel.

Problems are written here, and read where the peer is installed, with NumPy alone:

    python peers.py write problems.npz 300
    python peers.py quantprop|scikit-learn|gpy problems.npz
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

LIMIT = 60  # seconds for one problem
Judge = Callable[[dict[str, Any]], tuple[np.ndarray, np.ndarray, str]]  # probabilities, latent variances, status


def write(path: str, count: int) -> None:
    """Problems of two classes, as arrays."""
    from fuzz.problems import Menu, problem

    menu = Menu((("probit", "ep"),), kernels=("se",), features=(2,), sizes=(32,), more_sizes=(32,))
    arrays: dict[str, np.ndarray] = {}
    number = kept = 0
    while kept < count:
        one = problem(number, menu)
        number += 1
        if len(set(one.y)) == 2:  # scikit-learn takes no others
            kernel = one.model.plain_kernel
            numbers = np.array([kernel.variance, float(kernel.lengthscale)])
            arrays |= {
                f"{kept}.{k}": v for k, v in (("x", one.x), ("y", one.y), ("new", one.new), ("numbers", numbers))
            }
            kept += 1
    np.savez(path, **arrays)


def read(path: str) -> list[dict[str, Any]]:
    """The problems of a file."""
    arrays = np.load(path)
    names = ("x", "y", "new", "numbers")
    return [{name: arrays[f"{i}.{name}"] for name in names} for i in range(len(arrays.files) // len(names))]


def with_quantprop(method: str) -> Judge:
    from quantprop import Model, infer, kernels, likelihoods

    def judge(p: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, str]:
        model = Model(kernels.SquaredExponential(*map(float, p["numbers"])), likelihoods.Probit())
        solution = infer(model, p["x"], p["y"], method)
        probability = solution.predict_y(p["new"]).mean  # E[y] of y = ±1
        return 0.5 * (1.0 + probability), solution.predict(p["new"]).variance, solution.status.reason

    return judge


def with_scikit_learn() -> Judge:
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    def judge(p: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, str]:
        variance, lengthscale = map(float, p["numbers"])
        model = GaussianProcessClassifier(ConstantKernel(variance) * RBF(lengthscale), optimizer=None)
        model.fit(p["x"], p["y"])
        return model.predict_proba(p["new"])[:, 1], np.zeros(1), "no status"

    return judge


def with_gpy() -> Judge:
    import GPy  # type: ignore[import-not-found]

    def judge(p: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, str]:
        variance, lengthscale = map(float, p["numbers"])
        kernel = GPy.kern.RBF(p["x"].shape[1], variance, lengthscale)
        y = (p["y"][:, None] > 0).astype(float)
        model = GPy.core.GP(
            p["x"],
            y,
            kernel,
            GPy.likelihoods.Bernoulli(),
            inference_method=GPy.inference.latent_function_inference.EP(),
        )
        return model.predict(p["new"])[0], model.predict_noiseless(p["new"])[1], "no status"

    return judge


JUDGES: dict[str, Callable[[], Judge]] = {
    "quantprop": lambda: with_quantprop("ep"),
    "quantprop-laplace": lambda: with_quantprop("laplace"),
    "scikit-learn": with_scikit_learn,
    "gpy": with_gpy,
}


def outcome(judge: Judge, one: dict[str, Any]) -> str:
    """How one problem ended, in a word."""

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            probability, variance, status = judge(one)
    except TimeoutError:
        return f"more than {LIMIT} s"
    except Exception as error:
        return f"exception: {type(error).__name__}"
    finally:
        signal.alarm(0)
    if not (np.isfinite(probability).all() and np.isfinite(variance).all()):
        return "NaN or infinity"
    if (variance < 0).any():
        return "negative variance"
    numeric = [w for w in told if issubclass(w.category, RuntimeWarning)]
    return "warning of overflow or division" if numeric else status


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]))
    else:
        judged = JUDGES[sys.argv[1]]()
        counts = Counter(outcome(judged, one) for one in read(sys.argv[2]))
        print(sys.argv[1], dict(counts))
