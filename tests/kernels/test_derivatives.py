"""Rows of derivatives against differences of kernels in mpmath, dense algebra, and quadrature over all of f."""

import jax
import mpmath as mp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import norm

from quantprop import EP, Dense, Inducing, Model, infer, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.storage.records import decode, encode

rows = kernels.Derivatives.rows
X = np.array([[0.3, -0.7], [1.1, 0.4], [-0.6, 0.9], [0.30001, -0.7]])
DIGITS, STEP = 90, mp.mpf(10) ** -14  # differences across a kink have an error of the size of the step


def squared(x, z, lengthscales):
    return sum(((a - b) / ell) ** 2 for a, b, ell in zip(x, z, lengthscales, strict=True))


def se(x, z, ell=(0.8, 1.3)):
    return mp.mpf("1.7") * mp.exp(-squared(x, z, ell) / 2)


def matern32(x, z, ell=(0.8, 1.3)):
    r = mp.sqrt(3 * squared(x, z, ell))
    return mp.mpf("1.7") * (1 + r) * mp.exp(-r)


def matern52(x, z, ell=(0.8, 1.3)):
    r = mp.sqrt(5 * squared(x, z, ell))
    return mp.mpf("1.7") * (1 + r + r * r / 3) * mp.exp(-r)


def rational(x, z):
    return mp.mpf("1.7") * (1 + squared(x, z, (0.8, 0.8)) / mp.mpf("2.4")) ** mp.mpf("-1.2")


def periodic(x, z):
    return mp.mpf("1.7") * mp.exp(-2 * (mp.sin(mp.pi * abs(x[0] - z[0]) / mp.mpf(2.1)) / mp.mpf("0.9")) ** 2)


def linear(x, z):
    return mp.mpf("1.7") * sum(a * b for a, b in zip(x, z, strict=True))


def wiener(x, z):
    near = min(abs(x[0]), abs(z[0]))
    return 2 * (near**3 / 3 + abs(x[0] - z[0]) * near**2 / 2) if x[0] * z[0] > 0 else mp.mpf(0)


def additive(x, z):
    """Order 1, of columns whose distribution is on −1, 0 and 2, evenly."""
    total, nodes = mp.mpf("0.5"), [mp.mpf(-1), mp.mpf(0), mp.mpf(2)]
    sd = mp.sqrt(mp.mpf(14) / 9)
    for a, b in zip(x, z, strict=True):

        def k(p, q):
            return mp.exp(-(((p - q) / (sd * mp.mpf("1.2"))) ** 2) / 2)

        left, right = sum(k(a, m) for m in nodes) / 3, sum(k(b, m) for m in nodes) / 3
        among = sum(k(m, q) for m in nodes for q in nodes) / 9
        total += mp.mpf("1.5") / 2 * (k(a, b) - left * right / among)
    return total


ARD = [0.8, 1.3]
ADDITIVE = kernels.Additive(order=1, variance=[0.5, 1.5], lengthscale=[1.2, 1.2])
CASES = {  # kernel, the same in mpmath, order
    "se": (kernels.SquaredExponential(1.7, ARD), se, 2),
    "matern32": (kernels.Matern32(1.7, ARD), matern32, 1),
    "matern52": (kernels.Matern52(1.7, ARD), matern52, 2),
    "rational quadratic": (kernels.RationalQuadratic(1.7, 0.8, 1.2), rational, 2),
    "periodic": (kernels.Periodic(1.7, 0.9, 2.1).on(0), periodic, 1),
    "linear": (kernels.Linear(1.7), linear, 2),
    "polynomial": (
        (kernels.Linear(1.7) + kernels.Constant(0.6)) ** 3,
        lambda x, z: (linear(x, z) + mp.mpf("0.6")) ** 3, 2,
    ),
    "trend": (kernels.IntegratedWiener(2.0).on(0), wiener, 1),
    "product on columns": (
        kernels.SquaredExponential(1.7, 0.8).on(0) * kernels.Matern52(1.7, 1.3).on(1),
        lambda x, z: se(x[:1], z[:1], (0.8,)) * matern52(x[1:], z[1:], (1.3,)), 2,
    ),
    "additive": (ADDITIVE.measured(np.array([[-1.0, -1.0], [0.0, 0.0], [2.0, 2.0]])), additive, 1),
}  # fmt: skip


