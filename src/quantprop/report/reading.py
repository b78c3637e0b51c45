"""A learned model of a table as a section of a page: weights of a stack, effects, and shares of f."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quantprop.estimators.insight import component_named, has_terms, term_summary, with_components
from quantprop.inference.sobol import Share
from quantprop.inference.stacked import Stack
from quantprop.report.figures import checks, components, effects, gallery
from quantprop.runtime.markup import Markup, element, table
from quantprop.tables import TableModel

MIN_SHARE = 0.005  # curves and surfaces with smaller ones are only counted
WEIGHTS = (
    "The weights are those that predict left-out rows best. A score is the mean log density of a left-out row by one "
    "model alone (larger is better), corrected for the hyperparameters that were learned from it; their effective "
    "number is in the last column."
)
EFFECTS = (
    "A curve is the mean of f given one column, minus the mean of f, if columns are independent of each other. A "
    "surface is the mean of f given two columns, minus the mean of f and both curves. A stack averages over its models "
    "by weight. Curves are shown on one scale, with intervals that contain 50 % and 90 % of their posterior; surfaces "
    "that explain 1 % of f or more by sections at the 5 %, 50 % and 95 % quantiles of the second column, with 90 % "
    "intervals."
)
CHECKS = (
    "Observations and replicates of the model; the PIT of left-out rows, flat if quantiles are calibrated; and "
    "quantile residuals of left-out rows, standard normal if the model holds, against the effect of each term."
)
SHARES = "Shares of the variance of f, if every column is drawn independently of the others"
INTERVALS = ("share", "95 % interval")


@dataclass(frozen=True)
class Reading:
    """A model with a title and a sentence about it."""

    title: str
    about: str
    model: TableModel

    def section(self, key: str) -> Markup:
        """The section of a page; `key` makes its ids unique."""
        parts = [element("h2", self.title), element("p", self.about)]
        for i in range(len(self.model.fits)):
            if len(self.model.fits) > 1:
                parts.append(element("h2", f"{self.model.labels[i]} against the rest"))
            parts += [*learned(self.model, f"{key}-{i}", i), *checked(self.model, f"{key}-{i}", i)]
        return element("section", *parts)


def learned(model: TableModel, key: str, which: int = 0) -> Iterator[Markup]:
    """Weights, effects and shares of one fit of a model, if it is additive or a sum of terms."""
    if model.stacks:
        yield from _weights(model.stacks[which])
    if (posterior := with_components(model, which)) is not None:
        found, features = posterior.sobol(), model.encoding.features
        yield element("h3", "Curves and surfaces")
        yield element("p", EFFECTS, class_="note")
        yield gallery(components(model, posterior, found), key, "small")
        yield element("h3", "Shares")
        parts = _shares(found.shares, features, "curve or surface", "")
        columns = _shares(found.totals, features, "column", ": all curves and surfaces of a column")
        yield element("div", element("div", parts), element("div", columns), class_="figures")
    if has_terms(model):
        if drawn := list(effects(model, which)):
            yield from (element("h3", "Effects"), gallery(drawn, f"{key}-terms"))
        yield from _terms(model, which)


def checked(model: TableModel, key: str, which: int = 0) -> Iterator[Markup]:
    """Checks of one fit of a model, if there are any for it."""
    if (found := checks(model, which)) is not None:
        yield from (element("h3", "Checks"), element("p", CHECKS, class_="note"))
        yield gallery([found], f"{key}-checks")


def _weights(stack: Stack) -> Iterator[Markup]:
    yield element("h3", "Models and their weights")
    ranked = sorted(stack.members, key=lambda one: -one.weight)
    rows = [(one.name, f"{one.weight:.2f}", f"{one.score:.4f}", f"{one.learned:.1f}") for one in ranked]
    rows += [(name, "excluded", reason, "") for name, reason in stack.left_out.items()]
    yield table(("model", "weight", "score", "learned"), rows, WEIGHTS)


def _shares(shares: Mapping[str, Share], features: Sequence[str], what: str, of: str) -> Markup:
    rows = [
        (component_named(name, features), f"{one.share:.1%}", f"{one.lower:.1%} to {one.upper:.1%}")
        for name, one in shares.items()
        if one.share >= MIN_SHARE
    ]
    more = f". {len(shares) - len(rows)} others explain under {MIN_SHARE:.1%} each" if len(rows) < len(shares) else ""
    return table((what, *INTERVALS), rows, f"{SHARES}{of}{more}")


def _terms(model: TableModel, which: int) -> Iterator[Markup]:
    known = term_summary(model, which)
    yield element("h3", "The learned kernel, as a formula")
    yield element("pre", element("code", known.kernel))
    rows = [(name, f"{e.estimate:.4g}", f"{e.error:.2g}", f"{e.lower:.4g} to {e.upper:.4g}")
            for name, e in known.fixed.items()]  # fmt: skip
    if rows:
        yield table(("effect", "estimate", "standard error", "95 % interval"), rows, "Linear effects on f")
