"""Annealed importance sampling (Neal 2001): the log evidence, and starts of chains in proportion to their modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.model import Model
from quantprop.reference.guide import ChainState, Guide, guide, start, step
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

POWER = 6.0  # β_t = (t/T)^POWER: a threshold likelihood differs by 1e6 nats among draws of a wide prior


@dataclass(frozen=True)
class Evidence:
    """Estimate of log p(y).

    Args:
        value: The estimate.
        standard_error: Its standard error.
        share: Effective fraction of the chains that carries the weight (1 if all weigh the same).
        log_weights: Log weight of each chain.
    """

    value: float
    standard_error: float
    share: float
    log_weights: Float[np.ndarray, " chains"]


@float64
def log_evidence(
    model: Model,
    X: Any,
    y: Any,
    *,
    seed: int = 0,
    chains: int = 256,
    temperatures: int = 200,
    sites: Natural | None = None,
    exposure: Any = None,
    trials: Any = None,
) -> Evidence:
    """Estimate log p(y | X) by annealed importance sampling from the guide to the posterior.

    The mean of the weights is unbiased for p(y) whatever the guide and however few the steps, which decide its
    variance.

    Args:
        model: Kernel, likelihood, prior mean and process.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        seed: Seed of the random numbers. The same seed gives the same result.
        chains: Number of Markov chains.
        temperatures: Annealing steps.
        sites: Sites that guide the chains; EP's by default.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.

    Returns:
        The estimate with its standard error.

    >>> import numpy as np
    >>> from quantprop import Model, kernels, likelihoods, reference
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    >>> found = reference.log_evidence(model, np.zeros((1, 1)), np.ones(1))
    >>> bool(abs(found.value - np.log(0.5)) < 5 * found.standard_error)
    True
    """
    by = guide(model, X, y, sites, None, exposure, trials)
    keys = jax.random.split(jax.random.key(seed), chains)
    log_weights = np.asarray(annealed(by, keys, float(temperatures))[1])
    weights = np.exp(log_weights - log_weights.max())
    mean = weights.mean()
    return Evidence(
        value=float(by.log_normalizer + log_weights.max() + np.log(mean)),
        standard_error=float(weights.std(ddof=1) / mean / np.sqrt(chains)),  # delta method
        share=float(mean**2 / np.mean(weights**2)),
        log_weights=log_weights,
    )


@program
def annealed(by: Guide, keys: Array, temperatures: Any) -> tuple[ChainState, Float[Array, " chains"]]:
    """Every chain's end, and log w = Σ_t (β_{t+1} − β_t) log L(f_t), f_{t+1} by a step at β_{t+1} (Neal's eq. 11)."""

    def beta(t: Any) -> Any:
        return (t / temperatures) ** POWER

    def one(key: Array) -> tuple[ChainState, Any]:
        def cooler(t: Any, carry: Any) -> Any:
            state, log_weight = carry
            log_weight = log_weight + (beta(t + 1) - beta(t)) * state.value
            return step(jax.random.fold_in(key, t + 1), state, by.residual, by.factor, beta(t + 1)), log_weight

        first = start(jax.random.fold_in(key, 0), by.residual, by.factor)
        return jax.lax.fori_loop(0, temperatures.astype(int), cooler, (first, jnp.zeros(())))

    return jax.vmap(one)(keys)


def resampled(state: ChainState, log_weights: Float[np.ndarray, " chains"], seed: int) -> ChainState:
    """Resample as many states in proportion to their weights: systematic resampling by one uniform number."""
    weights = np.exp(log_weights - log_weights.max())
    steps = (np.random.default_rng(seed).uniform() + np.arange(len(weights))) / len(weights)
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), steps)
    return jax.tree.map(lambda part: part[np.minimum(chosen, len(weights) - 1)], state)
