"""Adversarial problems held by inducing points: no NaN, no negative variance, and statuses that are true."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from fuzz.problems import WHOLE_MENU, Menu, Problem, problem
from fuzz.verdicts import verdict

from quantprop import Inducing

POINTS = 6  # or one, where X has fewer different rows
PARTS = 20
OVERFLOW = ("log_evidence: 1 of 1",)  # minus infinity, with a status that says what to do


def held_by_points(number: int, menu: Menu) -> Problem:
    """The problem of a number, its rows in parallel."""
    of = problem(number, menu)
    points = POINTS if len(np.unique(of.x, axis=0)) >= POINTS else 1
    return replace(of, model=replace(of.model, process=Inducing(points, seed=number)), schedule="parallel")


def bound_overflows(of: Problem) -> bool:
    """Whether the bound is below all doubles: it has E exp(f) in it, and what the points leave of the prior's variance
    stays in that of q(f), whatever its sites.
    """
    if of.method != "vb" or not of.family.endswith(", exp"):
        return False
    kernel = of.model.plain_kernel
    z = of.model.process.settled(kernel, of.x).points
    with jax.enable_x64(True):
        across, own = np.asarray(kernel.cross(of.x, z)), np.asarray(kernel.diagonal(of.x))
        explained = across @ np.linalg.pinv(np.asarray(kernel.gram(z)), hermitian=True) @ across.T
    return bool(np.max(own - np.diagonal(explained)) > 2.0 * np.log(np.finfo(float).max))


def faults(numbers: range, menu: Menu) -> list[str]:
    """Of problems that doubles can solve; a status without a remedy is one anywhere."""
    found = [(one, verdict(one)) for one in (held_by_points(number, menu) for number in numbers)]
    bad = [one for given, one in found if one.faults and (one.resolvable or "remedy" in str(one.faults))
           and not (bound_overflows(given) and one.faults == OVERFLOW)]  # fmt: skip
    return [f"{one.number}: {one.family}, {one.method}, {one.about}: {one.reason} {one.faults}" for one in bad]


@pytest.mark.campaign
def test_half_a_dozen_problems():
    menu = Menu((("probit", "ep"),), ("se",), (2,), (32,), (32,), 1e5)
    assert not faults(range(6), menu)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(PARTS))
def test_five_hundred_problems(part):
    assert not faults(range(part, 500, PARTS), WHOLE_MENU)
