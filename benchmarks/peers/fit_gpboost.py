"""GPBoost: Laplace's method with a probit likelihood; its range is √2 times the lengthscale."""

import math

import gpboost
import numpy as np
from measured import Fit, from_probability, report


def fit(x, y, method):
    model = gpboost.GPModel(gp_coords=x, cov_function="gaussian", likelihood="bernoulli_probit", num_parallel_threads=1)
    model.fit(y=(y > 0).astype(float), params={"init_cov_pars": np.array([1.0, math.sqrt(2.0)])})
    variance, reach = np.ravel(model.get_cov_pars(format_pandas=False))[:2]
    return Fit(
        objective=float(model.get_current_neg_log_likelihood()),
        objective_name="-log evidence (laplace)",
        log_prob=from_probability(lambda new: model.predict(gp_coords_pred=new, predict_response=True)["mu"]),
        kernel=(float(variance), float(reach) / math.sqrt(2.0)),
    )


if __name__ == "__main__":
    report(fit)
