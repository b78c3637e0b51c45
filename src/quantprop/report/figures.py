"""The figures of a report, each with a caption and a text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantprop import plots
from quantprop.comparison import ClassForecast, Comparison, Evaluated, NumberForecast
from quantprop.estimators.insight import component_named, relevance, term_summary, varying_parameter, with_components
from quantprop.inference.sobol import Sobol
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.plots.canvas import Axes, Figure, MaxNLocator, plain, plt, style
from quantprop.plots.checks import refusal
from quantprop.plots.panels import Scale, panels, ranked
from quantprop.plots.series import time_of
from quantprop.report.names import called
from quantprop.report.svg import STYLE, inline
from quantprop.runtime.markup import Markup, element
from quantprop.tables import TableModel
from quantprop.tables.targets import REAL

SIZE, SMALL = (4.8, 3.5), (3.2, 2.4)
COLOURS = {"qp": plots.RED, "ep": plots.BLUE, "vb": plots.GREEN, "laplace": plots.ORANGE, "power-ep": plots.GREY}
MAX_FEATURES = 20  # per figure
MAX_CLASSES = 8  # which colours distinguish


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows, and what is seen in it."""

    figure: Figure
    caption: str
    alt: str


def pictures(comparison: Comparison) -> Iterator[Picture]:
    yield from posterior(comparison)
    yield differences(comparison)
    yield from (calibration(one) for one in comparison.methods)
    if comparison.posteriors:
        yield variances(comparison)
    if relevance(comparison.first.model):
        yield lengthscales(comparison)


def gallery(pictures: Iterable[Picture], key: str, size: str = "") -> Markup:
    """Figures with their captions, "small" ones close together; `key` makes their ids unique."""
    with style.context(["default", STYLE]):
        return element("div", *(
            element("figure", inline(one.figure, one.alt, f"{key}-{i}"), element("figcaption", one.caption))
            for i, one in enumerate(pictures)
        ), class_=f"figures {size}".strip())  # fmt: skip


def _drawn(draw: Callable[[Axes], object], title: str = "") -> Figure:
    figure = Figure(figsize=SIZE, layout="constrained")
    ax = figure.subplots()
    draw(ax)
    ax.set_title(plain(title), fontsize=10, loc="left")
    return figure


def differences(comparison: Comparison) -> Picture:
    """Differences in score from the first method, with intervals."""
    first, others = called(comparison.first.method), comparison.all[1:]
    less = [one.less(comparison.first)["ntll"] for one in others]
    place = np.arange(len(others))

    def draw(ax: Axes) -> None:
        ax.axvline(0.0, color=plots.GREY, linewidth=1.0)
        values, margins = np.array([one.value for one in less]), np.array([one.margin for one in less])
        ax.errorbar(values, place, xerr=np.nan_to_num(margins), fmt="o", color=plots.BLUE, capsize=3)
        ax.set_yticks(place, [called(one.method) for one in others])
        ax.set(xlabel=f"NTLL minus NTLL of {first}, nats per row", ylim=(len(others) - 0.5, -0.5))

    caption = f"Differences in NTLL from {first}, with 95 % intervals. To the right of 0, {first} predicts better."
    said = "; ".join(f"{called(one.method)} {part.value:+.3g}" for one, part in zip(others, less, strict=True))
    return Picture(_drawn(draw), caption, f"Points with intervals. {caption} {said}.")


def calibration(one: Evaluated) -> Picture:
    """Reliability of class probabilities, or the PIT histogram of numbers, over all rows scored."""
    forecast, name = one.forecast, called(one.method)
    error = f"calibration error {forecast.calibration:.3f} over {len(forecast.scores()['ntll'])} forecasts"
    if isinstance(forecast, ClassForecast):
        p, came = forecast.stated
        caption = f"{name}: reliability of predictions for left-out rows."

        def draw(ax: Axes) -> None:
            plots.reliability(p, came, ax=ax)
            ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.08))  # where forecasts better than chance leave room

        return Picture(_drawn(draw, name), caption, f"Reliability diagram of {name}: {error}.")
    lower, pit = forecast.pit.T
    given = pit if np.array_equal(lower, pit) else forecast.pit  # one column for continuous y
    caption = f"{name}: probability integral transform of left-out rows; flat if calibrated."
    return Picture(_drawn(lambda ax: plots.pit(given, ax=ax), name), caption, f"PIT histogram of {name}: {error}.")


