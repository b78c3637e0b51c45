"""Files of any kind: what cannot be read says so and runs nothing."""

import json

import numpy as np
import pytest
from safetensors.numpy import save as serialized
from storage.cases import MODELS, made, parts

from quantprop.estimators.storage import load, save
from quantprop.storage import fitted as storage
from quantprop.storage.files import checksum


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "model"
    save(made(MODELS["ard"]), path)
    return path.read_bytes()


def refused(path, data, words):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert type(caught.value) is ValueError
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\xff" * 200, (10**9).to_bytes(8, "little") + b"{}", serialized({"a": np.ones(2)}), bytes(4096)],
)
def test_files_of_other_kinds(data, tmp_path):
    refused(tmp_path / "model", data, "is not a quantprop model")


def kernel_of(content):
    return content["model"]["fields"]["kernel"]["fields"]["left"]


def variance_of(content):
    return kernel_of(content)["fields"]["variance"]["fields"]


def setter(find, key, value):
    def change(content):
        find(content)[key] = value

    return change


def nested(levels):
    node = {"type": "kernels.White", "fields": {"variance": 1.0}}
    for _ in range(levels):
        node = {"type": "kernels.Sum", "fields": {"left": node, "right": node if levels < 20 else 1.0}}
    return node


HOSTILE = {
    "unknown type": (setter(kernel_of, "type", "os.system"), "unknown type 'os.system'"),
    "class trick": (setter(kernel_of, "type", "__class__"), "unknown type"),
    "type of another kind": (setter(kernel_of, "type", {"a": 1}), "unknown type"),
    "abstract type": (setter(kernel_of, "type", "kernels.Stationary"), "unknown type"),
    "a type that holds a function": (setter(kernel_of, "type", "kernels.Pairwise"), "unknown type"),
    "not a kernel": (setter(lambda c: c["model"]["fields"], "kernel", 3.0), "must be a kernel"),
    "likelihood as kernel": (
        setter(lambda c: c["model"]["fields"], "kernel", {"type": "likelihoods.Probit", "fields": {}}),
        "must be a kernel",
    ),
    "extra field": (setter(variance_of, "__class__", "x"), "wrong fields"),
    "dunder field": (setter(lambda c: kernel_of(c)["fields"], "__init__", 1.0), "wrong fields"),
    "fields not a mapping": (setter(kernel_of, "fields", [1.0, 1.0]), "wrong fields"),
    "bare list": (setter(variance_of, "value", [1.0]), "has an unknown form"),
    "infinite value": (setter(variance_of, "value", {"number": "inf"}), "finite numbers"),
    "text for a number": (setter(variance_of, "value", "1.0"), "finite numbers"),
    "boolean for a number": (setter(variance_of, "value", True), "finite numbers"),
    "huge number": (setter(variance_of, "value", 10**400), "finite numbers"),
    "number for a flag": (setter(variance_of, "fixed", 1), "true or false"),
    "a prior": (setter(variance_of, "prior", "jnp.log"), "must be None"),
    "reversed bounds": (setter(variance_of, "bounds", {"tuple": [2.0, 1.0]}), "lower < upper"),
    "bounds of three": (setter(variance_of, "bounds", {"tuple": [1.0, 2.0, 3.0]}), "lower, upper"),
    "negative variance": (setter(variance_of, "value", -1.0), "positive"),
    "array of objects": (
        setter(variance_of, "value", {"array": "O", "shape": [], "values": [1.0]}),
        "unknown type 'O'",
    ),
    "array too short": (
        setter(variance_of, "value", {"array": "float64", "shape": [3], "values": [1.0]}),
        "number of entries",
    ),
    "array of negative size": (
        setter(variance_of, "value", {"array": "float64", "shape": [-1], "values": []}),
        "not an array",
    ),
    "lengthscales for other inputs": (
        setter(
            lambda c: kernel_of(c)["fields"],
            "lengthscale",
            {"array": "float64", "shape": [3], "values": [1.0, 1.0, 1.0]},
        ),
        "does not fit X",
    ),
    "unknown reason": (setter(lambda c: c["status"], "reason", "magic"), "unknown reason"),
    "a method of another kind": (setter(lambda c: c, "method", {"type": "projections.KL", "fields": {}}), "method"),
    "a power out of range": (setter(lambda c: c["method"]["fields"], "power", 7.0), "power must lie"),
    "nested 300 deep": (setter(lambda c: c["model"]["fields"], "kernel", nested(300)), "more than 260 deep"),
    "missing part": (lambda content: content.pop("objective"), "wrong entries"),
}


