"""The pictures of the architecture page are what the source gives, and what they say is true of the library."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from pathlib import Path

import pytest

from quantprop import kernels, likelihoods, methods, priors, projections

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"kernels": kernels, "likelihoods": likelihoods, "methods": methods, "priors": priors,
            "projections": projections}  # fmt: skip


def module():
    spec = importlib.util.spec_from_file_location("make_diagrams", ROOT / "docs" / "make_diagrams.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


DIAGRAMS = module()


@pytest.mark.parametrize("name", DIAGRAMS.DRAWINGS)
def test_pictures_are_what_the_source_gives(name):
    """If not: python docs/make_diagrams.py."""
    assert (DIAGRAMS.PICTURES / name).read_text(encoding="utf-8") == DIAGRAMS.DRAWINGS[name]()


def test_every_folder_is_in_the_picture_of_the_tree():
    source = DIAGRAMS.SOURCE
    folders = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    drawn = DIAGRAMS.tree()
    assert not [name for name in folders - {"__init__", "__main__"} if f">{name}</text>" not in drawn]


def test_a_band_has_nothing_from_above_it():
    order = DIAGRAMS.layers()
    bands = list(DIAGRAMS.BANDS)
    for below, above in itertools.pairwise(order):
        place, higher = bands.index(DIAGRAMS.BAND_OF[below]), bands.index(DIAGRAMS.BAND_OF[above])
        assert higher <= place, f"{above} is above {below} in the order of imports, and below it in the picture"


@pytest.mark.parametrize(("file", "base", "folder", "maps"), DIAGRAMS.CONTRACTS)
def test_contracts_are_those_of_the_classes(file, base, folder, maps):
    """The source says what the classes say when they are imported."""
    owner = importlib.import_module(f"quantprop.{file.removesuffix('.py').replace('/', '.')}")
    above = getattr(owner, base)
    (node,) = [node for node in DIAGRAMS.classes(DIAGRAMS.SOURCE / file) if node.name == base]
    assert all(callable(getattr(above, name)) for name in DIAGRAMS.must_write(node))
    listed = DIAGRAMS.implementations(DIAGRAMS.SOURCE / folder, base)
    assert len(listed) >= 2
    package = PACKAGES[folder]
    assert all(issubclass(getattr(package, name), above) for name in listed if hasattr(package, name))
    exported = {name for name, thing in vars(package).items() if isinstance(thing, type) and issubclass(thing, above)}
    assert exported - {base} <= set(listed)


def test_the_page_names_every_module_below_the_estimators():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = ("runtime", "core", "numerics", "kernels", "inference", "learning", "tables", "comparison", "storage")
    modules = [path for folder in folders for path in (DIAGRAMS.SOURCE / folder).glob("[a-z]*.py")]
    assert not [path.name for path in modules if f"`{path.stem}`" not in text and f"{path.stem}.py" not in text]
