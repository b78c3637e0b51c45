"""The gallery: figures and printed lines of its scripts, and their code and notebooks on the site.

``python docs/make_gallery.py`` runs the scripts of docs/gallery (all of them, some minutes, or those named), stores
their figures, and writes what they print into docs/gallery/index.md. MkDocs loads this file as a hook.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "gallery"
SCRIPT = re.compile(r"^\[(\w+)\.py\]\(\1\.py\)$", re.MULTILINE)  # where a section of the page names its script


def run(script: Path) -> tuple[str, Any]:
    """Run a script without showing its figure; return what it prints, and the figure."""
    import matplotlib.pyplot as plt

    plt.close("all")
    out, show = io.StringIO(), plt.show
    plt.show = lambda *args, **kwargs: None
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(script.read_text(encoding="utf-8"), script.name, "exec"), {"__name__": "__main__"})
    finally:
        plt.show = show
    return out.getvalue().strip(), plt.gcf()


def notebook(source: str) -> dict[str, Any]:
    """A script as a notebook: its docstring as Markdown, and a cell of code for each block between blank lines.

    >>> [cell["cell_type"] for cell in notebook('"Title"\\n\\nimport a\\nimport b\\n\\nprint(a)\\n')["cells"]]
    ['markdown', 'code', 'code']
    """
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    lines = source.splitlines()
    blocks, before = [], tree.body[0].end_lineno or 0
    for node, after in zip(tree.body[1:], [*tree.body[2:], None], strict=True):
        end = node.end_lineno or node.lineno
        if after is None or any(not line.strip() for line in lines[end : after.lineno - 1]):
            blocks.append("\n".join(lines[before:end]).strip("\n"))
            before = end
    cells = [{"cell_type": "markdown", "metadata": {}, "source": f"# {title}\n\n{text}".strip()}]
    cells += [
        {"cell_type": "code", "metadata": {}, "source": block, "outputs": [], "execution_count": None}
        for block in blocks
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [{"id": f"cell-{k}", **cell} for k, cell in enumerate(cells)]
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: add a notebook for every script."""
    from mkdocs.structure.files import File

    for script in sorted(FOLDER.glob("*.py")):
        content = json.dumps(notebook(script.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
        files.append(File.generated(config, f"gallery/{script.stem}.ipynb", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """MkDocs' hook: on the gallery's page, show each script's code, with links to it and to its notebook."""
    if page.file.src_uri != "gallery/index.md":
        return markdown

    def shown(found: re.Match[str]) -> str:
        name = found.group(1)
        code = (FOLDER / f"{name}.py").read_text(encoding="utf-8").rstrip()
        links = f"[Script]({name}.py){{ download }} · [Notebook]({name}.ipynb){{ download }}"
        return f'{links}\n\n<details markdown="1"><summary>Code</summary>\n\n```python\n{code}\n```\n\n</details>'

    return SCRIPT.sub(shown, markdown)


def main(names: list[str]) -> None:
    """Run scripts, store their figures, and write what they print into the page."""
    import matplotlib

    matplotlib.use("Agg")
    page = FOLDER / "index.md"
    for script in sorted(FOLDER.glob("*.py")):
        if names and script.stem not in names:
            continue
        printed, figure = run(script)
        figure.savefig(FOLDER / "pictures" / f"{script.stem}.png", dpi=90, bbox_inches="tight")
        fence = re.compile(rf'(pictures/{script.stem}\.png\))\n\n```text title="prints"\n.*?```', re.DOTALL)
        text = page.read_text(encoding="utf-8")
        page.write_text(
            fence.sub(lambda m, said=printed: f'{m.group(1)}\n\n```text title="prints"\n{said}\n```', text),
            encoding="utf-8",
        )
        print(f"{script.stem}:\n{printed}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
