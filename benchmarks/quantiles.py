"""Seconds for 1,000 rows × 3 quantiles of y, for every likelihood. Writes benchmarks/out/quantiles.json."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from timing import elapsed

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods import Likelihood

ROWS, LEVELS, ROUNDS = 1000, np.array([0.05, 0.5, 0.95]), 3
RATES, PROBABILITIES = ("exp", "square", "softplus"), ("probit", "logit")


def cases() -> dict[str, Likelihood]:
    """Every likelihood with every link."""
    found: dict[str, Likelihood] = {
        "gaussian": likelihoods.Gaussian(0.7),
        "student-t": likelihoods.StudentT(4.0, 0.7),
        "double-exponential": likelihoods.DoubleExponential(0.7),
        "censored": likelihoods.Censored(0.7),
        "ordinal": likelihoods.Ordinal([-1.0, 0.0, 1.5]),
        "weibull": likelihoods.Weibull(0.7),
        "log-logistic": likelihoods.LogLogistic(0.7),
        "warped": likelihoods.Warped(0.7),
        "probit": likelihoods.Probit(),
        "logit": likelihoods.Logit(),
        "heaviside": likelihoods.Heaviside(0.05),
        "custom": likelihoods.Custom(
            lambda y, f: -0.5 * ((y - jnp.sin(f)) / 0.7) ** 2, cdf=lambda y, f: ndtr((y - jnp.sin(f)) / 0.7)
        ),
    }
    for link in RATES:
        found[f"poisson, {link}"] = likelihoods.Poisson(link)
        found[f"negative-binomial, {link}"] = likelihoods.NegativeBinomial(0.4, link)
        found[f"zero-inflated poisson, {link}"] = likelihoods.ZeroInflatedPoisson(0.2, link)
        found[f"zero-inflated negative-binomial, {link}"] = likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.4, link)
        found[f"gamma, {link}"] = likelihoods.Gamma(1.7, link)
    for link in PROBABILITIES:
        found[f"binomial, {link}"] = likelihoods.Binomial(link)
        found[f"beta, {link}"] = likelihoods.Beta(6.0, link)
    return found


def measure(likelihood: Likelihood) -> tuple[float, ...]:
    """Seconds and processor seconds, the best of some rounds after a first call."""
    rng = np.random.default_rng(0)
    latent = Normal(rng.normal(size=ROWS), rng.uniform(0.01, 1.0, ROWS))
    predictive = Predictive(values(likelihood), latent, np.ones(ROWS), np.full(ROWS, 40.0))
    run = partial(predictive.quantile, LEVELS)
    run()
    return tuple(min(elapsed(run, clock) for _ in range(ROUNDS)) for clock in (time.perf_counter, time.process_time))


def measure_quantiles(out: Path) -> None:
    """Measure, print and store every line."""
    results = {}
    for name, likelihood in cases().items():
        results[name] = measure(likelihood)
        print(f"{name:<42} {results[name][0]:7.3f} s, {results[name][1]:7.3f} s of a processor", flush=True)
    (out / "quantiles.json").write_text(
        json.dumps({"rows": ROWS, "levels": LEVELS.tolist(), "seconds": results}, indent=1)
    )
