"""High-precision reference values for one-dimensional projections.

For a likelihood p(y|f) and a cavity N(f|m, v), the tilted density is q(f) = p(y|f) N(f|m, v) / Z. Stored are
log Z, the mean and standard deviation of q, the Wasserstein-2 standard deviation, and for some records the
minimiser (mean, sd) of the L_p-Wasserstein distance to a Gaussian, p = 1, 1.5, 3. README.md lists the fields.

Method, sharing nothing with the library: ball arithmetic (python-flint); Chebyshev-Lobatto panels between
kinks, jumps, modes, the cavity mean and the likelihood's own place, halved until the last coefficients are
below 1e-24 of the mass (weighted with the squared distance from the mean); the CDF is the integral of the
Chebyshev series, summed from the nearer end. Everything is computed twice,
    A: degree 28, 160 bits, cut at exp(-110) of the peak, sd_W2 = integral of phi(Phi^-1(F(f))) df,
    B: degree 40, 200 bits, cut at exp(-130) of the peak, sd_W2 = E_q[(f - mean) Phi^-1(F(f))],
and log Z, mean, sd a third time where a closed form exists (Gaussian, probit, Heaviside, square Poisson).
The stored bound is the largest disagreement, radii of the balls included. The W_p minimisers are the roots of
the gradient of a convex function, by adaptive quadrature on both sets of panels; the panels' values of
f - mean - sd z are scaled to unit size first, so double precision is enough there.

Cost: about an hour on half a core, a quarter of it without W_p. Needs python-flint 0.9, numpy 2.4, scipy 1.17:

    python make_projection_reference.py                     # regenerate projection_reference.json.gz
    python make_projection_reference.py --only probit gamma # renew some likelihoods, keep the others
    python make_projection_reference.py --check 20          # recompute 20 random records and compare
"""

import argparse
import gzip
import itertools
import json
import math
import random
import time
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

import numpy as np
from flint import arb, arb_mat, ctx
from scipy.optimize import brentq, root

FILE = Path(__file__).with_name("projection_reference.json.gz")
TOL = 1e-24
RESOLUTIONS = ((28, 160, 110, "phi"), (40, 200, 130, "moment"))  # degree, bits, cut, form of sd_W2
CAVITIES, WITH_WP = 108, 30  # per likelihood and link

