"""The orthogonal additive kernel against the sum over all subsets of its factors, and its factors against integrals."""

from itertools import combinations
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import Model, fit, fit_many, infer, kernels, likelihoods
from quantprop.core.parameters import declared, labels, packed, unpacked, values
from quantprop.core.records import changed
from quantprop.kernels import Additive, Terms, written
from quantprop.kernels.structure import measured
from quantprop.storage.records import decode, encode

RNG = np.random.default_rng(3)
N = 70
WORD = RNG.integers(0, 4, N)  # level 0 has no column
X = np.column_stack([
    RNG.normal(5.0, 2.0, N), RNG.integers(0, 2, N), 3.0 * (WORD == 1) - 1.0, 1.0 * (WORD == 2), 1.0 * (WORD == 3),
    RNG.integers(0, 5, N), RNG.gamma(1.0, size=N), RNG.normal(size=N), RNG.uniform(size=N) ** 9,
])  # fmt: skip
FACTORS = ((0,), (1,), (2, 3, 4), (5,), (6,), (7,))
NEW = X[:11] + np.array([0.3, 0, 0, 0, 0, 0.5, 0.1, -0.2, 0.0])
COUNTS = RNG.integers(0, 3, N) * 1.0
BASES = (kernels.SquaredExponential(), kernels.Matern12(), kernels.Matern52(), kernels.RationalQuadratic(mixture=0.7))
LENGTHS = (0.7, 1.3, 2.0, 0.4)
RELEVANCE = (0.6, 1.7)
GIVEN = {"lengthscale": LENGTHS, "relevance": RELEVANCE, "factors": FACTORS}
PROFILES = {  # correlations at distance r
    "SquaredExponential": lambda r: np.exp(-0.5 * r**2),
    "Matern12": lambda r: np.exp(-r),
    "Matern52": lambda r: (1.0 + 5**0.5 * r + 5.0 * r**2 / 3.0) * np.exp(-(5**0.5) * r),
    "RationalQuadratic": lambda r: (1.0 + r**2 / 1.4) ** -0.7,
}


def by_hand(x, z, base="SquaredExponential", counts=None):
    """The factors by their definition, from the rows and not from stored nodes: at most 32 values a column here."""
    share = np.ones(len(X)) if counts is None else counts
    share, found, lengths, relevance = share / share.sum(), [], iter(LENGTHS), iter(RELEVANCE)
    profile = PROFILES[base]
    for factor in FACTORS:
        of_x, of_z, data = (rows[:, list(factor)] for rows in (x, z, COARSE))
        if len(factor) > 1 or len(np.unique(data)) == 2:
            same = (of_x[:, None] == of_z).all(axis=-1)
            own, others = ((rows[:, None] == data).all(axis=-1) @ share for rows in (of_x, of_z))
            levels = np.unique(data, axis=0)
            total = sum(((data == level).all(axis=1) @ share) ** 2 for level in levels)
            found.append(next(relevance) * (same - np.outer(own, others) / total))
            continue
        data = data[:, 0]
        length = next(lengths) * np.sqrt(share @ (data - share @ data) ** 2)
        k = lambda a, b, length=length: profile(np.abs(a[:, None] - b) / length)  # noqa: E731
        a, b, c = k(of_x[:, 0], data) @ share, k(of_z[:, 0], data) @ share, share @ k(data, data) @ share
        found.append(k(of_x[:, 0], of_z[:, 0]) - np.outer(a, b) / c)
    return np.array(found)


each, cross, gram, diagonal, of_two = (
    jax.jit(getattr(Additive, name)) for name in ("each", "cross", "gram", "diagonal", "__call__")
)
COARSE = X.copy()  # columns of at most 32 values, whose distribution needs no grouping
for column in (0, 6, 7):
    COARSE[:, column] = np.quantile(X[:, column], (np.argsort(np.argsort(X[:, column])) % 30 + 0.5) / 30)


