"""`active.ask` and `active.tell` take estimators with frames, labels and units as their users have them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    active,
    infer,
    kernels,
)

RNG = np.random.default_rng(1)
X = np.sort(RNG.uniform(0.0, 10.0, 40))[:, None]
Y = 1000.0 + 50.0 * np.sin(X[:, 0]) + 5.0 * RNG.normal(size=40)
NEW = np.linspace(0.0, 12.0, 25)[:, None]
CRITERIA = [("information", None), ("level", 1010.0), ("improvement", None), ("upper", None)]


def frame(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.uniform(0, 10, n), "z": rng.uniform(0.1, 1, n), "g": rng.choice(list("uvw"), n)})


def test_units_of_y_are_those_of_the_user():
    """At fixed hyperparameters telling is fitting, and a level of 1010 is one of (1010 − mean)/deviation inside."""
    settings = {"kernel": kernels.SquaredExponential(1.0, 1.5), "alpha": 0.01, "optimizer": None}
    model = GaussianProcessRegressor(**settings, normalize_y=True).fit(X, Y)
    told = active.tell(model, [[11.0], [11.5]], [980.0, 990.0])
    inside = (np.append(Y, [980.0, 990.0]) - Y.mean()) / Y.std()
    whole = GaussianProcessRegressor(**settings).fit(np.append(X, [[11.0], [11.5]], axis=0), inside)
    np.testing.assert_allclose(told.predict(NEW), Y.mean() + Y.std() * whole.predict(NEW), rtol=1e-7)
    np.testing.assert_allclose(told.loo_, whole.loo_ - np.log(Y.std()), rtol=1e-6)
    assert told.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-7)
    assert told.log_marginal_likelihood() == pytest.approx(told.log_marginal_likelihood(told.kernel_.theta), rel=1e-7)
    np.testing.assert_array_equal(told.y_train_, inside)
    assert len(model.loo_) == 40  # the model itself does not change
    for criterion, level in CRITERIA:
        own = None if level is None else (level - Y.mean()) / Y.std()
        np.testing.assert_array_equal(
            active.ask(model, NEW, 3, criterion, level), active.ask(model.solution_, NEW, 3, criterion, own)
        )
    for call in (lambda: active.tell(model.fitted_, X[:1], Y[:1]), lambda: active.ask(model.fitted_, X)):
        with pytest.raises(ValueError, match="an estimator that standardises y: pass the estimator itself"):
            call()


def test_frames_are_encoded_as_in_predictions():
    old, new = frame(40, 0), frame(12, 1)
    y = np.sin(old.x) + 3.0 * np.log(old.z) + (old.g == "u") + 0.2 * RNG.normal(size=40)
    model = GaussianProcessRegressor("se(x) + linear(log(z)) + group(g)", method="ep", mean="constant").fit(old, y)
    shuffled = new[["g", "z", "x"]]
    for criterion, level in (("information", None), ("level", 0.5), ("improvement", None), ("upper", None)):
        chosen = active.ask(model, new, 3, criterion, level)
        np.testing.assert_array_equal(chosen, active.ask(model, shuffled, 3, criterion, level))
        np.testing.assert_array_equal(
            chosen, active.ask(model.solution_, model._coding.matrix(new), 3, criterion, level)
        )
    told = active.tell(model, shuffled, np.zeros(12))
    x = model._coding.matrix(pd.concat([old, new]))
    whole = infer(model.solution_.model, x, np.append(y, np.zeros(12)), "ep")
    np.testing.assert_allclose(told.predict(new), whole.predict(x[40:]).mean, atol=1e-6)
    with pytest.raises(ValueError, match="encodes the columns of a frame: pass the estimator itself"):
        active.tell(model.fitted_, new[["x", "z"]], y[:12])


@pytest.mark.parametrize(("classes", "multi_class"), [
    ("ab", "one_vs_rest"), ("abc", "one_vs_rest"), ("abc", "one_vs_one"),
])  # fmt: skip
def test_classifiers_take_labels(classes, multi_class):
    labels = np.array(list(classes))[(X[:, 0] / 10.01 * len(classes)).astype(int)]
    settings = {"kernel": RBF(2.0), "optimizer": None, "method": "ep", "multi_class": multi_class}
    model = GaussianProcessClassifier(**settings).fit(X, labels)
    told = active.tell(model, [[11.0], [3.0]], ["a", "b"])
    whole = GaussianProcessClassifier(**settings).fit(np.append(X, [[11.0], [3.0]], axis=0), [*labels, "a", "b"])
    np.testing.assert_allclose(told.latent(NEW)[0], whole.latent(NEW)[0], atol=1e-5)
    np.testing.assert_array_equal(told.predict(NEW), whole.predict(NEW))
    with pytest.raises(ValueError, match=r"y\[0\] = 'd' is not one of the labels"):
        active.tell(model, [[3.0]], ["d"])
    if len(classes) == 2:
        assert len(set(active.ask(model, NEW, 3))) == 3
        with pytest.raises(ValueError, match="codes labels: pass the estimator itself"):
            active.tell(model.fitted_, [[3.0]], [1])
    else:
        with pytest.raises(TypeError, match="fit one class against the others"):
            active.ask(model, NEW)
        assert active.ask(GaussianProcessClassifier(**settings).fit(X, labels == "a"), NEW).shape == (1,)


def test_ordered_labels_are_told_as_they_are():
    y = np.digitize(X[:, 0], [3.0, 6.0]) + 3
    settings = {"kernel": kernels.SquaredExponential(2.0, 2.0), "method": "ep", "optimizer": None}
    model = GaussianProcessRegressor(**settings, likelihood="ordinal").fit(X, y)
    told = active.tell(model, [[9.0]], [3])
    whole = GaussianProcessRegressor(**settings, likelihood=model.likelihood_)
    whole.fit(np.append(X, [[9.0]], axis=0), np.append(y - 3, 0.0))
    np.testing.assert_allclose(told.solution_.predict(NEW).mean, whole.solution_.predict(NEW).mean, atol=1e-5)
    assert told.predict([[1.0]]).tolist() == [3]
    with pytest.raises(ValueError, match="is not one of the labels"):
        active.tell(model, [[9.0]], [2])


def test_rankers_take_pairs_of_items():
    items, pairs = np.arange(5.0)[:, None], [[1, 0], [2, 1], [3, 2], [4, 0]]
    settings = {"kernel": kernels.SquaredExponential(2.0, 2.0), "optimizer": None, "method": "ep"}
    told = active.tell(GaussianProcessRanker(**settings).fit(items, pairs), items[[4, 2]], [[1, 0]], weights=[2.0])
    whole = GaussianProcessRanker(**settings).fit(items, [*pairs, [2, 4]], sample_weight=[1, 1, 1, 1, 2])
    np.testing.assert_allclose(told.predict(items), whole.predict(items), atol=1e-6)
    candidates = np.column_stack([np.zeros(4), np.arange(1.0, 5.0)])
    assert active.ask(told, candidates)[0] == np.argmax(told.solution_.information(candidates))


def test_constraints_are_kept_and_weights_count():
    y = np.log1p(X[:, 0])
    settings = {"kernel": kernels.SquaredExponential(1.0, 2.0), "alpha": 0.01, "optimizer": None, "method": "ep"}
    model = GaussianProcessRegressor(**settings, monotone={0: "increasing"}).fit(X, y)
    told = active.tell(model, [[9.8]], [0.5], weights=[3.0])
    assert told.constraint_.kept
    assert (np.diff(told.predict(NEW[:21])) > 0).all()
    free = GaussianProcessRegressor(**settings).fit(X, y)
    whole = GaussianProcessRegressor(**settings).fit(np.append(X, [[9.8]], axis=0), np.append(y, 0.5),
                                                     sample_weight=np.append(np.ones(40), 3.0))  # fmt: skip
    np.testing.assert_allclose(active.tell(free, [[9.8]], [0.5], weights=[3.0]).predict(NEW), whole.predict(NEW),
                               atol=1e-7)  # fmt: skip


@pytest.mark.parametrize("settings", [
    {"kernel": "auto"}, pytest.param({"hyperparameters": "integrated"}, marks=pytest.mark.campaign)
], ids=["stack", "integrated"])  # fmt: skip
def test_averages_choose_and_say_what_tells(settings):
    x = np.column_stack([X[:20, 0], RNG.normal(size=20)])
    model = GaussianProcessRegressor(**settings, method="ep", normalize_y=True).fit(x, Y[:20])
    for criterion, level in CRITERIA:
        own = None if level is None else (level - Y[:20].mean()) / Y[:20].std()
        chosen = active.ask(model, x, 2, criterion, level)
        np.testing.assert_array_equal(chosen, active.ask(model.posterior_, x, 2, criterion, own))
    assert active.ask(model, x)[0] == np.argmax(model.posterior_.information(x))
    with pytest.raises(ValueError, match=r"averages several: use a different kernel .* or fit\(X, y\) with all rows"):
        active.tell(model, x[:1], Y[:1])
    single = GaussianProcessRegressor("ard", method="ep", normalize_y=True).fit(x, Y[:20])  # as advised
    assert len(active.tell(single, x[:1], Y[:1]).loo_) == 21
