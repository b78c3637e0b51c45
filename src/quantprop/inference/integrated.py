"""A posterior with its hyperparameters integrated: solutions at several θ and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.data import inputs
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import declared, free, labels, logarithms
from quantprop.inference.batched import predict_given_means
from quantprop.inference.mixed import NormalMixture
from quantprop.inference.mixture import Mixture
from quantprop.inference.prediction import draws, proper
from quantprop.inference.results import write
from quantprop.inference.solution import Solution
from quantprop.inference.status import in_words
from quantprop.model import Model
from quantprop.runtime.display import of_integrated, summarised
from quantprop.runtime.names import check_name

INTERVAL_LEVEL = 0.95

_REMEDIES = {
    "converged": "",
    "nothing-to-integrate": "",
    "few-effective-points": "a few points carry most of the weight, so means and intervals of hyperparameters are "
    "inaccurate: raise max_points, or set priors of the parameters (Parameter(prior=LogNormal(...)))",
    "no-mode": "no maximum of the posterior of the hyperparameters was found: the result is the point estimate; fit "
    "again, or set priors of the parameters (Parameter(prior=LogNormal(...)))",
}


@dataclass(frozen=True)
class IntegrationStatus:
    """Why integration stopped: a reason, the figures behind it, and a remedy.

    Attributes:
        reason: "converged", "nothing-to-integrate", "few-effective-points" or "no-mode".
        scheme: "grid", "central composite design" or "importance sampling"; "..., then importance sampling" if the
            first failed.
        points: number of values of θ at which the evidence was evaluated.
        failed: number of points at which inference failed; they have no weight.
        effective: effective number of points, 1 / Σ w².
        efficiency: agreement of the weights with a posterior of the shape that the scheme assumes; 1 is best.
        at_bounds: hyperparameters with more than 1 % of their posterior next to a bound.
    """

    reason: str
    scheme: str
    points: int
    failed: int
    effective: float
    efficiency: float
    at_bounds: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """The remedy, empty if nothing is wrong."""
        return _REMEDIES[self.reason]

    def __str__(self) -> str:
        ended = f"{self.reason} by {self.scheme}: {self.points} points, {self.effective:.1f} effective"
        return in_words(ended, self.failed, self.at_bounds, self.remedy)


@dataclass(frozen=True)
class HyperparameterMarginal:
    """The posterior of one hyperparameter, in natural units.

    Attributes:
        mean: mean.
        sd: standard deviation.
        median: median.
        lower: lower end of the central 95 % interval.
        upper: upper end of the interval.
        prior: the prior, as text.
    """

    mean: float
    sd: float
    median: float
    lower: float
    upper: float
    prior: str


@summarised(of_integrated)
@dataclass(frozen=True)
class Integrated(Mixture):
    """A posterior averaged over its hyperparameters: Σ_k weights_k (the posterior of f at θ_k).

    Attributes:
        components: posteriors of f, each at its own hyperparameters.
        weights: weights of the components; they sum to 1.
        theta: hyperparameters of each component in the coordinates of the search: logarithms of positive parameters.
        log_evidence: the method's approximation of log p(y), hyperparameters integrated out.
        priors: prior of every hyperparameter by name, as text.
        status: why integration stopped.
    """

    components: tuple[Solution, ...]
    weights: Float[np.ndarray, " m"]
    theta: Float[np.ndarray, "m theta"]
    log_evidence: float
    priors: dict[str, str]
    status: IntegrationStatus

    @property
    def model(self) -> Model:
        """The model at the hyperparameters with the largest weight."""
        return self.components[int(np.argmax(self.weights))].model

    @property
    def converged(self) -> bool:
        """True if the hyperparameters were integrated with enough effective points."""
        return self.status.reason in ("converged", "nothing-to-integrate")

    @property
    def loo(self) -> Float[np.ndarray, " n"]:
        """log p(y_i | the other rows): p(θ | other rows) ∝ p(θ | all rows) / p(y_i | other rows, θ)^s.

        s is 1, or the weight of a row that has less: exact if that is 0, and otherwise about right.
        """
        weights = self.components[0].weights
        s = 1.0 if weights is None else np.minimum(weights, 1.0)
        logs, of_theta = np.stack([one.loo for one in self.components]), np.log(self.weights)[:, None]
        with np.errstate(invalid="ignore"):  # 0 ∞
            removed, kept = np.where(s > 0.0, s * logs, 0.0), np.where(s < 1.0, (1.0 - s) * logs, 0.0)
        return np.logaddexp.reduce(of_theta + kept) - np.logaddexp.reduce(of_theta - removed)

    def _latents(self, Xnew: Any, full_cov: bool) -> list[Normal]:
        """The components' posteriors of f, each given its own mean: the mixture averages over learned means."""
        x = inputs(Xnew, "Xnew", features=self.components[0].X.shape[1])
        if full_cov:
            found = [one._predict_given_mean(x, full_cov=True) for one in self.components]
        else:
            found = predict_given_means(self.components, [x] * len(self.components))
        return [proper(latent, one.status) for latent, one in zip(found, self.components, strict=True)]

    def _draws_of_f(self, rng: np.random.Generator, one: Solution, Xnew: Any, k: int) -> Float[np.ndarray, "n k"]:
        latent = one._predict_given_mean(inputs(Xnew, "Xnew", features=one.X.shape[1]), full_cov=True)
        return draws(proper(latent, one.status), k, int(rng.integers(2**31)))

    @property
    def parameters(self) -> dict[str, HyperparameterMarginal]:
        """The posterior of every hyperparameter by name: mean, sd, median and 95 % interval, in natural units."""
        levels = np.array([0.5, 0.5 * (1.0 - INTERVAL_LEVEL), 0.5 * (1.0 + INTERVAL_LEVEL)])
        found = {}
        for name, values in self._values().items():
            mean, at = float(self.weights @ values), self.marginal(name).quantile(levels)[:, 0]
            sd = float(np.sqrt(self.weights @ (values - mean) ** 2))
            median, lower, upper = (np.exp(at) if self.logarithmic[name] else at).tolist()
            found[name] = HyperparameterMarginal(mean, sd, median, lower, upper, self.priors[name])
        return found

    def marginal(self, name: str) -> NormalMixture:
        """The posterior of one hyperparameter as a smooth distribution: of its logarithm, if it is learned by that.

        Each component is spread by a normal kernel, and all are drawn together by as much as that adds (West 1993), so
        that mean and variance are those of the components. The width is half a step of a grid, which of a normal
        posterior in d dimensions has (2√π / step)^d effective points; for other schemes it is Silverman's.
        """
        values = self._values()
        check_name("name", name, values)
        points = np.log(values[name]) if self.logarithmic[name] else values[name]
        centre = self.weights @ points
        variance = self.weights @ (points - centre) ** 2
        effective, d = self.status.effective, self.theta.shape[1]
        width = np.sqrt(np.pi) * effective ** (-1.0 / d) if self.status.scheme == "grid" else 1.06 * effective**-0.2
        share = min(1.0, width) ** 2  # of the variance that the kernel has
        if variance <= 0.0:
            share, variance = 1.0, np.finfo(float).tiny
        moved = centre + np.sqrt(1.0 - share) * (points - centre)
        return NormalMixture(self.weights, moved[:, None], np.full((len(points), 1), share * variance))

    def save(self, path: Any) -> None:
        """Write to one file, to be read by `quantprop.load`."""
        write(self, path)

    @property
    def logarithmic(self) -> dict[str, bool]:
        """Which hyperparameters are learned, and here averaged over, by their logarithms."""
        parts = declared(self.model)
        return dict(zip(labels(parts), logarithms(parts), strict=True))

    def _values(self) -> dict[str, Float[np.ndarray, " m"]]:
        """Every hyperparameter at the components, in natural units."""
        rows = [
            np.concatenate([np.zeros(0), *(np.ravel(p.value) for p in free(declared(component.model)))])
            for component in self.components
        ]
        return dict(zip(labels(declared(self.model)), np.stack(rows).T, strict=True))
