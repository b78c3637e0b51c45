"""Check that every relative link in the Markdown files of the root folder and of docs/ names a file that exists.

Run from anywhere: ``python docs/check_links.py``. Exits with 1 and one line per dead link. The build of the site checks
its own links and anchors; this checks the pages as they are read in the repository.
"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"""\]\(\s*<?([^)\s>]+)"""  # [text](target "title") and ![image](target)
    r"""|^[ ]{0,3}\[[^\]]+\]:\s*<?([^\s>]+)"""  # [label]: target
    r"""|(?:href|src)=["']([^"']+)["']""",  # <a href="target">, <img src="target">
    re.MULTILINE,
)
ELSEWHERE = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:|^//")  # http:, mailto:, ...


def targets(markdown: str) -> list[str]:
    """Return the link targets of a page, code left out.

    >>> targets("see [a](b.md#c), `[x](y)` and ![i](<i.png>)")
    ['b.md#c', 'i.png']
    """
    text = CODE.sub(lambda code: "\n" * code.group().count("\n"), markdown)
    return ["".join(groups) for groups in LINK.findall(text)]


def dead_links(page: Path) -> list[str]:
    """Return the relative targets of `page` that do not exist."""
    dead = []
    for target in targets(page.read_text(encoding="utf-8")):
        path = unquote(target.split("#")[0].split("?")[0])
        if not path or ELSEWHERE.match(target):
            continue
        base = ROOT if path.startswith("/") else page.parent
        if not (base / path.lstrip("/")).exists():
            dead.append(target)
    return dead


def main() -> int:
    """Print the dead links; return 1 if there are any."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("C*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    missing = [page.relative_to(ROOT) for page in pages if not page.is_file()]
    dead = [(page.relative_to(ROOT), link) for page in pages if page.is_file() for link in dead_links(page)]
    for page in missing:
        print(f"{page}: missing")
    for page, link in dead:
        print(f"{page}: dead link {link}")
    if not (missing or dead):
        print(f"{len(pages)} pages, all links lead somewhere")
    return 1 if missing or dead else 0


if __name__ == "__main__":
    sys.exit(main())
