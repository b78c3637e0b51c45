"""The documentation: its examples run and print what they say, and what it must cover is there.

Every ```python fence of README.md and docs/ is run, a page's fences one after the other in one namespace. A ```text
fence with the title "prints" after one holds what it prints: numbers may differ by 0.2 % or 1e-6, "..." stands for
anything. A fence whose title ends in "not run" is of a library that is not installed here; it only has to be Python.
"""

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import os
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from typer.testing import CliRunner

import quantprop
from quantprop import kernels, likelihoods, means, projections
from quantprop.cli import app
from quantprop.inference import engine, status
from quantprop.learning import ascent
from quantprop.runtime import disk_cache

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("README.md", "docs/index.md", "docs/reference/status.md", "docs/background/compilation.md")
PAGES = (
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if "results" not in path.parts),
)
FENCE = re.compile(r"^([ ]*)```(\w*)([^\n]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


class Fence(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str

    @property
    def runs(self) -> bool:
        return self.language == "python" and not self.title.endswith("not run")


def fences(page):
    found = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    blocks = []
    for indent, language, rest, text in found:
        title = re.search(r'title="([^"]*)"', rest)
        lines = [line.removeprefix(indent) for line in text.splitlines(keepends=True)]
        blocks.append(Fence(language, title.group(1) if title else "", "".join(lines)))
    return blocks


def agree(said, printed):
    """Whether a page says what was printed; see above."""
    pattern = ".*?".join(map(re.escape, NUMBER.sub("0", said).split("...")))
    if not re.fullmatch(pattern, NUMBER.sub("0", printed), flags=re.DOTALL):
        return False
    if "..." in said:
        return True
    numbers = zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True)
    return all(abs(float(a) - float(b)) <= 2e-3 * abs(float(a)) + 1e-6 for a, b in numbers)


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [("a 1.000", "a 1.001", True), ("a 1.0", "a 1.1", False), ("a 1", "b 1", False), ("a ... 2", "a b 7 c 2", True)],
)
def test_agreement(said, printed, same):
    assert agree(said, printed) == same


@pytest.fixture
def scratch(tmp_path, monkeypatch, request):
    """A folder of its own for files that examples write, and no window for pictures."""
    import matplotlib

    if "compilation.md" in request.node.name:  # which tells JAX of a folder itself
        request.getfixturevalue("no_compiled_programs")

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUANTPROP_CACHE")
    settings = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
                "jax_persistent_cache_enable_xla_caches")  # fmt: skip
    before = {name: getattr(jax.config, name) for name in settings}
    monkeypatch.setattr(disk_cache, "opened_folders", [])
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.campaign) for page in PAGES]
)
def test_examples_run(page, scratch):
    namespace = {"__name__": "__main__"}
    for block, after in itertools.pairwise([*fences(page), Fence("", "", "")]):
        if not block.runs:
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            exec(compile(block.text, page, "exec"), namespace)
        if after.language == "text" and after.title == "prints":
            assert agree(after.text.strip(), out.getvalue().strip()), f"{block.text}\nprints\n{out.getvalue()}"
        else:
            assert not out.getvalue(), f"{page} does not show what this prints:\n{block.text}\n{out.getvalue()}"


@pytest.mark.parametrize("page", PAGES)
def test_examples_are_python_and_their_imports_exist(page):
    for block in fences(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if block.runs and isinstance(node, ast.ImportFrom) and node.module.startswith("quantprop"):
                    module = importlib.import_module(node.module)
                    assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)


