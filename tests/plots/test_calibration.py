"""Pictures of calibration: the numbers that are drawn, by hand and by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from plots.drawn import heights, predictive
from scipy.stats import binom, norm, poisson

from quantprop import likelihoods, plots


@pytest.mark.parametrize("coding", [lambda y: y, lambda y: 2 * y - 1, lambda y: y > 0])
def test_reliability_by_hand(coding):
    p = np.array([0.05, 0.15, 0.3, 0.6, 0.7, 1.0])
    ax = plots.reliability(p, coding(np.array([0, 1, 0, 1, 1, 1])), bins=4)
    points = ax.containers[0].lines[0].get_xydata()  # [0, ¼): 0.05, 0.15; [¼, ½): 0.3; [½, ¾): 0.6, 0.7; [¾, 1]: 1
    np.testing.assert_allclose(points, [[0.1, 0.5], [0.3, 0.0], [0.65, 1.0], [1.0, 1.0]])
    assert [text.get_text() for text in ax.texts] == ["2", "1", "2", "1"]
    bars = ax.containers[0].lines[2][0].get_segments()
    for (_, share), n, bar in zip(points, (2, 1, 2, 1), bars, strict=True):
        for end in bar[:, 1]:  # Wilson: the rates p with |share − p| = z √(p(1 − p)/n)
            at_edge = end in (0.0, 1.0)
            assert at_edge or abs(share - end) == pytest.approx(norm.ppf(0.95) * np.sqrt(end * (1.0 - end) / n))


@pytest.mark.parametrize(
    ("probability", "outcome", "more", "message"),
    [
        ([0.5, 1.5], [0, 1], {}, r"lie in \[0, 1\]; got 1.5"),
        ([0.5], [0, 1], {}, "the same length, at least 1; got 1 and 2"),
        ([0.5], [2], {}, "0 and 1, or −1 and 1"),
        ([0.5], [1], {"bins": 0}, "at least 1; got 0"),
        ([np.nan], [1], {}, "NaN"),
    ],
)
def test_reliability_refuses(probability, outcome, more, message):
    with pytest.raises(ValueError, match=message):
        plots.reliability(probability, outcome, **more)


def test_pit_of_numbers_is_their_histogram():
    u = np.array([0.0, 0.1, 0.25, 0.3, 0.74, 0.75, 1.0, 1.0])
    ax = plots.pit(u, bins=4)
    np.testing.assert_allclose(heights(ax), [1.0, 1.0, 0.0 + 0.5, 1.5])
    edges = [bar.get_x() for bar in ax.containers[0]]
    np.testing.assert_allclose(edges, [0.0, 0.25, 0.5, 0.75])
    ends = binom.ppf([0.05, 0.95], 8, 0.25) / 8 * 4
    box = ax.patches[-1].get_bbox()
    np.testing.assert_allclose([box.y0, box.y1], ends)


def test_pit_of_a_continuous_predictive():
    y = np.array([-0.4, 0.1, 2.0])
    ax = plots.pit(predictive(likelihoods.Gaussian(0.5), [0.0, 0.3, 1.0], 0.75), y, bins=5)
    expected = np.histogram(norm.cdf(y, [0.0, 0.3, 1.0], 1.0), np.linspace(0, 1, 6))[0] * 5 / 3
    np.testing.assert_allclose(heights(ax), expected)


def test_pit_of_counts_by_hand():
    # One count with P(Y < y) = 0.2 and P(Y ≤ y) = 0.6: density 1/0.4 between, so of the halves 0.3/0.4 and 0.1/0.4.
    ax = plots.pit([[0.2, 0.6]], bins=2)
    np.testing.assert_allclose(heights(ax), [2 * 0.75, 2 * 0.25])
    # A second one at [0, 1] is flat; a third too improbable to have a width sits at its place, here the end.
    ax = plots.pit([[0.2, 0.6], [0.0, 1.0], [1.0, 1.0]], bins=2)
    np.testing.assert_allclose(heights(ax), np.array([1.5 + 1.0 + 0.0, 0.5 + 1.0 + 2.0]) / 3)


def test_pit_of_poisson_counts():
    """Czado, Gneiting and Held (2009), section 2.1, written as a loop."""
    rates, y = np.array([0.7, 2.0, 5.0]), np.array([0, 3, 4])
    edges, mean = np.linspace(0.0, 1.0, 6), np.zeros(6)
    for rate, count in zip(rates, y, strict=True):
        below, at = poisson.cdf(count - 1, rate), poisson.cdf(count, rate)
        mean += [0.0 if u <= below else 1.0 if u >= at else (u - below) / (at - below) for u in edges]
    ax = plots.pit(predictive(likelihoods.Poisson(), np.log(rates)), y, bins=5)
    np.testing.assert_allclose(heights(ax), 5 * np.diff(mean / 3), atol=1e-6)
    assert heights(ax).sum() == pytest.approx(5.0)


def test_pit_of_two_classes_takes_either_coding():
    two = predictive(likelihoods.Probit(), [0.0, 1.0], 1.0)
    low = 1.0 - norm.cdf(1.0 / np.sqrt(2.0))  # P(y = −1) of the second
    expected = heights(plots.pit([[0.0, 0.5], [low, 1.0]], bins=4))
    for y in ([-1, 1], [0, 1]):
        np.testing.assert_allclose(heights(plots.pit(two, y, bins=4)), expected)


@pytest.mark.parametrize(
    ("given", "y", "message"),
    [
        ([0.5, 1.1], None, r"lie in \[0, 1\]"),
        ([[0.5, 0.4]], None, "not above"),
        ([[0.1, 0.2, 0.3]], None, r"shape \(n,\), or \(n, 2\)"),
        (predictive(likelihoods.Gaussian(), [0.0]), None, "y is needed"),
        (predictive(likelihoods.Censored(), [0.0]), [0.0], "no single y"),
        (predictive(likelihoods.Poisson(), [0.0]), [0.5], "outside the support"),
    ],
)
def test_pit_refuses(given, y, message):
    with pytest.raises(ValueError, match=message):
        plots.pit(given, y)


def test_rootogram_hangs_from_the_expected_counts():
    rates, y = np.array([0.7, 2.0, 5.0, 2.0]), np.array([0, 3, 3, 1])
    ax = plots.rootogram(predictive(likelihoods.Poisson(), np.log(rates)), y)
    expected = poisson.pmf(np.arange(4)[:, None], rates).sum(axis=1)
    observed = np.array([1.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([range(4), np.sqrt(expected)]), rtol=1e-6)
    np.testing.assert_allclose(heights(ax), np.sqrt(observed))
    feet = [bar.get_y() for bar in ax.containers[0]]
    np.testing.assert_allclose(feet, np.sqrt(expected) - np.sqrt(observed), atol=1e-6)
    assert ax.get_xlabel() == f"count (beyond 3: {4 - expected.sum():.1f} expected, 0 observed)"


def test_rootogram_stops_where_it_is_told():
    ax = plots.rootogram(predictive(likelihoods.Poisson(), np.zeros(4)), [0, 3, 3, 1], most=1)
    np.testing.assert_allclose(heights(ax), [1.0, 1.0])
    assert ax.get_xlabel().endswith("expected, 2 observed)")


def test_rootogram_refuses():
    with pytest.raises(ValueError, match="gaussian likelihood has none"):
        plots.rootogram(predictive(likelihoods.Gaussian(), [0.0]), [0.0])
    with pytest.raises(ValueError, match="got 5000: pass most="):
        plots.rootogram(predictive(likelihoods.Poisson(), [0.0]), [5000])
    with pytest.raises(TypeError, match=r"of predict_y\); got list"):
        plots.rootogram([1.0], [1.0])  # type: ignore[arg-type]
