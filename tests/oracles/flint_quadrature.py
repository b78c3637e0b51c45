"""Integrals of a one-dimensional density in ball arithmetic, for make_projection_reference.py.

A density is given on Chebyshev-Lobatto panels between break points, halved until the last coefficients are below
TOL of the mass (weighted with the squared distance from the mean); the CDF is the integral of the Chebyshev series,
summed from the nearer end. The minimisers of the L_p-Wasserstein distance to a Gaussian are the roots of the gradient
of a convex function, by adaptive quadrature on the same panels; the panels' values of f - mean - sd z are scaled to
unit size first, so double precision is enough there. The working precision is flint's `ctx.prec`, set by the caller.
Needs python-flint 0.9, numpy 2.4, scipy 1.17.
"""

import itertools
import math
from functools import lru_cache

import numpy as np
from flint import arb, arb_mat, ctx
from scipy.optimize import brentq, root

TOL = 1e-24


def square(x):
    return x * x  # a ball around zero to the power 2 is nan in python-flint


# ---- panels ---------------------------------------------------------------------------------------


@lru_cache(None)
def chebyshev(n, bits):
    """Nodes on [-1, 1]; maps from values to the last four coefficients, the integral up to each node, the
    whole integral, all coefficients (in double precision)."""
    t = [[(-1) ** k * arb.cos_pi(arb(j * k % (2 * n)) / n) for j in range(n + 1)] for k in range(n + 2)]
    half = [0.5 if j in (0, n) else 1.0 for j in range(n + 1)]
    coefficients = [[t[k][j] * half[k] * half[j] * 2 / n for j in range(n + 1)] for k in range(n + 1)]

    def primitive(k, j):
        if k < 2:
            return square(t[1][j]) / 2 if k else t[1][j]
        return t[k + 1][j] / (2 * k + 2) - t[k - 1][j] / (2 * k - 2)

    integrals = [[primitive(k, j) - primitive(k, 0) for k in range(n + 1)] for j in range(n + 1)]
    cumulative = arb_mat(integrals) * arb_mat(coefficients)
    weights = [cumulative[n, j] for j in range(n + 1)]
    return t[1], arb_mat(coefficients[-4:]), cumulative, weights, np.array(coefficients, dtype=float)


def column(values):
    return arb_mat(len(values), 1, values)


def total(balls):
    return sum(balls, arb(0))


class Panel:
    """Values of the (unnormalised) tilted density at the nodes of [a, b], and their integrals."""

    def __init__(self, density, a, b, degree):
        nodes, self.last, cumulative, weights, _ = chebyshev(degree, ctx.prec)
        self.density, self.a, self.b, self.degree, self.half = density, a, b, degree, (b - a) / 2
        middle = (a + b) / 2
        self.f = [a, *(middle + self.half * x for x in nodes[1:-1]), b]
        self.q = [density(f, middle) for f in self.f]
        self.weights = [self.half * w for w in weights]
        self.left = [self.half * c for c in (cumulative * column(self.q)).entries()]
        self.mass, self.error = self.left[-1], self.tail(self.q)

    def tail(self, values):
        """Size of the last four Chebyshev coefficients times the panel's length."""
        return max(abs(float(c)) for c in (self.last * column(values)).entries()) * float(self.b - self.a)

    def integral(self, values):
        return total(w * v for w, v in zip(self.weights, values, strict=True))

    def mean(self, of):
        return self.integral([q * of(f) for f, q in zip(self.f, self.q, strict=True)])

    def halves(self):
        middle = ((self.a + self.b) / 2).mid()
        ends = ((self.a, middle), (middle, self.b))
        return [Panel(self.density, a, b, self.degree) for a, b in ends]


def highest(fun, a, b):
    """Place of the maximum of a function with one maximum on [a, b]."""
    for _ in range(110):
        c, d = a + (b - a) / 3, b - (b - a) / 3
        a, b = (a, d) if fun(c) > fun(d) else (c, b)
    return (a + b) / 2


def resolve(density, points, degree, centre):
    """Halve panels until mass and second moment are known to TOL: panels, mass, mean - centre, sd."""
    panels = [Panel(density, arb(a), arb(b), degree) for a, b in itertools.pairwise(points)]
    while True:
        mass = total(p.mass for p in panels)
        delta = total(p.mean(lambda f: f - centre) for p in panels) / mass
        mean = centre + delta
        variance = total(p.mean(lambda f, mean=mean: square(f - mean)) for p in panels) / mass
        sd = variance.sqrt() if variance > 0 else arb(1)
        reach = [max(abs(float((end - mean) / sd)) for end in (p.a, p.b)) for p in panels]
        bad = [p.error * (1 + x * x) > TOL * float(mass) for p, x in zip(panels, reach, strict=True)]
        if not any(bad):
            return panels, mass, delta, sd
        panels = [h for p, split in zip(panels, bad, strict=True) for h in (p.halves() if split else [p])]


def normal_quantile(lower, upper):
    """Phi^-1 from the smaller tail probability; None beyond 1e-36."""
    small = lower if lower < upper else upper
    if not small > 1e-36:
        return None
    z = (1 - 2 * small).erfinv() if small > 0.2 else (2 * small).erfcinv()
    return (-z if lower < upper else z) * arb(2).sqrt()