def over_subsets(factors, variance):
    order = len(variance) - 1
    total = np.zeros(factors.shape[1:])
    for q in range(order + 1):
        for some in combinations(range(len(factors)), q):
            total += variance[q] / comb(len(factors), q) * np.prod(factors[list(some)], axis=0)
    return total


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("counts", [None, COUNTS], ids=["rows", "weighted rows"])
def test_factors_are_kernels_less_their_integrals(base, counts):
    with jax.enable_x64(True):
        kernel = values(Additive(1, base, **GIVEN).measured(COARSE, counts))
        z = COARSE[:11] + np.array([0.3, 0, 0, 0, 0, 0.5, 0.1, -0.2, 0.0])
        wanted = by_hand(COARSE, z, type(base).__name__, counts)
        np.testing.assert_allclose(each(kernel, COARSE, z), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [2, *(pytest.param(d, marks=pytest.mark.campaign) for d in (1, 3, 4, 5, 6))])
def test_sum_over_all_subsets(d):
    factors = FACTORS[:d]
    lengths = LENGTHS[: sum(len(factor) == 1 for factor in factors) - (d > 1)]
    for order in range(4):
        variance = np.array([0.3, 1.7, 0.9, 2.1])[: order + 1]
        given = {"lengthscale": lengths, "relevance": RELEVANCE[: max(0, min(d - 1, 2))]}
        kernel = Additive(order, variance=variance, factors=factors, **given)
        if order > d:
            with pytest.raises(ValueError, match=f"order={order} needs {order} columns that vary, and X has {d}"):
                kernel.measured(X)
            continue
        with jax.enable_x64(True):
            kernel = kernel.measured(X)
            wanted = over_subsets(np.asarray(each(kernel, X, X)), variance)
            np.testing.assert_allclose(
                cross(kernel, X, NEW), over_subsets(np.asarray(each(kernel, X, NEW)), variance), rtol=1e-12, atol=1e-12
            )
            np.testing.assert_allclose(gram(kernel, X), wanted, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(diagonal(kernel, X), np.diagonal(wanted), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(of_two(kernel, X[0], X[1]), wanted[0, 1], rtol=1e-12)


@pytest.mark.parametrize(
    "base",
    [BASES[0], *(pytest.param(base, marks=pytest.mark.campaign) for base in BASES[1:])],
    ids=lambda base: type(base).__name__,
)
def test_each_factor_integrates_to_zero_under_its_distribution(base):
    with jax.enable_x64(True):
        for length in (0.05, 2.0, 1e3):
            kernel = values(Additive(1, base, **{**GIVEN, "lengthscale": [length] * 4}).measured(X, COUNTS))
            for i, factor in enumerate(FACTORS):
                if i in (1, 2):  # a row of each level
                    rows = {1: [[0], [1]], 2: [[-1, 0, 0], [2, 0, 0], [-1, 1, 0], [-1, 0, 1]]}[i]
                    points = np.tile(X[:1], (len(rows), 1))
                    points[:, list(factor)] = rows
                    weights = kernel.weights[i, : len(points)]
                else:
                    points = np.tile(X[:1], (32, 1))
                    points[:, factor[0]], weights = kernel.nodes[i], kernel.weights[i]
                integral = weights @ np.asarray(each(kernel, points, NEW))[i]
                np.testing.assert_allclose(integral, 0.0, atol=1e-10)
                np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-14)


def test_at_most_32_nodes_have_the_mean_of_the_column():
    kernel = Additive(1, factors=FACTORS).measured(X, COUNTS)
    assert kernel.nodes.shape == (6, 32)
    for i in (0, 4, 5):
        column = X[:, FACTORS[i][0]]
        np.testing.assert_allclose(kernel.weights[i] @ kernel.nodes[i], np.average(column, weights=COUNTS), rtol=1e-13)
        assert (np.diff(kernel.nodes[i][kernel.weights[i] > 0]) > 0).all()


def test_gradients_by_finite_differences():
    weight = RNG.normal(size=(N, 11))
    given = Additive(3, kernels.RationalQuadratic(mixture=0.7), **GIVEN).measured(X)
    tree = declared(given)

    @jax.jit
    def total(theta, x):
        return jnp.sum(weight * unpacked(tree, theta).cross(x, NEW)) + jnp.sum(unpacked(tree, theta).gram(x)[0])

    with jax.enable_x64(True):
        theta = packed(tree)
        assert len(theta) == 4 + 4 + 2 + 1
        slope, by_x = jax.jit(jax.grad(total, argnums=(0, 1)))(theta, X)
        for i in range(len(theta)):
            step = 1e-5 * np.eye(len(theta))[i]
            wanted = (total(theta + step, X) - total(theta - step, X)) / 2e-5
            np.testing.assert_allclose(slope[i], wanted, rtol=1e-6, atol=1e-6)
        for row, column in ((0, 0), (3, 6), (5, 1)):
            step = np.zeros_like(X)
            step[row, column] = 1e-5
            wanted = (total(theta, X + step) - total(theta, X - step)) / 2e-5
            np.testing.assert_allclose(by_x[row, column], wanted, rtol=1e-6, atol=1e-6)


def test_a_value_and_gradient_of_40_columns_and_4000_rows_fit_into_3_gib():
    def whole(lengthscale, x, kernel):
        return jnp.sum(changed(kernel, lengthscale=lengthscale).gram(x) ** 2)

    with jax.enable_x64(True):
        kernel = values(Additive(2).measured(np.random.default_rng(0).normal(size=(100, 40))))
        shapes = jax.ShapeDtypeStruct((40,), float), jax.ShapeDtypeStruct((4000, 40), float)
        compiled = jax.jit(jax.value_and_grad(lambda *at: whole(*at, kernel))).lower(*shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 3 * 2**30


def test_a_column_without_variation_is_no_factor():
    x = np.column_stack([X[:, 0], np.ones(N), X[:, 6]])
    with jax.enable_x64(True):
        kernel = values(Additive(2, lengthscale=[1.0, 2.0]).measured(x))
        alone = values(Additive(2, lengthscale=[1.0, 2.0]).measured(x[:, [0, 2]]))
        np.testing.assert_array_equal(kernel.gram(x), alone.gram(x[:, [0, 2]]))
    assert kernel.varying == [(0,), (2,)]


def test_a_level_unseen_in_training_has_an_effect_of_its_own():
    x = np.eye(4)[RNG.integers(0, 3, 20)]  # the fourth level has a column and no row
    new = np.eye(4)[[3, 0]]
    with jax.enable_x64(True):
        kernel = Additive(1, factors=((0, 1, 2, 3),), variance=[0.0, 1.0], relevance=[1.0]).measured(x)
        np.testing.assert_allclose(kernel.cross(new[:1], x), 0.0, atol=1e-15)
        np.testing.assert_allclose(kernel.diagonal(new)[0], 1.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Additive(4), "order must be 0, 1, 2 or 3; got 4"),
        (lambda: Additive(2, kernels.Linear()), "base must be a stationary kernel"),
        (lambda: Additive(2, variance=[1.0, 2.0]), "one entry for each order from 0 to 2"),
        (lambda: Additive(2, factors=((0, 1), (1,))), "needs a different column"),
        (lambda: Additive(2, lengthscale=[1.0] * 3).measured(X), r"lengthscale must be .* shape \(5,\); got \(3,\)"),
        (lambda: Additive(2, relevance=[1.0] * 3).measured(X), r"relevance must be .* shape \(4,\); got \(3,\)"),
        (lambda: Additive(2).gram(X), "use fit, which estimates it"),
        (
            lambda: Additive(1, factors=((0, 1),)).measured(np.array([[1.0, 1.0], [0.0, 0.0]])),
            "exclude each other, and row 0",
        ),
        (lambda: infer(Model(Additive(2), likelihoods.Gaussian()), X, X[:, 0], "ep"), "use fit"),
    ],
)
def test_mistakes_are_said(make, said):
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_fit_takes_the_distribution_from_rows_that_count():
    y = np.sin(X[:, 0]) + X[:, 1]
    model = Model(Additive(1, factors=FACTORS), likelihoods.Gaussian(0.1))
    fitted = fit(model, X, y, "ep", weights=COUNTS, max_evaluations=3)
    kernel = fitted.model.kernel
    np.testing.assert_array_equal(kernel.weights, model.kernel.measured(X, COUNTS).weights)
    again = fit(fitted.model, X[::-1] + 1.0, y[::-1], "ep", weights=COUNTS, max_evaluations=3)
    np.testing.assert_array_equal(again.model.kernel.nodes, kernel.nodes)
    np.testing.assert_allclose(infer(fitted.model, X, y, "ep", weights=COUNTS).log_evidence,
                               fitted.solution.log_evidence, rtol=1e-10)  # fmt: skip


