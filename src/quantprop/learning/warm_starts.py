"""Warm starts: sites at new hyperparameters, extrapolated from converged sites at others."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from quantprop.gaussian import Natural

MEMORY = 6
TINY = 1e-100
MAX_EXTRAPOLATION = 4.0  # largest multiple of a known difference that is trusted


class WarmStarts(NamedTuple):
    """Converged sites at the last MEMORY values of θ for each of b problems; equal ones count once.

    Until a problem has any, its initial sites stand in (`seen` says which have some). Stored are log τ and ν/√τ, in
    which a change of the prior's scale is a shift; a datum whose τ is not positive has NaN there.
    """

    theta: Float[np.ndarray, "b m theta"]
    log_tau: Float[np.ndarray, "b m n"]
    pull: Float[np.ndarray, "b m n"]
    newest: Natural
    place: Int[np.ndarray, " b"]  # of the newest
    seen: Bool[np.ndarray, " b"]

    @staticmethod
    def of(theta: Float[np.ndarray, "b theta"], start: Natural) -> WarmStarts:
        """Nothing but initial sites."""
        newest = Natural(*(np.array(part, dtype=np.float64) for part in (start.nu, start.tau)))
        known = (np.repeat(part[:, None], MEMORY, axis=1) for part in (np.asarray(theta, float), *_affine(newest)))
        return WarmStarts(*known, newest, np.zeros(len(theta), dtype=int), np.zeros(len(theta), dtype=bool))

    def add(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"], sites: Natural) -> WarmStarts:
        """The same with the converged sites at one more θ, for some of the problems."""
        fresh = ~self.seen[rows]
        added = jax.tree.map(np.copy, self)
        added.newest.nu[rows], added.newest.tau[rows] = sites.nu, sites.tau
        added.place[rows] = (self.place[rows] + 1) % MEMORY
        for known, part in zip(added[:3], (theta, *_affine(sites)), strict=True):
            known[rows, added.place[rows]] = part
            known[rows[fresh]] = np.asarray(part)[fresh][:, None]
        added.seen[rows] = True
        return added

    def at(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"]) -> Natural:
        """Sites extrapolated to θ by the affine function that agrees with the newest, and fits the others at best.

        A datum whose τ is not positive at every known θ keeps its newest site.
        """
        share = self._shares(rows, theta)
        log_tau, pull = ((share[:, None] @ known[rows])[:, 0] for known in (self.log_tau, self.pull))
        tau, known = np.exp(log_tau), np.isfinite(log_tau)
        nu = np.where(known, pull * np.sqrt(tau), self.newest.nu[rows])
        return Natural(nu, np.where(known, tau, self.newest.tau[rows]))

    def _shares(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, "k m"]:
        """The weights of the known θ in an affine combination that gives the new one; they sum to 1.

        Of all such combinations the one with the least Σ (share · distance²)²: where sites are curved in θ, the error
        from a known θ grows with its squared distance. Those within the length of the step count alike.
        """
        count = np.arange(len(rows))
        known, place = self.theta[rows], self.place[rows]
        origin = known[count, place]
        steps = np.swapaxes(known - origin[:, None], 1, 2)  # k × theta × m
        step = theta - origin
        distance = np.sqrt((steps**2).sum(1)) + np.sqrt((step**2).sum(1))[:, None]
        trust = (np.maximum(distance.min(1, keepdims=True), TINY) / np.maximum(distance, TINY)) ** 2
        share = trust * (np.linalg.pinv(steps * trust[:, None], rcond=1e-6) @ step[:, :, None])[:, :, 0]
        share = np.where(np.abs(share).max(axis=1, keepdims=True) <= MAX_EXTRAPOLATION, share, 0.0)
        share[count, place] = 0.0
        share[count, place] = 1.0 - share.sum(axis=1)
        return share


def _affine(sites: Natural) -> tuple[np.ndarray, np.ndarray]:
    """log τ and ν/√τ, NaN where τ is not positive."""
    nu, tau = np.asarray(sites.nu, dtype=np.float64), np.asarray(sites.tau, dtype=np.float64)
    tau = np.where(tau > 0, tau, np.nan)
    return np.log(tau), nu / np.sqrt(tau)
