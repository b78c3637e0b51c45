"""GPBoost's Laplace with a Vecchia or FITC prior on the sets of studies/inducing/run.py: held-out scores and seconds.

    python studies/inducing/gpboost_fits.py sets.npz --sets magic banana visits letter --threads 2

The divisions are those of `studies/inducing/run.py scores`: a mean log density is the one to set beside its lines. A
squared-exponential kernel with a lengthscale a column and a constant mean, learned by GPBoost's own defaults. Every
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import gpboost
import numpy as np

APPROXIMATIONS = {"vecchia": {"gp_approx": "vecchia"}, "fitc": {"gp_approx": "fitc", "num_ind_points": 512}}


def divided(file: Path, name: str, seed: int) -> tuple[np.ndarray, ...]:
    """As in studies/inducing/run.py: four fifths to learn from, one to score."""
    with np.load(file) as arrays:
        x, y = arrays[f"{name}.x"], arrays[f"{name}.y"]
    order = np.random.default_rng(seed).permutation(len(x))
    cut = len(order) // 5
    return x[order[cut:]], y[order[cut:]], x[order[:cut]], y[order[:cut]]


def scored(data: tuple[np.ndarray, ...], approximation: str, threads: int) -> dict[str, float]:
    """Mean log probability of the held-out labels, and the seconds of learning and of predicting."""
    x, y, new, labels = data
    began = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=x, cov_function="gaussian_ard", likelihood="bernoulli_probit", num_parallel_threads=threads,
        **APPROXIMATIONS[approximation],
    )  # fmt: skip
    model.fit(y=(y > 0).astype(float), X=np.ones((len(x), 1)))
    learned = time.perf_counter() - began
    p = model.predict(gp_coords_pred=new, X_pred=np.ones((len(new), 1)), predict_response=True)["mu"]
    log_p = np.log(np.where(labels > 0, p, 1.0 - p))
    return {
        "log p": round(float(log_p.mean()), 5), "learning": round(learned, 1),
        "seconds": round(time.perf_counter() - began, 1), "neg log likelihood": model.get_current_neg_log_likelihood(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sets", nargs="+", default=["magic", "banana", "visits", "letter"])
    parser.add_argument("--approximations", nargs="+", choices=APPROXIMATIONS, default=list(APPROXIMATIONS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.sets:
        for approximation in given.approximations:
            found = scored(divided(given.file, name, given.seed), approximation, given.threads)
            line = {"set": name, "gpboost": gpboost.__version__, "approximation": approximation, **found}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
