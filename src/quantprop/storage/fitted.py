"""Learned models to files and back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import jax
import numpy as np

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import declared, free
from quantprop.inference.classes import as_classes, as_factors
from quantprop.inference.prediction import prior_of
from quantprop.inference.results import WRITERS, Ending, Fitted, Step
from quantprop.inference.shaped import ShapedSolution, as_rows, as_shaped
from quantprop.inference.solution import Solution, Status
from quantprop.inference.varying import kind_of
from quantprop.kernels import Derivatives
from quantprop.likelihoods import ByOutput
from quantprop.likelihoods.base import Datum
from quantprop.likelihoods.binary import Sign
from quantprop.means import OfValues
from quantprop.methods import Method
from quantprop.methods.base import each_row
from quantprop.model import Model, mean_at
from quantprop.priors import Inducing
from quantprop.priors.inducing.prior import InducingPredictor
from quantprop.runtime.precision import float64
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, whole, write_whole
from quantprop.storage.records import (
    NAMES,
    REGISTRY,
    TEXT,
    Kind,
    Registry,
    Rule,
    decode,
    decoded_fields,
    encode,
    encoded_fields,
    instance,
    refusing,
    require,
    rules_of,
)

KIND = "fitted"
FLOAT = instance("a number", float)  # NaN or infinite after a failure: a result, not an input
STATUS = Kind("status", Status, rules_of(Status, FLOAT))
ENDING = Kind("ending", Ending, rules_of(Ending, FLOAT))
ROWS = ("sites.nu", "sites.tau", "marginals.mean", "marginals.variance", "loo")
_SCALARS = {"log_evidence": FLOAT, "objective": TEXT, "objective_value": FLOAT, "reasons": NAMES}
_PARTS = ("model", "method", "status", "ending", *_SCALARS)
_POSTERIOR = ("inverse", "centre")
_STEPS = {"restart": int, "value": float, "gradient": float, "sweeps": int, "seconds": float}


def save(fitted: Fitted, path: Path) -> None:
    """Write a learned model to one file, atomically.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from quantprop import Model, fit, kernels, likelihoods
    >>> from quantprop.storage import load, save
    >>> X = np.linspace(-2, 2, 12)[:, None]
    >>> fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3)), X, np.sin(2 * X[:, 0]))
    >>> path = os.path.join(tempfile.mkdtemp(), "sine.safetensors")
    >>> save(fitted, path)
    >>> load(path).hyperparameters == fitted.hyperparameters
    True
    """
    if not isinstance(fitted, Fitted):
        raise TypeError(
            f"save takes what fit returns, or a fitted estimator of the library; got {type(fitted).__name__}"
        )
    write_whole(KIND, packed, fitted, path)


WRITERS[Fitted] = save


def load(path: Path) -> Fitted:
    """A learned model from a file that `save` wrote; nothing in a file is run."""
    with reading(path):
        return loaded(read(path))


def loaded(document: ModelFile) -> Fitted:
    """A learned model from the document that holds nothing else."""
    known = f"storage.load reads {KIND!r}, quantprop.load also estimators and integrated models"
    require(document.kind == KIND, f"it is of the kind {document.kind!r}; {known}")
    return whole(document, unpacked)


# --- writing ---------------------------------------------------------------------------------------------------------


def packed(fitted: Fitted, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """A learned model as JSON; its arrays go to `tensors`, with the prefix before their names."""
    shaped = {"of_signs": fitted.solution.of_signs} if isinstance(fitted.solution, ShapedSolution) else {}
    fitted = as_rows(as_factors(fitted))
    solution, trace = fitted.solution, fitted.trace
    if fitted.model is not solution.model:
        raise ValueError("fitted.model and fitted.solution.model must be the same object")
    named = {"X": solution.X, "theta": fitted.theta, **dict(zip(ROWS, attrgetter(*ROWS)(solution), strict=True))}
    check_finite(named, solution.status.reason)
    named["trace.theta"] = np.array([step.theta for step in trace]).reshape(len(trace), len(fitted.theta))
    if solution.weights is not None:
        named["solution.weights"] = solution.weights
    if solution.data is not None:
        named |= {f"solution.{name}": column for name, column in solution.data._asdict().items()}
    if solution.posterior is not None:
        named |= {f"posterior.{name}": getattr(solution.posterior, name) for name in _POSTERIOR}
    tensors |= {prefix + name: np.asarray(array, dtype=np.float64) for name, array in named.items()}
    for name, kind in _STEPS.items():
        tensors[f"{prefix}trace.{name}"] = np.array([getattr(step, name) for step in trace], kind)
    return {
        "model": encode(fitted.model, "model"),
        "method": encode(solution.method, "method"),
        "status": encoded_fields(STATUS, solution.status, "solution.status"),
        "ending": encoded_fields(ENDING, fitted.status, "status"),
        "log_evidence": encode(float(solution.log_evidence), "log_evidence"),
        "objective": fitted.objective,
        "objective_value": encode(float(fitted.objective_value), "objective_value"),
        "reasons": encode(tuple(step.reason for step in trace), "trace"),
        **shaped,
    }


def check_finite(arrays: dict[str, Any], status: Any) -> None:
    """Raise if inference failed; leave-one-out densities may be missing."""
    for name, array in arrays.items():
        if name != "loo" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity: inference failed ({status}), and a model that cannot "
                             "predict is not stored")  # fmt: skip


# --- reading ---------------------------------------------------------------------------------------------------------


def unpacked(content: Any, prefix: str, shelf: Shelf) -> Fitted:
    """A learned model from JSON and tensors, checked to fit together."""
    whole = isinstance(content, dict) and set(content) - {"of_signs"} == set(_PARTS)
    require(whole, "a learned model has wrong entries")
    model, method = decode(content["model"], "model"), decode(content["method"], "method")
    require(isinstance(model, Model) and isinstance(method, Method), "model or method has the wrong type")
    x, rows = inputs_and_rows(prefix, shelf, functions=_functions_of(model))
    check_shapes(model, x)
    scalars = fields_of(content, _SCALARS)
    size = sum(np.size(parameter.value) for parameter in free(declared(model)))
    theta = shelf.take_finite(f"{prefix}theta", (size,))
    solution = solution_of(
        model, method, x, rows, scalars["log_evidence"], ended(STATUS, content["status"]),
        weights_of(prefix, len(x), shelf), _data(model, prefix, len(x), shelf), _posterior(prefix, model, shelf),
    )  # fmt: skip
    trace, ending = _trace(scalars["reasons"], size, prefix, shelf), ended(ENDING, content["ending"])
    fitted = Fitted(model, solution, scalars["objective"], scalars["objective_value"], theta, trace, ending)
    if "of_signs" in content:
        _check_signs(solution)
        return as_shaped(fitted, **fields_of(content, {"of_signs": FLOAT}))
    return as_classes(fitted)


def _check_signs(solution: Solution) -> None:
    """Refuse a solution that has not values of f in output 0 and signs of its derivatives in output 1."""
    model: Any = solution.model
    forms = (Derivatives, ByOutput, OfValues)
    form = all(map(isinstance, (model.kernel, model.likelihood, model.mean), forms)) and solution.data is not None
    require(form and isinstance(model.likelihood.likelihoods[-1], Sign), "a shaped model has no signs of derivatives")
    own = solution.X[:, -1] == 0
    require(own.any() and np.array_equal(solution.data.y[:, 1] == 0, own), "signs and rows of derivatives differ")  # pyright: ignore


def _functions_of(model: Model) -> tuple[int, ...]:
    """The axis of sites and marginals for the functions, if a row has several latent values."""
    latents = model.plain_likelihood.latents
    return (latents,) if latents > 1 else ()


def inputs_and_rows(
    prefix: str, shelf: Shelf, *shape: int, functions: tuple[int, ...] = ()
) -> tuple[np.ndarray, list[np.ndarray]]:
    """X, and an array of all rows, or one for each of several solutions, for every name in ROWS."""
    x = shelf.take_finite(f"{prefix}X", (None, None))
    require(x.size, "X is empty")
    rows = [shelf.take_finite(f"{prefix}{name}", (*shape, *functions, len(x))) for name in ROWS[:-1]]
    loo = shelf.take_any(f"{prefix}loo", (*shape, len(x)))
    require(loo.dtype == np.float64, "tensor loo holds no floats")
    return x, [*rows, loo]


def solution_of(model: Model, method: Method, x: Any, rows: Sequence[Any], log_evidence: float, *more: Any) -> Solution:
    nu, tau, mean, variance, loo = rows
    sites, marginals = Natural(nu, tau), Normal(mean, variance)
    return kind_of(model)(model, method, x, sites, marginals, log_evidence, loo, *more)


def weights_of(prefix: str, n: int, shelf: Shelf) -> np.ndarray | None:
    """Weights of the rows; None, and not in the file, if each counts once."""
    name = f"{prefix}solution.weights"
    if name not in shelf.left:
        return None
    weights = shelf.take_finite(name, (n,))
    require((weights >= 0).all() and weights.any(), "weights are negative, or all 0")
    return weights


def _data(model: Model, prefix: str, n: int, shelf: Shelf) -> Datum | None:
    """The observations, which some versions did not store."""
    if f"{prefix}solution.y" not in shelf.left:
        return None
    columns, likelihood = model.plain_likelihood.columns, model.plain_likelihood
    y = shelf.take(f"{prefix}solution.y", (n, columns) if columns > 1 else (n,))
    exposure, trials = (shelf.take_finite(f"{prefix}solution.{name}", (n,)) for name in ("exposure", "trials"))
    require((exposure > 0).all() and (trials > 0).all(), "exposure or trials are not positive")
    require(bool(np.all(likelihood.in_support(y, trials))), "solution.y lies outside the likelihood's support")
    return Datum(y, exposure, trials)


def _posterior(prefix: str, model: Model, shelf: Shelf) -> InducingPredictor | None:
    """The posterior at the inducing points, if the file does not hold all rows."""
    first, second = (f"{prefix}posterior.{name}" for name in _POSTERIOR)
    if first not in shelf.left:
        return None
    process: Any = model.process
    require(isinstance(process, Inducing), "a posterior of points does not fit its process")
    parts: Any = shelf.take_finite(first, (process.count,) * 2), shelf.take_finite(second, (process.count,))
    return InducingPredictor(*parts)


def fields_of(content: Any, rules: dict[str, Rule], registry: Registry = REGISTRY) -> dict[str, Any]:
    """Simple fields of a JSON object, each by its rule."""
    fields = {name: decode(content[name], name, registry) for name in rules}
    for name, rule in rules.items():
        require(rule.holds(fields[name]), f"{name} must be {rule.words}")
    return fields


def ended(kind: Kind, node: Any) -> Any:
    """The record of what happened, checked to have a reason that is known."""
    found = decoded_fields(kind, node, f"the {kind.name}")
    with refusing(f"the {kind.name} has an unknown reason"):
        str(found)
    return found


def _trace(reasons: tuple[str, ...], size: int, prefix: str, shelf: Shelf) -> tuple[Step, ...]:
    theta = shelf.take_any(f"{prefix}trace.theta", (len(reasons), size))
    columns = {name: shelf.take_any(f"{prefix}trace.{name}", (len(reasons),)) for name in _STEPS}
    for name, kind in _STEPS.items():
        require(columns[name].dtype == np.dtype(kind), f"tensor trace.{name} has the wrong type")
    require(theta.dtype == np.float64, "tensor trace.theta holds no floats")
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return tuple(
        Step(theta=theta[i].copy(), reason=reasons[i], **dict(zip(columns, row, strict=True)))
        for i, row in enumerate(rows)
    )


@float64
def check_shapes(model: Model, x: np.ndarray) -> None:
    """Refuse a model that does not fit its inputs, by tracing it."""
    n = len(x)
    likelihood = model.plain_likelihood
    data = Datum(np.zeros((n, likelihood.columns) if likelihood.columns > 1 else n), np.ones(n), np.ones(n))
    with refusing("the model does not fit X"):
        made_of = (model.plain_process, model.plain_kernel, np.zeros(n), x)
        prior = jax.eval_shape(lambda *given: prior_of(*given).variances(), *made_of)
        diagonal = jax.eval_shape(lambda kernel, x: kernel.diagonal(x), model.plain_kernel, x)
        mean = jax.eval_shape(lambda mean, x: x[:, 0] * 0.0 + mean_at(mean, x), model.plain_mean, x)
        latent = np.zeros((*_functions_of(model), n))
        logs = jax.eval_shape(lambda own, *row: each_row(own.log_prob, *row), likelihood, data, latent)
    shapes = [part.shape for part in (prior, diagonal, mean, logs)]
    fits = shapes == [latent.shape, (n,), (n,), (n,)]
    require(fits, f"the model does not fit X: process, kernel, mean or likelihood give {shapes}")
