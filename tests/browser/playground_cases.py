"""Sites that the page is asked for, and what the library makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from quantprop import likelihoods, project, projections

EACH = 4  # sites of every likelihood


@dataclass(frozen=True)
class Site:
    """A likelihood by the page's name, y, its parameters, and the cavity."""

    name: str
    y: float
    parameters: dict[str, Any]
    mean: float
    sd: float


def _scale(rng):
    return {"scale": float(rng.uniform(0.2, 2.0))}


COUNT, REAL, POSITIVE, SIGN = (
    lambda rng: float(rng.integers(0, 30)),
    lambda rng: float(rng.uniform(-4, 4)),
    lambda rng: float(rng.uniform(0.2, 8)),
    lambda rng: float(rng.choice([-1, 1])),
)
KINDS = {  # name: y, parameters, the library's likelihood, and y as it takes it
    "probit": (SIGN, lambda rng: {}, likelihoods.Probit, None),
    "logit": (SIGN, lambda rng: {}, likelihoods.Logit, None),
    "heaviside": (SIGN, lambda rng: {"noise": float(rng.uniform(0.01, 0.3))}, likelihoods.Heaviside, None),
    "poisson": (COUNT, lambda rng: {"link": "exp"}, likelihoods.Poisson, None),
    "poisson-square": (COUNT, lambda rng: {"link": "square"}, likelihoods.Poisson, None),
    "poisson-softplus": (COUNT, lambda rng: {"link": "softplus"}, likelihoods.Poisson, None),
    "negative-binomial": (
        COUNT,
        lambda rng: {"dispersion": float(rng.uniform(0.1, 2.0))},
        likelihoods.NegativeBinomial,
        None,
    ),
    "zero-inflated-poisson": (
        lambda rng: float(rng.choice([0, 0, 4])),
        lambda rng: {"inflation": float(rng.uniform(0.05, 0.6))},
        likelihoods.ZeroInflatedPoisson,
        None,
    ),
    "student-t": (REAL, lambda rng: {"df": float(rng.uniform(1.5, 8)), **_scale(rng)}, likelihoods.StudentT, None),
    "double-exponential": (REAL, _scale, likelihoods.DoubleExponential, None),
    "gaussian": (REAL, _scale, likelihoods.Gaussian, None),
    "gamma": (POSITIVE, lambda rng: {"shape": float(rng.uniform(0.4, 5))}, likelihoods.Gamma, None),
    "weibull": (POSITIVE, _scale, likelihoods.Weibull, np.inf),
    "log-logistic": (POSITIVE, _scale, likelihoods.LogLogistic, np.inf),
    "censored": (REAL, _scale, likelihoods.Censored, np.inf),
}


def drawn() -> list[Site]:
    rng = np.random.default_rng(8)
    return [
        Site(name, y(rng), parameters(rng), float(rng.uniform(-4, 4)), float(np.exp(rng.uniform(-1.5, 1.8))))
        for name, (y, parameters, _, _) in KINDS.items()
        for _ in range(EACH)
    ]


SITES = drawn()


@cache
def expected() -> dict[str, np.ndarray]:
    """Of all sites: log Z, and mean and standard deviation by each projection."""
    rules = {"KL": projections.KL(), "W2": projections.Wasserstein(2), "W1": projections.Wasserstein(1)}
    found: dict[str, list] = {"logZ": [], **{rule: [] for rule in rules}}
    for site in SITES:
        _, _, make, upper = KINDS[site.name]
        y = site.y if upper is None else np.array([site.y, upper])
        of = {r: project(make(**site.parameters), y, (site.mean, site.sd**2), rule) for r, rule in rules.items()}
        found["logZ"].append(float(of["KL"].log_normalizer))
        for rule, gaussian in of.items():
            found[rule].append([float(gaussian.mean), float(np.sqrt(gaussian.variance))])
    return {name: np.array(values) for name, values in found.items()}
