"""Programs for tests that kill, starve or interrupt them: `python -m faults.programs NAME FOLDER`."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

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
    from quantprop.learning.batch_search import BatchSearch

    step = BatchSearch.step

    def told(search: BatchSearch) -> None:
        step(search)
        os.write(1, b"working\n")  # at once: two threads say so
        time.sleep(0.5)

    BatchSearch.step = told  # type: ignore[method-assign]
    xs, ys = _problems(40, 30)
    fit_many(Model(kernels.SquaredExponential(), likelihoods.Probit()), xs, ys, "laplace")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
