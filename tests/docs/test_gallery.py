"""The scripts of the gallery run, print what its page says, and draw one figure each."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

mpl.use("Agg")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "gallery"
SCRIPTS = sorted(FOLDER.glob("*.py"))
QUICK = ("mining",)
SECTION = re.compile(
    r"^## (.+?)\n\n(.+?)\n\n!\[\1\]\(pictures/(\w+)\.png\)\n\n"
    r"```text title=\"prints\"\n(.+?)\n```\n\n\[\3\.py\]\(\3\.py\)$",
    re.MULTILINE | re.DOTALL,
)
SECTIONS = {name: (title, text, said) for title, text, name, said in
            SECTION.findall((FOLDER / "index.md").read_text(encoding="utf-8"))}  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def module():
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs" / "make_gallery.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


GALLERY = module()


def test_there_are_twelve_and_the_page_has_them_all():
    assert len(SCRIPTS) == 12
    assert [script.stem for script in SCRIPTS] == sorted(SECTIONS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_are_short_and_their_sections_have_their_words(script):
    source = script.read_text(encoding="utf-8")
    title, text, _ = SECTIONS[script.stem]
    assert len(source.splitlines()) < 60
    assert ast.get_docstring(ast.parse(source)) == f"{title}\n\n{text}"
    assert (FOLDER / "pictures" / f"{script.stem}.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    "script",
    [pytest.param(script, marks=() if script.stem in QUICK else pytest.mark.campaign) for script in SCRIPTS],
    ids=lambda script: script.stem,
)
def test_scripts_print_what_the_page_says(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed, figure = GALLERY.run(script)
    said = SECTIONS[script.stem][2]
    assert NUMBER.sub("0", printed) == NUMBER.sub("0", said)
    for a, b in zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True):
        last = 10.0 ** -len(a.partition(".")[2])  # one unit of the last digit that is printed
        assert abs(float(a) - float(b)) <= max(2e-3 * abs(float(a)), 1.01 * last)
    assert len(plt.get_fignums()) == 1
    assert any(ax.has_data() for ax in figure.axes)
    plt.close("all")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_notebooks_hold_the_whole_script(script):
    """Cells are the script's lines in their order, and each is Python by itself."""
    source = script.read_text(encoding="utf-8")
    cells = json.loads(json.dumps(GALLERY.notebook(source)))["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    tree = ast.parse(source)
    assert ast.dump(ast.Module(tree.body[1:], [])) == ast.dump(ast.Module(ast.parse("\n".join(code)).body, []))
    assert len(code) >= 4
    assert [ast.parse(cell) for cell in code]
    comments = [line for line in source.splitlines() if line.lstrip().startswith("#")]
    assert all(comment in "\n".join(code) for comment in comments)
