"""Stored results of long reference runs, and how far a method is from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from quantprop import infer
from quantprop.methods import Method
from quantprop.reference import Estimate

from .cases import SETTINGS, Data, load, names

TOL = 1e-8  # of inference


@dataclass(frozen=True)
class Truth:
    """The exact posterior of one case, up to the standard errors of its chains. See tests/oracles/README.md."""

    dataset: str
    setting: str
    variance: float  # of the kernel
    lengthscale: float
    posterior_mean: Estimate  # of f, at the training inputs
    posterior_variance: Estimate
    new_mean: Estimate  # of f, at the new inputs
    new_variance: Estimate
    probability: Estimate  # of y_new
    evidence: float
    evidence_error: float
    rhat: float  # the largest
    effective: float  # the smallest number of effective draws

    @property
    def data(self) -> Data:
        """The rows that it is the posterior of."""
        return load(self.dataset)


@dataclass(frozen=True)
class Answer:
    """What a method says about a case: f at the training and at the new inputs, p(y_new), log evidence, and its end."""

    mean: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    new_mean: Float[np.ndarray, " k"]
    new_variance: Float[np.ndarray, " k"]
    probability: Float[np.ndarray, " k"]
    evidence: float
    reason: str


def answer(data: Data, variance: float, lengthscale: float, method: Method | str) -> Answer:
    """A method's answer at these hyperparameters."""
    solution = infer(data.model(variance, lengthscale), data.x, data.y, method, tol=TOL, max_sweeps=1000)
    predictive = solution.predict_y(data.x_new)
    return Answer(
        mean=solution.marginals.mean,
        variance=solution.marginals.variance,
        new_mean=predictive.latent.mean,
        new_variance=predictive.latent.variance,
        probability=np.exp(predictive.log_prob(data.y_new)),
        evidence=solution.log_evidence,
        reason=solution.status.reason,
    )


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the truth: means in posterior standard deviations, variances as ratios to it."""

    mean_rms: float
    mean_max: float
    ratio_median: float
    ratio_low: float
    ratio_high: float
    new_ratio_median: float
    probability_max: float  # the largest absolute error
    probability_rms: float
    density_max: float  # the largest relative error: for y_new that is not a class
    evidence: float  # the method's less the truth


def read(path: Path) -> list[Truth]:
    """The truths of a file, checked to be those of the rows that the library has now."""
    with np.load(path) as stored:
        store = dict(stored)
    keys = [(name, setting) for name in names() for setting in SETTINGS if f"{name}/{setting}/mean" in store]
    return [_truth(store, name, setting) for name, setting in keys]


def _truth(store: dict[str, np.ndarray], name: str, setting: str) -> Truth:
    start = f"{name}/{setting}/"
    fields = {key.removeprefix(start): value for key, value in store.items() if key.startswith(start)}
    if not np.allclose(fields["fingerprint"], load(name).fingerprint):
        raise ValueError(f"the reference of {name} is of other rows: run studies/accuracy/ground_truth.py again")
    variance, lengthscale = (float(number) for number in fields["theta"])
    value, error, _ = (float(number) for number in fields["evidence"])
    rhat, effective, _ = (float(number) for number in fields["chains"])

    of = ("mean", "variance", "new_mean", "new_variance", "probability")
    estimates = [Estimate(*fields[field].astype(np.float64)) for field in of]
    return Truth(
        name,
        setting,
        variance,
        lengthscale,
        *estimates,
        evidence=value,
        evidence_error=error,
        rhat=rhat,
        effective=effective,
    )


def errors(truth: Truth, answer: Answer) -> Errors:
    """An answer beside the truth."""
    variance = truth.posterior_variance.value
    off = (answer.mean - truth.posterior_mean.value) / np.sqrt(variance)
    ratio = answer.variance / variance
    missed = np.abs(answer.probability - truth.probability.value)
    numbers = (
        np.sqrt(np.mean(off**2)),
        np.max(np.abs(off)),
        np.median(ratio),
        ratio.min(),
        ratio.max(),
        np.median(answer.new_variance / truth.new_variance.value),
        missed.max(),
        np.sqrt(np.mean(missed**2)),
        np.max(missed / truth.probability.value),
        answer.evidence - truth.evidence,
    )
    return Errors(*(float(number) for number in numbers))
