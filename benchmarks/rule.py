"""The local rule: µs a datum for every likelihood by EP and QP beside probit, and a sweep of 500 rows.

Writes out/rule.json. Both are medians of calls that alternate with probit's, so that a busy machine slows both.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from timing import ratio

from quantprop import EP, QP, likelihoods
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.engine import InferenceProblem, swept
from quantprop.likelihoods import Datum, Likelihood
from quantprop.methods.base import Weight
from quantprop.priors import DensePrior
from quantprop.runtime.programs import program

KINDS = {
    "logit": likelihoods.Logit(),
    "poisson": likelihoods.Poisson(),
    "poisson, softplus": likelihoods.Poisson("softplus"),
    "poisson, square": likelihoods.Poisson("square"),
    "negative binomial": likelihoods.NegativeBinomial(0.5),
    "binomial": likelihoods.Binomial(),
    "binomial, logit": likelihoods.Binomial("logit"),
    "student-t": likelihoods.StudentT(),
    "gamma": likelihoods.Gamma(2.0),
    "beta": likelihoods.Beta(5.0),
}
METHODS = {"EP": EP(), "QP": QP()}
MOST = 2.0  # times probit's sweep
SWEPT = ("logit", "poisson", "negative binomial", "student-t")


def simulated(likelihood: Likelihood, n: int, seed: int = 0) -> tuple[Datum, Normal]:
    """Observations of f ~ N(0.3, 1), and cavities such as a fit has."""
    rng = np.random.default_rng(seed)
    f, one = 0.3 + rng.normal(size=n), np.ones(n)
    trials = 10.0 * one
    y = likelihood.draw(rng, Datum(one, one, trials), f)
    cavity = Normal(0.3 + 0.7 * rng.normal(size=n), np.exp(-1.0 + rng.normal(size=n)))
    return jax.tree.map(jnp.asarray, (Datum(y, one, trials), cavity))


def projection_times(n: int = 10_000) -> dict[str, tuple[float, float]]:
    """µs a datum of a projection, and probit's in the same run."""
    times = {}
    for method, setting in METHODS.items():
        project = program(lambda rule, kind, d, c: jax.vmap(lambda a, b: rule.project(kind, a, b))(d, c))

        def call(kind, project=project, rule=setting.projection):
            data, cavity = simulated(kind, n)
            return lambda: project(rule, kind, data, cavity)

        probit = call(likelihoods.Probit())
        for name, kind in KINDS.items():
            cost, yardstick, _ = ratio(call(kind), probit)
            times[f"{name}, {method}"] = (1e6 * cost / n, 1e6 * yardstick / n)
    return times


def sweep_ratios(n: int = 500) -> dict[str, tuple[float, float, float]]:
    """A parallel sweep of n rows over that of probit, seconds of both and their ratio."""
    x = np.sort(np.random.default_rng(1).uniform(0, 10, n))
    prior = DensePrior(jnp.zeros(n), jnp.asarray(np.exp(-0.5 * (x[:, None] - x) ** 2)))
    one, sites = jnp.ones(n), Natural(jnp.zeros(n), 0.3 * jnp.ones(n))
    sweep = program(lambda problem, sites: swept(problem, sites)[0].residual)

    def call(kind, method):
        problem = InferenceProblem(kind, method, prior, simulated(kind, n)[0], Weight(one, one, None))
        return lambda: sweep(problem, sites)

    return {
        f"{name}, {word}": ratio(call(KINDS[name], method), call(likelihoods.Probit(), method))
        for word, method in METHODS.items()
        for name in SWEPT
    }


def measure_rule(out: Path) -> None:
    """Print both tables and write them to the folder."""
    with jax.enable_x64(True):
        times = projection_times()
        print(f"{'projection of 10,000 data':<28} {'µs a datum':>11} {'probit':>8}")
        for name, (cost, probit) in times.items():
            print(f"{name:<28} {cost:>11.2f} {probit:>8.2f}")
        ratios = sweep_ratios()
    print(f"{'sweep of 500 rows':<28} {'ms':>11} {'probit':>8} {'ratio':>6} {'at most':>8}")
    for name, (cost, probit, over) in ratios.items():
        verdict = "" if over <= MOST else "  OVER"
        print(f"{name:<28} {1e3 * cost:>11.2f} {1e3 * probit:>8.2f} {over:>6.2f} {MOST:>8.2f}{verdict}")
    (out / "rule.json").write_text(json.dumps({"projections": times, "sweeps": ratios}, indent=1))
