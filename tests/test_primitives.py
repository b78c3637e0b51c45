"""JAX's primitives in NumPy against XLA."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quantprop.runtime.interpreted.algebra import ALGEBRA
from quantprop.runtime.interpreted.entrywise import ENTRYWISE, SPECIAL
from quantprop.runtime.interpreted.routine import LOOPS, NARROW, Meter, Routine
from quantprop.runtime.interpreted.shapes import SHAPES

RNG = np.random.default_rng(0)
REAL = np.array(
    [-np.inf, -3.7, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-300, 0.25, 0.5, 1.0, 1.5, 2.5, 40.0, 1e200, np.inf, np.nan]
)
POSITIVE = np.array([1e-8, 0.3, 0.5, 1.0, 2.0, 7.5, 30.0, 150.0])
WHOLE = np.array([-(2**63), -7, -3, -1, 0, 1, 2, 5, 9])
CUBE = RNG.normal(size=(5, 6, 4))
ROWS = np.array([-7, 2, 8])
INSIDE = np.array([4, 0, 2])
LOWER = np.tril(RNG.normal(size=(2, 5, 5))) + 3.0 * np.eye(5)
SIDES = RNG.normal(size=(2, 5, 3))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def primitives(jaxpr) -> set[str]:
    """Names of all primitives in a jaxpr, and in those inside it."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for one in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(one, "jaxpr", one)
                found |= primitives(inner) if hasattr(inner, "eqns") else set()
    return found


def routine(function, *args) -> Routine:
    closed = jax.jit(function).trace(*args).jaxpr
    return Routine(closed.jaxpr, closed.consts, Meter())


