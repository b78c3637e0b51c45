"""Simulation-based calibration (Talts et al. 2018): data drawn from the model, and what a method says of the truth.

Draw f from the prior at n inputs and one more, y from the likelihood, infer, and ask where the true f and y at the
held-out input lie in their predictive distributions. Under exact inference both probability integral transforms (PIT)
are uniform. One held-out input per draw keeps draws independent, so that tests of uniformity mean what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import ndtr
from scipy.stats import kstest

from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.engine import InferenceProblem, solve_parallel
from quantprop.inference.engine.fixed_point import CONVERGED
from quantprop.inference.prediction import prior_of
from quantprop.inference.predictive import Predictive
from quantprop.inference.task import settled
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.methods import Method
from quantprop.methods import by_name as method_by_name
from quantprop.methods.base import Weight
from quantprop.model import Model
from quantprop.priors import Prior
from quantprop.runtime.batches import each
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program
from quantprop.runtime.threads import one_blas_thread

LEVELS = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Simulated:
    """Data sets drawn from one model at the same inputs, each with f and y at one held-out input."""

    model: Model
    x: Float[np.ndarray, "n d"]
    x_new: Float[np.ndarray, "1 d"]
    y: Float[np.ndarray, "draws n"]
    f_new: Float[np.ndarray, " draws"]
    y_new: Float[np.ndarray, " draws"]


@dataclass(frozen=True)
class Calibration:
    """Where the truth lay. Data sets at which inference did not converge are counted, and their PIT is NaN."""

    pit_f: Float[np.ndarray, " draws"]
    pit_y: Float[np.ndarray, " draws"]  # randomised where y is discrete
    failed: int

    def coverage(self, level: float) -> tuple[float, float]:
        """How often the central interval of probability `level` held the true f, and y."""
        return self._of_both(lambda pit: np.mean(np.abs(pit - 0.5) < 0.5 * level))

    @property
    def p_values(self) -> tuple[float, float]:
        """P-values of Kolmogorov and Smirnov's test that the PITs of f, and of y, are uniform."""
        return self._of_both(lambda pit: kstest(pit, "uniform").pvalue)

    @property
    def tail_p_values(self) -> tuple[float, float]:
        """P-values of Anderson and Darling's test of the same, which is sensitive to the tails."""
        return self._of_both(lambda pit: anderson_darling(pit)[1])

    def _of_both(self, statistic: Callable[[np.ndarray], Any]) -> tuple[float, float]:
        f, y = (float(statistic(pit[~np.isnan(pit)])) for pit in (self.pit_f, self.pit_y))
        return f, y


@float64
def simulate(
    model: Model, x: Float[np.ndarray, "n d"], x_new: Float[np.ndarray, "1 d"], draws: int, seed: int
) -> Simulated:
    """Draw data sets from a model."""
    rng, n = np.random.default_rng(seed), len(x)
    every = np.concatenate([x, x_new])
    values, vectors = np.linalg.eigh(np.asarray(model.plain_kernel.gram(every)))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    f = model.prior_mean(every) + rng.standard_normal((draws, n + 1)) @ root.T
    ones = np.ones_like(f)
    y = np.asarray(model.plain_likelihood.draw(rng, Datum(ones, ones, ones), f))
    return Simulated(model, x, x_new, y[:, :n], f[:, n], y[:, n])


@float64
def calibrate(simulated: Simulated, method: Method | str, seed: int = 0, observed: Any = None) -> Calibration:
    """Infer every data set and find the truth's place. `observed` turns drawn y into what is observed (censoring)."""
    model, rows = simulated.model, len(simulated.y)
    y = simulated.y if observed is None else observed(simulated.y)
    ones = np.ones(simulated.y.shape)
    data = Datum(y, ones, ones)
    with one_blas_thread():
        latent, converged = to_numpy(_posteriors(model, method_by_name(method), simulated.x, simulated.x_new, data))
    pit_f = ndtr((simulated.f_new - latent.mean) / np.sqrt(latent.variance))
    predictive = Predictive(model.plain_likelihood, latent, np.ones(rows), np.ones(rows))
    pit_y = _randomised(predictive, simulated.y_new, np.random.default_rng(seed).uniform(size=rows))
    lost = ~converged
    return Calibration(np.where(lost, np.nan, pit_f), np.where(lost, np.nan, pit_y), int(lost.sum()))


def _randomised(predictive: Predictive, y: Float[np.ndarray, " draws"], u: Float[np.ndarray, " draws"]) -> np.ndarray:
    """P(Y < y) + u P(Y = y): uniform under the right distribution, discrete or not."""
    upper = predictive.cdf(y)
    if predictive.likelihood.lattice is None:
        return upper
    lower = predictive.cdf(y - 0.5 * predictive.likelihood.lattice[1])
    return lower + u * (upper - lower)


def _posteriors(model: Model, method: Method, x: Any, x_new: Any, data: Datum) -> tuple[Normal, Bool[Array, " draws"]]:
    """Each data set's posterior of f at the held-out input, and whether inference converged."""
    model = settled(model, x)
    kernel, likelihood = model.plain_kernel, model.plain_likelihood
    prior = model.process.refined(prior_of(model.plain_process, kernel, model.prior_mean(x), x))
    weight = Weight(np.ones(len(x)), np.ones(len(x)), None)
    method.check(likelihood, weight)
    around = (model.plain_process.cross(kernel, x, x_new), kernel.diagonal(x_new), model.prior_mean(x_new))
    return _solved(likelihood, method, prior, weight, data, around)


@program
def _solved(
    likelihood: Likelihood, method: Method, prior: Prior, weight: Weight, data: Datum, around: Any
) -> tuple[Normal, Array]:  # fmt: skip
    cross, own, mean = around

    def one(rows: Datum) -> tuple[Normal, Array]:
        start = Natural(*jax.vmap(likelihood.start)(rows))
        out, *_ = solve_parallel(InferenceProblem.of(likelihood, method, prior, rows, weight), start, 1e-6, 200)
        latent = (
            prior.for_shares(method.share(weight))
            .predictor(out.at.sites, not likelihood.log_concave)
            .at(mean, cross, own)
        )
        return Normal(latent.mean[0], latent.variance[0]), out.reason == CONVERGED

    return each(one, len(data.exposure), data)


# --- uniformity ------------------------------------------------------------------------------------------------------


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
