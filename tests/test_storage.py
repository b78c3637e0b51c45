"""Files: what comes back is what was saved, bit for bit; what cannot be read says so and runs nothing."""

import dataclasses
import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save as serialized
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from quantprop import EP, QP, VB, Laplace, Model, Parameter, PowerEP, fit, kernels, likelihoods, means
from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
from quantprop.estimators.storage import load, save
from quantprop.gaussian import Natural, Normal
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.solution import Solution, Status
from quantprop.parameters import declared, packed
from quantprop.storage import fitted as storage
from quantprop.storage.files import checksum

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # an optimum at a bound

RNG = np.random.default_rng(3)
X = RNG.normal(size=(24, 2))
NEW = RNG.normal(size=(5, 2))
NOISE = RNG.normal(size=24)
AWKWARD = 0.1 + 0.2  # 0.30000000000000004


def made(model, method=QP(), x=X):
    """A learned model with sites of no inference: what is stored does not depend on how it came about."""
    n, theta = len(x), packed(declared(model))
    draw = np.random.default_rng(n)
    sites = Natural(draw.normal(size=n), draw.uniform(0.1, 2.0, n))
    normal = Normal(draw.normal(size=n), draw.uniform(0.1, 2.0, n))
    status = Status("max-sweeps", 7, AWKWARD, 1e-8, "parallel, then sequential", 2)
    solution = Solution(model, method, x, sites, normal, -AWKWARD, np.append(draw.normal(size=n - 1), np.nan), status)
    steps = (
        Step(0, theta, -3.5, 1e-300, "converged", 9, 0.25),
        Step(1, theta + 1, math.nan, math.inf, "stalled", 4, 1.5),
    )
    return Fitted(
        model, solution, "loo", AWKWARD, theta, steps, Ending("no-progress", 2, 1, 0.5, ("kernel.left.variance",))
    )


