"""Equal calls give bitwise equal results, whatever was called before them, and in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantprop import Inducing, Markov, Model, Parameter, fit, fit_many, integrate, kernels, likelihoods

TESTS = Path(__file__).resolve().parent
RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(24, 2)), 3)
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
SIGN = np.where(F + 0.5 * RNG.normal(size=24) > 0, 1.0, -1.0)
COUNT = RNG.poisson(np.exp(0.5 * F)).astype(float)
REAL = F + 0.3 * RNG.standard_t(3, 24)
SE, ARD, M32 = kernels.SquaredExponential(), kernels.SquaredExponential(1.0, np.ones(2)), kernels.Matern32()


def one(model: Model, y: np.ndarray, method: str = "ep", rows: Any = np.s_[:], **more: Any) -> Callable[[], Any]:
    """A fit of some rows."""
    return lambda: fit(model, X[rows], y[rows], method, **more)


FITS: dict[str, Callable[[], Any]] = {
    **{f"probit {method}": one(Model(SE, likelihoods.Probit()), SIGN, method) for method in ("ep", "qp", "laplace")},
    "vb": one(Model(SE, likelihoods.Probit()), SIGN, "vb", max_evaluations=8),
    "fewer rows": one(Model(SE, likelihoods.Probit()), SIGN, rows=np.s_[:17]),
    "ard": one(Model(ARD, likelihoods.Probit()), SIGN),
    "other start": one(Model(kernels.SquaredExponential(2.0, 0.5), likelihoods.Probit()), SIGN),
    "matern": one(Model(M32, likelihoods.Probit()), SIGN),
    "learned mean": one(Model(SE, likelihoods.Probit(), Parameter(0.1)), SIGN),
    "partial": one(Model(SE, likelihoods.Probit()), SIGN, "qp", gradient="partial"),
    "loo": one(Model(SE, likelihoods.Probit()), SIGN, objective="loo"),
    "poisson": one(Model(SE, likelihoods.Poisson()), COUNT),
    "gaussian": one(Model(SE, likelihoods.Gaussian(0.5)), REAL),
    "far": one(Model(SE, likelihoods.Gaussian(0.5), Parameter(0.0)), 1000 * REAL + 5000),
    "restarts": one(Model(SE, likelihoods.Gaussian(0.5)), REAL, restarts=1),
    "student-t": one(Model(SE, likelihoods.StudentT(4.0, 0.5)), REAL, max_evaluations=10),
    "inducing": one(Model(SE, likelihoods.Probit(), process=Inducing(6)), SIGN),
    "markov": lambda: fit(Model(M32, likelihoods.Poisson(), process=Markov()), np.arange(24.0)[:, None], COUNT, "ep"),
    "many": lambda: fit_many(Model(SE, likelihoods.Probit()), [X, X[4:]], [SIGN, SIGN[4:]], "ep"),
    "integrated": lambda: integrate(one(Model(SE, likelihoods.Gaussian(0.5)), REAL)()),
}


def digits(found: Any) -> str:
    """Everything that was learned, bitwise."""
    if isinstance(found, list):
        return " ".join(map(digits, found))
    if not hasattr(found, "trace"):
        return np.asarray([found.log_evidence, *found.weights, *found.theta.ravel()]).tobytes().hex()
    values = [step.value for step in found.trace]
    parts = (found.theta, values, found.solution.sites.nu, found.solution.sites.tau, found.solution.loo)
    return np.concatenate([np.ravel(part) for part in parts]).tobytes().hex()


def run(order: list[str]) -> dict[str, str]:
    """The digits of some fits, made in an order."""
    return {name: digits(FITS[name]()) for name in order}


def in_a_process(seed: int) -> dict[str, str]:
    """The digits of all fits, made in a random order by a new process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
    command = [sys.executable, "-m", "test_equal_bits", str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=True)
    return json.loads(done.stdout)


def shuffled(seed: int, names: list[str]) -> list[str]:
    return np.random.default_rng(seed).permutation(names).tolist()


def test_fits_do_not_depend_on_those_before_them():
    quick = ["probit ep", "probit qp", "other start", "loo", "gaussian", "restarts", "inducing"]
    first, second = (run(shuffled(seed, quick)) for seed in (0, 1))
    assert {name for name in quick if first[name] != second[name]} == set()


@pytest.mark.campaign
def test_three_processes_agree():
    assert len(FITS) == 20
    first, *others = (in_a_process(seed) for seed in (3, 4, 5))
    assert all(other == first for other in others)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(shuffled(int(sys.argv[1]), list(FITS)))))
