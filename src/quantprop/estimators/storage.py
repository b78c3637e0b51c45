"""Fitted estimators to files and back, data included, so that a loaded one can do all that the saved one could."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quantprop import storage
from quantprop.estimators import stored_cores
from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.columns import Coding
from quantprop.estimators.core import FittedCore
from quantprop.estimators.foreign import Source
from quantprop.estimators.ranker import GaussianProcessRanker, compared
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.estimators.stored_cores import BOTH, WHOLE
from quantprop.inference.classes import ClassSolution
from quantprop.inference.integrated import Integrated
from quantprop.inference.results import WRITERS, Fitted
from quantprop.inference.stacked import Stack
from quantprop.kernels import PerClass
from quantprop.runtime.arguments import checked
from quantprop.storage import fitted as learned
from quantprop.storage import integrated as mixtures
from quantprop.storage import records, stacked
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, whole, write
from quantprop.storage.records import Kind, Rule, built, decode, encode, instance, refusing, require

Estimator = GaussianProcessClassifier | GaussianProcessRanker | GaussianProcessRegressor


@dataclass(frozen=True)
class Family:
    """An estimator as a file knows it: parameters, attributes and tensors, and how a loaded one is completed."""

    kind: Kind
    attributes: dict[str, Rule]
    tensors: dict[str, str]  # the attributes that become tensors, by their names in the file
    complete: Callable[[Any, list[FittedCore], Shelf], None]


def _complete_classifier(estimator: Any, cores: list[FittedCore], shelf: Shelf) -> None:
    labels = estimator.classes_
    k = len(labels)
    require(k >= 2 and len(np.unique(labels)) == k, "classes_ must be two or more different labels")
    pairs, joint = estimator.multi_class == "one_vs_one", k > 2 and estimator.multi_class == "joint"
    expected = 1 if k == 2 or joint else k * (k - 1) // 2 if pairs else k
    require(len(cores) == expected, "it holds too few or too many models")
    matches = all(isinstance(core.fitted.model.kernel, PerClass) == joint for core in cores)
    require(matches, "its models do not match multi_class")
    estimator.n_classes_ = k
    require(not joint or len(cores[0].classes_) == k, "its model has a different number of classes")
    estimator._finish(cores)


def _complete_regressor(estimator: Any, cores: list[FittedCore], shelf: Shelf) -> None:
    require(len(cores) == 1, "it holds too many models")
    task = cores[0].landscape.task
    rows = shelf.take("rows", (None,))
    require(np.array_equal(np.unique(rows), np.arange(len(task.x))), "its rows do not fit its model")
    estimator._core, estimator._rows = cores[0], rows.astype(int)
    estimator.X_train_ = task.x[estimator._rows]
    estimator.y_train_ = shelf.take("y_train", (len(rows), *task.data.y.shape[1:]))


def _complete_ranker(estimator: Any, cores: list[FittedCore], shelf: Shelf) -> None:
    require(len(cores) == 1, "it holds too many models")
    x = cores[0].landscape.task.x
    items = shelf.take("items", (None, estimator.n_features_in_))
    pairs = shelf.take("pairs", (len(x), 2)).astype(int)
    require(((pairs >= 0) & (pairs < len(items))).all(), "its comparisons do not match its items")
    require(np.array_equal(compared(items, pairs), x), "its comparisons do not fit its model")
    estimator._core, estimator.X_train_, estimator.pairs_ = cores[0], items, pairs


def _vector(words: str, kinds: str) -> Rule:
    return Rule(words, lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in kinds)


def _optional(rule: Rule, words: str = "or None") -> Rule:
    return Rule(f"{rule.words} {words}", lambda value: value is None or rule.holds(value))


_ANY = Rule("valid", lambda value: True)  # scikit-learn's constraints are checked too
_PARAMETERS = {  # what cannot be stored of valid parameters
    "optimizer": instance(
        "a name or None (a function cannot be stored: set_params(optimizer=None) after fitting drops it)",
        str, type(None),
    ),
    "random_state": _optional(WHOLE, words="or None (a generator cannot be stored)"),
    "mean": Rule(f"a name, {records.MEAN.words}", lambda value: isinstance(value, str) or records.MEAN.holds(value)),
    **dict.fromkeys(("monotone", "varying"), _optional(instance("a mapping", Mapping))),
    **dict.fromkeys(("warm_start", "copy_X_train", "normalize_y"), records.FLAG),
}  # fmt: skip
_COMMON = {
    "n_features_in_": WHOLE,
    "feature_names_in_": _optional(_vector("names", "OU")),
    "log_marginal_likelihood_value_": instance("a number", float),
    "_coding": instance("the coding of columns", Coding),
}
_LABELS = _vector("a vector of labels", "biufUO")
_OF_Y = {"_y_mean": records.NUMBER, "_y_std": records.NUMBER, "_labels": _optional(_LABELS)}
_LATER = {  # missing in files of older versions
    "process": "dense", "hyperparameters": "point", "monotone": None, "varying": None, "_labels": None,
    "_coding": encode(Coding(), "_coding", BOTH),
}  # fmt: skip


def _kind(name: str, make: type) -> Kind:
    return Kind(name, make, {one: _PARAMETERS.get(one, _ANY) for one in inspect.signature(make).parameters})


FAMILIES = (
    Family(
        _kind("classifier", GaussianProcessClassifier), {**_COMMON, "classes_": _LABELS}, {}, _complete_classifier,
    ),
    Family(
        _kind("ranker", GaussianProcessRanker), _COMMON, {"items": "X_train_", "pairs": "pairs_"}, _complete_ranker,
    ),
    Family(
        _kind("regressor", GaussianProcessRegressor), {**_COMMON, **_OF_Y}, {"y_train": "y_train_", "rows": "_rows"},
        _complete_regressor,
    ),
)  # fmt: skip


@checked()
def save(model: Fitted | Integrated | Stack | Estimator, path: Path, note: Any = None) -> None:
    """Write a fitted estimator, or the result of `fit`, to one file, atomically.

    Args:
        model: What `fit` returned, or a fitted estimator.
        path: Path of the file.
        note: Any JSON to store with an estimator, which `load_with_note` returns.

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
    family = next((family for family in FAMILIES if family.kind.make is type(model)), None)
    if family is None:
        return WRITERS.get(type(model), storage.save)(model, path)  # which raises if it cannot store it
    check_is_fitted(model, "log_marginal_likelihood_value_")
    tensors = {name: np.asarray(getattr(model, of), dtype=np.float64) for name, of in family.tensors.items()}
    write(ModelFile(family.kind.name, _packed(model, family, tensors), tensors, note), path)


