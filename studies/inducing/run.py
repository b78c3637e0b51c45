"""Inducing points: time, memory and held-out scores.

    python -m studies.inducing.run data sets.npz     # where the packages of data.py are installed
    python -m studies.inducing.run speed sets.npz --cases million flights ten-million poisson  # for an accelerator
    python -m studies.inducing.run cores             # two cores: 20,000 rows; cost and memory against n
    python -m studies.inducing.run scores sets.npz   # EP and QP against VB, and a dense subset
    python -m studies.inducing.run choice sets.npz   # where the points are: k-means++, greedily, at random
    python -m studies.inducing.run counts sets.npz   # counts with exposure and Student-t beside a GLM; calibration
    python -m studies.inducing.run noise             # the noise that is learned with few points
    python -m studies.inducing.run parts             # partial_fit in ten parts, and stochastic EP, beside all rows

Every line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from quantprop import FixedPointWarning, Inducing, Model, fit, infer, kernels, likelihoods
from quantprop.learning.fitting import watched
from studies.inducing.data import Data, read, synthetic, write

CLOSE = 0.1  # nats from the optimum at which learning counts as done
CASES = {  # rows, likelihood, points; a name for rows is a set of the file
    "million": (1_000_000, "probit", 512),
    "flights": ("flights", "probit", 1024),
    "ten-million": (10_000_000, "probit", 512),
    "poisson": (1_000_000, "poisson", 512),
}
LIKELIHOODS = {"probit": likelihoods.Probit, "poisson": likelihoods.Poisson}


def model_of(data: Data, likelihood: str, process: Any) -> Model:
    """ARD, every number 1."""
    kernel = kernels.SquaredExponential(1.0, np.ones(data.x.shape[1]))
    return Model(kernel, LIKELIHOODS[likelihood](), process=process)


def scales_of(data: Data, likelihood: str) -> dict[str, np.ndarray]:
    return {"exposure": data.exposure} if likelihood == "poisson" else {}


def learned(data: Data, likelihood: str, process: Any, method: str, evaluations: int) -> tuple[Any, dict[str, Any]]:
    """A fit, and how it went: seconds to within CLOSE of its best value, compilation included."""
    began, seen = time.perf_counter(), []

    def note(step, count):
        seen.append((time.perf_counter() - began, step.value, step.sweeps))

    with watched(note):
        fitted = fit(model_of(data, likelihood, process), data.x, data.y, method, max_evaluations=evaluations,
                     **scales_of(data, likelihood))  # fmt: skip
    total = time.perf_counter() - began
    best = max(value for _, value, _ in seen)
    close = next(at for at, value, _ in seen if value >= best - CLOSE)
    numbers = {
        "method": method, "rows": len(data.x), "points": getattr(process, "count", None), "seconds": round(close, 2),
        "seconds in all": round(total, 2), "first evaluation": round(seen[0][0], 2), "evaluations": len(seen),
        "sweeps": sum(sweeps for *_, sweeps in seen), "value": fitted.objective_value, "status": fitted.status.reason,
        "hyperparameters": [round(float(t), 4) for t in fitted.theta[:12]],
    }  # fmt: skip
    return fitted, numbers


def memory() -> dict[str, float]:
    """Peaks so far, in GB."""
    device = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"host GB": round(host / 1e9, 2)} | ({} if device is None else {"device GB": round(device / 1e9, 2)})


def tell(**numbers: Any) -> None:
    print(json.dumps(numbers), flush=True)


def speed(given: argparse.Namespace) -> None:
    """Must be run for one case at a time where peaks of memory matter: they are those of the process."""
    tell(device=jax.devices()[0].device_kind, jax=jax.__version__)
    for case in given.cases:
        rows, likelihood, points = CASES[case]
        data = read(given.file, rows) if isinstance(rows, str) else synthetic(rows, likelihood)
        for method in given.methods:
            _, numbers = learned(data, likelihood, Inducing(points), method, given.evaluations)
            tell(case=case, likelihood=likelihood, **numbers, **memory())


def cores(given: argparse.Namespace) -> None:
    """20,000 rows learned; then a sweep, and an evaluation's gradient, against the number of rows."""
    baseline = memory()["host GB"]
    for method in given.methods:
        _, numbers = learned(synthetic(20_000, "probit"), "probit", Inducing(256), method, 300)
        tell(case="20,000 rows", **numbers, **memory())
    sizes, took = [10_000, 30_000, 100_000, 300_000], []
    for n in sizes:
        took.append(parts_of_an_evaluation(synthetic(n, "probit"), Inducing(256)))
        a_sweep, a_gradient = took[-1]
        tell(case="against n", rows=n, **{"a sweep": round(a_sweep, 4), "a gradient": round(a_gradient, 4)},
             baseline=baseline, **memory())  # fmt: skip
    sweeps, gradients = np.transpose(took)
    for name, seconds in {"a sweep": sweeps, "a gradient": gradients, "both": sweeps + gradients}.items():
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        tell(case="against n", of=name, exponent=round(float(exponent), 3))


