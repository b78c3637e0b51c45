"""Draw docs/pictures/*.png for docs/reference/likelihoods.md, and print the numbers that the page quotes.

Run from anywhere: ``python docs/make_pictures.py`` (all of them, several minutes) or with names, such as
``python docs/make_pictures.py probit beta``. Needs quantprop with its extra "plots".
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from quantprop import likelihoods, plots, project, projections

OUT = Path(__file__).resolve().parent / "pictures"


class Case(NamedTuple):
    """One picture: a datum, the cavity of the left panel, and the cavities of the right one."""

    title: str
    likelihood: likelihoods.Likelihood
    y: Any
    cavity: tuple[float, float]
    mean: tuple[float, float] = (-5.0, 5.0)
    sd: tuple[float, float] = (0.1, 10.0)
    trials: float | None = None


def log_cauchy(y, f):
    return -jnp.log1p((y - f) ** 2) - jnp.log(jnp.pi)


CASES = {
    "gaussian": Case("Gaussian(scale=0.5), y = 1", likelihoods.Gaussian(0.5), 1.0, (-1.0, 1.0)),
    "probit": Case("Probit(), y = 1", likelihoods.Probit(), 1, (-3.0, 16.0)),
    "logit": Case("Logit(), y = 1", likelihoods.Logit(), 1, (-2.0, 64.0)),
    "heaviside": Case("Heaviside(), y = 1", likelihoods.Heaviside(), 1, (-1.0, 1.0)),
    "heaviside_noise": Case("Heaviside(noise=0.05), y = 1", likelihoods.Heaviside(0.05), 1, (-1.5, 1.0)),
    "poisson_exp": Case("Poisson('exp'), y = 2", likelihoods.Poisson("exp"), 2, (-1.0, 9.0)),
    "poisson_square": Case("Poisson('square'), y = 2", likelihoods.Poisson("square"), 2, (0.3, 2.0)),
    "poisson_softplus": Case("Poisson('softplus'), y = 2", likelihoods.Poisson("softplus"), 2, (2.0, 64.0)),
    "negative_binomial": Case(
        "NegativeBinomial(dispersion=1), y = 6", likelihoods.NegativeBinomial(1.0), 6, (-1.0, 9.0)
    ),
    "binomial": Case("Binomial(), y = 4 of 4 trials", likelihoods.Binomial(), 4, (-1.0, 4.0), trials=4),
    "student_t": Case("StudentT(df=4, scale=0.5), y = 0", likelihoods.StudentT(4.0, 0.5), 0.0, (4.5, 3.0)),
    "double_exponential": Case(
        "DoubleExponential(scale=0.5), y = 0", likelihoods.DoubleExponential(0.5), 0.0, (4.0, 4.0)
    ),
    "gamma": Case("Gamma(shape=1), y = 1", likelihoods.Gamma(1.0), 1.0, (0.0, 9.0)),
    "beta": Case("Beta(precision=5), y = 0.9", likelihoods.Beta(5.0), 0.9, (-4.0, 0.8)),
    "ordinal": Case("Ordinal([−1, 1]), y = 2", likelihoods.Ordinal([-1.0, 1.0]), 2, (-2.0, 9.0)),
    "censored": Case("Censored(scale=0.5), y = (1, ∞)", likelihoods.Censored(0.5), (1.0, np.inf), (-1.0, 4.0)),
    "weibull": Case("Weibull(scale=0.5), y = (1, ∞)", likelihoods.Weibull(0.5), (1.0, np.inf), (-1.5, 2.0)),
    "log_logistic": Case(
        "LogLogistic(scale=0.5), y = (1, ∞)", likelihoods.LogLogistic(0.5), (1.0, np.inf), (-1.5, 4.0)
    ),
    "zero_inflated_poisson": Case(
        "ZeroInflatedPoisson(inflation=0.1), y = 0", likelihoods.ZeroInflatedPoisson(0.1), 0, (2.0, 2.0)
    ),
    "zero_inflated_negative_binomial": Case(
        "ZeroInflatedNegativeBinomial(inflation=0.1, dispersion=1), y = 0",
        likelihoods.ZeroInflatedNegativeBinomial(0.1, 1.0),
        0,
        (3.0, 2.0),
    ),
    "custom": Case("Custom(log_cauchy), y = 0", likelihoods.Custom(log_cauchy), 0.0, (3.0, 16.0)),
}


def draw(name: str, case: Case) -> None:
    """Both panels side by side; the cavity of the left one is a cross on the right one."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    plots.site(case.likelihood, case.y, case.cavity, trials=case.trials, ax=left)
    plots.variance_ratio(case.likelihood, case.y, mean=case.mean, sd=case.sd, trials=case.trials, ax=right)
    mean, variance = case.cavity
    kl = projected(case)[0]
    ends = np.array([mean - 1.5 * np.sqrt(variance), mean + 1.5 * np.sqrt(variance)])
    wide = np.array([-4.5, 4.5]) * np.sqrt(kl.variance) + kl.mean
    left.set_xlim(min(ends[0], wide[0]), max(ends[1], wide[1]))
    left.get_legend().remove()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    left.set_title(f"one site, cavity N({mean:g}, {variance:g})".replace("-", "−"), fontsize="medium")
    right.plot(mean, np.sqrt(variance), "x", color="white", markersize=9, markeredgewidth=3)
    right.plot(mean, np.sqrt(variance), "x", color="black", markersize=8, markeredgewidth=1.5)
    right.set_title("QP's variance over EP's, by cavity", fontsize="medium")
    figure.suptitle(case.title)
    figure.savefig(OUT / f"{name}.png", dpi=100)
    print(name, *numbers(case, np.asarray(right.collections[0].get_array())), sep=", ")
    plt.close(figure)


def projected(case: Case) -> tuple[Any, Any]:
    """The KL and the W₂ Gaussian of the left panel."""
    kl, w2 = (
        project(case.likelihood, case.y, case.cavity, projection, trials=case.trials)
        for projection in (projections.KL(), projections.Wasserstein(2))
    )
    return kl, w2


def numbers(case: Case, ratio: np.ndarray) -> list[str]:
    """The range of the map, where it is lowest, and both variances of the left panel."""
    m, s = np.linspace(*case.mean, len(ratio)), np.geomspace(*case.sd, len(ratio))
    i, j = np.unravel_index(np.argmin(ratio), ratio.shape)
    kl, w2 = projected(case)
    share = np.mean(ratio < 0.99)
    return [
        f"ratio {ratio.min():.4f} to {ratio.max():.4f}",
        f"lowest at mean {m[j]:.2f}, sd {s[i]:.2f}",
        f"below 0.99 at {100 * share:.0f} % of the map",
        f"site: mean {kl.mean:.3f}, KL variance {kl.variance:.4f}, W2 variance {w2.variance:.4f}, "
        f"ratio {w2.variance / kl.variance:.4f}",
    ]


def main(names: list[str]) -> int:
    """Draw the pictures named, or all."""
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        print(f"no picture is called {', '.join(unknown)}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    for name in names or CASES:
        draw(name, CASES[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
