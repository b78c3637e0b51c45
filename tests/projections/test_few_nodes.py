"""Few nodes: wherever their own estimate accepts them, they agree with the panels; so do their derivatives."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import norm, t

from quantprop import Model, infer, kernels, likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.likelihoods import Datum
from quantprop.likelihoods.base import Moments
from quantprop.likelihoods.derived import WithFewNodes
from quantprop.likelihoods.tilted import few_node_moments, panel_moments
from quantprop.methods import EP, QP
from quantprop.numerics.special import normal_score
from quantprop.numerics.trusted import BLOCK, MIN_ROWS, unless_trusted
from quantprop.projections.wasserstein import few_node_w2, panel_w2

ROWS = 96
KINDS = {
    "poisson": likelihoods.Poisson(),
    "poisson, softplus": likelihoods.Poisson("softplus"),
    "negative binomial": likelihoods.NegativeBinomial(0.5),
    "logit": likelihoods.Logit(),
    "student-t": likelihoods.StudentT(4.0, 0.7),
    "gamma": likelihoods.Gamma(2.0),
    "beta": likelihoods.Beta(5.0),
    "binomial": likelihoods.Binomial("logit"),
    "ordinal": likelihoods.Ordinal(np.array([-1.0, -0.9, 2.0, 10.0])),
}
BY_DEFAULT = ("student-t",)


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def wide(name: str, n: int, rng: np.random.Generator) -> tuple[Datum, Normal]:
    """Data and cavities of every size: variances from 1e-8 to 1e8, means up to 30, counts up to 1e6."""
    v = 10.0 ** rng.uniform(-8, 8, n)
    v[::2] = 10.0 ** rng.uniform(-2, 1.5, len(v[::2]))  # half of them as they are in a fit
    m = rng.uniform(-30, 30, n) * 10.0 ** -rng.uniform(0, 3, n)
    exposure, trials = 10.0 ** rng.uniform(-2, 2, n), np.floor(10.0 ** rng.uniform(0, 4, n))
    y = {
        "logit": lambda: rng.choice([-1.0, 1.0], n),
        "student-t": lambda: m + rng.standard_t(3, n) * np.sqrt(1.0 + v),
        "gamma": lambda: 10.0 ** rng.uniform(-3, 3, n),
        "beta": lambda: rng.uniform(0.001, 0.999, n),
        "ordinal": lambda: rng.integers(0, 5, n).astype(float),
        "binomial": lambda: np.floor(rng.uniform(size=n) * (trials + 1.0)),
    }.get(name, lambda: np.floor(10.0 ** rng.uniform(-0.5, 6, n)))()
    return Datum(y, exposure, trials), Normal(m, v)


def off(few: Moments, panels: Moments, v: np.ndarray) -> np.ndarray:
    """The largest error of a row, in the units of tests/projections/test_accuracy.py."""
    sd = np.sqrt(panels.ratio * v)
    return np.max(np.abs([
        (few.log_normalizer - panels.log_normalizer) / (1.0 + np.abs(panels.log_normalizer)),
        (few.shift - panels.shift) / sd,
        np.sqrt(few.ratio / panels.ratio) - 1.0,
        few.shrink - panels.shrink,
    ]), axis=0)  # fmt: skip


def compared(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of both projections, and whether they were accepted."""
    data, cavity = wide(name, rows, np.random.default_rng(seed))

    @jax.jit
    def both(data, cavity):
        def one(datum, cavity):
            rules = ((few_node_moments, panel_moments), (few_node_w2, panel_w2))
            return [(few(KINDS[name], datum, cavity), panels(KINDS[name], datum, cavity)) for few, panels in rules]

        return jax.lax.map(lambda row: one(*row), (data, cavity), batch_size=32)

    out = jax.tree.map(np.asarray, both(data, cavity))
    errors = [off(few, panels, cavity.variance) for (few, _), panels in out]
    return np.array(errors), np.array([trusted for (_, trusted), _ in out])


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_accepted_rows_agree_with_panels(name):
    errors, trusted = compared(name, ROWS, 0)
    assert np.nanmax(errors[trusted]) <= 1e-9
    assert np.isfinite(errors[trusted]).all()
    assert trusted[:, ::2].mean() > 0.5  # of ordinary cavities most are accepted, and of the extreme ones some
    assert not trusted.all()


