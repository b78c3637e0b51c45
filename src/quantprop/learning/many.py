"""Many fits at once: `fit_many`. Problems alike are dealt out to threads, which search for their optima in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from quantprop.inference.classes import in_terms_of
from quantprop.inference.results import Fitted
from quantprop.inference.task import prepare
from quantprop.learning.batch import Batch
from quantprop.learning.fitting import ending_of, fitted_from, learn, starting_point
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.problem import FTOL, MAX_EVALUATIONS, Problem
from quantprop.learning.search import SearchState, init, run
from quantprop.methods import QP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import Model
from quantprop.runtime.arguments import SEQUENCE, Rule, checked, several
from quantprop.runtime.batches import evenly, held, kinds, threads
from quantprop.runtime.threads import one_blas_thread

Report = Callable[[int, int], None]  # fits done, fits in all
MODELS = Rule("a Model, or one for each problem",
              lambda value: isinstance(value, Model) or several(Model, "").holds(value), TypeError)  # fmt: skip
PROBLEMS = Rule("a sequence with one entry per problem", SEQUENCE.holds, TypeError)


@checked(model=MODELS, **dict.fromkeys(("X", "y", "weights", "exposure", "trials"), PROBLEMS))
def fit_many(
    model: Model | Sequence[Model],
    X: Sequence[Any],
    y: Sequence[Any],
    method: Method | str = QP(),
    objective: Objective | str = "evidence",
    gradient: str = "exact",
    *,
    weights: Sequence[Any] | None = None,
    exposure: Sequence[Any] | None = None,
    trials: Sequence[Any] | None = None,
    tol: float = 1e-8,
    max_evaluations: int = MAX_EVALUATIONS,
    ftol: float = FTOL,
    report: Report = lambda done, total: None,
) -> list[Fitted]:
    """Learn many models of the same form, one for each pair of X and y: folds, classes, restarts.

    Problems whose rows fill the same padded shape share one program, which evaluates a batch of them at a time. The
    optima are those of `fit`, though where an objective has several it may be another one. A problem at which the
    batch's inference fails goes to `fit`'s own search.

    Args:
        model: One start for all problems, or one per problem.
        X: One array of inputs per problem.
        y: One array of targets per problem.
        method: As in `fit`.
        objective: As in `fit`.
        gradient: As in `fit`.
        weights: One entry per problem, or none.
        exposure: One entry per problem, or none.
        trials: One entry per problem, or none.
        tol: As in `fit`.
        max_evaluations: Of each problem's objective.
        ftol: As in `fit`.
        report: Called with the numbers of problems done and in all, as batches end.

    Returns:
        One result per problem, in order.

    >>> import numpy as np
    >>> from quantprop import Model, fit_many, kernels, likelihoods
    >>> X, noise = np.linspace(-2, 2, 12)[:, None], 0.1 * np.cos(10 * np.arange(12))
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> fits = fit_many(model, [X, X], [np.sin(2 * X[:, 0]) + noise, np.cos(X[:, 0]) + noise], method="ep")
    >>> [fitted.status.reason for fitted in fits]
    ['converged', 'converged']
    """
    method, objective = method_by_name(method), as_objective(objective)
    objective.check(method)
    total = len(X)
    models = [model] * total if isinstance(model, Model) else list(model)
    extra = [[None] * total if column is None else list(column) for column in (weights, exposure, trials)]
    columns = [models, list(X), list(y), *extra]
    if {len(column) for column in columns} != {total}:
        raise ValueError(f"model, X, y, weights, exposure and trials must have one entry per problem; got "
                         f"{', '.join(str(len(column)) for column in columns)}")  # fmt: skip
    surfaces: list[Landscape] = []
    for one, x, t, w, e, k in zip(*columns, strict=True):
        task = prepare(one, x, t, method, w, e, k)
        shared = (
            surfaces[-1].parts if surfaces and surfaces[-1].model is task.model and not callable(one.mean) else None
        )
        surfaces.append(Landscape(task.model, task, method, objective, gradient == "exact", tol, shared_parts=shared))
    finished: dict[int, Fitted] = {}
    with one_blas_thread(), ThreadPoolExecutor(threads()) as pool:
        shares, stop = _shares(surfaces), Event()
        jobs = pool.map(lambda rows: _together([surfaces[i] for i in rows], max_evaluations, ftol, stop), shares)
        try:
            for rows, fitted in zip(shares, jobs, strict=True):
                finished.update(zip(rows, fitted, strict=True))
                report(len(finished), total)
        except BaseException:  # an interrupt need not wait until the other threads have learned all of theirs
            stop.set()
            raise
    return [in_terms_of(one, finished[i]) for i, one in enumerate(models)]


def _shares(surfaces: Sequence[Landscape]) -> list[list[int]]:
    """The problems by shape, form and bounds, each kind dealt out to the threads, as many at once as memory holds."""
    alike = kinds([(s.task.padded, s.task.weight, s.parts) for s in surfaces])
    dealt = [rows[k :: threads()] for rows in alike for k in range(min(threads(), len(rows)))]
    return [[rows[i] for i in some] for rows in dealt for some in evenly(len(rows), held(surfaces[rows[0]].task.cost))]


class _Stopped(Exception):
    """The call has been given up."""


def _together(surfaces: list[Landscape], most: int, ftol: float, stop: Event) -> list[Fitted]:
    """All of a share learned; nothing once the call has been given up. A problem at whose start the batch's inference
    fails is learned alone, with all of `fit`'s strategies.
    """

    def observe(state: SearchState) -> None:
        if stop.is_set():
            raise _Stopped

    problems = [Problem.of(one, most, ftol) for one in surfaces]
    batch, starts = Batch(problems), [[starting_point(one.parts)[0]] for one in surfaces]
    states = [
        init(problem, start, batch.memory(i)) for i, (problem, start) in enumerate(zip(problems, starts, strict=True))
    ]
    try:
        states = run(problems, states, observe, batch.evaluate, batch.slots)
    except _Stopped:
        return []
    loo = batch.loo([state.end for state in states if state.end is not None])
    return [
        fitted_from(one, state, ending_of(problem, state), loo[i]) if i in loo else learn(one, start, most, ftol)
        for i, (one, problem, state, start) in enumerate(zip(surfaces, problems, states, starts, strict=True))
    ]
