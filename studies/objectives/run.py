"""Which objective learns best: forecasts of test rows by hyperparameters that were learned in different ways.

    python -m studies.objectives.run rows --jobs 12 --out more.jsonl     # beside the integration study's scores
    python -m studies.objectives.run page                                # tables into docs/background/objectives.md

Rows are appended and never computed twice, as in `studies.integration.run`, whose `scores` have the evidence and the
integral. All by EP, `clean`, the protocol of the paper.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from quantprop import Fitted, fit, infer
from quantprop.core.parameters import at, declared
from quantprop.experiments.protocol import TrainTest
from quantprop.inference.leave_one_out import loo_log_prob
from quantprop.learning.objectives import LeaveOneOut
from studies.integration.run import STORED as INTEGRATED
from studies.integration.run import turn
from studies.integration.work import division, judged
from studies.objectives.page import page
from studies.shared.more_sets import EVERY
from studies.shared.parts import Row, carry_out, read

STORED = Path(__file__).with_name("objectives.jsonl")
SEARCH = {"xatol": 0.02, "fatol": 1e-3, "maxfev": 60}  # of the corrected evidence, which has no gradient


class LeaveOneOutBrier(LeaveOneOut):
    """−Σ (1 − p(y_i | the other rows))², half the Brier score of two classes: bounded, and so not led by outliers."""

    name: ClassVar[str] = "loo-brier"

    def local(self, likelihood, datum, weight, marginal, site, renewal) -> Any:
        return -weight.total * jnp.expm1(loo_log_prob(likelihood, datum, weight, marginal, site)) ** 2


def by_loo(parts: TrainTest, start: Any, point: Fitted) -> Any:
    """Leave-one-out log density."""
    return fit(start, parts.x, parts.y, "ep", "loo").solution


def by_brier(parts: TrainTest, start: Any, point: Fitted) -> Any:
    """Leave-one-out Brier score."""
    return fit(start, parts.x, parts.y, "ep", LeaveOneOutBrier()).solution


def by_corrected(parts: TrainTest, start: Any, point: Fitted) -> Any:
    """The corrected evidence, searched for around the evidence's optimum by Nelder and Mead; corrected forecasts."""
    from scipy.optimize import minimize

    tree = declared(point.model)

    def negated(theta: np.ndarray) -> float:
        solution = infer(at(tree, theta), parts.x, parts.y, "ep", sites=point.solution.sites)
        return -solution.corrected().log_evidence if solution.converged else np.inf

    found = minimize(negated, point.theta, method="Nelder-Mead", options=SEARCH)
    return infer(at(tree, found.x), parts.x, parts.y, "ep").corrected()


def corrected_forecasts(parts: TrainTest, start: Any, point: Fitted) -> Any:
    """The evidence, with corrected forecasts."""
    return point.solution.corrected()


def by_vb(parts: TrainTest, start: Any, point: Fitted) -> Any:
    """VB's posterior at the optimum of EP's evidence."""
    return infer(point.model, parts.x, parts.y, "vb")


RULES: dict[str, Callable[[TrainTest, Any, Fitted], Any]] = {
    "loo": by_loo, "loo-brier": by_brier, "corrected": by_corrected, "corrected forecasts": corrected_forecasts,
    "vb at ep": by_vb,
}  # fmt: skip
ONLY_CLASSES = ("loo-brier",)


def learned(part: Row) -> Row:
    """One division by one rule: scores of the test rows, and CPU seconds (without those of the evidence's optimum)."""
    start, parts = division(part, "ep")
    point = fit(start, parts.x, parts.y, "ep")
    began = time.process_time()
    found = RULES[part["rule"]](parts, start, point)
    seconds = time.process_time() - began
    return judged(found.predict_y(parts.x_test), parts.y_test) | {"cpu_s": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "page"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--sets", nargs="*", default=EVERY)
    parser.add_argument("--rules", nargs="*", default=list(RULES))
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--known", type=Path, nargs="*", default=[STORED, INTEGRATED])
    options = parser.parse_args()
    if options.what == "page":
        return page(read(options.known))
    wanted = [
        {"what": "objectives", "rule": rule, "set": name, **turn(name, k)}
        for k in range(options.first, options.first + options.count)
        for name in options.sets
        for rule in options.rules
        if name != "mining" or rule not in ONLY_CLASSES
    ]
    carry_out(learned, wanted, read([*options.known, options.out]), options.out, options.jobs, options.seconds)


if __name__ == "__main__":
    main()
