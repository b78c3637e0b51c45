"""The posteriors that the methods are judged on: the paper's data sets and generated data, each at three settings.

Real data are the first division of the protocol, faults removed (round 0, fold 0, or seed 0 of mining). Their settings
are EP's learned hyperparameters, and the kernel's variance 10 and 100 times that with the lengthscale as it is. A
larger variance makes the likelihood narrow beside the prior: posteriors grow skewed, and projections differ most.
Learning goes there by itself where data are separable. From about 1e7 on a probit is a threshold beside the prior, and
a still larger variance changes nothing but the unit of f: settings end there. Generated data are drawn from their
model, and "learned" stands for the hyperparameters they were drawn with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop import Model, datasets, kernels, likelihoods
from quantprop.experiments.protocol import Experiment, split
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.runtime.precision import float64

SETTINGS = {"learned": 1.0, "times-10": 10.0, "times-100": 100.0}  # by what the kernel's variance is multiplied
THRESHOLD = 1e7  # variance from which nothing changes
TRAINING, HELD_OUT = 100, 20
DRAWN_WITH = (1.0, 1.0)  # variance and lengthscale of generated data

GENERATED: dict[str, tuple[Likelihood, float]] = {  # likelihood and prior mean
    "logit": (likelihoods.Logit(), 0.0),
    "poisson": (likelihoods.Poisson(), 1.0),
    "square-poisson": (likelihoods.Poisson("square"), 1.0),
    "negative-binomial": (likelihoods.NegativeBinomial(0.5), 1.0),
    "student-t": (likelihoods.StudentT(3.0, 0.3), 0.0),
    "double-exponential": (likelihoods.DoubleExponential(0.3), 0.0),
    "ordinal": (likelihoods.Ordinal([-1.0, 0.2, 1.1]), 0.0),
    "censored": (likelihoods.Censored(0.3), 0.0),
}


class Data(NamedTuple):
    """Rows to learn from, and rows whose y_new is predicted: the class 1, or what was held out."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n ..."]
    x_new: Float[np.ndarray, "k d"]
    y_new: Float[np.ndarray, "k ..."]
    likelihood: Likelihood
    mean: float

    def model(self, variance: float, lengthscale: float) -> Model:
        """The model at these hyperparameters."""
        kernel = kernels.SquaredExponential(float(variance), float(lengthscale))
        return Model(kernel, self.likelihood, self.mean)

    @property
    def fingerprint(self) -> Float[np.ndarray, " 3"]:
        """Sums that change if the rows do."""
        finite = np.where(np.isfinite(self.y), self.y, 0.0)
        return np.array([self.x.sum(), finite.sum(), self.x_new.sum()])


def names() -> list[str]:
    """All data sets."""
    return [*datasets.names(), *GENERATED]


def experiment(name: str) -> Experiment:
    """Which division of a real data set is used."""
    return Experiment(name, variant="clean", split="year" if name == "mining" else "fold")


def load(name: str) -> Data:
    """One data set."""
    if name in GENERATED:
        return _generated(name)
    parts = split(experiment(name))
    if name == "mining":
        return Data(*parts, likelihoods.Poisson("square"), 1.0)
    return Data(parts.x, parts.y, parts.x_test, np.ones(len(parts.y_test)), likelihoods.Probit(), 0.0)


def settings(variance: float) -> dict[str, float]:
    """The kernel's variance at each setting that tells something new."""
    return {
        name: factor * variance for name, factor in SETTINGS.items() if factor == 1 or factor * variance < THRESHOLD
    }


@float64
def _generated(name: str) -> Data:
    """f from the prior on [0, 10], y from the likelihood; new rows lie between the others."""
    likelihood, mean = GENERATED[name]
    rng = np.random.default_rng(list(GENERATED).index(name))
    x = np.sort(rng.uniform(0.0, 10.0, TRAINING + HELD_OUT))[:, None]
    variance, lengthscale = DRAWN_WITH
    k = variance * np.exp(-0.5 * ((x - x.T) / lengthscale) ** 2)
    lower = np.linalg.cholesky(k + 1e-8 * np.eye(len(x)))  # the same on every machine; eigenvectors' signs are not
    f = mean + lower @ rng.standard_normal(len(x))
    ones = np.ones(len(x))
    y = np.asarray(likelihood.draw(rng, Datum(np.zeros(len(x)), ones, ones), f))
    y = censored(y) if name == "censored" else y
    new = np.zeros(len(x), dtype=bool)
    new[rng.choice(len(x), HELD_OUT, replace=False)] = True
    return Data(x[~new], y[~new], x[new], y[new], likelihood, mean)


def censored(y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "... 2"]:
    """Readings of a gauge that ends at −½ and ½: rows (lower, upper)."""
    low, high = -0.5, 0.5
    return np.stack(
        [np.where(y < low, -np.inf, np.minimum(y, high)), np.where(y > high, np.inf, np.maximum(y, low))], axis=-1
    )
