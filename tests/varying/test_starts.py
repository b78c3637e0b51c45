"""Where learning starts if a parameter varies, and what it says if f is lost."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from quantprop import GaussianProcessRegressor, load

SETTINGS = {"mean": "constant", "method": "ep", "normalize_y": True}


def learned(x, y, varying=True):
    return GaussianProcessRegressor("se(0)", varying={"scale": "se(0)"} if varying else None, **SETTINGS).fit(x, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(10, 18))])
def test_it_is_not_below_the_constant_by_more_than_the_prior_of_its_variance(seed):
    """A constant scale is the limit of a small variance, where the log prior density is above −0.7: few
    rows of a bump.
    """
    x = np.linspace(0.0, 6.0, 10)[:, None]
    y = 2.0 * np.exp(-4.0 * (x[:, 0] - 3.0) ** 2) + 0.1 * np.random.default_rng(seed).standard_normal(10)
    varying, constant = learned(x, y), learned(x, y, varying=False)
    assert varying.fitted_.converged
    assert varying.fitted_.objective_value >= constant.fitted_.objective_value - 0.7


def test_a_function_that_is_lost_to_the_scale_is_named(tmp_path):
    """Signs that alternate and grow: a rough function, or noise whose scale grows."""
    x = np.linspace(0.0, 6.0, 14)[:, None]
    y = np.where(np.arange(14) % 2, 1.0, -1.0) * x[:, 0] / 6.0 + 0.1 * np.random.default_rng(5).standard_normal(14)
    with pytest.warns(ConvergenceWarning, match="f explains almost nothing that it explains with a constant scale"):
        model = learned(x, y)
    assert "compare with a fit without varying=" in str(model.fitted_.status)
    assert len({step.restart for step in model.fitted_.trace}) == 2  # again, from f of the constant scale
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").fitted_.status.note == model.fitted_.status.note


def test_nothing_is_said_where_both_functions_are_there():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 6.0, 60))[:, None]
    y = np.sin(1.5 * x[:, 0]) + 0.05 * np.exp(0.4 * x[:, 0]) * rng.standard_normal(60)
    model = learned(x, y)
    assert model.fitted_.status.note == ""
    assert model.fitted_.objective_value > learned(x, y, varying=False).fitted_.objective_value + 5.0
