"""Stacks of models to files and back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from quantprop.inference.results import WRITERS
from quantprop.inference.stacked import Member, Stack
from quantprop.storage import fitted
from quantprop.storage.files import Shelf, write_whole
from quantprop.storage.records import NAMES, encode, require

KIND = "stack"
_NAMES = {"names": NAMES, "left_out": NAMES, "reasons": NAMES}
_NUMBERS = ("weight", "score", "learned")


def packed(stack: Stack, prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    for name in _NUMBERS:
        tensors[f"{prefix}stack.{name}"] = np.array([getattr(one, name) for one in stack.members], np.float64)
    tensors[f"{prefix}stack.loo"] = np.stack([one.loo for one in stack.members])
    return {
        "members": [fitted.packed(one.fitted, f"{prefix}{k}.", tensors) for k, one in enumerate(stack.members)],
        "names": encode(tuple(one.name for one in stack.members), "names"),
        "left_out": encode(tuple(stack.left_out), "left_out"),
        "reasons": encode(tuple(stack.left_out.values()), "reasons"),
    }


def unpacked(content: Any, prefix: str, shelf: Shelf) -> Stack:
    require(isinstance(content, dict) and set(content) == {"members", *_NAMES}, "a stack has wrong entries")
    require(isinstance(content["members"], list) and content["members"], "members have the wrong type")
    found = [fitted.unpacked(one, f"{prefix}{k}.", shelf) for k, one in enumerate(content["members"])]
    m, names = len(found), fitted.fields_of(content, _NAMES)
    alike = len(names["names"]) == m and len(names["left_out"]) == len(names["reasons"])
    require(alike, "names do not fit the members")
    weight, score, learned = (shelf.take_finite(f"{prefix}stack.{name}", (m,)) for name in _NUMBERS)
    require((weight > 0).all() and abs(weight.sum() - 1.0) < 1e-9, "weights are not positive, or do not sum to 1")
    loo = shelf.take_any(f"{prefix}stack.loo", (m, None))
    require(loo.dtype == np.float64, "stack.loo holds no floats")
    rows = zip(names["names"], found, weight.tolist(), score.tolist(), learned.tolist(), loo, strict=True)
    left_out = dict(zip(names["left_out"], names["reasons"], strict=True))
    return Stack(tuple(Member(*row) for row in rows), left_out)


WRITERS[Stack] = partial(write_whole, KIND, packed)
