"""How fast plain sweeps of EP contract at the learned numbers: spectral radii of the map of a sweep.

Prints, for each set, those of one renewal and of two renewals for one factor (docs/design-log.md quotes them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from quantprop import EP, Model, fit, kernels, likelihoods
from quantprop.core.gaussian import Natural
from quantprop.experiments.protocol import Experiment, split
from quantprop.inference.engine import InferenceProblem, swept
from quantprop.inference.task import prepare
from quantprop.priors import DensePrior

BESIDE = 1e-6  # of the sites: at the fixed point itself both changes are roundings, and are compared


def radii(name: str) -> list[float]:
    """Spectral radii of s → s + change and s → s + onward at EP's optimum on a first split."""
    part = split(Experiment(name))
    fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), part.x, part.y, "ep")
    model, sites, n = fitted.model, fitted.solution.sites, len(part.y)
    task = prepare(model, part.x, part.y, EP(), None, None, None)
    with jax.enable_x64(True):
        prior = DensePrior(np.zeros(len(task.padded)), model.plain_kernel.gram(task.padded))
        problem = InferenceProblem(model.plain_likelihood, EP(), prior, task.data, task.weight)
        blank = jnp.zeros(len(task.padded))

        def swept_once(s, step):
            at = swept(problem, Natural(blank.at[:n].set(s[:n]), blank.at[:n].set(s[n:])))[0]
            return s + jnp.concatenate([step(at).nu[:n], step(at).tau[:n]])

        s = np.concatenate([sites.nu, sites.tau]) * (1.0 + BESIDE * np.sin(np.arange(2 * n)))
        maps = [partial(swept_once, step=step) for step in (lambda at: at.change, lambda at: at.onward)]
        slopes = [_slope(one, s) for one in maps]
    return [float(np.abs(np.linalg.eigvals(np.asarray(slope))).max()) for slope in slopes]


def _slope(function: Callable, s: np.ndarray) -> jax.Array:
    """The transposed derivative, a few columns at a time: each carries matrices of its own."""
    along = jax.jit(
        lambda directions: jax.lax.map(lambda d: jax.jvp(function, (s,), (d,))[1], directions, batch_size=32)
    )
    return along(np.eye(len(s)))


if __name__ == "__main__":
    for name in ("crabs", "ionosphere", "sonar"):
        print(name, *(f"{radius:.3f}" for radius in radii(name)), flush=True)
