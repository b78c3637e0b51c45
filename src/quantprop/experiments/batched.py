"""All experiments of one data set at once, by `fit_many`: what an accelerator is for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np
from loky import cpu_count

from quantprop import fit_many, predict_many
from quantprop.data import bucket
from quantprop.experiments.experiment import Forecast, described, forecasts, hyperparameters_of_ep, no_result, row_of
from quantprop.experiments.learning import (
    LIMITS,
    Failed,
    Hyperparameters,
    Learned,
    best_of,
    gradient_of,
    model_at,
    starts,
)
from quantprop.experiments.pool import ENVIRONMENT, in_processes
from quantprop.experiments.protocol import METHODS, Experiment, TrainTest, follows_ep, model_of, split
from quantprop.experiments.rows import Row, lines
from quantprop.experiments.sweep import Done, Results, Unit
from quantprop.gaussian import Normal
from quantprop.inference.predictive import Predictive

MEMORY = 0.9  # of an accelerator, for all processes together


@dataclass(frozen=True)
class Batched:
    """All folds of a data set as one batch. Rows come when a data set is done; from an accelerator, all of one size.

    An accelerator is driven by a process for each padded size of training sets and each method that does not go on from
    another's result, as far as there are cores: tracing and compiling programs takes longer than running them, and so
    happens side by side, once for the data sets of one size. Where several methods go on from EP's result, they do so
    side by side when it is there. Without an accelerator data sets come one after the other.
    """

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows."""
        if any(unit.experiment.variant == "code" for unit in units):
            raise ValueError("variant code follows the authors' program step by step: leave --batched out")
        groups = [list(group) for _, group in groupby(units, key=lambda unit: unit.experiment.dataset)]
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the memory is for those processes
        if jax.default_backend() == "cpu":
            for group in groups:
                yield from _rows_of(group)
            return
        tasks = [part for alike in by_size(groups) for part in apart(alike)]
        later = {unit.experiment: after_ep(unit) for unit in units}
        most = len(tasks) * max([1, *map(len, later.values())])  # at a time: EP's, or those that go on from it
        processes = max(1, min(most, cpu_count()))
        share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{MEMORY / processes:.3f}"}
        flags = {"XLA_FLAGS": " ".join((ENVIRONMENT["XLA_FLAGS"], os.environ.get("XLA_FLAGS", "")))}
        environment = ENVIRONMENT | share | flags
        yield from together(units, in_processes(_in_turn, tasks, processes, environment, partial(following, later)))


def by_size(groups: list[list[Unit]]) -> list[list[Unit]]:
    """The units of data sets that share programs, by likelihood and padded size of training sets; the largest first."""
    found: dict[tuple[int, str], list[Unit]] = {}
    for group in groups:
        first = group[0].experiment
        x = split(first).x
        found.setdefault((bucket(len(x)), model_of(first, "ep", x.shape[1]).likelihood.name), []).extend(group)
    return [found[size] for size in sorted(found, reverse=True)]


def after_ep(unit: Unit) -> tuple[str, ...]:
    """The methods of a unit that go on from EP's result side by side: none where one alone does, which the process that
    has it goes on with.
    """
    some = tuple(method for method in unit.methods if follows_ep(unit.experiment.variant, method))
    return some if "ep" in unit.methods and len(some) > 1 else ()


def following(later: dict[Experiment, tuple[str, ...]], results: list[Done]) -> list[list[Unit]]:
    """Work that can be done with EP's results, method by method."""
    ep = [(done.unit.experiment, row) for done in results for row in done.rows if row.method == "ep"]
    methods = dict.fromkeys(method for experiment, _ in ep for method in later[experiment])
    return [[Unit(one, (method,), row) for one, row in ep if method in later[one]] for method in methods]


def apart(units: list[Unit]) -> list[list[Unit]]:
    """Work in parts that need nothing of each other, and nothing that is not there: EP and what goes on from it alone,
    other methods.
    """

    def chain(unit: Unit, method: str) -> str:
        return "ep" if unit.ep is None and follows_ep(unit.experiment.variant, method) else method

    units = [replace(unit, methods=tuple(m for m in unit.methods if m not in after_ep(unit))) for unit in units]
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


class Case(NamedTuple):
    """One experiment on its way through a method, with what EP learned where the method goes on from there."""

    experiment: Experiment
    parts: TrainTest
    at_ep: Hyperparameters


def _in_turn(units: list[Unit]) -> list[Done]:
    """The rows of all units, one data set after the other."""
    groups = groupby(units, key=lambda unit: unit.experiment.dataset)
    return [done for _, group in groups for done in _rows_of(list(group))]


def _rows_of(units: list[Unit]) -> list[Done]:
    """The rows of all units of one data set, method by method."""
    parts = [split(unit.experiment) for unit in units]
    rows: list[list[Row]] = [[] for _ in units]
    ep = [unit.ep for unit in units]
    for method in METHODS:
        began = time.perf_counter()
        wanted = [i for i, unit in enumerate(units) if method in unit.methods]
        results = _results([(units[i].experiment, parts[i], ep[i]) for i in wanted], method) if wanted else []
        seconds = (time.perf_counter() - began) / max(1, len(wanted))  # each one's share
        for i, (result, notes) in zip(wanted, results, strict=True):
            row = row_of(units[i].experiment, method, result, notes, seconds)
            rows[i].append(row)
            ep[i] = row if method == "ep" else ep[i]
    return [Done(unit, new, lines(new)) for unit, new in zip(units, rows, strict=True)]


