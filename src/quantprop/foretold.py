"""Sites at new hyperparameters, foretold from those known at others."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from quantprop.gaussian import Natural

MEMORY = 6
REACH = 4.0  # largest multiple of a known difference that is trusted


class Known:
    """Sites at rest at the last MEMORY values of θ, the newest first, for each of b problems; equal ones count once.

    Until a problem has any, it has the sites that it starts from (`seen` says which have).
    """

    def __init__(self, theta: Float[np.ndarray, "b theta"], start: Natural) -> None:
        each = [np.asarray(part, dtype=np.float64)[:, None] for part in (theta, start.nu, start.tau)]
        self.theta, self.nu, self.tau = (np.repeat(part, MEMORY, axis=1) for part in each)
        self.seen = np.zeros(len(self.theta), dtype=bool)

    def add(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"], sites: Natural) -> None:
        """Put in the sites at rest at one more θ, for some of the problems."""
        seen = self.seen[rows][:, None, None]
        for kept, part in ((self.theta, theta), (self.nu, sites.nu), (self.tau, sites.tau)):
            new = np.asarray(part)[:, None]
            kept[rows] = np.where(seen, np.concatenate([new, kept[rows, :-1]], axis=1), new)
        self.seen[rows] = True

    def at(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"]) -> Natural:
        """The sites at θ by the affine function of θ that agrees with the newest, and with the others as it can.

        Affine are log τ and ν/√τ, in which a change of the prior's scale is a shift; a datum whose τ is not positive
        at every known θ keeps its newest site.
        """
        known, nu, tau = self.theta[rows], self.nu[rows], self.tau[rows]
        steps = np.swapaxes(known[:, 1:] - known[:, :1], 1, 2)  # k × theta × m − 1
        share = np.linalg.pinv(steps, rcond=1e-3) @ (theta - known[:, 0])[:, :, None]
        share = np.where(np.abs(share).max(axis=1, keepdims=True) <= REACH, share, 0.0)
        positive = np.all(tau > 0, axis=1)
        safe = np.where(positive[:, None], tau, 1.0)
        log_tau, pull = np.log(safe), nu / np.sqrt(safe)
        new_tau = np.exp(log_tau[:, 0] + (share * (log_tau[:, 1:] - log_tau[:, :1])).sum(1))
        new_nu = (pull[:, 0] + (share * (pull[:, 1:] - pull[:, :1])).sum(1)) * np.sqrt(new_tau)
        return Natural(np.where(positive, new_nu, nu[:, 0]), np.where(positive, new_tau, tau[:, 0]))
