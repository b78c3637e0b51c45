"""Pictures of posteriors: of f and y over one input, of classes over two, and of the variances of two methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from scipy.special import ndtri

from quantprop.core.data import inputs
from quantprop.inference.classes import ClassSolution
from quantprop.inference.solution import Solution
from quantprop.likelihoods.binary import Binary
from quantprop.plots.canvas import (
    BLACK,
    BLUE,
    GREY,
    INTERVALS,
    ORANGE,
    RED,
    Axes,
    axes_of,
    class_styles,
    labelled,
    solution_of,
)
from quantprop.runtime.arguments import checked, choice

TWO_CLASSES = LinearSegmentedColormap.from_list("two classes", [BLUE, "#f7f7f7", ORANGE])


@checked(of=choice(("y", "f")))
def posterior(
    source: Any, X: Any, y: Any, of: str = "y", *, Xnew: Any = None, exposure: Any = None, trials: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot the posterior over one input: mean, and the intervals that hold 50 % and 90 %.

    Args:
        source: A Solution, a Fitted, or a fitted estimator.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        of: "y" draws the distribution of new observations, with the data; "f" the latent function, with the inputs as
            ticks.
        Xnew: Inputs to draw at; by default 200 over the data.
        exposure: Exposure of new observations.
        trials: Trials of new observations.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.posterior(solution, X, y, of="f").get_ylabel()
    'f'
    """
    solution, ax = solution_of(source), axes_of(ax)
    x, y = _data(solution, X, y, 1, "posterior")
    new = np.sort(inputs(_span(x[:, 0], 200) if Xnew is None else Xnew, "Xnew", features=1), axis=0)
    if of == "f":
        latent = solution.predict(new)
        mean, quantile = latent.mean, lambda q: latent.mean + np.sqrt(latent.variance) * ndtri(q)
    else:
        predictive = solution.predict_y(new, exposure=exposure, trials=trials)
        mean, quantile = predictive.mean, predictive.quantile
    for inside, opacity in INTERVALS:
        ends = (quantile(0.5 - 0.5 * inside), quantile(0.5 + 0.5 * inside))
        ax.fill_between(new[:, 0], *ends, color=BLUE, alpha=opacity, linewidth=0, label=f"{100 * inside:.0f} %")
    ax.plot(new[:, 0], mean, color=BLUE, label="mean")
    if of == "y":
        _observations(ax, x[:, 0], solution.model.plain_likelihood.code(np.asarray(y, dtype=np.float64)))
    else:  # y has another scale than f: only where the data are
        ax.plot(x[:, 0], np.zeros(len(x)), "|", color=BLACK, transform=ax.get_xaxis_transform(), label="inputs")
    return labelled(ax, xlabel="x", ylabel=of)