@jax.jit
def matrices(kernel, x):
    return kernel.gram(x), kernel.diagonal(x), kernel.cross(x, x[::3])


def differences(function, x, z, i, j):
    """A derivative of k(x, z), of the orders and columns that the codes i and j stand for, by central differences."""
    weights = {0: {0: 1}, 1: {1: mp.mpf("0.5"), -1: mp.mpf("-0.5")}, 2: {1: 1, 0: -2, -1: 1}}

    def order(code):
        return 0 if code == 0 else 1 if code > 0 else 2

    def moved(point, code, s):
        point = [mp.mpf(float(value)) for value in point]
        point[int(abs(code)) - 1] += s * STEP if code else 0
        return point

    total = mp.mpf(0)
    for s, w in weights[order(i)].items():
        for t, v in weights[order(j)].items():
            total += w * v * function(moved(x, i, s), moved(z, j, t))
    return float(total / STEP ** (order(i) + order(j)))


DEFAULT = ("periodic",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name not in DEFAULT)) for name in CASES]
)
def test_covariances_of_derivatives_are_differences_of_the_kernel(name):
    """Also between equal rows, and rows that nearly are; 0 is not among the inputs of the trend."""
    kernel, function, order = CASES[name]
    mp.mp.dps = DIGITS
    every = np.concatenate([rows(X), rows(X, 0), rows(X, 1), *([rows(X, 0, 2)] if order == 2 else [])])
    expected = np.array([[differences(function, a[:2], b[:2], a[2], b[2]) for b in every] for a in every])
    with jax.enable_x64(True):
        gram, diagonal, cross = map(np.asarray, matrices(kernels.Derivatives(kernel, order), every))
    deviations = np.sqrt(np.abs(np.diagonal(expected)))
    scale = 1.0 + np.outer(deviations, deviations)
    np.testing.assert_array_less(np.abs(gram - expected) / scale, 1e-8)
    np.testing.assert_allclose(cross, gram[:, ::3], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(diagonal, np.diagonal(gram), rtol=1e-13)
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * diagonal.max()


KERNEL = kernels.Derivatives(kernels.Matern52(1.4, 0.9) + kernels.White(0.05), 2)
TYPES = np.concatenate([rows(X), rows(X[:3], 0), rows(X[1:], 1), rows(X[:2], 1, 2)])


def smooth_gram(a, b):
    """k and its derivatives, of the smooth part of KERNEL, in mpmath's differences."""
    mp.mp.dps = DIGITS

    def function(x, z):
        return matern52(x, z, (mp.mpf("0.9"),) * 2) * mp.mpf("1.4") / mp.mpf("1.7")

    return np.array([[differences(function, p[:2], q[:2], p[2], q[2]) for q in b] for p in a])


def test_gradients_with_gaussian_noise_are_dense_algebra():
    """White noise is part of f at rows of values, and of no derivative."""
    y, new = np.sin(np.arange(len(TYPES))), np.concatenate([rows(X[:2] + 0.5), rows(X[:1], 1)])
    k = smooth_gram(TYPES, TYPES) + 0.05 * np.diag(TYPES[:, 2] == 0)
    total = k + 0.3**2 * np.eye(len(y))
    solution = infer(Model(KERNEL, likelihoods.Gaussian(0.3)), TYPES, y, "ep")
    expected = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(2 * np.pi * total)[1])
    assert solution.log_evidence == pytest.approx(expected, abs=1e-10)
    cross = smooth_gram(new, TYPES)
    own = np.diagonal(smooth_gram(new, new)) + 0.05 * (new[:, 2] == 0)
    found = solution.predict(new)
    np.testing.assert_allclose(found.mean, cross @ np.linalg.solve(total, y), atol=1e-10)
    np.testing.assert_allclose(
        found.variance, own - np.sum(cross * np.linalg.solve(total, cross.T).T, axis=1), atol=1e-10
    )


