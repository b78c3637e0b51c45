"""Files of estimators: what comes back is what was saved, bit for bit."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk
from storage.cases import ARD, NEW, NOISE, X, again, same

from quantprop import Laplace, Model, fit, kernels, likelihoods
from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
from quantprop.estimators.storage import save

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # an optimum at a bound

WEIGHTS = 1.0 + np.arange(24) % 2
LATENT = X.sum(1) + NOISE
LABELS = {
    "text": np.where(LATENT > 0, "ja", "nein"),
    "three": np.digitize(LATENT, [-0.5, 0.5]) * 10,
    "truth": LATENT > 0,
}


def test_what_fit_returns_comes_back(tmp_path):
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    fitted = fit(model, X, np.where(LABELS["truth"], 1, -1), "laplace", max_evaluations=3, weights=WEIGHTS)
    loaded = again(fitted, tmp_path)
    assert same(loaded, fitted)
    assert same(loaded.solution.predict(NEW), fitted.solution.predict(NEW))


def test_a_regressor_comes_back(regressor, tmp_path):
    loaded = again(regressor, tmp_path)
    assert repr(loaded) == repr(regressor)
    assert same(loaded.predict(NEW, return_std=True), regressor.predict(NEW, return_std=True))
    assert loaded.kernel_ == regressor.kernel_
    assert same(loaded.y_train_, regressor.y_train_)
    back, own = loaded._core.landscape, regressor._core.landscape
    for part in ("parts", "cold", "method", "objective", "max_sweeps"):  # all that the objective depends on
        assert same(getattr(back, part), getattr(own, part)), part
    assert same(back.task._replace(model=None), own.task._replace(model=None))  # whose parts are compared above
    assert loaded.log_marginal_likelihood() == regressor.log_marginal_likelihood()
    assert same(loaded.fit(X, X[:, 0]).predict(NEW), clone(regressor).fit(X, X[:, 0]).predict(NEW))


@pytest.fixture(scope="module", params=LABELS)
def classifier(request):
    kernel = sk.ConstantKernel(2.0) * sk.RBF([1.0, 2.0], length_scale_bounds=np.array([[0.1, 10.0], [0.2, 20.0]]))
    kernel = ARD if request.param == "truth" else kernel
    y = LABELS[request.param]
    return GaussianProcessClassifier(kernel, method=Laplace(), likelihood=likelihoods.Probit()).fit(X, y, WEIGHTS)


def test_a_classifier_comes_back(classifier, tmp_path):
    loaded = again(classifier, tmp_path)
    assert repr(loaded) == repr(classifier)
    assert same(loaded.classes_, classifier.classes_)
    assert same(loaded.predict(NEW), classifier.predict(NEW))
    assert same(loaded.predict_proba(NEW), classifier.predict_proba(NEW))
    assert same(loaded.loo_, classifier.loo_)
    assert loaded.kernel_ == classifier.kernel_
    theta = np.array([0.1, -0.2, 0.3])
    assert same(loaded.log_marginal_likelihood(theta, True), classifier.log_marginal_likelihood(theta, True))
    assert loaded.log_marginal_likelihood() == classifier.log_marginal_likelihood()


def test_names_of_features_come_back(regressor, tmp_path):
    regressor.feature_names_in_ = np.array(["länge", "b"], dtype=object)
    loaded = again(regressor, tmp_path)
    del regressor.feature_names_in_
    assert loaded.feature_names_in_.dtype == object
    assert loaded.feature_names_in_.tolist() == ["länge", "b"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"optimizer": lambda *_: None}, "optimizer"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"mean": np.sum}, "mean"),
        ({"kernel": sk.PairwiseKernel()}, "PairwiseKernel"),
    ],
)
def test_what_an_estimator_cannot_store_is_named(change, part, regressor, tmp_path):
    before = {name: getattr(regressor, name) for name in change}
    try:
        with pytest.raises(TypeError, match=part):
            save(regressor.set_params(**change), tmp_path / "model")
    finally:
        regressor.set_params(**before)
    assert not list(tmp_path.iterdir())


def test_an_estimator_must_be_fitted(tmp_path):
    with pytest.raises(ValueError, match="not fitted yet"):
        save(GaussianProcessRegressor(), tmp_path / "model")
