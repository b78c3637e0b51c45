"""Model files that were damaged or tampered with: a clear error, or the model that was saved; nothing else."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as serialized
from storage.cases import MODELS, made, parts, same

from quantprop.inference.results import Fitted
from quantprop.storage import load, save
from quantprop.storage.files import checksum

SECONDS = 5.0  # for one file: reading takes milliseconds
MEMORY = 300 * 2**20  # bytes that reading 1,000 small files may take, JAX's own traces included


@pytest.fixture(scope="module")
def model():
    return made(MODELS["ard"])


@pytest.fixture(scope="module")
def valid(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "model"
    save(model, path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def patience():
    """A reader that hangs is interrupted."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("reading took too long"))
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# --- mutations -------------------------------------------------------------------------------------------------------


def bits(draw, data):
    for at in draw.integers(len(data), size=draw.integers(1, 4)):
        data[at] ^= 1 << int(draw.integers(8))
    return data


def new_bytes(draw, data):
    at, size = int(draw.integers(len(data))), int(draw.integers(1, 40))
    data[at : at + size] = draw.bytes(size)
    return data


def cut(draw, data):
    return data[: draw.integers(len(data))]


def taken_out(draw, data):
    at, size = int(draw.integers(len(data))), int(draw.integers(1, 200))
    return data[:at] + data[at + size :]


def put_in(draw, data):
    at = int(draw.integers(len(data)))
    return data[:at] + draw.bytes(int(draw.integers(1, 200))) + data[at:]


def header_length(draw, data):
    sizes = [0, 1, 7, len(data), 2**31, 2**63 - 1, 2**64 - 1, int(draw.integers(2**62))]
    data[:8] = sizes[draw.integers(len(sizes))].to_bytes(8, "little")
    return data


def digits(draw, data):
    """A digit of the header becomes another: shapes, offsets, hyperparameters, versions, the checksum."""
    end = 8 + int.from_bytes(data[:8], "little")
    places = [i for i in range(8, end) if chr(data[i]).isdigit()]
    data[places[draw.integers(len(places))]] = ord(str(draw.integers(10)))
    return data


def swapped(draw, data):
    """Two numbers of the payload change places."""
    start = 8 + int.from_bytes(data[:8], "little")
    i, j = (start + 8 * int(k) for k in draw.integers((len(data) - start) // 8, size=2))
    data[i : i + 8], data[j : j + 8] = data[j : j + 8], data[i : i + 8]
    return data


DAMAGES = (bits, new_bytes, cut, taken_out, put_in, header_length, digits, swapped)


def outcome(path: Path) -> Fitted | str:
    began = time.perf_counter()
    try:
        found = load(path)
    except ValueError as error:
        found = "refused" if str(path) in str(error) else f"an error that does not name the file: {error}"
    assert time.perf_counter() - began < SECONDS
    return found


def damaged(model, valid, path, count):
    """Outcomes of so many damaged files; a model that is read must be the one that was written."""
    draw, outcomes = np.random.default_rng(0), Counter()
    for i in range(count):
        damage = DAMAGES[i % len(DAMAGES)]
        path.write_bytes(damage(draw, bytearray(valid)))
        found = outcome(path)
        assert isinstance(found, str) or same(found, model), f"damage {i}, {damage.__name__}"
        outcomes[damage.__name__, found if isinstance(found, str) else "equal"] += 1
    return outcomes


def test_a_thousand_damaged_files_are_refused_or_equal(model, valid, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = damaged(model, valid, tmp_path / "model", 1000)
    assert outcomes.total() == 1000
    assert {how for _, how in outcomes} <= {"refused", "equal"}
    assert sum(count for (_, how), count in outcomes.items() if how == "refused") > 900
    assert outcomes["swapped", "refused"] > 100  # of 125; some swaps change nothing
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MEMORY


@pytest.mark.campaign
def test_twenty_thousand_damaged_files(model, valid, tmp_path):
    assert damaged(model, valid, tmp_path / "model", 20_000).total() == 20_000


def test_a_changed_number_is_named_as_damage(valid, tmp_path):
    data = bytearray(valid)
    data[-3] ^= 1
    (tmp_path / "model").write_bytes(data)
    with pytest.raises(ValueError, match="damaged: its content does not match its checksum"):
        load(tmp_path / "model")


def test_files_of_version_1_have_no_checksum_and_are_read(model, valid, tmp_path):
    metadata, _, tensors = parts(valid)
    old = {key: text for key, text in metadata.items() if key != "sha256"} | {"format_version": "1"}
    (tmp_path / "model").write_bytes(serialized(tensors, old))
    assert same(load(tmp_path / "model"), model)
    (tmp_path / "model").write_bytes(serialized(tensors, old | {"format_version": "2"}))
    with pytest.raises(ValueError, match="damaged"):
        load(tmp_path / "model")


# --- files made by someone who knows the format ----------------------------------------------------------------------


def edits(draw, node):
    """Somewhere in a tree of JSON, another value."""
    values = [None, True, -1, 0, 1e308, 10**400, "", "../../x", "os.system", [], {}, [[[]]], {"tuple": []},
              {"number": "nan"}, {"type": "__import__", "fields": {}}, {"array": "float64", "shape": [2**40, 0],
              "values": []}, {"array": "object", "shape": [1], "values": ["__import__('os')"]}]  # fmt: skip
    while True:
        inside = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = inside[draw.integers(len(inside))]
        deeper = node[key] if isinstance(node[key], (dict, list)) and node[key] else None
        if deeper is None or draw.random() < 0.15:
            node[key] = values[draw.integers(len(values))]
            return
        node = deeper


@pytest.mark.parametrize("count", [25, pytest.param(2000, marks=pytest.mark.campaign)])
def test_hostile_edits_with_a_right_checksum(count, valid, tmp_path):
    """They may read as another model, but only as one: no other error, no hang, no memory."""
    draw, path, outcomes = np.random.default_rng(1), tmp_path / "model", Counter()
    for _ in range(count):
        metadata, content, tensors = parts(valid)
        edits(draw, content)
        metadata = {**metadata, "content": json.dumps(content)}
        path.write_bytes(serialized(tensors, {**metadata, "sha256": checksum(metadata, tensors)}))
        found = outcome(path)
        outcomes[found if isinstance(found, str) else type(found).__name__] += 1
    assert outcomes["refused"] > 0.8 * count
    assert set(outcomes) <= {"refused", "Fitted"}


NAMES = ["../../../../tmp/evil", "/etc/passwd", "X\0", "__class__", "a" * 100_000, "X/../X"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_tensors_are_only_names(name, valid, tmp_path):
    metadata, _, tensors = parts(valid)
    tensors[name] = np.zeros(2)
    (tmp_path / "model").write_bytes(serialized(tensors, {**metadata, "sha256": checksum(metadata, tensors)}))
    with pytest.raises(ValueError, match="unknown tensors"):
        load(tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_shapes_that_promise_more_than_there_is(valid, tmp_path):
    size = 8 + int.from_bytes(valid[:8], "little")
    for shape in ([2**62, 2], [2**40, 2**40], [24, 2**61], [-1, -48]):
        header = json.loads(valid[8:size])
        header["X"]["shape"] = shape
        text = json.dumps(header).encode()
        (tmp_path / "model").write_bytes(len(text).to_bytes(8, "little") + text + valid[size:])
        assert outcome(tmp_path / "model") == "refused"


def test_a_pipe_or_a_device_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="a pipe or a device"):
            load(path)
