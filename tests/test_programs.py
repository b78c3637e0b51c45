"""Compiled programs: made ahead and once, as the user's flags say; and the threads of BLAS beside them."""

from __future__ import annotations

import gc
import logging

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import quantprop
from quantprop import Model, kernels, likelihoods, programs
from quantprop.garbage import uncollected
from quantprop.infer import loo_at, prepare
from quantprop.landscape import Landscape
from quantprop.methods import QP
from quantprop.objectives import Evidence
from quantprop.parameters import packed
from quantprop.priors import Dense
from quantprop.threads import blas_threads_for


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
        assert {"solved", "gradient", "pull_back", "loo_of"} <= compiled(caplog)
        point = surface.at(packed(surface.parts), 1e-3)
        loo_at(point.likelihood, surface.task, point.out.at)
        assert not {"solved", "gradient", "pull_back", "loo_of"} & compiled(caplog)
        landscape(701).compile()  # of the same padded size
        assert not compiled(caplog)
    assert point.usable


def test_a_failure_to_compile_is_raised():
    class Broken:
        def compile(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: no such instruction")

    with pytest.raises(jax.errors.JaxRuntimeError, match="no such instruction"), programs.compiling([Broken()]):
        pass


@pytest.mark.parametrize(("flags", "level"), [("", 1), ("--xla_backend_optimization_level=3", None)])
def test_a_level_that_the_user_chose_stands(monkeypatch, flags, level):
    monkeypatch.setenv("XLA_FLAGS", flags)
    options = programs._compiler_options.__wrapped__()
    assert options.get("xla_backend_optimization_level") == level


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
    for running in (True, False):
        (gc.enable if running else gc.disable)()
        try:
            with pytest.raises(AttributeError):
                quantprop.no_such_name  # noqa: B018
            seen.append(gc.isenabled())
            with programs.compiling(iter(())):
                seen.append(gc.isenabled())
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
