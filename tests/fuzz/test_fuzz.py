"""Adversarial problems: no NaN, no negative variance, no exception, an honest status; and nearly all converge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.campaign import read, share

import quantprop

TESTS = Path(__file__).resolve().parent.parent
SOURCE = Path(quantprop.__file__).resolve().parent.parent


def verdicts(path, count, menu, **environment):
    """Of a process of its own, which goes on in another one after a problem that hangs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS)]), **environment}
    command = [sys.executable, "-m", "fuzz.campaign", str(path), "--count", str(count), "--menu", menu]
    for _ in range(10):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            break
    assert ended.returncode == 0, ended.stderr
    return read(path)


def check(records, count):
    assert len({record["number"] for record in records}) == count
    faulty = [record for record in records if record["faults"] and record["resolvable"]]
    assert not faulty, "\n".join(map(json.dumps, faulty[:20]))
    silent = [record for record in records if any("remedy" in fault for fault in record["faults"])]
    assert not silent
    assert share(records, log_concave=True) >= 0.999, ended_otherwise(records, True)
    assert share(records, log_concave=False) >= 0.98, ended_otherwise(records, False)


def ended_otherwise(records, log_concave):
    some = [r for r in records if r["log_concave"] == log_concave and r["resolvable"] and r["reason"] != "converged"]
    return "\n".join(map(json.dumps, some[:20]))


def test_three_hundred_problems(tmp_path):
    """Compiled without optimisation: every program runs only some thirty times."""
    quick = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "OPENBLAS_NUM_THREADS": "1"}
    check(verdicts(tmp_path / "verdicts.jsonl", 300, "short", **quick), 300)


@pytest.mark.campaign
def test_ten_thousand_problems(tmp_path):
    check(verdicts(tmp_path / "verdicts.jsonl", 10_000, "whole"), 10_000)
