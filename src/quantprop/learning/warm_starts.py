"""Warm starts: sites at new hyperparameters, extrapolated from converged sites at others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.runtime.batches import of

MEMORY = 6  # values of θ at which sites are remembered
TINY = 1e-100
MAX_EXTRAPOLATION = 4.0  # largest multiple of a known difference that is trusted


class WarmStarts(NamedTuple):
    """Converged sites of one problem at the latest MEMORY values of θ, newest last; until there are any, initial sites.

    Stored are log τ and ν/√τ, in which a change of the prior's scale is a shift; a row whose τ is not positive has NaN
    there. Of several problems, every array has an axis of problems in front.
    """

    theta: Float[np.ndarray, "m theta"]
    log_tau: Float[np.ndarray, "m n"]
    pull: Float[np.ndarray, "m n"]
    nu: Float[np.ndarray, " n"]  # newest sites
    tau: Float[np.ndarray, " n"]
    seen: bool  # False if there are initial sites only

    @staticmethod
    def of(theta: Float[np.ndarray, " theta"], sites: Natural, seen: bool = False) -> WarmStarts:
        """Sites at one θ."""
        nu, tau = (np.asarray(part, dtype=np.float64) for part in (sites.nu, sites.tau))
        theta, log_tau, pull = (np.tile(part, (MEMORY, 1)) for part in (theta, *_affine(nu, tau)))
        return WarmStarts(theta, log_tau, pull, nu, tau, seen)

    def add(self, theta: Float[np.ndarray, " theta"], sites: Natural) -> WarmStarts:
        """These with the converged sites at one more θ."""
        new = WarmStarts.of(theta, sites, True)
        if not self.seen:
            return new
        theta, log_tau, pull = (
            np.concatenate([old[1:], part[:1]]) for old, part in zip(self[:3], new[:3], strict=True)
        )
        return new._replace(theta=theta, log_tau=log_tau, pull=pull)

    def at(self, theta: Float[np.ndarray, " theta"]) -> Natural:
        """Sites extrapolated to θ."""
        return of(extrapolated([self], theta[None]), 0)


def extrapolated(known: list[WarmStarts], theta: Float[np.ndarray, "b theta"]) -> Natural:
    """The sites of several problems by the affine functions that agree with the newest sites, and fit the others best.

    A row whose τ is not positive at every known θ keeps its newest site.
    """
    places, log_tau, pull, nu, tau, _ = (np.stack(part) for part in zip(*known, strict=True))
    weight = _weights(places, theta)[:, None]
    log_tau, pull = (weight @ log_tau)[:, 0], (weight @ pull)[:, 0]
    new, positive = np.exp(log_tau), np.isfinite(log_tau)
    return Natural(np.where(positive, pull * np.sqrt(new), nu), np.where(positive, new, tau))


def _weights(known: Float[np.ndarray, "b m theta"], theta: Float[np.ndarray, "b theta"]) -> Float[np.ndarray, "b m"]:
    """The weights of the known θ in an affine combination that gives the new one; they sum to 1.

    Of all such combinations the one with the smallest Σ (weight · distance²)²: where sites are curved in θ, the error
    from a known θ grows with its squared distance. Those within the length of the step count alike.
    """
    steps, step = np.swapaxes(known - known[:, -1:], 1, 2), theta - known[:, -1]  # b × theta × m
    distance = np.sqrt((steps**2).sum(1)) + np.sqrt((step**2).sum(1))[:, None]
    trust = (np.maximum(distance.min(1, keepdims=True), TINY) / np.maximum(distance, TINY)) ** 2
    weight = trust * (np.linalg.pinv(steps * trust[:, None], rcond=1e-6) @ step[:, :, None])[:, :, 0]
    weight = np.where(np.abs(weight).max(axis=1, keepdims=True) <= MAX_EXTRAPOLATION, weight, 0.0)
    weight[:, -1] = 0.0
    weight[:, -1] = 1.0 - weight.sum(axis=1)
    return weight


def _affine(nu: Float[np.ndarray, " n"], tau: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """log τ and ν/√τ, NaN where τ is not positive."""
    tau = np.where(tau > 0, tau, np.nan)
    return np.log(tau), nu / np.sqrt(tau)
