"""Files of models: what comes back is what was saved, bit for bit; what cannot be stored is named."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from storage.cases import AWKWARD, MODELS, NEW, again, made, same

from quantprop import EP, QP, VB, Laplace, Model, Parameter, PowerEP, kernels, likelihoods, methods, projections
from quantprop.estimators.storage import save
from quantprop.likelihoods.ordinal import Ties
from quantprop.storage import records
from quantprop.storage.records import decode, encode


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
FOLDERS = {kernels: kernels.Kernel, likelihoods: likelihoods.Likelihood, methods: methods.Method,
           projections: projections.Projection}  # fmt: skip
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


def test_the_librarys_classes_are_found_by_their_bases():
    """Those that no other derives from, and that hold no function; a new one needs no entry anywhere."""
    known = {kind.name for kind in records.REGISTRY.kinds if None not in kind.rules.values()}
    public = {
        f"{module.__name__.removeprefix('quantprop.')}.{name}"
        for module, base in FOLDERS.items()
        for name in getattr(module, "__all__", vars(module))
        if isinstance(vars(module)[name], type) and issubclass(vars(module)[name], base)
    }
    without = {"kernels.Kernel", "kernels.Stationary", "kernels.Pairwise", "likelihoods.Likelihood",
               "likelihoods.Custom", "methods.Method", "projections.Projection"}  # fmt: skip
    assert public - known == without
    assert {"processes.Dense", "processes.Inducing", "processes.Markov", "processes.Classes"} <= known

    class Sharp(likelihoods.Likelihood):
        __module__ = "quantprop.likelihoods.sharp"
        scale: float = 1.0

    assert Sharp in set(records._final(likelihoods.Likelihood, "likelihoods"))
    assert Brownian not in set(records._final(kernels.Kernel, "kernels"))


# --- what cannot be stored -------------------------------------------------------------------------------------------


class Brownian(kernels.Kernel):
    def __call__(self, x, z):
        return jnp.minimum(x[0], z[0])


CUSTOM = likelihoods.Custom(lambda y, f: -((y - f) ** 2))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (Model(kernels.White() + Brownian(), likelihoods.Probit()), TypeError, r"model\.kernel\.right: Brownian"),
        (Model(kernels.White(), CUSTOM), TypeError, r"model\.likelihood: Custom"),
        (Model(kernels.White(), likelihoods.Probit(), lambda x: x[:, 0]), TypeError, r"model\.mean must be"),
        (Model(kernels.White(Parameter(1.0, prior=jnp.log)), likelihoods.Probit()), TypeError, "drop the prior"),
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


@pytest.mark.parametrize(
    "record",
    [kernels.CentredFactor(4.0, (0.0, 1.0, 3.0)), kernels.Lines(np.array([2.0, AWKWARD, 3.0]), np.array([0.5])),
     Ties(AWKWARD)],
)  # fmt: skip
def test_records_of_comparisons_and_correlated_slopes_come_back(record):
    assert same(decode(encode(record, "it"), "it"), record)