def rewritten(metadata, content, tensors):
    """A file as someone makes it who knows the format: its checksum is right."""
    text = content if isinstance(content, str) else json.dumps(content)
    metadata = {**metadata, "content": text}
    return serialized(tensors, {**metadata, "sha256": checksum(metadata, tensors)})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content(name, valid, tmp_path):
    metadata, content, tensors = parts(valid)
    change, words = HOSTILE[name]
    change(content)
    refused(tmp_path / "model", rewritten(metadata, content, tensors), words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "JSON"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "JSON|wrong entries"),
        ("NaN", "NaN"),
        ("[1, Infinity]", "Infinity"),
        ("3", "wrong entries"),
        ("", "JSON"),
        ("9" * 10_000, "JSON"),
    ],
)
def test_hostile_text(content, words, valid, tmp_path):
    metadata, _, tensors = parts(valid)
    refused(tmp_path / "model", rewritten(metadata, content, tensors), words)


TENSORS = {
    "wrong shape": ("sites.nu", np.zeros(23), "wrong shape"),
    "not a matrix": ("X", np.zeros(48), "wrong shape"),
    "empty": ("X", np.zeros((0, 2)), "X is empty"),
    "NaN in X": ("X", np.full((24, 2), np.nan), "NaN"),
    "infinity in a site": ("sites.tau", np.full(24, np.inf), "infinity"),
    "another dtype": ("X", np.zeros((24, 2), dtype=np.float16), "type F16"),
    "whole numbers": ("theta", np.zeros(4, dtype=np.int64), "wrong shape|no floats"),
    "unknown": ("more", np.zeros(2), "unknown tensors: more"),
    "steps": ("trace.value", np.zeros(3), "wrong shape"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_hostile_tensors(name, valid, tmp_path):
    metadata, content, tensors = parts(valid)
    tensor, array, words = TENSORS[name]
    refused(tmp_path / "model", rewritten(metadata, content, {**tensors, tensor: array}), words)


def test_missing_tensor_and_other_kinds(valid, tmp_path):
    metadata, content, tensors = parts(valid)
    less = {name: array for name, array in tensors.items() if name != "sites.nu"}
    refused(tmp_path / "model", rewritten(metadata, content, less), r"sites\.nu is missing")
    refused(tmp_path / "model", rewritten({**metadata, "kind": "virus"}, content, tensors), "kind 'virus'")


def test_another_version_says_which_is_needed(valid, tmp_path):
    metadata, content, tensors = parts(valid)
    newer = {**metadata, "format_version": "3", "library_version": "9.1"}
    refused(
        tmp_path / "model",
        rewritten(newer, content, tensors),
        r"version 3, written by quantprop 9\.1.*reads format version 3",
    )
    refused(
        tmp_path / "model", rewritten({**metadata, "format_version": "x"}, content, tensors), "format version is 'x'"
    )


def test_hostile_estimators(regressor, tmp_path):
    save(regressor, tmp_path / "good")
    metadata, content, tensors = parts((tmp_path / "good").read_bytes())
    theirs = content["cores"][0]["kernel"]["fields"]["k1"]
    changes = [
        (content["parameters"], "normalize_y", "yes", "true or false"),
        (content["parameters"], "likelihood", "magic", "likelihood"),
        (content["parameters"], "kernel", {"type": "sklearn.PairwiseKernel", "fields": {}}, "unknown type"),
        (content["attributes"], "n_features_in_", 3, "columns"),
        (content["attributes"], "_y_std", {"number": "nan"}, "finite"),
        (theirs["fields"], "length_scale", "1", "finite numbers"),
        (theirs["fields"], "length_scale_bounds", "free", "bounds"),
        (theirs["fields"], "length_scale", {"array": "float64", "shape": [2], "values": [1.0, 1.0]}, "differ"),
        (content["cores"][0], "max_sweeps", "1", "an integer"),
        (content, "cores", [], "no model"),
    ]
    for owner, key, value, words in changes:
        before = owner[key]
        owner[key] = value
        refused(tmp_path / "model", rewritten(metadata, content, tensors), words)
        owner[key] = before
    refused(tmp_path / "model", rewritten(metadata, content, {**tensors, "0.weights": -np.ones(24)}), "weights")
    with pytest.raises(ValueError, match=r"quantprop\.load also estimators"):
        storage.load(tmp_path / "good")
