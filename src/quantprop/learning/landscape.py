"""An objective as a function of the hyperparameters, with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import packed, values, without_bounds
from quantprop.core.records import changed
from quantprop.inference.engine import InferenceProblem
from quantprop.inference.leave_one_out import for_loo, loo_program
from quantprop.inference.task import Task, leaves_residuals, starting_sites
from quantprop.learning.attempts import Memory, Point, Request, attempted
from quantprop.learning.evaluation import PROGRAMS, Declared, Inputs, Question, declared_parts, inputs_of
from quantprop.learning.fingerprints import of_rows, together
from quantprop.learning.objectives import Objective
from quantprop.learning.warm_starts import WarmStarts
from quantprop.likelihoods.base import Likelihood
from quantprop.methods import Method
from quantprop.model import Model, is_opaque
from quantprop.runtime.jobs import gathered, own_part
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import compile_ahead, program

R = TypeVar("R")

PREPARED = ("inputs", "question")
_inputs = program(inputs_of)


@dataclass(frozen=True, eq=False)
class Landscape:
    """objective(θ) for one model, data set and method."""

    model: Model
    task: Task
    method: Method
    objective: Objective
    exact: bool = True
    tol: float = 1e-8
    max_sweeps: int = 200
    known: tuple[np.ndarray, Natural] | None = None  # sites to start from, and their θ
    shared_parts: Declared | None = None  # of the model, if another objective has them already

    def __post_init__(self) -> None:
        if self.objective.name == "loo" and self.model.process.several_sites:
            raise ValueError(
                "objective='loo' does not exist for three or more classes, whose data leave the posterior with several "
                "sites each: use objective='evidence'; solution.loo has the leave-one-out densities"
            )
        if self.objective.name == "loo" and leaves_residuals(self.model, self.method, self.task):
            raise ValueError(
                f"objective='loo' does not exist for {type(self.method).__name__} with "
                f"{type(self.model.process).__name__}, where its cavities are not those of leaving rows out: use EP or "
                "QP, or objective='evidence'"
            )

    @property
    def count(self) -> int:
        """How many rows it is of, in this process."""
        return len(self.task.x)

    @property
    def padded(self) -> int:
        """How many rows arrays have in this process."""
        return len(self.task.padded)

    @property
    def total(self) -> int:
        """How many rows it is of, in all processes: what they decide by, since each has another number of its own."""
        return self.task.total_rows

    @cached_property
    def parts(self) -> Declared:
        """The model's parts, every number declared."""
        return declared_parts(self.model, self.task) if self.shared_parts is None else self.shared_parts

    @cached_property
    def unbounded(self) -> Declared:
        """The same parts, as compiled programs see them."""
        parts = without_bounds(self.parts)
        if self.task.mesh is None or not is_opaque(self.model.mean):
            return parts
        return parts._replace(mean=changed(parts.mean, value=self.task.placed(parts.mean.value)))

    @cached_property
    @float64
    def inputs(self) -> Inputs:
        """The padded inputs, prepared."""
        return _inputs(packed(self.parts), self.unbounded, self.task.placed(self.task.padded))

    @cached_property
    def cold(self) -> Natural:
        """The likelihood's own starting sites."""
        return self.padded_sites(None)

    @cached_property
    @float64
    def question(self) -> Question:
        """All that defines the objective but θ, where it is computed."""
        return Question(self.unbounded, self.inputs, *self.task.placed((self.task.data, self.task.weight)))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is prepared of the inputs, which can be large and is soon computed again."""
        return {name: part for name, part in vars(self).items() if name not in PREPARED}

    def release(self) -> None:
        """Free the memory of what was prepared."""
        for name in PREPARED:
            vars(self).pop(name, None)

    @float64
    def padded_sites(self, sites: Natural | None) -> Natural:
        """Sites to start from, checked and padded; None for the likelihood's own."""
        return starting_sites(values(self.parts.likelihood), self.task, sites)

    @cached_property
    def fingerprint(self) -> str:
        """Tells its rows from others, in all processes together; where the prior mean is given by row, with that."""
        own, n = own_part(self.count), self.count
        mean = self.parts.mean.value if is_opaque(self.model.mean) else None
        rows = (self.task.data, self.task.weight, mean)
        given = [np.asarray(leaf)[:n] for leaf in jax.tree.leaves(rows) if np.ndim(leaf)]
        part = of_rows(own.start, self.task.x, *(column for column in given if len(column) == n))
        return together(np.concatenate([np.atleast_1d(each) for each in gathered(part)]))

    def from_sites(self, theta: Float[np.ndarray, " theta"], sites: Natural) -> Landscape:
        """The same objective, whose first evaluation starts from sites given for θ."""
        return replace(self, known=(np.asarray(theta, dtype=np.float64), self.padded_sites(sites)))

    def memory(self) -> Memory:
        """What the first evaluation starts from."""
        theta, sites = (packed(self.parts), self.cold) if self.known is None else self.known
        return Memory(WarmStarts.of(theta, sites, seen=self.known is not None))

    def at(self, theta: Float[np.ndarray, " theta"], tol: float = 0.0) -> Point:
        """The objective at θ, from cold sites."""
        return self.evaluate(theta, tol, Memory(WarmStarts.of(theta, self.cold)))[0]

    def evaluate(self, theta: Float[np.ndarray, " theta"], tol: float, memory: Memory) -> tuple[Point, Memory]:
        """The objective at θ, and what the next evaluation starts from.

        Inference stops at `tol` if that is larger than the objective's own.
        """
        return attempted(Request(self, np.array(theta, dtype=np.float64), max(tol, self.tol), memory))

    @float64
    def compile(self, meanwhile: Callable[[], R] = lambda: None) -> R:
        """Compile what evaluations and the solution at the end need, unless already compiled for such a problem, and
        return what is to be done `meanwhile`. Where rows are divided among devices, programs are compiled when called.
        """
        if self.task.mesh is not None:
            return meanwhile()
        theta = packed(self.parts)
        made, likelihood = PROGRAMS.prior.shapes(theta, self.unbounded, self.inputs)
        problem = InferenceProblem.of(likelihood, self.method, made, self.task.data, self.task.weight)
        problem = problem.with_few_nodes()
        leaves, form = jax.tree.flatten((problem, self.objective, self.unbounded, self.inputs))
        key = (form, tuple(np.shape(leaf) for leaf in leaves), self.exact)
        left_out = for_loo(self.method, likelihood, self.task.weight)
        return compile_ahead(key, self._programs(theta, problem, left_out), meanwhile)

    def _programs(
        self, theta: Float[np.ndarray, " theta"], problem: InferenceProblem, left_out: tuple[Method | None, Likelihood]
    ) -> Iterator[Any]:
        """All programs that will be needed, the large ones first."""
        solving = (problem, self.cold, self.tol, self.max_sweeps)
        yield PROGRAMS.solved.ahead(*solving)
        yield PROGRAMS.prior.ahead(theta, self.unbounded, self.inputs)
        out, prior, factor = PROGRAMS.solved.shapes(*solving)
        differentiating = (replace(problem, prior=prior), self.objective, out.at, factor)
        yield PROGRAMS.gradient.ahead(*differentiating, exact=self.exact)
        value, by = PROGRAMS.gradient.shapes(*differentiating, exact=self.exact)
        yield PROGRAMS.pull_back.ahead(theta, self.unbounded, self.inputs, value, by)
        yield loo_program.ahead(*left_out, self.task.data, self.task.weight, out.at)

    @cached_property
    def integrates(self) -> bool:
        """Whether sites are renewed by quadrature that few nodes may do for."""
        return self.method.on_few_nodes(values(self.parts.likelihood), self.task.weight)

    @property
    def careful(self) -> bool:
        """Whether a first step to the other end of the box is to be avoided: rules that integrate take hundreds of
        sweeps there, and fail.
        """
        return self.integrates
