"""One process of a job, and what it is tested by: `python -m shards.job OUT PORT PROCESSES PROCESS DEVICES CASE ROWS`.

CASE names a function of this module that takes the rows of a process and returns named arrays. A job of several
processes divides the rows of a problem among them, unevenly; a job of one divides them among its devices.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import quantprop
from quantprop import EP, QP, Dense, Inducing, Markov, Model, Parameter, fit, infer, kernels, likelihoods
from quantprop.runtime.jobs import join

BOX = np.array([[-1.0, 1.0], [2.0, 5.0]])
COPIES = 8  # of each row, where there are to be many
NEW = np.random.default_rng(5).normal(size=(7, 2))


def problem(n: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Rows of two features, with labels and counts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1]
    label = np.where(f + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return {"x": x, "label": label, "count": rng.poisson(np.exp(f)).astype(float)}


def part(rows: dict[str, np.ndarray], process: int, processes: int) -> dict[str, np.ndarray]:
    """The rows of one process: fewer for the first ones."""
    n = len(rows["x"])
    ends = [n * i * (processes + i) // (2 * processes**2) for i in range(processes + 1)]
    ends[-1] = n
    return {name: column[ends[process] : ends[process + 1]] for name, column in rows.items()}


def small(rows: dict[str, np.ndarray], method: Any = EP()) -> dict[str, Any]:
    """EP learned on labels."""
    model = Model(kernels.SquaredExponential(1.0, np.ones(2)), likelihoods.Probit(), Parameter(0.1), Inducing(16))
    return of_fit(fit(model, rows["x"], rows["label"], method, max_evaluations=20))


def small_by_qp(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """QP learned on labels: its evidence is not stationary in the sites."""
    return small(rows, QP())


def inferred(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """EP inferred on counts."""
    counts = Model(kernels.SquaredExponential(), likelihoods.Poisson(), process=Inducing(16))
    found = infer(counts, rows["x"], rows["count"], EP(), tol=1e-10)
    return of_solution(found, "count.")


def refused(rows: dict[str, np.ndarray]) -> list[str]:
    """What processes that need all rows say of a part of them."""
    found = []
    for process in (Dense(), Markov()):
        try:
            infer(Model(kernels.Matern32(), likelihoods.Probit(), process=process), rows["x"][:, :1], rows["label"])
        except ValueError as error:
            found.append(str(error))
    return found


def wrong(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """What all processes say of a wrong row in one of them, of processes that need all rows, and of other versions."""
    import jax

    x = np.where(jax.process_index() == 1, np.nan, 1.0) * rows["x"]
    try:
        infer(Model(kernels.Matern32(), likelihoods.Probit(), process=Inducing(16)), x, rows["label"])
    except (ValueError, RuntimeError) as error:
        return {"nan": f"{type(error).__name__}: {error}", "refused": refused(rows), "unlike": unlike()}
    return {}


def unlike() -> str:
    """What a host says that has another version of something."""
    import jax

    from quantprop.runtime.jobs import JobError, check_alike

    try:
        check_alike([f"numpy 2.{jax.process_index()}", "jax 0.10"])
    except JobError as error:
        return str(error)
    return ""


def full(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """What all processes say where one of them has not enough memory."""
    import jax

    from quantprop.inference import task

    def short_of_memory(cost: Any) -> None:
        if jax.process_index() == 1:
            raise MemoryError("too many rows")

    model = Model(kernels.Matern32(), likelihoods.Probit(), process=Inducing(16))
    with patch.object(task, "check_memory", short_of_memory):
        try:
            infer(model, rows["x"], rows["label"])
        except (MemoryError, RuntimeError) as error:
            return {"full": f"{type(error).__name__}: {error}"}
    return {}


def restarted(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Random starts of an estimator without a random_state."""
    from quantprop.estimators.core import FitOptions, random_starts
    from quantprop.learning.objectives import Evidence

    return {"starts": random_starts(FitOptions(QP(), Evidence(), "fmin_l_bfgs_b", 2, None, 100), BOX)}


