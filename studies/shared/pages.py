"""Tables in Markdown pages, between a marker <!-- name --> and <!-- end -->, and p-values of several tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


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


def holm(p_values: list[float]) -> list[float]:
    """Return p-values corrected for several tests: each is rejected at the level of the family (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    order = np.argsort(p)
    stepped = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    return np.minimum(1.0, stepped)[np.argsort(order)].tolist()
