"""Held-out scores of probabilities, of normal mixtures, and of log densities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr
from scipy.stats import norm

CLIP = 1e-4  # probabilities are clipped to [CLIP, 1 − CLIP]
COVERED = (0.05, 0.95)
MEASURES = {"classes": {"log_loss": 1}, "numbers": {"nlpd": 1, "crps": 1, "rmse": 1}, "counts": {"log_density": -1}}


class Normals(NamedTuple):
    """Mixtures of normal distributions, one for each row: Σ_k weights_k N(means_k, sds_k²)."""

    weights: np.ndarray
    means: np.ndarray
    sds: np.ndarray


def of(kind: str, predicted: Any, y: np.ndarray) -> dict[str, Any]:
    """The scores of what was predicted for each row y."""
    if kind == "classes":
        p = clipped(predicted)
        return {"log_loss": float(-np.mean(np.where(y, np.log(p), np.log1p(-p)))),
                "p": [float(f"{one:.4g}") for one in p], "y": y.astype(int).tolist()}  # fmt: skip
    if kind == "counts":
        return {"log_density": float(np.mean(predicted(y)))}
    w, means, sds = predicted
    cdf = w @ ndtr((y - means) / sds)
    return {
        "nlpd": float(-np.mean(np.logaddexp.reduce(np.log(w)[:, None] + norm.logpdf(y, means, sds)))),
        "crps": float(np.mean(crps(predicted, y))),
        "rmse": float(np.sqrt(np.mean((w @ means - y) ** 2))),
        "coverage": float(np.mean((cdf > COVERED[0]) & (cdf < COVERED[1]))),
    }


def clipped(p: Any) -> np.ndarray:
    return np.clip(np.asarray(p, float), CLIP, 1.0 - CLIP)


def crps(mixture: Normals, y: np.ndarray) -> np.ndarray:
    """E|Y − y| − ½ E|Y − Y'| of normal mixtures (Grimit, Gneiting, Berrocal and Johnson 2006)."""

    def distance(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:  # E|N(mean, sd²)|
        return mean * (2.0 * ndtr(mean / sd) - 1.0) + 2.0 * sd * norm.pdf(mean / sd)

    w, means, sds = mixture
    apart = distance(means[:, None] - means, np.sqrt(sds[:, None] ** 2 + sds**2))
    return w @ distance(y - means, sds) - 0.5 * np.einsum("k,l,kln->n", w, w, apart)


def mixed(kind: str, each: Sequence[Any], weights: np.ndarray) -> Any:
    """The mixture of several predictions."""
    if kind == "classes":
        return weights @ np.stack(each)
    if kind == "numbers":
        return Normals(weights, *(np.concatenate([getattr(one, part) for one in each]) for part in ("means", "sds")))

    def log_density(y: np.ndarray) -> np.ndarray:
        return np.logaddexp.reduce(np.log(weights)[:, None] + np.stack([one(y) for one in each]))

    return log_density


def calibration_slope(logits: np.ndarray, y: np.ndarray) -> float:
    """b of the logistic regression P(y) = 1/(1 + exp(−a − b · logit p))."""

    def loss(theta: np.ndarray) -> float:
        z = theta[0] + theta[1] * logits
        return float(np.sum(np.logaddexp(0.0, z) - y * z))

    return float(minimize(loss, np.array([0.0, 1.0])).x[1])
