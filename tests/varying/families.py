"""Models whose parameter varies, their families, and sums over a fine grid: what tests compare with."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import beta, fisk, gamma, laplace, nbinom, norm, poisson, t, weibull_min

from quantprop import Model, kernels, likelihoods
from quantprop.likelihoods import Varying

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 6.0, 30))[:, None]
Y = np.sin(X[:, 0]) + 0.5 * np.exp(0.5 * np.sin(2.0 * X[:, 0])) * RNG.standard_normal(30)


def kernel_of(variance: float = 0.7) -> kernels.PerParameter:
    return kernels.PerParameter(kernels.SquaredExponential(1.2, 0.9), kernels.Matern52(variance, 1.4))


GAUSSIAN = Varying(likelihoods.Gaussian(0.4), "scale")
MODEL = Model(kernel_of(), GAUSSIAN)
LEVEL = 0.5  # the parameter where g = 0, in tests of the rule


def cavities(n, widest):
    """Data, and means and variances of f and g; `widest` is the largest log variance of g."""
    rng = np.random.default_rng(1)
    mean = np.stack([rng.normal(0.0, 2.0, n), rng.normal(0.0, 1.5, n)], axis=1)
    variance = np.exp(np.stack([rng.uniform(-4.0, 3.0, n), rng.uniform(-4.0, widest, n)], axis=1))
    return rng.normal(0.0, 3.0, n), mean, variance


def normal(y, f, g):
    """log p(y | f, g) of Gaussian noise of which the scale varies."""
    return norm.logpdf(y, f, LEVEL * np.exp(g))


def grid(y, mean, variance, sizes, log_prob=normal, centre=None):
    """f, dense around the observation, and g; the mass of their cells, and the logarithm of its unit."""
    sd, y_of_f = np.sqrt(variance), y if centre is None else centre
    width = max(1e-6, min(0.03 * LEVEL * np.exp(mean[1] - 13.0 * sd[1]), sd[0]))
    ends = mean[:, None] + 13.0 * sd[:, None] * np.array([-1.0, 1.0])
    u, g = np.linspace(*np.arcsinh((ends[0] - y_of_f) / width), sizes[0]), np.linspace(*ends[1], sizes[1])
    f = y_of_f + width * np.sinh(u)
    log_density = log_prob(y, f[:, None], g) - 0.5 * (f[:, None] - mean[0]) ** 2 / variance[0]
    log_density = log_density - 0.5 * (g - mean[1]) ** 2 / variance[1]
    top = log_density.max()
    mass = np.exp(log_density - top) * np.cosh(u)[:, None]
    return f, g, mass, top + np.log(width * (u[1] - u[0]) * (g[1] - g[0]) / (2.0 * np.pi * sd.prod()))


def summed(y, mean, variance, **family):
    """log Z, and means and variances of f and g."""
    f, g, mass, unit = grid(y, mean, variance, (2400, 1200), **family)
    total = mass.sum()
    out = [unit + np.log(total)]
    for at, share in ((f, mass.sum(1) / total), (g, mass.sum(0) / total)):
        out += [share @ at, share @ (at - share @ at) ** 2]
    return np.array(out)


def quantile_deviations(y, mean, variance, **family):
    """σ* = E[(x − μ) z] of f and of g: the standard deviations of QP, from densities on a finer grid."""
    f, g, mass, _ = grid(y, mean, variance, (8000, 2600), **family)
    found = []
    for at, share in ((f, mass.sum(1)), (g, mass.sum(0))):
        share = share / share.sum()
        rest = np.gradient(share, edge_order=2) / 12.0  # of the trapezoidal rule, by Euler and Maclaurin
        below, above = np.cumsum(share) - share / 2.0 - rest, np.cumsum(share[::-1])[::-1] - share / 2.0 + rest
        z = np.where(below < 0.5, 1.0, -1.0) * norm.ppf(np.clip(np.minimum(below, above), 1e-300, 0.5))
        found.append(share @ ((at - share @ at) * z))
    return np.array(found)


def counted(y, f, g):
    dispersion = LEVEL * np.exp(g)
    return nbinom.logpmf(y, 1.0 / dispersion, 1.0 / (1.0 + dispersion * np.exp(f)))


def with_more_zeros(y, f, g):
    share = expit(g)  # odds of 1 where g = 0
    made = np.log1p(-share) + poisson.logpmf(y, np.exp(f))
    return np.logaddexp(np.log(share), made) if y == 0 else made


def of_times(log_density, log_survival):
    """Rows (y, y) of observed times, here positive, and (|y|, ∞) of times after |y|."""
    return lambda y, f, g: (log_density if y > 0 else log_survival)(abs(y), np.exp(-g) / LEVEL, scale=np.exp(f))


def as_times(y):
    return np.stack([np.abs(y), np.where(y > 0, y, np.inf)], axis=-1)


def above(rng, n):
    return np.exp(rng.normal(0.0, 1.0, n))


# likelihood, parameter, log p(y | f, g) by SciPy, draws of y, f that belongs to y, y as the likelihood takes it
FAMILIES = {
    "student-t": (likelihoods.StudentT(4.0, LEVEL), "scale", lambda y, f, g: t.logpdf(y, 4.0, f, LEVEL * np.exp(g)),
                  lambda rng, n: rng.normal(0.0, 3.0, n), lambda y: y, np.asarray),
    "double-exponential": (likelihoods.DoubleExponential(LEVEL), "scale",
                           lambda y, f, g: laplace.logpdf(y, f, LEVEL * np.exp(g)),
                           lambda rng, n: rng.normal(0.0, 3.0, n), lambda y: y, np.asarray),
    "negative-binomial": (likelihoods.NegativeBinomial(LEVEL), "dispersion", counted,
                          lambda rng, n: rng.poisson(3.0, n).astype(float), lambda y: np.log(max(y, 0.5)), np.asarray),
    "zero-inflated-poisson": (likelihoods.ZeroInflatedPoisson(0.5), "inflation", with_more_zeros,
                              lambda rng, n: 1.0 * rng.poisson(1.5, n), lambda y: np.log(max(y, 0.5)), np.asarray),
    "gamma": (likelihoods.Gamma(LEVEL), "shape",
              lambda y, f, g: gamma.logpdf(y, LEVEL * np.exp(g), scale=np.exp(f - g) / LEVEL),
              above, np.log, np.asarray),
    "beta": (likelihoods.Beta(LEVEL), "precision",
             lambda y, f, g: beta.logpdf(y, LEVEL * np.exp(g) * norm.cdf(f), LEVEL * np.exp(g) * norm.cdf(-f)),
             lambda rng, n: rng.uniform(0.05, 0.95, n), norm.ppf, np.asarray),
    "weibull": (likelihoods.Weibull(LEVEL), "scale", of_times(weibull_min.logpdf, weibull_min.logsf),
                lambda rng, n: above(rng, n) * np.where(np.arange(n) % 3, 1.0, -1.0), lambda y: np.log(abs(y)),
             as_times),
    "log-logistic": (likelihoods.LogLogistic(LEVEL), "scale", of_times(fisk.logpdf, fisk.logsf),
                     lambda rng, n: above(rng, n) * np.where(np.arange(n) % 3, 1.0, -1.0), lambda y: np.log(abs(y)),
             as_times),
}  # fmt: skip


def of_family(family):
    """A model whose likelihood is one of a family, and y for the rows X."""
    if family == "gaussian":
        return MODEL, Y
    base, parameter, _, draws, _, taken = FAMILIES[family]
    return Model(kernel_of(), Varying(base, parameter)), taken(draws(np.random.default_rng(3), len(X)))