def effects(model: TableModel, which: int = 0) -> Iterator[Picture]:
    """A panel for each term of a model of terms, in the table's units; then those of a parameter that varies."""
    solution: Any = model.fits[which].solution
    yield from _of_terms(model, which, solution.of_f, term_summary(model, which).shares, "f", _scale(model))
    if (varying := varying_parameter(model, which)) is not None:
        of = f"the function behind the {varying['parameter']}"
        yield from _of_terms(model, which, solution.parameter, varying["shares"], of, _scale(model)._replace(of_y=1.0))


def checks(model: TableModel, which: int = 0) -> Picture | None:
    """Checks of a model of one function with one y per row; None for others."""
    solution = model.fits[which].solution
    if not isinstance(solution, Solution) or refusal(solution):
        return None
    figure: Any = plots.check(model.estimator if len(model.fits) == 1 else solution)[0].figure
    plt.close(figure)
    said = "Observations and replicates, PIT of left-out rows, and residuals against the effects of terms."
    return Picture(figure, said, f"Panels that check the model. {said}")


def _of_terms(
    model: TableModel, which: int, solution: Solution, shares: Mapping[str, float], of: str, scale: Scale
) -> Iterator[Picture]:
    whole = with_components(model, which) is None  # otherwise the components of its term are drawn on their own
    drawn = [panel for panel in panels(solution) if panel.name in shares or (whole and len(panel.columns) == 1)]
    if len(drawn) > 1 and time_of(solution) is not None:
        figure = Figure(figsize=(SIZE[0], 0.4 * SIZE[1] * (len(drawn) + 2)), layout="constrained")
        plots.decomposition(solution, scale=scale, figure=figure)
        caption = f"Terms of {of} over time: means with 50 % and 90 % intervals."
        yield Picture(figure, caption, caption)
    for panel in drawn:
        figure = Figure(figsize=SIZE, layout="constrained")
        plots.effect(solution, panel.name, scale=scale, ax=figure.subplots())
        share = f": {100.0 * shares[panel.name]:.1f} % of the variance of {of}" if panel.name in shares else ""
        shown = "mean with 50 % and 90 % intervals" if panel.is_drawn else "histogram of the means at the rows"
        caption = f"The effect of {panel.name} on {of}, {shown}{share}."
        yield Picture(figure, caption, caption)


def components(model: TableModel, posterior: Solution | Stack, found: Sobol) -> Iterator[Picture]:
    """A panel for each column and for the largest interactions, all curves on one scale."""
    drawn = [panel for panel in ranked(posterior, found.shares) if panel.name in found.shares]
    figures = [Figure(figsize=SMALL, layout="constrained") for _ in drawn]
    axes = [figure.subplots() for figure in figures]
    curves = [ax for ax, panel in zip(axes, drawn, strict=True) if len(panel.columns) == 1]
    scale = _scale(model)
    for panel, ax in zip(drawn, axes, strict=True):
        plots.effect(posterior, panel.name, scale=scale, ax=ax)
        ax.set_title("", loc="left")
    lower, upper = zip(*(ax.get_ylim() for ax in curves), strict=True)
    for ax in curves:
        ax.set_ylim(min(lower), max(upper))
    for panel, figure in zip(drawn, figures, strict=True):
        name, share = component_named(panel.name, model.encoding.features), found.shares[panel.name]
        caption = f"{name}: {share.share:.1%} of the variance of f ({share.lower:.1%} to {share.upper:.1%})"
        yield Picture(figure, caption, f"The effect of {caption}, mean with intervals.")


