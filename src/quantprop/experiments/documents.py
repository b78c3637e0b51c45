"""Tables of text as Markdown, HTML and LaTeX. Any text may stand in a cell: each form escapes what it must."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from string import Template

from quantprop.runtime.markup import Markup, element, escaped


@dataclass(frozen=True)
class Sheet:
    """One table. `align` has one letter per column: l and r as in LaTeX, p for prose that may wrap."""

    title: str
    align: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True)
class Document:
    title: str
    lead: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


def _blocks(document: Document, heading: Callable, text: Callable, table: Callable) -> list[str]:
    """The document from its title to its notes, in the form that the three functions write."""
    blocks = [heading(1, document.title), text(document.lead)]
    for section in document.sections:
        blocks += [heading(2, section.title), text(section.about)]
        for sheet in section.sheets:
            blocks += [heading(3, sheet.title), table(sheet)]
    return [*blocks, heading(2, "Notes"), *map(text, document.notes)]


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    return "\n\n".join(_blocks(document, lambda level, text: f"{'#' * level} {_md(text)}", _md, _md_table)) + "\n"


def _md_table(sheet: Sheet) -> str:
    rule = ["---:" if letter == "r" else "---" for letter in sheet.align]
    lines = [map(_md, sheet.header), rule, *(map(_md, line) for line in sheet.lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _md(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))


# --- HTML ------------------------------------------------------------------------------------------------------------

_PAGE = Template((resources.files("quantprop.experiments") / "page.html").read_text(encoding="utf-8"))


def page(document: Document) -> str:
    """The document as one HTML page that needs no other file."""
    blocks = _blocks(document, lambda level, text: element(f"h{level}", text), partial(element, "p"), _html_table)
    return _PAGE.substitute(title=escaped(document.title), body="\n".join(blocks))


def _html_table(sheet: Sheet) -> Markup:
    def row(name: str, line: tuple[str, ...]) -> Markup:
        return element("tr", *(element(name, text, class_=at) for at, text in zip(sheet.align, line, strict=True)))

    body = Markup("\n".join(row("td", line) for line in sheet.lines))
    table = element("table", element("thead", row("th", sheet.header)), "\n", element("tbody", body))
    return element("div", table, class_="wide", tabindex="0")


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

    def heading(level: int, text: str) -> str:
        return rf"\{'sub' * (level - 1)}section*{{{_tex(text)}}}"

    blocks = _blocks(document, heading, _tex, _longtable)
    return _PREAMBLE + "\n\n".join(blocks) + "\n\\end{document}\n"


def _longtable(sheet: Sheet) -> str:
    head, *lines = (" & ".join(map(_tex, line)) + r" \\" for line in (sheet.header, *sheet.lines))
    columns = "".join(_COLUMN[letter] for letter in sheet.align)
    rows = "\n".join(lines)
    return (
        f"{{\\footnotesize\n\\begin{{longtable}}[l]{{@{{}}{columns}@{{}}}}\n\\toprule\n{head}\n\\midrule\n\\endhead\n"
        f"\\bottomrule\n\\endfoot\n{rows}\n\\end{{longtable}}}}"
    )


def _tex(text: str) -> str:
    """Text for LaTeX; a character that plain LaTeX has no sign for stands as its code point."""
    return "".join(
        _TEX.get(c) or (c if " " <= c <= "~" else f"{{[}}U+{ord(c):04X}{{]}}") for c in " ".join(text.split())
    )
