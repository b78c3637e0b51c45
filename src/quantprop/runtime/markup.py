"""HTML put together from parts. Text is escaped unless it is Markup already, so nothing from the data is ever a tag."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

MAX_SHORT_LETTERS = 40


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(part: Any) -> str:
    """A part as HTML."""
    return part if isinstance(part, Markup) else html.escape(str(part), quote=True)


def joined(parts: Iterable[Any]) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element; `class_` is written class, and None leaves an attribute out.

    >>> element("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    text = "".join(f' {key}="{html.escape(str(value), quote=True)}"' for key, value in given.items())
    return Markup(f"<{name}{text}>{joined(children)}</{name}>")


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str) -> Markup:
    """A table under its caption, which scrolls inside its own box where the screen is narrow."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [element("tr", *(element("td", cell, class_=_width(cell)) for cell in row)) for row in rows]
    whole = element("table", element("thead", head), element("tbody", *body))
    box = element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return joined([element("p", caption, class_="note"), box])


def _width(cell: Any) -> str | None:
    """Long text is broken into lines; all else stays on one."""
    return "long" if len(str(cell)) > MAX_SHORT_LETTERS else None
