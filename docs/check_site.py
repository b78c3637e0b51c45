"""Check that no page of the built site asks another machine for anything when it is viewed.

Run after the build: ``python docs/check_site.py build/site``. Exits with 1 and one line per outside source. Links for a
reader to click are not counted.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

SOURCES = {
    "href": ("link",),
    "src": ("audio", "embed", "iframe", "img", "script", "source", "video"),
    "data": ("object",),
}
OUTSIDE = re.compile(r"\s*(https?:)?//")
STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Sources(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loads = [value or "" for name, value in attrs if tag in SOURCES.get(name, ())]
        self.found += [value for value in loads if OUTSIDE.match(value)]


def outside(path: Path) -> list[str]:
    """What a page or a style sheet loads from elsewhere."""
    text = path.read_text(encoding="utf-8")
    sources = Sources()
    if path.suffix == ".html":
        sources.feed(text)
    return sources.found + STYLE.findall(text)


def main(folder: str) -> int:
    """Print every outside source; return 1 if there are any."""
    pages = sorted(path for path in Path(folder).rglob("*") if path.suffix in (".html", ".css"))
    found = [(page, source) for page in pages for source in outside(page)]
    for page, source in found:
        print(f"{page}: loads {source}")
    if not pages:
        print(f"{folder}: no pages")
    elif not found:
        print(f"{len(pages)} pages and style sheets, none loads anything from elsewhere")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
