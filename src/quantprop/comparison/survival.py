"""Survival curves scored over time: Brier scores and concordance, weighted for censoring, beside a Cox model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from quantprop.kernels.grammar import quoted
from quantprop.runtime.listing import Listing
from quantprop.tables import Table, TableError, periods, problem, survival
from quantprop.tables.encoding import learned, numbers
from quantprop.tables.hazards import EXPOSURE
from quantprop.tables.reading import as_table
from quantprop.tables.roles import Roles
from quantprop.tables.selection import columns_in
from quantprop.tables.targets import events

Curves = Callable[[np.ndarray, np.ndarray], Float[np.ndarray, "rows times"]]  # S(t) of test rows, from training rows


def brier(
    times: Float[np.ndarray, " n"], died: Bool[np.ndarray, " n"], alive: Float[np.ndarray, " n"], at: float
) -> Float[np.ndarray, " n"]:
    """Each row's term of the Brier score of predicted probabilities to live beyond `at` (Graf et al. 1999, Statistics
    in Medicine 18, eq. 6): rows censored before count through the others, by the probability of not being censored.
    """
    known = _uncensored(times, died)
    before = died & (times <= at)
    weight = np.where(before, 1.0 / known(times, True), (times > at) / known(np.array([at]), False))
    return weight * np.where(before, alive**2, (1.0 - alive) ** 2)


def concordance(
    times: Float[np.ndarray, " n"], died: Bool[np.ndarray, " n"], risk: Float[np.ndarray, " n"], before: float
) -> float:
    """The probability that of two rows the one with the earlier event, before some time, had the greater risk; equal
    risks count half. Pairs are weighted for censoring (Uno et al. 2011, Statistics in Medicine 30, eq. 6).
    """
    first = np.flatnonzero(died & (times < before))
    weight = 1.0 / _uncensored(times, died)(times[first], True) ** 2
    later = times[first, None] < times
    won = (risk[first, None] > risk) + 0.5 * (risk[first, None] == risk)
    pairs = float(weight @ later.sum(axis=1))
    return float(weight @ (won * later).sum(axis=1)) / pairs if pairs else float("nan")


def _uncensored(times: np.ndarray, died: np.ndarray) -> Callable[[np.ndarray, bool], np.ndarray]:
    """Kaplan and Meier's estimate of the probability of not being censored by a time, or `just_before` it."""
    ends = np.unique(times[~died])
    at_risk = np.array([(times >= end).sum() - (died & (times == end)).sum() for end in ends])  # events come first
    left = np.array([(~died & (times == end)).sum() for end in ends])
    steps = np.concatenate([[1.0], np.cumprod(1.0 - left / np.maximum(at_risk, 1))])
    return lambda t, just_before: steps[np.searchsorted(ends, t, "left" if just_before else "right")]


