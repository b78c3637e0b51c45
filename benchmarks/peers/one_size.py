"""quantprop at one number of rows, in a fresh process: warm `infer`, warm evaluations of `fit`, peak memory."""

import resource
import sys
import time
from pathlib import Path

import numpy as np
from measured import emit, typical

from quantprop import Model, fit, infer, kernels, likelihoods

METHOD = "ep"
TOLERANCE = 1e-6


def problem(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes with a curved border in five dimensions; one label in twenty is wrong."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 5))
    wrong = rng.uniform(size=n) < 0.05
    return x, np.where((np.sin(2 * x[:, 0]) + x[:, 1] > 0) ^ wrong, 1.0, -1.0)


def peak() -> float:
    """Largest resident memory so far, in MiB. The kernel's own mark leaves out what the parent held at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        mark = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(mark.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    model = Model(kernels.SquaredExponential(4.0, 2.0), likelihoods.Probit())
    fit(model, *problem(32), METHOD, max_evaluations=1)  # what compiling takes is there at every size
    before = peak()
    x, y = problem(int(sys.argv[1]))
    infer(model, x, y, METHOD, tol=TOLERANCE, max_sweeps=1)  # compiles

    sweeps = []

    def seconds() -> float:
        began = time.perf_counter()
        sweeps.append(infer(model, x, y, METHOD, tol=TOLERANCE).status.sweeps)
        return time.perf_counter() - began

    row = {"n": len(x), "infer": typical(seconds), "sweeps": sweeps[0]}
    row |= {"memory_before": before, "memory_infer": peak()}
    steps = fit(model, x, y, METHOD, tol=1e-4, max_evaluations=3).trace[1:]  # the first of them compiles
    middle = sorted(steps, key=lambda step: step.seconds)[len(steps) // 2]
    emit(row | {"evaluation": middle.seconds, "evaluation_sweeps": middle.sweeps, "memory_fit": peak()})


if __name__ == "__main__":
    main()
