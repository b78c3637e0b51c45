"""Fitted estimators to files and back, data included, so that a loaded one can do all that the saved one could."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quantprop import storage
from quantprop.estimators import stored_cores
from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.core import Core
from quantprop.estimators.foreign import Source
from quantprop.estimators.models import BinaryGaussianProcess, JointGaussianProcess, OneModel, Several
from quantprop.estimators.ranker import GaussianProcessRanker, compared
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.estimators.stored_kinds import BOTH, CLASSIFIER, FAMILIES, LATER, RANKER, REGRESSOR, Family
from quantprop.inference.classes import ClassSolution
from quantprop.inference.integrated import Integrated
from quantprop.inference.results import WRITERS, Fitted
from quantprop.kernels import PerClass
from quantprop.runtime.arguments import checked
from quantprop.storage import fitted as learned
from quantprop.storage import integrated as mixtures
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, write
from quantprop.storage.records import built, decode, encode, refusing, require

Estimator = GaussianProcessClassifier | GaussianProcessRanker | GaussianProcessRegressor

# --- writing ---------------------------------------------------------------------------------------------------------


@checked()
def save(model: Fitted | Integrated | Estimator, path: Path, note: Any = None) -> None:
    """Write a fitted estimator, or what `fit` returns, to one file, whole or not at all.

    Beside an estimator there may be a note, any JSON, which `load_with_note` returns.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from quantprop import GaussianProcessClassifier
    >>> from quantprop.estimators.storage import load, save
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> path = os.path.join(tempfile.mkdtemp(), "signs.safetensors")
    >>> save(GaussianProcessClassifier().fit(X, np.where(X[:, 0] > 0, "yes", "no")), path)
    >>> load(path).predict([[-2.0], [2.0]]).tolist()
    ['no', 'yes']
    """
    if isinstance(model, Integrated):
        return mixtures.save(model, path)
    families = [family for family in FAMILIES if family.kind.make is type(model)]
    if not families:
        return storage.save(model, path)  # type: ignore[arg-type]  # which says so where it cannot
    check_is_fitted(model, "log_marginal_likelihood_value_")
    tensors: dict[str, np.ndarray] = {}
    write(ModelFile(families[0].kind.name, _packed(model, families[0], tensors), tensors, note), path)


WRITERS.update({family.kind.make: save for family in FAMILIES})


def _packed(model: Any, family: Family, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    parameters = model.get_params(deep=False)
    attributes = {name: getattr(model, name, None) for name in family.attributes}
    for given, rules in ((parameters, family.kind.rules), (attributes, family.attributes)):
        for name, rule in rules.items():
            if not rule.holds(given[name]):
                raise TypeError(f"{name} must be {rule.words}; got {given[name]!r}")
    cores = [m.core for m in model._models()] if family is CLASSIFIER else [model._core]
    if family is REGRESSOR:
        tensors["y_train"] = np.asarray(model.y_train_, dtype=np.float64)
        tensors["rows"] = model._rows.astype(np.float64)
    if family is RANKER:
        tensors["items"], tensors["pairs"] = model.X_train_, model.pairs_.astype(np.float64)
    return {
        "parameters": {name: encode(value, name, BOTH) for name, value in parameters.items()},
        "attributes": {name: encode(value, name, BOTH) for name, value in attributes.items()},
        "cores": [stored_cores.packed(core, f"{i}.", tensors) for i, core in enumerate(cores)],
    }


# --- reading ---------------------------------------------------------------------------------------------------------


@checked()
def load(path: Path) -> Fitted | Integrated | Estimator:
    """What a file holds that `save` wrote; whatever it holds, nothing in it is run.

    Warns of a file that `quantprop fit` or `tables.save` wrote: its estimator takes encoded and standardised columns.
    """
    loaded, note = load_with_note(path)
    if note is not None:
        warnings.warn(
            f"{path} holds the model of a table; how its columns become numbers is left aside here: "
            "quantprop.tables.load(path) predicts from columns by name as they are in the table",
            UserWarning,
            stacklevel=3,
        )
    return loaded


def load_with_note(path: Path) -> tuple[Fitted | Integrated | Estimator, Any]:
    """What a file holds, and the note beside it: JSON as it was given to `save`, unchecked; None without one."""
    with reading(path):
        document = read(path)
        families = {family.kind.name: family for family in FAMILIES}
        if document.kind == mixtures.KIND:
            with refusing("the integrated model"):
                return mixtures.loaded(document), document.note
        if document.kind not in families:
            return learned.loaded(document), document.note
        shelf = Shelf(document.tensors)
        with refusing("the estimator"):
            estimator = _unpacked(document.content, families[document.kind], shelf)
        shelf.close()
        return estimator, document.note


def _unpacked(content: Any, family: Family, shelf: Shelf) -> Any:
    require(isinstance(content, dict) and set(content) == {"parameters", "attributes", "cores"}, "it has other parts")
    for name, rules in (("parameters", family.kind.rules), ("attributes", family.attributes)):
        require(isinstance(content[name], dict), f"it has other {name}")
        for later, default in LATER.items():
            if later in rules:
                content[name].setdefault(later, default)
        require(set(content[name]) == set(rules), f"it has other {name}")
    parameters = {name: decode(node, name, BOTH) for name, node in content["parameters"].items()}
    estimator = built(family.kind, parameters, "the estimator")
    estimator._validate_params()
    attributes = learned.fields_of(content["attributes"], family.attributes, BOTH)
    require(isinstance(content["cores"], list) and content["cores"], "it holds no model")
    cores = [stored_cores.unpacked(node, f"{i}.", shelf) for i, node in enumerate(content["cores"])]
    features = attributes["n_features_in_"]
    seen = 2 * features if family is RANKER else features
    require(all(_inputs(core).shape[1] == seen for core in cores), "X has another number of columns")
    _set_names(estimator, attributes.pop("feature_names_in_"), features)
    value = attributes.pop("log_marginal_likelihood_value_")
    estimator._source, estimator.log_marginal_likelihood_value_ = Source(), np.float64(value)
    for name, attribute in attributes.items():
        setattr(estimator, name, attribute)
    _FINISH[family.kind.name](estimator, cores, shelf)
    return estimator


def _set_names(estimator: Any, names: np.ndarray | None, features: int) -> None:
    if names is not None:
        require(len(names) == features, "feature_names_in_ has the wrong length")
        estimator.feature_names_in_ = names


def _finish_classifier(estimator: Any, cores: list[Core], shelf: Shelf) -> None:
    labels = estimator.classes_
    k = len(labels)
    require(k >= 2 and len(np.unique(labels)) == k, "classes_ must be two or more different labels")
    pairs, joint = estimator.multi_class == "one_vs_one", k > 2 and estimator.multi_class == "joint"
    expected = 1 if k == 2 or joint else k * (k - 1) // 2 if pairs else k
    require(len(cores) == expected, "it holds too few or too many models")
    require(all(isinstance(core.fitted.model.kernel, PerClass) == joint for core in cores), "its models are others")
    estimator.n_classes_ = k
    if joint:
        estimator.base_estimator_ = _joint(cores[0], k)
        return
    models = [_binary(core) for core in cores]
    estimator.base_estimator_ = models[0] if k == 2 else Several(models)


def _joint(core: Core, k: int) -> JointGaussianProcess:
    solution = ClassSolution(core.fitted.solution)
    require(solution.classes == k, "its model has another number of classes")
    return JointGaussianProcess(core, np.arange(k), solution.X, solution.y)


def _inputs(core: Core) -> np.ndarray:
    """The inputs as users know them."""
    scalar = core.fitted.solution
    return ClassSolution(scalar).X if isinstance(scalar.model.kernel, PerClass) else core.landscape.task.x


def _binary(core: Core) -> OneModel:
    task = core.landscape.task
    positive = (task.data.y[: len(task.x)] > 0).astype(int)
    return BinaryGaussianProcess(core, np.array([0, 1]), task.x.copy(), positive)


def _finish_regressor(estimator: Any, cores: list[Core], shelf: Shelf) -> None:
    require(len(cores) == 1, "it holds too many models")
    task = cores[0].landscape.task
    rows = shelf.take("rows", (None,))
    require(np.array_equal(np.unique(rows), np.arange(len(task.x))), "its rows do not fit its model")
    estimator._core, estimator._rows = cores[0], rows.astype(int)
    estimator.X_train_ = task.x[estimator._rows]
    estimator.y_train_ = shelf.take("y_train", (len(rows), *task.data.y.shape[1:]))


def _finish_ranker(estimator: Any, cores: list[Core], shelf: Shelf) -> None:
    require(len(cores) == 1, "it holds too many models")
    x = cores[0].landscape.task.x
    items = shelf.take("items", (None, estimator.n_features_in_))
    pairs = shelf.take("pairs", (len(x), 2)).astype(int)
    require(((pairs >= 0) & (pairs < len(items))).all(), "its comparisons are of other items")
    require(np.array_equal(compared(items, pairs), x), "its comparisons do not fit its model")
    estimator._core, estimator.X_train_, estimator.pairs_ = cores[0], items, pairs


_FINISH = {"classifier": _finish_classifier, "ranker": _finish_ranker, "regressor": _finish_regressor}
