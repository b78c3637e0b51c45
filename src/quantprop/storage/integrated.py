"""Posteriors with their hyperparameters integrated to files and back."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import jax
import numpy as np

from quantprop.inference.integrated import Integrated, IntegrationStatus
from quantprop.inference.results import WRITERS
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.storage.files import Shelf, write_whole
from quantprop.storage.fitted import (
    FLOAT,
    ROWS,
    STATUS,
    check_finite,
    check_shapes,
    ended,
    fields_of,
    inputs_and_rows,
    solution_of,
    weights_of,
)
from quantprop.storage.records import NAMES, Kind, decode, encode, encoded_fields, require, rules_of

KIND = "integrated"
INTEGRATION = Kind("integration", IntegrationStatus, rules_of(IntegrationStatus, FLOAT))
_SCALARS = {"log_evidence": FLOAT, "names": NAMES, "priors": NAMES}
_PARTS = ("models", "method", "statuses", "status", *_SCALARS)


def packed(integrated: Integrated, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    parts = integrated.components
    named = {name: np.stack([attrgetter(name)(part) for part in parts]) for name in ROWS}
    check_finite(named, integrated.status)
    named |= {"X": parts[0].X, "theta": integrated.theta, "mixture": integrated.weights,
              "evidence": np.array([part.log_evidence for part in parts])}  # fmt: skip
    if parts[0].weights is not None:
        named["solution.weights"] = parts[0].weights
    tensors |= {prefix + name: np.asarray(array, dtype=np.float64) for name, array in named.items()}
    return {
        "models": [encode(part.model, "model") for part in parts],
        "method": encode(parts[0].method, "method"),
        "statuses": [encoded_fields(STATUS, part.status, "status") for part in parts],
        "status": encoded_fields(INTEGRATION, integrated.status, "status"),
        "log_evidence": encode(float(integrated.log_evidence), "log_evidence"),
        "names": encode(tuple(integrated.priors), "names"),
        "priors": encode(tuple(integrated.priors.values()), "priors"),
    }


def _form(model: Model) -> Any:
    """Everything about a model except its numbers."""
    leaves, form = jax.tree.flatten(model)
    return form, [np.shape(leaf) for leaf in leaves]


def unpacked(content: Any, prefix: str, shelf: Shelf) -> Integrated:
    require(isinstance(content, dict) and set(content) == set(_PARTS), "an integrated model has wrong entries")
    models, statuses, method = content["models"], content["statuses"], decode(content["method"], "method")
    lists = isinstance(models, list) and isinstance(statuses, list) and len(models) == len(statuses) > 0
    require(lists and isinstance(method, Method), "models, statuses or method have the wrong type")
    m = len(models)
    x, rows = inputs_and_rows(prefix, shelf, m)
    theta, mixture = shelf.take_finite(f"{prefix}theta", (m, None)), shelf.take_finite(f"{prefix}mixture", (m,))
    require((mixture > 0).all() and abs(mixture.sum() - 1.0) < 1e-9, "weights are not positive, or do not sum to 1")
    evidence, weights = shelf.take_finite(f"{prefix}evidence", (m,)), weights_of(prefix, len(x), shelf)
    models = [decode(node, "model") for node in models]
    require(all(isinstance(model, Model) for model in models), "a model has the wrong type")
    check_shapes(models[0], x)
    require(all(_form(model) == _form(models[0]) for model in models), "its models differ in structure")
    ends = [ended(STATUS, status) for status in statuses]
    components = tuple(
        solution_of(models[i], method, x, [row[i] for row in rows], float(evidence[i]), ends[i], weights)
        for i in range(m)
    )
    scalars = fields_of(content, _SCALARS)
    priors = dict(zip(scalars["names"], scalars["priors"], strict=True))
    status = ended(INTEGRATION, content["status"])
    return Integrated(components, mixture, theta, scalars["log_evidence"], priors, status)


WRITERS[Integrated] = partial(write_whole, KIND, packed)
