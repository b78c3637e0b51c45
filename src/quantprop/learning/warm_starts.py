"""Warm starts: sites at new hyperparameters, extrapolated from converged sites at others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from quantprop.core.gaussian import Natural

MEMORY = 6
TINY = 1e-100
MAX_EXTRAPOLATION = 4.0  # largest multiple of a known difference of θ


class Memory(NamedTuple):
    """Warm starts of the next evaluation of one problem, separate from the search, as in
    `WarmStarts`. A landscape that starts only from its newest sites has no others (k = 0).
    """

    theta: Float[np.ndarray, "k theta"]
    log_tau: Float[np.ndarray, "k n"]
    pull: Float[np.ndarray, "k n"]
    newest: Natural
    place: int = 0
    continues: bool = False  # of the landscape, as the next
    unresolved: int = 0


class WarmStarts:
    """Converged sites at the last MEMORY values of θ for each of b problems; equal ones count once.

    Until a problem has any, its initial sites stand in (`seen` says which have some). Stored are log τ and ν/√τ, in
    which a change of the prior's scale is a shift; a datum whose τ is not positive has NaN there.
    """

    def __init__(self, theta: Float[np.ndarray, "b theta"], start: Natural) -> None:
        self.newest = Natural(*(np.array(part, dtype=np.float64) for part in (start.nu, start.tau)))
        each = (np.asarray(theta, dtype=np.float64), *_affine(self.newest))
        self.theta, self.log_tau, self.pull = (np.repeat(part[:, None], MEMORY, axis=1) for part in each)
        self.place = np.zeros(len(theta), dtype=int)  # of the newest
        self.seen = np.zeros(len(theta), dtype=bool)

    def add(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"], sites: Natural) -> None:
        """Add the converged sites at one more θ, for some of the problems."""
        self.newest.nu[rows], self.newest.tau[rows] = sites.nu, sites.tau
        self.place[rows] = (self.place[rows] + 1) % MEMORY
        fresh = ~self.seen[rows]
        for kept, part in zip((self.theta, self.log_tau, self.pull), (theta, *_affine(sites)), strict=True):
            kept[rows, self.place[rows]] = part
            kept[rows[fresh]] = np.asarray(part)[fresh][:, None]
        self.seen[rows] = True

    def at(self, rows: Int[np.ndarray, " k"], theta: Float[np.ndarray, "k theta"]) -> Natural:
        """Sites extrapolated to θ by the affine function that agrees with the newest, and fits the others at best.

        A datum whose τ is not positive at every known θ keeps its newest site.
        """
        share = self._shares(rows, theta)
        log_tau, pull = (np.einsum("km,km...->k...", share, kept[rows]) for kept in (self.log_tau, self.pull))
        tau, known = np.exp(log_tau), np.isfinite(log_tau)
        nu = np.where(known, pull * np.sqrt(tau), self.newest.nu[rows])
        return Natural(nu, np.where(known, tau, self.newest.tau[rows]))

    def of_first(self, n: int) -> Memory:
        """The cached sites of the first problem, of its first n rows."""
        sites = Natural(self.newest.nu[0, ..., :n], self.newest.tau[0, ..., :n])
        return Memory(self.theta[0], self.log_tau[0, ..., :n], self.pull[0, ..., :n], sites, int(self.place[0]))

    def recall(self, memory: Memory) -> None:
        """Know of the first problem what is given, and nothing else: as if all of it had been added here. Further rows
        are padded ones, without sites.
        """
        n = memory.newest.nu.shape[-1]
        for kept, part in ((self.newest.nu, memory.newest.nu), (self.newest.tau, memory.newest.tau)):
            kept[0, ..., :n], kept[0, ..., n:] = part, 0.0
        for kept, part in ((self.log_tau, memory.log_tau), (self.pull, memory.pull)):
            kept[0, ..., :n], kept[0, ..., n:] = part, np.nan
        self.theta[0], self.place[0], self.seen[0] = memory.theta, memory.place, True

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
