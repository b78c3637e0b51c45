"""Tables of docs/background/integration.md from its stored rows: tests of uniformity, coverage, paired differences."""

from __future__ import annotations

import numpy as np
from scipy.stats import kstest

from quantprop.experiments.protocol import TEST_TO_TRAIN
from quantprop.experiments.summary import difference
from studies.integration.joint_chains import split_rhat
from studies.shared.more_sets import EVERY
from studies.shared.pages import DOCS, between, holm, table
from studies.shared.parts import Row
from tests.reference.calibration import anderson_darling

PAGE = DOCS / "background/integration.md"

LEVELS = (0.5, 0.9, 0.99)
QUANTITIES = {"variance": "log variance", "lengthscale": "log lengthscale", "f": "f", "y": "y"}
PRIORS = {"given": "given", "weak": "the library's"}


def signed(value: float, digits: int) -> str:
    """With a sign that is as wide as a plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def calibration_table(rows: list[Row]) -> str:
    """A line for each quantity: p-values of uniformity, and coverage."""
    lines = []
    for likelihood, priors in dict.fromkeys((row["likelihood"], row["priors"]) for row in rows):
        some = [row for row in rows if (row["likelihood"], row["priors"]) == (likelihood, priors)]
        bad = sum(row["reason"] != "converged" for row in some)
        for key, name in QUANTITIES.items():
            u = np.array([row[key] for row in some])
            held = [f"{100 * np.mean(np.abs(u - 0.5) < 0.5 * level):.1f}" for level in LEVELS]
            p = kstest(u, "uniform").pvalue, anderson_darling(u)[1]
            lines.append([likelihood, PRIORS[priors], name, *(f"{one:.3f}" for one in p), *held, f"{len(u)}, {bad}"])
    head = ("likelihood", "priors", "", "p", "p, in the tails", "in 50 %", "90 %", "99 %", "data sets, not converged")
    return table(head, lines)


def score_table(rows: list[Row]) -> str:
    """A line for each set: both NTLL, their difference with its standard error, and time in fits."""
    lines, p_values = [], []
    for name in [name for name in EVERY if any(row["set"] == name for row in rows)]:
        some = [row for row in rows if row["set"] == name]
        point, mixed = (np.array([row[key] for row in some]) for key in ("point", "integrated"))
        less = difference(mixed, point, TEST_TO_TRAIN["year" if name == "mining" else "fold"])
        ratio = np.median([row["integrate_s"] / row["fit_s"] for row in some])
        bad = sum(row["reason"] != "converged" for row in some)
        apart = f"{signed(less.mean, 5)} ± {less.standard_error:.5f}"
        lines.append([name, f"{point.mean():.4f}", f"{mixed.mean():.4f}", apart, f"{less.p_value:.3f}",
                      f"{ratio:.1f}", f"{len(some)}, {bad}"])  # fmt: skip
        p_values.append(less.p_value)
    for line, p in zip(lines, holm(p_values), strict=True):
        line.insert(5, f"{p:.3f}")
    head = (
        "set",
        "point",
        "integrated",
        "difference",
        "p",
        "p, Holm",
        "time in fits, median",
        "divisions, not converged",
    )
    return table(head, lines)


def chain_table(rows: list[Row]) -> str:
    """A line for each set and hyperparameter: chains beside `integrate`; forecasts once a set."""
    lines = []
    for name, draws in dict.fromkeys((row["set"], row["draws"]) for row in rows):
        some = [row for row in rows if (row["set"], row["draws"]) == (name, draws)]
        ours, long = [row for row in some if row["seed"] < 0], [row for row in some if row["seed"] >= 0]
        if len(ours) != 1 or len(long) < 2:
            continue
        means, variances = np.moveaxis(np.array([half for row in long for half in row["halves"]]), 1, 0)
        mean, sd = means.mean(0), np.sqrt(variances.mean(0) + means.var(0))
        error = means.reshape(len(long), 2, -1).mean(1).std(0, ddof=1) / np.sqrt(len(long))
        seen = np.array([row["forecast"] for row in long])
        apart = np.abs(np.array(ours[0]["forecast"]) - seen.mean(0)).max()
        noise = (seen.std(0, ddof=1) / np.sqrt(len(long))).max()
        rhat = split_rhat(means, variances, draws // 2)
        for i, theta in enumerate(("log variance", "log lengthscale")):
            our_mean, our_sd = ours[0]["mean"][i], np.sqrt(ours[0]["variance"][i])
            lines.append([
                name, theta, f"{mean[i]:.3f} ± {error[i]:.3f}", f"{our_mean:.3f}",
                signed((our_mean - mean[i]) / sd[i], 3), f"{sd[i]:.3f}", f"{our_sd:.3f}", f"{our_sd / sd[i]:.3f}",
                f"{apart:.4f} ± {noise:.4f}", f"{len(long)} × {draws:,}, {rhat:.4f}",
            ])  # fmt: skip
    head = ("set", "", "mean, chains", "ours", "apart, in sd", "sd, chains", "ours", "ratio",
            "probabilities apart, at most", "chains, R-hat")  # fmt: skip
    return table(head, lines)


def time_table(rows: list[Row]) -> str:
    """A line for each set and device: the last that was measured."""
    lines = []
    for row in {(row["device"], row["set"]): row for row in rows}.values():
        gpu = row["backend"] != "cpu"
        pair = [row["fit_wall"], row["integrate_wall"]] if gpu else [row["fit_cpu"], row["integrate_cpu"]]
        on = row["device"] if gpu else "one core"
        lines.append([row["set"], f"{row['rows']}", on, *(f"{one:.2f}" for one in pair), f"{pair[1] / pair[0]:.1f}",
                      f"{row['evaluations']}", f"{row['points']}"])  # fmt: skip
    return table(("set", "rows", "on", "fit, s", "integrate, s", "in fits", "evaluations of the fit", "points"), lines)


TABLES = {"calibration": calibration_table, "scores": score_table, "chains": chain_table, "time": time_table}


def page(rows: list[Row]) -> None:
    """Renew the page's tables, and print them."""
    text = PAGE.read_text(encoding="utf-8")
    for what, made in TABLES.items():
        some = [row for row in rows if row["what"] == what]
        if some:
            print(f"{what}\n\n{made(some)}")
            text = between(text, what, made(some))
    PAGE.write_text(text, encoding="utf-8")
