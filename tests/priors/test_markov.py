"""The state-space process beside the dense one, and by itself where that one cannot go."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern

from quantprop import (
    EP,
    QP,
    VB,
    Dense,
    GaussianProcessClassifier,
    Laplace,
    Markov,
    Model,
    Parameter,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
    means,
)
from quantprop.core.gaussian import Natural
from quantprop.core.parameters import packed
from quantprop.estimators.shared import chosen_process
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.priors.markov import applies
from quantprop.priors.markov.forms import form

RNG = np.random.default_rng(1)
KERNELS = {
    "matern12": kernels.Matern12(1.5, 0.8),
    "matern32": kernels.Matern32(1.5, 0.8),
    "matern52": kernels.Matern52(1.5, 0.8),
    "trend": kernels.Matern52(1.0, 0.5) + kernels.Constant(2.0) + kernels.Linear(0.1),
    "product": kernels.Matern32(1.0, 0.5) * kernels.Linear(0.1) + kernels.Matern12(0.5, 3.0) + kernels.White(0.1),
    "local trend": kernels.IntegratedWiener(0.3) + kernels.Constant(2.0) + kernels.Linear(0.1),
    "oscillation": kernels.Oscillation(1.0, 4.0, 1.7),
    "periodic": kernels.Periodic(1.0, 2.0, 1.7) + kernels.Matern12(0.2, 3.0),  # its truncation is below rounding
    "square": kernels.Matern32(1.0, 0.9) ** 2 + kernels.Matern12() * kernels.Matern32(),
}
BASIC = ("matern32", "local trend", "product", "oscillation")
METHODS = {"ep": EP(), "qp": QP(), "vb": VB(), "laplace": Laplace()}
LIKELIHOODS = {"probit": likelihoods.Probit(), "poisson": likelihoods.Poisson(), "student": likelihoods.StudentT()}


def series(n: int, likelihood: str) -> tuple[np.ndarray, np.ndarray]:
    """Times in no order, some of them repeated, with a gap."""
    rng = np.random.default_rng(n)
    t = rng.uniform(0, 10, n)
    t[t > 6] += 3
    t[1:5] = t[0]
    level = np.sin(2 * t)
    draws = {
        "probit": np.sign(level + 0.5 * rng.normal(size=n)),
        "poisson": rng.poisson(np.exp(level)),
        "student": level + 0.3 * rng.standard_t(3, size=n),
    }
    return t[:, None], draws[likelihood].astype(float)


def close(kernel, likelihood: str, method: str, n: int) -> None:
    """Everything that inference says, by both processes."""
    x, y = series(n, likelihood)
    new, weights = np.array([[-1.0], [x[0, 0]], [3.3], [3.4], [7.0], [20.0]]), np.where(np.arange(n) % 7, 1.0, 0.0)
    dense, chain = (
        infer(Model(kernel, LIKELIHOODS[likelihood], 0.2, process), x, y, METHODS[method], tol=1e-10, weights=weights)
        for process in (Dense(), Markov())
    )
    assert chain.converged
    assert dense.converged
    assert chain.log_evidence == pytest.approx(dense.log_evidence, abs=1e-8, rel=1e-10)
    np.testing.assert_allclose(chain.marginals.mean, dense.marginals.mean, atol=1e-8)
    np.testing.assert_allclose(chain.marginals.variance, dense.marginals.variance, atol=1e-8)
    np.testing.assert_allclose(chain.loo, dense.loo, atol=1e-8)
    one, other = chain.predict(new, full_cov=True), dense.predict(new, full_cov=True)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-8)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-8)
    np.testing.assert_allclose(chain.predict(new).variance, np.diag(one.covariance), atol=1e-10)


def test_inference_equals_the_dense_one():
    close(KERNELS["matern32"], "probit", "ep", 40)


@pytest.mark.campaign
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_likelihood_and_method(kernel, likelihood, method):
    close(KERNELS[kernel], likelihood, method, 300)


@pytest.mark.campaign
@pytest.mark.parametrize("kernel", KERNELS)
def test_two_thousand_rows(kernel):
    close(KERNELS[kernel], "probit", "ep", 2000)


def gradients(kernel, likelihood: str, method: str, n: int, objective: str = "evidence") -> None:
    x, y = series(n, likelihood)
    found = []
    for process in (Dense(), Markov()):
        model = Model(kernel, LIKELIHOODS[likelihood], Parameter(0.2), process)
        task = prepare(model, x, y, METHODS[method], None, None, None)
        land = Landscape(model, task, METHODS[method], as_objective(objective), tol=1e-11, max_sweeps=400)
        found.append(land.from_cold(packed(land.parts)))
    dense, chain = found
    assert chain.reason == dense.reason == "converged"
    assert chain.value == pytest.approx(dense.value, rel=1e-9)
    np.testing.assert_allclose(chain.gradient, dense.gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.campaign
def test_gradients_equal_the_dense_ones():
    """Laplace's evidence is not stationary: this goes through the adjoint equation, responses and cotangents."""
    gradients(KERNELS["matern32"], "probit", "laplace", 40)


