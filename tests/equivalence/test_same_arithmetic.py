"""A hundred problems have the values, gradients and predictions that they had: numbers change on purpose only.

At fixed hyperparameters everything agrees to 1e-10; learned objectives are never lower by 1e-6. Intended changes
are stored anew by `python tests/equivalence/test_same_arithmetic.py NAME ...` in tests/.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from quantprop import (
    EP,
    QP,
    VB,
    GaussianProcessRegressor,
    Inducing,
    Laplace,
    Markov,
    Model,
    Parameter,
    PowerEP,
    datasets,
    fit,
    infer,
    kernels,
)
from quantprop import likelihoods as lik

STORED = Path(__file__).with_name("same_arithmetic.json.gz")
RNG = np.random.default_rng(7)
X = np.round(RNG.normal(size=(30, 2)), 3)
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
NEW = np.round(RNG.normal(size=(6, 2)), 3)
SIGNS = np.where(F + 0.6 * RNG.normal(size=30) > 0, 1.0, -1.0)
COUNTS = RNG.poisson(np.exp(0.4 * F + 0.5)).astype(float)
REALS = F + 0.3 * RNG.standard_t(3, size=30)
POSITIVE = np.exp(0.5 * F + 0.4 * RNG.normal(size=30))
SHARES = 1 / (1 + np.exp(-F - 0.3 * RNG.normal(size=30)))
GRADES = np.digitize(F, [-0.5, 0.5]).astype(float)
SPANS = np.column_stack([REALS, np.where(RNG.uniform(size=30) < 0.3, np.inf, REALS)])
TIMES = np.arange(30.0)[:, None]
SE = kernels.SquaredExponential(1.3, np.array([0.9, 1.4]))
ROUGH = kernels.Matern32(0.8, 1.1)
SERIES = kernels.Matern32(1.0, 5.0) + kernels.Matern12(0.5, 2.0)
SUM = ROUGH.on(0) + kernels.Linear(0.5).on(1) + kernels.Constant(1.0)
CROSSED = kernels.Categories().on(1) * ROUGH.on(0)
BY_GRADE, NEW_BY_GRADE = np.column_stack([X[:, 0], GRADES]), np.column_stack([NEW[:, 0], [0, 1, 2, 0, 1, 2]])
METHODS = {"qp": QP(), "ep": EP(), "vb": VB(), "laplace": Laplace(), "power": PowerEP(0.5)}
EVERY_METHOD = {
    "probit": (Model(SE, lik.Probit(), 0.2), X, SIGNS, NEW, {}),
    "logit": (Model(SE, lik.Logit()), X, SIGNS, NEW, {}),
    "poisson": (Model(SE, lik.Poisson(), 0.3), X, COUNTS, NEW, {"exposure": np.linspace(0.5, 2, 30)}),
    "student": (Model(SE, lik.StudentT(4.0, 0.5)), X, REALS, NEW, {}),
    "gaussian": (Model(SE, lik.Gaussian(0.4), Parameter(0.1)), X, REALS, NEW, {}),
}
EP_AND_QP = {
    "negbin": (Model(SE, lik.NegativeBinomial(2.0)), X, COUNTS, NEW, {}),
    "binomial": (Model(SE, lik.Binomial("logit")), X, np.minimum(COUNTS, 5), NEW, {"trials": np.full(30, 5.0)}),
    "gamma": (Model(SE, lik.Gamma(2.0)), X, POSITIVE, NEW, {}),
    "beta": (Model(SE, lik.Beta(5.0)), X, SHARES, NEW, {}),
    "ordinal": (Model(SE, lik.Ordinal((-0.5, 0.5))), X, GRADES, NEW, {}),
    "censored": (Model(SE, lik.Censored(0.5)), X, SPANS, NEW, {}),
    "de": (Model(SE, lik.DoubleExponential(0.5)), X, REALS, NEW, {}),
    "heaviside": (Model(SE, lik.Heaviside(0.1)), X, SIGNS, NEW, {}),
    "zip": (Model(SE, lik.ZeroInflatedPoisson(0.3)), X, COUNTS, NEW, {}),
    "weibull": (Model(SE, lik.Weibull(1.5)), X, np.column_stack([POSITIVE, POSITIVE]), NEW, {}),
    "square": (Model(SE, lik.Poisson("square"), 1.0), X, COUNTS, NEW, {}),
    "inducing": (Model(SE, lik.Probit(), process=Inducing(X[::3].copy())), X, SIGNS, NEW, {}),
    "inducing poisson": (Model(ROUGH, lik.Poisson(), process=Inducing(X[::4].copy())), X, COUNTS, NEW, {}),
    "markov": (Model(SERIES, lik.Poisson(), process=Markov()), TIMES, COUNTS, np.array([[3.5], [31.0]]), {}),
    "sum": (Model(SUM, lik.Probit()), X, SIGNS, NEW, {"weights": np.resize([1.0, 2.0, 0.5, 0.0], 30)}),
    "categories": (Model(CROSSED, lik.Gaussian(0.3)), BY_GRADE, REALS, NEW_BY_GRADE, {}),
    "classes": (Model(kernels.PerClass((SE,), 3), lik.MultinomialProbit(3)), X, GRADES, NEW, {}),
}
CASES = {
    f"{name} {method}": (*case, METHODS[method])
    for cases, methods in ((EVERY_METHOD, tuple(METHODS)), (EP_AND_QP, ("qp", "ep")))
    for name, case in cases.items()
    for method in methods
}


def fixed(name):
    """Everything at fixed hyperparameters, and the first evaluation of a search."""
    model, x, y, new, rows, method = CASES[name]
    solution = infer(model, x, y, method, tol=1e-11, max_sweeps=400, **rows)
    latent = solution.predict(new)
    first = fit(model, x, y, method, tol=1e-11, max_evaluations=1, **rows).trace[0]
    found = {"evidence": solution.log_evidence, "loo": solution.loo, "mean": latent.mean, "variance": latent.variance,
             "first": first.value, "slope": first.gradient}  # fmt: skip
    return {key: np.ravel(value).tolist() for key, value in found.items()}


def standardised(name):
    data = datasets.load(name)
    sd = data.X.std(0)
    x, y = (data.X - data.X.mean(0)) / np.where(sd > 0, sd, 1.0), np.where(data.y == np.unique(data.y)[-1], 1.0, -1.0)
    return (x[:120], y[:120]) if len(np.unique(y[:120])) > 1 else (x[::2], y[::2])


def waves(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (40, 3))
    return x, 300 * np.sin(x[:, 0]) + 60 * rng.normal(size=40)


PLAIN = Model(kernels.SquaredExponential(), lik.Probit())
LEARNED = {
    **{f"{name} {method}": lambda name=name, method=method: fit(PLAIN, *standardised(name), METHODS[method])
       for name in ("crabs", "sonar", "ionosphere") for method in ("qp", "ep", "laplace")},
    **{f"{name} {objective}": lambda name=name, objective=objective: fit(
        *CASES[name][:3], CASES[name][5], objective, **CASES[name][4])
       for name in ("poisson ep", "poisson qp", "gaussian ep", "gaussian qp", "student ep", "student qp")
       for objective in ("evidence", "loo")},
    **{f"regressor {kernel} {seed}": lambda kernel=kernel, seed=seed: GaussianProcessRegressor(kernel).fit(
        *waves(seed)).fitted_ for kernel in (None, "ard") for seed in range(4)},
}  # fmt: skip


def learned(name):
    """The learned objective."""
    return {"objective": [LEARNED[name]().objective_value]}


@pytest.fixture(scope="module")
def stored():
    return json.loads(gzip.decompress(STORED.read_bytes()))


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_fixed_hyperparameters_give_the_same_numbers(name, stored):
    found, expected = fixed(name), stored[f"fixed {name}"]
    for key, values in expected.items():
        scale = np.maximum(1.0, np.abs(np.array(values, dtype=float)))
        np.testing.assert_allclose(np.array(found[key]) / scale, np.array(values, dtype=float) / scale, atol=1e-10)


@pytest.mark.campaign
@pytest.mark.parametrize("name", LEARNED)
def test_learned_objectives_are_not_lower(name, stored):
    (found,), (expected,) = learned(name)["objective"], stored[f"learned {name}"]["objective"]
    assert found >= expected - 1e-6 * max(1.0, abs(expected))


if __name__ == "__main__":
    known = json.loads(gzip.decompress(STORED.read_bytes())) if STORED.exists() else {}
    every = {f"fixed {name}": (fixed, name) for name in CASES} | {
        f"learned {name}": (learned, name) for name in LEARNED
    }
    for title in sys.argv[1:] or every:
        function, name = every[title]
        known[title] = function(name)
    STORED.write_bytes(gzip.compress(json.dumps(known).encode(), mtime=0))
