"""All experiments of one data set at once, by `fit_many`: what an accelerator is for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import jax
import numpy as np
from loky import cpu_count

from quantprop import Fitted, Model, fit_many, predict_many
from quantprop.core.data import bucket
from quantprop.core.gaussian import Normal
from quantprop.experiments.experiment import Forecast, described, forecasts, hyperparameters_of_ep, no_result, row_of
from quantprop.experiments.learning import LIMITS, Failed, Learned, best_of, gradient_of, starts
from quantprop.experiments.pool import ENVIRONMENT, in_processes
from quantprop.experiments.protocol import METHODS, Experiment, TrainTest, follows_ep, model_of, split
from quantprop.experiments.rows import Row, lines
from quantprop.experiments.sweep import Done, Results, Unit
from quantprop.inference.predictive import Predictive

MEMORY_FRACTION = 0.9  # what all processes together may take of an accelerator's memory


@dataclass(frozen=True)
class Batched:
    """All folds of a data set as one batch. Rows come when a data set is done; from an accelerator, all of one size.

    An accelerator is driven by a process for each padded size of training sets and each method that does not need
    another's result, as far as there are cores: tracing and compiling programs takes longer than running them, so it
    happens in parallel, once for the data sets of one size. Without an accelerator data sets come one after the other.
    """

    def carry_out(self, units: list[Unit]) -> Results:
        if any(unit.experiment.variant == "code" for unit in units):
            raise ValueError("variant code follows the authors' program step by step: leave --batched out")
        groups = [list(group) for _, group in groupby(units, key=lambda unit: unit.experiment.dataset)]
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the memory is for those processes
        if jax.default_backend() == "cpu":
            for group in groups:
                yield from _rows_of(group)
            return
        tasks = [part for alike in by_size(groups) for part in apart(alike)]
        processes = max(1, min(len(tasks), cpu_count()))
        share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{MEMORY_FRACTION / processes:.3f}"}
        flags = {"XLA_FLAGS": " ".join((ENVIRONMENT["XLA_FLAGS"], os.environ.get("XLA_FLAGS", "")))}
        yield from together(units, in_processes(_in_turn, tasks, processes, ENVIRONMENT | share | flags))


def by_size(groups: list[list[Unit]]) -> list[list[Unit]]:
    """The units of data sets that share programs, by likelihood and padded size of training sets; the largest first."""
    found: dict[tuple[int, str], list[Unit]] = {}
    for group in groups:
        first = group[0].experiment
        x = split(first).x
        found.setdefault((bucket(len(x)), model_of(first, "ep", x.shape[1]).likelihood.name), []).extend(group)
    return [found[size] for size in sorted(found, reverse=True)]


def apart(units: list[Unit]) -> list[list[Unit]]:
    """Work in independent parts: EP with the methods that need its result, and each of the others."""

    def chain(unit: Unit, method: str) -> str:
        return "ep" if unit.ep is None and follows_ep(unit.experiment.variant, method) else method

    heads = dict.fromkeys(chain(unit, method) for unit in units for method in unit.methods)
    parts = [
        [replace(unit, methods=tuple(one for one in unit.methods if chain(unit, one) == head)) for unit in units]
        for head in heads
    ]
    return [[unit for unit in part if unit.methods] for part in parts]


def together(units: list[Unit], tasks: Iterable[tuple[Any, list[Done]]]) -> Results:
    """Each unit with its rows, once all parts of its work are done."""
    found = {unit.experiment: Done(unit, [], "") for unit in units}
    for _, parts in tasks:
        for part in parts:
            whole = found[part.unit.experiment]
            whole = Done(whole.unit, whole.rows + part.rows, whole.lines + part.lines)
            found[part.unit.experiment] = whole
            if len(whole.rows) == len(whole.unit.methods):
                yield whole


@dataclass
class Case:
    """One experiment on its way through a method: EP's row if the method starts from it, and then its result."""

    experiment: Experiment
    parts: TrainTest
    ep: Row | None
    result: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def starts(self, method: str) -> list[Model]:
        at_ep = hyperparameters_of_ep(self.experiment, method, self.ep)
        return starts(self.experiment, method, self.parts.x.shape[1], at_ep)


def _in_turn(units: list[Unit]) -> list[Done]:
    groups = groupby(units, key=lambda unit: unit.experiment.dataset)
    return [done for _, group in groups for done in _rows_of(list(group))]


