"""Learning from adversarial data: finite numbers, an honest end, and predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fuzz.problems import Menu, problem

from quantprop import GaussianProcessClassifier, fit

MENU = Menu((("probit", "laplace"),), kernels=("se",), features=(2,), sizes=(32,), more_sizes=(32,), most_variance=9e5)


def check(number, objective):
    one = problem(number, MENU)
    fitted = fit(one.model, one.x, one.y, "laplace", objective, max_evaluations=40, **one.options)
    solution, latent = fitted.solution, fitted.solution.predict(one.new)
    numbers = [fitted.theta, [fitted.objective_value], solution.marginals.mean, latent.mean, latent.variance]
    assert np.isfinite(np.concatenate(numbers)).all(), (number, str(fitted.status))
    assert (latent.variance >= 0).all(), number
    assert fitted.converged or fitted.status.remedy or solution.status.remedy, number
    return fitted


@pytest.mark.filterwarnings("ignore")
def test_twelve_fits():
    ended = [check(number, "evidence") for number in range(12)]
    assert sum(fitted.converged for fitted in ended) >= 10, [str(f.status) for f in ended if not f.converged]


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
def test_five_hundred_fits():
    ended = [check(number, "loo" if number % 5 == 0 else "evidence") for number in range(500)]
    assert np.mean([fitted.converged for fitted in ended]) >= 0.8


def test_four_classifiers():
    tried = 0
    for number in range(40):
        one = problem(number, MENU)
        if len(set(one.y)) == 2 and tried < 4:
            tried += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = GaussianProcessClassifier(method="laplace").fit(one.x, one.y)
                probability = model.predict_proba(one.new)
            assert np.isfinite(probability).all(), number
            np.testing.assert_allclose(probability.sum(1), 1.0)
            assert np.isfinite(model.log_marginal_likelihood_value_), number
    assert tried == 4
