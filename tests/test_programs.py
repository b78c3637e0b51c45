"""Compiled programs: made ahead and once, as the user's flags say; and the threads of BLAS beside them."""

from __future__ import annotations

import gc
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import quantprop
from quantprop import Model, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.methods import QP
from quantprop.priors import Dense
from quantprop.priors.base import Cost
from quantprop.runtime import batches, programs
from quantprop.runtime.system import uncollected
from quantprop.runtime.threads import blas_threads_for


def landscape(n):
    model = Model(kernels.Matern32(), likelihoods.Probit())
    x = np.linspace(-2.0, 2.0, n)[:, None]
    task = prepare(model, x, np.where(np.sin(5.0 * x[:, 0]) > 0, 1.0, -1.0), QP(), None, None, None)
    return Landscape(model, task, QP(), Evidence())


def compiled(caplog):
    """Names of the programs that were prepared, or compiled in this thread, since the last look."""
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return {text.split("jit(")[1].split(")")[0] for text in said if "Compiling jit(" in text or "XLA comp" in text}


def test_what_is_compiled_ahead_is_not_compiled_again(caplog):
    surface = landscape(700)  # a size that no other test has
    with jax.log_compiles(True), caplog.at_level(logging.WARNING):
        surface.compile()
        assert {"prior", "solve_parallel", "gradient", "pull_back", "loo_of"} <= compiled(caplog)
        point = surface.at(packed(surface.parts), 1e-3)
        loo_at(QP(), point.likelihood, surface.task, point.out.at)
        assert not {"prior", "solve_parallel", "gradient", "pull_back", "loo_of"} & compiled(caplog)
        landscape(701).compile()  # of the same padded size
        assert not compiled(caplog)
    assert point.usable


def test_a_failure_to_compile_is_raised():
    class Broken:
        def compile(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: no such instruction")

    with pytest.raises(jax.errors.JaxRuntimeError, match="no such instruction"):
        programs.compile_ahead("broken", [Broken()])


def test_a_thread_that_waits_for_programs_does_something_meanwhile():
    done = threading.Event()

    class Slow:
        def compile(self):
            assert done.wait(60.0)

    def meanwhile():
        done.set()
        return "done"

    key = object()
    assert programs.compile_ahead(key, [Slow()], meanwhile) == "done"
    assert programs.compile_ahead(key, [Slow()], lambda: "again") == "again"


@pytest.mark.parametrize(("flags", "level"), [("", 1), ("--xla_backend_optimization_level=3", None)])
def test_a_level_that_the_user_chose_stands(monkeypatch, flags, level):
    monkeypatch.setenv("XLA_FLAGS", flags)
    options = programs._compiler_options.__wrapped__()
    assert options.get("xla_backend_optimization_level") == level


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [(programs.program, 8, {"xla_disable_hlo_passes"}), (programs.program, programs.TREE_SUM_ROWS, set()),
     (programs.seldom, 8, {"xla_disable_hlo_passes", "xla_backend_optimization_level"})],
)  # fmt: skip
def test_what_compiles_sooner_is_for_few_rows(monkeypatch, cache, kind, rows, expected):
    """Sums as plain loops, and the lowest level for programs that seldom run; a tree of sums for many rows."""
    told, jit = [], jax.jit
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(programs, "_compiler_options", dict)
    monkeypatch.setattr(jax, "jit", lambda function, **more: told.append(more["compiler_options"]) or jit(function))
    assert float(kind(lambda x: x.sum())(np.ones(rows))) == rows
    assert [set(options) for options in told] == [expected]


def test_programs_of_a_block_that_runs_once_are_its_own_and_compile_at_the_lowest_level(monkeypatch, cache):
    told, jit = [], jax.jit
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(programs, "_compiler_options", lambda: {"xla_backend_optimization_level": 1})
    monkeypatch.setattr(jax, "jit", lambda function, **more: told.append(more["compiler_options"]) or jit(function))
    first, second = (programs.program(lambda x, k=k: k * x) for k in (2.0, 3.0))
    assert float(first(1.0)) == 2.0
    with programs.run_once():
        assert float(first(5.0)) == 10.0
        assert float(second(5.0)) == 15.0
    assert float(second(7.0)) == 21.0
    assert [options["xla_backend_optimization_level"] for options in told] == [1, 0, 0, 1]


# --- how many are kept ------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(monkeypatch):
    """An empty cache, which holds few programs; what other tests have left need not be looked through at evictions."""
    monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 8)
    monkeypatch.setattr(programs, "MIN_PROGRAMS", 4)
    gc.freeze()
    yield programs._cache
    gc.unfreeze()


def squares():
    """A program, and the sizes for which it was traced, in order."""
    traced = []

    def square(x):
        traced.append(x.shape)
        return x * x

    return programs.program(square), traced


def executables():
    return len(jax.devices()[0].client.live_executables())


def test_the_least_recently_used_programs_are_evicted_and_come_back(cache):
    square, traced = squares()
    first = np.arange(1.0, 4.0)
    for n in range(4, 24):
        np.testing.assert_array_equal(square(np.full(n, 3.0)), np.full(n, 9.0))
        np.testing.assert_array_equal(square(first), first * first)  # always among the last used
        assert len(cache.programs) <= 8
    assert len(traced) == len(set(traced)) == 21
    square(np.ones(23))
    assert len(traced) == 21
    square(np.ones(4))
    assert traced[-1] == (4,)


