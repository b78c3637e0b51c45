"""Several models of the same data, weighted by how well each predicts left-out rows: a stack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.data import inputs
from quantprop.core.gaussian import Normal
from quantprop.inference.components import averaged, effects_of, whole_of
from quantprop.inference.mixed import MixedClasses, MixedPredictive
from quantprop.inference.mixture import Mixture
from quantprop.inference.results import Fitted, write
from quantprop.inference.sobol import Explained, Sobol, explained
from quantprop.inference.solution import Solution
from quantprop.inference.terms import effects_at
from quantprop.runtime.batches import side_by_side
from quantprop.runtime.display import of_stack, summarised

EQUAL_TO = "equal to "  # begins the reason of a model that counts once with another one


@dataclass(frozen=True)
class Member:
    """One model of a stack.

    Attributes:
        name: what it is called.
        fitted: the learned model.
        weight: its weight in predictions.
        score: the mean log predictive density of a left-out row, corrected for the hyperparameters learned from it.
        learned: the effective number of hyperparameters that the correction found, Σ_i g_iᵀ A⁻¹ g_i.
        loo: log p(y_i | the other rows), corrected, one per row.
    """

    name: str
    fitted: Fitted
    weight: float
    score: float
    learned: float
    loo: Float[np.ndarray, " n"]


@summarised(of_stack)
@dataclass(frozen=True)
class Stack(Mixture):
    """Models of the same data and their weights; predicts Σ_k weight_k p_k (Yao, Vehtari, Simpson and Gelman 2018).

    Attributes:
        members: the models, in the order they were given.
        left_out: models that did not enter, with the reason.
    """

    members: tuple[Member, ...]
    left_out: dict[str, str]

    @cached_property
    def weights(self) -> Float[np.ndarray, " m"]:
        """The members' weights, which sum to 1."""
        return np.array([one.weight for one in self.members])

    @property
    def components(self) -> tuple[Any, ...]:
        """The members' posteriors."""
        return tuple(one.fitted.solution for one in self.members)

    @property
    def heaviest(self) -> Member:
        """The member with the largest weight."""
        return self.members[int(np.argmax(self.weights))]

    @property
    def model(self) -> Any:
        """The model of the heaviest member."""
        return self.heaviest.fitted.model

    @property
    def converged(self) -> bool:
        """True if every member has converged."""
        return all(one.fitted.converged for one in self.members)

    @property
    def failed(self) -> dict[str, str]:
        """The models that were left out because they failed, with the reason; not those equal to another one."""
        return {name: why for name, why in self.left_out.items() if not why.startswith(EQUAL_TO)}

    @property
    def score(self) -> float:
        """The mean of `loo` over rows by their weights: an estimate of the log predictive density of a new row."""
        return float(np.average(self.loo, weights=self.components[0].weights))

    @cached_property
    def loo(self) -> Float[np.ndarray, " n"]:
        """log p(y_i | the other rows) of the weighted distributions, corrected as those of the members are."""
        return np.logaddexp.reduce([np.log(one.weight) + one.loo for one in self.members])

    def predict(self, Xnew: Any, full_cov: bool = False) -> Any:
        """The posterior of f at new inputs; with `full_cov`, their joint covariance too. Of several classes, the mean
        and covariance of all functions under the weighted posteriors.
        """
        if isinstance(self.components[0], Solution):
            return super().predict(Xnew, full_cov)
        each = [one.predict(Xnew, full_cov) for one in self.components]
        mean = np.tensordot(self.weights, [f.mean for f in each], 1)
        product = (lambda a: np.multiply.outer(a, a)) if full_cov else (lambda a: a[:, :, None] * a[:, None])
        spread = [f.covariance + product(f.mean - mean) for f in each]
        variance = np.tensordot(self.weights, [f.variance + (f.mean - mean) ** 2 for f in each], 1)
        return Normal(mean, variance, np.tensordot(self.weights, spread, 1))

    def effects(self, Xnew: Any, order: int = 2) -> dict[str, Normal]:
        """Mean and variance of each effect on f at new inputs, averaged over the models by weight, by the names of
        columns as in `Solution.components`. The means add up to the mean of f.

        >>> import numpy as np
        >>> from quantprop import Model, fit, kernels, likelihoods, stack
        >>> X = np.linspace(-2, 2, 20)[:, None]
        >>> each = kernels.Linear(), kernels.SquaredExponential()
        >>> fits = [fit(Model(kernel, likelihoods.Gaussian(0.3)), X, np.sin(X[:, 0]), "ep") for kernel in each]
        >>> list(stack(fits).effects(X))
        ['level', '0']
        """
        x = inputs(Xnew, "Xnew", features=self.components[0].X.shape[1])
        return averaged(self.weights, [effects_at(one, x, effects_of(one, order)) for one in self._models()])

    def sobol(self, draws: int = 200, seed: int = 0) -> Sobol:
        """The share of the variance of f that each effect explains, as `Solution.sobol`; draws are divided among the
        models by weight.
        """
        counts = np.random.default_rng(seed).multinomial(draws, self.weights).tolist()
        given = [(one, whole_of(one), n, seed + i)
                 for i, (one, n) in enumerate(zip(self._models(), counts, strict=True)) if n]  # fmt: skip
        each = side_by_side(lambda one: explained(*one), given, self.model.process.cost(len(given[0][0].X)))
        return Sobol.of(max((own for _, own, *_ in given), key=lambda own: own.order), Explained.of(list(each)))

    def _models(self) -> tuple[Solution, ...]:
        if not isinstance(self.components[0], Solution):
            raise ValueError("effects are not available for joint classes: stack models of two classes")
        return self.components

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> MixedPredictive | MixedClasses:
        """The distribution of y at new inputs: mean, variance, cdf, quantile, log_prob and sample; of several classes
        their probabilities.

        `exposure` (counts, Gaussian) and `trials` (binomial) are those of the new observations; 1 if not given.
        `output` says which one y is, where the likelihood has several (`likelihoods.ByOutput`).
        """
        if not isinstance(self.components[0], Solution):
            return MixedClasses(self.weights, tuple(one.predict_y(Xnew) for one in self.components))
        more = {"exposure": exposure, "trials": trials, "output": output}
        cost = self.model.process.cost(len(self.components[0].X) + np.shape(Xnew)[0])
        each = side_by_side(lambda one: one.predict_y(Xnew, **more), self.components, cost)
        return MixedPredictive(self.weights, tuple(each))

    def sample_y(self, Xnew: Any, n: int, seed: int = 0, **scales: Any) -> np.ndarray:
        """n draws of y at new inputs (rows: draws), f joint and by one member in each; `scales` as in `predict_y`."""
        if isinstance(self.components[0], Solution):
            return super().sample_y(Xnew, n, seed, **scales)
        raise ValueError("joint draws of classes are not available for a stack: use predict_y(X).sample(n)")

    def save(self, path: Any) -> None:
        """Write to one file, to be read by `quantprop.load`."""
        write(self, path)
