"""The posterior of a model with a varying parameter: that of f, that of the parameter, and the distribution of y."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from quantprop.core.data import bucket, inputs, pad, real_array
from quantprop.core.gaussian import Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.sobol import Sobol
from quantprop.inference.solution import Solution
from quantprop.inference.terms import Effects, FixedEffect
from quantprop.kernels import PerParameter
from quantprop.likelihoods import Varying
from quantprop.likelihoods.base import Datum, Likelihood, scales
from quantprop.likelihoods.derived import WithFewNodes
from quantprop.methods.base import each_row
from quantprop.model import Model
from quantprop.numerics.mixtures import Fineness
from quantprop.priors.per_function import Pair, PerFunction
from quantprop.runtime.batches import rowwise
from quantprop.runtime.display import of_predictive, of_solution, summarised
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class VaryingParameter:
    """The posterior of a parameter at some inputs.

    Attributes:
        likelihood: the likelihood, whose own value of the parameter is that of g = 0.
        latent: the posterior of g, its logarithm or log odds relative to that value.
    """

    likelihood: Varying
    latent: Normal

    @property
    def median(self) -> np.ndarray:
        """The median."""
        return self.quantile(0.5)

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles: one value per input for a number q, one row each for an array."""
        z = ndtri(real_array(q, "q"))
        g = self.latent.mean + np.multiply.outer(z, np.sqrt(self.latent.variance))
        return np.asarray(getattr(self.likelihood.at(g), self.likelihood.parameter))


@summarised(of_solution)
@dataclass(frozen=True)
class VaryingSolution(Solution):
    """An approximate posterior of f, and of the function g behind a parameter of the likelihood. `sites` and
    `marginals` have two rows, of f and of g; predictions and terms are those of f unless they say otherwise.
    """

    @cached_property
    def function(self) -> Solution:
        """The posterior of f alone."""
        return self._of(0)

    of_f: ClassVar[Any] = property(lambda self: self.function)

    @cached_property
    def parameter(self) -> Solution:
        """The posterior of g alone: `parameter.predict`, `parameter.terms`."""
        return self._of(1)

    def _of(self, k: int) -> Solution:
        model = self.model
        assert isinstance(model.kernel, PerParameter)
        assert isinstance(model.process, PerFunction)
        assert isinstance(model.likelihood, Varying)
        own = Model(
            Pair.of(model.kernel)[k], model.likelihood.base, 0.0 if k else model.mean, Pair.of(model.process)[k]
        )
        sites, marginals = jax.tree.map(lambda rows: rows[k], (self.sites, self.marginals))
        return Solution(own, self.method, self.X, sites, marginals, self.log_evidence, self.loo, self.status,
                        self.weights, self.data)  # fmt: skip

    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        return self.function.predict(Xnew, full_cov)

    def parameter_at(self, Xnew: Any) -> VaryingParameter:
        """The posterior of the parameter at new inputs: median and quantiles."""
        return VaryingParameter(self.model.plain_likelihood, self.parameter.predict(Xnew))

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> VaryingPredictive:
        x, likelihood = inputs(Xnew, "Xnew", features=self.X.shape[1]), self.model.plain_likelihood
        if output is not None:
            raise ValueError("output was given, but a likelihood with a varying parameter has a single output")
        more = scales(likelihood, (len(x),), exposure, trials)
        return VaryingPredictive(likelihood, self.predict(x), **more, parameter=self.parameter.predict(x))

    def sample(self, Xnew: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n k"]:
        return self.function.sample(Xnew, n, seed)

    def terms(self, Xnew: Any) -> Effects:
        return self.function.terms(Xnew)

    def components(self, Xnew: Any, order: int = 2) -> Effects:
        return self.function.components(Xnew, order)

    def sobol(self, draws: int = 200, seed: int = 0) -> Sobol:
        return self.function.sobol(draws, seed)

    def fixed_effects(self) -> dict[str, FixedEffect]:
        return self.function.fixed_effects()

    def corrected(self) -> NoReturn:
        """Refused: corrections are those of one latent function."""
        raise ValueError("corrections are not supported for a likelihood with a varying parameter: fit one with a "
                         "constant parameter")  # fmt: skip


def kind_of(model: Model) -> type[Solution]:
    """The class of the solutions of a model."""
    return VaryingSolution if isinstance(model.likelihood, Varying) else Solution


# --- the distribution of y -------------------------------------------------------------------------------------------


@summarised(of_predictive)
@dataclass(frozen=True)
class VaryingPredictive(Predictive):
    """Distributions of y at n inputs, averaged over f and over the parameter.

    Args:
        likelihood: The likelihood, with its values.
        latent: The posterior of f at the inputs.
        exposure: Exposure of the new inputs.
        trials: Trials of the new inputs.
        parameter: The posterior of g at the inputs.
    """

    likelihood: Varying
    parameter: Normal

    @property
    def of_parameter(self) -> Normal:
        return self.parameter

    def given_latent(self, rows: Any, latent: Normal) -> Predictive:
        own = Normal(self.parameter.mean[rows], self.parameter.variance[rows])
        return replace(super().given_latent(rows, latent), parameter=own)

    @property
    def _values_of_g(self) -> Float[np.ndarray, "n nodes"]:
        return self.parameter.mean[:, None] + np.sqrt(self.parameter.variance)[:, None] * NODES

    def cdf_of(self, rows: np.ndarray, y: np.ndarray, fineness: Fineness) -> np.ndarray:
        data = Datum(y, self.exposure[rows], self.trials[rows])
        latent = Normal(self.latent.mean[rows], self.latent.variance[rows])
        given = (self.likelihood.at(g).predictive_cdf(data, latent, fineness) for g in self._values_of_g[rows].T)
        return np.sum([weight * part for weight, part in zip(WEIGHTS, given, strict=True)], axis=0)

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        rng, shape = np.random.default_rng(seed), (n, len(self.exposure))
        f, g = (rng.normal(part.mean, np.sqrt(part.variance), size=shape) for part in (self.latent, self.parameter))
        scales = Datum(np.zeros(shape), np.broadcast_to(self.exposure, shape), np.broadcast_to(self.trials, shape))
        return self.likelihood.at(g).draw(rng, scales, f)

    def _log_density(self, y: np.ndarray) -> np.ndarray:
        n = len(y)
        data, *parts = pad((self._data(y), self._marginal, self.parameter), bucket(n))
        latent = jax.tree.map(lambda *rows: np.stack(rows), *parts)
        found = np.asarray(_log_prob(WithFewNodes(self.likelihood), data, latent))[:n]
        return found if np.isfinite(found).all() else np.asarray(_log_prob(self.likelihood, data, latent))[:n]

    @float64
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        n = len(self.exposure)
        rows = (self._data(np.zeros(n)), self._marginal, self._values_of_g)
        mean, variance = _predictive_moments(self.likelihood, *pad(rows, bucket(n)))
        return np.asarray(mean)[:n], np.asarray(variance)[:n]


@program
def _log_prob(likelihood: Likelihood, data: Datum, latent: Normal) -> jax.Array:
    return each_row(likelihood.predictive_log_prob, data, latent)


@program
def _predictive_moments(likelihood: Varying, data: Datum, latent: Normal, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of y: expectation and variance over g of those given g."""

    def one(datum: Datum, f: Normal, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        means, variances = jax.vmap(lambda g: likelihood.at(g).predictive_moments(datum, f))(g)
        mean = jnp.sum(WEIGHTS * means)
        return mean, jnp.sum(WEIGHTS * (variances + (means - mean) ** 2))

    return rowwise(one, data, latent, g)