def _rows_of(units: list[Unit]) -> list[Done]:
    parts = [split(unit.experiment) for unit in units]
    rows: list[list[Row]] = [[] for _ in units]
    ep = [unit.ep for unit in units]
    for method in METHODS:
        began = time.perf_counter()
        wanted = [i for i, unit in enumerate(units) if method in unit.methods]
        cases = [Case(units[i].experiment, parts[i], ep[i]) for i in wanted]
        _carry_out(cases, method)
        seconds = (time.perf_counter() - began) / max(1, len(wanted))  # each one's part
        for i, case in zip(wanted, cases, strict=True):
            row = row_of(case.experiment, method, case.result, case.notes, seconds)
            rows[i].append(row)
            ep[i] = row if method == "ep" else ep[i]
    return [Done(unit, new, lines(new)) for unit, new in zip(units, rows, strict=True)]


def _carry_out(cases: list[Case], method: str) -> None:
    cases, begin = _successes(lambda case: case.starts(method), cases)
    cases, ends = _successes(lambda case, *each: best_of(each), cases, *_fitted(cases, begin, method))
    latent = predict_many([end.solution for end in ends], [case.parts.x_test for case in cases])
    more = _qp_at_ep(cases) if method == "qp" else [{} for _ in cases]
    _successes(_describe, cases, ends, latent, _forecasts(cases, ends, latent), more)


def _successes(work: Callable[..., Any], cases: list[Case], *columns: Any) -> tuple[list[Case], list[Any]]:
    """The cases in which the work succeeds, with its values; others get the reason of the failure."""
    done, values = [], []
    for case, *arguments in zip(cases, *columns, strict=True):
        try:
            values.append(work(case, *arguments))
            done.append(case)
        except Failed as error:
            case.result = no_result(f"failed: {error}")
    return done, values


def _fitted(cases: list[Case], begin: list[list[Model]], method: str) -> list[list[Fitted]]:
    if not cases:
        return []
    first, x, y = cases[0].experiment, [case.parts.x for case in cases], [case.parts.y for case in cases]
    options = {"objective": first.objective, "gradient": gradient_of(first, method), **LIMITS}
    return [fit_many(list(models), x, y, method, **options) for models in zip(*begin, strict=True)]


def _describe(case: Case, end: Learned, latent: Normal, every: dict[str, Forecast], more: dict[str, Any]) -> None:
    least = len(case.parts.y) * np.finfo(float).eps * float(end.solution.model.plain_kernel.variance)
    lost = int((latent.variance <= least * (1.0 + 1e-9)).sum())
    if lost:
        case.notes.insert(0, f"{lost} predictive variances are below what double precision resolves")
    case.result = described(end, latent, case.parts.y_test, every, more)


def _forecasts(cases: list[Case], ends: list[Learned], latent: list[Normal]) -> list[dict[str, Forecast]]:
    """The forecasts of all test rows in one go; the likelihoods of the experiments have no hyperparameters."""
    if not cases:
        return []
    whole = Normal(np.concatenate([n.mean for n in latent]), np.concatenate([n.variance for n in latent]))
    y, one = np.concatenate([case.parts.y_test for case in cases]), np.ones(len(whole.mean))
    predictive = Predictive(ends[0].solution.model.plain_likelihood, whole, one, one)
    every = forecasts(cases[0].experiment, predictive, y)
    cuts = np.cumsum([len(n.mean) for n in latent])[:-1]
    columns = {name: zip(*(np.split(part, cuts) for part in each), strict=True) for name, each in every.items()}
    return [{name: Forecast(*next(column)) for name, column in columns.items()} for _ in cases]


def _qp_at_ep(cases: list[Case]) -> list[dict[str, np.ndarray]]:
    """QP's latent predictive variance at EP's hyperparameters, noted where inference did not converge there.

    Learning that ends at its first evaluation: it needs no further program.
    """
    if not cases:
        return []
    first, x, y = cases[0].experiment, [case.parts.x for case in cases], [case.parts.y for case in cases]
    models = [case.starts("qp")[0] for case in cases]
    fitted = fit_many(models, x, y, "qp", first.objective, gradient_of(first, "qp"), max_evaluations=1)
    for case, end in zip(cases, fitted, strict=True):
        case.notes += [] if end.solution.converged else [f"variance_at_ep: {end.solution.status}"]
    latent = predict_many([end.solution for end in fitted], [case.parts.x_test for case in cases])
    return [{"variance_at_ep": normal.variance} for normal in latent]
