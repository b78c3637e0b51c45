"""Corrections and the number for trust on data that no choice was made on: a table of docs/background/corrections.md.

    python -m studies.corrections.held_out rows --jobs 12 --out more.jsonl   # data sets by seed, each with chains
    python -m studies.corrections.held_out page                              # the table

Every seed draws a likelihood, inputs of one or two features, a variance and a lengthscale, f and y. The truth is by
chains (`quantprop.reference`) on one core. Rows are appended and never computed twice: --first and --count divide them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantprop import infer, likelihoods, reference
from quantprop.likelihoods.base import Datum
from quantprop.reference.guide import guiding_sites
from quantprop.runtime.precision import float64
from studies.corrections.run import number, ranked, result
from studies.shared.pages import DOCS, between, table
from studies.shared.parts import Row, carry_out, read
from tests.reference.cases import Data, censored
from tests.reference.truths import TOL, Truth

STORED = Path(__file__).with_suffix(".jsonl")
PAGE = DOCS / "background/corrections.md"
LIKELIHOODS = {
    "probit": (likelihoods.Probit(), 0.0),
    "logit": (likelihoods.Logit(), 0.0),
    "poisson": (likelihoods.Poisson(), 0.5),
    "negative-binomial": (likelihoods.NegativeBinomial(0.3), 0.5),
    "ordinal": (likelihoods.Ordinal([-0.7, 0.6]), 0.0),
    "censored": (likelihoods.Censored(0.3), 0.0),
    "student-t": (likelihoods.StudentT(4.0, 0.3), 0.0),
    "double-exponential": (likelihoods.DoubleExponential(0.3), 0.0),
}
TRAINING, HELD_OUT = 60, 20
CHAINS, DRAWS, TEMPERATURES = 192, 400, 600


@dataclass(frozen=True)
class Drawn(Truth):
    """The posterior of data that were drawn."""

    rows: Data

    @property
    def data(self) -> Data:
        return self.rows


@float64
def drawn(seed: int) -> tuple[str, Data, float, float]:
    """The likelihood, rows and hyperparameters of a seed."""
    rng, names = np.random.default_rng([seed, 1613]), list(LIKELIHOODS)
    name = names[seed % len(names)]
    (likelihood, mean), d = LIKELIHOODS[name], int(rng.integers(1, 3))
    variance, lengthscale = float(np.exp(rng.uniform(0.0, 3.5))), float(np.exp(rng.uniform(-0.7, 0.7)))
    x = rng.uniform(0.0, 8.0 if d == 1 else 4.0, (TRAINING + HELD_OUT, d))
    k = variance * np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2) / lengthscale**2)
    scale = 1.0 if name not in ("poisson", "negative-binomial") else min(1.0, variance**-0.5)  # counts stay below 1e3
    f = mean + scale * np.linalg.cholesky(k + 1e-8 * variance * np.eye(len(x))) @ rng.standard_normal(len(x))
    ones = np.ones(len(x))
    y = np.asarray(likelihood.draw(rng, Datum(np.zeros(len(x)), ones, ones), f))
    y = censored(y) if name == "censored" else y
    new = np.where(y[TRAINING:] == -1.0, 1.0, y[TRAINING:]) if name in ("probit", "logit") else y[TRAINING:]
    return name, Data(x[:TRAINING], y[:TRAINING], x[TRAINING:], new, likelihood, mean), variance * scale**2, lengthscale


def truth_of(seed: int) -> Drawn:
    """The posterior of a seed's data by chains."""
    name, data, variance, lengthscale = drawn(seed)
    model = data.model(variance, lengthscale)
    sites = guiding_sites(infer(model, data.x, data.y, "ep", tol=TOL))
    draws = reference.sample(model, data.x, data.y, data.x_new, data.y_new, chains=CHAINS, draws=DRAWS, sites=sites)
    evidence = reference.log_evidence(model, data.x, data.y, chains=CHAINS, temperatures=TEMPERATURES, sites=sites)
    return Drawn(name, f"seed {seed}", variance, lengthscale, draws.mean, draws.variance, draws.new_mean,
                 draws.new_variance, draws.probability, evidence.value, evidence.standard_error,
                 float(draws.rhat.max()), float(draws.effective.min()), data)  # fmt: skip


def judged(part: Row) -> Row:
    """Errors of EP and QP and of their corrections."""
    truth = truth_of(part["seed"])
    found = {method: {k: float(v) for k, v in result((truth, method)).items()} for method in ("EP", "QP")}
    return {"likelihood": truth.dataset, "variance": truth.variance, "lengthscale": truth.lengthscale,
            "rhat": truth.rhat, **found}  # fmt: skip


# --- the page --------------------------------------------------------------------------------------------------------


def held_out_table(rows: list[Row]) -> str:
    """A line for each method: medians over data sets, and rank correlations of what is said with what is true."""
    lines = []
    for method in ("EP", "QP"):
        found = [row[method] for row in rows]
        left = [abs(n["evidence_corrected"]) / max(abs(n["evidence"]), n["evidence_se"]) for n in found]
        worse = max(abs(n["evidence_corrected"]) - abs(n["evidence"]) for n in found)
        kept = [n["variance_corrected"] <= max(0.5 * n["variance"], 2.0 * n["variance_se"]) for n in found]
        closer = [n["probability_corrected"] <= max(n["probability"], 2.0 * n["probability_se"]) for n in found]
        pairs = (
            ([abs(n["evidence_corrected"] - n["evidence"]) for n in found], [abs(n["evidence"]) for n in found]),
            ([n["said_variance"] for n in found], [n["variance"] for n in found]),
            ([n["said_probability"] for n in found], [n["probability"] for n in found]),
            ([n["doubt_median"] for n in found], [n["variance"] for n in found]),
        )
        lines.append([
            method, f"{np.median(left):.3f}", number(worse, "+.3f"), f"{sum(kept)} of {len(found)}",
            *(f"{np.median([n[k] for n in found]):.4f}" for k in ("variance", "variance_corrected")),
            f"{sum(closer)} of {len(found)}",
            *(f"{max(n[k] for n in found):.4f}" for k in ("probability", "probability_corrected")),
            ", ".join(f"{ranked(*pair):.2f}" for pair in pairs),
        ])  # fmt: skip
    head = ("method", "evidence error left, median", "worse by at most",
            "variances at most half as wrong, or within 2 s.e.", "variance error, median", "corrected",
            "p(y) no worse, or within 2 s.e.", "largest p error", "corrected",
            "rank correlations: evidence, variances, probabilities, doubt")  # fmt: skip
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "page"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--known", type=Path, nargs="*", default=[STORED])
    given = parser.parse_args()
    if given.what == "page":
        made = held_out_table(read(given.known))
        print(made)
        PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), "held-out", made), encoding="utf-8")
        return
    wanted = [{"what": "held-out", "seed": seed} for seed in range(given.first, given.first + given.count)]
    carry_out(judged, wanted, read([*given.known, given.out]), given.out, given.jobs, given.seconds)


if __name__ == "__main__":
    main()
