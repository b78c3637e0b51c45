"""Adversarial problems: everything that the library's own limits allow, at its ends as often as in the middle.

A problem is a function of its number alone. Rows fill few padded sizes and forms, so that thousands of problems share
compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz.observations import (
    TROUBLES,
    Draw,
    Rng,
    between,
    classes,
    consistent,
    counts,
    intervals,
    positive,
    reals,
    shares,
    signs,
    times,
    usual_or,
)

from quantprop import Model, kernels, likelihoods
from quantprop.likelihoods import Likelihood

EXACT = ("qp", "ep", "power-ep")
ALL = (*EXACT, "vb", "laplace")
NEW_ROWS = 3


# --- likelihoods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """A likelihood with parameters drawn anew, its observations, and the methods that exist for it."""

    make: Callable[[Rng], Likelihood]
    draw: Draw
    methods: tuple[str, ...] = ALL
    mean: float = 0.0
    exposed: bool = False
    linear: bool = False  # the latent function is one that every kernel can follow
    tried: bool = False  # y are successes among trials


def _scale(rng: Rng) -> float:
    return usual_or(rng, 1e-5, 1e5, 0.25)


FAMILIES = {
    "gaussian": Family(lambda rng: likelihoods.Gaussian(_scale(rng)), reals),
    "probit": Family(lambda rng: likelihoods.Probit(), signs),
    "logit": Family(lambda rng: likelihoods.Logit(), signs),
    "heaviside": Family(lambda rng: likelihoods.Heaviside(), consistent, EXACT, linear=True),
    "heaviside, noise": Family(
        lambda rng: likelihoods.Heaviside(between(rng, 1e-6, 0.4)), signs, ("qp", "ep", "power-ep", "vb")
    ),
    "poisson, exp": Family(lambda rng: likelihoods.Poisson(), counts, exposed=True),
    "poisson, square": Family(lambda rng: likelihoods.Poisson("square"), counts, ("qp", "ep", "vb", "laplace"), 1.0),
    "poisson, softplus": Family(lambda rng: likelihoods.Poisson("softplus"), counts),
    "negative-binomial, exp": Family(lambda rng: likelihoods.NegativeBinomial(usual_or(rng, 1e-5, 1e5)), counts),
    "binomial, probit": Family(lambda rng: likelihoods.Binomial(), counts, tried=True),
    "binomial, logit": Family(lambda rng: likelihoods.Binomial("logit"), counts, tried=True),
    "student-t": Family(lambda rng: likelihoods.StudentT(usual_or(rng, 1.0, 100.0), _scale(rng)), reals),
    "double-exponential": Family(
        lambda rng: likelihoods.DoubleExponential(_scale(rng)), reals, ("qp", "ep", "power-ep", "vb")
    ),
    "gamma, exp": Family(lambda rng: likelihoods.Gamma(usual_or(rng, 1e-3, 1e5)), positive),
    "beta, probit": Family(lambda rng: likelihoods.Beta(usual_or(rng, 1e-3, 1e5)), shares),
    "ordinal": Family(lambda rng: likelihoods.Ordinal(np.array([-0.5, 0.5]) * _scale(rng)), classes),
    "censored": Family(lambda rng: likelihoods.Censored(_scale(rng)), intervals),
    "weibull": Family(lambda rng: likelihoods.Weibull(usual_or(rng, 1e-3, 1e3)), times),
    "log-logistic": Family(lambda rng: likelihoods.LogLogistic(usual_or(rng, 1e-3, 1e3)), times),
    "zero-inflated-poisson, exp": Family(
        lambda rng: likelihoods.ZeroInflatedPoisson(between(rng, 1e-4, 0.9)), counts, exposed=True
    ),
    "zero-inflated-negative-binomial, exp": Family(
        lambda rng: likelihoods.ZeroInflatedNegativeBinomial(between(rng, 1e-4, 0.9), usual_or(rng, 1e-5, 1e5)), counts
    ),
    "warped": Family(
        lambda rng: likelihoods.Warped(_scale(rng), rng.exponential(size=3), [0.5, 1.0, 2.0], [-1.0, 0.0, 1.0]), reals
    ),
}

# --- inputs and kernels ----------------------------------------------------------------------------------------------

SHAPES = ("plain", "duplicated", "constant", "collinear", "scaled", "outlier", "close", "lattice")


def inputs(rng: Rng, shape: str, n: int, d: int) -> np.ndarray:
    """n × d inputs of a troublesome shape."""
    x = rng.normal(size=(n, d))
    if shape == "duplicated":
        x = x[rng.integers(max(1, n // 4), size=n)]
    elif shape == "constant":
        x = np.full((n, d), rng.normal()) if rng.random() < 0.5 else np.column_stack([np.full(n, 7.0), x[:, 1:]])
    elif shape == "collinear":
        x = np.outer(x[:, 0], rng.normal(size=d))
    elif shape == "scaled":
        x = x * [between(rng, 1e-6, 1e6) for _ in range(d)]
    elif shape == "outlier":
        x[rng.integers(n)] = 1e6
    elif shape == "close":
        x = 1e-9 * x + rng.normal()
    elif shape == "lattice":
        x = np.round(x)
    return x


KERNELS: dict[str, Callable[[float, float], kernels.Kernel]] = {
    "se": kernels.SquaredExponential,
    "matern12": kernels.Matern12,
    "matern52": kernels.Matern52,
    "linear": lambda v, scale: kernels.Linear(v) + kernels.Constant(v),
    "noisy": lambda v, scale: kernels.SquaredExponential(v, scale) + kernels.White(1e-2 * v),
    "periodic": lambda v, scale: kernels.Periodic(v, 1.0, scale),
    "rational": lambda v, scale: kernels.RationalQuadratic(v, scale, 0.5),
}

# --- problems --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One problem; `about` names what is troublesome in it."""

    number: int
    family: str
    method: str
    schedule: str
    about: str
    model: Model
    x: np.ndarray
    y: np.ndarray
    options: dict[str, np.ndarray]  # weights, exposure, trials
    new: np.ndarray
    prior_variance: float  # the largest at the inputs

    @property
    def resolvable(self) -> bool:
        """Whether doubles can do it: prior variances up to 1e8, noise variance above 1e-13 of them, and observations
        that keep six digits in units of the noise.

        Against the prior stands the noise of a row: w equal observations know f to 1/√w of the noise of one, and to
        1/w where its density has a kink, exp(−w |y − f|/scale).
        """
        often = float(np.max(self.options.get("weights", 1.0)))
        known = 1.0 / often if self.family == "double-exponential" else often**-0.5
        noise = getattr(self.model.plain_likelihood, "scale", np.inf)
        size = np.abs(self.y[np.isfinite(self.y)]).max(initial=0.0)
        return bool(self.prior_variance <= min(1.1e8, 1e13 * (known * noise) ** 2) and size < 1e9 * noise)

    @property
    def log_concave(self) -> bool:
        """Whether the posterior has one mode, so that inference has no excuse."""
        return bool(self.model.plain_likelihood.log_concave)


