"""Pages that state which versions are accepted agree with pyproject.toml, whose bounds `make test-oldest` tries."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pages import PAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STATED = {"JAX": "jax", "NumPy": "numpy", "SciPy": "scipy", "scikit-learn": "scikit-learn"}


def oldest(requirements: list[str]) -> dict[str, str]:
    """The lower bounds of packages, by name.

    >>> oldest(["jax>=0.9", "tqdm[extra]>=4"])
    {'jax': '0.9', 'tqdm': '4'}
    """
    needs = [Requirement(line) for line in requirements]
    return {need.name: bound.version for need in needs for bound in need.specifier if bound.operator == ">="}


BOUNDS = oldest(PROJECT["dependencies"])


def test_every_dependency_has_a_bound_that_the_tested_version_meets():
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    bounds = {name: Version(bound) for name, bound in oldest([*PROJECT["dependencies"], *extras]).items()}
    needed = {Requirement(line).name for line in [*PROJECT["dependencies"], *extras]} - {"quantprop"}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    tested = {name.lower(): Version(version) for name, version in (pin.split("==") for pin in pins)}
    assert set(bounds) == needed
    assert not [name for name, bound in bounds.items() if name in tested and tested[name] < bound]


def test_what_can_be_relied_on_states_the_bounds():
    rows = re.findall(r"^\| (JAX|NumPy.*?) \|.*\| (.*) or newer \|$", PAGES["reference/rely-on.md"], re.MULTILINE)
    stated = [pair for names, versions in rows for pair in zip(names.split(", "), versions.split(", "), strict=True)]
    assert {STATED[name]: version for name, version in stated} == {name: BOUNDS[name] for name in STATED.values()}


@pytest.mark.parametrize("name", STATED)
def test_the_page_about_installing_states_the_bounds(name):
    assert re.search(rf"\b{name} {re.escape(BOUNDS[STATED[name]])}(?![.\d]*\d)", PAGES["start/install.md"])


@pytest.mark.parametrize("page", ["start/install.md", "reference/rely-on.md", "README.md"])
def test_pages_name_the_oldest_python(page):
    oldest_python = PROJECT["requires-python"].removeprefix(">=")
    assert re.search(rf"Python[^.]*? {re.escape(oldest_python)}", PAGES[page])
    assert f"Programming Language :: Python :: {oldest_python}" in PROJECT["classifiers"]
