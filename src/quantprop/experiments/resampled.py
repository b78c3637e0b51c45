"""Whether two methods differ over many divisions of one data set, which overlap and so are not independent.

A thousand folds of the same rows tell the same thing again and again: with their spread over √n as the standard error
anything becomes significant. Nadeau and Bengio (2003) put 1/n + n_test/n_train in the place of 1/n, a correlation of
n_test / (n_train + n_test) between any two divisions; Bouckaert and Frank (2004) use it for repeated cross-validation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student_t


@dataclass(frozen=True)
class Difference:
    """A mean over divisions of one method's score less another's, and the corrected resampled t-test of it being 0."""

    mean: float
    standard_error: float
    divisions: int

    @property
    def t(self) -> float:
        """The mean in standard errors; NaN where all divisions agree that it is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.float64(self.mean) / self.standard_error)

    @property
    def p_value(self) -> float:
        """Two-sided, by Student's t with a degree of freedom fewer than there are divisions."""
        return float(2.0 * student_t.sf(abs(self.t), self.divisions - 1))


def difference(scores: Float[np.ndarray, " n"], others: Float[np.ndarray, " n"], test_to_train: float) -> Difference:
    """The scores less the others', a pair for each division; `test_to_train` is the ratio of test to training rows.

    >>> found = difference(np.array([0.3, 0.5, 0.4]), np.array([0.2, 0.2, 0.2]), test_to_train=1 / 9)
    >>> round(found.mean, 3), round(found.standard_error, 4), round(found.p_value, 3)
    (0.2, 0.0667, 0.095)
    """
    n = len(scores)
    if n < 2 or n != len(others):
        raise ValueError(f"two scores or more are needed, and as many others; got {n} and {len(others)}")
    differences = scores - others
    variance = np.var(differences, ddof=1) * (1.0 / n + test_to_train)  # Nadeau and Bengio (2003), section 4
    return Difference(float(differences.mean()), float(np.sqrt(variance)), n)