def _observations(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Points; of censored rows (lower, upper) a line between finite ends, and an arrow at the end of an open one."""
    if y.ndim == 1:
        ax.plot(x, y, ".", color=BLACK, label="data")
        return
    lower, upper = y.T
    ax.vlines(x, lower, np.where(np.isfinite(upper), upper, lower), color=BLACK, linewidth=1.0)
    exact = lower == upper
    for marker, ends, rows in ((".", lower, exact), ("^", lower, np.isinf(upper)), ("v", upper, np.isinf(lower))):
        ax.plot(x[rows], ends[rows], marker, color=BLACK, label="data" if marker == "." else None)


@checked()
def class_probability(source: Any, X: Any, y: Any, *, points: int = 80, ax: Axes | None = None) -> Axes:
    """Plot P(y = 1) over two inputs as colours, with the contour of ½, and the data.

    Args:
        source: A Solution, a Fitted, or a fitted estimator.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        points: Grid points in each direction.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]], [-1, -1, 1]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.class_probability(solution, X, y, points=10).get_xlabel()
    'x1'
    """
    solution, ax = solution_of(source), axes_of(ax)
    likelihood = solution.model.plain_likelihood
    if not isinstance(likelihood, Binary):
        raise ValueError(f"class_probability needs a likelihood of two classes; got {likelihood.name}")
    x, y = _data(solution, X, y, 2, "class_probability")
    left, up = np.meshgrid(_span(x[:, 0], points), _span(x[:, 1], points))
    p = np.exp(solution.predict_y(np.column_stack([left.ravel(), up.ravel()])).log_prob(1.0)).reshape(left.shape)
    mesh = ax.pcolormesh(left, up, p, cmap=TWO_CLASSES, vmin=0.0, vmax=1.0, shading="gouraud")
    ax.figure.colorbar(mesh, ax=ax, label="P(y = 1)")
    if p.min() < 0.5 < p.max():
        ax.contour(left, up, p, levels=[0.5], colors=BLACK, linewidths=1.0)
    one = y == source.classes_[1] if hasattr(source, "classes_") else likelihood.code(y.astype(np.float64)) > 0
    for rows, marker, colour, label in ((one, "o", ORANGE, "y = 1"), (~one, "s", BLUE, "the other class")):
        ax.plot(*x[rows].T, marker, color=colour, markeredgecolor=BLACK, markersize=5, label=label)
    return labelled(ax, xlabel="x1", ylabel="x2")


@checked()
def class_regions(source: Any, X: Any, y: Any, *, points: int = 80, ax: Axes | None = None) -> Axes:
    """Plot the most probable class over two inputs, paler where its probability is nearer to a guess, and the data.

    Args:
        source: A fitted classifier, or the solution of a joint multi-class model.
        X: Inputs of the data, two columns.
        y: Labels of the data.
        points: Grid points in each direction.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]], [0, 1, 2]
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.MultinomialProbit()), X, y, "ep")
    >>> [text.get_text() for text in plots.class_regions(solution, X, y, points=10).get_legend().get_texts()]
    ['0', '1', '2']
    """
    x, labels = inputs(X, "X", features=2), _labels(source)
    y = _as_many(y, x)
    styles = class_styles(labels)
    left, up = np.meshgrid(_span(x[:, 0], points), _span(x[:, 1], points))
    new = np.column_stack([left.ravel(), up.ravel()])
    p = source.predict_y(new).probabilities if isinstance(source, ClassSolution) else source.predict_proba(new)
    best, guess = p.argmax(axis=1), 1.0 / len(labels)
    sure = 0.15 + 0.65 * (p.max(axis=1) - guess) / (1.0 - guess)
    colours = np.array([to_rgb(colour) for _, _, colour in styles])[best]
    shade = 1.0 - sure[:, None] * (1.0 - colours)
    ax = axes_of(ax)
    ends = left[0, 0], left[0, -1], up[0, 0], up[-1, 0]
    ax.imshow(shade.reshape(*left.shape, 3), origin="lower", extent=ends, aspect="auto", interpolation="nearest")
    for label, marker, colour in styles:
        rows = y == label
        ax.plot(*x[rows].T, marker, color=colour, markeredgecolor=BLACK, markersize=5, label=str(label))
    return labelled(ax, xlabel="x1", ylabel="x2")


def _labels(source: Any) -> list[Any]:
    if isinstance(source, ClassSolution):
        return list(range(source.classes))
    if hasattr(source, "classes_"):
        return list(source.classes_)
    raise TypeError(
        f"source must be a fitted classifier, or a solution of several classes; got {type(source).__name__}"
    )


def variances(ep_source: Any, qp_source: Any, Xnew: Any, ax: Axes | None = None) -> Axes:
    """Plot QP's latent predictive variances against EP's, with the diagonal.

    Args:
        ep_source: EP's posterior: a Solution, a Fitted, or a fitted estimator.
        qp_source: QP's posterior.
        Xnew: Inputs at which to compare.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0]], [-1, -1, 1]
    >>> model = Model(kernels.SquaredExponential(4.0), likelihoods.Probit())
    >>> ax = plots.variances(infer(model, X, y, "ep"), infer(model, X, y, "qp"), X)
    >>> ax.get_legend().get_texts()[0].get_text()
    'QP smaller at 3 of 3, median ratio 0.991'
    """
    ax = axes_of(ax)
    ep, qp = (
        solution_of(source, name).predict(Xnew).variance
        for source, name in ((ep_source, "ep_source"), (qp_source, "qp_source"))
    )
    said = f"QP smaller at {(qp < ep).sum()} of {len(ep)}, median ratio {np.median(qp / ep):.3g}"
    ax.plot(ep, qp, ".", color=RED, label=said)
    ends = min(ep.min(), qp.min()), max(ep.max(), qp.max())
    ax.plot(ends, ends, color=GREY, linewidth=1.0, label="equal")
    scale = "log" if ends[1] > 20.0 * ends[0] else "linear"
    legend = {"loc": "lower right", "fontsize": "small"}
    return labelled(ax, legend, xlabel="EP: variance of f", ylabel="QP: variance of f", xscale=scale, yscale=scale)


def _data(solution: Solution, X: Any, y: Any, features: int, function: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with the number of columns that a picture can show, and as many y."""
    x = inputs(X, "X")
    for name, columns in (("X", x.shape[1]), ("the model's X", solution.X.shape[1])):
        if columns != features:
            raise ValueError(f"{function} plots over {features} column(s) of X; {name} has {columns}")
    return x, _as_many(y, x)


def _as_many(y: Any, x: np.ndarray) -> np.ndarray:
    if np.shape(y)[:1] != (len(x),):
        raise ValueError(f"y must have one entry per row of X, {len(x)}; got shape {np.shape(y)}")
    return np.asarray(y)


def _span(column: np.ndarray, points: int, margin: float = 0.05) -> np.ndarray:
    width = np.ptp(column) or 1.0
    return np.linspace(column.min() - margin * width, column.max() + margin * width, points)
