"""Anderson and Darling's test that numbers are uniform on (0, 1).

Kolmogorov and Smirnov compare distribution functions, which are tied to 0 and 1 at the ends: a fault in the tails
hardly moves them. Here squared differences are weighted by 1 / (u (1 − u)), so that tails count as much as the middle.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def anderson_darling(u: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """A² (Anderson and Darling 1954) and its p-value. A number at 0 or 1 makes A² infinite and the p-value 0.

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
