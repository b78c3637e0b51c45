"""The same 60 fits by two versions of the library: how far are what they learn and forecast apart?

    python scripts/repeat_fits.py record before.npz       # with one version on the path
    python scripts/repeat_fits.py record after.npz        # with the other
    python scripts/repeat_fits.py compare before.npz after.npz

A change that only moves code must leave every number as it was, up to roundings.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, Parameter, PowerEP, datasets, fit, kernels, likelihoods

ROWS = 60
METHODS = {"ep": EP(), "qp": QP(), "power": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}
Case = tuple[str, Model, np.ndarray, np.ndarray, str, str]


def classes(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of a bundled data set, standardised; the same ones every time."""
    data = datasets.load(name)
    rows = np.random.default_rng(0).permutation(len(data.y))[:ROWS]
    x = data.X[rows]
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1.0), data.y[rows]


def series() -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of one input."""
    x = np.linspace(-2.0, 2.0, ROWS)[:, None]
    return x, np.sin(2.0 * x[:, 0])


def cases() -> Iterator[Case]:
    """Data sets × methods × objectives × likelihoods."""
    one, ard = kernels.SquaredExponential(), kernels.Matern52
    for name, likelihood in (("crabs", likelihoods.Probit()), ("wine1", likelihoods.Probit()),
                             ("ionosphere", likelihoods.Logit())):  # fmt: skip
        x, y = classes(name)
        wide = kernels.SquaredExponential(1.0, np.ones(x.shape[1])) if name == "wine1" else one
        for method in METHODS:
            for objective in ("evidence", "loo"):
                yield f"{name} {method} {objective}", Model(wide, likelihood), x, y, method, objective
    x, f = series()
    rng = np.random.default_rng(1)
    counts, noisy = rng.poisson(np.exp(1.0 + f)).astype(float), f + 0.3 * rng.standard_t(3.0, len(f))
    linear = kernels.Linear() + kernels.Constant()
    regressions = {
        "poisson": (Model(ard(), likelihoods.Poisson(), mean=Parameter(0.5)), counts),
        "square": (Model(one, likelihoods.Poisson(link="square"), mean=1.0), counts),
        "student": (Model(one + linear, likelihoods.StudentT(4.0, 0.3)), noisy),
        "gaussian": (Model(one + kernels.White(0.1), likelihoods.Gaussian(0.3)), noisy),
    }
    for name, (model, y) in regressions.items():
        for method in METHODS:
            if name == "square" and method == "power":
                continue
            for objective in ("evidence", "loo"):
                yield f"{name} {method} {objective}", model, x, y, method, objective


def record(path: str) -> None:
    """θ, objective, evidence, leave-one-out densities and forecasts of every case."""
    found = {}
    for label, model, x, y, method, objective in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = fit(model, x, y, METHODS[method], objective, max_evaluations=12)
            latent = fitted.solution.predict(x[:8] + 0.1)
        found[f"{label}: theta"] = fitted.theta
        found[f"{label}: objective"] = np.array([fitted.objective_value, fitted.solution.log_evidence])
        found[f"{label}: loo"] = fitted.solution.loo
        found[f"{label}: mean"], found[f"{label}: variance"] = latent.mean, latent.variance
        print(label, fitted.status.reason, fitted.objective_value, flush=True)
    np.savez(path, **found)


def compare(before: str, after: str) -> None:
    """Relative differences, the largest first."""
    a, b = np.load(before), np.load(after)
    if set(a) != set(b):
        sys.exit(f"the files hold different cases: {sorted(set(a) ^ set(b))[:4]}")
    apart = {k: float(np.max(np.abs(a[k] - b[k]) / np.maximum(np.abs(a[k]), 1e-3), initial=0.0)) for k in a}
    for k in sorted(apart, key=apart.__getitem__, reverse=True)[:20]:
        print(f"{apart[k]:.1e}  {k}")
    cases = {k.split(":")[0] for k in a}
    exact = {c for c in cases if all(v <= 1e-9 for k, v in apart.items() if k.startswith(c + ":"))}
    print(f"{len(exact)} of {len(cases)} fits equal to 1e-9 in every number")


if __name__ == "__main__":
    {"record": record, "compare": compare}[sys.argv[1]](*sys.argv[2:])
