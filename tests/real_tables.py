"""Three real tables for the command line: counts with an exposure and groups, survival times, ordered scores.

Insurance claims (Baxter, Coutts and Ross 1980), survival with lung cancer (Kalbfleisch and Prentice 1980), bitterness
of wine (Randall 1989).
"""

import json
from pathlib import Path

from typer.testing import CliRunner

from quantprop.cli import app

DATA = Path(__file__).parent / "tables" / "data"
WORDS = {
    "insurance": ("--target", "Claims", "--exposure", "Holders"),
    "veteran": ("--target", "time", "--event", "status", "--likelihood", "weibull"),
    "wine": ("--target", "rating"),
}
KERNELS = {
    "insurance": ("group(Group) + group(Age) + group(District)", "group(Group) + group(Age)"),
    "veteran": ("linear(karno) + group(celltype)", "se(karno) + group(celltype)"),
    "wine": ("group(judge) + linear(temp) + linear(contact)", "linear(temp) + linear(contact)"),
}


def call(*words):
    """What a command prints."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def fitted(name, folder):
    """The file of a model by the first kernel, and what fit says of it."""
    model = folder / f"{name}.safetensors"
    words = (*WORDS[name], "--method", "ep", "--kernel", KERNELS[name][0], "--out", model, "--json")
    return model, json.loads(call("fit", DATA / f"{name}.csv", *words))


def compared(name, folder):
    """The page that compares both kernels, and what compare says of them."""
    page, (first, second) = folder / f"{name}.html", KERNELS[name]
    words = (*WORDS[name], "--methods", "ep", "--kernel", first, "--kernel", second, "--out", page, "--json")
    return page, json.loads(call("compare", DATA / f"{name}.csv", *words))