def _scale(model: TableModel) -> Scale:
    """The names and units of the columns of a table, and the unit of f."""
    encoding = model.encoding
    coded = {i: column.levels for i, column in enumerate(encoding.columns) if column.treatment == "coded"}
    centre, unit = dict(enumerate(encoding.centre)), dict(enumerate(encoding.scale))
    dates = tuple(encoding.features.index(column.name) for column in encoding.columns if column.dates)
    return Scale(dict(enumerate(encoding.features)), coded, centre, unit, dates, model.scale_of_f[1])


def posterior(comparison: Comparison) -> Iterator[Picture]:
    """The posterior over one feature, the class map over two, or what can be drawn over more."""
    model, method = comparison.first.model, called(comparison.first.method)
    features, target, classes = model.encoding.features, model.target, comparison.problem.target.classes
    two = len(model.labels) == 2
    if len(features) == 1 and (two or not classes):
        yield _over_one(comparison, "f", f"{method}: the latent function f over {features[0]}.")
        if not classes:
            yield _over_one(comparison, "y", f"{method}: new {target} over {features[0]}, and the data.")
    elif len(features) == 2 and two:
        caption = f"{method}: probability of {model.labels[1]!r}, and its contour at ½."
        yield _map(comparison, _probability_map, caption)
    elif two:
        yield _latent_rows(comparison, f"{method}: latent f of every row, mean and two standard deviations.")
    elif classes and len(model.labels) <= MAX_CLASSES:
        if len(features) == 2:
            caption = f"{method}: the most probable {target}, paler where it is less certain."
            yield _map(comparison, plots.class_regions, caption)
        yield _by_class(comparison, f"{method}: reliability of each {target}, left-out rows.")
    elif not classes:
        yield _against(comparison, f"{method}: {target} against its predicted mean, left-out rows.")


def _over_one(comparison: Comparison, of: str, caption: str) -> Picture:
    model = comparison.first.model
    encoding, solution = model.encoding, model.fits[0].solution
    given = comparison.problem.target.y[comparison.division.shown]
    real = comparison.problem.target.likelihood in REAL  # whose y are standardised
    centre, scale = (given.mean(), given.std()) if real else (0.0, 1.0)
    y = (given - centre) / scale if of == "y" else np.zeros(len(given))  # f is drawn without y

    def draw(ax: Axes) -> None:
        plots.posterior(solution, solution.X, y, of=of, ax=ax)
        _in_units(ax.xaxis, encoding.centre[0], encoding.scale[0])
        ax.set(xlabel=plain(encoding.features[0]), ylabel="f" if of == "f" else plain(model.target))
        if of == "y" or real:
            _in_units(ax.yaxis, centre, scale)

    return Picture(_drawn(draw), caption, f"Mean with 50 % and 90 % intervals. {caption}")


def _in_units(axis: Any, centre: float, scale: float) -> None:
    """Ticks at round numbers of the table's own units, on an axis of standardised ones."""
    low, high = axis.get_view_interval()
    ticks = np.asarray(MaxNLocator(6).tick_values(centre + scale * low, centre + scale * high))
    axis.set_ticks((ticks - centre) / scale, [f"{tick:g}" for tick in ticks])
    axis.set_view_interval(low, high, ignore=True)


def _map(comparison: Comparison, plot: Callable[..., object], caption: str) -> Picture:
    model, shown = comparison.first.model, comparison.division.shown
    encoding = model.encoding
    x, y = encoding.standardised(comparison.problem.raw[shown]), comparison.problem.target.y[shown]

    def draw(ax: Axes) -> None:
        plot(model.estimator, x, y, ax=ax)
        for axis, i in ((ax.xaxis, 0), (ax.yaxis, 1)):
            _in_units(axis, encoding.centre[i], encoding.scale[i])
            axis.set_label_text(plain(encoding.features[i]))

    return Picture(_drawn(draw), caption, f"Map of two features. {caption}")


def _probability_map(*given: Any, ax: Axes) -> None:
    plots.class_probability(*given, ax=ax)
    ax.collections[0].set_rasterized(True)  # otherwise every triangle of the map would be a path of its own


