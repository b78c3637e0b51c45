"""Fitted estimators to files and back, data included, so that a loaded one can do all that the saved one could."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from quantprop import storage
from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.columns import Coding
from quantprop.estimators.core import TOLERANCE, Choice, Core, untranslated, with_priors_of
from quantprop.estimators.foreign import Foreign, Source
from quantprop.estimators.models import BinaryGaussianProcess, JointGaussianProcess, OneModel, Several
from quantprop.estimators.ranker import GaussianProcessRanker, compared
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.estimators.translate import translate
from quantprop.inference.classes import ClassSolution, as_factors
from quantprop.inference.integrated import Integrated
from quantprop.inference.results import WRITERS, Fitted
from quantprop.inference.task import prepare
from quantprop.kernels import Difference, Kernel, PerClass, Terms
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.likelihoods import Likelihood
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.parameters import packed as theta_of
from quantprop.priors import Process
from quantprop.storage import fitted as learned
from quantprop.storage import integrated as mixtures
from quantprop.storage import records
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, write
from quantprop.storage.records import REGISTRY, Kind, Registry, Rule, built, decode, encode, instance, refusing, require

Estimator = GaussianProcessClassifier | GaussianProcessRanker | GaussianProcessRegressor

# --- what may be stored ----------------------------------------------------------------------------------------------

_THEIRS = instance("a kernel of scikit-learn", sk.Kernel)
_BOUNDS = Rule("'fixed' or bounds", lambda value: records.numeric(value, 2) or str(value) == "fixed")
_WHOLE = Rule("a whole number", lambda value: isinstance(value, (int, np.integer)) and not isinstance(value, bool))
_WHOLE_OR_NONE = Rule("a whole number or None", lambda value: value is None or _WHOLE.holds(value))
_TEXT = instance("text", str)
_NUMBER = Rule("a number", lambda value: records.numeric(value, 0))
_KERNELS = (
    sk.ConstantKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.WhiteKernel,
    sk.Sum, sk.Product, sk.Exponentiation,
)  # fmt: skip


def _rule(name: str) -> Rule:
    rules = {**dict.fromkeys(("k1", "k2", "kernel"), _THEIRS), "exponent": records.NUMBER, "nu": _NUMBER}
    return rules.get(name, _BOUNDS if name.endswith("_bounds") else records.NUMBERS)


def _kind(name: str, make: type, rule: Callable[[str], Rule]) -> Kind:
    return Kind(name, make, {argument: rule(argument) for argument in inspect.signature(make).parameters})


def _is_levels(value: Any) -> bool:
    pairs = isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
    return pairs and all(type(column) is int and records.NAMES.holds(levels) for column, levels in value)


_CODING = Kind("estimators.Coding", Coding, {"names": records.NAMES, "levels": Rule("levels of columns", _is_levels)})
BOTH = Registry((*REGISTRY.kinds, _CODING, *(_kind(f"sklearn.{make.__name__}", make, _rule) for make in _KERNELS)))

LATER = {  # what files of older versions lack
    "process": "dense", "hyperparameters": "point", "_labels": None, "_coding": encode(Coding(), "_coding", BOTH),
}  # fmt: skip

_PARAMETERS = {
    "kernel": Rule(
        "a kernel, its name or None", lambda value: value is None or isinstance(value, (str, Kernel, Terms, sk.Kernel))
    ),
    "optimizer": Rule(
        "a name or None (a function cannot be stored: set_params(optimizer=None) after fitting drops it)",
        lambda value: value is None or isinstance(value, str),
    ),
    "random_state": Rule("a whole number or None (a generator cannot be stored)", _WHOLE_OR_NONE.holds),
    "n_jobs": _WHOLE_OR_NONE,
    "alpha": records.NUMBERS,
    **dict.fromkeys(("multi_class", "hyperparameters"), _TEXT),
    "process": instance("a name or a process", str, Process),
    "objective": _TEXT,
    "method": instance("a name or a method", str, Method),
    "likelihood": instance("a name or a likelihood", str, Likelihood),
    "mean": Rule(f"a name, {records.MEAN.words}", lambda value: isinstance(value, str) or records.MEAN.holds(value)),
    **dict.fromkeys(("n_restarts_optimizer", "max_iter_predict", "max_sweeps"), _WHOLE),
    **dict.fromkeys(("warm_start", "copy_X_train", "normalize_y"), records.FLAG),
}


@dataclass(frozen=True)
class Family:
    """An estimator as a file knows it."""

    kind: Kind
    attributes: dict[str, Rule]


def _vector_of(kinds: str) -> Any:
    return lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in kinds


_COMMON = {
    "n_features_in_": _WHOLE,
    "feature_names_in_": Rule("names", lambda value: value is None or _vector_of("OU")(value)),
    "log_marginal_likelihood_value_": instance("a number", float),
    "_coding": instance("the coding of columns", Coding),
}
CLASSIFIER, RANKER, REGRESSOR = (
    Family(_kind(name, make, _PARAMETERS.__getitem__), {**_COMMON, **own})
    for name, make, own in (
        ("classifier", GaussianProcessClassifier, {"classes_": Rule("a vector of labels", _vector_of("biufUO"))}),
        ("ranker", GaussianProcessRanker, {}),
        (
            "regressor",
            GaussianProcessRegressor,
            {
                "_y_mean": records.NUMBER,
                "_y_std": records.NUMBER,
                "_labels": Rule(
                    "a vector of labels or None", lambda value: value is None or _vector_of("biufUO")(value)
                ),
            },
        ),
    )
)

FAMILIES = (CLASSIFIER, RANKER, REGRESSOR)

# --- writing ---------------------------------------------------------------------------------------------------------


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
        "cores": [_packed_core(core, f"{i}.", tensors) for i, core in enumerate(cores)],
    }


def _packed_core(core: Core, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """One learned model, its kernel before learning, in scikit-learn's form where it has one, and its data."""
    fitted, task, start = core.fitted, core.landscape.task, core.landscape.model
    content = {
        "fitted": learned.packed(fitted, prefix, tensors),
        "kernel": encode(_before_learning(core), "kernel", BOTH),
        "likelihood": encode(start.likelihood, "likelihood"),
        "mean": encode(start.mean, "mean"),
        "max_sweeps": int(core.landscape.max_sweeps),
        "integrated": None,
    }
    if core.integrated is not None:
        content["integrated"] = mixtures.packed(core.integrated, f"{prefix}integrated.", tensors)
    rows = {**task.data._asdict(), "weights": task.weight.total}
    tensors |= {prefix + name: np.asarray(array[: len(task.x)], np.float64) for name, array in rows.items()}
    return content