def _results(
    given: list[tuple[Experiment, TrainTest, Row | None]], method: str
) -> list[tuple[dict[str, Any], list[str]]]:
    """What rows say of one method in many experiments, and notes; failures as such."""
    cases: list[Case | str] = []
    for experiment, parts, ep in given:
        try:
            cases.append(Case(experiment, parts, hyperparameters_of_ep(experiment, method, ep)))
        except Failed as error:
            cases.append(f"failed: {error}")
    told = iter(_told([case for case in cases if isinstance(case, Case)], method))
    return [next(told) if isinstance(case, Case) else (no_result(case), []) for case in cases]


def _told(cases: list[Case], method: str) -> list[tuple[dict[str, Any], list[str]]]:
    """Learn all cases, forecast all their test rows, and report the results."""
    ends = _learned(cases, method)
    good = [(case, end) for case, end in zip(cases, ends, strict=True) if isinstance(end, Learned)]
    latent = predict_many([end.solution for _, end in good], [case.parts.x_test for case, _ in good])
    more = _qp_at_ep([case for case, _ in good]) if method == "qp" else [({}, [])] * len(good)
    every = _forecasts([case for case, _ in good], [end for _, end in good], latent)
    told = (
        _described(case, end, normal, forecast, *also)
        for (case, end), normal, forecast, also in zip(good, latent, every, more, strict=True)
    )
    return [next(told) if isinstance(end, Learned) else (no_result(end), []) for end in ends]


def _described(
    case: Case, end: Learned, latent: Normal, every: dict[str, Forecast], more: dict[str, np.ndarray], notes: list[str]
) -> tuple[dict[str, Any], list[str]]:
    least = len(case.parts.y) * np.finfo(float).eps * float(end.solution.model.plain_kernel.variance)
    lost = int((latent.variance <= least * (1.0 + 1e-9)).sum())
    if lost:
        notes = [f"{lost} predictive variances are below what double precision resolves", *notes]
    try:
        return described(end, latent, case.parts.y_test, every, more), notes
    except Failed as error:
        return no_result(f"failed: {error}"), notes


def _learned(cases: list[Case], method: str) -> list[Learned | str]:
    """The best end of each case over its starts, or why there is none."""
    if not cases:
        return []
    first, x, y = cases[0].experiment, [case.parts.x for case in cases], [case.parts.y for case in cases]
    options = {"objective": first.objective, "gradient": gradient_of(first, method)}
    begin = [starts(case.experiment, method, case.parts.x.shape[1], case.at_ep) for case in cases]
    ends = [fit_many(list(models), x, y, method, **options, **LIMITS) for models in zip(*begin, strict=True)]
    found: list[Learned | str] = []
    for each in zip(*ends, strict=True):
        try:
            found.append(best_of(each))
        except Failed as error:
            found.append(f"failed: {error}")
    return found


def _forecasts(cases: list[Case], ends: list[Learned], latent: list[Normal]) -> list[dict[str, Forecast]]:
    """The forecasts of all test rows in one go; the likelihoods of the experiments have no numbers of their own."""
    if not cases:
        return []
    whole = Normal(np.concatenate([n.mean for n in latent]), np.concatenate([n.variance for n in latent]))
    y, one = np.concatenate([case.parts.y_test for case in cases]), np.ones(len(whole.mean))
    predictive = Predictive(ends[0].solution.model.plain_likelihood, whole, one, one)
    every = forecasts(cases[0].experiment, predictive, y)
    cuts = np.cumsum([len(n.mean) for n in latent])[:-1]
    columns = {name: zip(*(np.split(part, cuts) for part in each), strict=True) for name, each in every.items()}
    return [{name: Forecast(*next(column)) for name, column in columns.items()} for _ in cases]


def _qp_at_ep(cases: list[Case]) -> list[tuple[dict[str, np.ndarray], list[str]]]:
    """QP's latent predictive variance at EP's hyperparameters, and a note where inference did not converge there.

    Learning that ends at its first evaluation: it needs no further program.
    """
    if not cases:
        return []
    first = cases[0].experiment
    models = [model_at(model_of(case.experiment, "qp", case.parts.x.shape[1]), case.at_ep) for case in cases]
    x, y = [case.parts.x for case in cases], [case.parts.y for case in cases]
    fitted = fit_many(models, x, y, "qp", first.objective, gradient_of(first, "qp"), max_evaluations=1)
    latent = predict_many([each.solution for each in fitted], [case.parts.x_test for case in cases])
    notes = [[] if f.solution.converged else [f"variance_at_ep: {f.solution.status}"] for f in fitted]
    return [({"variance_at_ep": normal.variance}, note) for normal, note in zip(latent, notes, strict=True)]
