"""Speed as ratios inside quantprop: a sweep against LAPACK, QP against EP. Writes benchmarks/out/inside.json.

Each line compares a cost with a yardstick measured in the same process, alternately, so that a busy machine slows both.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.linalg import lapack
from timing import elapsed, ratio

from quantprop import EP, QP, Model, datasets, fit, fit_many, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural, Normal
from quantprop.experiments.protocol import Experiment, split
from quantprop.inference.engine import InferenceProblem, swept
from quantprop.likelihoods import Datum
from quantprop.methods.base import Weight
from quantprop.priors import DensePrior
from quantprop.projections import KL, Wasserstein


def sweep_against_lapack(n: int = 1000) -> tuple[float, float, float]:
    """One parallel probit EP sweep against a factor and an inverse of the same size: LAPACK's potrf + potri on a CPU,
    the vendor's potrf and a triangular inverse, as JAX calls them, on an accelerator.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5))
    k = 10.0 * np.exp(-0.125 * ((x[:, None] - x[None]) ** 2).sum(-1))
    y, one = np.sign(rng.normal(size=n)), np.ones(n)
    problem = InferenceProblem(
        likelihoods.Probit(),
        EP(),
        DensePrior(jnp.zeros(n), jnp.asarray(k)),
        Datum(jnp.asarray(y), jnp.asarray(one), jnp.asarray(one)),
        Weight(jnp.asarray(one), jnp.asarray(one), None),
    )
    sites = Natural(jnp.asarray(0.3 * y), jnp.asarray(0.5 * one))
    compiled = jax.jit(lambda *args: swept(*args)[0].residual)
    spd = np.asfortranarray(np.eye(n) + 0.5 * k)

    def inverse():
        factor, _ = lapack.dpotrf(spd, lower=1)
        return lapack.dpotri(factor, lower=1)[0]

    @jax.jit
    def triangular(b):
        return solve_triangular(jax.lax.linalg.cholesky(b, symmetrize_input=False), jnp.eye(n), lower=True)

    there = jnp.asarray(spd)
    yardstick = inverse if jax.default_backend() == "cpu" else lambda: triangular(there)
    return ratio(lambda: compiled(problem, sites), yardstick)


def probit_projection(n: int = 100_000) -> tuple[float, float, float]:
    """A QP projection of a probit datum against a KL one."""
    rng = np.random.default_rng(1)
    data = Datum(jnp.asarray(np.sign(rng.normal(size=n))), jnp.ones(n), jnp.ones(n))
    cavity = Normal(jnp.asarray(3.0 * rng.normal(size=n)), jnp.asarray(np.exp(2.0 * rng.normal(size=n))))
    probit = likelihoods.Probit()

    def compiled(projection):
        project = jax.jit(lambda d, c: jax.vmap(lambda a, b: projection.project(probit, a, b))(d, c))
        return lambda: project(data, cavity)

    return ratio(compiled(Wasserstein(2)), compiled(KL()))


def inference(name: str) -> tuple[float, float, float]:
    """QP's infer against EP's."""
    if name == "probit":
        data = datasets.load("pima")
        x, y = (data.X - data.X.mean(0)) / data.X.std(0), data.y
        model = Model(kernels.SquaredExponential(3.9, 6.8), likelihoods.Probit())
    else:
        rng = np.random.default_rng(2)
        x = np.sort(rng.uniform(0, 100, size=(600, 1)), axis=0)
        y = rng.poisson((1.5 + np.sin(x[:, 0] / 8)) ** 2).astype(float)
        model = Model(kernels.SquaredExponential(0.5, 5.0), likelihoods.Poisson("square"), mean=1.5)
    return ratio(lambda: infer(model, x, y, method=QP()).loo, lambda: infer(model, x, y, method=EP()).loo)


def learning(name: str) -> tuple[float, float, float]:
    """QP's fit against EP's: of a data set, or of 1,200 made rows of 4 features."""
    if name in datasets.names():
        data = datasets.load(name)
        x, y = (data.X - data.X.mean(0)) / np.where(data.X.std(0) > 0, data.X.std(0), 1.0), data.y
    else:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1200, 4))
        f = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2]
        y = np.where(rng.uniform(size=1200) < 1.0 / (1.0 + np.exp(-3.0 * f)), 1, -1)
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    return ratio(lambda: fit(model, x, y, QP()).theta, lambda: fit(model, x, y, EP()).theta)


def many_fits(method: str, folds: int = 100) -> tuple[float, float, float]:
    """`fit_many` on folds of sonar against a loop of `fit`, both with what they need compiled; once each."""
    parts = [split(Experiment("sonar", round=i // 10, fold=i % 10)) for i in range(folds)]
    x, y = [part.x for part in parts], [part.y for part in parts]
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    fit_many(model, x, y, method), fit(model, x[0], y[0], method)
    many, loop = (elapsed(run) for run in (
        lambda: [f.theta for f in fit_many(model, x, y, method)],
        lambda: [fit(model, a, b, method).theta for a, b in zip(x, y, strict=True)],
    ))  # fmt: skip
    return many, loop, many / loop


LEARNED = ("crabs", "sonar", "ionosphere", "pima", "1,200 rows")
LINES = {
    "probit sweep, n = 1000, over a factor and an inverse": (sweep_against_lapack, 1.6),
    "probit projection, W2 over KL": (probit_projection, 3.0),
    "infer on pima (probit), QP over EP": (lambda: inference("probit"), 1.1),
    "infer at n = 600 (square-link Poisson), QP over EP": (lambda: inference("poisson"), 2.0),
    **{f"fit of {name} (probit), QP over EP": (partial(learning, name), 1.1) for name in LEARNED},
    "EP, fit_many on 100 folds of sonar, over a loop": (lambda: many_fits("ep"), 1 / 3),
    "QP, fit_many on 100 folds of sonar, over a loop": (lambda: many_fits("qp"), 1 / 3),
}


def measure_inside(out: Path) -> None:
    """Print the table of ratios and write it to the folder."""
    results = []
    print(f"{'what':<52} {'cost ms':>9} {'yardstick ms':>13} {'ratio':>6} {'at most':>8}")
    with jax.enable_x64(True):
        for name, (measure, bound) in LINES.items():
            cost, yardstick, r = measure()
            results.append({"what": name, "seconds": cost, "yardstick_seconds": yardstick, "ratio": r, "bound": bound})
            verdict = "" if r <= bound else "  OVER"
            print(f"{name:<52} {1e3 * cost:>9.2f} {1e3 * yardstick:>13.2f} {r:>6.2f} {bound:>8.2f}{verdict}")
    (out / "inside.json").write_text(json.dumps({"device": str(jax.devices()[0]), "lines": results}, indent=1))
