"""Counts and real numbers at scale, for `studies/inducing/run.py counts`: beside a constant and a linear model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.stats import kstest

from quantprop import Inducing, Model, Parameter, fit, kernels, likelihoods
from quantprop.core.parameters import declared, packed, unpacked
from quantprop.likelihoods import Datum, Likelihood
from studies.inducing.data import Data, read

LEVEL = 0.9


class Case(NamedTuple):
    """A likelihood at its start, and the rows, drawn or by the name of a set."""

    likelihood: Likelihood
    rows: str | Callable[[], Data]


def _drawn(n: int, kind: str, seed: int = 1) -> Data:
    """Five features, of which three matter: counts with exposure, or real numbers with one outlier in fifty."""
    draw = np.random.default_rng(seed)
    x, exposure = draw.normal(size=(n, 5)), draw.uniform(0.2, 5.0, n)
    f = 1.2 * np.sin(2.0 * x[:, 0]) + 0.7 * x[:, 1] * x[:, 2]
    if kind == "student-t":
        noise = np.where(draw.random(n) < 0.02, 10.0, 0.5) * draw.normal(size=n)
        return Data(x, f + noise, np.ones(n))
    rate = exposure * np.exp(0.5 * f) * (draw.gamma(2.0, 0.5, n) if kind == "negative-binomial" else 1.0)
    return Data(x, draw.poisson(rate).astype(np.float64), exposure)


CASES = {
    "poisson, drawn": Case(likelihoods.Poisson(), lambda: _drawn(25_000, "poisson")),
    "negative binomial, drawn": Case(likelihoods.NegativeBinomial(), lambda: _drawn(25_000, "negative-binomial")),
    "student-t, drawn": Case(likelihoods.StudentT(), lambda: _drawn(62_500, "student-t")),
    "poisson, doctor": Case(likelihoods.Poisson(), "doctor"),
    "negative binomial, doctor": Case(likelihoods.NegativeBinomial(), "doctor"),
    "negative binomial, late": Case(likelihoods.NegativeBinomial(), "late"),
    "student-t, gained": Case(likelihoods.StudentT(), "gained"),
}


def linear(likelihood: Likelihood, train: Data, test: Data, constant: bool) -> np.ndarray:
    """log p of the test rows under f = b + xᵀβ (a GLM), or b alone, by maximum likelihood with all other numbers."""
    parts = declared(likelihood)
    theta, columns = packed(parts), 0 if constant else train.x.shape[1]

    def rows(numbers: Any, data: Data) -> Any:
        own, f = (
            unpacked(parts, numbers[: len(theta)]),
            numbers[len(theta)] + data.x[:, :columns] @ numbers[len(theta) + 1 :],
        )
        datum = Datum(jnp.asarray(data.y), jnp.asarray(data.exposure), jnp.ones(len(data.y)))
        return jax.vmap(own.log_prob)(datum, f)

    start = np.concatenate([theta, np.zeros(1 + columns)])
    loss = jax.jit(jax.value_and_grad(lambda numbers: -jnp.mean(rows(numbers, train))))
    found = minimize(lambda t: tuple(map(np.asarray, loss(t))), start, jac=True, method="L-BFGS-B", tol=1e-12)
    return np.asarray(rows(found.x, test))


def told(
    case: Case, file: Any, points: int, method: str, evaluations: int, divided: Callable, seed: int
) -> dict[str, Any]:
    """Scores with paired standard errors, and whether randomised PIT values are uniform."""
    data = read(file, case.rows) if isinstance(case.rows, str) else case.rows()
    train, test = divided(data, seed)
    scaled = "exposure" in case.likelihood.scaled_by
    exposure = [{"exposure": part.exposure} if scaled else {} for part in (train, test)]
    kernel = kernels.SquaredExponential(1.0, np.ones(train.x.shape[1]))
    model = Model(kernel, case.likelihood, Parameter(0.0), Inducing(points))
    fitted = fit(model, train.x, train.y, method, max_evaluations=evaluations, **exposure[0])
    y = fitted.solution.predict_y(test.x, **exposure[1])
    found = np.asarray(y.log_prob(test.y))
    others = {name: found - linear(case.likelihood, train, test, name == "constant") for name in ("constant", "linear")}
    top = np.asarray(y.cdf(test.y))
    bottom = np.asarray(y.cdf(test.y - 1.0)) if case.likelihood.lattice is not None else top
    pit = bottom + np.random.default_rng(seed).random(len(top)) * (top - bottom)
    inside = np.abs(pit - 0.5) < 0.5 * LEVEL
    error, test_of = np.sqrt(LEVEL * (1.0 - LEVEL) / len(pit)), kstest(pit, "uniform")
    over = {f"above {name}": [float(d.mean()), float(d.std() / np.sqrt(len(d)))] for name, d in others.items()}
    return {
        "rows": len(train.x), "held out": len(test.x), "points": points, "method": method,
        "status": fitted.status.reason, "evaluations": fitted.status.evaluations, "log p": float(found.mean()), **over,
        "PIT, KS p": float(test_of.pvalue), "KS distance": float(test_of.statistic),
        "inside 90 %": float(inside.mean()), "standard errors off": float((inside.mean() - LEVEL) / error),
        "numbers": fitted.hyperparameters,
    }  # fmt: skip


def noise(method: str, likelihood: str, points: int, n: int = 4000, seed: int = 0) -> dict[str, Any]:
    """The noise learned with few points beside the truth, 0.3, and what the points leave unexplained."""
    from quantprop import PowerEP

    draw = np.random.default_rng(seed)
    x = draw.uniform(-3, 3, (n, 2))
    f = np.sin(3.0 * x[:, 0]) + np.cos(2.0 * x[:, 1])
    y = f + 0.3 * (draw.normal(size=n) if likelihood == "gaussian" else draw.standard_t(4, size=n))
    kind = (
        likelihoods.Gaussian(1.0) if likelihood == "gaussian" else likelihoods.StudentT(Parameter(4.0, fixed=True), 1.0)
    )
    model = Model(kernels.SquaredExponential(1.0, np.ones(2)), kind, process=Inducing(points))
    fitted = fit(model, x, y, PowerEP(0.5) if method == "power ½" else method, max_evaluations=100)
    with jax.enable_x64(True):
        plain = fitted.model
        prior = plain.plain_process.prior(plain.plain_kernel, jnp.zeros(n), jnp.asarray(x))
        left = float(jnp.mean(prior.for_sweeps().rows.residual))
    return {
        "likelihood": likelihood, "method": method, "points": points, "rows": n, "truth": 0.3,
        "learned noise": round(float(fitted.model.plain_likelihood.scale), 4), "unexplained, root": round(left**0.5, 4),
        "status": fitted.status.reason, "evidence": round(fitted.objective_value, 2),
    }  # fmt: skip
