"""One learned model of an estimator to a file and back: its kernel before learning, what was learned, and its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from quantprop.estimators.core import TOLERANCE, Choice, Core, untranslated, with_priors_of
from quantprop.estimators.foreign import Foreign, Source
from quantprop.estimators.stored_kinds import BOTH, WHOLE
from quantprop.estimators.translate import translate
from quantprop.inference.classes import as_factors
from quantprop.inference.results import Fitted
from quantprop.inference.task import prepare
from quantprop.kernels import Difference, Kernel, PerClass
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.model import Model
from quantprop.parameters import packed as theta_of
from quantprop.storage import fitted as learned
from quantprop.storage import integrated as mixtures
from quantprop.storage import records
from quantprop.storage.files import Shelf
from quantprop.storage.records import decode, encode, require


def packed(core: Core, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
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


def unpacked(node: Any, prefix: str, shelf: Shelf) -> Core:
    parts = {"fitted", "kernel", "likelihood", "mean", "max_sweeps", "integrated"}
    require(isinstance(node, dict) and set(node) | {"integrated"} == parts, "a model has other parts")
    mixture = node.get("integrated")  # missing in files of older versions
    integrated = None if mixture is None else mixtures.unpacked(mixture, f"{prefix}integrated.", shelf)
    fitted = as_factors(learned.unpacked(node["fitted"], prefix, shelf))
    start = learned.fields_of(node, {"likelihood": records.LIKELIHOOD, "mean": records.MEAN, "max_sweeps": WHOLE})
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