def test_evicted_programs_leave_no_executables(cache):
    square, _ = squares()
    for n in range(1, 9):
        square(np.ones(n))
    before = executables()
    for n in range(9, 30):
        square(np.ones(n))
    assert executables() <= before


def test_traces_of_parts_are_evicted_with_the_programs(cache):
    traced = []

    @programs.part
    def inner(x):
        traced.append(x.shape)
        return x + 1.0

    once, twice = programs.program(lambda x: inner(x)), programs.program(lambda x: inner(inner(x)))
    assert (once(np.zeros(3))[0], twice(np.zeros(3))[0]) == (1.0, 2.0)
    assert traced == [(3,)]
    for n in range(4, 12):
        once(np.zeros(n))
    assert once(np.zeros(3))[0] == 1.0
    assert traced.count((3,)) == 2


@pytest.mark.parametrize(("maps", "left"), [(39_999, 8), (40_001, 4), (None, 8)])
def test_programs_are_evicted_before_memory_maps_run_out(cache, monkeypatch, maps, left):
    monkeypatch.setattr(programs, "MAPS_INTERVAL", 1)
    monkeypatch.setattr(programs, "memory_maps", lambda: maps)
    monkeypatch.setattr(programs, "most_memory_maps", lambda: 120_000)
    square, _ = squares()
    for n in range(1, 9):
        assert square(np.ones(n)).shape == (n,)
    assert len(cache.programs) == left  # MIN_PROGRAMS, however many maps others hold


def test_the_users_own_programs_stay(cache):
    traced = []

    @jax.jit
    def own(x):
        traced.append(x.shape)
        return 2.0 * x

    own(np.ones(3))
    inner = programs.part(lambda x: x + 1.0)
    outer = programs.program(lambda x: inner(x))
    for n in range(1, 13):
        outer(np.ones(n))
    assert len(cache.programs) < 12
    own(np.ones(3))
    assert traced == [(3,)]


def test_many_threads_may_use_more_programs_than_are_kept(cache):
    square, _ = squares()

    def all_sizes(start):
        return all(bool((square(np.full(n, float(n))) == n * n).all()) for n in (*range(start, 13), *range(1, start)))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(all_sizes, range(1, 5)))
    assert len(cache.programs) <= 8


def test_static_arguments_and_structure_tell_programs_apart(cache):
    power = programs.program(lambda x, order=1: x["base"] ** order, static_argnames="order")
    three = {"base": np.full(2, 3.0)}
    found = [power(three), power(three, order=2), power(three, order=3), power({"base": np.full(2, 2.0)}, order=2)]
    assert [float(value[0]) for value in found] == [3.0, 9.0, 27.0, 4.0]
    assert len(cache.programs) == 3


def test_evicted_programs_are_compiled_ahead_again(cache):
    square, traced = squares()
    x = np.ones(3)
    for _ in range(2):
        programs.compile_ahead("three", [square.ahead(x)])
    assert traced == [(3,)]
    for n in range(4, 14):
        square(np.ones(n))
    assert "three" not in cache.ahead
    programs.compile_ahead("three", [square.ahead(x)])
    square(x)
    assert traced.count((3,)) == 2


def test_few_rows_take_one_thread_of_blas_and_many_take_all():
    import scipy.linalg  # noqa: F401

    def limits():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        with blas_threads_for(Dense().cost(999)):
            assert limits() == {1}
        assert limits() == {2}
        with blas_threads_for(Dense().cost(1000)):
            assert limits() == {2}


def test_the_collector_of_garbage_is_back_after_imports_and_compilation():
    seen = []

    def lowered():
        seen.append(gc.isenabled())
        yield from ()

    for running in (True, False):
        (gc.enable if running else gc.disable)()
        try:
            with pytest.raises(AttributeError):
                quantprop.no_such_name  # noqa: B018
            seen.append(gc.isenabled())
            programs.compile_ahead(object(), lowered())
            seen.append(gc.isenabled())
        finally:
            gc.enable()
    assert seen == [True, False, True, False, False, False]


def test_what_a_user_has_set_aside_from_collection_stays_so():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with uncollected():
            pass
        assert gc.get_freeze_count() >= before - 100 > 0  # some of it may have been freed
    finally:
        gc.unfreeze()
    with uncollected():
        pass
    assert gc.get_freeze_count() == 0


def test_problems_side_by_side_have_their_results_in_order_and_in_double_precision(monkeypatch):
    monkeypatch.setattr(batches, "cores", lambda: 3)
    place, began = ContextVar("place", default=0), []

    def one(k):
        began.append(k)
        return k, jnp.ones(1).dtype == jnp.float64, place.get(), threading.current_thread() is threading.main_thread()

    small = Cost(1, 1, 1.0, "", "")
    place.set(7)
    with jax.enable_x64(True):
        found = batches.side_by_side(one, [3, 1, 2], small)
        assert batches.side_by_side(one, [3, 1, 2], small._replace(peak=2**40)) == [
            (k, True, 7, True) for k in (3, 1, 2)
        ]
    assert found == [(3, True, 7, True), (1, True, 7, False), (2, True, 7, False)]
    assert began[0] == 3
    began.clear()

    def failing(k):
        began.append(k)
        time.sleep(0.02)
        return 1 / (k - 1)

    with pytest.raises(ZeroDivisionError):
        batches.side_by_side(failing, range(60), small)
    assert len(began) < 60  # after the error no other one begins
