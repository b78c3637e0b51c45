"""The tree is the architecture: imports go one way through it, and importing it costs and changes little."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "quantprop"

# A module or folder may import from those before it, never from those after it.
LAYERS = (
    "markup",
    "display",
    "garbage",
    "system",
    "memory",
    "precision",
    "programs",
    "compiled",
    "threads",
    "gaussian",
    "special",
    "krylov",
    "quadrature",
    "mixtures",
    "quantiles",
    "parameters",
    "kernels",
    "means",
    "likelihoods",
    "data",
    "predictive",
    "projections",
    "project",
    "sites",
    "priors",
    "methods",
    "model",
    "engine",
    "objectives",
    "implicit",
    "continuation",
    "prediction",
    "solution",
    "infer",
    "ascent",
    "foretold",
    "evaluation",
    "landscape",
    "starts",
    "learn",
    "batches",
    "many",
    "predict_many",
    "storage",
    "estimators",
    "plots",
    "datasets",
    "tables",
    "insight",
    "comparison",
    "experiments",
    "reference",
    "report",
    "demo",
    "cli",
)
# These use the library as its users do, so they may also take names from the package itself.
FRONT = LAYERS[LAYERS.index("experiments") :]

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
        if top == "sklearn" and layer != "estimators":
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
        ("quantprop.special", "from quantprop.engine import run", "engine comes after it"),
        ("quantprop.special", "import quantprop.engine as e", "engine comes after it"),
        ("quantprop.special", "from . import engine", "engine comes after it"),
        ("quantprop.priors.dense", "from ..engine import run", "engine comes after it"),
        ("quantprop.priors.dense", "def f():\n    from quantprop import engine", "line 2: priors imports"),
        ("quantprop.projections.kl", "from quantprop.sites import Site", "sites comes after it"),
        ("quantprop.special", "from quantprop import Model", "from its own module"),
        ("quantprop.kernels", "from sklearn.gaussian_process import kernels", "only estimators"),
        ("quantprop.novelty", "", "place 'novelty' in LAYERS"),
        ("quantprop.engine", "from .sites import Site\nfrom quantprop.priors.dense import Dense", None),
        ("quantprop.priors.dense", "from .other import helper\nimport numpy", None),
        ("quantprop.estimators.classifier", "import sklearn.base", None),
        ("quantprop.demo", "from quantprop import GaussianProcessClassifier, datasets", None),
        ("quantprop", "from quantprop import demo", None),
    ],
)
def test_the_check_itself(module, code, fault):
    faults = violations(code, tuple(module.split(".")))
    assert len(faults) == (0 if fault is None else 1)
    assert fault is None or fault in faults[0]


def test_relative_imports_inside_a_package_file():
    assert not violations("from .dense import Dense", ("quantprop", "priors"), is_package=True)
    assert violations("from ..engine import run", ("quantprop", "priors"), is_package=True)


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