@pytest.mark.campaign
def test_many_fits_take_the_distribution_from_rows_that_count():
    model = Model(Additive(1, factors=FACTORS), likelihoods.Gaussian(0.1))
    (one,) = fit_many(model, [X], [np.sin(X[:, 0]) + X[:, 1]], "ep", weights=[COUNTS], max_evaluations=3)
    np.testing.assert_array_equal(one.model.kernel.weights, model.kernel.measured(X, COUNTS).weights)


def test_it_is_one_term_in_files_and_in_the_language():
    kernel = Additive(2, kernels.Matern52(), **GIVEN).measured(X) + kernels.Linear()
    again = decode(encode(kernel, "kernel"), "kernel")
    assert again == kernel
    assert kernels.summands(again)[0].varying == [*FACTORS]
    text = "additive(age, bmi, order=3, variance~[1, 2, 3, 4]) + linear(age)"
    found = Terms(text, ("age", "sex", "bmi")).kernel()
    assert written(found) == "additive(age, bmi, order=3, variance=[1, 2, 3, 4]) + linear(age, variance=1)"
    assert kernels.columns_of(found) == (0, 2)
    assert written(Terms("additive(*) + linear(sex)", ("age", "sex", "bmi")).kernel(), None) == (
        "additive(age, bmi, order=2) + linear(sex)"
    )
    assert written(Terms("additive(*)").kernel(), None) == "additive(*, order=2)"
    at = measured(Terms("additive(age, bmi) + linear(age)", ("age", "sex", "bmi")).kernel(), X[:, [0, 1, 6]])
    assert [name for name in labels(declared(at)) if "lengthscale" in name] == [
        "left.kernel.lengthscale[0]", "left.kernel.lengthscale[1]"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("additive(*, a)", 1, "the only column"), ("se(*)", 1, "the only column"),
        ("additive(a, order=4)", 13, "1, 2 or 3"), ("additive(a, ard=true)", 13, "no option 'ard'"),
        ("additive(a, variance=[1, 2])", 13, "3 numbers"),
    ],
)  # fmt: skip
def test_errors_in_terms_point_at_the_place(text, position, said):
    with pytest.raises(kernels.TermError, match=said) as caught:
        Terms(text)
    assert caught.value.position == position


