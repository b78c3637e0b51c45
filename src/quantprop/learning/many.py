"""Many fits at once: `fit_many`. Problems of the same structure are distributed to threads, which search in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np

from quantprop.inference.classes import in_terms_of
from quantprop.inference.results import Fitted
from quantprop.inference.task import prepare, with_distributions
from quantprop.learning.batch_search import BatchSearch
from quantprop.learning.fitting import MAX_EVALUATIONS
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.search import FTOL
from quantprop.methods import QP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import Model
from quantprop.runtime.arguments import SEQUENCE, Rule, checked, several
from quantprop.runtime.batches import held, kinds, threads
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
    """Learn many models of the same structure, one per pair of X and y: folds, classes, restarts.

    Problems whose rows fill the same padded shape share one program, which evaluates them in batches. The optima are
    those of `fit`, but if an objective has several, a different one may be found. A problem at which the batch's
    inference fails is passed to the search of `fit`.

    Args:
        model: One start for all problems, or one per problem.
        X: One array of inputs per problem.
        y: One array of observations per problem.
        method: As in `fit`.
        objective: As in `fit`.
        gradient: As in `fit`.
        weights: One entry per problem, or None.
        exposure: One entry per problem, or None.
        trials: One entry per problem, or None.
        tol: As in `fit`.
        max_evaluations: Maximum number of evaluations per problem.
        ftol: As in `fit`.
        report: Called with (problems done, problems in total) as batches finish.

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
        task = prepare(with_distributions(one, x, w), x, t, method, w, e, k)
        surfaces.append(Landscape(task.model, task, method, objective, gradient == "exact", tol))
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
    """The problems by shape, form and bounds, distributed to the threads, as many at once as fit in memory."""
    alike = kinds([(s.task.padded, s.task.weight, s.parts) for s in surfaces])
    dealt = [rows[k :: threads()] for rows in alike for k in range(min(threads(), len(rows)))]
    pieces = [-(-len(rows) // held(surfaces[rows[0]].task.cost)) for rows in dealt]
    return [part.tolist() for rows, count in zip(dealt, pieces, strict=True) for part in np.array_split(rows, count)]


def _together(surfaces: list[Landscape], most: int, ftol: float, stop: Event) -> list[Fitted]:
    """All of a share learned; nothing once the call has been given up."""
    search = BatchSearch(surfaces, most, ftol)
    while len(search.ascent.unfinished()) and not stop.is_set():
        search.step()
    return [] if stop.is_set() else search.results()
