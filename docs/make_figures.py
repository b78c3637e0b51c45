"""Draw the pictures of the guide: overview, counts, robust, ordinal_classes, censored_data, one_site (docs/pictures).

Run from anywhere: ``python docs/make_figures.py`` (all of them, some minutes) or with names. The data are those of the
pages' examples. Needs quantprop with its extra "plots". The likelihoods' pictures are drawn by make_pictures.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from quantprop import Model, Parameter, datasets, fit, kernels, likelihoods, plots

OUT = Path(__file__).resolve().parent / "pictures"
SE = kernels.SquaredExponential


def mining():
    """Poisson counts by decade since 1900: inputs, counts and fit."""
    data = datasets.load("mining")
    decades = (data.X - 1900.0) / 10.0
    model = Model(SE(variance=1.0, lengthscale=2.0), likelihoods.Poisson(), mean=Parameter(0.0))
    return decades, data.y, fit(model, decades, data.y, method="ep")


def years(ax) -> None:
    """An axis of decades since 1900 as years."""
    ax.set(xlabel="year", xticks=np.arange(-5, 7, 2))
    ax.set_xticklabels([f"{1900 + 10 * tick:.0f}" for tick in ax.get_xticks()])


def overview() -> None:
    """A posterior of counts, and one site."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    x, y, fitted = mining()
    plots.posterior(fitted, x, y, ax=left)
    left.set(ylabel="disasters", title="counts: posterior of y")
    years(left)
    plots.site(likelihoods.Heaviside(), 1, (-1.0, 1.0), ax=right)
    right.set(title="one site: what EP and QP put in its place", xlim=(-4.0, 3.0))
    save(figure, "overview")


def counts() -> None:
    """Posterior and rootogram of the mining data."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    x, y, fitted = mining()
    plots.posterior(fitted, x, y, ax=left)
    left.set_ylabel("disasters")
    years(left)
    plots.rootogram(fitted.solution.predict_y(x), y, ax=right)
    save(figure, "counts")


def robust() -> None:
    """The same data with three outliers under three kinds of noise."""
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 6.0, 30)[:, None]
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=30)
    y[[7, 15, 22]] += [2.5, -3.0, 2.0]
    noises = {
        "Gaussian": likelihoods.Gaussian(0.3),
        "double-exponential": likelihoods.DoubleExponential(0.3),
        "Student-t, df 4": likelihoods.StudentT(Parameter(4.0, fixed=True), 0.3),
    }
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), sharey=True, layout="constrained")
    for ax, (name, noise) in zip(axes, noises.items(), strict=True):
        fitted = fit(Model(SE(), noise), x, y, method="ep")
        plots.posterior(fitted, x, y, of="f", ax=ax)
        ax.get_legend().remove()
        ax.plot(x[:, 0], y, ".", color=plots.BLACK)
        ax.plot(x[:, 0], np.sin(x[:, 0]), "--", color=plots.RED, linewidth=1.0, label="truth")
        ax.set(title=name, ylim=(-3.6, 4.0), ylabel="f and y" if ax is axes[0] else "")
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize="small")
    save(figure, "robust")


def ordinal_classes() -> None:
    """Probabilities of three ordered classes, stacked."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0.0, 6.0, 32))[:, None]
    y = np.digitize(2.0 * np.sin(x[:, 0]) + rng.normal(size=32), [-1.0, 0.5])
    fitted = fit(Model(SE(), likelihoods.Ordinal([-0.5, 0.5])), x, y, method="ep")
    grid = np.linspace(0.0, 6.0, 200)
    shares = np.exp([fitted.solution.predict_y(grid[:, None]).log_prob(k) for k in range(3)])
    figure, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
    colours = (plots.BLUE, "#d9d9d9", plots.ORANGE)
    ax.stackplot(grid, shares, colors=colours, labels=[f"class {k}" for k in range(3)], alpha=0.8)
    for k in range(3):
        rows = y == k
        ax.plot(
            x[rows, 0], np.full(rows.sum(), (0.04, 0.5, 0.96)[k]), "o", color=colours[k], markeredgecolor=plots.BLACK
        )
    ax.set(xlabel="x", ylabel="probability", xlim=(0.0, 6.0), ylim=(0.0, 1.0))
    ax.legend(loc="upper right", fontsize="small")
    save(figure, "ordinal_classes")


def censored_data() -> None:
    """A sensor that saturates: censored, clipped, and left out."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 6.0, 30)[:, None]
    truth, limit = 1.5 * np.sin(x[:, 0]), 0.8
    t = truth + 0.2 * rng.normal(size=30)
    y = np.column_stack([np.minimum(t, limit), np.where(t > limit, np.inf, t)])
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.2), sharey=True, layout="constrained")
    kinds = {
        "Censored": (likelihoods.Censored(0.3), y),
        "the limit taken for the value": (likelihoods.Gaussian(0.3), y[:, 0]),
    }
    for ax, (name, (noise, seen)) in zip(axes, kinds.items(), strict=True):
        plots.posterior(fit(Model(SE(), noise), x, seen, method="ep"), x, seen, ax=ax)
        ax.plot(x[:, 0], truth, "--", color=plots.RED, linewidth=1.0, label="truth")
        ax.axhline(limit, color=plots.GREY, linewidth=1.0, linestyle=":")
        ax.set(title=name, ylabel="y" if ax is axes[0] else "")
        ax.legend(fontsize="small", loc="upper right")
    save(figure, "censored_data")


def one_site() -> None:
    """Two data with what EP and QP put in their place."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    plots.site(likelihoods.Poisson("square"), 2, (0.3, 2.0), ax=left)
    plots.site(likelihoods.Heaviside(), 1, (-1.0, 1.0), ax=right)
    left.set(title="a count of 2, square link; cavity N(0.3, 2)", xlim=(-5.0, 5.5))
    right.set(title="a contradicted label; cavity N(−1, 1)", xlim=(-4.0, 3.0))
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    save(figure, "one_site")


PICTURES = {make.__name__: make for make in (overview, counts, robust, ordinal_classes, censored_data, one_site)}


def save(figure, name: str) -> None:
    figure.savefig(OUT / f"{name}.png", dpi=100)
    plt.close(figure)
    print(name)


def main(names: list[str]) -> int:
    """Draw the pictures named, or all."""
    unknown = sorted(set(names) - set(PICTURES))
    if unknown:
        print(f"no picture is called {', '.join(unknown)}; there are {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    for name in names or PICTURES:
        PICTURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
