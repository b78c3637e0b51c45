"""The predictions of the regressor, and their scores."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from quantprop.core.data import real_array
from quantprop.core.records import changed
from quantprop.estimators.core import FittedCore
from quantprop.estimators.observations import codes
from quantprop.estimators.shared import GaussianProcess
from quantprop.inference.mixed import MixedPredictive
from quantprop.inference.mixture import Mixture
from quantprop.inference.predictive import Predictive, ahead
from quantprop.likelihoods import Datum, Gaussian, Likelihood, Ordinal, Varying
from quantprop.runtime.arguments import checked
from quantprop.runtime.listing import Listing


class MomentWarning(UserWarning):
    """A requested mean or standard deviation does not exist."""


class Forecasts(RegressorMixin, GaussianProcess):
    """The predictions of `GaussianProcessRegressor`."""

    likelihood: Any
    likelihood_: Likelihood
    classes_: np.ndarray
    _labels: np.ndarray | None  # of an ordinal y
    _y_mean: float
    _y_std: float

    @checked()
    def predict(self, X, return_std=False, return_cov=False, *, exposure=None, trials=None):
        """The mean of y, with its standard deviation or the covariance of f on request; of labels the median.

        With known Gaussian noise both are those of f, without the noise `alpha`, as in scikit-learn; otherwise of y.
        If y has no mean (Student-t noise with df ≤ 1) the median is returned instead, and if it has no variance
        (df ≤ 2) an infinite standard deviation, both with a MomentWarning.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        x, of_f = self._new_inputs(X), self._of_f()
        if return_cov and not isinstance(self.likelihood_, Gaussian):
            raise ValueError(
                "return_cov is supported for the Gaussian likelihood only; posterior_.predict(X, full_cov=True) "
                "returns the covariance of f"
            )
        latent: Any = self.posterior_.predict(x, full_cov=return_cov) if of_f or return_cov else None
        y: Any = latent if of_f else self.posterior_.predict_y(x, exposure=exposure, trials=trials)
        if self._labels is not None:
            if return_std:
                raise ValueError("labels have no standard deviation; use predict_proba(X) for their probabilities")
            return self._as_given(y.median)
        mean = self._as_given(_mean_or_median(y))
        if return_cov:
            return mean, self._y_std**2 * (np.asarray(latent.covariance) + np.diag(y.variance - latent.variance))
        return (mean, self._y_std * _deviation(y)) if return_std else mean

    def predict_quantiles(self, X, q=(0.05, 0.5, 0.95), *, exposure=None, trials=None):
        """Quantiles of y, noise included: one row per input, one column per q."""
        return self._as_given(self._predictive(X, exposure, trials).quantile(np.atleast_1d(real_array(q, "q"))).T)

    @checked()
    def predict_interval(self, X, coverage=0.9, *, exposure=None, trials=None):
        """The central interval of y with at least this probability: columns lower and upper."""
        tail = 0.5 * (1.0 - coverage)
        return self.predict_quantiles(X, (tail, 1.0 - tail), exposure=exposure, trials=trials)

    @checked()
    def forecast(self, horizon, step=None, q=(0.05, 0.5, 0.95), *, exposure=None, trials=None):
        """Mean, standard deviation and quantiles of y after the last training time, X having one column: time.

        Args:
            horizon: Number of steps.
            step: Time between two of them; by default the median of those between the training times.
            q: Probabilities of the quantiles.
            exposure: Exposure of the new counts; one value, or one per step.
            trials: Number of trials of new binomial observations; one value, or one per step.

        Returns:
            A table with the columns time (of dates: days since 1970), mean, sd, and one for each quantile.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRegressor
        >>> t = np.arange(40.0)[:, None]
        >>> model = GaussianProcessRegressor("periodic(0, period=4)", optimizer=None)
        >>> ahead = model.fit(t, np.tile([0.0, 1.0, 0.0, 2.0], 10)).forecast(2)
        >>> ahead["time"], np.round(ahead["mean"], 2).tolist()
        ([40.0, 41.0], [0.03, 0.96])
        """
        self._check_fitted()
        if self._labels is not None:
            raise ValueError("labels have no mean: use predict_proba(X) at times of your choice")
        times = ahead(self.solution_.X, horizon, step)
        y = self.posterior_.predict_y(times[:, None], exposure=exposure, trials=trials)
        levels = np.atleast_1d(real_array(q, "q"))
        quantiles = {f"q{level:g}": row for level, row in zip(levels, self._as_given(y.quantile(levels)), strict=True)}
        columns = {"time": times, "mean": self._as_given(_mean_or_median(y)), "sd": self._y_std * _deviation(y)}
        found = {name: column.tolist() for name, column in (columns | quantiles).items()}
        return Listing("y after the training times", found, ("time",))

    @available_if(lambda self: self._named(Ordinal))
    def predict_proba(self, X):
        """Probabilities of ordered labels, in the order of `classes_`."""
        y = self._predictive(X, None, None)
        return np.exp(np.stack([y.log_prob(float(k)) for k in range(len(self.classes_))], axis=1))

    def log_predictive_density(self, X, y, *, exposure=None, trials=None):
        """log p(y) of new observations, noise included."""
        return self._predictive(X, exposure, trials).log_prob(self._as_learned(y)) - np.log(self._y_std)

    def predictive_cdf(self, X, y, *, exposure=None, trials=None):
        """P(Y ≤ y) of new observations, noise included."""
        return self._predictive(X, exposure, trials).cdf(self._as_learned(y))

    @checked()
    def sample_y(self, X, n_samples=1, random_state=0, *, exposure=None, trials=None):
        """Joint draws at new inputs, one column each: of f with known Gaussian noise, otherwise of y."""
        x, draws, of_f = self._new_inputs(X), check_random_state(random_state), self._of_f()
        seed, mixture = int(draws.randint(2**31)), self.posterior_
        if isinstance(mixture, Mixture) and not of_f:
            return self._as_given(mixture.sample_y(x, n_samples, seed, exposure=exposure, trials=trials).T)
        f = self.posterior_.sample(x, n_samples, seed=seed)
        if of_f:
            return self._as_given(f.T)
        scales = self.solution_.predict_y(x, exposure=exposure, trials=trials)
        datum = Datum(np.zeros(f.shape), *(np.broadcast_to(part, f.shape) for part in (scales.exposure, scales.trials)))
        rng = np.random.default_rng(int(draws.randint(2**31)))
        likelihood = self.likelihood_
        if isinstance(likelihood, Varying):
            likelihood = likelihood.at(self.solution_.parameter.sample(x, n_samples, seed=int(draws.randint(2**31))))
        return self._as_given(likelihood.draw(rng, datum, f).T)

    @available_if(lambda self: self.varying is not None)
    def parameter_at(self, X):
        """The posterior of the parameter that varies: `.median`, `.quantile(q)`."""
        found = self.solution_.parameter_at(self._new_inputs(X))
        name, base = found.likelihood.parameter, found.likelihood.base
        unit = self._y_std if name == base.noise_name else 1.0
        return replace(found, likelihood=Varying(changed(base, **{name: unit * getattr(base, name)}), name))

    def score(self, X, y, sample_weight=None, *, exposure=None, trials=None):
        """R² of the predictions if y is one real number. For counts, labels and censored rows the mean log predictive
        density (`log_predictive_density`), of which larger is better too.

        A model of counts that was learned with exposure or trials needs those of the new rows; in cross-validation
        scikit-learn passes them on (`set_fit_request(exposure=True).set_score_request(exposure=True)`).
        """
        self._check_fitted()
        if self.likelihood_.lattice is None and self.likelihood_.columns == 1:
            y = real_array(y, "y")
            return r2_score(y, self.predict(X, exposure=exposure, trials=trials), sample_weight=sample_weight)
        learned = self._core.landscape.task.data
        for name, given in (("exposure", exposure), ("trials", trials)):
            if given is None and name in self.likelihood_.scaled_by and (getattr(learned, name) != 1.0).any():
                raise ValueError(
                    f"the model was fitted with {name}, so score needs it for these rows: pass {name}= (in "
                    f"cross-validation use set_score_request({name}=True), with scikit-learn's metadata routing "
                    "enabled)"
                )
        density = self.log_predictive_density(X, y, exposure=exposure, trials=trials)
        return float(np.average(density, weights=sample_weight))

    def _named(self, kind: type[Likelihood]) -> bool:
        """Return whether the likelihood has this name; Gaussian noise that varies is like other likelihoods."""
        varies = kind is Gaussian and getattr(self, "varying", None) is not None
        return isinstance(self.likelihood, str) and self.likelihood == kind.name and not varies

    def _of_f(self) -> bool:
        """Return whether predictions are of f, as in scikit-learn: with known Gaussian noise."""
        likelihood: Any = self._core.fitted.model.likelihood
        return self._named(Gaussian) and likelihood.scale.fixed

    def _inside(self, core: FittedCore) -> str:
        standardised = "that standardises y" if (self._y_mean, self._y_std) != (0.0, 1.0) else ""
        return "that codes labels" if self._labels is not None else standardised or super()._inside(core)

    def _as_given(self, y: np.ndarray) -> np.ndarray:
        return self._y_mean + self._y_std * y if self._labels is None else self._labels[y.astype(int)]

    def _as_learned(self, y: Any) -> np.ndarray:
        if self._labels is not None:
            return codes(np.atleast_1d(y), self._labels)
        return (real_array(y, "y") - self._y_mean) / self._y_std

    def _predictive(self, X: Any, exposure: Any, trials: Any) -> Predictive | MixedPredictive:
        return self.posterior_.predict_y(self._new_inputs(X), exposure=exposure, trials=trials)


_REMEDY = (
    "predict_quantiles and predict_interval always exist; for a df with finite moments set a lower bound above 2, such "
    "as StudentT(df=Parameter(4.0, bounds=(2.1, 100.0))); if hyperparameters are integrated and the link is exp, set a "
    "prior on the kernel's variance, such as Parameter(1.0, prior=LogNormal(1.0, 1.0))"
)


def _mean_or_median(y: Predictive | MixedPredictive) -> np.ndarray:
    mean = y.mean
    if not np.isfinite(mean).all():
        warnings.warn(f"y has no finite mean: its median is returned; {_REMEDY}", MomentWarning, stacklevel=3)
        return np.where(np.isfinite(mean), mean, y.median)
    return mean


def _deviation(y: Predictive | MixedPredictive) -> np.ndarray:
    variance = y.variance
    if not np.isfinite(variance).all():
        warnings.warn(f"the standard deviation of y is infinite; {_REMEDY}", MomentWarning, stacklevel=3)
        return np.sqrt(np.where(np.isnan(variance), np.inf, variance))
    return np.sqrt(variance)
