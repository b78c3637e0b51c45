"""Encodings of tables as JSON, as model files hold them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from quantprop.tables import dates
from quantprop.tables.encoding import TREATMENTS, Column, Encoding


def to_json(encoding: Encoding) -> dict[str, Any]:
    """An encoding as JSON; floats keep every digit."""
    return dataclasses.asdict(encoding)


def from_json(node: Any) -> Encoding:
    """An encoding from JSON, every part checked."""
    columns = tuple(_column_from_json(part) for part in node["columns"])
    encoding = Encoding(columns, tuple(map(float, node["centre"])), tuple(map(float, node["scale"])))
    names = [column.name for column in columns]
    if not names or len(set(names)) < len(names) or any(len(column.levels) == 1 for column in columns):
        raise ValueError("its columns do not describe a table")
    if not len(encoding.features) == len(encoding.centre) == len(encoding.scale):
        raise ValueError("its standardisation does not fit its columns")
    if not (np.isfinite(encoding.centre).all() and np.isfinite(encoding.scale).all() and min(encoding.scale) > 0):
        raise ValueError("its standardisation is not finite and positive")
    return encoding


def _column_from_json(part: Any) -> Column:
    """A column from JSON; files from before there were dates do not mention them."""
    levels, cycles = (tuple(map(_text, part.get(name, ()))) for name in ("levels", "cycles"))
    treatment = _text(part.get("treatment", TREATMENTS[0]))
    function = _text(part.get("function", ""))
    fill = None if part.get("fill") is None else float(part["fill"])
    column = Column(_text(part["name"]), levels, part.get("dates", False) is True, cycles, treatment, function, fill)
    if fill is not None and (levels or not math.isfinite(fill)):
        raise ValueError(f"missing values of column {column.name!r} have no finite value")
    if function != column.derived.function or (function and (levels or column.dates)):
        raise ValueError(f"column {column.name!r} is not derived from another")
    if treatment not in TREATMENTS or (treatment == "coded") > bool(levels):
        raise ValueError(f"a column cannot be {treatment}")
    if set(cycles) - set(dates.CYCLES) or (levels and column.dates) or (cycles and not column.dates):
        raise ValueError("a column is neither numeric nor text nor dates")
    return column


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