def test_zero_one_columns_of_one_variable_are_one_factor():
    word, other = RNG.integers(0, 4, N), RNG.integers(0, 3, N)
    number, binary = RNG.normal(size=N), RNG.integers(0, 2, N)
    some = (word[:, None] == [0, 1, 2, 3, 4]).astype(float)  # the last level has no row
    x = np.column_stack([number, some, binary, np.ones(N), (other[:, None] == [2, 0, 1]), number])
    factors = ((0,), (1, 2, 3, 4), (5,), (6,), (7,), (8, 9, 10), (11,))
    assert Additive(1).measured((x - 3.0) / 7.0).factors == factors
    assert Additive(1).measured(x[:, [0, 1, 2, 6]]).factors == ((0,), (1,), (2,), (3,))  # not every row has a level
    rows = np.append(x, x[:1] + np.eye(12)[[2]], axis=0)  # one row with two levels, which does not count
    assert Additive(1).measured(rows, np.arange(N + 1) < N).factors == factors
    w = np.bincount(word) / N
    with jax.enable_x64(True):
        kernel = Additive(1, relevance=[0.7, 1.0, 1.0]).measured(x)
        wanted = 0.7 * ((word[:, None] == word) - w[word][:, None] * w[word] / np.sum(w**2))
        np.testing.assert_allclose(np.asarray(each(values(kernel), x, x))[1], wanted, rtol=0, atol=1e-12)
