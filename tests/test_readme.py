"""The examples that people copy first."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.campaign
@pytest.mark.parametrize("page", ["README.md", "docs/likelihoods.md"])
def test_examples_run(page):
    found = blocks(page)
    assert found
    for code in found:
        exec(compile(code, page, "exec"), {})


@pytest.mark.campaign
def test_docstring_examples():
    import doctest
    import importlib
    import pkgutil

    import quantprop

    names = [m.name for m in pkgutil.walk_packages(quantprop.__path__, "quantprop.") if "demo" not in m.name]
    failed = {name: doctest.testmod(importlib.import_module(name)).failed for name in names}
    assert not {name: count for name, count in failed.items() if count}