@pytest.mark.campaign
@pytest.mark.parametrize("name", KINDS)
def test_accepted_rows_agree_with_panels_for_every_likelihood(name):
    errors, trusted = compared(name, 4_000, 1)
    assert np.isfinite(errors[trusted]).all()
    assert errors[trusted].max() <= 1e-9


def test_two_separate_peaks_are_refused():
    datum, cavity = Datum(10.0, 1.0, 1.0), Normal(jnp.asarray(0.0), jnp.asarray(1.0))
    assert not jax.jit(few_node_moments)(likelihoods.StudentT(4.0, 0.1), datum, cavity)[1]


def test_both_ends_of_an_interval_are_resolved():
    """A middle class 20 times as wide as its edges, under cavities inside of it, across an edge and around it: log Z
    is the logarithm of a difference of Φ.
    """
    likelihood, v = likelihoods.Ordinal(np.array([-10.0, 10.0])), np.tile([1.0, 30.0, 1000.0], 3)
    mean, n = np.repeat([0.0, 9.0, 15.0], 3), 9
    data = Datum(np.ones(n), np.ones(n), np.ones(n))
    few, trusted = jax.jit(jax.vmap(partial(few_node_moments, likelihood)))(data, Normal(mean, v))
    upper, lower = (ndtr((edge - mean) / np.sqrt(1.0 + v)) for edge in (10.0, -10.0))
    assert np.asarray(trusted).all()
    np.testing.assert_allclose(few.log_normalizer, np.log(upper - lower), atol=1e-10)


def test_where_the_density_underflows_rows_are_not_trusted_by_mistake():
    """A censored time under a cavity 88 times as wide as the likelihood: derivatives at the outermost nodes are
    infinite, and compiled for many rows a maximum dropped the NaN that followed.
    """
    likelihood, n = likelihoods.Weibull(0.4), 1500
    data = Datum(np.tile([1.0, np.inf], (n, 1)), np.ones(n), np.ones(n))
    cavity = Normal(np.full(n, 5.917403353595099), np.full(n, 1233.5948165817988))
    few, trusted = jax.jit(jax.vmap(partial(few_node_moments, likelihood)))(data, cavity)
    one = jax.tree.map(lambda column: column[0], (data, cavity))
    panels = jax.jit(partial(panel_moments, likelihood))(*one)
    close = np.abs(few.log_normalizer - panels.log_normalizer) < 1e-9
    assert (close | ~np.asarray(trusted)).all()
    assert float(panels.log_normalizer) == pytest.approx(-0.5721638153, abs=1e-8)


def test_derivatives_are_those_of_the_panels():
    likelihood = likelihoods.StudentT(4.0, 0.7)
    at = jnp.array([0.4, 0.8, 4.0, 0.7])

    def moments(rule, x):
        of = type(likelihood)(x[2], x[3])
        out = rule(of, Datum(1.5, 1.0, 1.0), Normal(x[0], x[1]))
        return jnp.stack(jax.tree.leaves(out[0] if isinstance(out, tuple) else out))

    ours, theirs = (jax.jit(jax.jacfwd(partial(moments, rule)))(at) for rule in (few_node_w2, panel_w2))
    np.testing.assert_allclose(ours, theirs, atol=1e-7)  # those of EP's moments are among them


def test_only_rows_that_are_not_trusted_are_computed_exactly():
    seen = []

    def exact(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x)
        return 2.0 * x

    rule = unless_trusted(lambda x: (2.0 * x + 1.0, x < MIN_ROWS), exact)
    x = jnp.arange(MIN_ROWS + 10.0)
    expected = np.where(x < MIN_ROWS, 2.0 * x + 1.0, 2.0 * x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(rule))(x), expected)
    jax.effects_barrier()
    assert set(range(MIN_ROWS, MIN_ROWS + 10)) <= set(seen)
    assert len(seen) == BLOCK  # one block, filled up with the last row
    nested = jax.jit(jax.vmap(jax.vmap(rule)))(jnp.stack([x, x + 30.0]))
    np.testing.assert_array_equal(nested, [expected, np.where(x + 30.0 < MIN_ROWS, 2.0 * x + 61.0, 2.0 * x + 60.0)])
    slope = jax.jit(lambda x: jax.jvp(jax.vmap(rule), (x,), (jnp.ones_like(x),))[1])(x)
    np.testing.assert_array_equal(slope, np.full(len(x), 2.0))


