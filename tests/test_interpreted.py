"""Programs run by NumPy give what XLA gives, until compiling is cheaper, and leave to XLA what they do not know."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.special import ndtr

from quantprop import EP, QP, VB, Laplace, Model, Parameter, PowerEP, fit, kernels, likelihoods
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.parameters import packed
from quantprop.runtime import interpreted, programs
from quantprop.runtime.interpreted.entrywise import ENTRYWISE
from quantprop.runtime.precision import float64

RNG = np.random.default_rng(0)
SIDES = RNG.normal(size=(2, 5, 3))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def cache(monkeypatch):
    """A process that has made no program yet, and interprets small ones."""
    monkeypatch.setenv(interpreted.SWITCH, "on")
    monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
    return programs._cache


# --- programs of the library -----------------------------------------------------------------------------------------

X = RNG.uniform(-2.0, 2.0, size=(24, 2))
F = np.sin(2.0 * X[:, 0])
NOISE = RNG.normal(size=(3, 24))
SIGNS = np.where(F + 0.3 * NOISE[0] > 0, 1.0, -1.0)
COUNTS = np.round(np.exp(1.0 + F + 0.3 * NOISE[1]))
REALS = F + 0.2 * NOISE[2]
TIMES = np.exp(REALS)
DATA = {
    "gaussian": (likelihoods.Gaussian(0.3), REALS),
    "probit": (likelihoods.Probit(), SIGNS),
    "logit": (likelihoods.Logit(), SIGNS),
    "heaviside": (likelihoods.Heaviside(0.05), SIGNS),
    "poisson": (likelihoods.Poisson(), COUNTS),
    "poisson, square": (likelihoods.Poisson("square"), COUNTS),
    "negative binomial": (likelihoods.NegativeBinomial(0.4), COUNTS),
    "zero-inflated": (likelihoods.ZeroInflatedPoisson(0.2), np.where(NOISE[0] > 0.7, 0.0, COUNTS)),
    "student-t": (likelihoods.StudentT(4.0, 0.3), REALS),
    "double exponential": (likelihoods.DoubleExponential(0.3), REALS),
    "gamma": (likelihoods.Gamma(2.0), TIMES),
    "beta": (likelihoods.Beta(9.0), ndtr(REALS)),
    "weibull": (likelihoods.Weibull(0.4), np.column_stack([TIMES, np.where(NOISE[1] > 0.5, np.inf, TIMES)])),
    "ordinal": (likelihoods.Ordinal(np.array([-0.5, 0.5])), np.digitize(REALS, [-0.5, 0.5]).astype(float)),
    "warped": (likelihoods.Warped(0.3, [0.5, 0.3], [0.5, 1.0], [-0.4, 0.8]), REALS),
}
METHODS = {"ep": EP(), "qp": QP(), "power ep": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}
BY_DEFAULT = [(name, "qp") for name in ("poisson", "student-t", "zero-inflated", "weibull")]
BY_DEFAULT += [("probit", method) for method in METHODS]
IMPOSSIBLE = [("heaviside", "laplace"), ("double exponential", "laplace"), ("poisson, square", "power ep")]
PAIRS = [
    pytest.param(*pair, marks=[pytest.mark.campaign] * (pair not in BY_DEFAULT))
    for pair in itertools.product(DATA, METHODS)
    if pair not in IMPOSSIBLE
]


def found(name, method):
    """The evidence, its gradient and the marginals at a θ of four numbers and more, from cold."""
    kind, y = DATA[name]
    model = Model(kernels.SquaredExponential(1.5, np.array([0.8, 1.3])), kind, mean=Parameter(0.2))
    task = prepare(model, X, y, METHODS[method], None, None, None)
    surface = Landscape(model, task, METHODS[method], as_objective("evidence"), tol=1e-12, max_sweeps=400)
    surface.compile()
    point = surface.from_cold(packed(surface.parts))
    marginals = point.out.at.marginals
    return point.reason, [
        np.r_[point.value, point.gradient],
        np.asarray(marginals.mean),
        np.asarray(marginals.variance),
    ]


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_every_method_and_likelihood_gives_the_same_uncompiled(name, method, cache, monkeypatch):
    monkeypatch.setattr(interpreted, "PROGRAM", np.inf)
    reason, values = found(name, method)
    assert [one.call.compiles for one in cache.programs.values()] == [False] * len(cache.programs)
    monkeypatch.setenv(interpreted.SWITCH, "off")
    monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
    as_compiled, by_xla = found(name, method)
    assert reason == as_compiled
    for mine, xla in zip(values, by_xla, strict=True):
        np.testing.assert_allclose(mine, xla, rtol=1e-8, atol=1e-9)


# --- until compiling is cheaper --------------------------------------------------------------------------------------

FEW = np.linspace(0.1, 2.0, 8)


def made(cache):
    """The only program there is."""
    (one,) = cache.programs.values()
    return one.call


def test_a_program_is_compiled_when_it_has_cost_as_much_as_that(cache, monkeypatch):
    monkeypatch.setattr(interpreted, "PROGRAM", 0.0)
    monkeypatch.setattr(interpreted, "EQUATION", 7.0)  # two calls, of 3 µs an equation and some for entries
    square = programs.program(lambda x: x * x + 1.0)
    told = [(square(FEW), made(cache).compiles) for _ in range(3)]
    assert [compiles for _, compiles in told] == [False, False, True]
    for value, _ in told:
        np.testing.assert_allclose(value, FEW**2 + 1.0, rtol=1e-15)


def test_a_loop_that_costs_more_than_compiling_is_given_up_in_its_midst(cache, monkeypatch):
    monkeypatch.setattr(interpreted, "PROGRAM", 0.0)
    steps = programs.program(lambda n: lax.fori_loop(0, n, lambda i, x: x + jnp.sqrt(1.0 * i), 0.0))
    assert float(steps(10)) == pytest.approx(np.sqrt(np.arange(10)).sum(), rel=1e-14)
    assert not made(cache).compiles
    assert float(steps(10_000)) == pytest.approx(np.sqrt(np.arange(10_000)).sum(), rel=1e-12)
    assert made(cache).compiles


def test_what_was_traced_to_interpret_it_is_compiled_without_another_trace(cache, monkeypatch):
    monkeypatch.setattr(interpreted, "PROGRAM", 0.0)
    monkeypatch.setattr(interpreted, "EQUATION", 4.0)
    traced = []
    square = programs.program(lambda x: traced.append(x) or x * x)
    for _ in range(3):
        np.testing.assert_array_equal(square(FEW), FEW**2)
    assert made(cache).compiles
    assert len(traced) == 1


def test_costs_are_counted_and_the_same_in_every_run(cache, monkeypatch):
    def spent():
        monkeypatch.setattr(programs, "_cache", programs.ProgramCache())
        learned = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, SIGNS, "ep")
        return [one.call.meter.spent for one in programs._cache.programs.values()], learned.solution.log_evidence

    assert spent() == spent()


def test_programs_of_a_fit_are_compiled_together_when_they_are_due(cache):
    one, two = programs.program(lambda x: jnp.exp(x) + 1.0), programs.program(lambda x: jnp.sin(x))
    for _ in range(2):
        programs.compile_ahead("both", [one.ahead(FEW), two.ahead(FEW)])
        one(FEW), two(FEW)
    both = [each.call for each in cache.programs.values()]
    assert [each.compiles for each in both] == [False, False]
    assert "both" not in cache.ahead
    both[0].meter.spent = both[0].meter.budget
    programs.compile_ahead("both", [one.ahead(FEW), two.ahead(FEW)])
    assert [each.compiles for each in both] == [True, True]
    assert "both" in cache.ahead
    np.testing.assert_allclose(one(FEW), np.exp(FEW) + 1.0, rtol=1e-15)


# --- what is left to XLA ---------------------------------------------------------------------------------------------


ELSEWHERE = {  # NumPy would do otherwise, or not at all
    "a sum of int8": (lambda x: jnp.sum(x.astype(jnp.int8), dtype=jnp.int8), FEW),
    "a product of integers": (lambda x: x.astype(int) @ x.astype(int), FEW),
    "float32": (lambda x: x.astype(jnp.float32) * 3, FEW),
    "complex numbers": (lambda x: jnp.abs(x + 1j), FEW),
    "a point is set": (lambda x: x.at[()].set(3.0), FEW[0]),
    "the largest of nothing": (lambda x: lax.reduce_max(x[:0], (0,)), FEW),
    "a root of nothing": (lambda x: lax.linalg.cholesky(x[:0].reshape(0, 2, 2)), FEW),
    "less than nothing": (lambda x: lax.pad(x, 0.0, ((-10, 4, 0),)), FEW),
    "bits": (lambda x: lax.reduce_or(x.astype(int), (0,)), FEW),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_uses_that_numpy_has_otherwise_are_compiled(name, cache):
    function, x = ELSEWHERE[name]
    np.testing.assert_array_equal(programs.program(function)(x), jax.jit(function)(x))
    assert made(cache).compiles


def test_what_fails_in_numpy_is_compiled_with_a_warning(cache, monkeypatch):
    def broken(**_):
        return lambda x: np.zeros(3)[x.astype(int)]

    monkeypatch.setitem(ENTRYWISE, "sin", broken)
    sine = programs.program(lambda x: jnp.sin(x))
    with pytest.warns(RuntimeWarning, match="cannot be interpreted and is compiled instead .IndexError"):
        np.testing.assert_allclose(sine(FEW + 9.0), np.sin(FEW + 9.0), rtol=1e-15)
    assert made(cache).compiles


def test_a_result_of_another_type_is_no_result(cache, monkeypatch):
    monkeypatch.setitem(ENTRYWISE, "sin", lambda **_: lambda x: np.sin(x).astype(np.float32))
    np.testing.assert_allclose(programs.program(lambda x: jnp.sin(x))(FEW), np.sin(FEW), rtol=1e-15)
    assert made(cache).compiles


def test_loops_over_constants_are_no_constants(cache, monkeypatch):
    steps = programs.program(lambda x: x + lax.fori_loop(0, 10**6, lambda i, s: s + 1.0, 0.0))
    np.testing.assert_array_equal(steps(FEW), FEW + 1e6)
    assert made(cache).compiles


def test_settings_count_when_a_program_is_called(cache, monkeypatch):
    logarithm = programs.program(lambda x: jnp.log(x))
    logarithm(FEW)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        logarithm(-FEW)
    spent = made(cache).meter.spent
    monkeypatch.setenv(interpreted.SWITCH, "off")
    logarithm(FEW)
    assert made(cache).meter.spent == spent > 0.0


def test_what_is_not_known_is_compiled(cache):
    eigenvalues = programs.program(lambda x: jnp.linalg.eigvalsh(x @ x.T))
    np.testing.assert_allclose(eigenvalues(SIDES[0]), np.linalg.eigvalsh(SIDES[0] @ SIDES[0].T), atol=1e-12)
    assert made(cache).compiles
    callback = programs.program(lambda x: jax.debug.callback(lambda: None) or x + 1.0)
    np.testing.assert_array_equal(callback(FEW), FEW + 1.0)


def test_threads_compile_and_leave_the_count_alone(cache):
    square = programs.program(lambda x: x * x)
    square(FEW)
    spent = made(cache).meter.spent
    with ThreadPoolExecutor(2) as threads:
        for value in threads.map(float64(square), [FEW] * 4):
            np.testing.assert_array_equal(value, FEW**2)
    assert made(cache).meter.spent == spent > 0


def test_a_program_is_traced_for_each_precision(cache):
    wide = programs.program(lambda: jnp.asarray(1.0) / 3.0)
    assert wide().dtype == np.float64
    with jax.enable_x64(False):
        assert wide().dtype == np.float32
    assert wide().dtype == np.float64


def test_results_are_not_the_arrays_that_were_given(cache):
    given = FEW.copy()
    both = programs.program(lambda x: (x, x[::2], x.reshape(2, 4)))(given)
    given[:] = 0.0
    for got, want in zip(both, (FEW, FEW[::2], FEW.reshape(2, 4)), strict=True):
        assert isinstance(got, jax.Array)
        np.testing.assert_array_equal(got, want)


def test_a_block_that_compiles_leaves_what_was_interpreted_before(cache):
    square = programs.program(lambda x: x * x)
    square(FEW)
    spent = made(cache).meter.spent
    with interpreted.all_compiled():
        np.testing.assert_array_equal(square(FEW), FEW**2)
        programs.compile_ahead("square", [square.ahead(FEW)])
        assert not interpreted.wanted([FEW])
    assert made(cache).meter.spent == spent
    square(FEW)
    assert made(cache).meter.spent == 2 * spent


@pytest.mark.parametrize("large", [np.ones(interpreted.ROWS + 1), np.ones((3, 250, 250, 2))])
def test_large_programs_are_compiled(cache, large):
    programs.program(jnp.sum)(large)
    assert not isinstance(made(cache), interpreted.Interpreted)


def test_where_compiled_programs_are_kept_nothing_is_interpreted(monkeypatch, no_compiled_programs):
    monkeypatch.delenv(interpreted.SWITCH, raising=False)
    assert interpreted.wanted([FEW])
    monkeypatch.setenv(interpreted.SWITCH, "off")
    assert not interpreted.wanted([FEW])
    monkeypatch.delenv(interpreted.SWITCH)
    with jax.debug_nans(True):
        assert not interpreted.wanted([FEW])
    jax.config.update(interpreted.FOLDER, "somewhere")
    assert not interpreted.wanted([FEW])
    monkeypatch.setenv(interpreted.SWITCH, "on")
    assert interpreted.wanted([FEW])
