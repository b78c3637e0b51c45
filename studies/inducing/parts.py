"""Rows in parts and one tied site, for `studies/inducing/run.py parts`.

Stochastic EP (Li, Hernández-Lobato and Turner 2015) keeps one site on u for all rows, the mean of what each would have:
its memory does not grow with n. The cavity of every row is the posterior without one n-th of all sites.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import EP, GaussianProcessRegressor, Inducing, kernels, likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.sites import renewed
from quantprop.likelihoods import Datum
from quantprop.priors.inducing.rows import Basis
from studies.inducing.data import Data, synthetic

LIKELIHOODS = {"probit": likelihoods.Probit, "poisson": likelihoods.Poisson}
PARTS, BATCH, EPOCHS = 10, 500, 4


class Tied(NamedTuple):
    """The sum of all sites on v = L⁻¹u."""

    precision: jax.Array
    linear: jax.Array


def tied_step(tied: Tied, basis: Basis, likelihood: Any, data: Datum, x: jax.Array, rows: int) -> Tied:
    """Every row of a minibatch renews its n-th of the tied site under the same posterior."""
    v, d = basis.explained(basis.whitening(), x)
    rest = jnp.eye(len(v)) + (1.0 - 1.0 / rows) * tied.precision
    inner = jnp.linalg.solve(rest, v)
    cavity = Normal((1.0 - 1.0 / rows) * inner.T @ tied.linear, jnp.sum(v * inner, axis=0) + d)

    def site(datum: Datum, cavity: Normal) -> Any:
        return renewed(cavity, EP().projection.project(likelihood, datum, cavity))

    new = jax.vmap(site)(data, cavity)
    a, share = 1.0 + new.tau * d, x.shape[0] / rows
    gathered = Tied((v * (new.tau / a)) @ v.T / share, v @ (new.nu / a) / share)
    return jax.tree.map(lambda old, new: (1.0 - share) * old + share * new, tied, gathered)


def stochastic(model: Any, likelihood: Any, train: Data, test: Data, passes: int) -> Iterator[tuple[int, np.ndarray]]:
    """log p of the test rows after every pass over the data, at a learned model's numbers."""
    process, kernel = model.plain_process, model.plain_kernel
    basis = Basis(kernel, jnp.asarray(process.points), jnp.ones(()), process.jitter)
    m, rows = len(process.points), len(train.x)
    step = jax.jit(lambda tied, data, x: tied_step(tied, basis, likelihood, data, x, rows))
    tied, draw = Tied(jnp.zeros((m, m)), jnp.zeros(m)), np.random.default_rng(0)
    for epoch in range(passes):
        for at in np.array_split(draw.permutation(rows), max(1, rows // BATCH)):
            at = at[: rows // max(1, rows // BATCH)]  # of one shape
            data = Datum(*(jnp.asarray(part) for part in (train.y[at], train.exposure[at], np.ones(len(at)))))
            tied = step(tied, data, jnp.asarray(train.x[at]))
        v, d = basis.explained(basis.whitening(), jnp.asarray(test.x))
        inner = jnp.linalg.solve(jnp.eye(m) + tied.precision, v)
        latent = Normal(inner.T @ tied.linear, jnp.sum(v * inner, axis=0) + d)
        data = Datum(*(jnp.asarray(part) for part in (test.y, test.exposure, np.ones(len(test.x)))))
        tilted = jax.jit(jax.vmap(lambda row, at: EP().projection.project(likelihood, row, at)))(data, latent)
        yield epoch + 1, np.asarray(tilted.log_normalizer)


def compared(kind: str, rows: int, points: int) -> Iterator[dict[str, Any]]:
    """Scores of all rows at once, of ten parts with numbers learned again or kept, and of stochastic EP."""
    whole = synthetic(2 * rows, kind)
    train, test = (Data(*(part[at] for part in whole)) for at in (slice(0, rows), slice(rows, None)))
    scales = [{"exposure": data.exposure} if kind == "poisson" else {} for data in (train, test)]
    found, base = {}, None
    for name, count, kept in (("all rows", 1, False), ("ten parts", PARTS, False), ("ten parts, kept", PARTS, True)):
        kernel = kernels.SquaredExponential(1.0, np.ones(train.x.shape[1]))
        model = GaussianProcessRegressor(kernel, likelihood=LIKELIHOODS[kind](), method="ep", process=Inducing(points))
        began = time.perf_counter()
        for at in np.array_split(np.arange(rows), count):
            more = {key: value[at] for key, value in scales[0].items()}
            model.partial_fit(train.x[at], train.y[at], **more)
            if kept:
                model.set_params(optimizer=None)
        seconds = time.perf_counter() - began
        values = np.asarray(model.log_predictive_density(test.x, test.y, **scales[1]))
        base, found[name] = values if base is None else base, model
        yield {"way": name, "seconds": round(seconds, 2), **_told(values, base)}
    likelihood = found["all rows"].likelihood_
    with jax.enable_x64(True):
        began = time.perf_counter()
        for epoch, values in stochastic(found["all rows"].fitted_.model, likelihood, train, test, EPOCHS):
            yield {"way": "stochastic EP, numbers of all rows", "passes": epoch,
                   "seconds": round(time.perf_counter() - began, 2), **_told(values, base)}  # fmt: skip


def _told(values: np.ndarray, base: Any) -> dict[str, float]:
    apart = values - base
    return {"log p": round(float(values.mean()), 5), "difference": round(float(apart.mean()), 5),
            "standard error": round(float(apart.std() / np.sqrt(len(apart))), 5)}  # fmt: skip