def test_few_rows_are_all_computed_exactly():
    rule = unless_trusted(lambda x: (2.0 * x + 1.0, x < MIN_ROWS), lambda x: 2.0 * x)
    x = jnp.arange(MIN_ROWS - 1.0)
    np.testing.assert_array_equal(jax.vmap(rule)(x), 2.0 * x)
    assert rule(x[1]) == 2.0


def test_score_is_scipys():
    lower = np.concatenate([10.0 ** np.linspace(-15, np.log10(0.5), 500), [0.5, 0.7, 0.99]])
    np.testing.assert_allclose(normal_score(lower, 1.0 - lower), ndtri(lower), atol=3e-14)


# --- few nodes alone -------------------------------------------------------------------------------------------------

TWO_PEAKS = likelihoods.StudentT(4.0, 0.2), 7.0  # and a cavity N(0, 1): a second peak of a share of 1e-5


def outlier(rows: int) -> tuple[Model, np.ndarray, np.ndarray]:
    """Data without one peak each: the last y is far from where its prior is."""
    likelihood, y = TWO_PEAKS
    model = Model(kernels.SquaredExponential(1.0, 0.1), likelihood)  # rows that know nothing of each other
    return model, 10.0 * np.arange(rows)[:, None], np.append(np.linspace(-1.0, 1.0, rows - 1), y)


def exact_evidence(y: np.ndarray) -> float:
    """log ∫ p(y | f) N(f | 0, 1) of independent rows, by SciPy."""

    def one(y):
        density = lambda f: t.pdf((y - f) / 0.2, 4.0) / 0.2 * norm.pdf(f)  # noqa: E731
        return quad(density, -12.0, 12.0, points=[0.0, y], epsabs=0.0, epsrel=1e-12, limit=200)[0]

    return float(np.sum(np.log([one(value) for value in y])))


@pytest.mark.parametrize("method", [QP(), pytest.param(EP(), marks=pytest.mark.campaign)])
def test_where_few_nodes_do_not_do_they_say_nan_and_elsewhere_what_the_rule_says(method):
    data, cavity = wide("student-t", 64, np.random.default_rng(5))
    base = KINDS["student-t"]
    rule = {EP(): few_node_moments, QP(): few_node_w2}[method]
    few, good = jax.jit(jax.vmap(partial(rule, base)))(data, cavity)
    alone = jax.jit(jax.vmap(partial(method.projection.project, WithFewNodes(base))))(data, cavity)
    assert 8 < np.sum(good) < 64
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(few), strict=True):
        np.testing.assert_array_equal(one, np.where(good, other, np.nan))


@pytest.mark.campaign
def test_a_datum_that_few_nodes_do_not_resolve_is_left_to_the_panels():
    """The evidence of rows that are independent is known; by few nodes the outlier has no site."""
    likelihood, y = TWO_PEAKS
    one = jnp.ones(())
    assert not few_node_moments(likelihood, Datum(y * one, one, one), Normal(0.0 * one, one))[1]
    model, x, y = outlier(3)
    solution = infer(model, x, y, "ep")
    assert solution.converged
    assert solution.log_evidence == pytest.approx(exact_evidence(y), abs=1e-8)


@pytest.mark.campaign
def test_learning_tries_few_nodes_first():
    """Until they have failed twice; the values are the same."""
    for rows, expected in ((np.s_[:-1], 0), (np.s_[:], 1)):
        model, x, y = outlier(4)
        task = prepare(model, x[rows], y[rows], EP(), None, None, None)
        surface = Landscape(model, task, EP(), Evidence())
        point = surface.at(packed(surface.parts))
        assert point.usable
        assert surface.unresolved == expected
        assert point.value == pytest.approx(exact_evidence(y[rows]), abs=1e-8)
    surface.at(packed(surface.parts))
    assert surface.unresolved == 2
    surface.at(packed(surface.parts))
    assert surface.unresolved == 2