def _before_learning(core: Core) -> Any:
    return core.landscape.model.kernel if core.choice.theirs is None else core.choice.theirs


# --- reading ---------------------------------------------------------------------------------------------------------


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
            stacklevel=2,
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
    cores = [_unpacked_core(node, f"{i}.", shelf) for i, node in enumerate(content["cores"])]
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


def _unpacked_core(node: Any, prefix: str, shelf: Shelf) -> Core:
    parts = {"fitted", "kernel", "likelihood", "mean", "max_sweeps", "integrated"}
    require(isinstance(node, dict) and set(node) | {"integrated"} == parts, "a model has other parts")
    mixture = node.get("integrated")  # missing in files of older versions
    integrated = None if mixture is None else mixtures.unpacked(mixture, f"{prefix}integrated.", shelf)
    fitted = as_factors(learned.unpacked(node["fitted"], prefix, shelf))
    start = learned.fields_of(node, {"likelihood": records.LIKELIHOOD, "mean": records.MEAN, "max_sweeps": _WHOLE})
    choice = _choice(decode(node["kernel"], "kernel", BOTH), fitted.model.kernel)
    kernel, known = choice.translation.kernel, fitted.model.kernel
    if isinstance(known, PerClass) and not isinstance(kernel, PerClass):
        kernel = PerClass((kernel,), known.classes)
    if isinstance(known, Difference) and not isinstance(kernel, Difference):
        kernel = Difference(kernel)
    model = Model(kernel, start["likelihood"], start["mean"], fitted.model.process)
    landscape = _landscape(model, fitted, start["max_sweeps"], prefix, shelf)
    require(len(theta_of(landscape.parts)) == len(fitted.theta), "kernel and learned model differ")
    return Core(choice, landscape, fitted, integrated)


def _choice(kernel: Any, learned_kernel: Kernel) -> Choice:
    """The kernel before learning, of either library, as estimators hold it."""
    if isinstance(kernel, Kernel):
        return untranslated(kernel)
    require(isinstance(kernel, sk.Kernel), "kernel must be a kernel of either library")
    translation = with_priors_of(learned_kernel, translate(kernel, Source()))
    require(not isinstance(translation.kernel, Foreign), "kernel has no translation")
    return Choice(kernel, translation)


def _landscape(model: Model, fitted: Fitted, max_sweeps: int, prefix: str, shelf: Shelf) -> Landscape:
    """The data and the objective behind `log_marginal_likelihood`."""
    x, method, likelihood = fitted.solution.X, fitted.solution.method, model.plain_likelihood
    shape = (len(x), likelihood.columns) if likelihood.columns > 1 else (len(x),)
    rows = {name: shelf.take(f"{prefix}{name}", (len(x),)) for name in ("weights", "exposure", "trials")}
    used = {name: rows[name] if name in likelihood.scaled_by else None for name in ("exposure", "trials")}
    task = prepare(model, x, shelf.take(f"{prefix}y", shape), method, rows["weights"], **used)
    return Landscape(model, task, method, as_objective(fitted.objective), True, TOLERANCE, max_sweeps)