WRITERS.update({family.kind.make: save for family in FAMILIES})


def _packed(model: Any, family: Family, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    parameters = model.get_params(deep=False)
    attributes = {name: getattr(model, name, None) for name in family.attributes}
    for given, rules in ((parameters, family.kind.rules), (attributes, family.attributes)):
        for name, rule in rules.items():
            if not rule.holds(given[name]):
                raise TypeError(f"{name} must be {rule.words}; got {given[name]!r}")
    return {
        "parameters": {name: encode(value, name, BOTH) for name, value in parameters.items()},
        "attributes": {name: encode(value, name, BOTH) for name, value in attributes.items()},
        "cores": [stored_cores.packed(core, f"{i}.", tensors) for i, core in enumerate(model._cores())],
    }


@checked()
def load(path: Path) -> Fitted | Integrated | Stack | Estimator:
    """Load what `save` wrote. Nothing in the file is executed, whatever it holds.

    Warns if `quantprop fit` or `tables.save` wrote the file: its estimator takes encoded and standardised columns.

    Args:
        path: Path of the file.

    Returns:
        The fitted estimator, or the result of `fit`.

    >>> import os, tempfile
    >>> from quantprop import Model, fit, kernels, likelihoods, load
    >>> fitted = fit(Model(kernels.Constant(), likelihoods.Gaussian()), [[0.0], [1.0]], [1.0, 2.0], "ep")
    >>> path = os.path.join(tempfile.mkdtemp(), "two.safetensors")
    >>> fitted.save(path)
    >>> load(path).objective_value == fitted.objective_value
    True
    """
    loaded, note = load_with_note(path)
    if note is not None:
        warnings.warn(
            f"{path} holds the model of a table, whose encoding of columns is ignored here: "
            "quantprop.tables.load(path) predicts from the columns of a table",
            UserWarning,
            stacklevel=3,
        )
    return loaded


def load_with_note(path: Path) -> tuple[Fitted | Integrated | Stack | Estimator, Any]:
    """The content of a file, and the note beside it: JSON as it was given to `save`, unchecked; None without one."""
    with reading(path):
        document = read(path)
        for module, what in ((mixtures, "the integrated model"), (stacked, "the stack")):
            if document.kind == module.KIND:
                with refusing(what):
                    return whole(document, module.unpacked), document.note
        families = {family.kind.name: family for family in FAMILIES}
        if document.kind not in families:
            return learned.loaded(document), document.note
        shelf = Shelf(document.tensors)
        with refusing("the estimator"):
            estimator = _unpacked(document.content, families[document.kind], shelf)
        shelf.close()
        return estimator, document.note


def _unpacked(content: Any, family: Family, shelf: Shelf) -> Any:
    expected = isinstance(content, dict) and set(content) == {"parameters", "attributes", "cores"}
    require(expected, "it has unexpected or missing parts")
    for name, rules in (("parameters", family.kind.rules), ("attributes", family.attributes)):
        require(isinstance(content[name], dict), f"its {name} are not a mapping")
        for later in _LATER.keys() & rules.keys():
            content[name].setdefault(later, _LATER[later])
        require(set(content[name]) == set(rules), f"it has unexpected or missing {name}")
    parameters = {name: decode(node, name, BOTH) for name, node in content["parameters"].items()}
    estimator = built(family.kind, parameters, "the estimator")
    estimator._validate_params()
    require(isinstance(content["cores"], list) and content["cores"], "it holds no model")
    cores = [stored_cores.unpacked(node, f"{i}.", shelf) for i, node in enumerate(content["cores"])]
    attributes = learned.fields_of(content["attributes"], family.attributes, BOTH)
    attributes["log_marginal_likelihood_value_"] = np.float64(attributes["log_marginal_likelihood_value_"])
    features, names = attributes["n_features_in_"], attributes["feature_names_in_"]
    seen = 2 * features if isinstance(estimator, GaussianProcessRanker) else features
    require(all(_columns(core) == seen for core in cores), "X has a different number of columns")
    require(names is None or len(names) == features, "feature_names_in_ has the wrong length")
    if names is None:
        del attributes["feature_names_in_"]
    for name, attribute in attributes.items():
        setattr(estimator, name, attribute)
    estimator._source = Source()
    family.complete(estimator, cores, shelf)
    return estimator


def _columns(core: FittedCore) -> int:
    """The number of columns of X as users know it."""
    solution = core.fitted.solution
    x = ClassSolution(solution).X if isinstance(solution.model.kernel, PerClass) else core.landscape.task.x
    return x.shape[1]
