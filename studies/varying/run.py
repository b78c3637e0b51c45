"""Parameters that vary with x: how often a varying scale is found, and predictions beside those of chains.

    python -m studies.varying.run all --workers 16    # resumes; one thread each
    python -m studies.varying.run summary

Sets: 20 generated sets of 1,000 rows whose scale is constant, and 20 whose scale doubles across x. The gain is that of
leave-one-out log densities by a varying scale over those by a constant one, in paired standard errors.

Chains: four generated sets, at the hyperparameters that made them. Total variation between predictive densities by EP
or QP and by chains of elliptical slice sampling over both functions. What the missing correlation costs: the same
between the chains' density and that of their draws with every f paired with a g of another chain.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import GaussianProcessRegressor, Model, infer, kernels, likelihoods
from quantprop.inference.varying import VaryingSolution
from quantprop.likelihoods import Datum, Varying
from quantprop.likelihoods.base import encode
from quantprop.reference.chains import Halves, split_rhat
from quantprop.reference.guide import Guide, guide, guiding_sites, start, step
from quantprop.runtime.precision import float64
from studies.shared.parts import Row, carry_out, read

OUT = Path(__file__).with_name("rows.jsonl")
SEEDS, ROWS = 20, 1_000
N, NEW, GRID = 150, 25, 300  # rows of the sets for chains, inputs of predictions, values of y at each
CHAINS, DRAWS, WARMUP, THIN = 64, 300, 200, 10


# --- generated sets whose scale is constant, or doubles ---------------------------------------------------------------


def gain_of(kind: str, seed: int) -> Row:
    """The gain by a varying scale per row, its paired standard error, and what was learned."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=ROWS)
    scale = 0.5 * np.ones(ROWS) if kind == "constant" else 0.35 * 2.0**x
    y = np.sin(2.0 * np.pi * x) + scale * rng.standard_normal(ROWS)
    settings: dict[str, Any] = {"method": "ep", "mean": "constant", "normalize_y": True}
    began = time.process_time()
    constant = GaussianProcessRegressor("se(0)", **settings).fit(x[:, None], y)
    between = time.process_time()
    varying = GaussianProcessRegressor("se(0)", varying={"scale": "se(0)"}, **settings).fit(x[:, None], y)
    gain = varying.loo_ - constant.loo_
    return {
        "gain": gain.mean(), "error": gain.std(ddof=1) / np.sqrt(ROWS), "status": str(varying.fitted_.status),
        "evidence": varying.fitted_.objective_value - constant.fitted_.objective_value,
        "scale": varying.parameter_at([[0.05], [0.95]]).median.tolist(),
        "seconds": [between - began, time.process_time() - between],
    }  # fmt: skip


# --- chains ----------------------------------------------------------------------------------------------------------

FAMILIES = {
    "gaussian": (likelihoods.Gaussian(0.4), "scale"),
    "student-t": (likelihoods.StudentT(4.0, 0.4), "scale"),
    "negative-binomial": (likelihoods.NegativeBinomial(0.5), "dispersion"),
    "gamma": (likelihoods.Gamma(3.0), "shape"),
}


class GeneratedSet(NamedTuple):
    """A model with its hyperparameters, rows that it made, and inputs of predictions."""

    model: Model
    x: np.ndarray
    y: np.ndarray
    new: np.ndarray


def generated(family: str) -> GeneratedSet:
    """Both functions drawn from their priors, and y given them."""
    base, parameter = FAMILIES[family]
    kernel = kernels.PerParameter(kernels.SquaredExponential(1.0, 1.0), kernels.SquaredExponential(0.6, 1.5))
    rng = np.random.default_rng(sorted(FAMILIES).index(family))
    x = np.sort(rng.uniform(0.0, 8.0, N))[:, None]
    f, g = (_drawn(part, x, rng) for part in (kernel.function, kernel.parameter))
    likelihood, one = Varying(base, parameter), np.ones(N)
    y = likelihood.at(g).draw(rng, Datum(one, one, one), f)
    return GeneratedSet(Model(kernel, likelihood), x, y, np.linspace(0.2, 7.8, NEW)[:, None])


@float64
def _drawn(kernel: Any, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    values, vectors = np.linalg.eigh(np.asarray(kernel.gram(x)))
    return vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(x)))


