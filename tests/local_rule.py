"""What EP and QP make of many single data: moments and sites for both projections from one compiled program.

Every test that wants projections of many cavities calls `renewals`. It works through blocks of one fixed
length, so that a likelihood is compiled once for all of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import quick

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import values
from quantprop.core.sites import renewed
from quantprop.likelihoods import Likelihood
from quantprop.likelihoods.base import Moments, encode
from quantprop.projections import KL, Wasserstein
from quantprop.runtime import programs

BLOCK = 112


class Renewals(NamedTuple):
    """The two projections of tilted densities, relative to their cavities, and the sites they lead to."""

    kl: Moments
    w2: Moments
    ep_site: Natural
    qp_site: Natural


def renewals(likelihood: Likelihood, y: Any, mean: Any, variance: Any, **scaled: Any) -> Renewals:
    """Both projections of p(y | f) N(f | mean, variance); vectors of one length, float64."""
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    plain, n = values(likelihood), len(mean)
    with jax.enable_x64(True):
        rows = (encode(plain, y, (n,), **scaled), Normal(mean, variance))
        parts = []
        for start in range(0, n, BLOCK):
            index = np.minimum(np.arange(start, start + BLOCK), n - 1)
            block = jax.tree.map(lambda column, at=index: np.asarray(column)[at], rows)
            parts.append(jax.tree.map(np.asarray, _renew(plain, *block)))
    return jax.tree.map(lambda *columns: np.concatenate(columns)[:n], *parts)


# Each program runs once or twice in a test session: compiling it without optimisation is what saves time.
QUICK = {**programs._compiler_options(), **quick.OPTIONS}


@partial(jax.jit, compiler_options=QUICK)
def _renew(likelihood: Likelihood, data, cavities) -> Renewals:
    def one(datum, cavity):
        kl, w2 = KL().project(likelihood, datum, cavity), Wasserstein(2).project(likelihood, datum, cavity)
        return Renewals(kl, w2, renewed(cavity, kl), renewed(cavity, w2))

    return jax.vmap(one)(data, cavities)
