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
import tomllib
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
from quantprop.runtime import disk_cache

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("README.md", "docs/index.md", "docs/status.md", "docs/compilation.md")
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))
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


@pytest.mark.parametrize("page", ["README.md", "docs/command-line.md"])
def test_commands_that_are_shown_exist(page):
    """Every command line of a page names a command and options that it has."""
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"^    quantprop (\w+)(.*)$", text, flags=re.MULTILINE)
    assert len(shown) >= 4
    for command, rest in shown:
        help_text = CliRunner().invoke(app, [command, "--help"]).stdout
        options = re.findall(r"--[a-z-]+", rest.split(" # ")[0])
        assert help_text
        assert not [option for option in options if f"{option} " not in help_text], (command, rest)


def test_every_option_of_a_table_is_described():
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    help_text = "".join(CliRunner().invoke(app, [command, "--help"]).stdout for command in ("fit", "predict"))
    options = set(re.findall(r"^  (--[a-z-]+)", help_text, flags=re.MULTILINE))
    obvious = {"--help", "--method", "--objective", "--restarts", "--quantiles"}  # which their help describes
    assert not [option for option in options - obvious if option not in page]


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if page not in contents and not page.startswith("results/")]


def test_every_reason_is_explained():
    page = (ROOT / "docs/status.md").read_text(encoding="utf-8")
    reasons = {*status.REMEDIES, *engine.REASONS, "adjoint-failed"}
    assert not [reason for reason in reasons if f"| `{reason}` |" not in page]


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/api").glob("*.md"))
    listed = set(re.findall(r"^(?:::: quantprop[\w.]*\.|        - )(\w+)$", text, flags=re.MULTILINE))
    modules = {"datasets", "estimators", "kernels", "likelihoods", "means", "plots", "projections", "storage", "tables"}
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
    """Paths and arguments of what the API pages have a heading for; results list their fields instead."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/api").glob("*.md"))
    for name in re.findall(r"^::: (quantprop[\w.]*)$", text, flags=re.MULTILINE):
        module, last = name.rsplit(".", 1)
        thing = getattr(importlib.import_module(module), last)
        if not (inspect.isclass(thing) and (last in RESULTS or issubclass(thing, Exception))):
            yield f"{thing.__module__}.{last}", list(inspect.signature(thing).parameters), thing.__doc__ or ""


RESULTS = {"Solution", "Status", "Fitted", "Ending", "Step", "Predictive", "Normal", "Natural", "Projected", "Draws",
           "Evidence", "Dataset", "Integrated", "IntegrationStatus", "HyperparameterMarginal", "MixedPredictive",
           "NormalMixture", "Table", "TableModel", "Datum", "Likelihood", "ClassSolution", "ClassPredictive",
           "Corrected", "Skewed", "Modes"}  # fmt: skip


def test_every_argument_has_a_meaning():
    """In the docstring, or else in docs/arguments.toml, of which nothing is left over."""
    meanings = tomllib.loads((ROOT / "docs/arguments.toml").read_text(encoding="utf-8"))
    used = set()
    for path, arguments, docstring in documented():
        if "Args:" in docstring:
            listed = re.findall(r"^ {8}(\w+):", docstring.split("Args:")[1].split("Returns:")[0], flags=re.MULTILINE)
            assert listed == arguments, path
            continue
        own = [name for name in meanings if name != "shared" and f".{path}".endswith(f".{name}")]
        for argument in arguments:
            tables = [name for name in (*own, "shared") if argument in meanings[name]]
            assert tables, f"{argument} of {path}"
            used.add((tables[0], argument))
    assert not [
        (name, argument) for name, table in meanings.items() for argument in table if (name, argument) not in used
    ]


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
