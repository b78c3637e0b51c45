"""How close approximate processes are to exact inference on some of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from quantprop import (
    Dense,
    GaussianProcessRegressor,
    Inducing,
    Model,
    Neighbours,
    closeness,
    infer,
    kernels,
    likelihoods,
)
from quantprop.inference.closeness import _rows

KERNEL = kernels.SquaredExponential(1.3, 0.7)
POINTS = np.linspace(-2.0, 2.0, 4)[:, None]


@pytest.fixture(scope="module")
def solution():
    rng = np.random.default_rng(5)
    x = rng.uniform(-2.0, 2.0, (60, 1))
    y = np.sin(3.0 * x[:, 0]) + 0.3 * rng.normal(size=60)
    return infer(Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(POINTS)), x, y, "ep")


def gram(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return 1.3 * np.exp(-0.5 * ((x - z.T) / 0.7) ** 2)


def test_both_evidences_and_densities_are_those_of_gaussian_algebra(solution):
    found = closeness(solution, rows=1000)
    x, y = solution.X, solution.data.y
    some, ahead = _rows(solution, 1000, 0)
    assert found.rows == 40
    through = gram(x, POINTS) @ np.linalg.solve(gram(POINTS, POINTS), gram(POINTS, x))
    lowrank = through + np.diag(np.diag(gram(x, x) - through))
    for k, evidence, density in ((lowrank, found.evidence, found.density),
                                 (gram(x, x), found.exact_evidence, found.exact_density)):  # fmt: skip
        noisy = k[np.ix_(some, some)] + 0.09 * np.eye(40)
        assert evidence == pytest.approx(multivariate_normal(np.zeros(40), noisy).logpdf(y[some]), abs=1e-5)
        weights = np.linalg.solve(noisy, k[np.ix_(some, ahead)])
        mean, variance = weights.T @ y[some], np.diag(k)[ahead] - np.sum(weights * k[np.ix_(some, ahead)], axis=0)
        expected = norm(mean, np.sqrt(variance + 0.09)).logpdf(y[ahead]).mean()
        assert density == pytest.approx(expected, abs=1e-5)


def test_rows_without_weight_do_not_count_and_points_need_as_many_rows(solution):
    weights = np.where(np.arange(60) % 2, 2.0, 0.0)
    model, y = Model(KERNEL, likelihoods.Gaussian(0.3), process=Neighbours(20)), solution.data.y
    found = closeness(infer(model, solution.X, y, "ep", weights=weights), rows=10)
    assert found.rows == 10
    assert found.evidence == pytest.approx(found.exact_evidence, abs=1e-8)
    assert found.density == pytest.approx(found.exact_density, abs=1e-8)
    assert closeness(solution, rows=1).rows == 4


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (Dense(), "solution must have process=Inducing.*got Dense"),
        (Inducing(30), "at most 20 inducing points; got 30"),
    ],
)
def test_what_cannot_be_compared_is_refused(solution, process, words, monkeypatch):
    monkeypatch.setattr("quantprop.inference.closeness.MAX_POINTS", 20)
    other = infer(Model(KERNEL, likelihoods.Gaussian(0.3), process=process), solution.X, solution.data.y, "ep")
    with pytest.raises(ValueError, match=words):
        closeness(other)


def test_rows_are_around_a_few_places():
    x = np.random.default_rng(2).uniform(size=(2000, 2))
    solution = infer(Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(5)), x, np.zeros(2000), "ep")
    some, held = _rows(solution, 80, seed=1)
    assert len(set(some) | set(held)) == 120
    assert len(some) == 80
    near = np.sort(np.linalg.norm(x[held][:, None] - x[some], axis=2), axis=1)[:, 0]
    everywhere = np.sort(np.linalg.norm(x[held][:, None] - x, axis=2), axis=1)[:, 1]
    assert np.median(near) < 2.0 * np.median(everywhere)  # as close as among all rows; apart, 5 times as far


def test_the_summary_of_an_approximation_has_it_and_computes_it_once(solution, monkeypatch):
    model = GaussianProcessRegressor(KERNEL, alpha=0.09, optimizer=None, process=Inducing(POINTS), method="ep")
    said = model.fit(solution.X, solution.data.y).summary()
    monkeypatch.setattr("quantprop.inference.closeness.infer", None)  # not called a second time
    known = said.record["models"][0]["closeness"]
    assert known == vars(closeness(model.solution_))
    assert f"process {model.solution_.model.process!r}: on 40 rows log evidence {known['evidence']:.2f} (exact" in repr(
        said
    )
