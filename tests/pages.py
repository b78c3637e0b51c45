"""The pages of the documentation, and the navigation that leads to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ENTRY = re.compile(r"^( *)- (?:\"?([^\":]+)\"?:)? ?(\S+\.md)?$")
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "results" not in path.parts
} | {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
GUIDES = sorted(name for name in PAGES if name.startswith("guides/"))
USERS = ["README.md", "index.md", *sorted(name for name in PAGES if name.startswith("start/")), *GUIDES]


class Place(NamedTuple):
    """An entry of the navigation: the titles that lead to it, and its page (none for a section)."""

    titles: tuple[str, ...]
    page: str


def navigation(text: str) -> list[Place]:
    """The entries of the contents in mkdocs.yml, in order.

    >>> navigation("nav:\\n  - A: a.md\\n  - B:\\n      - C: b/c.md\\n")
    [Place(titles=('A',), page='a.md'), Place(titles=('B',), page=''), Place(titles=('B', 'C'), page='b/c.md')]
    """
    above: list[tuple[int, str]] = []
    places = []
    lines = text[text.index("nav:\n") :].splitlines()[1:]
    for line in (line for line in lines if not line.lstrip().startswith("#")):
        indent, title, page = ENTRY.fullmatch(line).groups()
        above = [(depth, name) for depth, name in above if depth < len(indent)]
        if title:
            above.append((len(indent), title))
        places.append(Place(tuple(name for _, name in above), page or ""))
    return places


CONTENTS = navigation((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
