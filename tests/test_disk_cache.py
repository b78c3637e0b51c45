"""Programs on file, named by what they are made from: found untraced by other processes, and by no wrong name."""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from quantprop import EP, QP, LogNormal, Model, Parameter, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural
from quantprop.runtime import compiled, disk_cache, executables, folders, programs

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROBE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
import numpy as np
from quantprop import Model, infer, kernels, likelihoods
X = np.linspace(-1.0, 1.0, 6)[:, None]
solution = infer(Model(kernels.Matern32(), likelihoods.Probit()), X, np.sign(X[:, 0]), "ep")
print("value", solution.log_evidence.hex(), [mean.hex() for mean in solution.marginals.mean.tolist()])
"""


pytestmark = pytest.mark.usefixtures("no_compiled_programs")


def start(folder):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "QUANTPROP_CACHE": str(folder)}
    return subprocess.Popen([sys.executable, "-c", PROBE], env=environment, stdout=subprocess.PIPE, text=True)


def said(process):
    """What it found, and the programs that it traced and that it compiled."""
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    compiled = [line for line in lines if "Finished XLA compilation" in line and disk_cache.MARK in line]
    return (
        [line for line in lines if line.startswith("value")],
        [li for li in lines if "Finished tracing" in li],
        compiled,
    )


def ran(folder):
    return said(start(folder))[:2]


@pytest.mark.campaign
def test_of_two_processes_at_once_one_compiles_each_program(tmp_path):
    """Without being asked to keep any: a folder is named by the environment, or else the user's."""
    both = [start(tmp_path), start(tmp_path)]
    (first, _, one), (second, _, other) = map(said, both)
    files = list(tmp_path.glob(f"*/{folders.STORE}/*"))
    assert len(one) + len(other) == len(files) > 3
    assert {file.name[-len(disk_cache.SUFFIX) :] for file in files} == {disk_cache.SUFFIX}
    assert first == second


def test_another_process_traces_no_program_and_has_the_same_bits(tmp_path):
    first, traced = ran(tmp_path)
    assert any("_parallel" in line for line in traced)
    second, again = ran(tmp_path)
    assert second == first
    assert not [line for line in again if "_parallel" in line or "loo_of" in line]


@pytest.mark.campaign
def test_programs_of_other_code_are_not_taken_for_ours(tmp_path):
    first, _ = ran(tmp_path)
    for file in tmp_path.glob(f"*/{folders.STORE}/*{disk_cache.SUFFIX}"):
        file.unlink()  # as if they had been made by other code: what JAX has kept is not taken for them
    assert ran(tmp_path)[0] == ran(tmp_path)[0] == first


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of programs, and a folder to keep them in."""
    monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
    monkeypatch.setattr(disk_cache, "opened_folders", [tmp_path])
    return tmp_path


def doubled(x):
    return {"twice": 2.0 * x, "sum": x.sum()}


def test_a_program_comes_back_from_its_file(folder, monkeypatch):
    x, double = np.arange(3.0), programs.program(doubled)
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    with jax.enable_x64(True):
        first = double(x)
        (file,) = folder.iterdir()
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        monkeypatch.setattr(doubled, "__code__", doubled.__code__)  # the same code: the same name
        again = programs.program(doubled)
        shapes = again.shapes(x)
        assert (shapes["twice"].shape, shapes["sum"].shape) == ((3,), ())
        np.testing.assert_array_equal(again(x)["twice"], first["twice"])
        assert list(folder.iterdir()) == [file]


def as_told(x, word):
    return x @ jax.numpy.sin(x)


def test_programs_that_differ_in_name_alone_have_their_code(folder, monkeypatch):
    """JAX keeps programs in the same folder, and what it answers with would be written without its code."""
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    compiled._cache_jaxs(folder)
    x = np.arange(6.0)
    with jax.enable_x64(True):
        told = [float(programs.program(as_told, "word")(x, word=word)) for word in ("one", "two")]
        assert told[0] == told[1]
        sizes = [len(disk_cache._read(file).code) for file in folder.glob(f"*{disk_cache.SUFFIX}")]
        assert len(sizes) == 2
        assert min(sizes) > 0.9 * max(sizes)
        jax.clear_caches()
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        assert [float(programs.program(as_told, "word")(x, word=word)) for word in ("one", "two")] == told


def test_an_integer_where_a_number_was_has_a_program_of_its_own(folder, monkeypatch):
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    half = programs.program(halved)
    with jax.enable_x64(True):
        assert [float(half(number)) for number in (3.0, 3, np.float64(5.0), True)] == [1.5, 1.5, 2.5, 0.5]


def halved(number):
    return 0.5 * number


def test_a_program_that_cannot_be_loaded_is_compiled_again(folder, monkeypatch):
    def refused(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: made for another processor")

    x = np.arange(4.0)
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    with jax.enable_x64(True):
        programs.program(doubled)(x)
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        monkeypatch.setattr(disk_cache, "loaded", refused)
        with pytest.warns(RuntimeWarning, match="another processor"):
            assert float(programs.program(doubled)(x)["sum"]) == 6.0


def test_to_read_a_program_runs_no_code(folder, monkeypatch):
    """No pickle; and trees of nothing but containers and the library's records."""
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    with jax.enable_x64(True):
        lowered = jax.jit(infer_parts, keep_unused=True).lower(np.arange(6.0), 1.0, 2, np.zeros(3, np.float32))
        made = lowered.compile()
        content = executables.packed(made)
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(pickle, name, None)
        again = executables.loaded(executables.unpacked(content))
        given = np.arange(6.0)[::-1], 1.5, 3, jax.numpy.ones(3, "float32")
        found, expected = again(*given), jax.jit(infer_parts)(*given)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    for module in ("os", "subprocess"):
        with pytest.raises(ValueError, match=module):
            executables.loaded(executables.unpacked(content.replace(b"quantprop.core.gaussian", module.encode())))