def _by_class(comparison: Comparison, caption: str) -> Picture:
    forecast, labels = comparison.first.forecast, comparison.first.model.labels
    assert isinstance(forecast, ClassForecast)
    p = np.exp(forecast.log_p)
    figure = _drawn(lambda ax: plots.class_reliability(p, forecast.came, [plain(name) for name in labels], ax=ax))
    return Picture(figure, caption, f"Reliability diagram with a line for each class. {caption}")


def _latent_rows(comparison: Comparison, caption: str) -> Picture:
    """Rows by their latent mean, coloured by class: how far the classes are apart, and how sure that is."""
    model = comparison.first.model
    marginals = model.fits[0].solution.marginals
    order = np.argsort(marginals.mean)
    mean, sd = marginals.mean[order], np.sqrt(marginals.variance[order])
    y = comparison.problem.target.y[comparison.division.shown]
    second = (y == np.unique(y)[1])[order]
    place = np.arange(len(order))

    def draw(ax: Axes) -> None:
        ax.axhline(0.0, color=plots.GREY, linewidth=1.0)
        ax.fill_between(place, mean - 2 * sd, mean + 2 * sd, color=plots.GREY, alpha=0.3, linewidth=0)
        for rows, colour, label in ((~second, plots.BLUE, model.labels[0]), (second, plots.ORANGE, model.labels[1])):
            ax.plot(place[rows], mean[rows], ".", color=colour, markersize=4, label=plain(label))
        ax.set(xlabel="rows, by the mean of f", ylabel="f")
        ax.legend(title=plain(model.target))

    return Picture(_drawn(draw), caption, f"Rows sorted by latent mean, coloured by class. {caption}")


def _against(comparison: Comparison, caption: str) -> Picture:
    forecast = comparison.first.forecast
    assert isinstance(forecast, NumberForecast)
    ends = [min(forecast.mean.min(), forecast.y.min()), max(forecast.mean.max(), forecast.y.max())]

    def draw(ax: Axes) -> None:
        ax.plot(ends, ends, color=plots.GREY, linewidth=1.0)
        ax.plot(forecast.mean, forecast.y, ".", color=plots.BLUE)
        ax.set(xlabel="forecast mean", ylabel=plain(comparison.problem.target.name))

    return Picture(_drawn(draw), caption, f"Scatter plot. {caption}")


def variances(comparison: Comparison) -> Picture:
    """Latent variances of EP across and of QP upwards, at the rows and under the same hyperparameters."""
    ep, qp = comparison.posteriors
    ratio = qp.marginals.variance / ep.marginals.variance
    caption = (
        f"Variance of f by EP and by QP, both with EP's hyperparameters: QP's is smaller at {(ratio < 1).sum()} of "
        f"{len(ratio)} rows, median ratio {np.median(ratio):.4f}."
    )
    return Picture(_drawn(lambda ax: plots.variances(ep, qp, ep.X, ax=ax)), caption, f"Scatter plot. {caption}")


def lengthscales(comparison: Comparison) -> Picture:
    """1 / lengthscale of every feature, by method: what counts, under ARD."""
    order = list(relevance(comparison.first.model))[:MAX_FEATURES]
    height = 0.8 / len(comparison.methods)
    figure = Figure(figsize=(SIZE[0], max(SIZE[1], 0.3 * len(order) + 1.2)), layout="constrained")
    ax = figure.subplots()
    for i, one in enumerate(comparison.methods):
        lengths = relevance(one.model)
        at = np.arange(len(order)) + (i - 0.5 * (len(comparison.methods) - 1)) * height
        ax.barh(
            at, [1.0 / lengths[name] for name in order], height, color=COLOURS[one.method], label=called(one.method)
        )
    ax.set_yticks(np.arange(len(order)), [plain(name if len(name) <= 32 else name[:31] + "…") for name in order])
    ax.invert_yaxis()
    ax.set(xlabel="1 / lengthscale (of standardised columns)")
    ax.legend()
    caption = f"Relevance of features: 1 / lengthscale. {order[0]} matters most by {called(comparison.first.method)}."
    return Picture(figure, caption, f"Bar chart. {caption}")
