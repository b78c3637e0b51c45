"""Many fits at once: `fit_many`. Problems alike are dealt out to threads, which search for their optima in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from quantprop.inference.classes import in_terms_of
from quantprop.inference.results import Fitted
from quantprop.inference.task import as_method, prepare
from quantprop.learning.batch import Batch
from quantprop.learning.fitting import ending_of, fitted_from, learn, starting_point
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.search import done, init, step
from quantprop.learning.search_state import FTOL, MAX_EVALUATIONS_PER_START, Settings
from quantprop.methods import QP, Method
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
    max_evaluations: int = MAX_EVALUATIONS_PER_START,
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
    method, objective = as_method(method), as_objective(objective)
    objective.check(method)
    total = len(X)
    models = [model] * total if isinstance(model, Model) else list(model)
    extra = [[None] * total if column is None else list(column) for column in (weights, exposure, trials)]
    columns = [models, list(X), list(y), *extra]
    if {len(column) for column in columns} != {total}:
        raise ValueError(f"model, X, y, weights, exposure and trials must have one entry per problem; got "
                         f"{', '.join(str(len(column)) for column in columns)}")  # fmt: skip
    objectives: list[Landscape] = []
    for one, x, t, w, e, k in zip(*columns, strict=True):
        task = prepare(one, x, t, method, w, e, k)
        objectives.append(Landscape(task.model, task, method, objective, gradient == "exact", tol))
    finished: dict[int, Fitted] = {}
    with one_blas_thread(), ThreadPoolExecutor(threads()) as pool:
        shares, stop = _shares(objectives), Event()
        jobs = pool.map(lambda rows: _together([objectives[i] for i in rows], max_evaluations, ftol, stop), shares)
        try:
            for rows, fitted in zip(shares, jobs, strict=True):
                finished.update(zip(rows, fitted, strict=True))
                report(len(finished), total)
        except BaseException:  # an interrupt need not wait until the other threads have learned all of theirs
            stop.set()
            raise
    return [in_terms_of(one, finished[i]) for i, one in enumerate(models)]


def _shares(objectives: Sequence[Landscape]) -> list[list[int]]:
    """The problems by shape, form and bounds, each kind dealt out to the threads, as many at once as memory holds."""
    alike = kinds([(each.task.padded, each.task.weight, each.parts) for each in objectives])
    dealt = [rows[k :: threads()] for rows in alike for k in range(min(threads(), len(rows)))]
    most = [held(objectives[rows[0]].task.cost) for rows in dealt]
    return [[rows[i] for i in some] for rows, at_once in zip(dealt, most, strict=True)
            for some in evenly(len(rows), at_once)]  # fmt: skip


def _together(objectives: list[Landscape], most: int, ftol: float, stop: Event) -> list[Fitted]:
    """All of a share learned; nothing once the call has been given up. A problem whose inference fails at the start is
    learned again alone, with all of `fit`'s strategies.
    """
    starts = [starting_point(objective.parts) for objective in objectives]
    batch = Batch(objectives, Settings(most, ftol))
    state = init(batch, [[theta] for theta, _ in starts], batch.inference())
    while not done(state) and not stop.is_set():
        state, _ = step(batch, state)
    if stop.is_set():
        return []
    loo = batch.loo([log.end for log in state.logs])
    fitted = []
    for i, (objective, log) in enumerate(zip(objectives, state.logs, strict=True)):
        end: Any = log.end
        if end.why == "inference-failed":
            fitted.append(learn(objective, [starts[i][0]], batch.bounds, most, ftol))
        else:
            ending = ending_of(objective, batch.bounds, end, log.trace)
            fitted.append(fitted_from(objective, end.theta, end.value, end.point.out, loo[i], log.trace, ending))
    return fitted
