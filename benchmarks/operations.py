"""Which of XLA's operations a fit spends its time in: where to look before making it faster.

    python benchmarks/operations.py crabs qp
    python benchmarks/operations.py pima ep --program solved --rows 40

Prints the operations of a warm fit that took longest, and how often they ran. Loops and branches are listed with all
that is inside them. Tracing makes small operations look longer than they are.
"""

from __future__ import annotations

import argparse
import collections
import glob
import gzip
import json
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from quantprop import Model, datasets, fit, kernels, likelihoods

FITS = 5


def events(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """What JAX's profiler saw while FITS fits ran."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 2
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True, profiler_options=options):
            for _ in range(FITS):
                run()
        (file,) = glob.glob(f"{folder}/**/perfetto_trace.json.gz", recursive=True)
        with gzip.open(file) as stream:
            return [event for event in json.load(stream)["traceEvents"] if event.get("ph") == "X"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="one of the data sets of quantprop.datasets")
    parser.add_argument("method", help="ep, qp, vb or laplace")
    parser.add_argument("--program", default="", help="only of programs whose name contains this")
    parser.add_argument("--rows", type=int, default=30)
    asked = parser.parse_args()
    data = datasets.load(asked.data, "clean")
    x = (data.X - data.X.mean(0)) / np.where(data.X.std(0) > 0, data.X.std(0), 1.0)
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    run = partial(fit, model, x, data.y, asked.method)
    run()
    seen = events(run)
    spent: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for event in seen:
        program = (event.get("args") or {}).get("hlo_module", "")
        if program and asked.program in program:
            spent[program, event["name"]].append(event["dur"] / 1e3)
    print(f"{'program':24} {'operation':48} {'ms a fit':>9} {'times':>6}")
    for (program, name), times in sorted(spent.items(), key=lambda item: -sum(item[1]))[: asked.rows]:
        print(f"{program:24} {name[:48]:48} {sum(times) / FITS:9.2f} {len(times) / FITS:6.0f}")


if __name__ == "__main__":
    main()
