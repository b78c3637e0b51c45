"""`Markov`: a process in time with linear cost."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record, field
from quantprop.kernels import Kernel
from quantprop.kernels.structure import bare, columns_of, summands
from quantprop.priors.base import Cost, Process
from quantprop.priors.markov.algebra import Layout, Slots, lanes_for, layout_of, to_slots
from quantprop.priors.markov.forms import NotMarkov, form, series
from quantprop.priors.markov.prediction import Ties, ties_of
from quantprop.priors.markov.prior import MarkovPrior
from quantprop.priors.markov.recursion import Chain
from quantprop.runtime.arguments import whole

NUMBERS_PER_ROW = 120  # float64, at the peak of an evaluation with its gradient, for three states


class Prepared(NamedTuple):
    """Inputs, and where they stand in time."""

    x: Float[Array, "n d"]
    layout: Layout
    now: Slots
    before: Slots


class Markov(Process):
    """The exact process in state-space form, for kernels of one column of X, time: O(n) memory and operations per
    sweep.

    Kernels are Matern12, Matern32, Matern52, IntegratedWiener, Oscillation, Periodic, Constant, Linear, White, and sums
    and products of them. Inputs may be in any order, and repeated. If X has more columns, put the kernel on the column
    of time, `kernel.on(0)`; the others may have linear effects (`means.Linear`).

    Args:
        lanes: Number of stretches of the series that are filtered side by side; 1 is the sequential filter, None lets
            the device decide. Results agree to rounding.
        harmonics: Number of harmonics of a periodic kernel, which then has 2 · harmonics + 1 states; `truncation` is
            the error.

    >>> import numpy as np
    >>> from quantprop import Markov, Model, infer, kernels, likelihoods
    >>> t = np.arange(1000.0)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(np.sin(t[:, 0] / 50)))
    >>> model = Model(kernels.Matern32(1.0, 50.0), likelihoods.Poisson(), process=Markov())
    >>> infer(model, t, y, "ep").converged
    True
    """

    lanes: int | None = field(default=None, static=True)
    harmonics: int = field(default=8, static=True)

    def __check_init__(self) -> None:
        if self.lanes is not None:
            whole(1).check("Markov: lanes", self.lanes)
        whole(0).check("Markov: harmonics", self.harmonics)

    def truncation(self, lengthscale: float) -> float:
        """The largest error of a periodic kernel's covariance by its truncated series, relative to its variance.

        >>> from quantprop import Markov
        >>> f"{Markov(harmonics=8).truncation(1.0):.0e}"
        '4e-09'
        """
        with jax.enable_x64(True):
            return float(1.0 - jnp.sum(series(lengthscale, self.harmonics)))

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Prepared:
        time = x[:, time_column(kernel, x.shape[1])]
        return Prepared(x, *layout_of(time, lanes_for(len(x)) if self.lanes is None else self.lanes))

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Prepared) -> MarkovPrior:
        x, layout, now, before = prepared
        steps = form(kernel, before, now, self.harmonics)
        first = (jnp.arange(now.shape[0])[:, None] == 0) & (jnp.arange(now.shape[1]) == 0)
        a, q = jnp.where(first, 0.0, steps.a), jnp.where(first, steps.p, steps.q)
        parts = (jnp.moveaxis(part, -2, 0) for part in (a, q, steps.h))
        noise = to_slots(layout, kernel.noise(x))
        return MarkovPrior(mean, Chain(*parts), noise, kernel.diagonal(x), layout)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Ties:
        time = time_column(kernel, x.shape[1])
        return ties_of(partial(form, kernel, harmonics=self.harmonics), kernel.noise(new), x[:, time], new[:, time])

    def split(self, kernel: Kernel, terms: tuple[Kernel, ...]) -> Split:
        return Split(self, places_of(summands(kernel), terms))

    def cost(self, n: int) -> Cost:
        one = 8 * n
        parts = f"{NUMBERS_PER_ROW} numbers per row"
        return Cost(NUMBERS_PER_ROW * one, 40 * one, 2000.0 * n, f"a chain over {n} rows", parts)


class Split(Record):
    """The process as a sum of parts, of which `places` says which terms of the kernel belong to each."""

    process: Markov
    places: tuple[tuple[int, ...], ...] = field(static=True)

    def cross_terms(
        self, kernel: Kernel, terms: tuple[Kernel, ...], x: Float[Array, "n d"], new: Float[Array, "k d"]
    ) -> Ties:
        """A part is what h sees of the blocks of the state that belong to its terms."""
        none = jnp.zeros(1)
        ties = self.process.cross(kernel, x, jnp.tile(new, (len(terms), 1)))
        states = [len(form(term, none, none, self.process.harmonics).h) for term in summands(kernel)]
        owner = np.repeat(np.arange(len(states)), states)
        own = np.repeat([np.isin(owner, part) for part in self.places], len(new), axis=0).T
        noise = jnp.concatenate([term.noise(new) for term in terms])
        return ties._replace(to=ties.to._replace(h=jnp.where(own, ties.to.h, 0.0)), noise=noise)


def places_of(every: list[Kernel], terms: tuple[Kernel, ...]) -> tuple[tuple[int, ...], ...]:
    """For each part the places of its terms in a sum: of equal terms, the one that fewest parts before it have."""
    taken, found = [0] * len(every), []
    for part in terms:
        places: list[int] = []
        for term in summands(part):
            equal = [i for i, one in enumerate(every) if one == term and i not in places]
            places.append(min(equal, key=taken.__getitem__))
        for i in places:
            taken[i] += 1
        found.append(tuple(places))
    return tuple(found)


def applies(kernel: Kernel, columns: int) -> bool:
    """Return whether `Markov()` represents a process with this kernel over this number of columns."""
    try:
        time_column(kernel, columns)
    except NotMarkov:
        return False
    return True


def time_column(kernel: Kernel, columns: int) -> int:
    """The column of X that all parts of a kernel see; an error where there is none or no state-space form."""
    seen = columns_of(kernel)
    if columns != 1 and bare(kernel):
        raise NotMarkov(
            f"process=Markov() takes one column of X, time; got {columns}: select it with kernel.on(0), and use "
            f"linear effects for the others, mean=means.Linear(coefficients, columns=...); or use process=Dense(), or "
            "process=Inducing() for many rows"
        )
    if len(seen) > 1:
        raise NotMarkov(
            "process=Markov() takes a kernel of one column of X, time; got one of columns "
            f"{', '.join(map(str, seen))}: use linear effects for all but one of them, mean=means.Linear(coefficients, "
            "columns=...), or use process=Dense(), or process=Inducing() for many rows"
        )
    with jax.enable_x64(True):
        states = jax.eval_shape(lambda: form(kernel, jnp.zeros(1), jnp.zeros(1), 1).h).shape[0]
    if states == 0:
        raise NotMarkov("process=Markov() does not support a kernel of white noise alone: use process=Dense()")
    column = seen[0] if seen else 0
    if not isinstance(column, int) or column >= columns:
        raise NotMarkov(f"column {column!r} does not exist: X has {columns} columns, counted from 0")
    return column
