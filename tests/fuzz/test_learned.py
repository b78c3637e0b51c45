"""Learned estimators on adversarial data: no prediction that is no number, and no silence where learning fails."""

from __future__ import annotations

import pytest
from fuzz.learned import PAIRS, faults, fit_of

FITS = 2_000


def check(numbers):
    found = {number: (fit_of(number).about, faults(fit_of(number))) for number in numbers}
    assert not {number: fault for number, fault in found.items() if fault[1]}


def test_ten_fits():
    """Of two pairs of likelihood and method, in two features: few programs."""
    some = [number for number in range(1_000) if number % len(PAIRS) in (0, 1)]
    plain = [
        number for number in some if "d=2" in (about := fit_of(number).about) and "kernel None, mean zero" in about
    ]
    assert len(plain) >= 10
    check(plain[:10])


@pytest.mark.campaign
@pytest.mark.parametrize("pair", range(len(PAIRS)), ids=[" ".join(pair) for pair in PAIRS])
def test_two_thousand_fits(pair):
    check(range(pair, FITS, len(PAIRS)))
