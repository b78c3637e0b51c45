"""Inducing points against the dense process, closed forms, repeated rows, finite differences and another library."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import (
    EP,
    QP,
    VB,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    Laplace,
    Model,
    Parameter,
    PowerEP,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
    predict_many,
)
from quantprop.estimators.shared import ProcessWarning, chosen_process
from quantprop.gaussian import Natural
from quantprop.inference import prediction
from quantprop.inference.task import prepare, settled
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.parameters import packed
from quantprop.priors.base import Cotangent
from quantprop.priors.inducing import rows
from quantprop.priors.inducing.choice import chosen
from quantprop.runtime import batches

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3, 3, (30, 1)), axis=0)
LABELS = np.sign(np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=30))
COUNTS = RNG.poisson(np.exp(1 + np.sin(2 * X[:, 0]))).astype(float)
REALS = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_t(3, size=30)
NEW = np.linspace(-3, 3, 7)[:, None]
Z = np.linspace(-2.8, 2.8, 8)[:, None]
KERNEL = kernels.Matern32(1.5, 0.3)  # shorter than the typical distance: K_uu is well conditioned
DATA = {
    "probit": (likelihoods.Probit(), LABELS),
    "poisson": (likelihoods.Poisson(), COUNTS),
    "student-t": (likelihoods.StudentT(4.0, 0.3), REALS),
}
METHODS = {"ep": EP(), "qp": QP(), "power ½": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}
CHEAP = {("probit", "qp")}


CELLS = [
    pytest.param(name, method, marks=[] if (name, method) in CHEAP else pytest.mark.campaign, id=f"{name}, {method}")
    for name in DATA
    for method in METHODS
]


def point(model: Model, y, method, weights=None, theta=None, x=X):
    """The evidence with its gradient at the model's own numbers, or at others."""
    model = settled(model, x)
    surface = Landscape(model, prepare(model, x, y, method, weights, None, None), method, as_objective("evidence"),
                        tol=1e-10)  # fmt: skip
    return surface.from_cold(packed(surface.parts) if theta is None else theta)


# --- Z = X -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), CELLS)
def test_with_the_inputs_as_points_everything_is_dense(name, method):
    """No jitter: the two are the same Gaussian process, whatever the power."""
    (likelihood, y), method = DATA[name], METHODS[method]
    models = Model(KERNEL, likelihood, 0.2), Model(KERNEL, likelihood, 0.2, Inducing(X, jitter=0.0))
    dense, low = (infer(model, X, y, method, tol=1e-10) for model in models)
    assert low.converged
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.marginals.mean, dense.marginals.mean, atol=1e-7)
    np.testing.assert_allclose(low.marginals.variance, dense.marginals.variance, rtol=1e-7)
    np.testing.assert_allclose(low.loo, dense.loo, atol=1e-7)
    one, other = low.predict(NEW, full_cov=True), dense.predict(NEW, full_cov=True)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-7)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-7)
    there, here = (point(model, y, method) for model in models)
    assert here.usable
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-7)


# --- powers ----------------------------------------------------------------------------------------------------------


def fitc(power: float, y: np.ndarray, noise: float, x=X) -> tuple[float, np.ndarray, np.ndarray]:
    """Bui, Yan and Turner (2017), eqs. 14 and 15: log evidence, and mean and covariance at NEW."""
    k_uu, k_uf, k_un = (np.asarray(KERNEL.cross(Z, other)) for other in (Z, x, NEW))
    q = k_uf.T @ np.linalg.solve(k_uu, k_uf)
    d = np.diag(np.asarray(KERNEL.cross(x, x))) - np.diag(q)
    c = q + np.diag(power * d + noise**2)
    cross = k_uf.T @ np.linalg.solve(k_uu, k_un)
    value = -0.5 * (y @ np.linalg.solve(c, y) + np.linalg.slogdet(2 * np.pi * c)[1])
    extra = np.log1p(power * d / noise**2) / power if power else d / noise**2
    covariance = np.asarray(KERNEL.cross(NEW, NEW)) - cross.T @ np.linalg.solve(c, cross)
    return value - 0.5 * (1 - power) * extra.sum(), cross.T @ np.linalg.solve(c, y), covariance