def grids(of: GeneratedSet, predictive: Any) -> np.ndarray:
    """Values of y at every new input: all counts that matter, or many numbers."""
    lower, upper = predictive.quantile([1e-6, 1.0 - 1e-6])
    if of.model.plain_likelihood.lattice:
        return np.tile(np.arange(upper.max() + 1.0), (NEW, 1))
    if of.model.plain_likelihood.interval[0] == 0.0:
        return np.geomspace(0.5 * lower, 2.0 * upper, GRID, axis=1)
    middle, half = 0.5 * (lower + upper), 0.8 * (upper - lower)
    return middle[:, None] + half[:, None] * np.linspace(-1.0, 1.0, GRID) ** 3  # dense in the middle


@float64
def chained(of: GeneratedSet, solution: VaryingSolution, y: np.ndarray) -> dict[str, Any]:
    """Densities of y at the new inputs by two halves of the chains, and of draws without correlation; R-hat; the
    correlation of f and g of each row.
    """
    parts = [guide(part.model, of.x, of.y, guiding_sites(part), of.new, None, None)
             for part in (solution.function, solution.parameter)]  # fmt: skip
    likelihood = of.model.plain_likelihood
    data, new = encode(likelihood, of.y, (N,)), Datum(jnp.asarray(y), *(np.ones_like(y),) * 2)
    draw = jax.jit(lambda key: _chain(parts, likelihood, data, key))
    runs = [draw(key) for key in jax.random.split(jax.random.key(0), CHAINS)]
    d = np.stack([np.asarray(run) for run in runs])  # chain, draw, function, row
    rhat = split_rhat(_halves(d[..., :N])).max()
    rng = np.random.default_rng(1)
    at = [part.centre[N:] + d[:, :, k, N:] + np.sqrt(part.left) * rng.standard_normal(d[:, :, k, N:].shape)
          for k, part in enumerate(parts)]  # fmt: skip
    density = jax.jit(lambda f, g: _density(likelihood, new, f, g))
    f, g = at[0], at[1]
    others = np.roll(g, CHAINS // 2, axis=0)  # of another chain: independent of f
    each = [np.asarray(density(f[half].reshape(-1, NEW), g[half].reshape(-1, NEW)))
            for half in (slice(None, CHAINS // 2), slice(CHAINS // 2, None))]  # fmt: skip
    apart = np.asarray(density(f.reshape(-1, NEW), others.reshape(-1, NEW)))
    latent = d[..., :N].reshape(-1, 2, N)
    correlation = [np.corrcoef(latent[:, 0, i], latent[:, 1, i])[0, 1] for i in range(N)]
    return {"halves": each, "apart": apart, "rhat": float(rhat), "correlation": np.array(correlation)}


def _chain(parts: list[Guide], likelihood: Varying, data: Datum, key: Any) -> jax.Array:
    """Draws of f and g at rows and new inputs, less the centres of their guides."""
    sizes = [part.factor.shape for part in parts]
    factor = jax.scipy.linalg.block_diag(*(part.factor for part in parts))

    def residual(d: jax.Array) -> jax.Array:
        f, g = (part.centre[:N] + own[:N] for part, own in zip(parts, jnp.split(d, [sizes[0][0]]), strict=True))
        log_prob = jax.vmap(lambda datum, *both: likelihood.log_prob(datum, both))(data, f, g)
        of_sites = sum(jnp.sum(part.pull * own[:N] - 0.5 * part.sites.tau * own[:N] ** 2)
                       for part, own in zip(parts, jnp.split(d, [sizes[0][0]]), strict=True))  # fmt: skip
        return jnp.sum(log_prob) - of_sites

    def move(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, THIN)
        state = jax.lax.fori_loop(0, THIN, lambda i, state: step(keys[i], state, residual, factor), state)
        return state, state.d

    first, *keys = jax.random.split(key, 1 + WARMUP // THIN + DRAWS)
    _, d = jax.lax.scan(move, start(first, residual, factor), jnp.stack(keys))
    return d[WARMUP // THIN :].reshape(DRAWS, 2, -1)


def _halves(d: np.ndarray) -> Halves:
    """Moments of both functions over each half of each chain."""
    half = d.shape[1] // 2
    parts = np.stack([d[:, :half], d[:, half : 2 * half]]).reshape(2, CHAINS, half, -1)
    return Halves(parts.mean(2), (parts**2).mean(2), half)


def _density(likelihood: Varying, new: Datum, f: jax.Array, g: jax.Array) -> jax.Array:
    """The average over draws of p(y | f, g), for each new input at each y."""

    def given(total: jax.Array, both: Any) -> tuple[jax.Array, None]:
        of_row = jax.vmap(jax.vmap(lambda datum, f, g: likelihood.log_prob(datum, (f, g)), (0, None, None)))
        return total + jnp.exp(of_row(new, *both)), None

    return jax.lax.scan(given, jnp.zeros(new.y.shape), (f, g))[0] / len(f)


def variation(a: np.ndarray, b: np.ndarray, y: np.ndarray, counts: bool) -> np.ndarray:
    """½ ∫ |a − b| dy at every new input."""
    return 0.5 * (np.abs(a - b).sum(1) if counts else np.trapezoid(np.abs(a - b), y, axis=1))


def compared(family: str) -> Row:
    """EP and QP beside chains on one generated set: total variation by input, as median and maximum."""
    of, began = generated(family), time.process_time()
    solutions = {name: infer(of.model, of.x, of.y, name) for name in ("ep", "qp")}
    guided = solutions["ep"]
    assert isinstance(guided, VaryingSolution)
    y = grids(of, guided.predict_y(of.new))
    found = chained(of, guided, y)
    exact, counts = 0.5 * sum(found["halves"]), of.model.plain_likelihood.lattice is not None
    densities = {name: _predicted(solution, of, y) for name, solution in solutions.items()}
    pairs = {
        **{name: (density, exact) for name, density in densities.items()},
        "apart": (found["apart"], exact), "error": tuple(found["halves"]),
    }  # fmt: skip
    row: Row = {"rhat": found["rhat"]}
    for name, (one, other) in pairs.items():
        by_input = variation(one, other, y, counts)
        row |= {name: [float(np.median(by_input)), float(by_input.max())]}
    size = np.abs(found["correlation"])
    row |= {"correlation": [float(np.median(size)), float(size.max())]}
    mass = exact.sum(1) if counts else np.trapezoid(exact, y, axis=1)
    row |= {"mass": float(mass.min()), "converged": [bool(one.converged) for one in solutions.values()]}
    return row | {"seconds": time.process_time() - began}


def _predicted(solution: Any, of: GeneratedSet, y: np.ndarray) -> np.ndarray:
    rows = np.repeat(of.new, y.shape[1], axis=0)
    return np.exp(solution.predict_y(rows).log_prob(y.ravel())).reshape(y.shape)


# --- the command -----------------------------------------------------------------------------------------------------


def done(part: Row) -> Row:
    """The row of a part."""
    return compared(part["set"]) if part["what"] == "chains" else gain_of(part["set"], part["seed"])


def parts_of() -> list[Row]:
    """All parts, the longest first."""
    chains = [{"what": "chains", "set": family, "seed": 0} for family in FAMILIES]
    return chains + [{"what": "sets", "set": kind, "seed": seed} for seed in range(SEEDS)
                     for kind in ("constant", "doubles")]  # fmt: skip


def summary(rows: list[Row]) -> None:
    """Print the counts, and the table of total variations."""
    for kind in ("constant", "doubles"):
        own = [row for row in rows if row["what"] == "sets" and row["set"] == kind]
        if not own:
            continue
        scores = np.array([row["gain"] / row["error"] if row["error"] > 0 else 0.0 for row in own])
        evidence, gain = (np.median([row[name] for row in own]) for name in ("evidence", "gain"))
        print(f"scale {kind}: gain above two standard errors in {(scores > 2.0).sum()} of {len(own)}, below minus two "
              f"in {(scores < -2.0).sum()}; median gain {gain:.4f} per row, of evidence {evidence:.2f}; "
              f"{sum(row['status'].startswith('converged') for row in own)} converged; "
              f"CPU seconds {np.median([row['seconds'] for row in own], axis=0).round(1).tolist()}")  # fmt: skip
    print("| set | EP | QP | without correlation | error of chains | correlation | R-hat |")
    for row in (row for row in rows if row["what"] == "chains"):
        cells = [f"{row[name][0]:.4f}, {row[name][1]:.4f}" for name in ("ep", "qp", "apart", "error", "correlation")]
        print(f"| {row['set']} | " + " | ".join(cells) + f" | {row['rhat']:.4f} |")
    print("(median and largest, over inputs or rows)")


def main() -> None:
    """Compute what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("all", "sets", "chains", "summary"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="parts begin until then")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.what != "summary":
        wanted = [part for part in parts_of() if asked.what in ("all", part["what"])]
        carry_out(done, wanted, read([asked.out]), asked.out, asked.workers, asked.seconds)
    summary(read([asked.out]))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
