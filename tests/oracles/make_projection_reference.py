"""High-precision reference values for one-dimensional projections.

For a likelihood p(y|f) and a cavity N(f|m, v), the tilted density is q(f) = p(y|f) N(f|m, v) / Z. Stored are
log Z, the mean and standard deviation of q, the Wasserstein-2 standard deviation, and for some records the
minimiser (mean, sd) of the L_p-Wasserstein distance to a Gaussian, p = 1, 1.5, 3. README.md lists the fields.

Method, sharing nothing with the library: ball arithmetic (python-flint) on Chebyshev panels between kinks, jumps,
modes, the cavity mean and the likelihood's own place (flint_quadrature.py). Everything is computed twice,
    A: degree 28, 160 bits, cut at exp(-110) of the peak, sd_W2 = integral of phi(Phi^-1(F(f))) df,
    B: degree 40, 200 bits, cut at exp(-130) of the peak, sd_W2 = E_q[(f - mean) Phi^-1(F(f))],
and log Z, mean, sd a third time where a closed form exists (Gaussian, probit, Heaviside, square Poisson).
The stored bound is the largest disagreement, radii of the balls included. The W_p minimisers are found on both sets
of panels.

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
from pathlib import Path
from statistics import NormalDist

import numpy as np
from flint import arb, ctx
from flint_quadrature import highest, quantile_panels, resolve, square, wasserstein_p

FILE = Path(__file__).with_name("projection_reference.json.gz")
RESOLUTIONS = ((28, 160, 110, "phi"), (40, 200, 130, "moment"))  # degree, bits, cut, form of sd_W2
CAVITIES, WITH_WP = 108, 30  # per likelihood and link
MOMENTS_ONLY = (
    "zero-inflated-poisson",
    "zero-inflated-negative-binomial",
    "warped",
)  # without W_p, which takes longest

SIGNS = [{"y": 1}, {"y": -1}]
REALS = [{"y": 0.3}, {"y": -2.0}]
COUNTS = [{"y": y} for y in (0, 1, 3, 20, 150)] + [{"y": y, "exposure": 2.5} for y in (0, 3, 20)]
TRIALS = [{"y": k, "trials": n} for k, n in ((0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (37, 60), (1, 200))]
ROWS = [{"y": y} for y in ([0.4, 0.4], [0.4, math.inf], [-math.inf, -1.0], [-0.5, 2.0], [0.25, 0.375])]
TIMES = [{"y": y} for y in ([1.3, 1.3], [0.7, math.inf], [0.0, 0.5], [0.5, 2.0], [1.0, 1.25])]
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
    "zero-inflated-poisson": ("exp square softplus", {"inflation": (0.3, 0.02)}, COUNTS),
    "zero-inflated-negative-binomial": (
        "exp square softplus",
        {"inflation": (0.3, 0.02), "dispersion": (1.0, 0.2)},
        COUNTS,
    ),
    "weibull": ("", {"scale": (1.0, 0.3)}, TIMES),
    "log-logistic": ("", {"scale": (1.0, 0.3)}, TIMES),
    "warped": (
        "",
        {"scale": (1.0, 0.1), "heights": ([0.8, 0.3],), "widths": ([0.5, 2.0],), "centres": ([-0.4, 0.9],)},
        REALS,
    ),
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


def inflated(log_p, y, inflation):
    log_p = log_p + (1 - arb(inflation)).log()
    return (arb(inflation) + log_p.exp()).log() if y == 0 else log_p


def standardised(f, y, scale):
    """(log y - f) / scale of the ends of a row; None for an open one."""
    return [(arb(end).log() - f) / scale if 0 < end < math.inf else None for end in y]


def weibull(f, y, scale):
    low, high = standardised(f, y, scale)
    if y[0] == y[1]:
        return high - high.exp() - arb(scale).log() - arb(y[0]).log()
    alive = arb(0) if low is None else low.exp()
    return -alive if high is None else -alive + (-(-(high.exp() - alive)).expm1()).log()


def log_logistic(f, y, scale):
    low, high = standardised(f, y, scale)
    died, outlived = (arb(0) if w is None else softplus(w) for w in (None if high is None else -high, low))
    if y[0] == y[1]:
        return -died - outlived - arb(scale).log() - arb(y[0]).log()
    apart = arb(0) if low is None or high is None else (-(low - high).expm1()).log()
    return apart - died - outlived


def warped(f, y, scale, heights, widths, centres):
    steps = [((arb(y) - c) / w).tanh() for w, c in zip(widths, centres, strict=True)]
    slope = 1 + sum(a / arb(w) * (1 - square(t)) for a, w, t in zip(heights, widths, steps, strict=True))
    z = y + sum(a * t for a, t in zip(heights, steps, strict=True))
    return gaussian(f, z, scale) + slope.log()


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
    "zero-inflated-poisson": lambda f, y, inflation, **more: inflated(poisson(f, y, **more), y, inflation),
    "zero-inflated-negative-binomial": lambda f, y, inflation, **more: inflated(
        negative_binomial(f, y, **more), y, inflation
    ),
    "weibull": weibull,
    "log-logistic": log_logistic,
    "warped": warped,
}


def place_and_width(r):
    """Where the likelihood lives and how wide it is there, roughly: for cavities and for the first panels."""
    par, y = r["params"], r["y"]
    link, width = par.get("link"), par.get("scale", 1.0)
    if r["likelihood"] in ("ordinal", "censored"):
        ends = [-math.inf, *par["cutpoints"], math.inf][y : y + 2] if "cutpoints" in par else y
        finite = [c for c in ends if math.isfinite(c)]
        return sum(finite) / len(finite), width
    if r["likelihood"] in ("weibull", "log-logistic"):
        ends = [math.log(end) for end in y if 0 < end < math.inf]
        return sum(ends) / len(ends), width
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


# ---- one record, one resolution -------------------------------------------------------------------


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
    with_wp = set() if likelihood in MOMENTS_ONLY else with_wp
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