@pytest.mark.parametrize("power", [0.0, 0.5, *(pytest.param(one, marks=pytest.mark.campaign) for one in (0.01, 1.0))])
def test_a_gaussian_likelihood_has_the_closed_form_of_its_power(power):
    model = Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(Z, jitter=0.0))
    with jax.enable_x64(True):
        value, mean, covariance = fitc(power, REALS, 0.3)
    solution = infer(model, X, REALS, PowerEP(power) if power else VB(), tol=1e-12)
    assert solution.log_evidence == pytest.approx(value, abs=1e-8)
    found = solution.predict(NEW, full_cov=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)


@pytest.mark.campaign
@pytest.mark.parametrize("name", list(DATA))
def test_power_ep_tends_to_the_variational_bound_linearly(name):
    likelihood, y = DATA[name]
    model = Model(KERNEL, likelihood, process=Inducing(Z))
    limit = infer(model, X, y, VB(), tol=1e-11)
    near, nearer = (infer(model, X, y, PowerEP(power), tol=1e-11) for power in (0.02, 0.01))
    assert near.log_evidence - limit.log_evidence == pytest.approx(
        2 * (nearer.log_evidence - limit.log_evidence), rel=0.03
    )
    moved = [np.abs(s.predict(NEW).mean - limit.predict(NEW).mean).max() for s in (near, nearer)]
    assert moved[0] == pytest.approx(2 * moved[1], rel=0.03)


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("probit", EP()),
        *(
            pytest.param(name, method, marks=pytest.mark.campaign)
            for name, method in (("probit", QP()), ("poisson", PowerEP(0.5)), ("poisson", VB()), ("poisson", Laplace()))
        ),
    ],
)
def test_whole_weights_are_repeated_rows(name, method):
    """Copies have residuals of their own, and so have equal rows; white noise in the kernel is one of them."""
    likelihood, y = DATA[name]
    model = Model(KERNEL + kernels.White(0.05), likelihood, 0.2, Inducing(Z))
    weights = np.ones(len(X))
    weights[[3, 11, 20]], weights[7] = (2.0, 3.0, 5.0), 0.0
    each = np.repeat(np.arange(len(X)), weights.astype(int))
    short = infer(model, X, y, method, weights=weights, tol=1e-12)
    long = infer(model, X[each], y[each], method, tol=1e-12)
    assert short.log_evidence == pytest.approx(long.log_evidence, abs=1e-9)
    kept = weights > 0
    first = np.unique(each, return_index=True)[1]
    np.testing.assert_allclose(short.marginals.mean[kept], long.marginals.mean[first], atol=1e-9)
    np.testing.assert_allclose(short.marginals.variance[kept], long.marginals.variance[first], atol=1e-9)
    np.testing.assert_allclose(short.predict(NEW).mean, long.predict(NEW).mean, atol=1e-9)
    (other,) = predict_many([short], [NEW])
    np.testing.assert_allclose(other.variance, long.predict(NEW).variance, atol=1e-9)
    one, two = point(model, y, method, weights), point(model, y[each], method, x=X[each])
    np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-7)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("probit", QP()),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (
                ("probit", EP()),
                ("probit", EP(QP().projection, 0.7)),
                ("poisson", PowerEP(0.5)),
                ("poisson", VB()),
                ("student-t", EP()),
                ("student-t", QP()),
                ("student-t", Laplace()),
            )
        ),
    ],
)
def test_gradients_are_finite_differences(name, method):
    """In the kernel's numbers, the mean, the likelihood's and the points."""
    likelihood, y = DATA[name]
    start = Z[:4] + np.array([[0.1], [-0.05], [0.02], [0.0]])
    kernel = kernels.SquaredExponential(1.3, 0.9) + kernels.White(0.1)
    model = Model(kernel, likelihood, Parameter(0.2), Inducing(start, learn=True))
    here = point(model, y, method)
    assert here.usable
    assert len(here.theta) == 4 + 4 + (2 if name == "student-t" else 0)
    for i in range(len(here.theta)):
        step = np.zeros(len(here.theta))
        step[i] = 1e-4
        values = [point(model, y, method, theta=here.theta + k * step).value for k in (-2, -1, 1, 2)]
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-4
        assert here.gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("share", [0.3, *(pytest.param(one, marks=pytest.mark.campaign) for one in (1.0, 0.0))])
