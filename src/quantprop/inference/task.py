"""Data and method of a problem, checked, coded and padded; and the sites that sweeps start from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from quantprop.core.data import ROUNDING, bucket, finite_array, first_bad, inputs, pad, refuse_sizes, row_weights
from quantprop.core.gaussian import Natural
from quantprop.inference.factors import factors_of, is_multi_class
from quantprop.kernels import Kernel, PerParameter
from quantprop.kernels.structure import is_measured, measured, warn_of_levels
from quantprop.likelihoods import Varying
from quantprop.likelihoods.base import Datum, encode, observed
from quantprop.methods import Method
from quantprop.methods.base import Weight, each_row
from quantprop.model import Model
from quantprop.priors import Cost, Process
from quantprop.priors.per_function import for_both
from quantprop.runtime.jobs import all_true, job_total, largest, meet, sampled, several, together
from quantprop.runtime.memory import check_memory
from quantprop.runtime.mesh import current, devices_here, placed
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

PROBES = 16  # rows at which a kernel is tested for white noise


class Task(NamedTuple):
    """A problem, checked: its scalar model with the process resolved; inputs as given; the rest padded to the bucketed
    size, extra rows with weight 0.

    Where rows are divided among the devices of a mesh, these are the rows of this process, and `total_rows` counts
    those of all processes.
    """

    model: Model
    x: np.ndarray
    padded: np.ndarray
    data: Datum
    weight: Weight
    cost: Cost
    total_rows: int
    mesh: Mesh | None = None

    def placed(self, rows: Any) -> Any:
        """Arrays of padded rows, as programs take them."""
        return placed(rows, self.mesh)


def prepare(
    model: Model, X: Any, y: Any, method: Method, weights: Any = None, exposure: Any = None, trials: Any = None
) -> Task:
    """Check the data against model and method, resolve the process from X, and pad: all that is done to X and y before
    programs see them. Data of several classes become those of their scalar factors.
    """
    with together():
        x = inputs(X, "X")
        if is_multi_class(model):
            (model, x, y), weights = factors_of(model, x, y, weights), None
        model = of_functions(model)
    mesh, likelihood = _mesh_for(model.process), model.plain_likelihood
    with together():
        y = observed(y, likelihood, len(x))
        for name, rows in (("X", x), ("y", y)):
            refuse_sizes(rows, name)
        data = encode(likelihood, y, (len(x),), exposure, trials)
        total = row_weights(weights, len(x))
        _check_copies(model, x, total)
        warn_of_levels(model.plain_kernel, x, total > 0)
    model, here = settled(model, x), devices_here(mesh)
    size = bucket(len(x)) if mesh is None else here * bucket(largest(-(-len(x) // here)))  # as many on each device
    weight, cost = weight_of(total, size), model.process.cost(size)
    if not all_true(weight.exponent is None) and weight.exponent is None:  # programs are the same in all processes
        weight = weight._replace(exponent=np.ones(size))
    with together():
        check_memory(cost)
        method.check(likelihood, weight)
        model.process.check(np.asarray(method.share(weight)))
    return Task(model, x, pad(x, size), pad(data, size), weight, cost, job_total(len(x)), mesh)


def _mesh_for(process: Process) -> Mesh | None:
    """The devices among which the rows of such a process are divided, or an error where it has to but cannot."""
    meet()
    if process.divisible:
        return current()
    if several():
        raise ValueError(
            f"{type(process).__name__} needs all rows in one process, and this is one of {jax.process_count()} "
            "processes of a jax.distributed job, each with its own rows: use process=Inducing(points), which supports "
            "this, or do not call jax.distributed.initialize"
        )
    return None


@float64
def settled(model: Model, x: np.ndarray) -> Model:
    """The model with all that its process leaves to the data chosen from x."""
    process = model.process
    return replace(model, process=process.settled(model.plain_kernel, x)) if process.from_data else model


def with_distributions(model: Model, X: Any, weights: Any) -> Model:
    """The model with the distributions of columns that its kernel leaves to the data, from the rows that count."""
    if is_measured(model.kernel):
        return model
    x = inputs(X, "X")
    counts = row_weights(weights, len(x))
    return replace(model, kernel=measured(model.kernel, sampled(x), sampled(counts)))


def weight_of(total: np.ndarray, size: int) -> Weight:
    """Weights as copies and exponents; padded rows get weight 0."""
    copies = np.maximum(total, 1.0)
    exponent = np.where(total > 0, np.minimum(total, 1.0), 1.0)
    more = size - len(total)
    total, copies = np.pad(total, (0, more)), np.pad(copies, (0, more), constant_values=1.0)
    return Weight(total, copies, None if (exponent == 1.0).all() else np.pad(exponent, (0, more), constant_values=1.0))


def leaves_residuals(model: Model, method: Method, task: Task) -> bool:
    """Return whether marginals contain only a fraction of a site's effect on its own row: then cavities for leaving the
    row out are not those of the method.
    """
    return model.process.copies_apart and not np.array_equal(method.share(task.weight), 1.0 / task.weight.copies)


def _check_copies(model: Model, x: np.ndarray, total: np.ndarray) -> None:
    """Raise for weights above 1 if the kernel has white noise: each copy of a row then has its own f."""
    repeated = total > 1.0
    if not model.process.copies_apart and repeated.any() and has_white_noise(model.plain_kernel, x[repeated]):
        raise ValueError(
            f"{first_bad(repeated, total, 'weights')}: with white noise in the kernel, weights must be at most 1, "
            "since equal rows have independent noise; repeat the rows (np.repeat(X, weights, axis=0), y likewise), or "
            "use the likelihood's noise"
        )


@float64
def has_white_noise(kernel: Kernel, x: np.ndarray) -> bool:
    """Return whether equal rows are different data to the kernel, by evaluating it at some rows of x, each twice."""
    some = x[:PROBES]
    k = np.asarray(_gram(kernel, pad(np.concatenate([some, some]), 2 * PROBES)))
    own, other = np.diagonal(k)[: len(some)], np.diagonal(k, len(some))[: len(some)]
    return bool((np.abs(own - other) > ROUNDING * own).any())


def of_functions(model: Model) -> Model:
    """The model with a process for each function of x, or an error if kernel and likelihood differ in their number."""
    several = isinstance(model.likelihood, Varying)
    if several and not isinstance(model.kernel, PerParameter):
        raise ValueError("kernel: a likelihood with a varying parameter needs two kernels, kernels.PerParameter(kernel "
                         "of f, kernel of the parameter)")  # fmt: skip
    if not several and isinstance(model.kernel, PerParameter):
        raise ValueError(f"kernel: PerParameter has two latent functions, but the {model.plain_likelihood.name} "
                         "likelihood takes one: use likelihoods.Varying, or a kernel of one function")  # fmt: skip
    return replace(model, process=for_both(model.process)) if several else model


_gram = program(lambda kernel, x: kernel.gram(x))
_likelihood_start = program(lambda likelihood, data: Natural(*each_row(likelihood.start, data)))


def task_of(solution: Any) -> Task:
    """The rows behind a solution, prepared again; raises if this process does not have all that it was learned from."""
    refuse_shaped(solution)
    data = solution.data
    if data is None:
        raise ValueError("fitted has no observations (its file was written by an earlier version): fit again")
    exposure, trials = (None if (column == 1.0).all() else column for column in (data.exposure, data.trials))
    task = prepare(solution.model, solution.X, data.y, solution.method, solution.weights, exposure, trials)
    if solution.posterior is not None and task.mesh is None:
        raise ValueError(
            "fitted holds only some of its rows (they were divided among processes, or read from a file): use it in "
            "the job that fitted it, or fit a sample of the rows"
        )
    return task


def refuse_shaped(solution: Any) -> None:
    """Raise for a constrained function, whose posterior does not follow from the rows of the data alone."""
    if hasattr(solution, "whole"):
        raise ValueError("not supported with a constraint on the shape of f: fit without monotone=")


def more_columns(rows: np.ndarray, more: int) -> np.ndarray:
    """Numbers of rows, or of several functions at rows, with zeros for further rows."""
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, more)])


def starting_sites(likelihood: Any, task: Task, sites: Natural | None) -> Natural:
    """The sites to start from, padded: those given, or the likelihood's own, times weights; 0 where these are 0."""
    n = len(task.x)
    if sites is None:
        chosen = jax.tree.map(lambda s: task.weight.total * np.asarray(s), _likelihood_start(likelihood, task.data))
    else:
        given = [finite_array(part, f"sites.{name}") for name, part in (("nu", sites.nu), ("tau", sites.tau))]
        shape = (n,) if likelihood.latents == 1 else (likelihood.latents, n)
        if any(part.shape != shape for part in given):
            size, nu, tau = (" × ".join(map(str, counts)) for counts in (shape, *(part.shape for part in given)))
            raise ValueError(f"sites must hold {size} values each, one per row and function; got {nu} and {tau}")
        if likelihood.log_concave and (given[1] < 0).any():
            raise ValueError(f"sites.tau must not be negative for the {likelihood.name} likelihood")
        chosen = Natural(*(more_columns(part, len(task.padded) - n) for part in given))
    return jax.tree.map(lambda s: np.where(task.weight.total > 0, s, 0.0), chosen)