@pytest.mark.campaign
def test_inducing_points_at_all_rows_are_dense():
    x = TYPES[:-2]
    y, kernel = np.sin(np.arange(len(x))), kernels.Derivatives(kernels.SquaredExponential(1.4, 0.9))
    found, exact = (infer(Model(kernel, likelihoods.Gaussian(0.3), process=process), x, y, "ep")
                    for process in (Inducing(x), Dense()))  # fmt: skip
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    np.testing.assert_allclose(found.predict(x).mean, exact.predict(x).mean, atol=1e-6)


def test_a_derivative_with_a_probit_likelihood_is_ep_by_quadrature():
    """n = 3: two noisy values and one sign of a derivative, whose only site is exact in EP; by brute force over f′."""
    x = np.concatenate([rows([[0.0], [1.0]]), rows([[0.4]], 0)])
    kernel = kernels.Derivatives(kernels.SquaredExponential(1.5, 0.7))
    likelihood = likelihoods.ByOutput((likelihoods.Gaussian(0.4), likelihoods.Probit()))
    y = np.array([[0.8, 0.0], [-0.3, 0.0], [1.0, 1.0]])
    solution = infer(Model(kernel, likelihood), x, y, EP(), tol=1e-12)

    with jax.enable_x64(True):
        k = np.asarray(kernel.gram(x))
    among, to = k[:2, :2] + 0.4**2 * np.eye(2), np.linalg.solve(k[:2, :2] + 0.4**2 * np.eye(2), k[:2, 2])
    mean, sd = to @ y[:2, 0], np.sqrt(k[2, 2] - to @ k[:2, 2])
    nodes, weights = hermegauss(180)
    slope, mass = mean + sd * nodes, weights / np.sqrt(2 * np.pi) * norm.cdf(mean + sd * nodes)
    z = mass.sum()
    first = mass @ slope / z
    gaussian = -0.5 * (y[:2, 0] @ np.linalg.solve(among, y[:2, 0]) + np.linalg.slogdet(2 * np.pi * among)[1])
    assert solution.log_evidence == pytest.approx(gaussian + np.log(z), abs=1e-8)
    assert solution.marginals.mean[2] == pytest.approx(first, abs=1e-8)
    assert solution.marginals.variance[2] == pytest.approx(mass @ slope**2 / z - first**2, abs=1e-8)
    rising = np.exp(solution.predict_y(rows([[0.4]], 0), output=1).log_prob(1.0)[0])
    posterior = solution.predict(rows([[0.4]], 0))
    assert rising == pytest.approx(norm.cdf(posterior.mean[0] / np.sqrt(1 + posterior.variance[0])), abs=1e-12)


