"""Reference values of the probit variance ratio ρ(z, v) = σ_W²/σ_EP², in ball arithmetic.

Independent of studies/probit_table/build.py: there float64 Gauss-Legendre panels give the residual of the
transport map; here σ_W = ∫ φ(Φ⁻¹(F(u))) du is a double-exponential trapezoidal sum at PRECISION bits, its F
integrated rigorously by FLINT. Each value is computed with two step sizes, and their difference, which is the
error of the coarser one, is stored as the bound.

Needs python-flint; three minutes on one core.
"""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path

from flint import acb, arb, ctx

PRECISION = 320
TAIL = 75  # a tail below exp(-TAIL) ~ 1e-33 is left out
STEP = 1 / 24
OUTPUT = Path(__file__).with_name("probit_ratio_reference.json")


def normal_density(x: arb) -> arb:
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def normal_cdf(x):
    return (-x / arb(2).sqrt()).erfc() / 2


def quantile_density(tail: arb) -> arb:
    """φ(Φ⁻¹(F)) from the smaller of F and 1 − F."""
    x = (2 * tail).erfcinv()
    return (-x * x).exp() / (2 * arb.pi()).sqrt()


def nodes(scale: arb, furthest: arb, step: float) -> list[tuple[arb, arb]]:
    """(x, weight) of the trapezoidal rule in t for x = scale exp(t − exp(−t)), x ∈ (0, furthest]."""
    rule, k = [], math.ceil(-4.0 / step)  # x = 1e-25 scale
    while True:
        t = arb(k) * arb(step)
        x = scale * (t - (-t).exp()).exp()
        if x > furthest:
            return rule
        rule.append((x, x * (1 + (-t).exp()) * arb(step)))
        k += 1


def half_width(density_log, centre: arb, direction: int, scale: arb) -> arb:
    """A distance from the centre beyond which the log density has dropped by TAIL."""
    peak, distance = density_log(centre), scale
    while density_log(centre + direction * distance) > peak - TAIL:
        distance = distance * arb(1.25)
    return distance


def tail_sums(density, centre: arb, direction: int, xs: list[arb], furthest: arb) -> list[arb]:
    """Mass beyond centre + direction * x, for each x (rising), and beyond the centre itself (first)."""

    def between(a: arb, b: arb) -> arb:
        return acb.integral(lambda x, _: density(centre + direction * x), a, b, rel_tol=arb(2) ** -120).real

    edges = [arb(0), *xs, furthest * arb(1.1)]
    masses = [between(a, b) for a, b in pairwise(edges)]
    total, sums = arb(0), []
    for mass in reversed(masses):
        total = (total + mass).mid()  # relative rounding 2^-PRECISION, far below the bound asked
        sums.append(total)
    return sums[::-1]


def transport_deviation(z: arb, v: arb, step: float) -> arb:
    """σ_W of u = (f − m)/√v, whose density is φ(u) Φ((z + a u)/k), a = sin θ, k = cos θ."""
    a, k = (v / (1 + v)).sqrt(), 1 / (1 + v).sqrt()
    normaliser = normal_cdf(z)
    hazard = normal_density(z) / normaliser
    mean, deviation = a * hazard, (1 - a * a * hazard * (z + hazard)).sqrt()
    edge = -z / a
    sharp = bool(k < deviation / 4) and bool(abs(edge - mean) < 12 * deviation)
    centre, scale = (edge.mid(), k) if sharp else (mean.mid(), deviation)  # start from the finer scale

    def density_log(u: arb) -> arb:
        return (-u * u / 2 + normal_cdf((z + a * u) / k).log()).mid()

    offset = density_log(centre)  # of order one, for FLINT's integral stops at an absolute tolerance too

    def density(u: acb) -> acb:
        return (-u * u / 2 - offset).exp() * normal_cdf((z + a * u) / k)

    sides = []
    for direction in (-1, 1):
        furthest = half_width(density_log, centre, direction, scale)
        rule = nodes(scale, furthest, step)
        sides.append((rule, tail_sums(density, centre, direction, [x for x, _ in rule], furthest)))
    total = sides[0][1][0] + sides[1][1][0]
    value = arb(0)
    for rule, sums in sides:
        for (_, weight), mass in zip(rule, sums[1:], strict=True):
            tail = mass / total
            value += weight * quantile_density(tail if tail < 0.5 else 1 - tail)
    return value.mid()


def heaviside_deviation(z: arb, step: float) -> arb:
    """v = ∞: u is normal truncated to u > −z, and 1 − F(u) = Φ(−u)/Φ(z) in closed form."""
    normaliser, hazard = normal_cdf(z), normal_density(z) / normal_cdf(z)
    deviation = (1 - hazard * (z + hazard)).sqrt()
    furthest = half_width(lambda u: -u * u / 2, -z if z < 0 else arb(0), 1, deviation) + max(z, arb(0))
    value = arb(0)
    for x, weight in nodes(deviation, furthest, step):
        upper = normal_cdf(z - x) / normaliser
        value += weight * quantile_density(upper if upper < 0.5 else 1 - upper)
    return value.mid()


def ratio(z: float, v: float, step: float) -> arb:
    z_ball = arb(z)
    hazard = normal_density(z_ball) / normal_cdf(z_ball)
    shrink = arb(1) if math.isinf(v) else arb(v) / (1 + arb(v))
    variance = 1 - shrink * hazard * (z_ball + hazard)
    if math.isinf(v):
        return heaviside_deviation(z_ball, step) ** 2 / variance
    return transport_deviation(z_ball, arb(v), step) ** 2 / variance


def points() -> list[tuple[float, float]]:
    """Every region, its corners, and random points of the part where the ratio moves."""
    grid_z = (-1e3, -150.0, -40.0, -12.0, -5.0, -2.0, 0.0, 1.0, 3.0, 6.0, 40.0, 1e3)
    grid_deviation = (1e-8, 1e-2, 0.3, 1.0, 4.0, 20.0, 150.0, 1e4, 1e6)
    heaviside_z = (-1e3, -40.0, -8.0, -3.0, -1.0, 0.0, 0.7, 2.0, 4.0, 6.0, 8.0)
    rng = random.Random(20240607)
    chosen = [(z, d * d) for z in grid_z for d in grid_deviation] + [(z, math.inf) for z in heaviside_z]
    chosen += [(rng.uniform(-8, 7), math.exp(rng.uniform(-4, 10))) for _ in range(50)]
    for _ in range(25):  # the corner: z cos θ = −x of order one
        z, x = -math.exp(rng.uniform(1, 6.9)), math.exp(rng.uniform(-4, 2))
        chosen.append((z, (z / x) ** 2))
    return chosen


def main() -> None:
    ctx.prec = PRECISION
    records = []
    for z, v in points():
        ctx.prec = PRECISION + 2 * math.ceil(math.log2(1 + z * z))  # 1 − n(z + n) cancels like 1/z²
        coarse, fine = ratio(z, v, STEP), ratio(z, v, STEP / 2)
        bound = abs(float((fine - coarse).mid()))
        records.append({"z": z, "v": v, "rho": fine.str(25, radius=False), "bound": bound})
        print(len(records), records[-1], flush=True)
    assert max(record["bound"] for record in records) <= 1e-13
    OUTPUT.write_text("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n")


if __name__ == "__main__":
    main()
