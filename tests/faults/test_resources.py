"""A device without memory, and many threads: clear advice, and the same numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from quantprop import QP, Model, fit, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural
from quantprop.inference.engine import InferenceProblem
from quantprop.inference.task import prepare
from quantprop.learning import evaluation, implicit, landscape
from quantprop.learning.objectives import Evidence
from quantprop.priors import DensePrior
from quantprop.priors.dense import PEAK_MATRICES
from quantprop.runtime import programs
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

TESTS = Path(__file__).resolve().parent.parent
SOURCE = TESTS.parent / "src"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
MODEL = Model(kernels.SquaredExponential(), likelihoods.Probit())


def signs(seed):
    return np.where(X[:, 0] + 0.5 * np.random.default_rng(seed).normal(size=30) > 0, 1.0, -1.0)


# --- memory ----------------------------------------------------------------------------------------------------------


SAID = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3200000000 bytes."


def full(*_, **__):
    raise jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3200000000 bytes.\nmore"
    )


def test_a_full_device_brings_advice(monkeypatch):
    monkeypatch.setattr(programs, "_compiler_options", dict)
    monkeypatch.setattr(jax, "jit", lambda function, **_: full)
    square = program(lambda k: k @ k)
    with pytest.raises(MemoryError) as caught:
        square(np.zeros((20_000, 3)))
    told = str(caught.value)
    assert "20000 rows" in told
    for way_out in ("fewer rows", "with more of it", "fit_many"):
        assert way_out in told
    assert f"XLA said: {SAID}" in told
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)


def test_a_device_that_says_so_late_brings_advice_too():
    """On an accelerator the error may come when the numbers are asked for, outside the compiled program."""
    with pytest.raises(MemoryError, match="77 rows"):
        float64(full)(np.zeros((77, 2)))


@pytest.mark.parametrize(
    "said",
    [
        "RESOURCE_EXHAUSTED: Failed to allocate request for 2.98GiB (3200000000B) on device ordinal 0",
        "Out of memory allocating 3200000000 bytes.",
        "INTERNAL: Failed to launch: Out of memory while trying to allocate 3200000000 bytes.",
    ],
)
def test_exhausted_memory_is_explained_in_every_wording(said):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError(f"{said}\nmore")

    with pytest.raises(MemoryError, match="ran out of memory: the largest array has 41 rows") as caught:
        float64(exhausted)(np.zeros((41, 2)))
    assert str(caught.value).endswith(f"XLA said: {said}")


def test_an_evaluation_takes_no_more_than_is_said():
    x, y = np.linspace(0.0, 9.0, 512)[:, None], np.tile([1.0, -1.0], 256)
    task = prepare(MODEL, x, y, QP(), None, None, None)
    with jax.enable_x64(True):
        prior = DensePrior(np.zeros(512), np.asarray(MODEL.plain_kernel.gram(x)))
        problem = InferenceProblem(MODEL.plain_likelihood, QP(), prior, task.data, task.weight)
        solving = (problem, Natural(np.zeros(512), np.ones(512)), 1e-6, 200)
        solved = jax.jit(evaluation.solve_parallel)
        out, rest, factor = solved.eval_shape(*solving)
        problem = replace(problem, prior=rest)
        gradient = jax.jit(partial(implicit.gradient, exact=True)).lower(problem, Evidence(), out.at, factor)
        programs = [part.compile().memory_analysis() for part in (solved.lower(*solving), gradient)]
    taken = [p.argument_size_in_bytes + p.output_size_in_bytes + p.temp_size_in_bytes for p in programs]
    assert 4 < max(taken) / (8 * 512**2) + 1 <= PEAK_MATRICES  # distances are held beside it


def test_advice_reaches_who_calls_fit(monkeypatch):
    monkeypatch.setattr(landscape.Landscape, "compile", lambda landscape, meanwhile=lambda: None: meanwhile())
    monkeypatch.setattr(landscape, "evaluated", full)
    with pytest.raises(MemoryError, match="use fewer rows"):
        fit(MODEL, X, signs(0), "laplace")


def test_other_errors_of_the_device_pass():
    def broken(x):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        float64(broken)(np.zeros(3))


def said_by(program, tmp_path):
    """What a program of its own process prints; one that waits for ever is an error."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS)])}
    command = [sys.executable, "-m", "faults.programs", program, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what counts towards their limits")
def test_limits_of_the_process_are_heeded(tmp_path):
    """XLA waits for ever where it is refused memory."""
    lines = said_by("starved", tmp_path)
    assert len(lines) == 4
    for limit, told, others in zip(("RLIMIT_DATA", "RLIMIT_AS"), lines[::2], lines[1::2], strict=True):
        assert re.search(rf"takes about 0\.9 GiB.* 0\.[345] GiB are available.*limits of the process \({limit}\)", told)
        assert others == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_process_forked_after_a_fit_is_told_what_to_do_instead(tmp_path):
    before, *after = said_by("forked", tmp_path)
    assert before == "True"
    assert len(after) == 2
    for told in after:
        assert "forked from process" in told
        assert "get_context('spawn')" in told


@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_process_forked_after_jax_has_computed_is_told_the_same(tmp_path):
    (told,) = said_by("forked_after_jax", tmp_path)
    assert "forked from process" in told
    assert "get_context('spawn')" in told


# --- threads ---------------------------------------------------------------------------------------------------------


def learned(seed):
    fitted = fit(MODEL, X, signs(seed), "laplace")
    return np.concatenate([fitted.theta, fitted.solution.marginals.mean, fitted.solution.predict(X[:3] + 0.1).variance])


def test_eight_threads_learn_what_one_does():
    one_by_one = [learned(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(learned, range(8), timeout=300))
    for alone, beside in zip(one_by_one, together, strict=True):
        np.testing.assert_array_equal(beside, alone)


# --- the same again --------------------------------------------------------------------------------------------------

ORDER = np.random.default_rng(1).permutation(30)
LIKELIHOODS = {
    "probit, laplace": (likelihoods.Probit(), "laplace", signs(3)),
    "probit, qp": (likelihoods.Probit(), "qp", signs(3)),
    "poisson, qp": (likelihoods.Poisson(), "qp", np.random.default_rng(2).poisson(2.0, 30).astype(float)),
}


@pytest.mark.parametrize(
    "name",
    ["probit, laplace", *(pytest.param(name, marks=pytest.mark.campaign) for name in LIKELIHOODS if "qp" in name)],
)
def test_the_same_bits_again_and_no_order_matters(name):
    likelihood, method, y = LIKELIHOODS[name]
    model = Model(kernels.SquaredExponential(1.5, 0.8), likelihood)
    first, again = (infer(model, X, y, method, tol=1e-10) for _ in range(2))
    np.testing.assert_array_equal(again.marginals.mean, first.marginals.mean)
    np.testing.assert_array_equal(again.loo, first.loo)
    assert again.log_evidence == first.log_evidence
    shuffled = infer(model, X[ORDER], y[ORDER], method, tol=1e-10)
    mirrored = infer(model, X[:, ::-1], y, method, tol=1e-10)
    for other, new in ((shuffled, X), (mirrored, X[:, ::-1])):
        assert other.log_evidence == pytest.approx(first.log_evidence, abs=1e-8)
        np.testing.assert_allclose(other.predict(new).mean, first.predict(X).mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(other.predict_y(new).mean, first.predict_y(X).mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(shuffled.marginals.mean, first.marginals.mean[ORDER], rtol=0, atol=1e-8)
    np.testing.assert_allclose(shuffled.marginals.variance, first.marginals.variance[ORDER], rtol=0, atol=1e-8)