SIGNS = [{"y": 1}, {"y": -1}]
REALS = [{"y": 0.3}, {"y": -2.0}]
COUNTS = [{"y": y} for y in (0, 1, 3, 20, 150)] + [{"y": y, "exposure": 2.5} for y in (0, 3, 20)]
TRIALS = [{"y": k, "trials": n} for k, n in ((0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (37, 60), (1, 200))]
ROWS = [{"y": y} for y in ([0.4, 0.4], [0.4, math.inf], [-math.inf, -1.0], [-0.5, 2.0], [0.25, 0.375])]
CASES = {  # likelihood: (links, values of each parameter, data)
    "gaussian": ("", {"scale": (1.0, 0.1, 7.5)}, REALS),
    "probit": ("", {}, SIGNS),
    "logit": ("", {}, SIGNS),
    "heaviside": ("", {"noise": (0.0, 0.05)}, SIGNS),
    "poisson": ("exp square softplus", {}, COUNTS),
    "student-t": ("", {"df": (4.0, 2.5), "scale": (1.0, 0.1)}, REALS),
    "negative-binomial": ("exp square softplus", {"dispersion": (1.0, 0.2)}, COUNTS),
    "binomial": ("probit logit", {}, TRIALS),
    "double-exponential": ("", {"scale": (1.0, 0.1)}, REALS),
    "gamma": ("exp", {"shape": (1.0, 0.5, 8.0)}, [{"y": y} for y in (0.02, 1.3, 40.0)]),
    "beta": ("probit logit", {"precision": (1.0, 12.0)}, [{"y": y} for y in (0.01, 0.4, 0.95)]),
    "ordinal": ("", {"cutpoints": ([-1.0, 0.0, 1.5], [-0.2, 0.0, 0.3])}, [{"y": y} for y in range(4)]),
    "censored": ("", {"scale": (1.0, 0.1)}, ROWS),
}


# ---- log p(y|f) of each likelihood in ball arithmetic; f is a ball, everything else an exact float


def log_ndtr(x):
    """log Phi; far out through the confluent hypergeometric U, where erfc underflows even a ball."""
    if x > -1000:
        return ((-x * arb(0.5).sqrt()).erfc() / 2).log()
    t = x * x / 2
    return (t.hypgeom_u(arb(0.5), arb(0.5)) / (4 * arb.pi()).sqrt()).log() - t


def log_interval(lo, hi, f, scale):
    """log(Phi((hi - f) / scale) - Phi((lo - f) / scale)) from the tail where nothing cancels."""
    a, b = ((arb(c) - f) / scale if math.isfinite(c) else None for c in (lo, hi))
    if b is None or (a is not None and a + b > 0):
        a, b = (None if b is None else -b), -a
    return log_ndtr(b) + (0 if a is None else (-(log_ndtr(a) - log_ndtr(b)).exp()).log1p())


def square(x):
    return x * x  # a ball around zero to the power 2 is nan in python-flint


def softplus(f):
    return f + (-f).exp().log1p() if f > 0 else f.exp().log1p()


def rate(link, f):
    return f.exp() if link == "exp" else square(f) if link == "square" else softplus(f)


def xlogy(y, x):
    return arb(0) if y == 0 else arb(-10) ** 31 if x.is_zero() else y * x.log()


def log_probabilities(link, f):
    return (log_ndtr(f), log_ndtr(-f)) if link == "probit" else (-softplus(-f), -softplus(f))


def gaussian(f, y, scale):
    return -square((y - f) / scale) / 2 - (2 * arb.pi()).log() / 2 - arb(scale).log()


def heaviside(f, y, noise):
    return (1 - arb(noise)).log() if y * f > 0 else arb(noise).log()


def poisson(f, y, link, exposure=1.0):
    mean = exposure * rate(link, f)
    return xlogy(y, mean) - mean - arb(y + 1).lgamma()


def student_t(f, y, df, scale):
    const = (arb(df + 1) / 2).lgamma() - (arb(df) / 2).lgamma() - (df * arb.pi()).log() / 2 - arb(scale).log()
    return const - arb(df + 1) / 2 * (square((y - f) / scale) / df).log1p()


def negative_binomial(f, y, dispersion, link, exposure=1.0):
    mean, n = exposure * rate(link, f), 1 / arb(dispersion)
    const = (n + y).lgamma() - n.lgamma() - arb(y + 1).lgamma() + n * n.log()
    return const - (n + y) * (n + mean).log() + xlogy(y, mean)


def binomial(f, y, trials, link):
    const = arb(trials + 1).lgamma() - arb(y + 1).lgamma() - arb(trials - y + 1).lgamma()
    log_p, log_q = log_probabilities(link, f)
    return const + y * log_p + (trials - y) * log_q


def gamma(f, y, shape, link):
    k = arb(shape)
    return k * k.log() + (k - 1) * arb(y).log() - k.lgamma() - k * f - k * y * (-f).exp()


def beta(f, y, precision, link):
    log_p, log_q = log_probabilities(link, f)
    a, b, s = precision * log_p.exp(), precision * log_q.exp(), arb(precision)
    gammas = (1 + a).lgamma() - log_p + (1 + b).lgamma() - log_q - 2 * s.log()  # log Gamma(a) + log Gamma(b)
    return s.lgamma() - gammas + (a - 1) * arb(y).log() + (b - 1) * (1 - arb(y)).log()


def ordinal(f, y, cutpoints):
    edges = [-math.inf, *cutpoints, math.inf]
    return log_interval(edges[y], edges[y + 1], f, 1.0)


def censored(f, y, scale):
    return gaussian(f, y[0], scale) if y[0] == y[1] else log_interval(*y, f, scale)


LOG_P = {
    "gaussian": gaussian,
    "probit": lambda f, y: log_ndtr(y * f),
    "logit": lambda f, y: -softplus(-y * f),
    "heaviside": heaviside,
    "poisson": poisson,
    "student-t": student_t,
    "negative-binomial": negative_binomial,
    "binomial": binomial,
    "double-exponential": lambda f, y, scale: -abs(y - f) / scale - arb(2 * scale).log(),
    "gamma": gamma,
    "beta": beta,
    "ordinal": ordinal,
    "censored": censored,
}


def place_and_width(r):
    """Where the likelihood lives and how wide it is there, roughly: for cavities and for the first panels."""
    par, y = r["params"], r["y"]
    link, width = par.get("link"), par.get("scale", 1.0)
    if r["likelihood"] in ("ordinal", "censored"):
        ends = [-math.inf, *par["cutpoints"], math.inf][y : y + 2] if "cutpoints" in par else y
        finite = [c for c in ends if math.isfinite(c)]
        return sum(finite) / len(finite), width
    if link in ("probit", "logit"):
        p = (y + 0.5) / (r["trials"] + 1) if "trials" in r else y
        return NormalDist().inv_cdf(p) if link == "probit" else math.log(p / (1 - p)), width
    if link:
        mean = max(y, 0.5 if type(y) is int else 0) / r.get("exposure", 1.0)
        inverse = {"exp": math.log, "square": math.sqrt, "softplus": lambda x: math.log(math.expm1(x))}
        return inverse[link](mean), width
    return (y, width) if width != 1.0 or "scale" in par else (0.0, 1.0)


def kinks(r):
    if r["likelihood"] == "double-exponential":
        return [r["y"]]
    return [0.0] if r["likelihood"] == "heaviside" or r["params"].get("link") == "square" else []


def support(r):
    if r["params"].get("noise") == 0:
        return (0.0, math.inf) if r["y"] > 0 else (-math.inf, 0.0)
    return -math.inf, math.inf


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


def landmarks(r, log_q, cut):
    """Break points out to exp(-cut) of the peak (special places, local maxima on a geometric grid, a ladder
    around them), and the peak of log q."""
    (lo, hi), m, (place, width) = support(r), r["mean"], place_and_width(r)
    special = {m, place, -place if r["params"].get("link") == "square" else place, *kinks(r)}
    s = math.sqrt(r["variance"])
    base, far = 1e-3 * min(s, width), 40 * (s + width + abs(m - place))
    steps = [0.0, *(base * 2.0**k for k in range(int(math.log2(far / base)) + 2))]

    def ladder(places, every):
        return {x for c in places for d in steps[::every] for x in (c - d, c + d) if lo < x < hi}

    def level(x):
        return log_q(arb(x), x).mid()

    grid = sorted(ladder(special, 1))
    high = [level(x) for x in grid]
    tops = [i for i in range(1, len(grid) - 1) if high[i] >= high[i - 1] and high[i] >= high[i + 1]]
    modes = {highest(level, grid[i - 1], grid[i + 1]) for i in tops}
    grid = sorted({*grid, *modes})
    high = [level(x) for x in grid]
    peak = max(high)
    keep = [i for i, value in enumerate(high) if value > peak - cut]
    first = grid[keep[0] - 1] if keep[0] > 0 else lo
    last = grid[keep[-1] + 1] if keep[-1] + 1 < len(grid) else hi
    places = [x for x in special | modes if lo < x < hi and level(x) > peak - cut]
    inside = {x for x in ladder(places, 4) | special | modes if first < x < last}
    return sorted(inside | {first, last}), peak


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


def solve(r, degree, bits, cut, form):
    """All values of one record at one resolution as balls, and the W_p minimisers where asked for."""
    ctx.prec = bits
    m, v, level = arb(r["mean"]), arb(r["variance"]), arb(0)
    data = {"y": r["y"], **r["params"], **{k: r[k] for k in ("exposure", "trials") if k in r}}

    def log_q(f, inside):  # at a jump, a point inside the panel says which side is meant
        log_p = LOG_P[r["likelihood"]](inside if r["likelihood"] == "heaviside" else f, **data)
        return log_p - square(f - m) / (2 * v)

    def density(f, inside):
        value = log_q(f, inside) - level
        return arb(0) if value < -200 else value.exp()

    points, level = landmarks(r, log_q, cut)
    panels, mass, delta, sd = resolve(density, points, degree, m)
    panels, ratio = quantile_panels(panels, mass, m + delta, sd, form)
    w2 = ratio * sd
    log_z = mass.log() + level - (2 * arb.pi() * v).log() / 2
    out = {"log_z": log_z, "tilted_mean": m + delta, "tilted_sd": sd, "w2_sd": w2}
    out |= {"mean_minus_cavity_mean": delta, "shrink_kl": 1 - sd**2 / v, "shrink_w2": 1 - w2**2 / v}
    return out, wasserstein_p(panels, mass, m + delta, w2) if r["wp"] else None


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


# ---- records --------------------------------------------------------------------------------------


def closed_form(r):
    """log Z, mean, sd where they are known in closed form, else nothing."""
    name, y, m, v, par = r["likelihood"], r["y"], arb(r["mean"]), arb(r["variance"]), r["params"]
    if name == "gaussian":
        s = arb(par["scale"]) ** 2
        log_z = -(square(y - m) / (v + s) + (2 * arb.pi() * (v + s)).log()) / 2
        return log_z, (m * s + y * v) / (v + s), (v * s / (v + s)).sqrt()
    if name in ("probit", "heaviside"):
        e, scale = arb(par.get("noise", 0.0)), (1 + v if name == "probit" else v).sqrt()
        z = y * m / scale
        mass = e + (1 - 2 * e) * log_ndtr(z).exp()
        g = (1 - 2 * e) * (-z * z / 2).exp() / (2 * arb.pi()).sqrt() / mass
        return mass.log(), m + y * v * g / scale, (v - (v / scale) ** 2 * g * (z + g)).sqrt()
    if name == "poisson" and par["link"] == "square":  # moments of a Gaussian, all terms positive
        c = arb(r.get("exposure", 1.0))
        scale = 1 + 2 * c * v
        moments = [arb(1), abs(m) / scale]
        for k in range(2, 2 * y + 3):
            moments.append((abs(m) * moments[-1] + (k - 1) * v * moments[-2]) / scale)
        zeroth, first, second = moments[2 * y :]
        log_z = y * c.log() - arb(y + 1).lgamma() - c * m * m / scale - scale.log() / 2 + zeroth.log()
        return log_z, first / zeroth * m.sgn(), (second / zeroth - (first / zeroth) ** 2).sqrt()
    return ()


def compute(r):
    """The record with its values and bounds."""
    (coarse, wp_coarse), (fine, wp) = (solve(r, *how) for how in RESOLUTIONS)
    sd, w2 = fine["tilted_sd"], fine["w2_sd"]
    units = {"log_z": 1 + abs(fine["log_z"]), "tilted_mean": sd, "tilted_sd": sd, "w2_sd": w2}
    units |= {"mean_minus_cavity_mean": sd, "shrink_kl": arb(1), "shrink_w2": arb(1)}
    off = {k: float((abs(coarse[k] - fine[k]) / u).upper()) for k, u in units.items()}
    exact = dict(zip(units, closed_form(r), strict=False))
    off |= {k: max(off[k], float((abs(x - fine[k]) / units[k]).upper())) for k, x in exact.items()}
    out = {k: x for k, x in r.items() if k != "wp"} | {k: float(x) for k, x in fine.items()}
    assert all(math.isfinite(fine[k]) and off[k] < 1e-12 for k in units), (out, off)
    out["bound"] = float(f"{max(list(off.values())[:4]):.2g}")
    out["bound_small"] = float(f"{max(list(off.values())[4:]):.2g}")
    if wp:
        error = {p: max(abs(np.subtract(wp[p], wp_coarse[p]))) for p in wp}
        values = {p: [float(fine["tilted_mean"] + a * w2), float(w2 * (1 + b))] for p, (a, b) in wp.items()}
        out["wp"] = {p: x if error[p] < 1e-9 else None for p, x in values.items()}
        out["wp_bound"] = float(f"{max((e for e in error.values() if e < 1e-9), default=0.0) + 1e-11:.2g}")
    return out


def groups(names):
    return [(name, link) for name in names for link in CASES[name][0].split() or [None]]


def inputs(likelihood, link):
    """First the extremes (sd 1e-3 and 1e3, mean 0 and +-10 sd away), then seeded random cavities."""
    _, parameters, data = CASES[likelihood]
    choices = [dict(zip(parameters, c, strict=True)) for c in itertools.product(*parameters.values())]
    cases = [(params | ({"link": link} if link else {}), datum) for params in choices for datum in data]
    rng, with_wp = random.Random(f"{likelihood} {link}"), {i * CAVITIES // WITH_WP for i in range(WITH_WP)}
    extremes = [(sd, off * sd) for off in (-10.0, 10.0, 0.0) for sd in (1e-3, 1e3)] * 3
    for i in range(CAVITIES):
        params, datum = cases[i % len(cases)]
        r = {"likelihood": likelihood, "params": params, **datum}
        place, width = place_and_width(r)
        sd = 10 ** rng.uniform(-3, 3)
        away = rng.uniform(-10, 10) * (max(sd, width) if i % 2 else sd)
        if i < len(extremes):
            sd, away = extremes[i]
        yield r | {"mean": place + away, "variance": sd * sd, "wp": i in with_wp}


def check(stored, number):
    keys = ("likelihood", "params", "y", "exposure", "trials", "mean", "variance")
    for old in random.sample(stored, number):
        new = compute({k: old[k] for k in keys if k in old} | {"wp": "wp" in old})
        values = [(new[k], old[k]) for k in ("log_z", "tilted_mean", "tilted_sd", "w2_sd", "shrink_kl")]
        assert all(math.isclose(a, b, rel_tol=1e-14) for a, b in values), (new, old)
        for p, pair in old.get("wp", {}).items():
            assert np.allclose(new["wp"][p], pair, rtol=1e-14, atol=1e-9 * old["w2_sd"]), (p, new, old)
        print(
            json.dumps({k: new[k] for k in (*keys, "bound", "bound_small", "wp_bound") if k in new}),
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=int, metavar="N", help="recompute N random records and compare")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="renew these likelihoods")
    args = parser.parse_args()
    stored = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else []
    if args.check:
        return check(stored, args.check)
    done = {key: [] for key in groups(CASES)}
    for r in stored:
        done[r["likelihood"], r["params"].get("link")].append(r)
    for key in groups(args.only):
        start = time.time()
        done[key] = [compute(r) for r in inputs(*key)]
        text = json.dumps([r for g in done.values() for r in g], separators=(",", ":"))
        FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        worst = {k: max(r.get(k, 0) for r in done[key]) for k in ("bound", "bound_small", "wp_bound")}
        print(*key, len(done[key]), f"{time.time() - start:.0f} s", worst, flush=True)


if __name__ == "__main__":
    main()
