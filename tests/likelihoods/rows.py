"""Single data, log p of them, and cases that several tests of likelihoods share."""

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.likelihoods import Datum

RATES = {"exp": np.exp, "square": np.square, "softplus": lambda f: np.logaddexp(0.0, f)}
TIMES = {"observed": [1.3, 1.3], "outlived": [0.7, np.inf], "died before": [0.0, 0.7], "between": [0.5, 2.0]}


def at(y, exposure=1.0, trials=1.0) -> Datum:
    return Datum(*(np.asarray(value, dtype=float) for value in (y, exposure, trials)))


def log_prob(likelihood, datum: Datum, f) -> np.ndarray:
    """log p(y | f) for one datum and many f."""
    return np.asarray(jax.vmap(lambda f: likelihood.log_prob(datum, f))(jnp.asarray(f, float)))
