"""The demonstration: four methods on one bundled data set, side by side. Run by `make demo`."""

from __future__ import annotations

import time

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, datasets, infer, kernels, likelihoods

HEADER = "method   log evidence leave-one-out test error test NLL sweeps     ms  status"


def split(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A tenth of the rows held out, features standardised on the rest."""
    data = datasets.load(name)
    order = np.random.default_rng(seed).permutation(len(data.y))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    mean, scale = data.X[train].mean(0), data.X[train].std(0)
    x = (data.X - mean) / np.where(scale > 0, scale, 1.0)
    return x[train], data.y[train], x[test], data.y[test]


def main(name: str = "ionosphere") -> None:
    """Fit QP, EP, VB and Laplace at the same hyperparameters and print a table."""
    x, y, x_test, y_test = split(name)
    model = Model(kernels.SquaredExponential(variance=64.0, lengthscale=7.7), likelihoods.Probit())
    print(f"{name}: {len(y)} training rows, {len(y_test)} test rows, {x.shape[1]} features")
    print("probit likelihood, squared-exponential kernel (variance 64, lengthscale 7.7)\n")
    print(HEADER)
    for label, method in {"QP": QP(), "EP": EP(), "VB": VB(), "Laplace": Laplace()}.items():
        infer(model, x, y, method=method)  # compiles
        start = time.perf_counter()
        solution = infer(model, x, y, method=method)
        elapsed = 1e3 * (time.perf_counter() - start)
        predictive = solution.predict_y(x_test)
        error = np.mean(np.sign(predictive.mean) != y_test)
        nll = -np.mean(predictive.log_prob(y_test))
        print(
            f"{label:<8} {solution.log_evidence:>12.3f} {np.mean(solution.loo):>13.4f} {error:>10.3f} {nll:>8.4f} "
            f"{solution.sweeps:>6d} {elapsed:>6.0f}  {solution.status.reason}"
        )
    print("\nleave-one-out and test NLL are per datum; ms is one warm inference, compilation excluded.")


if __name__ == "__main__":
    main()
