"""Posteriors with their hyperparameters integrated to files and back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from quantprop.gaussian import Natural, Normal
from quantprop.inference.integrated import Integrated, IntegrationStatus
from quantprop.inference.results import WRITERS
from quantprop.inference.solution import Solution
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.storage.files import ModelFile, Path, Shelf, write
from quantprop.storage.fitted import COUNT, FLOAT, NAMES, STATUS, TEXT, check_shapes, ended, fields_of, weights_of
from quantprop.storage.records import Kind, decode, encode, require

KIND = "integrated"

INTEGRATION = Kind("integration", IntegrationStatus, {
    "reason": TEXT, "scheme": TEXT, "points": COUNT, "failed": COUNT, "effective": FLOAT, "efficiency": FLOAT,
    "at_bounds": NAMES,
})  # fmt: skip
_SCALARS = {"log_evidence": FLOAT, "names": NAMES, "priors": NAMES}
_PARTS = ("models", "method", "statuses", "status", *_SCALARS)
_ROWS = ("sites.nu", "sites.tau", "marginals.mean", "marginals.variance", "loo")


def save(integrated: Integrated, path: Path) -> None:
    """Write a posterior with its hyperparameters integrated to one file, whole or not at all."""
    tensors: dict[str, np.ndarray] = {}
    write(ModelFile(KIND, packed(integrated, "", tensors), tensors), path)


WRITERS[Integrated] = save


def packed(integrated: Integrated, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """The posterior as JSON; its arrays go to `tensors`, their names behind the prefix. X is there once."""
    parts = integrated.components
    columns = zip(*(_rows(component) for component in parts), strict=True)
    named = dict(zip(_ROWS, map(np.stack, columns), strict=True))
    for name in _ROWS[:-1]:
        if not np.isfinite(named[name]).all():
            raise ValueError(f"{name} holds NaN or infinity: inference failed ({integrated.status}), and a model that "
                             "cannot predict is not stored")  # fmt: skip
    more = {"X": parts[0].X, "theta": integrated.theta, "mixture": integrated.weights,
            "evidence": np.array([component.log_evidence for component in parts])}  # fmt: skip
    if parts[0].weights is not None:
        more["solution.weights"] = parts[0].weights
    tensors |= {prefix + name: np.asarray(array, dtype=np.float64) for name, array in (named | more).items()}
    return {
        "models": [encode(component.model, "model") for component in parts],
        "method": encode(parts[0].method, "method"),
        "statuses": [
            {name: encode(getattr(component.status, name), name) for name in STATUS.rules} for component in parts
        ],
        "status": {name: encode(getattr(integrated.status, name), name) for name in INTEGRATION.rules},
        "log_evidence": encode(float(integrated.log_evidence), "log_evidence"),
        "names": encode(tuple(integrated.priors), "names"),
        "priors": encode(tuple(integrated.priors.values()), "priors"),
    }


def _rows(component: Solution) -> tuple[np.ndarray, ...]:
    sites, marginals = component.sites, component.marginals
    return sites.nu, sites.tau, marginals.mean, marginals.variance, component.loo


def _alike(model: Model, first: Model) -> bool:
    """Whether two models differ in numbers only."""
    pairs = [jax.tree.flatten(one) for one in (model, first)]
    shapes = [[np.shape(leaf) for leaf in leaves] for leaves, _ in pairs]
    return pairs[0][1] == pairs[1][1] and shapes[0] == shapes[1]


def loaded(document: ModelFile) -> Integrated:
    """A posterior from the document that holds nothing else."""
    shelf = Shelf(document.tensors)
    integrated = unpacked(document.content, "", shelf)
    shelf.close()
    return integrated


def unpacked(content: Any, prefix: str, shelf: Shelf) -> Integrated:
    """A posterior from JSON and tensors, checked to fit together."""
    require(isinstance(content, dict) and set(content) == set(_PARTS), "an integrated model has other parts")
    models, statuses, method = content["models"], content["statuses"], decode(content["method"], "method")
    lists = isinstance(models, list) and isinstance(statuses, list) and len(models) == len(statuses) > 0
    require(lists and isinstance(method, Method), "models, statuses or method are something else")
    m = len(models)
    x = shelf.take_finite(f"{prefix}X", (None, None))
    require(x.size, "X is empty")
    rows = {name: shelf.take_finite(f"{prefix}{name}", (m, len(x))) for name in _ROWS[:-1]}
    rows["loo"] = shelf.take_any(f"{prefix}loo", (m, len(x)))
    theta, mixture = shelf.take_finite(f"{prefix}theta", (m, None)), shelf.take_finite(f"{prefix}mixture", (m,))
    require((mixture > 0).all() and abs(mixture.sum() - 1.0) < 1e-9, "weights are not positive, or do not sum to 1")
    evidence, weights = shelf.take_finite(f"{prefix}evidence", (m,)), weights_of(prefix, len(x), shelf)
    components = []
    for i, (node, status) in enumerate(zip(models, statuses, strict=True)):
        model = decode(node, "model")
        require(isinstance(model, Model), "a model is something else")
        if i == 0:
            check_shapes(model, x)
        require(i == 0 or _alike(model, components[0].model), "its models differ in form")
        sites = Natural(rows["sites.nu"][i], rows["sites.tau"][i])
        marginals = Normal(rows["marginals.mean"][i], rows["marginals.variance"][i])
        components.append(Solution(
            model, method, x, sites, marginals, float(evidence[i]), rows["loo"][i], ended(STATUS, status), weights,
        ))  # fmt: skip
    scalars = fields_of(content, _SCALARS)
    priors = dict(zip(scalars["names"], scalars["priors"], strict=True))
    status = ended(INTEGRATION, content["status"])
    return Integrated(tuple(components), mixture, theta, scalars["log_evidence"], priors, status)
