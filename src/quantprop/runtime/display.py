"""Text and HTML of objects: a record as the expression that makes it, a result as a heading and rows.

Everything in HTML is escaped. The classes are never imported: this is below all of them.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from quantprop.runtime.markup import element, joined

MAX_VECTOR = 20  # entries; a longer vector is abbreviated
END_ENTRIES = 3  # at each end of a longer one
MAX_WIDTH = 96  # letters of a value on one line
Rows = list[tuple[str, str]]
Form = Callable[[Any], str]
T = TypeVar("T")


# --- records as expressions ------------------------------------------------------------------------------------------


def full(number: Any) -> str:
    """All digits, as Python writes them."""
    return repr(float(number))


def short(number: Any) -> str:
    """Four digits."""
    return f"{float(number):.4g}"


def expression(node: Any, form: Form = full) -> str:
    """The Python expression of a kernel, likelihood, mean, method or Parameter.

    Numbers are always written, settings if they differ from the default. A class attribute `_operator`, a symbol and
    how strongly it binds, makes an infix of two fields; a method `_expression` replaces all of this for its class.
    """
    if isinstance(node, type) or not dataclasses.is_dataclass(node):
        return _leaf(node, form)
    if getattr(node, "_operator", None):
        return _infix(node, form)
    if own := getattr(node, "_expression", None):
        return own(form)
    return f"{type(node).__name__}({', '.join(f'{name}={value}' for name, value in _parts(node, form))})"


def _parts(node: Any, form: Form) -> Rows:
    """The fields of a record that its expression names: numbers, and settings that differ from the default."""
    given = [(field, getattr(node, field.name, None)) for field in dataclasses.fields(node) if field.init]
    return [(field.name, expression(value, form)) for field, value in given if not _is_default(field, value)]


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    is_setting = field.metadata.get("static") or not jax.tree.leaves(value)
    return value is None or (is_setting and (value is field.default or value == field.default))


def _infix(node: Any, form: Form) -> str:
    """Left to right, powers right to left, as Python reads them."""
    symbol, strength = node._operator
    left, right = (getattr(node, field.name) for field in dataclasses.fields(node))
    ends = []
    for operand, weaker in ((left, strength + (symbol == "**")), (right, strength + (symbol != "**"))):
        text = expression(operand, form)
        ends.append(f"({text})" if getattr(operand, "_operator", ("", 9))[1] < weaker else text)
    return f"{ends[0]} {symbol} {ends[1]}"


def _leaf(value: Any, form: Form) -> str:
    if isinstance(value, (str, bool, type(None), Tracer)):
        return repr(value)
    if isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        return numbers(value, form)
    if isinstance(value, list):
        return f"[{', '.join(_leaf(part, form) for part in value)}]"
    if isinstance(value, tuple):
        return f"({', '.join(_leaf(part, form) for part in value)}{',' * (len(value) == 1)})"
    return getattr(value, "__name__", None) or repr(value)


def numbers(value: Any, form: Form = full) -> str:
    """A number, or a list of them, of which a long one is shortened."""
    if isinstance(value, int):
        return repr(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return form(array)
    if array.ndim > 1:
        return f"an array of {' × '.join(map(str, array.shape))}"
    if (len(array) <= MAX_VECTOR and form is full) or len(array) <= 2 * END_ENTRIES + 1:
        return f"[{', '.join(form(x) for x in array)}]"
    ends = [*(form(x) for x in array[:END_ENTRIES]), "...", *(form(x) for x in array[-END_ENTRIES:])]
    return f"[{', '.join(ends)}]"


def expression_html(node: Any) -> str:
    """The expression with four digits per number, for a notebook."""
    return element("code", expression(node, short))


# --- results as a few lines ------------------------------------------------------------------------------------------


def gaussians(node: Any) -> str:
    """Normal or Natural in one line, long vectors by their ends."""
    return f"{type(node).__name__}({', '.join(f'{name}={value}' for name, value in _vectors(node))})"


def gaussians_html(node: Any) -> str:
    """Normal or Natural as a table."""
    rows = _vectors(node)
    shape = np.shape(getattr(node, rows[0][0]))
    return html((f"{type(node).__name__}: {' × '.join(map(str, shape)) if shape else 'one'}", rows))


def _vectors(node: Any) -> Rows:
    given = [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return [(name, _leaf(value, short)) for name, value in given if value is not None]


def model_rows(model: Any) -> Rows:
    """The parts of a model with their numbers."""
    return _parts(model, short)


def of_solution(solution: Any) -> tuple[str, Rows]:
    """Heading and rows of a posterior."""
    n, d = solution.X.shape
    heading = f"Solution by {expression(solution.method, short)}: {n} rows, {d} feature{'s' * (d != 1)}"
    return heading, [*model_rows(solution.model), ("inference", str(solution.status)), *_densities(solution)]


def _densities(solution: Any) -> Rows:
    loo = solution.loo[np.isfinite(solution.loo)]
    more = "" if len(loo) == len(solution.loo) else f" (of {len(loo)} rows with a proper cavity)"
    mean = f"{loo.mean():.4g} per row{more}" if len(loo) else "no proper cavity"
    return [("log evidence", f"{solution.log_evidence:.6g}"), ("leave-one-out", mean)]


def of_fitted(fitted: Any) -> tuple[str, Rows]:
    """Heading and rows of a learned model; parameters at a bound with their values."""
    heading, rows = of_solution(fitted.solution)
    parts, values = len(model_rows(fitted.model)), fitted.hyperparameters
    ends = [f"{name} = {short(values[name])}" for name in fitted.status.at_bounds if name in values]
    bounds = [("at a bound", ", ".join(ends))] if ends else []
    learned = ("learning", str(dataclasses.replace(fitted.status, at_bounds=())))
    objective = [] if fitted.objective == "evidence" else [(fitted.objective, f"{fitted.objective_value:.6g}")]
    return f"Fitted, {heading.removeprefix('Solution ')}", [*rows[:parts], learned, *bounds, *rows[parts:], *objective]


def of_predictive(predictive: Any) -> tuple[str, Rows]:
    latent = predictive.latent
    heading = f"Predictive distributions of y, {len(predictive.exposure)}"
    rows = [("likelihood", expression(predictive.likelihood, short)), ("latent f", gaussians(latent))]
    scales = ((name, getattr(predictive, name)) for name in ("exposure", "trials"))
    return heading, rows + [(name, numbers(value, short)) for name, value in scales if np.any(value != 1.0)]


def of_mixture(mixture: Any) -> tuple[str, Rows]:
    """Heading and rows of a mixture over hyperparameters: of f, or of y."""
    ends = (("mean", mixture.mean), ("variance", mixture.variance))
    count = f"{len(mixture.weights)} component{'s' * (len(mixture.weights) != 1)}"
    heading = f"{type(mixture).__name__} of {count} at {len(mixture.mean)} inputs"
    return heading, [(name, numbers(value, short)) for name, value in ends]


def of_integrated(integrated: Any) -> tuple[str, Rows]:
    """Heading and rows of a posterior with its hyperparameters integrated: the interval of each."""
    heading, _ = of_solution(integrated.components[0])
    intervals = [
        (name, f"{short(found.median)} (95 %: {short(found.lower)} to {short(found.upper)})")
        for name, found in integrated.parameters.items()
    ]
    rows = [*intervals, ("integration", str(integrated.status)), *_densities(integrated)]
    return f"Integrated, {heading.removeprefix('Solution ')}", rows


def of_stack(stack: Any) -> tuple[str, Rows]:
    """Heading and rows of a stack: the weight of each member, and what it scores alone."""
    heading, _ = of_solution(stack.components[0])
    members = [(one.name, f"weight {one.weight:.2f}, score {one.score:.3f} per row, {one.learned:.1f} hyperparameters")
               for one in stack.members]  # fmt: skip
    rows = [*members, *((name, f"excluded: {reason}") for name, reason in stack.left_out.items())]
    total = ("score of the stack", f"{stack.score:.3f} per row")
    return f"Stack, {heading.removeprefix('Solution ')}", [*rows, total]


def text(summary: tuple[str, Rows]) -> str:
    """A heading, and a line for each row."""
    heading, rows = summary
    width = max(len(name) for name, _ in rows)
    lines = [heading]
    for name, value in rows:
        first, *rest = textwrap.wrap(value, MAX_WIDTH, break_long_words=False) or [""]
        lines += [f"  {name:<{width}}  {first}", *(f"  {'':<{width}}  {more}" for more in rest)]
    return "\n".join(lines)


def html(summary: tuple[str, Rows]) -> str:
    """A heading and a table of the rows."""
    heading, rows = summary
    style = "text-align: left"
    cells = (
        element("tr", element("th", name, scope="row", style=style), element("td", value, style=style))
        for name, value in rows
    )
    return joined([element("div", element("b", heading)), element("table", element("tbody", *cells))])


def summarised(summary: Callable[[Any], tuple[str, Rows]]) -> Callable[[type[T]], type[T]]:
    """A class decorator: objects are printed, and shown in notebooks, as their summary."""

    def decorated(cls: type[T]) -> type[T]:
        cls.__repr__ = lambda self: text(summary(self))
        cls._repr_html_ = lambda self: html(summary(self))  # pyright: ignore[reportAttributeAccessIssue]
        return cls

    return decorated
