"""The result of inference: sites, marginals, evidence, predictions, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from quantprop.core.data import inputs
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import as_fixed
from quantprop.inference.components import additive_term, components_of, whole_of
from quantprop.inference.corrections import Corrected, correct
from quantprop.inference.information import expected
from quantprop.inference.learned_mean import learned_mean, with_mean_uncertainty
from quantprop.inference.modes import Modes, modes_of
from quantprop.inference.prediction import draws, predicted, predictor_of, process_after, proper
from quantprop.inference.predictive import Forecast, Predictive, ahead, predictive_of
from quantprop.inference.sobol import Sobol, explained
from quantprop.inference.status import Status
from quantprop.inference.terms import Effects, FixedEffect, Parts, effects_at, fixed_effects
from quantprop.likelihoods.base import Datum
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.priors.base import Predictor
from quantprop.runtime.arguments import checked
from quantprop.runtime.display import of_solution, summarised
from quantprop.runtime.precision import float64


@summarised(of_solution)
@dataclass(frozen=True)
class Solution:
    """An approximate posterior. Sites and marginals are per training row; all arrays are NumPy float64.

    Attributes:
        model: the model, with the parameter values that inference used.
        method: the method.
        X: the training inputs.
        sites: ν and τ of every site (`sites.nu`, `sites.tau`); a warm start for another `infer`.
        marginals: posterior mean and variance of f at every training input.
        log_evidence: the method's approximation of log p(y).
        loo: log predictive density of every y given the other rows; NaN if the cavity is improper.
        status: why inference stopped.
        weights: weight of each row; None if all are 1.
        data: the observations, as the likelihood codes them; None in files of earlier versions.
        posterior: if rows are sharded across devices, the global quantities that predictions need; `X`, `sites`,
            `marginals` and `loo` then cover this process's rows.
    """

    model: Model
    method: Method
    X: Float[np.ndarray, "n d"]
    sites: Natural
    marginals: Normal
    log_evidence: float
    loo: Float[np.ndarray, " n"]
    status: Status
    weights: Float[np.ndarray, " n"] | None = None
    data: Datum | None = None
    posterior: Predictor | None = None

    @property
    def converged(self) -> bool:
        """True if the fixed point was reached to `tol`."""
        return self.status.reason == "converged"

    @property
    def sweeps(self) -> int:
        """The number of sweeps."""
        return self.status.sweeps

    @checked()
    @float64
    def predict(self, Xnew: Any, full_cov: bool = False) -> Normal:
        """The posterior of f at new inputs; with `full_cov`, their joint covariance too. The uncertainty of a learned
        mean is included, unless rows were divided among devices or streamed.
        """
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        return proper(with_mean_uncertainty(self, x, self._predict_given_mean(x, full_cov)), self.status)

    @float64
    def _predict_given_mean(self, x: Float[np.ndarray, "k d"], full_cov: bool = False) -> Normal:
        """The posterior of f at checked inputs, a learned mean taken as known."""
        return predicted(self._predictor, self.model, self.X, x, full_cov)

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> Predictive:
        """The distribution of y at new inputs: mean, variance, cdf, quantile, log_prob and sample.

        `exposure` (counts, Gaussian) and `trials` (binomial) are those of the new observations; 1 if not given.
        `output` says which one y is, where the likelihood has several (`likelihoods.ByOutput`).
        """
        return predictive_of(self.model.plain_likelihood, self.predict(Xnew), exposure, trials, output)

    def information(
        self, Xnew: Any, level: float | None = None, *, exposure: Any = None, trials: Any = None,
        output: int | None = None,
    ) -> Float[np.ndarray, " k"]:  # fmt: skip
        """The mutual information, in nats, of a new y and f at each input (BALD); with `level`, of y and the event
        f > level. `exposure`, `trials` and `output` are as in `predict_y`.

        >>> import numpy as np
        >>> from quantprop import Model, infer, kernels, likelihoods
        >>> model = Model(kernels.SquaredExponential(4.0), likelihoods.Probit())
        >>> solution = infer(model, np.array([[-1.0], [0.0]]), [-1, 1], "ep")
        >>> solution.information([[0.0], [3.0]]).round(2).tolist()
        [0.21, 0.37]
        """
        new = self.predict_y(Xnew, exposure=exposure, trials=trials, output=output)
        return expected(new).of_f if level is None else expected(new, level).of_event

    @checked()
    def forecast(
        self, horizon: int, step: float | None = None, *, exposure: Any = None, trials: Any = None
    ) -> Forecast:
        """The distribution of y at `horizon` steps after the last of the training times, X having one column.

        `step` is the time between two of them; if not given, the median of those between the data.

        >>> import numpy as np
        >>> from quantprop import Markov, Model, infer, kernels, likelihoods
        >>> t = np.arange(60.0)[:, None]
        >>> model = Model(kernels.Matern32(1.0, 20.0), likelihoods.Poisson(), process=Markov())
        >>> ahead = infer(model, t, np.tile([3, 4, 5], 20), "ep").forecast(2)
        >>> ahead.times.tolist(), ahead.y.quantile(0.5).tolist()
        ([60.0, 61.0], [4.0, 3.0])
        """
        times = ahead(self.X, horizon, step)
        return Forecast(times, self.predict_y(times[:, None], exposure=exposure, trials=trials))

    @checked()
    @float64
    def sample(self, Xnew: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n k"]:
        """n joint draws of f at new inputs (rows: draws)."""
        return draws(self.predict(Xnew, full_cov=True), n, seed)

    @float64
    def as_prior(self) -> Model:
        """The model whose prior is this posterior, for further rows (a process with inducing points).

        The information in the rows' sites is stored as a Gaussian over the values at the inducing points; these sites
        are not updated again. `infer` and `fit` on further rows give the posterior and the evidence of all rows. Prior
        mean and points are fixed.

        >>> import numpy as np
        >>> from quantprop import Inducing, Model, infer, kernels, likelihoods
        >>> X = np.linspace(-3, 3, 200)[:, None]
        >>> y = np.sign(np.sin(2 * X[:, 0]))
        >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(20))
        >>> first = infer(model, X[::2], y[::2], "ep")
        >>> infer(first.as_prior(), X[1::2], y[1::2], "ep").converged
        True
        """
        if not np.isfinite(self.log_evidence):
            raise ValueError(f"inference failed ({self.status.reason}): its posterior cannot be used as a prior")
        return replace(self.model, mean=as_fixed(self.model.mean), process=process_after(self))

    def in_full(self, of: Parts, x: np.ndarray) -> tuple[Solution, Parts, np.ndarray]:
        """The posterior at all rows, and parts of f and inputs as it takes them."""
        return self, of, x

    def terms(self, Xnew: Any) -> Effects:
        """The posterior of each term of a sum of kernels at new inputs, by name: mean and variance; `.sample(n)` has
        joint draws, `.shares` how much of f each term explains there.

        >>> import numpy as np
        >>> from quantprop import Model, infer, kernels, likelihoods
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
        >>> kernel = kernels.SquaredExponential().on(0) + kernels.Categories().on(1)
        >>> solution = infer(Model(kernel, likelihoods.Gaussian(0.1)), X, [0.0, 1.0, 2.0], "ep")
        >>> {name: part.mean.round(2).tolist() for name, part in solution.terms(X).items()}
        {'se(0)': [-0.49, 0.65, 1.48], 'group(1)': [0.5, 0.35, 0.5]}
        """
        return effects_at(self, inputs(Xnew, "Xnew", features=self.X.shape[1]))

    def components(self, Xnew: Any, order: int = 2) -> Effects:
        """The posterior of each component of f at new inputs, by the names of its columns: the level, main effects such
        as "age", interactions such as "age:dose", and all of more than `order` columns together. They add up to f.

        The effect of some columns is E[f | them] less the effects of fewer of them, if columns are independent, each
        with its distribution in the data: for an additive kernel the components of its terms, next to which other terms
        stay as they are. Sums of linear, squared exponential and constant kernels also have components.

        >>> import numpy as np
        >>> from quantprop import Model, fit, kernels, likelihoods
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.5]])
        >>> fitted = fit(Model(kernels.Additive(order=2), likelihoods.Gaussian(0.1)), X, [0.0, 1.0, 2.0, 2.0], "ep")
        >>> list(fitted.solution.components(X))
        ['level', '0', '1', '0:1']
        """
        x = inputs(Xnew, "Xnew", features=self.X.shape[1])
        return effects_at(self, x, components_of(self, order))

    def sobol(self, draws: int = 200, seed: int = 0) -> Sobol:
        """The share of the variance of f that each component explains, and all those of a column together, with 95 %
        intervals from draws of the posterior. Columns are taken as independent, each with its distribution in the data.
        Of a kernel with one additive term these are the components of this term.
        """
        own = additive_term(self) or whole_of(self)
        return Sobol.of(own, explained(self, own, draws, seed))

    def fixed_effects(self) -> dict[str, FixedEffect]:
        """The coefficients of linear terms, and "mean", the level where these are 0: estimate, standard error and 95 %
        interval of each, at the learned hyperparameters. What is not known of a learned mean is in all errors. Levels
        of a factor appear as X has them; those of a frame by code (estimators' `fixed_effects` has their names).
        """
        return fixed_effects(self)

    def corrected(self) -> Corrected:
        """Log evidence and marginals of f to the next order, and how far the Gaussian posterior is to be trusted.

        For EP and QP, at the cost of a few sweeps; computed once. See docs/background/corrections.md.

        >>> import numpy as np
        >>> from quantprop import Model, infer, kernels, likelihoods
        >>> X, y = np.array([[-1.0], [0.0], [2.0]]), np.array([-1, -1, 1])
        >>> solution = infer(Model(kernels.SquaredExponential(9.0), likelihoods.Probit()), X, y, "ep")
        >>> better = solution.corrected()
        >>> round(solution.log_evidence, 3), round(better.log_evidence, 3)
        (-1.832, -1.83)
        """
        return self._corrected

    def modes(self) -> Modes:
        """The results of other starts: if they differ, the posterior has several modes, and this solution is one.

        Corrections do not see that. Where the likelihood is log-concave there is one mode, and nothing is computed.
        """
        return self._modes

    _modes: ClassVar[Any] = cached_property(modes_of)
    _corrected: ClassVar[Any] = cached_property(correct)
    _learned_mean: ClassVar[Any] = cached_property(float64(learned_mean))

    @property
    def of_f(self) -> Solution:
        """The posterior of f alone, if a parameter of the likelihood is a function too; otherwise itself."""
        return self

    @cached_property
    def _predictor(self) -> Predictor:
        return predictor_of(self, self.model) if self.posterior is None else self.posterior

    def __getstate__(self) -> dict[str, Any]:
        """Without the predictor, which is soon computed again and holds arrays of a device."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