def survival_scores(
    table: Table | Any,
    time: str,
    event: str,
    at: Sequence[float],
    *,
    observed: str | None = None,
    kernels: Sequence[str] = (),
    cuts: int | str | Sequence[float] = 10,
    folds: int = 5,
    method: str = "ep",
    seed: int = 0,
) -> Listing:
    """Compare models of a hazard with each other, with a Cox model and with Kaplan and Meier's curve, on left-out rows.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        time: Column of times of events, or of the end of observation.
        event: Column that states whether a time is that of an event.
        at: Times at which curves are scored.
        observed: The value in that column that means an event.
        kernels: Formulas of the hazard; by default a smooth effect of each column of numbers, and an effect of each
            level of the others. Without a term of time, se(time) is added.
        cuts: Periods of constant hazard, as in `tables.periods`.
        folds: Number of folds of the cross-validation.
        method: Name of the method.
        seed: Seed of the division into folds.

    Returns:
        A table with the columns model, time, brier, difference (of the Brier score, from the first model's), error (its
        standard error) and concordance, the mean over folds. The Cox model (statsmodels, if it is installed) is linear
        in all columns.

    >>> import numpy as np
    >>> from quantprop import comparison
    >>> rng = np.random.default_rng(0)
    >>> x = np.tile([0, 1], 40)
    >>> table = {"x": x, "t": np.round(rng.exponential(np.where(x, 1.0, 4.0)) + 0.01, 2), "died": np.ones(80, int)}
    >>> found = comparison.survival_scores(table, "t", "died", [1.0], kernels=["factor(x)"], folds=2)
    >>> found["model"][0], found["concordance"][0] > 0.6
    ('factor(x)', True)
    """
    table = as_table(table)
    times, died = numbers(table, time), events(table, Roles(event=event, observed=observed))
    if not 2 <= folds <= len(times):
        raise ValueError(f"folds must lie between 2 and the number of rows, {len(times)}; got {folds}")
    if not len(at) or not all(0.0 < t < times.max() for t in at):
        raise TableError(f"at must be times above 0 and before the last one, {times.max():g}; got {list(at)}")
    parts = np.array_split(np.random.default_rng(seed).permutation(len(times)), folds)
    found: dict[str, list] = {n: [] for n in ("model", "time", "brier", "difference", "error", "concordance")}
    first = None
    for name, curves in _models(table, (time, event, observed), kernels, cuts, method, np.asarray(at, float)).items():
        alive = np.zeros((len(times), len(at)))
        for test in parts:
            alive[test] = curves(np.setdiff1d(np.arange(len(times)), test), test)
        each = np.stack([brier(times, died, alive[:, k], t) for k, t in enumerate(at)])
        less = each - (first := each if first is None else first)
        rank = [np.nanmean([concordance(times[rows], died[rows], 1.0 - alive[rows, k], t) for rows in parts])
                for k, t in enumerate(at)]  # fmt: skip
        error = less.std(axis=1, ddof=1) / np.sqrt(len(times))
        columns = ([name] * len(at), at, each.mean(axis=1), less.mean(axis=1), error, rank)
        for column, values in zip(found.values(), columns, strict=True):
            column += [value if isinstance(value, str) else float(value) for value in values]
    words = "Brier score (smaller is better) and concordance of events before a time (larger is better), left-out rows"
    return Listing(words, found)


def _models(
    table: Table, columns: tuple[str, str, str | None], kernels: Sequence[str], cuts: Any, method: str, at: np.ndarray
) -> dict[str, Curves]:
    time, event, observed = columns
    times, died = numbers(table, time), events(table, Roles(event=event, observed=observed))
    encoding, _ = learned(table.without([time, event]))
    if not kernels:
        terms = (f"{'group' if len(c.levels) > 2 else 'linear' if c.levels else 'se'}({quoted(c.name)})"
                 for c in encoding.columns)  # fmt: skip
        kernels = [" + ".join(terms)]

    def of_hazard(kernel: str) -> Curves:
        if time not in columns_in(kernel, table.names):
            kernel = f"{kernel} + se({quoted(time)})"

        def curves(train: np.ndarray, test: np.ndarray) -> np.ndarray:
            split = periods(table.only(train.tolist()), time, event, observed, cuts=cuts)
            model = problem(split, event, "poisson", kernel, Roles(exposure=EXPOSURE)).fit(method)
            found = survival(model, table.only(test.tolist()), time, at.tolist())
            return np.reshape(found["survival"], (len(test), len(at)))

        return curves

    def without_columns(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        alive = _uncensored(times[train], ~died[train])  # with events and censoring exchanged
        return np.tile(alive(at, False), (len(test), 1))

    def cox(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        from statsmodels.duration.hazard_regression import PHReg  # pyright: ignore[reportMissingImports]

        x = encoding.matrix(table)
        fitted: Any = PHReg(times[train], x[train], status=died[train].astype(int), ties="efron").fit()
        known, cumulative = fitted.baseline_cumulative_hazard[0][:2]
        steps = np.concatenate([[0.0], cumulative])[np.searchsorted(known, at, "right")]
        return np.exp(-np.exp(x[test] @ fitted.params)[:, None] * steps)

    found: dict[str, Curves] = {kernel: of_hazard(kernel) for kernel in kernels}
    return found | ({"Cox": cox} if importlib.util.find_spec("statsmodels") else {}) | {"Kaplan-Meier": without_columns}
