"""Files that earlier versions wrote: the models in them predict the same, and objects are the same."""

import json

import numpy as np
import pytest
from storage.cases import same
from storage.stored import DATA, RECORDS, STORED, predictions

from quantprop import load, tables
from quantprop.storage.records import decode, encode

# Errors of probabilities of several classes, as 0.1 computed them; today those of three classes have errors of 1e-8.
TOLERANCES = {("classifier-joint", "0.1"): 2e-5, ("classifier-joint-inducing", "0.1"): 3e-7}
VERSIONS = [folder.name for folder in sorted(DATA.iterdir())]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", STORED)
def test_a_stored_model_predicts_as_it_did(version, name):
    path = DATA / version / f"{name}.safetensors"
    expected = json.loads((DATA / version / "predictions.json").read_text())[name]
    model = tables.load(path) if name.startswith("table") else load(path)
    found = predictions(model)
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(row, other, rtol=1e-10, atol=TOLERANCES.get((name, version), 1e-10))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RECORDS)
def test_a_stored_object_is_the_same(version, name):
    stored = json.loads((DATA / version / "records.json").read_text())[name]
    assert same(decode(stored, name), RECORDS[name])
    assert decode(encode(RECORDS[name], name), name) == decode(stored, name)
