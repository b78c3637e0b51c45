"""Which column of X is time, and which kernels are chains of states over it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from quantprop.kernels import Kernel
from quantprop.kernels.structure import bare, columns_of
from quantprop.priors.markov.forms import NotMarkov, form


def applies(kernel: Kernel, columns: int) -> bool:
    """Whether a process with this kernel over so many columns is one of `Markov()`."""
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
            f"process=Markov() takes one column of X, time; got {columns}: say which it is, kernel.on(0), and give the "
            "others linear effects, mean=means.Linear(coefficients, columns=...); or use process=Dense(), or "
            "process=Inducing() for many rows"
        )
    if len(seen) > 1:
        raise NotMarkov(
            f"process=Markov() takes a kernel of one column of X, time; got one of columns "
            f"{', '.join(map(str, seen))}: give all but one of them linear effects, mean=means.Linear(coefficients, "
            "columns=...), or use process=Dense(), or process=Inducing() for many rows"
        )
    with jax.enable_x64(True):
        states = jax.eval_shape(lambda: form(kernel, jnp.zeros(1), jnp.zeros(1), 1).h).shape[0]
    if states == 0:
        raise NotMarkov("process=Markov() has no use for a kernel of white noise alone: use process=Dense()")
    column = seen[0] if seen else 0
    if not isinstance(column, int) or column >= columns:
        raise NotMarkov(f"column {column!r} is none of the {columns} columns of X, by its position from 0")
    return column
