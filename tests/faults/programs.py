"""Programs for tests that kill, starve or interrupt them: `python -m faults.programs NAME FOLDER`."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def save_again_and_again(folder: Path) -> None:
    """Two models in turn, to one file."""
    from storage.cases import MODELS, made

    from quantprop.storage import save

    models = [made(MODELS["ard"]), made(MODELS["poisson"])]
    while True:
        for model in models:
            save(model, folder / "model")
            print("saved", flush=True)


def starved(folder: Path) -> None:
    """What a problem that is too large is told, under each of the limits of a process, and that others still run."""
    from quantprop import Model, infer, kernels, likelihoods

    value, model = evidence(0), Model(kernels.Matern32(), likelihoods.Gaussian())
    lines = Path("/proc/self/status").read_text().splitlines()
    used = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.startswith("Vm")}
    for limit, size in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        before = resource.getrlimit(limit)
        resource.setrlimit(limit, (used[size] + 2**30, before[1]))
        try:
            infer(model, np.linspace(0.0, 1.0, 4000)[:, None], np.zeros(4000), "laplace")
        except MemoryError as error:
            print(error)
        print(evidence(0) == value)
        resource.setrlimit(limit, before)


def forked(folder: Path) -> None:
    """What children say that were forked after a fit: each way of it, and one that was forked before."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    with context.Pool(1) as before:
        before.map(abs, [1])
        value = evidence(0)
        print(before.map(evidence, [0])[0] == value)
    with ProcessPoolExecutor(1, context) as executor, context.Pool(1) as pool:
        for task in (pool.apply_async(evidence, [0]).get, executor.submit(evidence, 0).result):
            try:
                print(task())
            except RuntimeError as error:
                print(error)


def forked_after_jax(folder: Path) -> None:
    """What a child says that was forked after JAX had computed for something else, quantprop being imported."""
    import multiprocessing

    import jax.numpy as jnp

    from quantprop import infer  # noqa: F401

    (jnp.ones(3) + 1.0).block_until_ready()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            print(pool.apply_async(evidence, [0]).get())
        except RuntimeError as error:
            print(error)


def evidence(_: int) -> float:
    from quantprop import Model, infer, kernels, likelihoods

    x = np.linspace(0.0, 1.0, 5)[:, None]
    return infer(Model(kernels.Matern32(), likelihoods.Gaussian()), x, x[:, 0], "laplace").log_evidence


def save_without_space(folder: Path) -> None:
    """A save that gets no further than 1,000 bytes, over a file that is there."""
    from storage.cases import MODELS, made

    from quantprop.storage import save

    save(made(MODELS["ard"]), folder / "model")
    before = (folder / "model").read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    try:
        save(made(MODELS["poisson"]), folder / "model")
    except OSError as error:
        print(error, flush=True)
    assert (folder / "model").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["model"]


def sweep_without_space(folder: Path) -> None:
    """A sweep on a disk that is full after 20,000 bytes."""
    from experiments.pretend import PLAN, Pretend

    from quantprop.experiments.sweep import run

    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    run(PLAN, folder, Pretend())


def _problems(count: int, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    draw = np.random.default_rng(0)
    xs = [draw.normal(size=(n, 2)) for _ in range(count)]
    return xs, [np.where(x[:, 0] + 0.5 * draw.normal(size=n) > 0, 1.0, -1.0) for x in xs]


def fit_for_long(folder: Path) -> None:
    """Fit after fit; says so once the first is done."""
    from quantprop import Model, fit, kernels, likelihoods

    xs, ys = _problems(1, 60)
    while True:
        fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), xs[0], ys[0], "laplace")
        print("working", flush=True)


def fit_many_for_long(folder: Path) -> None:
    """A batch that takes long, since every step of its searches does; says so once the first evaluations are done."""
    from quantprop import Model, fit_many, kernels, likelihoods
    from quantprop.learning.batch import Batch

    evaluate = Batch.evaluate

    def told(*args: Any) -> Any:
        found = evaluate(*args)
        os.write(1, b"working\n")  # at once: two threads say so
        time.sleep(0.5)
        return found

    Batch.evaluate = told  # type: ignore[method-assign]
    xs, ys = _problems(40, 30)
    fit_many(Model(kernels.SquaredExponential(), likelihoods.Probit()), xs, ys, "laplace")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
