"""Long series of counts by `Markov()`: what a sweep and a learned fit take.

python -m studies.series.markov sweep 1000000 10000000      # seconds of filter and smoother, and of the local rule
python -m studies.series.markov exponent                    # of time in n, from 1e4 to 1e6
python -m studies.series.markov learn 100000 ep             # a learned fit: the first call of a process, then warm
python -m studies.series.markov peers 100000                # a sweep beside tinygp's Gaussian conditioning
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import Markov, Model, fit, kernels, likelihoods
from quantprop.core.gaussian import Natural
from quantprop.inference.engine import InferenceProblem, swept
from quantprop.inference.prediction import padded_prior
from quantprop.inference.task import prepare, starting_sites
from quantprop.methods import by_name as method_by_name
from quantprop.runtime.programs import program

REPEATS = 5


def counts(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Poisson counts at unit steps, their log rate three waves of different lengths."""
    t = np.arange(float(n))
    f = 0.5 + 0.8 * np.sin(t / 50.0) + 0.5 * np.sin(t / 311.0) + 0.3 * np.cos(t / 17.0)
    return t[:, None], np.random.default_rng(seed).poisson(np.exp(f)).astype(float)


def series_model() -> Model:
    return Model(kernels.Matern52(1.0, 30.0), likelihoods.Poisson(), process=Markov())


class Seconds(NamedTuple):
    """Of the first call; of later ones the median, and the least time of processors."""

    first: float
    wall: float
    cpu: float


def seconds(call: Callable[[], Any]) -> Seconds:
    took = []
    for _ in range(REPEATS + 1):
        began, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        took.append((time.perf_counter() - began, time.process_time() - used))
    wall, cpu = np.array(took).T
    return Seconds(wall[0], float(np.median(wall[1:])), float(np.min(cpu[1:])))


conditioned = program(lambda prior, sites: prior.condition(sites, False))
whole = program(lambda problem, sites: swept(problem, sites)[0])


def sweep(n: int, method: str) -> tuple[Seconds, Seconds]:
    """Seconds of filter and smoother, and of a whole sweep."""
    x, y = counts(n)
    model, rule = series_model(), method_by_name(method)
    with jax.enable_x64(True):
        task = prepare(model, x, y, rule, None, None, None)
        problem = jax.device_put(
            InferenceProblem(model.plain_likelihood, rule, padded_prior(model, task.x), task.data, task.weight)
        )
        start = jax.device_put(starting_sites(model.plain_likelihood, task, None))
        sites = Natural(start.nu, jnp.asarray(start.tau) + 0.5)
        alone = seconds(lambda: conditioned(problem.prior, sites))
        all_ = seconds(lambda: whole(problem, sites))
    print(
        f"n = {n}, {method}: filter and smoother {alone.wall:.3f} s ({1e6 * alone.cpu / n:.2f} µs of CPU a point), "
        f"whole sweep {all_.wall:.3f} s ({1e6 * all_.cpu / n:.2f} µs); "
        f"first calls {alone.first:.1f} and {all_.first:.1f} s; {memory()}",
        flush=True,
    )
    return alone, all_


def peers(n: int) -> None:
    """Their mean and variance of f at all data under Gaussian noise, beside a sweep over counts."""
    import tinygp

    x, y = counts(n)
    ours = {method: sweep(n, method)[1] for method in ("ep", "qp")}
    with jax.enable_x64(True):

        @jax.jit
        def theirs(times, y):
            process = tinygp.GaussianProcess(tinygp.kernels.quasisep.Matern52(30.0), times, diag=0.5)
            given = process.condition(y).gp
            return given.loc, given.variance

        gaussian = seconds(lambda: theirs(jnp.asarray(x[:, 0]), jnp.asarray(y)))
    print(f"tinygp, Gaussian: {gaussian.wall:.3f} s ({1e6 * gaussian.cpu / n:.2f} µs of CPU a point)")
    for method, own in ours.items():
        print(f"a sweep of {method} over theirs: {own.wall / gaussian.wall:.2f}, of CPU {own.cpu / gaussian.cpu:.2f}")


def memory() -> str:
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    return "peak memory not told by this device" if peak is None else f"peak {peak / 1e9:.1f} GB"


def exponent() -> None:
    sizes = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    alone = [sweep(n, "ep")[0] for n in sizes]
    for word, took in (("time", [each.wall for each in alone]), ("CPU time", [each.cpu for each in alone])):
        slope = np.polyfit(np.log(sizes), np.log(took), 1)[0]
        print(f"{word} of filter and smoother grows as n^{slope:.3f}")


def learn(n: int, method: str) -> None:
    x, y = counts(n)
    for word in ("first call, compilation included", "again"):
        began, used = time.perf_counter(), time.process_time()
        fitted = fit(series_model(), x, y, method)
        took, cpu = time.perf_counter() - began, time.process_time() - used
        print(f"n = {n}, {method}, {word}: {took:.1f} s, {cpu:.1f} s of CPU; {fitted.status}", flush=True)
    print(fitted.model.kernel, memory())


def main(words: list[str]) -> None:
    print(jax.devices()[0].device_kind)
    if words[0] == "sweep":
        for n in words[1:]:
            for method in ("ep", "qp"):
                sweep(int(n), method)
    elif words[0] == "exponent":
        exponent()
    elif words[0] == "peers":
        peers(int(words[1]))
    elif words[0] == "learn":
        learn(int(words[1]), words[2])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:] or ["help"])