def same(left, right):
    """Whether two objects are equal in type, structure and every bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return left == right or (left != left and right != right)


def again(thing, folder):
    save(thing, folder / "model.safetensors")
    return load(folder / "model.safetensors")


ARD = kernels.SquaredExponential(Parameter(AWKWARD, bounds=(0.1, 10.0)), np.array([1.0, 1.0 / 3.0]))
NOISY = ARD + kernels.White(Parameter(np.array(0.2), fixed=True))
PLAIN = kernels.SquaredExponential()
MODELS = {
    "ard": Model(NOISY, likelihoods.Probit()),
    "poisson": Model(PLAIN, likelihoods.Poisson(), means.Linear(np.array([0.3, -AWKWARD]), Parameter(0.1))),
    "ordinal": Model(PLAIN, likelihoods.Ordinal(Parameter(np.array([-1.0, AWKWARD]), ordered=True)), Parameter(0.5)),
    "student": Model(PLAIN, likelihoods.StudentT(4, Parameter(0.3, bounds=(0.01, math.inf)))),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_everything_comes_back_and_predicts_the_same(name, tmp_path):
    fitted = made(MODELS[name])
    loaded = again(fitted, tmp_path)
    assert same(loaded, fitted)
    assert loaded.model is loaded.solution.model
    assert str(loaded.status) == str(fitted.status)
    assert loaded.hyperparameters == fitted.hyperparameters
    assert same(loaded.solution.predict(NEW), fitted.solution.predict(NEW))


@pytest.mark.parametrize(("name", "more"), [("poisson", {"exposure": np.arange(1.0, 6.0)}), ("ordinal", {})])
def test_predictions_of_y_are_the_same(name, more, tmp_path):
    fitted = made(MODELS[name])
    loaded = again(fitted, tmp_path)
    assert same(loaded.solution.predict_y(NEW, **more).mean, fitted.solution.predict_y(NEW, **more).mean)


KERNELS = [
    kernels.Matern12(2, 0.5) * kernels.Matern32(1.0, [0.5, 0.25]),
    kernels.Matern52() + kernels.RationalQuadratic(1.0, 1.0, Parameter(2.0)),
    kernels.Periodic(period=1.5) * kernels.Linear(3.0) ** 2,
    kernels.Constant(np.float32(0.1)) + kernels.White(np.array([0.5])) ** 1.5,
]
LIKELIHOODS = [
    likelihoods.Gaussian(AWKWARD), likelihoods.Logit(), likelihoods.Heaviside(0.01), likelihoods.Poisson("square"),
    likelihoods.NegativeBinomial(0.7), likelihoods.Binomial("logit"), likelihoods.DoubleExponential(0.4),
    likelihoods.Gamma(2.5), likelihoods.Beta(9.0), likelihoods.Censored(0.3), likelihoods.Ordinal([0.0, 1.0]),
    likelihoods.Weibull(0.6), likelihoods.LogLogistic(Parameter(0.4, bounds=(0.1, 2.0))),
    likelihoods.ZeroInflatedPoisson(0.2), likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.7, "square"),
    likelihoods.Warped(0.3, [0.5], [1.0], [0.1], 2.0, 3.0),
]  # fmt: skip
METHODS = [EP(), QP(1.5), PowerEP(0.5), VB(), Laplace()]


@pytest.mark.parametrize("i", range(len(LIKELIHOODS)))
def test_every_type_comes_back(i, tmp_path):
    fitted = made(Model(KERNELS[i % 4], LIKELIHOODS[i], float(i)), METHODS[i % 5])
    loaded = again(fitted, tmp_path)
    if i % 4 == 3:  # a NumPy scalar comes back as a float of the same value
        assert loaded.model.kernel.left.variance == float(np.float32(0.1))
        assert same(loaded.model.kernel.right, fitted.model.kernel.right)
    else:
        assert same(loaded, fitted)


def test_a_jax_array_comes_back_as_a_numpy_array(tmp_path):
    with jax.enable_x64(True):
        ours = kernels.SquaredExponential(1.0, jnp.array([AWKWARD, 1.0]))
    loaded = again(made(Model(ours, likelihoods.Probit())), tmp_path)
    assert same(loaded.model.kernel.lengthscale, np.array([AWKWARD, 1.0]))


def test_a_file_says_what_it_is(tmp_path):
    save(made(MODELS["ard"]), tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["format"] == "quantprop"
    assert header["__metadata__"]["format_version"] == "2"
    assert header["__metadata__"]["library_version"]
    assert header["X"]["shape"] == [24, 2]


# --- estimators ------------------------------------------------------------------------------------------------------


WEIGHTS = 1.0 + np.arange(24) % 2
LATENT = X.sum(1) + NOISE
LABELS = {
    "text": np.where(LATENT > 0, "ja", "nein"),
    "three": np.digitize(LATENT, [-0.5, 0.5]) * 10,
    "truth": LATENT > 0,
}


@pytest.fixture(scope="module")
def regressor():
    y = 100.0 + 20.0 * np.sin(X[:, 0]) + 5.0 * NOISE
    kernel = sk.RBF(1.0) + sk.WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True, random_state=1).fit(X, y)


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
    for part in ("task", "parts", "cold", "method", "objective", "max_sweeps"):  # all that the objective depends on
        assert same(getattr(loaded._core.landscape, part), getattr(regressor._core.landscape, part)), part
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


# --- what cannot be stored -------------------------------------------------------------------------------------------


class Brownian(kernels.Kernel):
    def __call__(self, x, z):
        return jnp.minimum(x[0], z[0])


def deep(levels):
    kernel = kernels.White()
    for _ in range(levels):
        kernel = kernel + kernels.White()
    return kernel


CUSTOM = likelihoods.Custom(lambda y, f: -((y - f) ** 2))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (Model(kernels.White() + Brownian(), likelihoods.Probit()), TypeError, r"model\.kernel\.right: Brownian"),
        (Model(kernels.White(), CUSTOM), TypeError, r"model\.likelihood: Custom"),
        (Model(kernels.White(), likelihoods.Probit(), lambda x: x[:, 0]), TypeError, r"model\.mean must be"),
        (Model(kernels.White(Parameter(1.0, prior=jnp.log)), likelihoods.Probit()), TypeError, "drop the prior"),
        (Model(deep(60), likelihoods.Probit()), ValueError, "more than 50 deep"),
    ],
)
def test_what_cannot_be_stored_is_named_before_anything_is_written(model, error, words, tmp_path):
    fitted = dataclasses.replace(made(MODELS["ard"]), model=model)
    fitted = dataclasses.replace(fitted, solution=dataclasses.replace(fitted.solution, model=model))
    with pytest.raises(error, match=words):
        save(fitted, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_failed_inference_and_other_objects_are_refused(tmp_path):
    fitted = made(MODELS["ard"])
    fitted.solution.sites.nu[3] = np.nan
    with pytest.raises(ValueError, match=r"sites\.nu holds NaN"):
        save(fitted, tmp_path / "model")
    with pytest.raises(TypeError, match="got dict"):
        save({}, tmp_path / "model")


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file(broken, tmp_path, monkeypatch):
    path = tmp_path / "model"
    save(made(MODELS["ard"]), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match="No space left"):
        save(made(MODELS["poisson"]), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# --- reading files of any kind ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "model"
    save(made(MODELS["ard"]), path)
    return path.read_bytes()


def refused(path, data, words):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert type(caught.value) is ValueError
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\xff" * 200, (10**9).to_bytes(8, "little") + b"{}", serialized({"a": np.ones(2)}), bytes(4096)],
)
def test_files_of_other_kinds(data, tmp_path):
    refused(tmp_path / "model", data, "is not a quantprop model")


def parts(data):
    """Metadata, content and tensors of a file, to be tampered with."""
    size = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:size])
    metadata = header.pop("__metadata__")
    kinds = {"F64": np.float64, "I64": np.int64}
    tensors = {
        name: np.frombuffer(data[size:][slice(*e["data_offsets"])], kinds[e["dtype"]]).reshape(e["shape"]).copy()
        for name, e in header.items()
    }
    return metadata, json.loads(metadata["content"]), tensors


def kernel_of(content):
    return content["model"]["fields"]["kernel"]["fields"]["left"]


def variance_of(content):
    return kernel_of(content)["fields"]["variance"]["fields"]


def setter(find, key, value):
    def change(content):
        find(content)[key] = value

    return change


def nested(levels):
    node = {"type": "kernels.White", "fields": {"variance": 1.0}}
    for _ in range(levels):
        node = {"type": "kernels.Sum", "fields": {"left": node, "right": node if levels < 20 else 1.0}}
    return node


HOSTILE = {
    "unknown type": (setter(kernel_of, "type", "os.system"), "unknown type 'os.system'"),
    "class trick": (setter(kernel_of, "type", "__class__"), "unknown type"),
    "type of another kind": (setter(kernel_of, "type", {"a": 1}), "unknown type"),
    "abstract type": (setter(kernel_of, "type", "kernels.Stationary"), "unknown type"),
    "not a kernel": (setter(lambda c: c["model"]["fields"], "kernel", 3.0), "must be a kernel"),
    "likelihood as kernel": (
        setter(lambda c: c["model"]["fields"], "kernel", {"type": "likelihoods.Probit", "fields": {}}),
        "must be a kernel",
    ),
    "extra field": (setter(variance_of, "__class__", "x"), "wrong fields"),
    "dunder field": (setter(lambda c: kernel_of(c)["fields"], "__init__", 1.0), "wrong fields"),
    "fields not a mapping": (setter(kernel_of, "fields", [1.0, 1.0]), "wrong fields"),
    "bare list": (setter(variance_of, "value", [1.0]), "no known form"),
    "infinite value": (setter(variance_of, "value", {"number": "inf"}), "finite numbers"),
    "text for a number": (setter(variance_of, "value", "1.0"), "finite numbers"),
    "boolean for a number": (setter(variance_of, "value", True), "finite numbers"),
    "huge number": (setter(variance_of, "value", 10**400), "finite numbers"),
    "number for a flag": (setter(variance_of, "fixed", 1), "true or false"),
    "a prior": (setter(variance_of, "prior", "jnp.log"), "must be None"),
    "reversed bounds": (setter(variance_of, "bounds", {"tuple": [2.0, 1.0]}), "lower < upper"),
    "bounds of three": (setter(variance_of, "bounds", {"tuple": [1.0, 2.0, 3.0]}), "lower, upper"),
    "negative variance": (setter(variance_of, "value", -1.0), "positive"),
    "array of objects": (
        setter(variance_of, "value", {"array": "O", "shape": [], "values": [1.0]}),
        "unknown type 'O'",
    ),
    "array too short": (
        setter(variance_of, "value", {"array": "float64", "shape": [3], "values": [1.0]}),
        "number of entries",
    ),
    "array of negative size": (
        setter(variance_of, "value", {"array": "float64", "shape": [-1], "values": []}),
        "not an array",
    ),
    "lengthscales for other inputs": (
        setter(
            lambda c: kernel_of(c)["fields"],
            "lengthscale",
            {"array": "float64", "shape": [3], "values": [1.0, 1.0, 1.0]},
        ),
        "does not fit X",
    ),
    "unknown reason": (setter(lambda c: c["status"], "reason", "magic"), "unknown reason"),
    "a method of another kind": (setter(lambda c: c, "method", {"type": "projections.KL", "fields": {}}), "method"),
    "a power out of range": (setter(lambda c: c["method"]["fields"], "power", 7.0), "power must lie"),
    "nested 60 deep": (setter(lambda c: c["model"]["fields"], "kernel", nested(60)), "more than 50 deep"),
    "missing part": (lambda content: content.pop("objective"), "other parts"),
}


def rewritten(metadata, content, tensors):
    """A file as someone makes it who knows the format: its checksum is right."""
    text = content if isinstance(content, str) else json.dumps(content)
    metadata = {**metadata, "content": text}
    return serialized(tensors, {**metadata, "sha256": checksum(metadata, tensors)})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content(name, valid, tmp_path):
    metadata, content, tensors = parts(valid)
    change, words = HOSTILE[name]
    change(content)
    refused(tmp_path / "model", rewritten(metadata, content, tensors), words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "JSON"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "JSON|other parts"),
        ("NaN", "NaN"),
        ("[1, Infinity]", "Infinity"),
        ("3", "other parts"),
        ("", "JSON"),
        ("9" * 10_000, "JSON"),
    ],
)
def test_hostile_text(content, words, valid, tmp_path):
    metadata, _, tensors = parts(valid)
    refused(tmp_path / "model", rewritten(metadata, content, tensors), words)


TENSORS = {
    "wrong shape": ("sites.nu", np.zeros(23), "wrong shape"),
    "not a matrix": ("X", np.zeros(48), "wrong shape"),
    "empty": ("X", np.zeros((0, 2)), "X is empty"),
    "NaN in X": ("X", np.full((24, 2), np.nan), "NaN"),
    "infinity in a site": ("sites.tau", np.full(24, np.inf), "infinity"),
    "another dtype": ("X", np.zeros((24, 2), dtype=np.float16), "type F16"),
    "whole numbers": ("theta", np.zeros(4, dtype=np.int64), "wrong shape|no floats"),
    "unknown": ("more", np.zeros(2), "unknown tensors: more"),
    "steps": ("trace.value", np.zeros(3), "wrong shape"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_hostile_tensors(name, valid, tmp_path):
    metadata, content, tensors = parts(valid)
    tensor, array, words = TENSORS[name]
    refused(tmp_path / "model", rewritten(metadata, content, {**tensors, tensor: array}), words)


def test_missing_tensor_and_other_kinds(valid, tmp_path):
    metadata, content, tensors = parts(valid)
    less = {name: array for name, array in tensors.items() if name != "sites.nu"}
    refused(tmp_path / "model", rewritten(metadata, content, less), r"sites\.nu is missing")
    refused(tmp_path / "model", rewritten({**metadata, "kind": "virus"}, content, tensors), "kind 'virus'")


def test_another_version_says_which_is_needed(valid, tmp_path):
    metadata, content, tensors = parts(valid)
    newer = {**metadata, "format_version": "3", "library_version": "9.1"}
    refused(
        tmp_path / "model",
        rewritten(newer, content, tensors),
        r"version 3, written by quantprop 9\.1.*reads format version 3",
    )
    refused(
        tmp_path / "model", rewritten({**metadata, "format_version": "x"}, content, tensors), "format version is 'x'"
    )


def test_hostile_estimators(regressor, tmp_path):
    save(regressor, tmp_path / "good")
    metadata, content, tensors = parts((tmp_path / "good").read_bytes())
    theirs = content["cores"][0]["kernel"]["fields"]["k1"]
    changes = [
        (content["parameters"], "normalize_y", "yes", "true or false"),
        (content["parameters"], "likelihood", "magic", "likelihood"),
        (content["parameters"], "kernel", {"type": "sklearn.PairwiseKernel", "fields": {}}, "unknown type"),
        (content["attributes"], "n_features_in_", 3, "columns"),
        (content["attributes"], "_y_std", {"number": "nan"}, "finite"),
        (theirs["fields"], "length_scale", "1", "finite numbers"),
        (theirs["fields"], "length_scale_bounds", "free", "bounds"),
        (theirs["fields"], "length_scale", {"array": "float64", "shape": [2], "values": [1.0, 1.0]}, "differ"),
        (content["cores"][0], "max_sweeps", "1", "whole number"),
        (content, "cores", [], "no model"),
    ]
    for owner, key, value, words in changes:
        before = owner[key]
        owner[key] = value
        refused(tmp_path / "model", rewritten(metadata, content, tensors), words)
        owner[key] = before
    refused(tmp_path / "model", rewritten(metadata, content, {**tensors, "0.weights": -np.ones(24)}), "weights")
    with pytest.raises(ValueError, match=r"quantprop\.load also estimators"):
        storage.load(tmp_path / "good")
