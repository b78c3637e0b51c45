"""A quick rule where it says that it can be trusted, and an exact one for the other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array

MIN_ROWS = 256  # with fewer, compiling a second rule would take longer than it saves
BLOCK = 32  # rows that the exact rule takes at a time


def unless_trusted(quick: Callable[..., tuple[Any, Array]], exact: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the values of `quick`, which also says whether they can be trusted, and of `exact` where not.

    Both are written for one datum. Under `vmap` a branch would compute both for every row; here the exact rule takes
    only the rows that need it, a block at a time; of few rows it takes all. Differentiate it forward, and outside the
    `vmap` over rows.
    """

    @custom_vmap
    def chosen(*args):
        return exact(*args)

    @chosen.def_vmap
    def _(size, batched, *args):
        leaves, form = jax.tree.flatten(args)
        flags = jax.tree.leaves(batched)
        if not any(flags):  # only derivatives are batched
            value = chosen(*args)
            return value, jax.tree.map(lambda _: False, value)

        def of_rows(rule):
            def one(row):
                own = iter(row)
                return rule(
                    *form.unflatten([next(own) if flag else leaf for flag, leaf in zip(flags, leaves, strict=True)])
                )

            return jax.vmap(one)

        rows = [leaf for flag, leaf in zip(flags, leaves, strict=True) if flag]
        few = size < MIN_ROWS
        value = of_rows(exact)(rows) if few else _mended(of_rows(exact), rows, *of_rows(quick)(rows), size)
        return value, jax.tree.map(lambda _: True, value)

    return chosen


def if_trusted(quick: Callable[..., tuple[Any, Array]]) -> Callable[..., Any]:
    """A function with the values of `quick`, NaN where these cannot be trusted."""

    def chosen(*args):
        value, good = quick(*args)
        return jax.tree.map(lambda part: jnp.where(good, part, jnp.nan), value)

    return chosen


def _mended(exact: Callable, rows: list[Array], value: Any, good: Array, size: int) -> Any:
    """The values, with those of rows that are not good computed again."""
    width = min(size, BLOCK)
    (bad,) = jnp.nonzero(~good, size=-(-size // width) * width, fill_value=size)
    count = jnp.sum(~good)

    def mend(state):
        done, value = state
        at = jax.lax.dynamic_slice(bad, (done,), (width,))
        new = exact([column.at[at].get(mode="clip") for column in rows])
        return done + width, jax.tree.map(lambda old, part: old.at[at].set(part, mode="drop"), value, new)

    return jax.lax.while_loop(lambda state: state[0] < count, mend, (jnp.zeros_like(count), value))[1]
