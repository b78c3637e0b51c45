"""Three classes of a table as one model: forecasts, files, what is said of rows, and pictures."""

import matplotlib as mpl
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from quantprop import comparison, infer, plots, tables
from quantprop.comparison.choice import Candidate, choose
from quantprop.estimators import insight
from quantprop.report.figures import pictures

mpl.use("Agg")

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (36, 2))
NAMES = np.array(["ash", "birch", "cedar"])
Y = NAMES[np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + RNG.normal(size=(36, 3)), axis=1)]
TABLE = tables.from_columns({"a": X[:, 0], "b": X[:, 1], "tree": Y}, "trees")
PROBLEM = tables.problem(TABLE, "tree", "multinomial-probit")


@pytest.fixture(scope="module")
def model():
    return PROBLEM.fit("laplace")


def test_forecasts_are_those_of_the_joint_model(model, tmp_path):
    solution = model.fits[0].solution
    again = infer(solution.model, solution.X, solution.y, "laplace", tol=1e-10)
    found = model.forecast(TABLE)
    p = np.column_stack([found[f"p({name})"] for name in NAMES])
    np.testing.assert_allclose(p, again.predict_y(solution.X).probabilities, atol=1e-6)
    np.testing.assert_array_equal(found["tree"], NAMES[p.argmax(axis=1)])
    model.save(tmp_path / "model.safetensors")
    back = tables.load(tmp_path / "model.safetensors").forecast(TABLE)
    np.testing.assert_allclose(np.column_stack([back[f"p({name})"] for name in NAMES]), p, atol=1e-12)


def test_influence_is_a_divergence_of_all_functions(model):
    solution, i = model.fits[0].solution, 3
    own, other = (multivariate_normal(at.mean[i], at.covariance[i]) for at in (solution.marginals, solution.left_out))
    draws = own.rvs(40_000, random_state=0)
    logs = own.logpdf(draws) - other.logpdf(draws)
    assert insight.influence(model)[i] == pytest.approx(logs.mean(), abs=4.0 * logs.std() / 200.0)
    np.testing.assert_array_equal(insight.surprise(model), -solution.loo)
    assert "several classes jointly" in insight.trust(solution).refused


def test_it_can_stand_beside_other_candidates(model):
    """Of every row the variance of log p(y | f), here over other draws; p(y | f) = E_u Π_j Φ(u + f_y − f_j)."""
    found, solution = choose([Candidate("joint", PROBLEM)], "laplace").standings[0], model.fits[0].solution
    np.testing.assert_allclose(found.loo, solution.loo, atol=1e-6)
    rng, spread, (u, weights) = np.random.default_rng(9), [], np.polynomial.hermite_e.hermegauss(60)
    for mean, covariance, y in zip(solution.marginals.mean, solution.marginals.covariance, solution.y, strict=True):
        f = rng.multivariate_normal(mean, covariance, 300)
        ahead = f[:, [y]] - np.delete(f, y, axis=1)
        p = np.prod(ndtr(u[:, None, None] + ahead), axis=2).T @ weights / weights.sum()
        spread.append(np.var(np.log(p)))
    clear = np.abs(np.log(np.array(spread) / 0.4)) > 0.5
    np.testing.assert_array_equal(found.unreliable[clear], (np.array(spread) > 0.4)[clear])


def test_weights_are_refused_by_name():
    weighted = tables.from_columns({"a": X[:, 0], "w": np.ones(36), "tree": Y}, "trees")
    with pytest.raises(tables.RoleError, match="weights are not supported with multinomial-probit"):
        tables.problem(weighted, "tree", "multinomial-probit", roles=tables.Roles(weights="w"))


def test_pictures_of_three_classes(model):
    ax = plots.class_regions(model.estimator, model.fits[0].solution.X, Y, points=12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(NAMES)
    image = np.asarray(ax.images[0].get_array())
    assert image.shape == (12, 12, 3)
    corner = model.estimator.predict_proba([[*(end[0] for end in (ax.get_xlim(), ax.get_ylim()))]])[0]
    colours = np.array([mpl.colors.to_rgb(c) for c in (plots.BLUE, plots.ORANGE, plots.GREEN)])
    faded = 1.0 - (0.15 + 0.65 * (corner.max() - 1 / 3) / (2 / 3)) * (1.0 - colours[corner.argmax()])
    np.testing.assert_allclose(image[0, 0], faded, atol=1e-3)
    with pytest.raises(ValueError, match="at most 8 classes"):
        plots.class_reliability(np.full((3, 9), 1 / 9), [0, 1, 2])
    with pytest.raises(ValueError, match="outcome must hold 3"):
        plots.class_reliability(np.full((3, 2), 0.5), [0, 1, 2])
    with pytest.raises(TypeError, match="a fitted classifier"):
        plots.class_regions(1, X, Y)


@pytest.mark.campaign
def test_a_comparison_has_its_pictures():
    found = comparison.compare(PROBLEM, ("ep", "qp"), comparison.folds(PROBLEM, 2))
    captions = [picture.caption for picture in pictures(found)]
    assert "EP: the likeliest tree, paler where it is less certain." in captions
    assert "EP: reliability of each tree, left-out rows." in captions
    assert found.posteriors == ()
