"""A sweep of BayesNewton's Markov EP over the counts of studies/series/markov.py.

    python studies/series/bayesnewton_sweep.py 100000

BayesNewton 1.3.4 is from the time of JAX 0.4.8: pip install bayesnewton objax numba jax==0.4.20 jaxlib==0.4.20
tensorflow-probability==0.22.1 "scipy<1.12". One name that JAX has dropped since is given back below.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

jnp.DeviceArray = jax.Array

import bayesnewton  # noqa: E402 (it asks for that name)
import objax  # noqa: E402

REPEATS = 5


def main(n: int) -> None:
    t = np.arange(float(n))
    f = 0.5 + 0.8 * np.sin(t / 50.0) + 0.5 * np.sin(t / 311.0) + 0.3 * np.cos(t / 17.0)
    y = np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    kernel = bayesnewton.kernels.Matern52(variance=1.0, lengthscale=30.0)
    likelihood = bayesnewton.likelihoods.Poisson(binsize=1)
    model = bayesnewton.models.MarkovExpectationPropagationGP(kernel=kernel, likelihood=likelihood, X=t, Y=y)
    sweep = objax.Jit(objax.Function.with_vars(model.vars())(lambda: model.inference(lr=1.0)))
    took = []
    for _ in range(REPEATS + 1):
        began, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(sweep())
        took.append((time.perf_counter() - began, time.process_time() - used))
    wall, cpu = np.min(took[1:], axis=0)
    print(f"n = {n}: a sweep {wall:.3f} s, {1e6 * cpu / n:.2f} µs of CPU a point; first call {took[0][0]:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
