"""The tree is the architecture: imports go one way through it, and importing it costs and changes little."""

import ast
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "quantprop"

# A module or folder may import from those before it, never from those after it.
LAYERS = (
    "runtime",
    "core",
    "numerics",
    "kernels",
    "means",
    "likelihoods",
    "projections",
    "priors",
    "methods",
    "model",
    "inference",
    "storage",
    "learning",
    "estimators",
    "plots",
    "datasets",
    "tables",
    "comparison",
    "experiments",
    "reference",
    "report",
    "cli",
)
# These use the library as its users do, so they may also take names from the package itself.
FRONT = LAYERS[LAYERS.index("experiments") :]

BOOSTING = (PACKAGE, "comparison", "boosting")  # scikit-learn's, a baseline

MODULES = sorted(path for path in (SOURCE / PACKAGE).rglob("*.py"))


def dotted(path: Path, source: Path = SOURCE) -> tuple[str, ...]:
    """The module's name: src/quantprop/priors/dense.py is ('quantprop', 'priors', 'dense')."""
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(tree: ast.AST, module: tuple[str, ...], is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) of everything imported anywhere in a module, functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module if is_package else module[:-1]
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def violations(code: str, module: tuple[str, ...], is_package: bool = False) -> list[str]:
    """Say, for each import that the order of layers forbids, what is wrong with it."""
    if module == (PACKAGE,):
        return []
    layer, faults = module[1], []
    if layer not in LAYERS:
        return [f"{'.'.join(module)} is in no layer: place {layer!r} in LAYERS of tests/test_imports.py"]
    for line, name in imported(ast.parse(code), module, is_package):
        top, *rest = name.split(".")
        if top == "sklearn" and layer != "estimators" and module != BOOSTING:
            faults.append(f"line {line}: only estimators may import sklearn")
        if top != PACKAGE:
            continue
        other = rest[0] if rest else "*"
        if other not in LAYERS:
            if layer not in FRONT:
                faults.append(f"line {line}: {name} comes from the package itself; import it from its own module")
        elif LAYERS.index(other) > LAYERS.index(layer):
            faults.append(f"line {line}: {layer} imports {name}, but {other} comes after it in LAYERS")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=[".".join(dotted(path)) for path in MODULES])
def test_imports_follow_the_layers(path):
    faults = violations(path.read_text(encoding="utf-8"), dotted(path), path.name == "__init__.py")
    assert not faults, "\n".join([str(path.relative_to(SOURCE)), *faults])


@pytest.mark.parametrize(
    ("module", "code", "fault"),
    [
        ("quantprop.numerics.special", "from quantprop.inference.engine import run", "inference comes after it"),
        ("quantprop.numerics.special", "import quantprop.inference.engine as e", "inference comes after it"),
        ("quantprop.numerics.special", "from .. import inference", "inference comes after it"),
        ("quantprop.priors.dense", "from ..inference import run", "inference comes after it"),
        ("quantprop.priors.dense", "def f():\n    from quantprop import inference", "line 2: priors imports"),
        ("quantprop.projections.base", "from quantprop.methods.ep import EP", "methods comes after it"),
        ("quantprop.numerics.special", "from quantprop import Model", "from its own module"),
        ("quantprop.kernels", "from sklearn.gaussian_process import kernels", "only estimators"),
        ("quantprop.novelty", "", "place 'novelty' in LAYERS"),
        ("quantprop.inference.engine", "from .sites import Site\nfrom quantprop.priors.dense import Dense", None),
        ("quantprop.priors.dense", "from .other import helper\nimport numpy", None),
        ("quantprop.comparison.compare", "import sklearn.ensemble", "only estimators"),
        ("quantprop.estimators.classifier", "import sklearn.base", None),
        ("quantprop.report.demo", "from quantprop import GaussianProcessClassifier, datasets", None),
        ("quantprop", "from quantprop import cli", None),
    ],
)
def test_the_check_itself(module, code, fault):
    faults = violations(code, tuple(module.split(".")))
    assert len(faults) == (0 if fault is None else 1)
    assert fault is None or fault in faults[0]


def test_no_module_imports_itself_by_way_of_others():
    """Inside folders too, and by names in quotes, which `import_module` takes."""
    known = {".".join(dotted(path)): path for path in MODULES}
    graph = {}
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {found for _, found in imported(tree, dotted(path), path.name == "__init__.py")}
        called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        first = [node.args[0] for node in called if "import_module" in ast.unparse(node.func)]
        named = {str(node.value) for node in first if isinstance(node, ast.Constant)}
        reached = {found if found in known else found.rpartition(".")[0] for found in names | named}
        graph[name] = (reached & set(known)) - {name, PACKAGE}
    graph[PACKAGE] = set()  # imports everything, on first use
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


def test_the_tree_can_be_held_in_one_head():
    """Entries at the first level, imports between them (A uses B counts once), and the longest chain of these."""
    uses = {layer: set() for layer in LAYERS}
    for path in MODULES:
        module = dotted(path)
        if module == (PACKAGE,):
            continue
        found = imported(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py")
        tops = {name.split(".")[1] for _, name in found if name.startswith(PACKAGE + ".")}
        uses[module[1]] |= (tops & set(LAYERS)) - {module[1]}
    entries = [path for path in (SOURCE / PACKAGE).iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 24
    assert sum(map(len, uses.values())) <= 135
    longest: dict[str, int] = {}
    for layer in LAYERS:  # imports only from layers before it
        longest[layer] = 1 + max((longest[used] for used in uses[layer]), default=0)
    assert max(longest.values()) <= 14


def test_only_the_default_names_the_dense_prior_outside_its_folder():
    naming = [path for path in MODULES if re.search(r"\bDense(Prior)?\b", path.read_text(encoding="utf-8"))]
    outside = {".".join(dotted(path)) for path in naming if "priors" not in path.parts}
    assert outside == {PACKAGE, f"{PACKAGE}.model"}  # the package exports the name


def test_relative_imports_inside_a_package_file():
    assert not violations("from .dense import Dense", ("quantprop", "priors"), is_package=True)
    assert violations("from ..inference import run", ("quantprop", "priors"), is_package=True)


def test_importing_quantprop_is_light_and_changes_no_setting():
    probe = (
        "import sys, quantprop, jax\n"
        "heavy = [m for m in ('sklearn', 'scipy.stats', 'matplotlib') if m in sys.modules]\n"
        "print(heavy, jax.config.jax_enable_x64)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    environment["PYTHONPATH"] = str(SOURCE)
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] False"
