"""A comparison in two or three sentences: what can be told apart, and how well calibrated the method looked at is."""

from __future__ import annotations

import math

from quantprop.comparison import Comparison, Estimate
from quantprop.report.names import called, listed

NEGLIGIBLE = 1e-4  # nats per row: methods that agree in theory differ by their tolerances


def sign(difference: Estimate) -> int:
    """+1 or −1 where a difference in NTLL is clear at the 95 % level, 0 where it is not."""
    value = difference.value
    if math.isinf(value):  # outcomes that were said to be impossible
        return 1 if value > 0 else -1
    return 0 if not abs(value) > max(difference.margin, NEGLIGIBLE) else 1 if value > 0 else -1


def conclusion(found: Comparison) -> str:
    """The comparison by NTLL in words."""
    first = called(found.first.method)
    told = {one.method: sign(one.less(found.first)["ntll"]) for one in found.all[1:]}
    groups = {which: [_name(method) for method, of in told.items() if of == which] for which in (-1, 1, 0)}
    parts = []
    if groups[-1]:
        parts.append(f"{listed(groups[-1])} forecast{'s' * (len(groups[-1]) == 1)} better than {first}")
    if groups[1]:
        parts.append(f"{first} forecasts better than {listed(groups[1])}")
    if groups[0]:
        parts.append(f"no difference between {first} and {listed(groups[0]).replace(' and ', ' or ')} can be told")
    text = f"By negative log-likelihood (NTLL) {'; '.join(parts)} (95 % level)."
    if told["constant"] <= 0:
        text += f" {first} is not clearly better than a constant: the features say little, or the rows are too few."
    elif told["linear"] <= 0:
        text += " A linear model does as well as a smooth function here, as far as these rows tell."
    return f"{text} {_calibrated(found)}"


def _name(method: str) -> str:
    return f"the {called(method)}" if method in ("constant", "linear") else called(method)


def _calibrated(found: Comparison) -> str:
    first, error = called(found.first.method), found.first.forecast.calibration
    usual, most = found.first.perfect
    verdict = "no more than" if error <= most else "more than"
    return (
        f"The calibration error of {first}, {error:.3f}, is {verdict} chance gives a perfect forecaster on as many "
        f"rows: {usual:.3f} on average, up to {most:.3f} in 95 of 100 cases."
    )