def test_three_probit_rows_are_those_of_ep_written_out():
    """A label and two signs of derivatives: sites one after the other, with the moments of Φ in closed form."""
    x = np.concatenate([rows([[0.2]]), rows([[0.7], [-0.4]], 0)])
    kernel, y = kernels.Derivatives(kernels.SquaredExponential(1.5, 0.7)), np.array([1.0, -1.0, 1.0])
    solution = infer(Model(kernel, likelihoods.Probit()), x, y, "ep", tol=1e-12)

    mp.mp.dps = DIGITS

    def function(a, b):
        return mp.mpf("1.5") * mp.exp(-squared(a, b, (mp.mpf("0.7"),)) / 2)

    k = np.array([[differences(function, p[:1], q[:1], p[1], q[1]) for q in x] for p in x], dtype=float)
    nu, tau = np.zeros(3), np.zeros(3)
    for _ in range(200):
        for i in range(3):
            covariance = np.linalg.inv(np.linalg.inv(k) + np.diag(tau))
            mean, precision = covariance @ nu, 1.0 / covariance[i, i] - tau[i]
            m, v = (mean[i] / covariance[i, i] - nu[i]) / precision, 1.0 / precision
            z = y[i] * m / np.sqrt(1.0 + v)
            ratio = norm.pdf(z) / norm.cdf(z)
            new = m + y[i] * v * ratio / np.sqrt(1.0 + v), v - v**2 * ratio * (z + ratio) / (1.0 + v)
            tau[i], nu[i] = 1.0 / new[1] - precision, new[0] / new[1] - m * precision
    covariance = np.linalg.inv(np.linalg.inv(k) + np.diag(tau))
    mean = covariance @ nu
    np.testing.assert_allclose(solution.marginals.mean, mean, atol=1e-8)
    np.testing.assert_allclose(solution.marginals.variance, np.diagonal(covariance), atol=1e-8)
    v = 1.0 / (1.0 / np.diagonal(covariance) - tau)
    m = v * (mean / np.diagonal(covariance) - nu)
    each = norm.logcdf(y * m / np.sqrt(1 + v)) - norm.logpdf(m, nu / tau, np.sqrt(v + 1 / tau))
    total = k + np.diag(1 / tau)
    whole = -0.5 * ((nu / tau) @ np.linalg.solve(total, nu / tau) + np.linalg.slogdet(2 * np.pi * total)[1])
    assert solution.log_evidence == pytest.approx(each.sum() + whole, abs=1e-8)


def test_the_gradient_of_learning_is_that_of_differences():
    model, y = Model(KERNEL, likelihoods.Gaussian(0.3)), np.sin(np.arange(len(TYPES)))
    task = prepare(model, TYPES, y, EP())
    landscape = Landscape(task.model, task, EP(), as_objective("evidence"), tol=1e-12)
    theta = packed(landscape.parts)
    slope = landscape.from_cold(theta).gradient
    assert len(theta) == 4
    way = np.array([0.5, -0.7, 0.4, 0.6])
    up, down = (landscape.from_cold(theta + step * way).value for step in (1e-5, -1e-5))
    assert slope @ way == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernels.Derivatives(kernels.Matern12()), "Matern12 have no first"),
        (lambda: kernels.Derivatives(kernels.Matern32().on(0) + kernels.Linear(), 2), "Matern32 have no second"),
        (lambda: kernels.Derivatives(kernels.RankNormal(kernels.Linear()).measured(X)), "RankNormal have no first"),
        (lambda: kernels.Derivatives(kernels.SquaredExponential() * kernels.Categories().on(1)), "Categories"),
        (lambda: kernels.Derivatives(kernels.SquaredExponential(), 3), "order must be 1 or 2"),
        (lambda: kernels.Derivatives(kernels.SquaredExponential(), columns=(-1,)), "columns must be positions"),
        (lambda: kernels.Derivatives(kernels.Additive()), "measured"),
        (lambda: Model(KERNEL, likelihoods.Gaussian(), mean=1.0), "mean must be 0"),
        (lambda: rows(X, 2), "column must be a position"),
        (lambda: rows(X, 0, 3), "order must be 1 or 2"),
    ],
)
def test_what_has_no_derivative_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_other_columns_may_be_rough():
    kernel = kernels.Derivatives(kernels.SquaredExponential().on(0) * kernels.Matern12().on(1), columns=(0,))
    model = Model(kernel, likelihoods.Gaussian(0.3))
    assert infer(model, np.concatenate([rows(X), rows(X, 0)]), np.arange(8.0), "ep").converged
    with pytest.raises(ValueError, match="NaN or infinity on X"):  # a code that the kernel does not have
        infer(model, np.concatenate([rows(X), rows(X, 1)]), np.arange(8.0), "ep")


def test_files_hold_it():
    record = kernels.Derivatives(kernels.SquaredExponential(2.0), 2, (0,))
    assert decode(encode(record, "kernel"), "kernel") == record
