"""One learned model of an estimator to a file and back: its kernel before learning, what was learned, and its data."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from sklearn.gaussian_process import kernels as sk

from quantprop.core.parameters import Parameter, is_parameter
from quantprop.core.parameters import packed as theta_of
from quantprop.estimators.columns import Coding
from quantprop.estimators.core import INFERENCE_TOLERANCE, FittedCore
from quantprop.estimators.foreign import Foreign, Source
from quantprop.estimators.translate import KernelSpec, translate, untranslated
from quantprop.inference.classes import as_factors
from quantprop.inference.integrated import Integrated
from quantprop.inference.shaped import ShapedSolution
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.inference.task import prepare
from quantprop.kernels import Kernel
from quantprop.kernels.combinations import in_form_of
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.learning.shaped import Constraint, Shape
from quantprop.model import Model
from quantprop.storage import fitted as learned
from quantprop.storage import integrated as mixtures
from quantprop.storage import records, stacked
from quantprop.storage.files import Shelf
from quantprop.storage.records import REGISTRY, Kind, Registry, Rule, decode, encode, instance, require

WHOLE = records.BY_TYPE[int]
_MIXTURES: dict[str, tuple[type, Any]] = {"integrated": (Integrated, mixtures), "stack": (Stack, stacked)}
_LATER = {*_MIXTURES, "shapes", "wrong"}  # missing in files of older versions
_PARTS = {"fitted", "kernel", "likelihood", "mean", "max_sweeps", *_LATER}
_SHAPE = Rule("a column, 1 or 2, and a sign", lambda one: (
    isinstance(one, tuple) and len(one) == 3 and type(one[0]) is int and one[1] in (1, 2) and one[2] in (-1.0, 1.0)
))  # fmt: skip
_CONSTRAINT = {
    "shapes": Rule("None or shapes of columns", lambda found: found is None or all(map(_SHAPE.holds, found))),
    "wrong": instance("None or a probability", float, type(None)),
}

_KERNELS = (
    sk.ConstantKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.WhiteKernel,
    sk.Sum, sk.Product, sk.Exponentiation,
)  # fmt: skip
_RULES = {
    **dict.fromkeys(("k1", "k2", "kernel"), instance("a kernel of scikit-learn", sk.Kernel)),
    "exponent": records.NUMBER,
    "nu": Rule("a number", lambda value: records.numeric(value, 0)),
}
_BOUNDS = Rule("'fixed' or bounds", lambda value: records.numeric(value, 2) or str(value) == "fixed")


def _kind(make: type) -> Kind:
    names = inspect.signature(make).parameters
    rules = {name: _RULES.get(name, _BOUNDS if name.endswith("_bounds") else records.NUMBERS) for name in names}
    return Kind(f"sklearn.{make.__name__}", make, rules)


_LEVELS = Rule(
    "levels of columns",
    lambda value: isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is int and records.NAMES.holds(pair[1])
        for pair in value
    ),
)  # fmt: skip
_CODING = Kind("estimators.Coding", Coding, {"names": records.NAMES, "levels": _LEVELS})
BOTH = Registry((*REGISTRY.kinds, _CODING, *map(_kind, _KERNELS)))


def packed(core: FittedCore, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """A learned model as JSON; its arrays go to `tensors`, their names behind the prefix."""
    task, start = core.landscape.task, core.landscape.model
    mixture = core.mixture
    rows = {**task.data._asdict(), "weights": task.weight.total}
    tensors |= {prefix + name: np.asarray(array[: len(task.x)], np.float64) for name, array in rows.items()}
    return {
        "fitted": learned.packed(core.fitted, prefix, tensors),
        "kernel": encode(start.kernel if core.spec.theirs is None else core.spec.theirs, "kernel", BOTH),
        "likelihood": encode(start.likelihood, "likelihood"),
        "mean": encode(start.mean, "mean"),
        "max_sweeps": int(core.landscape.max_sweeps),
        **{
            name: store.packed(mixture, f"{prefix}{name}.", tensors) if isinstance(mixture, kind) else None
            for name, (kind, store) in _MIXTURES.items()
        },
        "shapes": encode(core.constraint and core.constraint.shapes, "shapes"),
        "wrong": core.constraint and core.constraint.wrong,
    }


def unpacked(node: Any, prefix: str, shelf: Shelf) -> FittedCore:
    """A learned model from JSON and tensors, checked to fit together."""
    whole = isinstance(node, dict) and set(node) | _LATER == _PARTS
    require(whole, "a model has unexpected or missing parts")
    given = [(name, node[name]) for name in _MIXTURES if node.get(name) is not None]
    require(len(given) < 2, "a model has two mixtures")
    mixture = next((_MIXTURES[name][1].unpacked(part, f"{prefix}{name}.", shelf) for name, part in given), None)
    fitted = as_factors(learned.unpacked(node["fitted"], prefix, shelf))
    rules = {"likelihood": records.LIKELIHOOD, "mean": records.MEAN, "max_sweeps": WHOLE, **_CONSTRAINT}
    start = learned.fields_of(dict.fromkeys(_LATER) | node, rules)
    known = fitted.model.kernel
    spec = _spec(decode(node["kernel"], "kernel", BOTH), known)
    model = Model(in_form_of(known, spec.kernel), start["likelihood"], start["mean"], fitted.model.process)
    objective, method = as_objective(fitted.objective), fitted.solution.method
    x, likelihood = fitted.solution.X, model.plain_likelihood
    y = shelf.take(f"{prefix}y", (len(x), likelihood.columns) if likelihood.columns > 1 else (len(x),))
    rows = {name: shelf.take(f"{prefix}{name}", (len(x),)) for name in ("weights", "exposure", "trials")}
    used = (rows[name] if name in likelihood.scaled_by else None for name in ("exposure", "trials"))
    task = prepare(model, x, y, method, rows["weights"], *used)
    landscape = Landscape(model, task, method, objective, True, INFERENCE_TOLERANCE, start["max_sweeps"])
    require(len(theta_of(landscape.parts)) == len(fitted.theta), "kernel and learned model differ")
    return FittedCore(spec, landscape, fitted, mixture, _constraint(start["shapes"], start["wrong"], fitted.solution))


def _constraint(shapes: tuple | None, wrong: float | None, solution: Solution) -> Constraint | None:
    """The constraint behind a solution, whose virtual rows it has."""
    if shapes is None:
        require(wrong is None and not isinstance(solution, ShapedSolution), "a constraint has no shapes")
        return None
    fits = shapes and wrong is not None and max(column for column, *_ in shapes) < solution.X.shape[1]
    require(fits, "a constraint does not fit its model")
    return Constraint.of(tuple(Shape(*shape) for shape in shapes), solution, float(wrong or 0.0))


def _spec(kernel: Any, known: Kernel) -> KernelSpec:
    """The kernel before learning, of either library; priors are those of the learned one."""
    if isinstance(kernel, Kernel):
        return untranslated(kernel)
    require(isinstance(kernel, sk.Kernel), "kernel must be a kernel of either library")
    spec = translate(kernel, Source())
    require(not isinstance(spec.kernel, Foreign), "kernel has no translation")
    own, form = jax.tree.flatten(spec.kernel, is_leaf=is_parameter)
    pairs = zip(own, jax.tree.leaves(known, is_leaf=is_parameter), strict=True)
    with_priors = [Parameter(one.value, one.bounds, other.prior, one.fixed) for one, other in pairs]
    return replace(spec, kernel=jax.tree.unflatten(form, with_priors))