def w2_integrand(p, mass, mean, sd, form):
    if form == "phi":
        return [arb(0) if z is None else (-z * z / 2).exp() / (2 * arb.pi()).sqrt() / sd for z in p.z]
    rows = zip(p.f, p.q, p.z, strict=True)
    return [arb(0) if z is None else q / mass * (f - mean) / sd * z for f, q, z in rows]


def quantile_panels(panels, mass, mean, sd, form):
    """Panels with z = Phi^-1(F) at the nodes, halved until the W2 integrand is resolved; and sd_W2 / sd."""
    below, above, ratio, done, stack = arb(0), arb(0), arb(0), [], []
    for p in reversed(panels):
        stack.append((p, above))  # a panel and the mass to the right of it
        above += p.mass
    while stack:
        p, above = stack.pop()
        p.z = [normal_quantile((below + c) / mass, (above + p.mass - c) / mass) for c in p.left]
        values = w2_integrand(p, mass, mean, sd, form)
        if p.tail(values) > TOL or (None in p.z and p.mass > 1e-20 * mass):
            one, two = p.halves()
            stack += [(two, above), (one, above + two.mass)]
        else:
            ratio, below = ratio + p.integral(values), below + p.mass
            done.append(p)
    return done, ratio


# ---- the L_p-Wasserstein minimisers ---------------------------------------------------------------


def wasserstein_p(panels, mass, mean, sd):
    """{p: (alpha, beta)} for the minimisers mean + alpha sd, sd (1 + beta). Convex: stationary is minimal."""
    reach = (max(abs(float((end - mean) / sd)) for end in (p.a, p.b)) for p in panels)
    heavy = [p.mass * (1 + x * x) > 1e-17 * mass for p, x in zip(panels, reach, strict=True)]
    panels = [p for p, keep in zip(panels, heavy, strict=True) if keep and None not in p.z]
    weight, density, z, rho = (np.empty((len(panels), panels[0].degree + 1)) for _ in range(4))
    for i, p in enumerate(panels):
        weight[i] = [w * q / mass for w, q in zip(p.weights, p.q, strict=True)]
        density[i] = [p.half * q / mass for q in p.q]
        z[i] = p.z
        rho[i] = [(f - mean) / sd - x for f, x in zip(p.f, p.z, strict=True)]
    out = {}
    for p in (3.0, 1.5, 1.0):
        size = (weight * np.abs(rho) ** p).sum() ** (1 / p)  # about the W_p distance
        out[f"{p:g}"] = (0.0, 0.0)
        if size > 1e-11:  # else q is Gaussian, to what is asked of these values
            coef = np.stack([density, z, rho / size], axis=1) @ chebyshev(panels[0].degree, ctx.prec)[4].T
            found = root(stationarity, np.zeros(2), args=(coef, p), method="hybr", tol=1e-13)
            best = found.x if np.abs(found.fun).max() < 1e-12 else nested_root(coef, p)
            out[f"{p:g}"] = tuple((size * best).tolist())
    return out


def nested_root(coef, p):
    """The same root, one variable inside the other: slow and sure; nan if it is out of reach."""

    def inner(b):
        return brentq(lambda a: stationarity((a, b), coef, p)[0], -20, 20, xtol=1e-12)

    try:
        b = brentq(lambda b: stationarity((inner(b), b), coef, p)[1], -20, 20, xtol=1e-12)
        return np.array([inner(b), b])
    except ValueError:
        return np.full(2, math.nan)


def stationarity(c, coef, p):
    """E[sign(e) |e|^(p-1) (1, z)], e = rho - c_0 - c_1 z, from the Chebyshev coefficients of (q, z, rho) on
    each panel; segments (panel, a, b) are halved until e keeps its sign (p < 2) and a 16-point Gauss
    rule agrees with its halves."""
    x, w = np.polynomial.legendre.leggauss(16)
    x, w = np.array([-1, *x, 1]), np.array([0, *w, 0])

    def integrate(panel, a, b):
        angle = np.arccos((a + b)[:, None] / 2 + (b - a)[:, None] / 2 * x)
        basis = np.cos(np.arange(coef.shape[2])[:, None] * angle[:, None, :])
        density, z, rho = np.moveaxis(coef[panel] @ basis, 1, 0)
        e = rho - c[0] - c[1] * z
        g = density * np.sign(e) * np.abs(e) ** (p - 1) * w * (b - a)[:, None] / 2
        return np.stack([g.sum(1), (g * z).sum(1)]), (np.ptp(np.sign(e), axis=1) > 0) & (p < 2)

    panel = np.arange(len(coef))
    a, b, result = np.full(len(panel), -1.0), np.full(len(panel), 1.0), np.zeros(2)
    whole, turns = integrate(panel, a, b)
    while len(panel):
        mid = (a + b) / 2
        (left, one), (right, two) = integrate(panel, a, mid), integrate(panel, mid, b)
        bad = (turns | (np.abs(left + right - whole).max(0) > 1e-16)) & (b - a > 1e-14) & (len(panel) < 3000)
        result += (left + right)[:, ~bad].sum(1)
        a, b = np.concatenate([a[bad], mid[bad]]), np.concatenate([mid[bad], b[bad]])
        turns = np.concatenate([one[bad], two[bad]])
        panel, whole = np.tile(panel[bad], 2), np.concatenate([left[:, bad], right[:, bad]], axis=1)
    return result
