"""Many experiments: what is still missing in a folder is carried out and written there, row by row."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from quantprop import datasets
from quantprop.experiments import rows
from quantprop.experiments.experiment import carry_out
from quantprop.experiments.protocol import FOLDS, METHODS, ROUNDS, SEEDS, Experiment, follows_ep
from quantprop.experiments.rows import Row, key_of
from quantprop.runtime.names import nearest

Report = Callable[[str, int, int], None]  # data set, units done, units in all


@dataclass(frozen=True)
class Plan:
    """Data sets × rounds × folds × methods. `rounds` None is the paper's number: 100, and 200 seeds for mining.

    `split` is that of mining. Methods that start from EP's result bring ep with them.
    """

    datasets: tuple[str, ...] = datasets.names()
    methods: tuple[str, ...] = ("ep", "qp", "vb")
    rounds: int | None = None
    variant: str = "paper"
    kernel: str = "isotropic"
    objective: str = "evidence"
    split: str = "year"

    def __post_init__(self) -> None:
        for name, given, allowed in (("methods", self.methods, METHODS), ("datasets", self.datasets, datasets.names())):
            unknown = [one for one in given if one not in allowed]
            if unknown or not given:
                raise ValueError(f"{name} must be some of {', '.join(allowed)}; got {', '.join(unknown) or 'none'}"
                                 f"{nearest(unknown[0], allowed) if unknown else ''}")  # fmt: skip
        if self.rounds is not None and self.rounds < 1:
            raise ValueError(f"rounds must be at least 1; got {self.rounds}")
        Experiment("mining", self.variant, self.kernel, self.objective, self.split)  # which checks the rest

    @property
    def order(self) -> tuple[str, ...]:
        """The methods in the order of their work, with ep if another method starts from it."""
        wanted = {*self.methods, *("ep" for method in self.methods if follows_ep(self.variant, method))}
        return tuple(method for method in METHODS if method in wanted)

    def experiments(self, dataset: str) -> list[Experiment]:
        about = (dataset, self.variant, self.kernel, self.objective)
        if dataset == "mining":
            return [Experiment(*about, self.split, seed) for seed in range(self.rounds or SEEDS)]
        rounds = range(self.rounds or ROUNDS)
        return [Experiment(*about, "fold", i, k) for i in rounds for k in range(FOLDS)]


@dataclass(frozen=True)
class Unit:
    """A task of one worker: the missing methods of one experiment, and EP's row if there is one already."""

    experiment: Experiment
    methods: tuple[str, ...]
    ep: Row | None = None


class Done(NamedTuple):
    """A unit with its rows and their lines. Workers make the lines: to make all would keep the one that writes busy."""

    unit: Unit
    rows: list[Row]
    lines: str


def done(unit: Unit) -> Done:
    new: list[Row] = []
    ep = unit.ep
    for method in unit.methods:
        new.append(carry_out(unit.experiment, method, ep))
        ep = new[-1] if method == "ep" else ep
    return Done(unit, new, rows.lines(new))


Results = Generator[Done, None, None]


@runtime_checkable
class Workers(Protocol):
    """The place where units run: on this machine (`pool.Local`) or on a cluster (`pool.Dask`)."""

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows, as they come. Closing it ends the work."""
        ...


def missing(plan: Plan, there: list[Row]) -> list[Unit]:
    """The units that are not in the rows yet, the largest data sets first: short work at the end keeps all busy.

    Units of one data set stand together, since each worker compiles its programs again for every size of data.
    """
    known = {row.key: row for row in there}
    units = []
    for dataset in sorted(dict.fromkeys(plan.datasets), key=lambda name: -len(datasets.load(name).y)):
        for experiment in plan.experiments(dataset):
            keys = {method: key_of(experiment, method) for method in plan.order}
            methods = tuple(method for method, key in keys.items() if key not in known)
            if methods:
                units.append(Unit(experiment, methods, known.get(key_of(experiment, "ep"))))
    return units


def run(plan: Plan, folder: Path, workers: Workers, report: Report = lambda *_: None) -> list[Row]:
    """Carry out what is missing in the folder; return all rows that it has then. Only this process writes.

    A row that is there is never computed again, failed ones included: to repeat one, take its line out.
    """
    with rows.locked(folder):
        there = rows.read(folder)
        units = missing(plan, there)
        total = {name: len(plan.experiments(name)) for name in plan.datasets}
        count = {name: total[name] - sum(unit.experiment.dataset == name for unit in units) for name in total}
        for name in total:
            report(name, count[name], total[name])
        with rows.appending(folder) as append, closing(workers.carry_out(units)) as results:
            for unit, new, lines in results:
                append(lines)
                there += new
                name = unit.experiment.dataset
                count[name] += 1
                report(name, count[name], total[name])
    return there


def planned(plan: Plan, there: list[Row]) -> list[Row]:
    wanted = {key_of(e, method) for name in plan.datasets for e in plan.experiments(name) for method in plan.order}
    return [row for row in there if row.key in wanted]
