"""Methods, scores, kernels and statuses in words, and the conclusion of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from quantprop.comparison import Comparison, Estimate
from quantprop.estimators.insight import readable
from quantprop.inference.results import Ending
from quantprop.inference.solution import Status
from quantprop.likelihoods import by_name

METHODS = {
    "qp": "QP", "ep": "EP", "vb": "VB", "laplace": "Laplace", "power-ep": "power EP", "constant": "constant",
    "linear": "linear model", "boosting": "gradient boosting",
}  # fmt: skip
SCORES = {
    "error": "test error", "rmse": "RMSE", "mae": "MAE", "ntll": "NTLL", "brier": "Brier", "calibration": "calibration",
}  # fmt: skip
REGRESSIONS = {
    "probit": "probit regression", "multinomial-probit": "multinomial probit regression",
    "logit": "logistic regression", "poisson": "Poisson regression", "gaussian": "linear regression",
}  # fmt: skip
KERNELS = {
    "isotropic": "squared-exponential kernel with one lengthscale for all features",
    "ard": "squared-exponential kernel with a lengthscale for each feature",
    "shrunk": "squared-exponential kernel with a lengthscale for each feature, whose priors favour few relevant ones",
    "additive": "orthogonal additive kernel: a curve for each feature, a surface for each pair",
    "auto": "a stack of a linear, an isotropic, shrunk and additive models",
}
REASONS = {
    "converged": "converged",
    "nothing-to-learn": "there was nothing to learn",
    "max-evaluations": "the limit of evaluations was reached",
    "small-gain": "steps gained too little to continue",
    "no-progress": "no step increased the objective",
    "inference-failed": "inference failed",
    "max-sweeps": "the limit of sweeps was reached",
    "stalled": "steps became too small",
    "improper-cavities": "some rows had no proper cavity",
    "improper-start": "the starting point was improper",
    "no-variance": "some rows have no variance under the kernel",
    "no-covariance": "the kernel's matrix is not a covariance matrix",
    "not-finite": "some results are not finite",
}
NEGLIGIBLE = 1e-4  # nats per row: methods that agree in theory differ by their tolerances


def called(method: str) -> str:
    return METHODS[method]


def likelihood_called(name: str) -> str:
    return by_name(name).title or name.replace("-", " ")


def kernel_called(kernel: str) -> str:
    """A kernel by its word, or as a formula."""
    if kernel in KERNELS:
        return f"standardised; {KERNELS[kernel]}"
    return f"in their own units; kernel {kernel}"


def counted(number: int, thing: str) -> str:
    """1 fit, 2 fits."""
    return f"{number} {thing}{'s' * (number != 1)}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def learning_ended(ending: Ending, features: Sequence[str]) -> str:
    """The end of learning in words, with parameters named by the table's features."""
    bounds = [readable(name, features) for name in ending.at_bounds]
    text = f"{REASONS[ending.reason]}; {counted(ending.evaluations, 'evaluation')}, gradient {ending.gradient:.0e}"
    text += "" if math.isnan(ending.remaining) else f", {ending.remaining:.0e} nats left to gain"
    text += f"; inference failed at {ending.failed} of them" if ending.failed else ""
    return text + (f"; at a bound: {listed(bounds)}" if bounds else "")


def inference_ended(status: Status) -> str:
    text = f"{REASONS[status.reason]}; {counted(status.sweeps, 'sweep')}, residual {status.residual:.0e}"
    return text + (f"; {counted(status.negative_sites, 'negative site')}" if status.negative_sites else "")


def aligned(cells: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def sign(difference: Estimate) -> int:
    """+1 or −1 where a difference in NTLL is clear at the 95 % level, 0 where it is not."""
    value = difference.value
    if math.isinf(value):  # outcomes that were said to be impossible
        return 1 if value > 0 else -1
    return 0 if not abs(value) > max(difference.margin, NEGLIGIBLE) else 1 if value > 0 else -1


def conclusion(found: Comparison) -> str:
    """The comparison by NTLL in words."""
    first = called(found.first.method)
    less = {one.method: one.less(found.first)["ntll"] for one in found.all[1:]}
    signs = {method: sign(of) for method, of in less.items()}
    groups = {which: [_name(method) for method, of in signs.items() if of == which] for which in (-1, 1, 0)}
    parts = []
    if groups[-1]:
        parts.append(f"{listed(groups[-1])} predict{'s' * (len(groups[-1]) == 1)} better than {first}")
    if groups[1]:
        parts.append(f"{first} predicts better than {listed(groups[1])}")
    if groups[0]:
        parts.append(f"{first} does not differ significantly from {listed(groups[0]).replace(' and ', ' or ')}")
    text = f"By negative log-likelihood (NTLL) {'; '.join(parts)} (95 % level)."
    if signs["constant"] <= 0:
        text += f" {first} is not significantly better than a constant: too few rows, or uninformative features."
    elif less["linear"].value <= NEGLIGIBLE:
        text += " On these rows a linear model predicts as well as a smooth function."
    return f"{text} {_calibrated(found)}"


def _name(method: str) -> str:
    return f"the {called(method)}" if method in ("constant", "linear") else called(method)


def _calibrated(found: Comparison) -> str:
    first, error = called(found.first.method), found.first.forecast.calibration
    usual, most = found.first.perfect
    verdict = "within" if error <= most else "above"
    return (
        f"The calibration error of {first}, {error:.3f}, is {verdict} the range of a perfectly calibrated model on "
        f"as many rows: {usual:.3f} on average, at most {most:.3f} in 95 % of cases."
    )
