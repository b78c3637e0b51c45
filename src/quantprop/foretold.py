"""Sites at new hyperparameters, foretold from those known at others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.gaussian import Natural

MEMORY = 6
REACH = 4.0  # largest multiple of a known difference that is trusted


class Known(NamedTuple):
    """Sites at rest at θ."""

    theta: Float[np.ndarray, " theta"]
    sites: Natural


def foretold(known: Sequence[Known], theta: Float[np.ndarray, " theta"]) -> Natural:
    """The sites at θ by the affine function of θ that agrees with the known ones: the last, and its differences.

    Affine are log τ and ν/√τ, in which a change of the prior's scale is a shift; a datum whose τ is not positive at
    every known point keeps its last site.
    """
    last, others = known[0], known[1:]
    if not others:
        return last.sites
    steps = np.array([k.theta - last.theta for k in others])
    share = np.linalg.lstsq(steps.T, theta - last.theta, rcond=1e-3)[0]
    if not np.abs(share).max() <= REACH:
        return last.sites
    tau = np.array([k.sites.tau for k in known])
    positive = (tau > 0).all(axis=0)
    safe = np.where(positive, tau, 1.0)
    log_tau, pull = np.log(safe), np.array([k.sites.nu for k in known]) / np.sqrt(safe)
    new_tau = np.exp(log_tau[0] + share @ (log_tau[1:] - log_tau[0]))
    new_nu = (pull[0] + share @ (pull[1:] - pull[0])) * np.sqrt(new_tau)
    return Natural(np.where(positive, new_nu, last.sites.nu), np.where(positive, new_tau, last.sites.tau))