def xlas(function, *args):
    """By XLA, whatever else there is."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*args))]


def numpys(function, *args):
    with np.errstate(all="ignore"):
        return routine(function, *args)(*[np.asarray(arg) for arg in args])


def assert_same(function, *args, rtol=4e-15):
    for got, want in zip(numpys(function, *args), xlas(function, *args), strict=True):
        assert (np.shape(got), np.asarray(got).dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-300)


def doubled(first, x):
    """A loop that ends by its first argument."""
    return lax.while_loop(lambda state: state[0] < first + 40.0, lambda state: (state[0] * 1.5, state[1] + x), (1.0, x))


def scan_back(x):
    return lax.scan(lambda total, row: (total + row, total * row), jnp.zeros(4), x[:, 0], reverse=True)


def several_sums(x):
    return lax.reduce((x, 2.0 * x), (1.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,))


USES = {
    "add": (lambda x: x + 1.0, REAL),
    "add_any": (lambda x: jax.grad(lambda z: jnp.sum(jnp.sin(z) + z * z))(x), POSITIVE),
    "sub": (lambda x: x - 2.0, REAL),
    "mul": (lambda x: x * x[::-1], REAL),
    "div": (lambda x: x / x[::-1], REAL),
    "integer quotient": (lambda x: lax.div(x[:, None], x[None]), WHOLE),
    "rem": (lambda x: (lax.rem(x[:, None], x[None]), lax.rem(1.7 * x, 1.1)), WHOLE),
    "selection by number": (lambda x: lax.select_n(jnp.array([5, 0, 1, -2], jnp.int32), x[:4], x[4:8], x[8:12]), REAL),
    "neg": (lambda x: -x, REAL),
    "sign": (jnp.sign, REAL),
    "abs": (jnp.abs, REAL),
    "square": (jnp.square, REAL),
    "sqrt": (jnp.sqrt, REAL),
    "cbrt": (jnp.cbrt, REAL),
    "rsqrt": (lax.rsqrt, POSITIVE),
    "pow": (lambda x: lax.pow(x, x[::-1] / 20.0), POSITIVE),
    "integer_pow": (lambda x: (x**2, x**3, x**-2, x**7, lax.integer_pow(x, 0)), REAL),
    "exp": (jnp.exp, REAL),
    "exp2": (jnp.exp2, REAL),
    "expm1": (jnp.expm1, REAL),
    "log": (jnp.log, REAL),
    "log1p": (jnp.log1p, REAL),
    "sin": (jnp.sin, REAL),
    "cos": (jnp.cos, REAL),
    "tan": (jnp.tan, REAL[:13]),
    "asin": (lambda x: lax.asin(x / 4.0), REAL[1:13]),
    "acos": (lambda x: lax.acos(x / 4.0), REAL[1:13]),
    "atan": (lax.atan, REAL),
    "atan2": (lambda x: lax.atan2(x, x[::-1]), REAL),
    "sinh": (jnp.sinh, REAL),
    "cosh": (jnp.cosh, REAL),
    "tanh": (jnp.tanh, REAL),
    "asinh": (jnp.arcsinh, REAL),
    "acosh": (lambda x: jnp.arccosh(1.3 + x), POSITIVE),
    "atanh": (lambda x: jnp.arctanh(x / 4.0), REAL[1:13]),
    "floor": (jnp.floor, REAL),
    "ceil": (jnp.ceil, REAL),
    "round": (lambda x: (jnp.round(x), lax.round(x)), REAL),
    "max": (lambda x: jnp.maximum(x, x[::-1]), REAL),
    "min": (lambda x: jnp.minimum(x, x[::-1]), REAL),
    "clamp": (lambda x: lax.clamp(-1.0, x, 2.0), REAL),
    "eq": (lambda x: x == x[::-1], REAL),
    "ne": (lambda x: x != x[::-1], REAL),
    "lt": (lambda x: x < 0.5, REAL),
    "lt_to": (lambda x: lax.lt_to_p.bind(x, x[::-1]), REAL),
    "le": (lambda x: x <= 0.5, REAL),
    "gt": (lambda x: x > 0.5, REAL),
    "ge": (lambda x: x >= 0.5, REAL),
    "and": (lambda x: ((x > 0) & (x < 2), WHOLE & 3), REAL),
    "or": (lambda x: (x > 2) | (x < 0), REAL),
    "xor": (lambda x: (x > 2) ^ (x > 0), REAL),
    "not": (lambda x: (~(x > 2), ~WHOLE), REAL),
    "is_finite": (jnp.isfinite, REAL),
    "nextafter": (lambda x: jnp.nextafter(x, 1.0), REAL),
    "select_n": (
        lambda x: (jnp.where(x > 0, x, -x), lax.select_n(jnp.array([2, 0, 1], jnp.int32), x[:3], x[3:6], x[6:9])),
        REAL,
    ),
    "convert_element_type": (
        lambda x: (x.astype(jnp.int64), x.astype(jnp.int32), x.astype(bool), (x > 1).astype(float)),
        np.r_[REAL, 2.0**31, 2.0**63],
    ),
    "copy": (jnp.copy, REAL),
    "stop_gradient": (lax.stop_gradient, REAL),
    "erf": (lax.erf, REAL),
    "erfc": (lax.erfc, REAL),
    "erf_inv": (lambda x: lax.erf_inv(x / 4.0), REAL[1:13]),
    "lgamma": (lax.lgamma, np.r_[POSITIVE[:3], POSITIVE[5:], 0.0, np.inf, -np.inf, np.nan]),
    "digamma": (lax.digamma, np.r_[POSITIVE, np.inf, np.nan]),
    "logistic": (jax.nn.sigmoid, REAL),
    "igamma": (lambda x: lax.igamma(x, x[::-1]), POSITIVE),
    "igammac": (lambda x: lax.igammac(x, x[::-1]), POSITIVE),
    "regularized_incomplete_beta": (lambda x: lax.betainc(x, x[::-1], jnp.full(7, 0.3)), POSITIVE[1:]),
    "bessel_i0e": (lax.bessel_i0e, POSITIVE),
    "bessel_i1e": (lax.bessel_i1e, POSITIVE),
    "polygamma": (lambda x: (lax.polygamma(jnp.ones(8), x), lax.polygamma(jnp.full(8, 2.0), x)), POSITIVE),
    "reshape": (lambda x: (x.reshape(10, 12), x.sum().reshape(1, 1), x[:1, 0, 0].reshape(())), CUBE),
    "transpose": (lambda x: x.transpose(2, 0, 1), CUBE),
    "rev": (lambda x: x[::-1, :, ::-1], CUBE),
    "concatenate": (lambda x: jnp.concatenate([x, x[:2]], axis=0), CUBE),
    "stack": (lambda x: jnp.stack([x, 2.0 * x], axis=1), CUBE),
    "unstack": (lambda x: [part + 1.0 for part in getattr(lax, "unstack", jnp.unstack)(x, axis=1)], CUBE),
    "slice": (lambda x: x[1:4, ::2], CUBE),
    "pad": (lambda x: lax.pad(x, 7.0, ((1, 0, 0), (-1, 2, 0), (0, -3, 0))), CUBE),
    "split": (lambda x: jnp.split(x, (1, 1, 4), axis=1), CUBE),
    "dynamic_slice": (lambda x: [lax.dynamic_slice(x, (i, 0, i), (2, 6, 2)) for i in ROWS], CUBE),
    "dynamic_update_slice": (lambda x: [lax.dynamic_update_slice(x, x[:2, :, :2], (i, 0, i)) for i in ROWS], CUBE),
    "reduce_sum": (lambda x: (x.sum(), x.sum((0, 2)), x[:0].sum(0), WHOLE.sum() * x.astype(jnp.int32).sum()), CUBE),
    "reduce_max": (lambda x: (x.max(1), REAL.max() + jnp.max(jnp.asarray(REAL))), CUBE),
    "reduce_min": (lambda x: x.min((0, 1)), CUBE),
    "reduce_prod": (lambda x: x.prod(1), CUBE),
    "reduce_and": (lambda x: (x > -1.0).all(0), CUBE),
    "reduce_or": (lambda x: (x > 1.0).any(0), CUBE),
    "reduce": (several_sums, CUBE),
    "argmax": (lambda x: (x.argmax(1), jnp.argmax(jnp.asarray(REAL))), CUBE),
    "argmin": (lambda x: x.argmin(0), CUBE),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)), CUBE),
    "cumprod": (lambda x: jnp.cumprod(x, 2), CUBE),
    "cummax": (lambda x: lax.cummax(x, 1), CUBE),
    "cummin": (lambda x: lax.cummin(x, 1, reverse=True), CUBE),
    "sort": (
        lambda x: (jnp.sort(x, 1), jnp.sort(jnp.asarray(REAL)), lax.sort((x, 2.0 * x), dimension=0, num_keys=1)),
        CUBE,
    ),
    "gather": (
        lambda x: (
            x.at[ROWS].get(mode="clip"), x.at[:, ROWS].get(mode="fill"), x[..., -1],
            x.at[INSIDE, :, 1].get(mode="promise_in_bounds"), jnp.take_along_axis(x, INSIDE[:, None, None], 0),
            jax.vmap(lambda row, i: row[i])(x[:3], INSIDE),
            jax.vmap(lambda row, i: lax.dynamic_slice(row, (i, 0), (2, 3)))(x[:3], ROWS),
        ),
        CUBE,
    ),
    "scatter": (
        lambda x: (
            x.at[ROWS].set(2.0), x.at[ROWS, :, INSIDE].set(x[:3, :, 0], mode="clip"), x.at[0].set(3.0),
            jax.vmap(lambda row, i: row.at[i].set(1.0))(x[:3], ROWS),
        ),
        CUBE,
    ),
    "scatter-add": (lambda x: (x.at[np.array([1, 1, 9])].add(x[:3]), x.at[2, 3].add(5.0)), CUBE),
    "optimization_barrier": (lambda x: lax.optimization_barrier((x, 2.0 * x)), CUBE),
    "platform_index": (lambda x: lax.platform_dependent(x, cpu=lambda z: z + 1.0, default=lambda z: z), CUBE),
    "dot_general": (
        lambda x: (
            x[0] @ x[0].T, x @ x[0, 0], x[0].T @ x[0], jnp.dot(x[0, 0], x[1, 1]), x[0, :0] @ x[0].T,
            jnp.einsum("ijk,ljk->il", x, x), jnp.einsum("ijk,ilk->ijl", x, x),
        ),
        CUBE,
    ),
    "cholesky": (
        lambda x: lax.linalg.cholesky(jnp.stack([x[0] @ x[0].T, -x[1] @ x[1].T]), symmetrize_input=False),
        LOWER,
    ),
    "triangular_solve": (
        lambda x: [
            lax.linalg.triangular_solve(
                x if lower else x.transpose(0, 2, 1), SIDES if left else SIDES.transpose(0, 2, 1), left_side=left,
                lower=lower, transpose_a=turned, unit_diagonal=unit,
            )
            for lower, left, turned, unit in itertools.product((True, False), repeat=4)
        ],
        LOWER,
    ),
    "while": (lambda x: (doubled(x[0, 0, 0], x), jax.vmap(doubled)(x[:, 0, 0], x)), CUBE),
    "scan": (lambda x: (scan_back(x), lax.scan(lambda t, row: (t + row.sum(), t), 0.0, x)), CUBE),
    "cond": (lambda x: [lax.switch(i, [lambda z: z, lambda z: z + 1.0, lambda z: z * 2.0], x) for i in ROWS], CUBE),
    "broadcast_in_dim": (
        lambda x: (
            jnp.broadcast_to(x[0], (3, 6, 4)), jnp.broadcast_to(2.0 * x[:, :1], (5, 6, 4)).sum(1),
            jnp.broadcast_to(x.sum() * 2.0, ()), jnp.broadcast_to(x.sum(), (2, 3)).sum(0),
        ),
        CUBE,
    ),
    "squeeze": (lambda x: (x[:, 1:2].squeeze(1), jnp.broadcast_to(x[0, 0, 0], (1, 3))[0] + 1.0), CUBE),
    "iota": (lambda x: (jnp.arange(6)[:, None] * x[0], jnp.eye(6, k=1) @ x), CUBE),
}  # fmt: skip
LATER = ("unstack",) if not hasattr(lax, "unstack") else ()  # primitives that this JAX does not have yet
LOOSE = {  # other formulas than SciPy's, which is the more accurate where they differ
    "lgamma": 1e-13, "digamma": 1e-13, "igamma": 1e-12, "igammac": 1e-11, "regularized_incomplete_beta": 1e-12,
    "erf_inv": 1e-13, "pow": 1e-13, "reduce_prod": 1e-14, "cumsum": 1e-13, "cumprod": 1e-14, "reduce_sum": 1e-13,
    "dot_general": 1e-12, "triangular_solve": 1e-11, "reduce": 1e-13, "cholesky": 1e-13, "iota": 1e-14, "exp2": 1e-13,
    "sinh": 1e-14, "cosh": 1e-14, "asinh": 1e-14, "acosh": 1e-14, "atanh": 1e-14, "tan": 1e-14,
    "cbrt": 1e-13,
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_primitives_are_those_of_xla(name):
    function, x = USES[name]
    own = {"integer quotient": "div", "selection by number": "select_n"}.get(name, name)
    assert own in primitives(jax.jit(function).trace(x).jaxpr.jaxpr) or own in LATER
    assert_same(function, x, rtol=LOOSE.get(name, 4e-15))


def test_all_primitives_that_are_known_are_tested():
    assert set(USES) == {*ENTRYWISE, *SPECIAL, *SHAPES, *ALGEBRA, *LOOPS, *NARROW}


def test_values_that_are_known_beforehand_are_computed_once():
    made = routine(lambda x: x + jnp.exp(jnp.arange(4.0)), np.zeros(4))
    assert len(made.steps) == 1
    np.testing.assert_allclose(made(np.zeros(4))[0], np.exp(np.arange(4.0)), rtol=1e-15)


def test_a_matrix_that_has_no_root_is_told_by_nan_beside_others_that_have():
    root = numpys(lambda x: lax.linalg.cholesky(x), np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)]))[0]
    np.testing.assert_array_equal(root[0], np.eye(3))
    assert np.isnan(root[1:][:, *np.tril_indices(3)]).all()
