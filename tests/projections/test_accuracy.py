"""Both projections against values in ball arithmetic (tests/oracles/README.md), for every likelihood of the library."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_rule import renewals

from quantprop import likelihoods

FILE = Path(__file__).parents[1] / "oracles" / "projection_reference.json.gz"
RECORDS = json.loads(gzip.decompress(FILE.read_bytes()))
TOLERANCE = 1e-9
FIRST_SIX = {"gaussian", "probit", "logit", "heaviside", "poisson", "student-t"}


def class_of(name: str) -> type | None:
    """The library's class for a name of the file: student-t is StudentT."""
    return getattr(likelihoods, "".join(part.capitalize() for part in name.split("-")), None)


def cases() -> dict[str, list[dict]]:
    """Records by likelihood and link, of the likelihoods that the library has."""
    found: dict[str, list[dict]] = {}
    for record in RECORDS:
        if class_of(record["likelihood"]) is not None:
            link = record["params"].get("link")
            found.setdefault(record["likelihood"] + (f", {link}" if link else ""), []).append(record)
    return found


CASES = cases()


def column(records: list[dict], key: str, default: Any = None) -> np.ndarray:
    return np.array([record.get(key, default) for record in records], dtype=float)


def projected(records: list[dict]) -> dict[str, np.ndarray]:
    """Moments of all records, in their order; parameters may differ from one to the next."""
    by_parameters: dict[str, list[int]] = {}
    for i, record in enumerate(records):
        by_parameters.setdefault(json.dumps(record["params"]), []).append(i)
    fields: dict[str, np.ndarray] = {}
    for parameters, rows in by_parameters.items():
        some = [records[i] for i in rows]
        kind = class_of(some[0]["likelihood"])
        assert kind is not None
        likelihood = kind(**json.loads(parameters))
        scaled = {name: column(some, name, 1.0) for name in likelihood.scaled_by}
        out = renewals(likelihood, column(some, "y"), column(some, "mean"), column(some, "variance"), **scaled)
        for name, moments in (("kl", out.kl), ("w2", out.w2)):
            for key in ("log_normalizer", "shift", "ratio", "shrink"):
                fields.setdefault(f"{name} {key}", np.full(len(records), np.nan))[rows] = getattr(moments, key)
    return fields


def test_the_file_and_the_library_have_the_first_likelihoods_in_common():
    assert {name.split(",")[0] for name in CASES} >= FIRST_SIX


# By default one of each way to the moments: closed forms, few nodes at one peak, panels around poles.
BY_DEFAULT = {"probit", "poisson, square", "student-t"}  # the others: make test-all


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in BY_DEFAULT else pytest.mark.campaign) for case in CASES]
)
def test_moments_and_quantile_projections_agree_with_the_reference(case):
    records = CASES[case]
    assert len(records) >= 100
    got = projected(records)
    variance, sd = column(records, "variance"), column(records, "tilted_sd")
    log_z, mean = column(records, "log_z"), column(records, "tilted_mean")
    errors = {}
    for name, key in (("kl", "tilted_sd"), ("w2", "w2_sd")):
        errors[f"{name} log_z"] = (got[f"{name} log_normalizer"] - log_z) / (1.0 + np.abs(log_z))
        shift = got[f"{name} shift"]
        # As a difference from the cavity, and as a mean, which is known to the last digit of float64 at best.
        errors[f"{name} shift"] = (shift - column(records, "mean_minus_cavity_mean")) / sd
        off = np.abs(column(records, "mean") + shift - mean) - np.spacing(np.abs(mean))
        errors[f"{name} mean"] = np.maximum(off, 0.0) / sd
        errors[f"{name} sd"] = np.sqrt(got[f"{name} ratio"] * variance) / column(records, key) - 1.0
        errors[f"{name} shrink"] = got[f"{name} shrink"] - column(records, f"shrink_{name}")
    wrong = []
    for name, error in errors.items():
        for i in np.flatnonzero(~(np.abs(error) <= TOLERANCE)):
            r = records[i]
            where = f"{r['params']} y = {r['y']}, cavity mean {r['mean']:.6g}, sd {r['variance'] ** 0.5:.6g}"
            wrong.append(f"{name} off by {error[i]:.1e} at record {i}: {where}")
    assert not wrong, f"{case}: {len(wrong)} errors above {TOLERANCE}:\n" + "\n".join(wrong[:20])
