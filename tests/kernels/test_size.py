"""Kernels of too many terms are refused by every door, before anything goes through them by recursion."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import tinygp
from sklearn.gaussian_process import kernels as sk
from storage.cases import MODELS, made, parts
from storage.test_hostile_files import rewritten

from quantprop import GaussianProcessClassifier, GaussianProcessRanker, GaussianProcessRegressor, kernels, load, tables
from quantprop.estimators import from_sklearn
from quantprop.kernels.size import MAX_DEPTH, MAX_TERMS
from quantprop.storage import records
from quantprop.storage import save as saved

X, Y = np.linspace(0, 1, 6)[:, None], np.array([0, 1, 1, 0, 1, 0])


def chain(term, count):
    whole = term
    for _ in range(count - 1):
        whole = whole + term
    return whole


def balanced(term, doublings):
    for _ in range(doublings):
        term = term + term
    return term


def nested(levels):
    whole = kernels.White()
    for _ in range(levels):
        whole = whole**1.0
    return whole


def white(doublings):
    """A balanced sum as a file has it."""
    node = {"type": "kernels.White", "fields": {"variance": 1.0}}
    for _ in range(doublings):
        node = {"type": "kernels.Sum", "fields": {"left": node, "right": node}}
    return node


def loaded(folder):
    saved(made(MODELS["ard"]), folder / "model")
    metadata, content, tensors = parts((folder / "model").read_bytes())
    content["model"]["fields"]["kernel"] = white(12)
    (folder / "model").write_bytes(rewritten(metadata, content, tensors))
    load(folder / "model")


TABLE = {"x": X[:, 0], "y": Y}
DOORS = {
    "+": lambda _: chain(kernels.White(), 1000),
    "balanced": lambda _: balanced(kernels.White(), 12),
    "+ on columns": lambda _: chain(kernels.White() * kernels.Constant().on(0), 101),
    "per class": lambda _: kernels.PerClass((kernels.White(), chain(kernels.White(), 201))),
    "**": lambda _: nested(1000),
    "text": lambda _: kernels.Terms(" + ".join(["white()"] * 201)),
    "table": lambda _: tables.fit(tables.from_columns(TABLE, "made up"), "y", kernel="+".join(["se(x)"] * 201)),
    "estimator, text": lambda _: GaussianProcessRegressor(" + ".join(["linear(0)"] * 201)).fit(X, Y),
    "classifier, scikit-learn": lambda _: GaussianProcessClassifier(chain(sk.WhiteKernel(), 5000)).fit(X, Y),
    "regressor, scikit-learn": lambda _: GaussianProcessRegressor(chain(sk.RBF(), 201)).fit(X, Y),
    "ranker, scikit-learn": lambda _: GaussianProcessRanker(balanced(sk.RBF(), 12)).fit(X, [[0, 1]]),
    "from_sklearn": lambda _: from_sklearn(chain(sk.RBF(), 5000)),
    "tinygp": lambda _: kernels.from_tinygp(balanced(tinygp.kernels.Matern32(1.0), 9)),
    "file": loaded,
}


@pytest.mark.parametrize("door", DOORS)
def test_too_many_terms_are_refused_by_name(door, tmp_path):
    with pytest.raises(ValueError, match=r"kernel.*(more than 200 terms|more than 240 kernels inside each other)"):
        DOORS[door](tmp_path)
    deep = ()
    for _ in range(300):
        deep = (deep, 1.0)
    assert len(jax.tree.leaves(deep)) == 300  # which a tree of kernels too deep for JAX ends for the process


def test_as_many_terms_as_may_be_are_stored_and_printed():
    whole = chain(kernels.White(0.5).on(0), MAX_TERMS)
    assert repr(whole).count("White") == kernels.written(whole).count("white") == MAX_TERMS
    assert records.decode(json.loads(json.dumps(records.encode(whole, "kernel"))), "kernel") == whole
    assert whole.diagonal(X).tolist() == pytest.approx([0.5 * MAX_TERMS] * len(X))
    deep = nested(MAX_DEPTH - 1)
    assert records.decode(records.encode(deep, "kernel"), "kernel") == deep


# --- files larger than what they may be ------------------------------------------------------------------------------

READ = """
import sys, resource
from quantprop import load, tables
import quantprop.estimators.storage
resource.setrlimit(resource.RLIMIT_DATA, (4 * 2**30, 4 * 2**30))  # less than any of the files holds
for path in sys.argv[1:]:
    for read in (load, tables.load, tables.read):
        try:
            read(path)
        except (ValueError, MemoryError) as error:
            print(error)
"""
ENTRY = {"x": {"dtype": "F64", "shape": [2**37], "data_offsets": [0, 2**40]}}
OURS = {"format": "quantprop", "format_version": "2"}
FILES = {
    "does not begin with the length of a header": (None, 2**33),
    "lacks format='quantprop'": ({"format": "other"}, 2**40),
    "it was cut short": (OURS, 2**33),
    "takes 2048.0 GiB to read": (OURS, 2**40),
}


def test_a_file_is_refused_before_its_content_is_read(tmp_path):
    for i, (metadata, size) in enumerate(FILES.values()):
        header = b"" if metadata is None else json.dumps({"__metadata__": metadata, **ENTRY}).encode()
        with open(tmp_path / str(i), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
    done = subprocess.run([sys.executable, "-c", READ, *sorted(tmp_path.iterdir())], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    said = done.stdout.splitlines()
    for i, words in enumerate(FILES):
        model, table_model, table = said[3 * i : 3 * i + 3]
        assert words in model, done.stderr
        assert words in table_model
        assert "a NUL byte" in table
