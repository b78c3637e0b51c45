"""Draw the figures of the guides and of the front page (docs/pictures).

Run from anywhere: ``python docs/make_figures.py`` (all of them, some minutes) or with names: overview, one_site,
first-model, or guides by the names of their pages. The figure of a page is the first one that its own code draws.
Needs quantprop with its extra "test". The likelihoods' pictures are drawn by make_pictures.py.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from quantprop import Model, Parameter, datasets, fit, kernels, likelihoods, plots

DOCS = Path(__file__).resolve().parent
OUT = DOCS / "pictures"
FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
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
    """A posterior of counts, and the approximation of one site."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    x, y, fitted = mining()
    plots.posterior(fitted, x, y, ax=left)
    left.set(ylabel="disasters", title="counts: posterior of y")
    years(left)
    plots.site(likelihoods.Heaviside(), 1, (-1.0, 1.0), ax=right)
    right.set(title="one observation: the Gaussians of EP and QP", xlim=(-4.0, 3.0))
    save(figure, "overview")


def one_site() -> None:
    """Two observations, and the Gaussians that EP and QP replace their sites by."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    plots.site(likelihoods.Poisson("square"), 2, (0.3, 2.0), ax=left)
    plots.site(likelihoods.Heaviside(), 1, (-1.0, 1.0), ax=right)
    left.set(title="a count of 2, square link; cavity N(0.3, 2)", xlim=(-5.0, 5.5))
    right.set(title="a contradicted label; cavity N(−1, 1)", xlim=(-4.0, 3.0))
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    save(figure, "one_site")


def page(path: Path, name: str) -> None:
    """The first figure that the code of a page draws."""
    namespace = {"__name__": "__main__"}
    for title, code in FENCE.findall(path.read_text(encoding="utf-8")):
        if "not run" not in title:
            exec(compile(code, path.name, "exec"), namespace)
    save(plt.figure(plt.get_fignums()[0]), name)
    plt.close("all")


PICTURES: dict[str, Callable[[], None]] = {
    "overview": overview,
    "one_site": one_site,
    "first-model": partial(page, DOCS / "start/first-model.md", "first-model"),
    **{path.stem: partial(page, path, f"guide-{path.stem}") for path in sorted((DOCS / "guides").glob("*.md"))},
}


def save(figure, name: str) -> None:
    figure.savefig(OUT / f"{name}.png", dpi=100)
    plt.close(figure)
    print(name)


def main(names: list[str]) -> int:
    """Draw the figures named, or all."""
    unknown = sorted(set(names) - set(PICTURES))
    if unknown:
        print(f"no picture is called {', '.join(unknown)}; there are {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    os.chdir(tempfile.mkdtemp())  # for the files that pages write
    for name in names or PICTURES:
        PICTURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
