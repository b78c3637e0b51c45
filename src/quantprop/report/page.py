"""One page that needs nothing else: no request leaves it, no script runs in it, and it reads in the dark and on a
phone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from quantprop.report.choice import ChoiceStudy
from quantprop.report.study import Study
from quantprop.runtime.markup import Markup, element, joined
from quantprop.storage.files import replace_file

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1b1b; --muted: #6b6b6b; --line: #d9d9d9; --tint: #f5f5f2;
  --blue: #0072b2; --red: #c84e00; --green: #00795a; --orange: #b87a00; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e8e6e3; --muted: #a3a3a3; --line: #3a3d43;
  --tint: #202329; --blue: #58b4ec; --red: #ff8a4c; --green: #35c79a; --orange: #f0b03f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
h2, h3, p, figcaption { overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p { max-width: 48rem; margin: .5rem 0; }
.note, figcaption { color: var(--muted); font-size: .875rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1.25rem; }
figure { margin: 0; padding: .75rem; background: var(--tint); border-radius: .5rem; }
svg.figure { display: block; width: 100%; height: auto; max-width: 34rem; margin: 0 auto; }
svg.figure text { fill: var(--ink); font-family: system-ui, sans-serif !important; }
figcaption { margin-top: .5rem; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1.25rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td.long { white-space: normal; min-width: 17rem; max-width: 28rem; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .75rem; background: var(--tint); border-radius: .5rem; font-size: .875rem; }
:focus-visible { outline: 2px solid var(--blue); }
"""


def page(title: str, lead: str, studies: Sequence[Study | ChoiceStudy]) -> Markup:
    """The whole document."""
    head = Markup(
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', title)}<style>{CSS}</style>"
    )
    sections = joined(study.section(f"s{i}") for i, study in enumerate(studies))
    body = element("main", element("h1", title), element("p", lead), sections)
    whole = element("html", element("head", head), element("body", body), lang="en")
    return Markup(f"<!doctype html>\n{whole}\n")


def write(path: str | os.PathLike[str], title: str, lead: str, studies: Sequence[Study | ChoiceStudy]) -> Path:
    """Put the page into a file, whole or not at all."""
    replace_file(os.path.realpath(path), page(title, lead, studies).encode("utf-8"))
    return Path(path)