def test_chunks_and_what_is_held_change_nothing(share, monkeypatch):
    """One chunk with V held, and ten whose V is computed whenever it is needed."""
    rng = np.random.default_rng(1)
    x, tau = rng.normal(size=(40, 2)), rng.uniform(0.1, 2.0, 40)
    process = Inducing(x[:6], learn=True)
    sites, moves = Natural(rng.normal(size=40), tau), jnp.asarray(rng.normal(size=(2, 40)))
    by = Cotangent(jnp.asarray(rng.normal(size=(2, 40))), jnp.asarray(0.3), jnp.asarray(rng.normal(size=40)))

    def all_of(hold):
        prior = process.prior(kernels.Matern52(1.2, np.array([0.8, 1.1])), jnp.zeros(40), jnp.asarray(x))
        prior = type(prior)(prior.mean, prior.basis, prior.x, share * prior.share, None, hold, True).for_sweeps()
        given = prior.condition(sites, False)
        response = prior.response(given, False)
        slopes = prior.evidence_slope(given, False), response.to_prior(by)
        return (
            given.marginals,
            given.log_determinant,
            prior.follow(given, sites.nu + 1.0),
            response.answer(moves),
            slopes,
        )

    with jax.enable_x64(True):
        once = all_of(True)
        monkeypatch.setattr(rows, "CPU_CHUNK", 4 * 8 * 6)
        assert rows.chunks_of(40, 6) == 10
        for one, other in zip(jax.tree.leaves(once), jax.tree.leaves(all_of(False)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("share", [0.4, pytest.param(0.0, marks=pytest.mark.campaign)])
def test_responses_are_derivatives_of_the_marginals_for_any_power(share):
    """Against finite differences of `condition`: the contract suite has the whole shares."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 1))
    with jax.enable_x64(True):
        prior = Inducing(x[:4]).prior(KERNEL, jnp.asarray(rng.normal(size=12)), jnp.asarray(x))
        prior = prior.for_shares(np.full(12, share))
        sites = Natural(rng.normal(size=12), rng.uniform(0.3, 3.0, 12))
        given, moves = prior.condition(sites, False), rng.normal(size=(2, 12))
        at, sd = given.marginals, np.sqrt(given.marginals.variance)

        def after(h):
            d_tau = h * moves[1] / at.variance
            return prior.condition(Natural(sites.nu + h * moves[0] / sd + at.mean * d_tau, sites.tau + d_tau), False)

        ends = after(1e-5), after(-1e-5)
        mean, variance, size = (
            (get(ends[0]) - get(ends[1])) / 2e-5
            for get in (lambda c: c.marginals.mean, lambda c: c.marginals.variance, lambda c: c.log_determinant)
        )
        found = prior.response(given, False).answer(jnp.asarray(moves))
        np.testing.assert_allclose(found, np.stack([mean / sd, -variance / at.variance]), rtol=1e-6, atol=1e-8)
        assert size == pytest.approx(moves[1].sum(), rel=1e-7)  # ∂ log |I + S K| = Σ σ² δτ, whatever the power


# --- points ----------------------------------------------------------------------------------------------------------


def test_points_are_chosen_from_the_rows_by_their_seed():
    x = np.column_stack([RNG.normal(size=500), RNG.integers(0, 3, 500)])
    one, again, other = chosen(x, 20, 0), chosen(x, 20, 0), chosen(x, 20, 1)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert len(np.unique(one, axis=0)) == 20
    assert {tuple(row) for row in one} <= {tuple(row) for row in x}  # codes of categories stay codes


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (31, "31 points are more than the 30 rows of X: use Dense"),
        (np.zeros((2, 1)), "two rows of points are equal"),
        (np.array([[0.0], [np.nan]]), r"points\[1\] holds NaN or infinity"),
        (0, "whole number of at least 1"),
        (2.5, "whole number of at least 1"),
        (np.zeros((2, 3)) + np.arange(2)[:, None], "points have 3 columns, and X has 1"),
        (np.arange(3.0), "one row per point"),
    ],
)
def test_points_that_will_not_do_are_refused(points, words):
    with pytest.raises(ValueError, match=words):
        infer(Model(KERNEL, likelihoods.Probit(), process=Inducing(points)), X, LABELS, "ep")


def test_more_points_than_different_rows_are_refused():
    with pytest.raises(ValueError, match="10 points, but X has only 3 different rows"):
        infer(Model(KERNEL, likelihoods.Probit(), process=Inducing(10)), np.repeat(X[:3], 10, axis=0), LABELS, "ep")


def test_points_whose_covariance_is_singular_have_an_honest_status():
    """Without jitter, and points far closer than the lengthscale."""
    close = np.linspace(0.0, 1e-3, 8)[:, None]
    model = Model(kernels.SquaredExponential(1.0, 2.0), likelihoods.Probit(), process=Inducing(close, jitter=0.0))
    solution = infer(model, X, LABELS, "ep")
    assert solution.status.reason == "no-covariance"


@pytest.mark.campaign
def test_jitter_makes_them_usable():
    close = np.linspace(0.0, 1e-3, 8)[:, None]
    model = Model(kernels.SquaredExponential(1.0, 2.0), likelihoods.Probit(), process=Inducing(close))
    assert infer(model, X, LABELS, "ep").converged


# --- from end to end -------------------------------------------------------------------------------------------------


def test_learned_points_improve_the_evidence_and_are_stored(tmp_path):
    kernel, weights = kernels.SquaredExponential(1.0, 1.0), np.where(np.arange(30) % 7 == 0, 2.0, 1.0)
    model = Model(kernel, likelihoods.Probit(), process=Inducing(4, learn=True))
    still, moved = (
        fit(Model(kernel, model.likelihood, process=Inducing(4, learn=learn)), X, LABELS, "ep", weights=weights)
        for learn in (False, True)
    )
    assert moved.objective_value > still.objective_value + 0.01
    moved.save(tmp_path / "moved.safetensors")
    again = load(tmp_path / "moved.safetensors")
    np.testing.assert_array_equal(again.model.process.points.value, moved.model.process.points.value)
    np.testing.assert_array_equal(again.solution.weights, weights)
    np.testing.assert_array_equal(again.solution.predict(NEW).variance, moved.solution.predict(NEW).variance)


def test_a_regressor_does_not_merge_equal_rows():
    """Two equal rows have residuals of their own, and the same y twice says more than one y of twice the precision."""
    x, y = np.repeat(X, 2, axis=0), np.repeat(REALS, 2)
    model = GaussianProcessRegressor(alpha=0.09, optimizer=None, process=Inducing(Z, jitter=0.0), method="ep")
    model.fit(x, y)
    with jax.enable_x64(True):
        assert len(model.solution_.X) == len(x)


def test_auto_says_what_it_chose(caplog):
    """Exact for 500 rows; on a CPU 512 points from some thousand rows on, with a warning that names the way out."""
    with caplog.at_level("INFO", logger="quantprop"):
        assert not isinstance(chosen_process("auto", 500), Inducing)
    assert "dense, exact, for 500 rows" in caplog.text
    for n in (5_000, 50_000):
        with pytest.warns(ProcessWarning, match=rf"{n} rows by 512 inducing points.*process='dense'"):
            assert chosen_process("auto", n).count == 512
    assert chosen_process("dense", 50_000) == Model(KERNEL, likelihoods.Probit()).process
    assert chosen_process(given := Inducing(7), 50_000) is given


@pytest.mark.campaign
def test_estimators_learn_with_points_and_are_stored(tmp_path):
    x = RNG.normal(size=(200, 2))
    label = np.where(x[:, 0] + x[:, 1] ** 2 > 1, "yes", "no")
    model = GaussianProcessClassifier(process=Inducing(20)).fit(x, label)
    assert model.score(x, label) > 0.9
    model.save(tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(twin.predict_proba(x[:5]), model.predict_proba(x[:5]))
    several = GaussianProcessClassifier(process=Inducing(10)).fit(x, np.round(x[:, 0]).clip(-1, 1))
    assert several.predict_proba(x).shape == (200, 3)


@pytest.mark.campaign
def test_learning_by_a_batch_is_learning_alone():
    model = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit(), process=Inducing(6))
    alone = fit(model, X, LABELS, "ep")
    for one in fit_many(model, [X, X], [LABELS, LABELS], "ep"):
        assert one.objective_value == pytest.approx(alone.objective_value, abs=1e-6)


@pytest.mark.campaign
def test_very_many_rows_are_renewed_and_predicted_in_chunks(monkeypatch):
    model = Model(KERNEL, likelihoods.Poisson(), process=Inducing(Z))
    whole = point(model, COUNTS, QP())
    monkeypatch.setattr(batches, "CPU_ROWS", 8)
    monkeypatch.setattr(prediction, "PIECE", 3)
    x, y = np.concatenate([X, X[:3]]), np.concatenate([COUNTS, COUNTS[:3]])  # of a shape not compiled before
    parts = point(model, y, QP(), np.concatenate([np.ones(30), np.zeros(3)]), x=x)
    assert parts.value == pytest.approx(whole.value, abs=1e-8)
    np.testing.assert_allclose(parts.gradient, whole.gradient, atol=1e-7)
    solution = infer(model, X, COUNTS, "laplace")
    np.testing.assert_allclose(solution.predict(NEW).variance, np.diag(solution.predict(NEW, full_cov=True).covariance))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(20))
def test_fuzzed_problems_have_numbers_and_honest_statuses(seed):
    """25 a seed: no NaN, no negative variance, and a status that says what happened."""
    rng = np.random.default_rng(seed)
    for _ in range(25):
        n, d = 30, int(rng.integers(1, 4))
        x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2)
        name = str(rng.choice(list(DATA)))
        likelihood, y = DATA[name][0], rng.permutation(DATA[name][1])
        if name == "student-t":
            y = y * 10.0 ** rng.integers(-1, 3)
        kernel = kernels.SquaredExponential(10.0 ** rng.uniform(-3, 4), 10.0 ** rng.uniform(-2, 2))
        method = METHODS[str(rng.choice(list(METHODS)))]
        solution = infer(Model(kernel, likelihood, process=Inducing(8, seed=seed)), x, y, method)
        assert solution.status.reason in ("converged", "max-sweeps", "stalled", "improper-cavities")
        assert np.isfinite(solution.marginals.mean).all()
        assert (solution.marginals.variance > 0).all()
        latent = solution.predict(x[:9] + rng.normal(size=(9, d)))
        assert np.isfinite(latent.mean).all()
        assert (latent.variance > 0).all()


# --- another library -------------------------------------------------------------------------------------------------

STORED = Path(__file__).parent / "svgp.json"


def test_the_bound_and_its_posterior_are_svgps():
    """GPyTorch's SVGP, by scripts/svgp_reference.py."""
    told = json.loads(STORED.read_text())
    x, y, z, new = (np.array(told[name]) for name in ("x", "y", "z", "new"))
    model = Model(kernels.Matern32(told["variance"], told["lengthscale"]), likelihoods.Probit(),
                  process=Inducing(z, jitter=told["jitter"]))  # fmt: skip
    solution = infer(model, x, y, VB(), tol=1e-9)
    assert solution.log_evidence == pytest.approx(told["bound"], abs=1e-5)
    found = solution.predict(new, full_cov=True)
    np.testing.assert_allclose(found.mean, told["mean"], atol=1e-5)
    np.testing.assert_allclose(found.covariance, told["covariance"], atol=1e-5)
