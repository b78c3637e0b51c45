"""Tables of text as Markdown, HTML and LaTeX. Any text may stand in a cell: each form escapes what it must."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """One table. `align` has one letter per column: l and r as in LaTeX, p for prose that may wrap."""

    title: str
    align: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading, what is to be said below it, and its tables."""

    title: str
    about: str
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True)
class Document:
    """A title, what must be known to read on, sections, and notes after them."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    """The document as GitHub renders it."""
    blocks = [f"# {_md(document.title)}", _md(document.lead)]
    for section in document.sections:
        blocks += [f"## {_md(section.title)}", _md(section.about)]
        for sheet in section.sheets:
            rule = " | ".join("---:" if letter == "r" else "---" for letter in sheet.align)
            lines = [" | ".join(map(_md, line)) for line in (sheet.header, *sheet.lines)]
            lines.insert(1, rule)
            blocks += [f"### {_md(sheet.title)}", "\n".join(f"| {line} |" for line in lines)]
    return "\n\n".join([*blocks, "## Notes", *map(_md, document.notes)]) + "\n"


def _md(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))


# --- HTML ------------------------------------------------------------------------------------------------------------

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --faint: #f2f4f7; --rule: #b9c0ca; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8e8; --paper: #14171b; --faint: #1f242b; --rule: #4a525e; }}
}}
body {{ margin: 0 auto; padding: 1rem; max-width: 72rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }}
p {{ max-width: 46rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.25rem 0.6rem; text-align: left; white-space: nowrap; }}
th {{ border-bottom: 2px solid var(--rule); vertical-align: bottom; }}
td {{ border-bottom: 1px solid var(--rule); vertical-align: top; }}
.r {{ text-align: right; }}
.p {{ white-space: normal; min-width: 16rem; }}
tbody tr:nth-child(even) td {{ background: var(--faint); }}
th:first-child, td:first-child {{ position: sticky; left: 0; background: var(--paper); }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(document: Document) -> str:
    """The document as one HTML page that needs no other file."""
    blocks = [_tag("h1", document.title), _tag("p", document.lead)]
    for section in document.sections:
        blocks += [_tag("h2", section.title), _tag("p", section.about)]
        for sheet in section.sheets:
            head = _html_line("th", sheet.align, sheet.header)
            body = "\n".join(_html_line("td", sheet.align, line) for line in sheet.lines)
            table = f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
            blocks += [_tag("h3", sheet.title), f'<div class="wide" tabindex="0">\n{table}\n</div>']
    blocks += [_tag("h2", "Notes"), *(_tag("p", note) for note in document.notes)]
    return _PAGE.format(title=html.escape(document.title), body="\n".join(blocks))


def _tag(name: str, text: str) -> str:
    return f"<{name}>{html.escape(text)}</{name}>"


def _html_line(cell: str, align: str, texts: tuple[str, ...]) -> str:
    cells = (f'<{cell} class="{at}">{html.escape(text)}</{cell}>' for at, text in zip(align, texts, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


# --- LaTeX -----------------------------------------------------------------------------------------------------------

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{booktabs,longtable}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
\begin{document}
"""
_COLUMN = {"l": "l", "r": "r", "p": r"p{0.5\linewidth}"}
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}", '"': "''",
    "|": r"\textbar{}", "[": "{[}", "]": "{]}", "*": "{*}", "`": "{`}",
    "±": r"$\pm$", "−": r"$-$", "–": "--", "×": r"$\times$", "Δ": r"$\Delta$", "≤": r"$\leq$", "∞": r"$\infty$",
}  # fmt: skip


def latex(document: Document) -> str:
    """The document as LaTeX that any engine compiles; its tables use booktabs."""
    blocks = [rf"\section*{{{_tex(document.title)}}}", _tex(document.lead)]
    for section in document.sections:
        blocks += [rf"\subsection*{{{_tex(section.title)}}}", _tex(section.about)]
        blocks += [block for sheet in section.sheets for block in _longtable(sheet)]
    blocks += [r"\subsection*{Notes}", *map(_tex, document.notes)]
    return _PREAMBLE + "\n\n".join(blocks) + "\n\\end{document}\n"


def _longtable(sheet: Sheet) -> tuple[str, str]:
    head, *lines = (" & ".join(map(_tex, line)) + r" \\" for line in (sheet.header, *sheet.lines))
    columns = "".join(_COLUMN[letter] for letter in sheet.align)
    rows = "\n".join(lines)
    table = (
        f"{{\\footnotesize\n\\begin{{longtable}}[l]{{@{{}}{columns}@{{}}}}\n\\toprule\n{head}\n\\midrule\n\\endhead\n"
        f"\\bottomrule\n\\endfoot\n{rows}\n\\end{{longtable}}}}"
    )
    return rf"\subsubsection*{{{_tex(sheet.title)}}}", table


def _tex(text: str) -> str:
    """Text for LaTeX; a character that plain LaTeX has no sign for stands as its code point."""
    return "".join(
        _TEX.get(c) or (c if " " <= c <= "~" else f"{{[}}U+{ord(c):04X}{{]}}") for c in " ".join(text.split())
    )
