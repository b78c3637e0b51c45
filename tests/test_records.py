"""Records: frozen, equal by value, trees to JAX whose settings belong to the structure."""

import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import Inducing, Parameter, kernels, likelihoods
from quantprop.core.records import Record, changed, field, is_record


class Base(Record):
    """A number and a setting."""

    number: Any = field(default=1.0, converter=float)
    word: str = field(default="plain", static=True)
    unit: ClassVar[str] = "m"

    def __check_init__(self) -> None:
        if not jnp.isfinite(self.number):
            raise ValueError(f"number must be finite; got {self.number}")


class Derived(Base):
    """One field more, and its parent's checks."""

    more: Any = None


class OwnConstructor(Record):
    """A constructor of its own."""

    total: float

    def __init__(self, *parts: float) -> None:
        self.total = sum(parts)


class Inherits(OwnConstructor):
    """No field of its own: its parent's constructor."""

    name: ClassVar[str] = "inherits"


class Both(Base, OwnConstructor):
    """Fields of two parents, and so a constructor of its own."""


class Later(Record):
    """What its constructor leaves alone, or sets twice."""

    left: float = 3.0
    made: Any = field(default_factory=lambda: [4.0])
    twice: Any = field(default=0.0, converter=float)

    def __init__(self) -> None:
        self.twice = 1
        self.twice = 2


class Forgotten(Record):
    """Of which its constructor does not think."""

    needed: float

    def __init__(self) -> None:
        pass


def test_constructors_convert_check_and_say_what_they_take():
    assert Base("2").number == 2.0
    assert Derived(3, "other", more=(1, 2)).more == (1, 2)
    assert (OwnConstructor(1.0, 2.0).total, Inherits(1.0, 2.0, 3.0).total) == (3.0, 6.0)
    with pytest.raises(ValueError, match="number must be finite; got inf"):
        Derived(np.inf)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        Base(nonsense=1)
    both = Both(total=2.0)
    assert (both.total, both.number, both.word) == (2.0, 1.0, "plain")
    assert jax.tree.leaves(Later()) == [3.0, 4.0, 2.0]
    with pytest.raises(TypeError, match="Forgotten: its constructor does not set the field needed"):
        Forgotten()
    assert str(inspect.signature(kernels.SquaredExponential)).startswith("(variance: ")
    assert str(dataclasses.replace(Base(1.0), number="7").number) == "7.0"


@pytest.mark.parametrize("name", ["number", "word", "novel", "unit"])
def test_nothing_can_be_assigned(name):
    record = Base()
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(record, name, 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.number
    assert record == Base()


def test_numbers_are_leaves_and_settings_structure():
    leaves, form = jax.tree.flatten(Derived(2.0, "other", {"a": 3.0, "b": None}))
    assert leaves == [2.0, 3.0]
    assert form != jax.tree.structure(Derived(2.0, "plain", {"a": 3.0, "b": None}))
    assert form == jax.tree.structure(Derived(5.0, "other", {"a": 7.0, "b": None}))
    back = jax.tree.unflatten(form, [np.inf, object()])  # unchecked: JAX puts anything in the place of numbers
    assert (back.number, back.word) == (np.inf, "other")
    places = jax.tree_util.tree_flatten_with_path(Derived(1.0, more=[2.0]))[0]
    assert [jax.tree_util.keystr(path) for path, _ in places] == [".number", ".more[0]"]
    doubled = jax.jit(lambda record: jax.tree.map(lambda x: 2.0 * x, record))(Base(4.0, "kept"))
    assert (float(doubled.number), doubled.word) == (8.0, "kept")


def test_equality_is_that_of_type_structure_and_values():
    array = np.array([1.0, 2.0])
    assert Derived(1.0, more=array) == Derived(1.0, more=array.copy())
    assert Derived(1.0, more=array) != Derived(1.0, more=array[:1])
    assert Derived(1.0, more=array) != Derived(1.0, more=array + 1.0)
    assert Base(1.0) != Derived(1.0)
    assert Base(1.0) != 1.0
    assert hash(Base(1.0, "a")) == hash(Base(1, "a"))
    assert len({Base(1.0, "a"), Base(1, "a"), Base(1.0, "b"), Base(2.0, "a")}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Derived(1.0, more=array))


def test_changed_neither_converts_nor_checks_but_knows_its_fields():
    record = Base(1.0, "kept")
    assert changed(record, number=np.inf).number == np.inf
    assert changed(record, number=np.inf).word == "kept"
    assert record.number == 1.0
    with pytest.raises(TypeError, match="Base has no field nonsense"):
        changed(record, nonsense=1)


def test_pickles_come_back():
    kernel = kernels.SquaredExponential(Parameter(2.0, bounds=(0.1, 10.0)), [1.0, 2.0])
    for record in (kernel, likelihoods.StudentT(5.0, 0.2), Parameter(1.0, fixed=True)):
        assert pickle.loads(pickle.dumps(record)) == record


def test_classes_of_a_script_come_back_in_another_process_with_their_numbers():
    """As loky and Dask send them: an empty class, whose attributes are set later."""
    script = (
        "import cloudpickle, sys\n"
        "from quantprop.core.records import Record, field\n"
        "class Mine(Record):\n"
        "    number: float = 1.0\n"
        "    word: str = field(default='plain', static=True)\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(Mine(2.0, 'other')))\n"
    )
    sent = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    record = pickle.loads(sent)
    leaves, form = jax.tree.flatten(record)
    assert leaves == [2.0]
    back = jax.tree.unflatten(form, [5.0])
    assert (back.number, back.word) == (5.0, "other")


def test_a_record_prints_as_what_makes_it():
    assert repr(Derived(2.0, "other")) == "Derived(number=2.0, word='other')"
    assert repr(Inducing(8)) == "Inducing(points=8)"


def test_records_of_other_libraries_are_records():
    equinox = pytest.importorskip("equinox")

    class Module(equinox.Module):
        slope: float

        def __call__(self, x):
            return self.slope * x[:, 0]

    assert is_record(Module(2.0))
    assert is_record(Base())
    assert not is_record(Base)
    assert not is_record(dataclasses.make_dataclass("Opaque", ["slope"])(1.0))
    assert changed(Module(2.0), slope=3.0).slope == 3.0
