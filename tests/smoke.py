"""The installed package at work, with nothing that only the tests need: `python smoke.py stored.safetensors`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import norm

import quantprop
from quantprop import (
    EP,
    QP,
    VB,
    Dense,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    Laplace,
    Markov,
    Model,
    datasets,
    fit,
    infer,
    kernels,
    likelihoods,
    load,
)


def closed_form() -> None:
    """One probit datum, whose evidence is Φ(m/√(1 + v)) by every method but VB and Laplace; QP has EP's mean."""
    model = Model(kernels.SquaredExponential(2.0), likelihoods.Probit(), mean=0.3)
    ep, qp = (infer(model, [[0.0]], [1], method) for method in (EP(), QP()))
    expected = norm.logcdf(0.3 / np.sqrt(3.0))
    assert abs(ep.log_evidence - expected) < 1e-9, ep.log_evidence
    assert abs(qp.log_evidence - expected) < 1e-9, qp.log_evidence
    assert abs(qp.marginals.mean[0] - ep.marginals.mean[0]) < 1e-8
    assert qp.marginals.variance[0] < ep.marginals.variance[0]


def processes_agree() -> None:
    x = np.linspace(0.0, 5.0, 40)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(np.sin(x[:, 0])))
    found = [
        infer(Model(kernels.Matern32(), likelihoods.Poisson(), process=process), x, y, VB()).log_evidence
        for process in (Dense(), Markov())
    ]
    assert abs(found[0] - found[1]) < 1e-5, found
    learned = fit(Model(kernels.Matern32(), likelihoods.Poisson(), process=Inducing(10)), x, y, Laplace())
    assert learned.converged, learned.status


def estimators(stored: Path) -> None:
    data = datasets.load("crabs")
    X = (data.X - data.X.mean(0)) / data.X.std(0)
    model = GaussianProcessClassifier().fit(X[::2], data.y[::2])
    assert model.score(X[1::2], data.y[1::2]) > 0.9
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        again = load(Path(folder) / "model.safetensors")
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    x = np.linspace(-2.0, 2.0, 50)[:, None]
    mean, deviation = GaussianProcessRegressor().fit(x, np.sin(3 * x[:, 0])).predict(x, return_std=True)
    assert np.abs(mean - np.sin(3 * x[:, 0])).max() < 0.01
    assert np.all(deviation >= 0)
    older = load(stored)  # a file of version 0.1; its predictions' values are in tests/storage
    assert abs(older.predict_proba(np.zeros((1, older.n_features_in_))).sum() - 1.0) < 1e-12


def command_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        x = np.linspace(-3.0, 3.0, 60)
        table.write_text("x,kind\n" + "".join(f"{v},{'yes' if v + np.sin(5 * v) > 0 else 'no'}\n" for v in x))
        program = [sys.executable, "-m", "quantprop.cli"]
        fitted = subprocess.run([*program, "fit", table, "--target", "kind", "--kernel", "se(x)"], cwd=folder, check=True,
                                capture_output=True, text=True)  # fmt: skip
        (model,) = Path(folder).glob("*.safetensors")
        told = subprocess.run(
            [*program, "predict", model, table], cwd=folder, check=True, capture_output=True, text=True
        )
        assert fitted.stdout
        assert len(told.stdout.strip().splitlines()) == 61, told.stdout


def main() -> None:
    closed_form()
    processes_agree()
    estimators(Path(sys.argv[1]))
    command_line()
    print(f"quantprop {quantprop.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