@pytest.mark.campaign
def test_gradients_of_qp_equal_the_dense_ones():
    gradients(KERNELS["matern32"], "probit", "qp", 40)


@pytest.mark.campaign
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("kernel", ["matern52", "product"])
def test_every_gradient(kernel, likelihood, method):
    gradients(KERNELS[kernel], likelihood, method, 300)
    if method == "qp":
        gradients(KERNELS[kernel], likelihood, method, 300, "loo")


# --- both scans ------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("process", "signed"))
def conditioned(process, kernel, x, mean, sites, moves, signed):
    prior = process.prior(kernel, mean, process.prepare(kernel, x))
    given = prior.condition(sites, signed)
    told = (given.marginals, given.log_determinant, given.proper)
    return told, prior.response(given, signed).answer(moves)


@pytest.mark.parametrize("name", ["matern12", pytest.param("matern52", marks=pytest.mark.campaign)])
def test_stretches_side_by_side_give_what_one_gives(name):
    """Sites of both signs, a number of rows that stretches do not divide."""
    n, rng = 301, np.random.default_rng(2)
    x, kernel = rng.uniform(0, 40, (n, 1)), KERNELS[name]
    tau = rng.uniform(0.0, 2.0, n)
    tau[::17] = -0.02
    with jax.enable_x64(True):
        sites, moves = Natural(rng.normal(size=n), tau), rng.normal(size=(2, n))
        one, other = (conditioned(Markov(lanes), kernel, x, np.zeros(n), sites, moves, signed=True) for lanes in (1, 8))
    assert bool(one[0][2])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# --- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_short_steps_keep_their_digits(name):
    """Q of a short step is P − A P Aᵀ, which in double precision has no digits: 60 digits have."""
    steps = np.array([1e-12, 1e-6, 1e-3, 0.3, 0.9, 2.0, 30.0, 1e12])
    with jax.enable_x64(True):
        found = np.asarray(steps_of(KERNELS[name], np.zeros_like(steps), steps, 1).q)
    order = {"matern12": 0, "matern32": 1, "matern52": 2}[name]
    with mpmath.workdps(80):
        rate = mpmath.sqrt(2 * order + 1) / mpmath.mpf(0.8)
        for i, step in enumerate(steps):
            expected = noise_of_step(order, mpmath.mpf(step) * rate)
            size = [mpmath.sqrt(expected[j, j]) for j in range(order + 1)]
            for j in range(order + 1):
                for k in range(order + 1):
                    error = abs(mpmath.mpf(found[j, k, i]) - 1.5 * expected[j, k]) / (1.5 * size[j] * size[k])
                    assert error < 1e-14


def noise_of_step(order: int, z) -> mpmath.matrix:
    """P − A P Aᵀ of a unit Matérn process and its derivatives in units of its rate, from the covariance's own."""
    polynomial = {0: [1], 1: [1, 1], 2: [1, 1, mpmath.mpf(1) / 3]}[order]

    def derivative(times: int, r):
        c = list(polynomial)  # c(r) exp(−r); its derivative is (c′ − c) exp(−r)
        for _ in range(times):
            c = [(i + 1) * c[i + 1] - c[i] if i + 1 < len(c) else -c[i] for i in range(len(c))]
        return mpmath.exp(-r) * sum(a * r**i for i, a in enumerate(c))

    d = order + 1
    own = mpmath.matrix(
        d,
        d,
    )
    tie = mpmath.matrix(d, d)
    for j in range(d):
        for k in range(d):
            own[j, k] = (-1) ** k * derivative(j + k, mpmath.mpf(0)) if (j + k) % 2 == 0 else 0
            tie[j, k] = (-1) ** k * derivative(j + k, z)  # Cov(f⁽ʲ⁾(t + z), f⁽ᵏ⁾(t))
    return own - tie * mpmath.inverse(own) * tie.T


