"""How far numbers can be believed: standard errors, split R-hat of chains, a test of uniformity."""

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


def anderson_darling(u: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """A² (Anderson and Darling 1954) of numbers on (0, 1), and its p-value against uniformity.

    Squared differences of the distribution functions are weighted by 1 / (u (1 − u)), so that tails count as much as
    the middle. A number at 0 or 1 makes A² infinite and the p-value 0.

    >>> statistic, p = anderson_darling(np.array([0.1, 0.3, 0.5, 0.7, 0.9]))
    >>> round(statistic, 4), round(p, 2)
    (0.1301, 1.0)
    """
    ordered, n = np.sort(u), len(u)
    with np.errstate(divide="ignore"):  # log 0 at the ends, where A² is infinite
        logs = np.log(ordered) + np.log1p(-ordered[::-1])
    statistic = -n - float(np.mean((2.0 * np.arange(1, n + 1) - 1.0) * logs))
    return statistic, _survival(statistic)


def _survival(z: float) -> float:
    """P(A² > z) for n → ∞: at n of 20 the levels are right to a tenth of themselves, at 100 to a twentieth.

    A² is a sum of χ²₁ variables with weights 1 / (j (j + 1)). Smirnov's formula for such a sum is an alternating series
    of integrals of e^(−xz/2) / (π x √|D(x)|) from x = j (j + 1) to (j + 1)(j + 2), j odd, where D(x), the product of
    1 − x / (j (j + 1)), is −cos(π √(1 + 4x) / 2) / (π x). Its zeros at both ends call for Gauss and Chebyshev's rule.
    """
    if z < 0.03:
        return 1.0  # P(A² < 0.03) is below 1e-16
    j = 2.0 * np.arange(40)[:, None] + 1.0
    low, high = j * (j + 1.0), (j + 1.0) * (j + 2.0)
    nodes = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    x = 0.5 * (low + high) + 0.5 * (high - low) * nodes
    determinant = np.abs(np.cos(0.5 * np.pi * np.sqrt(1.0 + 4.0 * x))) / (np.pi * x)
    terms = np.mean(np.exp(-0.5 * x * z) / x * np.sqrt((x - low) * (high - x) / determinant), axis=1)
    return float(terms[::2].sum() - terms[1::2].sum())