@dataclass(frozen=True)
class Menu:
    """What problems are drawn from. Every pair of family and method, padded size and kernel costs compilation."""

    pairs: tuple[tuple[str, str], ...]
    kernels: tuple[str, ...] = tuple(KERNELS)
    features: tuple[int, ...] = (1, 2, 5)
    sizes: tuple[int, ...] = (32,)
    more_sizes: tuple[int, ...] = (32, 128)  # of likelihoods that compile quickly
    most_variance: float = 1e8  # from 1e6 on a program of its own
    fractional: bool = True  # weights


LATER = ("weibull", "log-logistic", "zero-inflated-poisson, exp", "zero-inflated-negative-binomial, exp", "warped")
WHOLE_MENU = Menu(
    tuple((name, method) for name, family in FAMILIES.items() for method in family.methods if name not in LATER)
)
LATER_MENU = Menu(tuple((name, method) for name in LATER for method in FAMILIES[name].methods))  # numbers of their own


def problem(number: int, menu: Menu = WHOLE_MENU) -> Problem:
    """The problem of a number."""
    rng = np.random.default_rng([number, 20])
    name, method = menu.pairs[number % len(menu.pairs)]
    family = FAMILIES[name]
    sizes = menu.more_sizes if name in ("probit", "gaussian") else menu.sizes
    n, d = int(rng.integers(1, rng.choice(sizes) + 1)), int(rng.choice(menu.features))
    shape, trouble, kind = (str(rng.choice(names)) for names in (SHAPES, TROUBLES, menu.kernels))
    d = 1 if kind == "periodic" else d  # it is no covariance of several features
    x = inputs(rng, shape, n, d)
    size = np.abs(x).max() if shape in ("scaled", "close") and rng.random() < 0.5 else 1.0
    variance = min(usual_or(rng, 1e-5, 1e8), menu.most_variance)
    lengthscale = float(np.clip(usual_or(rng, 1e-5, 1e5) * size, 1e-5, 1e5))
    score = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    latent = score @ rng.normal(size=d)
    trouble = "constant" if family.linear and shape == "close" else trouble
    y = family.draw(rng, latent if family.linear else 2.0 * np.sin(latent), trouble)
    options = _options(rng, family, y, method, menu.fractional)
    if kind == "noisy" and "weights" in options:  # weights above 1 are refused with white noise
        options["weights"] = np.minimum(options["weights"], 1.0)
    model = Model(KERNELS[kind](variance, lengthscale), family.make(rng), family.mean)
    schedule = "sequential" if method in EXACT and rng.random() < 0.05 else "parallel"
    new = np.concatenate([x[:1], x[:1] + rng.normal(size=(1, d)), np.full((1, d), 1e3)])
    largest = variance * (1.0 + np.square(x).sum(1).max()) if kind == "linear" else variance
    if kind == "periodic" and np.ptp(x) > 1e6 * lengthscale:
        largest = np.inf  # distances of a million periods leave few digits of the phase
    about = f"n={n}, d={d}, x {shape}, y {trouble}, {kind} {variance:.1e} {lengthscale:.1e}"
    return Problem(number, name, method, schedule, about, model, x, y, options, new, largest)


def _options(rng: Rng, family: Family, y: np.ndarray, method: str, fractional: bool) -> dict[str, Any]:
    n, options = len(y), {}
    if rng.random() < 0.15:  # imbalance of 1 to 1,000, and rows that do not count
        weights = rng.choice([0.0, 1.0, 5.0, 1000.0], n)
        weights[rng.integers(n)] = 1.0
        singular = family.mean > 0
        half = fractional and not singular and method == "ep" and rng.random() < 0.2
        options["weights"] = 0.5 * weights if half else weights
    if family.exposed and rng.random() < 0.3:
        options["exposure"] = np.exp(rng.uniform(-7, 7, n))
    if family.tried:
        options["trials"] = y + np.round(np.exp(rng.uniform(0, 9, n)))
    return options
