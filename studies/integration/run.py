"""Hyperparameters integrated: calibration, scores against the point estimate, long chains, time.

    python -m studies.integration.run calibration --jobs 12 --out more.jsonl   # simulation-based: θ, f and y
    python -m studies.integration.run scores --jobs 12 --sets crabs wine1      # NTLL against the point estimate
    python -m studies.integration.run chains --jobs 12                         # θ and forecasts, two small sets
    python -m studies.integration.run time                                     # in fits, on one core or a GPU
    python -m studies.integration.run page                         # tables into docs/background/integration.md

Each appends rows to --out and leaves out what is in --known already (files, or folders of *.jsonl; the stored rows if
not given), so that it may be cut short, repeated and divided: --first and --count choose seeds or divisions. No part is
begun after --seconds. Every job is one process on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import jax

from quantprop.experiments.protocol import FOLDS
from studies.integration.joint_chains import SMALL
from studies.integration.page import page
from studies.integration.work import calibrated, sampled, scored, timed
from studies.shared.more_sets import EVERY
from studies.shared.parts import Row, carry_out, cores, on_core, read

STORED = Path(__file__).resolve().parent
SIMULATED = (("probit", "given"), ("poisson", "given"), ("probit", "weak"))  # likelihoods, and priors of θ
TIMED = ("crabs", "ionosphere", "pima")


def calibration(options: argparse.Namespace) -> list[Row]:
    """One part for each simulated data set."""
    seeds = range(options.first, options.first + (options.count or 500))
    kinds = [kind for kind in SIMULATED if not options.sets or "-".join(kind) in options.sets]
    return [
        {"what": "calibration", "likelihood": likelihood, "priors": priors, "seed": seed, "method": options.method}
        for seed in seeds
        for likelihood, priors in kinds
    ]


def scores(options: argparse.Namespace) -> list[Row]:
    """One part for each division, all sets in turn."""
    turns = range(options.first, options.first + (options.count or 100))
    return [
        {"what": "scores", "set": name, **turn(name, k), "method": options.method}
        for k in turns
        for name in options.sets or EVERY
    ]


def turn(name: str, k: int) -> Row:
    """The k-th division of a set."""
    return {"round": k, "fold": 0} if name == "mining" else {"round": k // FOLDS, "fold": k % FOLDS}


def chains(options: argparse.Namespace) -> list[Row]:
    """One part for each chain, and one for what `integrate` says."""
    seeds = [-1, *range(options.first, options.first + (options.count or 12))]
    return [
        {"what": "chains", "set": name, "seed": seed, "draws": options.draws, "method": options.method}
        for seed in seeds
        for name in options.sets or SMALL
    ]


def times(options: argparse.Namespace) -> list[Row]:
    """One part for each set, in this process."""
    like = {"what": "time", "device": jax.devices()[0].device_kind, "method": options.method}
    return [like | {"set": name} for name in options.sets or TIMED]


WORK = {"calibration": calibrated, "scores": scored, "chains": sampled}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibration", "scores", "chains", "time", "page"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--method", default="ep")
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--known", type=Path, nargs="*", default=[STORED])
    options = parser.parse_args()
    if options.what == "page":
        return page(read(options.known))
    out = options.out or STORED / f"{options.what}.jsonl"
    known = read([*options.known, out])
    if options.what != "time":
        wanted = {"calibration": calibration, "scores": scores, "chains": chains}[options.what](options)
        return carry_out(WORK[options.what], wanted, known, out, options.jobs, options.seconds)
    if jax.default_backend() == "cpu":
        on_core(cores()[0])
    with out.open("a", encoding="utf-8") as file:
        for part in times(options):
            row = part | timed(part)
            file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
