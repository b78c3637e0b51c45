"""Observations that make trouble, for every kind of y."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rng = np.random.Generator
Draw = Callable[[Rng, np.ndarray, str], np.ndarray]  # of y, given a latent function and a trouble
TROUBLES = ("plain", "noise", "separable", "constant", "lopsided", "extreme")


def _shaped(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    """The latent function that a trouble leaves."""
    n = len(f)
    if trouble == "noise":
        return rng.normal(size=n)
    if trouble == "separable":
        return np.where(f > np.median(f), 2.0, -2.0)
    if trouble in ("constant", "lopsided"):
        f = np.full(n, rng.choice([-1.5, 0.0, 1.5]))
        f[:1] = -f[:1] + 0.1 if trouble == "lopsided" else f[:1]
    return f


def signs(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    f = _shaped(rng, f, trouble)
    return np.where(f + (rng.normal(size=len(f)) if trouble == "plain" else 0.0) > 0, 1.0, -1.0)


def consistent(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    """Labels that some function of the prior has without noise: else they have probability 0."""
    return np.where(f > 0, 1.0, -1.0) if trouble in ("plain", "separable") else np.full(len(f), rng.choice([-1.0, 1.0]))


def counts(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    y = rng.poisson(np.exp(np.clip(_shaped(rng, f, trouble), -20, 8))).astype(float)
    if trouble == "extreme":
        y[rng.integers(len(y))] = round(between(rng, 1e3, 1e6))
    return np.zeros_like(y) if trouble == "constant" and rng.random() < 0.5 else y


def reals(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    y = _shaped(rng, f, trouble) + (0.0 if trouble in ("separable", "constant") else 0.3) * rng.normal(size=len(f))
    if trouble == "extreme":
        y[rng.integers(len(y))] = rng.choice([-1.0, 1.0]) * 1e6
    return y * between(rng, 1e-3, 1e3) if rng.random() < 0.15 else y


def positive(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    y = np.exp(np.clip(_shaped(rng, f, trouble), -10, 10)) * rng.gamma(2.0, 0.5, len(f)) + 1e-12
    if trouble == "extreme":
        y[rng.integers(len(y))] = rng.choice([1e-9, 1e6])
    return y


def shares(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    y = 1.0 / (1.0 + np.exp(-_shaped(rng, f, trouble) - 0.3 * rng.normal(size=len(f))))
    if trouble == "extreme":
        y[rng.integers(len(y))] = rng.choice([1e-9, 1.0 - 1e-9])
    return np.clip(y, 1e-9, 1.0 - 1e-9)


def classes(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    return np.digitize(_shaped(rng, f, trouble), [-0.5, 0.5]).astype(float)


def intervals(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    y = reals(rng, f, trouble)
    kind = rng.integers(4, size=len(y))
    upper = np.where(kind == 3, y + rng.exponential(size=len(y)), y)
    return np.column_stack([np.where(kind == 1, -np.inf, y), np.where(kind == 2, np.inf, upper)])


def times(rng: Rng, f: np.ndarray, trouble: str) -> np.ndarray:
    """Rows (lower, upper) of positive numbers."""
    y = positive(rng, f, trouble)
    kind = rng.integers(4, size=len(y))
    upper = np.where(kind == 3, y + rng.exponential(size=len(y)), y)
    return np.column_stack([np.where(kind == 1, 0.0, y), np.where(kind == 2, np.inf, upper)])


def between(rng: Rng, low: float, high: float) -> float:
    """Log-uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def usual_or(rng: Rng, low: float, high: float, wild: float = 0.4) -> float:
    """Mostly an ordinary size, else anywhere between the library's own bounds, its ends included."""
    if rng.random() > wild:
        return between(rng, 0.1, 10.0)
    return [low, high, between(rng, low, high)][rng.choice(3, p=[0.15, 0.15, 0.7])]
