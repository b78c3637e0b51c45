"""A second sampler, to check the first by: the no-U-turn sampler of blackjax (Hoffman and Gelman 2014).

It goes by gradients where elliptical slice sampling goes by values, and its code is another's. Much slower: for small
problems.
"""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.model import Model
from quantprop.reference.guide import Guide, guide
from quantprop.runtime.precision import float64


@float64
def nuts(
    model: Model,
    X: Any,
    y: Any,
    *,
    seed: int = 0,
    chains: int = 4,
    draws: int = 500,
    warmup: int = 300,
    sites: Natural | None = None,
    exposure: Any = None,
    trials: Any = None,
) -> Float[np.ndarray, "chains draws n"]:
    """Draws of f at X given y. The likelihood must have a derivative in f; `sites` are as in `sample`."""
    by = guide(model, X, y, sites, None, exposure, trials)
    keys = jax.random.split(jax.random.key(seed), chains)
    run = jax.jit(jax.vmap(lambda key: _chain(by, key, draws, warmup)))
    return np.asarray(by.centre + run(keys) @ by.factor.T)


def _chain(by: Guide, key: Array, draws: int, warmup: int) -> Float[Array, "draws n"]:
    """One chain in the guide's coordinates u, its steps tuned during warmup."""

    def log_density(u: Array) -> Array:
        return by.residual(by.factor @ u) - 0.5 * u @ u

    for_start, for_tuning, for_draws = jax.random.split(key, 3)
    first = jax.random.normal(for_start, by.factor.shape[1:])
    tuned, _ = blackjax.window_adaptation(blackjax.nuts, log_density).run(for_tuning, first, warmup)  # pyright: ignore[reportCallIssue]
    kernel = blackjax.nuts(log_density, **tuned.parameters)

    def move(state: Any, key: Array) -> tuple[Any, Array]:
        state, _ = kernel.step(key, state)
        return state, state.position

    return jax.lax.scan(move, tuned.state, jax.random.split(for_draws, draws))[1]
