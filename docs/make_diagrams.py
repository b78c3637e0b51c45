"""Draw the tree and the classes of the architecture page from the source: docs/pictures/tree.svg and classes.svg.

Run from anywhere: ``python docs/make_diagrams.py``. Nothing is imported from the library; tests/docs/test_diagrams.py
compares the stored pictures with what the source gives.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "quantprop"
PICTURES = ROOT / "docs" / "pictures"

# The layers of tests/test_imports.py, from the top, in bands that a reader can remember.
BANDS = {
    "applications": "use the library as its users do",
    "interfaces": "estimators, tables and plots",
    "learning": "hyperparameters, files",
    "inference": "data in, Solution out",
    "parts": "what a user combines into a Model",
    "foundations": "no Gaussian processes yet",
}
BAND_OF = {
    **dict.fromkeys(("cli", "report", "reference", "experiments"), "applications"),
    **dict.fromkeys(("comparison", "tables", "datasets", "plots", "estimators"), "interfaces"),
    **dict.fromkeys(("learning", "storage"), "learning"),
    **dict.fromkeys(("inference", "model"), "inference"),
    **dict.fromkeys(("methods", "priors", "projections", "likelihoods", "means", "kernels"), "parts"),
    **dict.fromkeys(("numerics", "core", "runtime"), "foundations"),
}
# Contracts: where the base class is, its name, the folder of its implementations, and what it maps.
CONTRACTS = (
    ("kernels/base.py", "Kernel", "kernels", "two points → covariance"),
    ("likelihoods/base.py", "Likelihood", "likelihoods", "y, f → log p(y | f)"),
    ("projections/base.py", "Projection", "projections", "tilted density → Gaussian"),
    ("methods/base.py", "Method", "methods", "marginal, site → new site"),
    ("priors/base.py", "Process", "priors", "kernel, X → Prior"),
    ("priors/base.py", "Prior", "priors", "sites → posterior"),
)
STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#222}.small{font-size:11px;fill:#555}"
    ".name{font-weight:600}.box{fill:#eef1fb;stroke:#3f51b5}.band{fill:#fafafa;stroke:#ccc}"
)


def layers() -> tuple[str, ...]:
    """The layers in the order of imports, as the test that enforces them has them."""
    tree = ast.parse((ROOT / "tests" / "test_imports.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return ast.literal_eval(node.value)
    raise LookupError("tests/test_imports.py has no LAYERS")


def classes(path: Path) -> list[ast.ClassDef]:
    """The classes of a module."""
    return [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]


def must_write(base: ast.ClassDef) -> list[str]:
    """The methods that every implementation writes: those that only raise NotImplementedError."""
    methods = [node for node in base.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in methods if "raise NotImplementedError" in ast.unparse(node.body[-1])]


def implementations(folder: Path, base: str) -> list[str]:
    """Classes of a folder that derive from a base, directly or not: those that the folder exports, or all of them."""
    found = [node for path in sorted(folder.rglob("*.py")) for node in classes(path)]
    names, grown = {base}, True
    while grown:
        more = {node.name for node in found if any(ast.unparse(above) in names for above in node.bases)}
        grown, names = not more <= names, names | more
    init = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    exported = {name.name for node in init.body if isinstance(node, ast.ImportFrom) for name in node.names}
    return sorted((names - {base}) & exported or names - {base})


def svg(width: int, height: int, parts: list[str]) -> str:
    """A picture on a white card, readable on pages of either scheme."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    card = f'<rect x="0" y="0" width="{width}" height="{height}" rx="8" fill="#fff"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", card, *parts, "</svg>", ""])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(words)}</text>'


def tree() -> str:
    """The folders in bands: each imports only from those below it, or to its left in its own band."""
    order, width, parts, y = layers(), 720, [], 16
    if missing := set(order) ^ set(BAND_OF):
        raise LookupError(f"BAND_OF and LAYERS differ in {', '.join(sorted(missing))}")
    for band, words in BANDS.items():
        names = [name for name in order if BAND_OF[name] == band]
        parts += [f'<rect class="band" x="16" y="{y}" width="{width - 32}" height="64" rx="6"/>']
        parts += [text(28, y + 20, band, "name"), text(28 + 8 * len(band) + 14, y + 20, words, "small")]
        x = 28
        for name in names:
            wide = 8 * len(name) + 20
            parts.append(f'<rect class="box" x="{x}" y="{y + 30}" width="{wide}" height="24" rx="4"/>')
            parts.append(text(x + 10, y + 46, name))
            x += wide + 8
        y += 72
    words = "A folder imports from those below it, and from those to its left in the same band."
    parts.append(text(28, y + 8, words, "small"))
    return svg(width, y + 24, parts)


def class_diagram() -> str:
    """What a user combines: each contract, the methods that an implementation writes, and the implementations."""
    parts, columns, wide, gap = [], 3, 290, 16
    bottoms = [16] * columns
    for k, (file, base, folder, maps) in enumerate(CONTRACTS):
        (node,) = [node for node in classes(SOURCE / file) if node.name == base]
        lines = [(base, "name"), (maps, "small")]
        lines += [(f"{name}()", "") for name in must_write(node)] or [("no method without a default", "")]
        listed = textwrap.wrap(", ".join(implementations(SOURCE / folder, base)), 46, break_on_hyphens=False)
        lines += [(line, "small") for line in listed]
        column, high = k % columns, 17 * len(lines) + 16
        x, y = 16 + column * (wide + gap), bottoms[column]
        rule = y + 8 + 17 * (len(lines) - len(listed))
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{wide}" height="{high}" rx="4"/>')
        parts.append(f'<line x1="{x}" y1="{y + 42}" x2="{x + wide}" y2="{y + 42}" stroke="#3f51b5"/>')
        parts.append(f'<line x1="{x}" y1="{rule}" x2="{x + wide}" y2="{rule}" stroke="#3f51b5"/>')
        parts += [text(x + 10, y + 19 + 17 * i, words, kind) for i, (words, kind) in enumerate(lines)]
        bottoms[column] += high + gap
    y = max(bottoms)
    for words in (
        "Model(kernel, likelihood, mean, process)   infer(model, X, y, method) → Solution   fit(...) → Fitted",
        "A Process makes a Prior at the inputs. The method updates sites and the Prior turns them into marginals.",
    ):
        parts.append(text(20, y + 14, words, "small"))
        y += 18
    return svg(16 + columns * (wide + gap), y + 12, parts)


DRAWINGS = {"tree.svg": tree, "classes.svg": class_diagram}


def main() -> None:
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    sys.exit(main())
