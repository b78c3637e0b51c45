"""How far a set of chains can be believed: standard errors, effective numbers of draws, split R-hat."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Estimate(NamedTuple):
    """Monte-Carlo averages and their standard errors."""

    value: Float[np.ndarray, " n"]
    standard_error: Float[np.ndarray, " n"]


class Halves(NamedTuple):
    """Means over each half of each chain of a quantity and of its square; `draws` of them went into each."""

    mean: Float[np.ndarray, "2 chains n"]
    square: Float[np.ndarray, "2 chains n"]
    draws: int


def average(by_chain: Float[np.ndarray, "chains n"]) -> Estimate:
    """The mean over independent chains, each an average of its own.

    Chains are independent, so their spread is the standard error: no autocorrelation has to be estimated.
    """
    chains = len(by_chain)
    return Estimate(by_chain.mean(0), by_chain.std(0, ddof=1) / np.sqrt(chains))


def variance(first: Float[np.ndarray, "chains n"], second: Float[np.ndarray, "chains n"]) -> Estimate:
    """E[d²] − E[d]² from every chain's means of d and d²; its error by the delta method."""
    mean = first.mean(0)
    influence = average(second - 2.0 * mean * first)
    return Estimate(second.mean(0) - mean**2, influence.standard_error)


def split_rhat(halves: Halves) -> Float[np.ndarray, " n"]:
    """Split R-hat (Vehtari et al. 2021, eqs 1 to 4): near 1 when the halves of all chains agree."""
    n = halves.draws
    means = halves.mean.reshape(-1, halves.mean.shape[-1])
    squares = halves.square.reshape(means.shape)
    within = np.mean((squares - means**2) * n / (n - 1.0), axis=0)
    between = np.var(means, axis=0, ddof=1)
    settled = (within > 0) | (between > 0)  # a quantity that is the same in all draws
    ratio = between / np.where(within > 0, within, np.where(settled, np.finfo(float).tiny, 1.0))
    return np.sqrt((n - 1.0) / n + ratio)