steps_of = jax.jit(form, static_argnums=3)
gram_of = jax.jit(lambda kernel, x: kernel.gram(x))
smooth_of = jax.jit(lambda kernel, x: kernel.gram(x) - jnp.diag(kernel.noise(x)))


def in_full(kernel, t: np.ndarray, harmonics: int = 8) -> np.ndarray:
    """Covariances that the steps of a state-space form amount to."""
    steps = jax.tree.map(np.asarray, steps_of(kernel, np.append(t[:1], t[:-1]), t, harmonics))
    k, own = np.zeros((len(t), len(t))), steps.p[..., 0]
    for i in range(len(t)):
        own = steps.a[..., i] @ own @ steps.a[..., i].T + steps.q[..., i] if i else own
        tie = own
        for j in range(i, len(t)):
            tie = steps.a[..., j] @ tie if j > i else tie
            k[i, j] = k[j, i] = steps.h[:, j] @ tie @ steps.h[:, i]
    return k


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name not in BASIC)) for name in KERNELS]
)
def test_forms_have_the_kernels_covariances(name):
    t = np.sort(np.random.default_rng(3).uniform(-4, 6, 15))
    t[4] = t[3]
    with jax.enable_x64(True):
        dense = np.asarray(smooth_of(KERNELS[name], t[:, None]))
        np.testing.assert_allclose(in_full(KERNELS[name], t), dense, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("lengthscale", "harmonics"),
    [(2.0, 3), *(pytest.param(*case, marks=pytest.mark.campaign) for case in ((1.0, 6), (0.5, 12)))],
)
def test_periodic_kernels_are_as_near_as_their_truncation_says(lengthscale, harmonics):
    t, told = np.linspace(-3, 4, 40), Markov(harmonics=harmonics).truncation(lengthscale)
    kernel = kernels.Periodic(2.0, lengthscale, 1.3)
    with jax.enable_x64(True):
        error = np.abs(in_full(kernel, t, harmonics) - np.asarray(gram_of(kernel, t[:, None]))).max() / 2.0
        wandering = kernel * kernels.Matern32(1.0, 5.0)
        other = np.abs(in_full(wandering, t, harmonics) - np.asarray(gram_of(wandering, t[:, None]))).max() / 2.0
    with mpmath.workdps(30):
        kappa = mpmath.mpf(lengthscale) ** -2
        rest = 2 * mpmath.nsum(lambda j: mpmath.besseli(j, kappa), [harmonics + 1, harmonics + 60]) * mpmath.exp(-kappa)
    assert told == pytest.approx(float(rest), rel=1e-3, abs=1e-14)
    assert max(error, other) <= told + 1e-13


def test_what_has_no_state_space_form_says_so():
    x, y = series(40, "probit")
    with pytest.raises(ValueError, match=r"no state-space form of SquaredExponential.*Matern52.*process=Dense\(\)"):
        infer(Model(kernels.SquaredExponential() + kernels.White(), LIKELIHOODS["probit"], process=Markov()), x, y)
    with pytest.raises(ValueError, match=r"one column of X.*got 2.*process=Inducing\(\)"):
        infer(Model(kernels.Matern32(), LIKELIHOODS["probit"], process=Markov()), np.hstack([x, x]), y)
    assert applies(kernels.Matern32() * kernels.Constant() + kernels.Linear(), 1)
    assert not applies(kernels.Matern32(), 2)
    assert not applies(kernels.Matern32() + kernels.RationalQuadratic(), 1)


# --- all the way -----------------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_learning_files_and_many_problems(tmp_path):
    x, y = series(40, "probit")
    dense, chain = (
        Model(kernels.Matern32(1.5, 0.8), LIKELIHOODS["probit"], process=process) for process in (Dense(), Markov())
    )
    one, other = fit(dense, x, y, "ep"), fit(chain, x, y, "ep")
    assert other.status.reason == "converged"
    assert other.objective_value == pytest.approx(one.objective_value, abs=1e-6)
    other.save(tmp_path / "series.safetensors")
    again = load(tmp_path / "series.safetensors")
    assert again.model.process == Markov()
    new = np.linspace(-1, 20, 9)[:, None]
    np.testing.assert_array_equal(again.solution.predict(new).mean, other.solution.predict(new).mean)
    draws = other.solution.sample(new, 2000, seed=1)
    np.testing.assert_allclose(draws.mean(0), other.solution.predict(new).mean, atol=0.15)


