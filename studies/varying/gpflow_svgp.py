"""GPflow's heteroscedastic SVGP on held-out rows of mcycle and engel; needs gpflow and tensorflow alone.

    python studies/varying/gpflow_svgp.py data.npz rows.jsonl      # the data of python -m studies.varying.held_out data

As in GPflow's page on it: two latent functions with squared exponential kernels, the second the
logarithm of the scale. Inputs at all quantiles of x as inducing points, all learned by L-BFGS from standardised rows.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

POINTS, STEPS = 30, 1_000


def learned(x: np.ndarray, y: np.ndarray) -> Any:
    """The model of standardised rows."""
    likelihood = gpflow.likelihoods.HeteroskedasticTFPConditional(
        distribution_class=tfp.distributions.Normal, scale_transform=tfp.bijectors.Exp()
    )
    kernel = gpflow.kernels.SeparateIndependent([gpflow.kernels.SquaredExponential() for _ in range(2)])
    z = np.quantile(x, np.linspace(0.0, 1.0, POINTS), axis=0)
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(gpflow.inducing_variables.InducingPoints(z))
    model = gpflow.models.SVGP(kernel, likelihood, points, num_latent_gps=2, num_data=len(x))
    loss = model.training_loss_closure((x, y), compile=True)
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": STEPS}, compile=True)
    return model


def main(data: str, out: str) -> None:
    """Ten folds of each set."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sets = np.load(data)
    for name in ("mcycle", "engel"):
        x, y, fold = (sets[f"{name}.{part}"] for part in ("x", "y", "fold"))
        for k in range(10):
            began, outside = time.process_time(), fold == k
            (m, s), (a, b) = ((part[~outside].mean(0), part[~outside].std(0)) for part in (x, y))
            model = learned((x[~outside] - m) / s, ((y[~outside] - a) / b)[:, None])
            held = ((x[outside] - m) / s, ((y[outside] - a) / b)[:, None])
            density = model.predict_log_density(held).numpy() - np.log(b)
            row = {"set": name, "fold": k, "density": density.tolist(), "seconds": time.process_time() - began}
            print(name, k, density.mean(), flush=True)
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps({"what": "gpflow", **row}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