def infer_parts(x, scale, power, unused):
    pair = Natural(x * scale, x**power)
    return {"pair": pair, "more": [(), None, x > 2.0, kernels.Matern32(scale).on([0, 1])], "kernel": (unused,)}


def test_half_a_file_is_no_program(folder, monkeypatch):
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    x = np.arange(5.0)
    with jax.enable_x64(True):
        programs.program(doubled)(x)
        (file,) = folder.iterdir()
        file.write_bytes(file.read_bytes()[:-10])
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        assert float(programs.program(doubled)(x)["sum"]) == 10.0
    assert disk_cache._read(file) is not None  # written anew


@pytest.mark.parametrize("what", ["another program", "a pipe", "a folder", "no program"])
def test_what_else_stands_in_a_programs_place_is_not_taken_for_one(what, folder, monkeypatch):
    monkeypatch.setattr(disk_cache, "LIBRARY", __name__.split(".")[0])
    x = np.arange(5.0)
    with jax.enable_x64(True):
        programs.program(halved)(x)
        (other,) = folder.iterdir()
        programs.program(doubled)(x)
        (file,) = set(folder.iterdir()) - {other}
        file.unlink()
        if what == "another program":
            file.write_bytes(other.read_bytes())
        elif what == "a pipe":
            os.mkfifo(file, 0o600)
        elif what == "a folder":
            file.mkdir(0o700)
        else:
            folders.write(file, b"nothing of that kind")
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert float(programs.program(doubled)(x)["sum"]) == 10.0


def test_names_follow_what_files_hold_and_not_their_times(tmp_path, monkeypatch):
    package = tmp_path / "runtime" / "disk_cache.py"
    package.parent.mkdir()
    monkeypatch.setattr(disk_cache, "__file__", str(package))
    found = []
    for text in ("r * r / 3.0", "r * r / 9.0"):
        package.write_text(text)
        os.utime(package, (0, 0))
        disk_cache._code.cache_clear()
        found.append(disk_cache._code())
    disk_cache._code.cache_clear()
    assert found[0] != found[1]


def name(*arguments, static=None):
    leaves, form = jax.tree.flatten((arguments, {}))
    return disk_cache._name(infer_like, static or {}, form, leaves)


def infer_like(*arguments):
    raise AssertionError("a name is made without a call")


infer_like.__module__ = "quantprop.like"


def test_names_tell_apart_all_that_changes_a_program():
    x = np.zeros(3)
    names = [
        name(likelihoods.Probit(), EP(), x),
        name(likelihoods.Logit(), EP(), x),
        name(likelihoods.Probit(), QP(), x),
        name(likelihoods.Probit(), QP(3), x),
        name(likelihoods.Probit(), EP(power=0.5), x),
        name(likelihoods.Probit(), EP(), np.zeros(4)),
        name(likelihoods.Probit(), EP(), np.zeros(3, np.float32)),
        name(likelihoods.Probit(), EP(), [x]),
        name(likelihoods.Probit(), EP(), x, static={"exact": True}),
        name(likelihoods.Probit(), EP(), x, static={"exact": False}),
    ]
    for prior in (LogNormal(1.0, 2.0), LogNormal(1.0, 3.0)):
        names.append(name(likelihoods.Gaussian(Parameter(1.0, prior=prior)), EP(), x))
    assert None not in names
    assert len(set(names)) == len(names)
    assert name(likelihoods.Probit(), EP(), np.ones(3)) == names[0]  # numbers are not compiled in


def around(function, factor=1.0):
    """A function made by one of the library, around another."""

    def made(x):
        return factor * function(x)

    made.__module__ = "quantprop.like"
    return made


def test_names_tell_functions_by_what_they_enclose():
    form = jax.tree.structure(((0,), {}))
    names = [
        disk_cache._name(around(infer_like), {}, form, [0.0]),
        disk_cache._name(around(disk_cache.cached), {}, form, [0.0]),
        disk_cache._name(around(infer_like, 2.0), {}, form, [0.0]),
        disk_cache._name(around(around(infer_like)), {}, form, [0.0]),
    ]
    assert None not in names
    assert len(set(names)) == len(names)
    assert disk_cache._name(around(infer_like), {}, form, [0.0]) == names[0]
    assert disk_cache._name(around(lambda x: x), {}, form, [0.0]) is None  # a user's
    assert disk_cache._name(around(infer_like, np.ones(2)), {}, form, [0.0]) is None  # numbers that would be lost


class Probit(likelihoods.Probit):
    """A user's own, of the same name."""


def test_what_is_not_the_librarys_own_has_no_name():
    assert name(likelihoods.Custom(lambda y, f: -((y - f) ** 2)), EP()) is None
    assert name(Probit(), EP()) is None
    outer = 2.0
    assert disk_cache._name(lambda x: outer * x, {}, jax.tree.structure(((0,), {})), [0.0]) is None


def test_programs_of_users_parts_still_run(folder):
    x, y = np.linspace(-1.0, 1.0, 5)[:, None], np.array([-1.0, -1.0, 1.0, 1.0, 1.0])
    own, given = (infer(Model(kernels.Matern32(), kind), x, y, "ep") for kind in (Probit(), likelihoods.Probit()))
    assert own.log_evidence == given.log_evidence
