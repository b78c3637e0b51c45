"""One folder, one awkward table and one model of it for all tests of commands that a process runs."""

import pytest
from awkward import awkward
from commands.calls import call


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="session")
def data(folder):
    path = folder / "awkward.csv"
    path.write_text(awkward(), encoding="utf-8", newline="")
    return path


@pytest.fixture(scope="session")
def fitted(folder, data):
    """A model of the awkward table by ARD, and what was said of it."""
    out = folder / "model.safetensors"
    return out, call("fit", data, "--target", "urteil", "--kernel", "ard", "--out", out, "--json")
