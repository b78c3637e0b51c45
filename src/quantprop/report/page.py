"""One page that needs nothing else: no request leaves it, no script runs in it, and it reads in the dark and on a
phone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from quantprop.report.choice import ChoiceStudy
from quantprop.report.reading import Reading
from quantprop.report.study import Study
from quantprop.runtime.markup import Markup, element, joined
from quantprop.storage.files import replace_file

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
CSS = (resources.files("quantprop.report") / "page.css").read_text(encoding="utf-8")


def page(title: str, lead: str, studies: Sequence[Study | ChoiceStudy | Reading]) -> Markup:
    head = Markup(
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', title)}<style>\n{CSS}</style>"
    )
    sections = joined(study.section(f"s{i}") for i, study in enumerate(studies))
    body = element("main", element("h1", title), element("p", lead), sections)
    whole = element("html", element("head", head), element("body", body), lang="en")
    return Markup(f"<!doctype html>\n{whole}\n")


def write(
    path: str | os.PathLike[str], title: str, lead: str, studies: Sequence[Study | ChoiceStudy | Reading]
) -> Path:
    """Write the page to a file, atomically."""
    replace_file(os.path.realpath(path), page(title, lead, studies).encode("utf-8"))
    return Path(path)
