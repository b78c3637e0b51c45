"""Every translated kernel against scikit-learn itself: matrices, evidence, gradients, predictions, covariances."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor as Theirs
from sklearn.gaussian_process import kernels as sk

from quantprop import GaussianProcessRegressor, kernels
from quantprop.estimators import from_sklearn, to_sklearn

RNG = np.random.default_rng(1)
X = RNG.uniform(-2.0, 2.0, size=(25, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=25)
NEW = RNG.uniform(-3.0, 3.0, size=(7, 2))
AGAIN = np.append(np.arange(25), [0, 0, 3, 7])  # rows that come more than once, the last with another y
AGAIN_Y = Y[AGAIN] + 0.1 * (np.arange(29) == 28)
KERNELS = [
    sk.ConstantKernel(1.3) * sk.RBF(0.9),
    sk.RBF([0.7, 1.9]),
    sk.Matern(0.8, nu=0.5),
    sk.Matern([0.8, 1.5], nu=1.5),
    sk.Matern(1.2, nu=2.5),
    sk.Matern(1.2, nu=np.inf),
    sk.RationalQuadratic(1.4, 0.6),
    sk.ExpSineSquared(1.1, 3.0) * sk.RBF(4.0) + sk.WhiteKernel(0.1),
    sk.DotProduct(0.7) + sk.RBF(1.0),
    sk.RBF(1.0) + sk.WhiteKernel(0.2),
    sk.DotProduct(0.5) ** 2 + sk.WhiteKernel(0.1) * sk.ConstantKernel(2.0),
    sk.ConstantKernel(2.0, "fixed") * sk.RBF(0.9) + sk.ConstantKernel(0.3) * sk.Matern(1.0, "fixed", nu=1.5),
    sk.PairwiseKernel(gamma=0.4, metric="laplacian"),  # not in the table: used through its own __call__
]


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(kernel, marks=[pytest.mark.campaign] * (i % 4 != 0)) for i, kernel in enumerate(KERNELS)],
    ids=str,
)
def test_results_equal_scikit_learns(kernel):
    """Rows in another order too, and some of them more than once: nothing may depend on it."""
    order, x, new = RNG.permutation(len(AGAIN)), columns(kernel, X[AGAIN]), columns(kernel, NEW)
    theirs = Theirs(kernel, alpha=1e-4, optimizer=None).fit(x, AGAIN_Y)
    ours = GaussianProcessRegressor(kernel, alpha=1e-4, optimizer=None).fit(x[order], AGAIN_Y[order])
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-8)
    same_predictions(ours, theirs, new)


def same_predictions(ours, theirs, new):
    """Means, deviations and covariances."""
    for (mean, spread), (their_mean, their_spread) in (
        (ours.predict(new, return_cov=True), theirs.predict(new, return_cov=True)),
        (ours.predict(new, return_std=True), theirs.predict(new, return_std=True)),
    ):
        np.testing.assert_allclose(mean, their_mean, atol=1e-8)
        np.testing.assert_allclose(spread, their_spread, atol=1e-8)


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(kernel, marks=[pytest.mark.campaign] * (i % 4 != 3)) for i, kernel in enumerate(KERNELS)],
    ids=str,
)
def test_equal_rows_with_white_noise_at_another_theta(kernel):
    """Evidence, gradient and predictions: white noise is another one in each of two equal rows."""
    kernel = kernel if "White" in str(kernel) else kernel + sk.WhiteKernel(0.2)
    x = columns(kernel, X[AGAIN])
    theirs = Theirs(kernel, alpha=1e-2, optimizer=None).fit(x, AGAIN_Y)
    ours = GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None).fit(x, AGAIN_Y)
    same_predictions(ours, theirs, columns(kernel, NEW))
    theta = kernel.theta + 0.1
    value, slope = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    our_value, our_slope = ours.log_marginal_likelihood(theta, eval_gradient=True)
    assert our_value == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(our_slope, slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS[:-1], ids=str)
def test_there_and_back(kernel):
    back = to_sklearn(from_sklearn(kernel))
    np.testing.assert_allclose(back(X), kernel(X), rtol=1e-14)
    np.testing.assert_allclose(np.sort(np.exp(back.theta)), np.sort(_variances(kernel)), rtol=1e-14)


def test_a_linear_kernel_of_our_own_has_no_offset():
    theirs = Theirs(sk.ConstantKernel(2.0) * sk.DotProduct(0.0, "fixed"), alpha=0.1, optimizer=None).fit(X, Y)
    ours = GaussianProcessRegressor(kernels.Linear(2.0), alpha=0.1, optimizer=None).fit(X, Y)
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-10)
    np.testing.assert_allclose(ours.predict(NEW, return_std=True), theirs.predict(NEW, return_std=True), rtol=1e-8)


def columns(kernel, x):
    """One feature for a periodic kernel of the distance, which is no covariance in two."""
    return x[:, :1] if "ExpSine" in str(kernel) else x


def _variances(kernel):
    """exp θ, with DotProduct's σ₀ squared as its translation has it."""
    names = [hyper.name for hyper in kernel.hyperparameters if not hyper.fixed for _ in range(hyper.n_elements)]
    return [
        np.exp(t) ** (2.0 if name.endswith("sigma_0") else 1.0) for t, name in zip(kernel.theta, names, strict=True)
    ]


