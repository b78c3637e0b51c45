"""Tables in Markdown pages, between a marker <!-- name --> and <!-- end -->."""

from __future__ import annotations

import re
from collections.abc import Sequence


def between(text: str, name: str, content: str) -> str:
    """The text with what stands between two markers replaced."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    text, count = re.subn(pattern, lambda m: f"{m[1]}\n{content}\n{m[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page must have one pair of markers for {name}; it has {count}")
    return text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""])