def parts_of_an_evaluation(data: Data, process: Any) -> tuple[float, float]:
    """Seconds of a sweep (of EP; ten more of them in `infer`, tenth part) and of what learning adds to an evaluation's
    sweeps: its gradient. The least of several each.
    """
    model = model_of(data, "probit", process.settled(None, data.x))

    def swept(count: int) -> float:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FixedPointWarning)  # so few sweeps are not meant to converge
            infer(model, data.x, data.y, "ep", max_sweeps=count, tol=1e-300)
        return time.perf_counter() - began

    swept(2)
    a_sweep = min(swept(12) - swept(2) for _ in range(3)) / 10
    steps: list[Any] = []
    with watched(lambda step, count: steps.append(step)):
        fit(model, data.x, data.y, "ep", max_evaluations=8)
    return a_sweep, min(step.seconds - step.sweeps * a_sweep for step in steps[1:])


def divided(data: Data, seed: int) -> tuple[Data, Data]:
    """Four fifths to learn from, one to score."""
    order = np.random.default_rng(seed).permutation(len(data.x))
    cut = len(order) // 5
    return tuple(Data(*(part[at] for part in data)) for at in (order[cut:], order[:cut]))  # type: ignore[return-value]


def held_out(fitted: Any, data: Data, likelihood: str) -> np.ndarray:
    """log p(y) of every row."""
    return np.asarray(fitted.solution.predict_y(data.x, **scales_of(data, likelihood)).log_prob(data.y))


def scores(given: argparse.Namespace) -> None:
    """EP and QP against VB with the same points, and against EP of a dense model of a random subset."""
    for name in given.sets:
        likelihood = "poisson" if name == "doctor" else "probit"
        train, test = divided(read(given.file, name), given.seed)
        process = Inducing(min(given.points, len(train.x) // 4)).settled(None, train.x)  # type: ignore[arg-type]
        found = {}
        for method in ("vb", "ep", "qp"):
            fitted, numbers = learned(train, likelihood, process, method, given.evaluations)
            found[method] = held_out(fitted, test, likelihood)
            tell(set=name, likelihood=likelihood, **numbers, **_against(found[method], found["vb"]))
        if given.subset:
            some = np.random.default_rng(given.seed).permutation(len(train.x))[: given.subset]
            part = Data(*(column[some] for column in train))
            fitted, numbers = learned(part, likelihood, Model(kernels.White(), likelihoods.Probit()).process, "ep",
                                      given.evaluations)  # fmt: skip
            tell(set=name, likelihood=likelihood, dense=len(some), **numbers,
                 **_against(held_out(fitted, test, likelihood), found["ep"]))  # fmt: skip


def _against(values: np.ndarray, base: np.ndarray) -> dict[str, float]:
    """The mean, and the mean paired difference with its standard error."""
    apart = values - base
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    return {"log p": round(float(values.mean()), 5), "difference": round(float(apart.mean()), 5),
            "standard error": round(float(error), 5)}  # fmt: skip


def choice(given: argparse.Namespace) -> None:
    """Evidence and held-out score of EP by how the points were chosen."""
    from studies.inducing.choice import CHOICES

    for name in given.sets:
        train, test = divided(read(given.file, name), given.seed)
        for points in (64, given.points):
            base = None
            for way, choose in CHOICES.items():
                z = choose(train.x, points, given.seed)
                fitted, numbers = learned(train, "probit", Inducing(z), "ep", given.evaluations)
                values = held_out(fitted, test, "probit")
                base = values if base is None else base
                tell(set=name, way=way, **numbers, **_against(values, base))


def counts(given: argparse.Namespace) -> None:
    """Poisson, negative binomial and Student-t: densities, PIT and intervals."""
    from studies.inducing.counts import CASES, told

    for name, case in CASES.items():
        if not given.only or given.only in name:
            began = time.perf_counter()
            found = told(case, given.file, given.points, given.methods[0], given.evaluations, divided, given.seed)
            tell(case=name, seconds=round(time.perf_counter() - began, 1), **found)


def noise(given: argparse.Namespace) -> None:
    """EP, power EP and VB with few points and more."""
    from studies.inducing.counts import noise

    for likelihood in ("gaussian", "student-t"):
        for points in (10, 20, 40, 80, 160):
            for method in ("ep", "power ½", "vb"):
                tell(**noise(method, likelihood, points))


def parts(given: argparse.Namespace) -> None:
    """All rows at once, in ten parts, and by one tied site."""
    from studies.inducing.parts import compared

    for likelihood in ("probit", "poisson"):
        for numbers in compared(likelihood, given.rows, given.points):
            tell(likelihood=likelihood, rows=given.rows, points=given.points, **numbers)


COMMANDS = {make.__name__: make for make in (speed, cores, scores, choice, counts, noise, parts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("data", *COMMANDS))
    parser.add_argument("file", nargs="?", type=Path, default=Path("sets.npz"))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--methods", nargs="+", default=["ep", "qp"])
    parser.add_argument("--sets", nargs="+", default=["magic", "banana", "flights", "letter", "visits"])
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--subset", type=int, default=5000)
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--only", help="of counts: the cases whose name has this in it")
    parser.add_argument("--rows", type=int, default=20_000, help="of parts")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "data":
        write(given.file)
    else:
        COMMANDS[given.what](given)


if __name__ == "__main__":
    main()