def test_learned_kernels_come_back_as_scikit_learn_kernels():
    kernel = sk.ConstantKernel(1.0) * sk.RBF(1.0) + sk.WhiteKernel(0.1)
    theirs = Theirs(kernel, alpha=1e-4).fit(X, Y)
    ours = GaussianProcessRegressor(kernel, alpha=1e-4).fit(X, Y)
    assert type(ours.kernel_) is sk.Sum
    assert ours.log_marginal_likelihood_value_ >= theirs.log_marginal_likelihood_value_ - 1e-6
    np.testing.assert_allclose(ours.kernel_.theta, theirs.kernel_.theta, atol=1e-2)


def test_noise_that_differs_between_rows():
    alpha = np.linspace(0.01, 0.5, len(X))
    theirs = Theirs(sk.RBF(1.0), alpha=alpha, optimizer=None).fit(X, Y)
    ours = GaussianProcessRegressor(sk.RBF(1.0), alpha=alpha, optimizer=None).fit(X, Y)
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-8)
    np.testing.assert_allclose(ours.predict(NEW), theirs.predict(NEW), atol=1e-8)


def test_normalised_y():
    theirs = Theirs(sk.RBF(1.0), alpha=1e-2, optimizer=None, normalize_y=True).fit(X, 50.0 + 7.0 * Y)
    ours = GaussianProcessRegressor(sk.RBF(1.0), alpha=1e-2, optimizer=None, normalize_y=True).fit(X, 50.0 + 7.0 * Y)
    for a, b in zip(ours.predict(NEW, return_std=True), theirs.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


def test_quantprop_kernels_are_taken_too():
    given = kernels.Constant(1.3) * kernels.Matern32(1.0, 0.9)
    one = GaussianProcessRegressor(given, alpha=1e-2, optimizer=None).fit(X, Y)
    two = GaussianProcessRegressor(sk.ConstantKernel(1.3) * sk.Matern(0.9, nu=1.5), alpha=1e-2, optimizer=None).fit(
        X, Y
    )
    np.testing.assert_allclose(one.predict(NEW), two.predict(NEW), atol=1e-12)


def test_a_kernel_without_a_counterpart_is_named():
    class Mine(kernels.Kernel):
        def __call__(self, x, z):
            return 1.0 / (1.0 + (x - z) @ (x - z))

    with pytest.raises(TypeError, match="Mine has no counterpart"):
        to_sklearn(Mine())
    with pytest.raises(TypeError, match=r"on\(\[0\]\) has no counterpart in scikit-learn"):
        to_sklearn(kernels.Constant() + kernels.SquaredExponential().on(0) ** 2)
    ours = GaussianProcessRegressor(Mine(), alpha=1e-2).fit(X, Y)
    k = 1.0 / (1.0 + ((X[:, None] - X) ** 2).sum(-1))
    cross = 1.0 / (1.0 + ((NEW[:, None] - X) ** 2).sum(-1))
    np.testing.assert_allclose(ours.predict(NEW), cross @ np.linalg.solve(k + 0.01 * np.eye(25), Y), atol=1e-9)


def test_a_kernel_without_translation_learns_the_optimum_of_its_counterpart():
    """exp(−gamma |x − z|²) is the RBF with gamma = 1 / 2 l²; large programs call it in a thread of their own."""
    own, called = (
        GaussianProcessRegressor(kernel, alpha=0.1).fit(X, Y)
        for kernel in (sk.RBF(0.9), sk.PairwiseKernel(metric="rbf"))
    )
    assert called.log_marginal_likelihood_value_ == pytest.approx(own.log_marginal_likelihood_value_, abs=1e-5)
    assert called.kernel_.gamma == pytest.approx(0.5 / own.kernel_.length_scale**2, rel=1e-2)
    np.testing.assert_allclose(called.predict(NEW), own.predict(NEW), atol=1e-2)