@pytest.mark.campaign
def test_estimators_take_it_by_name():
    x, y = series(40, "probit")
    kernel = 1.5 * Matern(0.8, nu=1.5)
    settings = {"method": "ep", "optimizer": None}
    dense, chain = (
        GaussianProcessClassifier(kernel, process=process, **settings).fit(x, y) for process in ("dense", "markov")
    )
    assert chain.log_marginal_likelihood_value_ == pytest.approx(dense.log_marginal_likelihood_value_, abs=1e-7)
    assert "Matern" in str(GaussianProcessClassifier(process="markov", **settings).fit(x, y).kernel_)
    assert chosen_process("auto", 5000, in_time=True) == chosen_process("markov", 10) == Markov()
    assert chosen_process("auto", 100, in_time=True) == Dense()


def test_forecasts_continue_the_series():
    t = np.arange(0.0, 20.0, 0.5)[:, None]
    y = np.where(np.sin(t[:, 0]) > 0, 1.0, -1.0)
    solution = infer(Model(kernels.Matern32(1.5, 0.8), LIKELIHOODS["probit"], process=Markov()), t, y, "ep")
    ahead = solution.forecast(3)
    np.testing.assert_allclose(ahead.times, [20.0, 20.5, 21.0])
    np.testing.assert_allclose(ahead.y.mean, solution.predict_y(ahead.times[:, None]).mean)
    np.testing.assert_allclose(solution.forecast(2, step=1.0).times, [20.5, 21.5])
    with pytest.raises(ValueError, match="horizon must be an integer and at least 1"):
        solution.forecast(0)
    with pytest.raises(ValueError, match="step must be a positive number"):
        solution.forecast(2, step=-1.0)


@pytest.mark.campaign
def test_many_problems_at_once():
    x, y = series(40, "probit")
    model = Model(kernels.Matern32(1.5, 0.8), LIKELIHOODS["probit"], process=Markov())
    both = fit_many([model, model], [x, x], [y, -y], "qp")
    alone = fit(model, x, y, "qp")
    assert both[0].objective_value == pytest.approx(alone.objective_value, abs=1e-6)


@pytest.mark.campaign
def test_other_columns_have_linear_effects():
    """A chain in one column and a mean of the others, by both processes."""
    x, y = series(40, "probit")
    wide, new = np.hstack([np.cos(x), x]), np.array([[0.5, 3.3], [-1.0, 20.0]])
    mean = means.Linear(np.array([0.7]), -0.2, columns=(0,))
    models = [Model(KERNELS["matern32"].on(1), LIKELIHOODS["probit"], mean, process) for process in (Dense(), Markov())]
    dense, chain = (infer(model, wide, y, "ep", tol=1e-10) for model in models)
    assert chain.log_evidence == pytest.approx(dense.log_evidence, abs=1e-8)
    np.testing.assert_allclose(chain.predict(new).mean, dense.predict(new).mean, atol=1e-8)


@pytest.mark.campaign
def test_linear_effects_beside_time_are_learned():
    x, y = series(40, "student")
    wide = np.hstack([x, np.cos(x)])
    found = []
    for process in (Dense(), Markov()):
        mean = means.Linear(np.zeros(1), columns=(1,))
        found.append(fit(Model(kernels.Matern32().on(0), LIKELIHOODS["student"], mean, process), wide, y, "ep"))
    assert found[1].objective_value == pytest.approx(found[0].objective_value, abs=1e-5)
    one, other = (each.solution.fixed_effects()["mean.coefficients[0]"] for each in found)
    assert (other.estimate, other.error) == pytest.approx((one.estimate, one.error), rel=1e-3)


def test_columns_that_are_not_time_say_what_to_do():
    x, y = series(40, "probit")
    wide = np.hstack([x, np.cos(x)])
    for kernel, message in (
        (kernels.Matern32(), r"got 2: select it with kernel.on\(0\).*mean=means.Linear"),
        (kernels.Matern32().on(0) + kernels.Linear().on(1), r"got one of columns 0, 1.*mean=means.Linear"),
        (kernels.Matern32().on(2), r"column 2 does not exist: X has 2 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            infer(Model(kernel, LIKELIHOODS["probit"], process=Markov()), wide, y)
    assert applies(kernels.Matern32().on(1) + kernels.Constant(), 2)