def commands(page):
    """The command lines of a page, those of several lines joined."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^    quantprop (\w+)(.*)$", text, flags=re.MULTILINE)


def test_pages_show_commands():
    shown = {page: len(commands(page)) for page in PAGES}
    assert min(shown["README.md"], shown["docs/reference/command-line.md"]) >= 4
    assert sum(count > 0 for count in shown.values()) > 12


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_that_are_shown_exist(page):
    """Every command line of a page names a command and options that it has."""
    for command, rest in commands(page):
        help_text = CliRunner().invoke(app, [command, "--help"]).stdout
        options = re.findall(r"--[a-z-]+", rest.split(" # ")[0])
        assert help_text
        assert not [option for option in options if f"{option} " not in help_text], (command, rest)


def test_every_option_of_a_table_is_described():
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    help_text = "".join(CliRunner().invoke(app, [command, "--help"]).stdout for command in ("fit", "predict"))
    options = set(re.findall(r"^  (--[a-z-]+)", help_text, flags=re.MULTILINE))
    obvious = {"--help", "--method", "--objective", "--restarts", "--quantiles"}  # which their help describes
    assert not [option for option in options - obvious if option not in page]


def test_every_reason_is_explained():
    page = (ROOT / "docs/reference/status.md").read_text(encoding="utf-8")
    reasons = {*status.REMEDIES, *engine.REASONS, *ascent.REASONS, "adjoint-failed"} - {"going"}
    assert not [reason for reason in reasons if f"| `{reason}` |" not in page]


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md"))
    listed = set(re.findall(r"^(?:::: quantprop[\w.]*\.|        - )(\w+)$", text, flags=re.MULTILINE))
    modules = {
        "active",
        "datasets",
        "estimators",
        "kernels",
        "likelihoods",
        "means",
        "plots",
        "projections",
        "storage",
        "tables",
    }
    public = {*quantprop.__all__, *projections.__all__} - modules
    public |= {
        name
        for part in (kernels, likelihoods, means)
        for name, of in vars(part).items()
        if (owner(of) or "").startswith(part.__name__)
    }
    public |= {name for name, of in vars(quantprop.plots).items() if (owner(of) or "").startswith("quantprop.plots.")}
    hidden = {name for name in public if name.startswith("_")} | {"squared_distances", "Stationary", "by_name", "names"}
    assert not public - hidden - listed


def documented():
    """Every name with a heading on the reference pages: its page, the object, and its docstring."""
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        for name in re.findall(r"^::: (quantprop[\w.]*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            module, last = name.rsplit(".", 1)
            thing = getattr(importlib.import_module(module), last)
            yield page, last, thing, inspect.getdoc(thing) or ""


def sections(docstring):
    """The sections of a docstring, by their headings."""
    parts = re.split(r"^(Args|Attributes|Returns):\n", docstring.split(">>>")[0], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def is_exception(thing):
    return inspect.isclass(thing) and issubclass(thing, Exception)


def test_every_argument_is_described_once():
    """In the docstring, where `help` shows it, in the order of the signature, with a meaning each."""
    for _, name, thing, docstring in documented():
        arguments = [] if is_exception(thing) else list(inspect.signature(thing).parameters)
        if inspect.isclass(thing) and not is_exception(thing) and arguments == ["args", "kwargs"]:
            continue  # a base class, which is not constructed
        found = sections(docstring)
        listed = found.get("Args", found.get("Attributes", ""))
        entries = re.findall(r"^ {4}(\w+): (.{4,})$", listed, flags=re.MULTILINE)
        assert [argument for argument, _ in entries] == arguments or is_exception(thing), name
        assert "Args" not in found or "Attributes" not in found, name


def test_every_function_says_what_it_returns():
    silent = {"save"}  # which returns None
    functions = {name: docstring for _, name, thing, docstring in documented() if inspect.isfunction(thing)}
    assert len(functions) > 40
    assert {name for name, docstring in functions.items() if "Returns" not in sections(docstring)} == silent


def test_every_name_has_an_example():
    """A doctest, or a fence on its page that runs and has its name (exceptions need none)."""
    lacking = []
    for page, name, thing, docstring in documented():
        shown = "".join(block.text for block in fences(page.relative_to(ROOT).as_posix()) if block.runs)
        if ">>>" not in docstring and not re.search(rf"\b{name}\b", shown) and not is_exception(thing):
            lacking.append(f"{page.name}: {name}")
    assert not lacking


def owner(thing):
    return getattr(thing, "__module__", None) if callable(thing) else None


@pytest.mark.campaign
def test_docstring_examples():
    import doctest
    import pkgutil

    os.environ.setdefault("MPLBACKEND", "Agg")
    names = [m.name for m in pkgutil.walk_packages(quantprop.__path__, "quantprop.") if "demo" not in m.name]
    failed = {name: doctest.testmod(importlib.import_module(name)).failed for name in names}
    assert not {name: count for name, count in failed.items() if count}
