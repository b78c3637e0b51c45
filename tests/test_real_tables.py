"""Real tables on the command line: fit, explain, compare two kernels, a page with a panel for each term; the effects
against maximum likelihood by other programs.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from real_tables import DATA, KERNELS, call, compared, fitted
from scipy.optimize import minimize
from statsmodels.miscmodels.ordinal_model import OrderedModel

from quantprop import tables


def poisson(table):
    """Poisson regression: a level against another of group and of age, and standard errors."""
    factors = pd.get_dummies(table[["Group", "Age", "District"]].astype(str), drop_first=True, dtype=float)
    found = sm.GLM(table["Claims"], sm.add_constant(factors), sm.families.Poisson(), exposure=table["Holders"]).fit()
    names = ["Group_>2l", "Age_>35"]
    return found.params[names], found.bse[names]


def weibull(table):
    """Maximum likelihood of log time = β'x + scale ε with censoring: the slope, and f at the average row."""
    karno = table["karno"] - table["karno"].mean()
    x = np.column_stack([karno, pd.get_dummies(table["celltype"], dtype=float)])
    log_time, died = np.log(table["time"]), table["status"] == 1

    def loss(theta):
        z = (log_time - x @ theta[:-1]) / np.exp(theta[-1])
        return -np.sum(died * (z - theta[-1]) - np.exp(z))

    found = minimize(loss, np.r_[0.03, np.full(4, 5.0), 0.0], method="BFGS")
    wanted = np.array([[1, 0, 0, 0, 0, 0], [0, 0.25, 0.25, 0.25, 0.25, 0]])
    return wanted @ found.x, np.sqrt(np.diag(wanted @ found.hess_inv @ wanted.T))


def probit(table):
    """Ordered probit regression with an effect of every judge."""
    x = pd.get_dummies(table[["temp", "contact", "judge"]].astype({"judge": str}), drop_first=True, dtype=float)
    found = OrderedModel(table["rating"], x, distr="probit").fit(method="bfgs", disp=False)
    names = ["temp_warm", "contact_yes"]
    return found.params[names], found.bse[names]


def of_groups(said, model, table):
    """Differences between levels, from the posteriors of the terms."""
    solution = tables.load(model).fits[0].solution
    terms = solution.terms(solution.X)

    def less(column, one, other):
        mean = terms[f"group({column})"].mean
        return mean[table[column] == one][0] - mean[table[column] == other][0]

    return [less("Group", ">2l", "1-1.5l"), less("Age", ">35", "25-29")]


def of_lines(said, model, table):
    """What is said of linear effects."""
    return [effect["estimate"] for effect in said["models"][0]["fixed_effects"].values()]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "by_others", "effects"),
    [
        ("insurance", poisson, of_groups),
        ("veteran", weibull, of_lines),
        ("wine", probit, of_lines),
    ],
)
def test_a_real_table(name, by_others, effects, tmp_path):
    model, said = fitted(name, tmp_path)
    table = pd.read_csv(DATA / f"{name}.csv")
    assert said["converged"]
    truth, error = map(np.asarray, by_others(table))
    assert np.all(np.abs(effects(said, model, table) - truth) < error)  # priors shrink by less than a standard error

    explained = call("explain", model)
    for term, share in said["models"][0]["shares"].items():
        assert f"  {term:<28} {100 * share:.1f} %" in explained
    assert f"leave-one-out {said['loo']:.4f} per row" in explained

    page, choice = compared(name, tmp_path)
    standings = {one["model"]: one for one in choice["models"]}
    assert set(standings) == set(KERNELS[name])
    best, other = choice["models"]
    assert best["less_best"] == 0.0
    assert other["less_best"] == pytest.approx(other["loo"] - best["loo"])
    densities = table["status"].sum() if name == "veteran" else 0  # in the model's unit; censored times have none
    expected = said["loo"] * said["rows"] - densities * np.log(tables.load(model).units.scale)
    assert standings[KERNELS[name][0]]["loo"] == pytest.approx(expected, rel=1e-4)
    html = page.read_text(encoding="utf-8")
    assert html.count("<figure>") == best["model"].count("+") + 1
    assert choice["conclusion"].split(". ")[0] in html
