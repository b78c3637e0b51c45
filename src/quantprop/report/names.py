"""Methods, scores, likelihoods and hyperparameters as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from quantprop.comparison.insight import readable
from quantprop.inference.results import Ending
from quantprop.inference.solution import Status

METHODS = {
    "qp": "QP", "ep": "EP", "vb": "VB", "laplace": "Laplace", "power-ep": "power EP", "constant": "constant",
    "linear": "linear model",
}  # fmt: skip
SCORES = {
    "error": "test error", "rmse": "RMSE", "mae": "MAE", "ntll": "NTLL", "brier": "Brier", "calibration": "calibration",
}  # fmt: skip
LIKELIHOODS = {"poisson": "Poisson", "gaussian": "Gaussian", "student-t": "Student-t", "heaviside": "Heaviside"}
REGRESSIONS = {
    "probit": "probit regression", "multinomial-probit": "multinomial probit regression",
    "logit": "logistic regression", "poisson": "Poisson regression", "gaussian": "linear regression",
}  # fmt: skip
KERNELS = {"isotropic": "one lengthscale for all features", "ard": "a lengthscale for each feature"}
REASONS = {  # of learning and of inference
    "converged": "converged",
    "nothing-to-learn": "there was nothing to learn",
    "max-evaluations": "the limit of evaluations was reached",
    "small-gain": "steps gained too little to go on",
    "no-progress": "no step led further up",
    "inference-failed": "inference failed",
    "max-sweeps": "the limit of sweeps was reached",
    "stalled": "steps became too small",
    "improper-cavities": "some rows left no proper cavity",
    "improper-start": "there was no proper start",
    "no-variance": "some rows have no variance under the kernel",
    "no-covariance": "the kernel gave no covariance matrix",
    "not-finite": "some results are not finite",
}


def called(method: str) -> str:
    """The name of a method or baseline."""
    return METHODS[method]


def likelihood_called(name: str) -> str:
    """The name of a likelihood."""
    return LIKELIHOODS.get(name, name.replace("-", " "))


def kernel_called(kernel: str) -> str:
    """A kernel by its word, or in the language of terms."""
    if kernel in KERNELS:
        return f"standardised; squared-exponential kernel with {KERNELS[kernel]}"
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
    text = f"{REASONS[ending.reason]}; {counted(ending.evaluations, 'evaluation')}, slope {ending.gradient:.0e}"
    text += "" if math.isnan(ending.remaining) else f", {ending.remaining:.0e} nats left to gain"
    text += f"; inference failed at {ending.failed} of them" if ending.failed else ""
    return text + (f"; at a bound: {listed(bounds)}" if bounds else "")


def inference_ended(status: Status) -> str:
    """The end of inference in words."""
    text = f"{REASONS[status.reason]}; {counted(status.sweeps, 'sweep')}, residual {status.residual:.0e}"
    return text + (f"; {counted(status.negative_sites, 'negative site')}" if status.negative_sites else "")


def aligned(cells: list[list[str]]) -> Iterator[str]:
    """Lines of a table, as text."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