def quick(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Laplace inferred on labels."""
    model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(16))
    return of_solution(infer(model, rows["x"], rows["label"], "laplace", tol=1e-10), "")


def on_the_way(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """How precise inference is while a search is on its way: here by the number of rows, each taken many times."""
    from quantprop.inference.task import prepare, settled
    from quantprop.learning.landscape import Landscape
    from quantprop.learning.objectives import Evidence
    from quantprop.learning.trials import loose

    x, y = (np.repeat(rows[name], COPIES, axis=0) for name in ("x", "label"))
    model = settled(Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(16)), x)
    land = Landscape(model, prepare(model, x, y, QP(), None, None, None), QP(), Evidence())
    return {"way.rows": land.total, "way.tol": loose(land, np.inf)}


def quick_and_wrong(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """All that is tested by default, in one job."""
    return {**wrong(rows), **full(rows), **quick(rows), **on_the_way(rows), **restarted(rows)}


def learned(rows: dict[str, np.ndarray], likelihood: Any, y: str, points: int = 128) -> dict[str, Any]:
    """QP learned."""
    model = Model(kernels.SquaredExponential(1.0, np.ones(2)), likelihood, process=Inducing(points))
    return of_fit(fit(model, rows["x"], rows[y], QP()))


def at_start(rows: dict[str, np.ndarray], likelihood: Any, y: str, points: int = 128) -> dict[str, Any]:
    """QP's evidence with its gradient, and predictions, where learning starts."""
    from quantprop.core.parameters import packed
    from quantprop.inference.task import prepare, settled
    from quantprop.learning.landscape import Landscape
    from quantprop.learning.objectives import Evidence

    model = Model(kernels.SquaredExponential(1.0, np.ones(2)), likelihood, process=Inducing(points))
    model = settled(model, rows["x"])
    land = Landscape(model, prepare(model, rows["x"], rows[y], QP(), None, None, None), QP(), Evidence(), tol=1e-10)
    point = land.at(packed(land.parts))
    solution = infer(model, rows["x"], rows[y], QP(), tol=1e-10)
    return {"start.value": point.value, "start.gradient": point.gradient, **of_solution(solution, "start.")}


def labels(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Probit."""
    given = (rows, likelihoods.Probit(), "label")
    return {**at_start(*given), **learned(*given)}


def counts(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Poisson."""
    given = (rows, likelihoods.Poisson(), "count")
    return {**at_start(*given), **learned(*given)}


def kept(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """QP learned, with a checkpoint after every evaluation."""
    with quantprop.checkpointed("search", minutes=0):
        return learned(rows, likelihoods.Probit(), "label", 16)


def estimators(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Both estimators, without learning."""
    names = np.where(rows["label"] > 0, "yes", "no")
    classifier = quantprop.GaussianProcessClassifier(optimizer=None, method="ep", process=Inducing(16))
    classifier.fit(rows["x"], names)
    regressor = quantprop.GaussianProcessRegressor(optimizer=None, method="ep", process=Inducing(16), normalize_y=True,
                                                   alpha=0.1)  # fmt: skip
    regressor.fit(rows["x"], rows["count"])
    return {"classes": classifier.classes_, "p": classifier.predict_proba(NEW), "mean": regressor.predict(NEW)}


def collectives_of_ep(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the compiled programs of EP's evaluations send, by program."""
    return sent(rows, EP(), learn=False)


def collectives_of_qp(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the compiled programs of QP's evaluations send, the points being learned."""
    return sent(rows, QP(), learn=True)


def sent(rows: dict[str, np.ndarray], method: Any, learn: bool) -> dict[str, list[str]]:
    """Every collective of the programs of an evaluation: its kind and how many numbers it sends."""
    from quantprop.core.parameters import packed
    from quantprop.inference.engine import InferenceProblem
    from quantprop.inference.task import prepare, settled
    from quantprop.learning.evaluation import PROGRAMS
    from quantprop.learning.landscape import Landscape
    from quantprop.learning.objectives import Evidence
    from quantprop.runtime.precision import float64

    model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(16, learn=learn))
    model = settled(model, rows["x"])
    task = prepare(model, rows["x"], rows["label"], method, None, None, None)
    land = Landscape(model, task, method, Evidence())

    def programs() -> dict[str, list[str]]:
        theta = packed(land.parts)
        made, likelihood = PROGRAMS.prior(theta, land.unbounded, land.inputs)
        problem = InferenceProblem.of(likelihood, method, made, land.question.data, land.question.weight)
        solving = (problem, task.placed(land.cold), 1e-8, 200)
        out, prior, factor = PROGRAMS.solved(*solving)
        asked = (replace(problem, prior=prior), land.objective, out.at, factor)
        _, by = PROGRAMS.gradient(*asked, exact=True)
        texts = {
            "prior": PROGRAMS.prior.ahead(theta, land.unbounded, land.inputs),
            "solved": PROGRAMS.solved.ahead(*solving),
            "gradient": PROGRAMS.gradient.ahead(*asked, exact=True),
            "pull_back": PROGRAMS.pull_back.ahead(theta, land.unbounded, land.inputs, 0.0, by),
        }
        return {name: messages(lowered.compile().as_text()) for name, lowered in texts.items()}

    return float64(programs)()


def messages(text: str) -> list[str]:
    """The collectives of a compiled program, such as "all-reduce 272"."""
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
    found = []
    for shapes, kind in re.findall(rf"= (\S+|\([^()]*\)) ({kinds})(?:-start)?\(", text):
        sizes = [
            np.prod([int(k) for k in dims.split(",") if k], dtype=int) for dims in re.findall(r"\[([\d,]*)\]", shapes)
        ]
        found.append(f"{kind} {sum(sizes)}")
    return found


def of_fit(fitted: Any) -> dict[str, Any]:
    """What a fit is compared by."""
    return {
        "theta": fitted.theta, "value": fitted.objective_value, "first": fitted.trace[0].value,
        "slope": fitted.trace[0].gradient, "points": fitted.model.process.points, **of_solution(fitted.solution, ""),
    }  # fmt: skip


def of_solution(solution: Any, prefix: str) -> dict[str, Any]:
    """What a solution is compared by; names that begin with "row" are of this process's rows."""
    new = solution.predict(NEW)
    found = {
        "evidence": solution.log_evidence, "mean": new.mean, "variance": new.variance, "sweeps": solution.sweeps,
        "rows.nu": solution.sites.nu, "rows.tau": solution.sites.tau, "rows.marginals": solution.marginals.mean,
        "rows.loo": solution.loo,
    }  # fmt: skip
    return {
        prefix + name if not name.startswith("rows.") else f"rows.{prefix}{name[5:]}": x for name, x in found.items()
    }


def main() -> None:
    """The command line."""
    out, port, processes, process, devices, case, n = (
        sys.argv[1],
        *map(int, sys.argv[2:6]),
        sys.argv[6],
        int(sys.argv[7]),
    )
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        join(f"127.0.0.1:{port}", processes, process)
    with quantprop.sharded():
        np.savez(out, **globals()[case](part(problem(n), process, processes)))


if __name__ == "__main__":
    main()
