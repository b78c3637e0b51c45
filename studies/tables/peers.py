"""What people use today, with the settings it comes with: one prediction for each test row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import nbinom, poisson

from studies.tables.scoring import Normals

BY_KIND = {
    "classes": ("logistic", "forest", "extra-trees", "svm", "boosting", "sklearn-gp", "lightgbm", "catboost",
                "explainable"),
    "numbers": ("forest", "ridge", "ngboost", "catboost", "explainable"),
    "counts": ("boosting", "gam-poisson", "gam-negative-binomial"),
}  # fmt: skip
SPLINES = 6  # functions of a smooth term
MIN_VALUES = 8  # of a column with a smooth term


def peer(kind: str, name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Any:
    """What `scoring.of` takes."""
    return {"classes": _probability, "numbers": _normals, "counts": _counts}[kind](name, x, y, x_test)


def _probability(name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    return _classifier(name).fit(x, y).predict_proba(x_test)[:, 1]


def _classifier(name: str) -> Any:
    from sklearn import ensemble, gaussian_process, linear_model, svm
    from sklearn.calibration import CalibratedClassifierCV

    if name == "logistic":
        return linear_model.LogisticRegressionCV(Cs=8, cv=5, scoring="neg_log_loss", max_iter=2000)
    if name == "forest":
        return ensemble.RandomForestClassifier(500, random_state=0)
    if name == "extra-trees":
        return ensemble.ExtraTreesClassifier(500, min_samples_leaf=2, random_state=0)
    if name == "svm":
        return CalibratedClassifierCV(svm.SVC(), cv=5)
    if name == "boosting":
        return ensemble.HistGradientBoostingClassifier(random_state=0)
    if name == "sklearn-gp":
        kernels = gaussian_process.kernels
        return gaussian_process.GaussianProcessClassifier(kernels.ConstantKernel() * kernels.RBF(), random_state=0)
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(verbose=-1, random_state=0, n_jobs=1)
    if name == "catboost":
        from catboost import CatBoostClassifier

        return CatBoostClassifier(verbose=0, random_seed=0, allow_writing_files=False, thread_count=1)
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(n_jobs=1, random_state=0)


def _normals(name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Normals:
    if name == "forest":  # with its out-of-bag error
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(500, oob_score=True, random_state=0).fit(x, y)
        return _with_error(forest.predict(x_test), y - forest.oob_prediction_)
    if name == "ridge":
        from sklearn.linear_model import BayesianRidge

        mean, sd = BayesianRidge().fit(x, y).predict(x_test, return_std=True)
    elif name == "ngboost":
        from ngboost import NGBRegressor

        found = NGBRegressor(verbose=False, random_state=0).fit(x, y).pred_dist(x_test)
        mean, sd = found.loc, found.scale
    elif name == "catboost":
        from catboost import CatBoostRegressor

        settings: dict[str, Any] = {"loss_function": "RMSEWithUncertainty", "verbose": 0, "random_seed": 0}
        model = CatBoostRegressor(**settings, allow_writing_files=False, thread_count=1).fit(x, y)
        mean, variance = model.predict(x_test).T
        sd = np.sqrt(variance)
    else:
        from interpret.glassbox import ExplainableBoostingRegressor

        model = ExplainableBoostingRegressor(n_jobs=1, random_state=0).fit(x, y)
        return _with_error(model.predict(x_test), y - model.predict(x))
    return Normals(np.ones(1), np.asarray(mean)[None], np.asarray(sd)[None])


def _with_error(mean: np.ndarray, residuals: np.ndarray) -> Normals:
    return Normals(np.ones(1), mean[None], np.full((1, len(mean)), np.sqrt(np.mean(residuals**2))))


def _counts(name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        rate = HistGradientBoostingRegressor(loss="poisson", random_state=0).fit(x, y).predict(x_test)
        return lambda new: poisson.logpmf(new, rate)
    from statsmodels.discrete.discrete_model import NegativeBinomial
    from statsmodels.gam.api import BSplines, GLMGam
    from statsmodels.genmod import families
    from statsmodels.genmod.generalized_linear_model import GLM

    smooth = [j for j in range(x.shape[1]) if len(np.unique(x[:, j])) >= MIN_VALUES]
    clipped = np.clip(x_test, x.min(axis=0), x.max(axis=0))  # splines end there
    constant, columns = np.ones((len(x), 1)), [j for j in range(x.shape[1]) if j not in smooth]
    linear, new = np.hstack([constant, x[:, columns]]), np.hstack([np.ones((len(x_test), 1)), clipped[:, columns]])

    def rates(family: Any) -> np.ndarray:
        if not smooth:
            return GLM(y, linear, family=family).fit().predict(new)
        splines = BSplines(x[:, smooth], df=[SPLINES] * len(smooth), degree=[3] * len(smooth))
        model = GLMGam(y, exog=linear, smoother=splines, alpha=[1.0] * len(smooth), family=family)
        return model.fit().predict(new, exog_smooth=clipped[:, smooth])

    if name == "gam-poisson":
        rate = rates(families.Poisson())
        return lambda new: poisson.logpmf(new, rate)
    dispersion = float(NegativeBinomial(y, np.hstack([constant, x])).fit(disp=0, maxiter=200).params[-1])
    rate = rates(families.NegativeBinomial(alpha=dispersion))
    return lambda new: nbinom.logpmf(new, 1.0 / dispersion, 1.0 / (1.0 + dispersion * rate))
