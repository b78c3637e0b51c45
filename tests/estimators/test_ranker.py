"""Preferences: differences of a process against dense formulas, utilities, win probabilities, contradictions, files."""

import itertools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import ndtr
from scipy.stats import kendalltau, norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import PairwiseKernel
from typer.testing import CliRunner

from quantprop import GaussianProcessRanker, Model, Parameter, active, kernels, likelihoods, load
from quantprop.cli import app
from quantprop.estimators.ranker import informative

RNG = np.random.default_rng(0)
ITEMS, COMPARED = 12, 30
X = RNG.normal(size=(ITEMS, 2))
PAIRS = np.array([RNG.choice(ITEMS, 2, replace=False) for _ in range(COMPARED)])
PAIRS = np.where(
    (X[PAIRS[:, 0], 0] > X[PAIRS[:, 1], 0])[:, None] | (RNG.random((COMPARED, 1)) < 0.2), PAIRS, PAIRS[:, ::-1]
)
ROWS = np.hstack([X[PAIRS[:, 0]], X[PAIRS[:, 1]]])
D = np.eye(ITEMS)[PAIRS[:, 0]] - np.eye(ITEMS)[PAIRS[:, 1]]
KERNEL = kernels.SquaredExponential(1.5, 1.1)
K = 1.5 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / 1.1**2)


@pytest.mark.parametrize(
    "kernel",
    [KERNEL, kernels.Linear(0.7).on(1) + kernels.SquaredExponential().on(0) * kernels.Constant(2.0)],
    ids=["plain", "terms"],
)
def test_covariances_of_differences(kernel):
    with jax.enable_x64(True):
        differences, rows = kernels.Difference(kernel), jnp.asarray(ROWS)
        expected = D @ np.asarray(kernel.gram(jnp.asarray(X))) @ D.T
        np.testing.assert_allclose(differences.gram(rows), expected, atol=1e-13)
        np.testing.assert_allclose(differences.cross(rows, rows[:3]), expected[:, :3], atol=1e-13)
        np.testing.assert_allclose(differences(rows[0], rows[1]), expected[0, 1], atol=1e-13)
        np.testing.assert_allclose(differences.diagonal(rows), np.diagonal(expected), atol=1e-13)
        white = kernels.Difference(kernel + kernels.White(0.3))
        np.testing.assert_allclose(white.gram(rows), expected + 0.6 * np.eye(COMPARED), atol=1e-13)
        np.testing.assert_allclose(white.noise(rows), 0.6, atol=1e-13)
        with pytest.raises(ValueError, match=r"as many columns .* got 3"):
            differences.gram(rows[:, :3])


@pytest.mark.parametrize("n", [20, 100])
def test_compiled_gradients_of_differences(n):
    """The gram is linear in the variance: its derivative is a difference of values. XLA once got this wrong at 100."""
    with jax.enable_x64(True):
        rows, weights = (jnp.asarray(RNG.normal(size=shape)) for shape in ((n, 4), (n, n)))

        def total(variance):
            return jnp.sum(weights * kernels.Difference(kernels.SquaredExponential(variance, 1.1)).gram(rows))

        np.testing.assert_allclose(jax.jit(jax.grad(total))(1.5), (total(2.5) - total(0.5)) / 2.0, rtol=1e-9)


def test_the_slope_of_the_evidence(ranker):
    landscape = ranker._core.landscape
    below, at, above = (landscape.from_cold(np.array([0.1, 0.2 + step])) for step in (-1e-4, 0.0, 1e-4))
    assert at.gradient[1] == pytest.approx((above.value - below.value) / 2e-4, rel=1e-5)


@pytest.fixture(scope="module")
def ranker():
    return GaussianProcessRanker(KERNEL, optimizer=None, method="ep").fit(X, PAIRS)


def test_utilities_follow_from_the_sites(ranker):
    """Gaussian conditioning on D f, noise 1/τ: written out in full."""
    nu, tau = ranker.solution_.sites.nu, ranker.solution_.sites.tau
    cross = K @ D.T
    gain = np.linalg.solve(D @ cross + np.diag(1.0 / tau), cross.T).T
    mean, covariance = ranker.predict(X, return_cov=True)
    np.testing.assert_allclose(mean, gain @ (nu / tau), atol=1e-8)
    np.testing.assert_allclose(covariance, K - gain @ cross.T, atol=1e-8)
    np.testing.assert_allclose(ranker.predict(X, return_std=True)[1] ** 2, np.diagonal(covariance), atol=1e-12)


def test_win_probabilities_are_those_of_the_utilities(ranker):
    mean, covariance = ranker.predict(X, return_cov=True)
    m, v = D @ mean, np.diagonal(D @ covariance @ D.T)
    p = ranker.predict_proba(X[PAIRS[:, 0]], X[PAIRS[:, 1]])
    np.testing.assert_allclose(p, ndtr(m / np.sqrt(1.0 + v)), atol=1e-9)
    np.testing.assert_allclose(ranker.predict_proba(X[PAIRS[:, 1]], X[PAIRS[:, 0]]), 1.0 - p, atol=1e-12)
    assert ranker.score(X, PAIRS) == pytest.approx(np.log(p).mean(), abs=1e-9)
    first = np.arange(len(PAIRS)) == 0
    assert ranker.score(X, PAIRS, sample_weight=first) == pytest.approx(np.log(p[0]), abs=1e-9)
    for wrong, told in (
        (0 * first, "not all be zero"),
        (-1.0 * first, "at least 0"),
        (np.full(len(PAIRS), np.nan), "NaN"),
    ):
        with pytest.raises(ValueError, match=told):
            ranker.score(X, PAIRS, sample_weight=wrong)
    assert kendalltau(mean, X[:, 0]).statistic > 0.5


def test_one_comparison_by_hand():
    """f(x) − f(x') ~ N(0, v) seen once through a probit: mean v φ(0)/(Φ(0) √(1 + v))."""
    one = GaussianProcessRanker(KERNEL, optimizer=None, method="ep").fit(X, PAIRS[:1])
    v = (D @ K @ D.T)[0, 0]
    assert D[0] @ one.predict(X) == pytest.approx(2.0 * v * norm.pdf(0.0) / np.sqrt(1.0 + v), abs=1e-9)


def test_a_cycle_ends_honestly():
    """Each of three beats the next: no order is learned, held or learned hyperparameters alike."""
    cycle = [[0, 1], [1, 2], [2, 0]] * 3
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])  # the same distance apart
    held = GaussianProcessRanker(KERNEL, optimizer=None, method="ep").fit(corners, cycle)
    assert held.solution_.converged
    np.testing.assert_allclose(held.predict(corners), 0.0, atol=1e-8)
    np.testing.assert_allclose(held.predict_proba(corners, corners[[1, 2, 0]]), 0.5, atol=1e-8)
    learned = GaussianProcessRanker(method="ep").fit(corners, cycle)
    assert learned.fitted_.converged
    np.testing.assert_allclose(learned.predict_proba(corners, corners[[1, 2, 0]]), 0.5, atol=1e-6)
    assert learned.solution_.log_evidence < 9 * np.log(0.5)  # no better than tosses of a coin


def test_comparisons_of_equal_items_are_left_out():
    """Two more items with the features of the first two, compared with those they equal."""
    items, more = np.vstack([X, X[:2]]), np.vstack([[[ITEMS, 0]], PAIRS, [[1, ITEMS + 1]]])
    with pytest.warns(UserWarning, match=r"2 of 32 comparisons, such as pairs\[0\], .*equal features"):
        found = GaussianProcessRanker(KERNEL, optimizer=None, method="ep").fit(items, more)
    expected = GaussianProcessRanker(KERNEL, optimizer=None, method="ep").fit(X, PAIRS)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-10)
    assert found.log_marginal_likelihood_value_ == pytest.approx(expected.log_marginal_likelihood_value_, abs=1e-9)
    with pytest.raises(ValueError, match="every comparison is between items with equal features"):
        GaussianProcessRanker(KERNEL).fit(np.ones((3, 2)), [[0, 1], [2, 1]])
    levels = GaussianProcessRanker(KERNEL + kernels.White(0.3), optimizer=None, method="ep")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        levels.fit(items, more)  # items with a level each are told apart by it
        periodic = Model(kernels.Difference(kernels.Periodic(1.0, 1.0, 1.0)), likelihoods.Probit())
        whole = np.array([[1.0, 0.0], [3.0, 2.0]])  # at this period they have no variance, at others some
        np.testing.assert_array_equal(informative(periodic, whole, np.ones(2)), np.ones(2))
        theirs = GaussianProcessRanker(PairwiseKernel(metric="rbf"), optimizer=None, method="laplace")
        theirs.fit(X, PAIRS)  # of scikit-learn, and translated to none of ours


def test_files_and_scikit_learns_ways(ranker, tmp_path):
    ranker.save(tmp_path / "ranker.safetensors")
    loaded = load(tmp_path / "ranker.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
    np.testing.assert_array_equal(loaded.pairs_, PAIRS)
    assert loaded.get_params()["method"] == "ep"
    assert repr(loaded.kernel_) == repr(ranker.kernel_)
    assert not hasattr(clone(ranker), "pairs_")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1, 2]], r"rows \(winner, loser\)"),
        ([[0.0, 1.0]], "must be integers"),
        ([[0, 1], [3, ITEMS]], rf"pairs\[1, 1\] = {ITEMS} is not a row of X, which has {ITEMS}"),
        ([[0, 1], [2, 2]], r"pairs\[1\] compares item 2 with itself"),
    ],
)
def test_wrong_pairs_are_named(pairs, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessRanker().fit(X, pairs)


@pytest.mark.campaign
def test_against_laplace_on_a_known_utility(record_property):
    """500 comparisons of 100 items: rank correlation and log loss at least Laplace's, and calibrated."""
    found = {"qp": [], "ep": [], "laplace": []}
    calibration = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        items = rng.uniform(-2.0, 2.0, size=(100, 2))
        utility = 2.0 * np.sin(1.5 * items[:, 0]) + items[:, 1]
        pairs = np.array([rng.choice(100, 2, replace=False) for _ in range(500)])
        won = rng.random(500) < ndtr(utility[pairs[:, 0]] - utility[pairs[:, 1]])
        pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
        one, other = np.triu_indices(100, 1)
        truth = ndtr(utility[one] - utility[other])
        for method, scores in found.items():
            ranker = GaussianProcessRanker(method=method).fit(items, pairs)
            mean, covariance = ranker.predict(items, return_cov=True)
            p = ranker.predict_proba(items[one], items[other])
            loss = -np.mean(truth * np.log(p) + (1.0 - truth) * np.log1p(-p))  # expected, over outcomes
            scores.append((kendalltau(mean, utility).statistic, loss))
            if method == "qp":
                about = utility - utility.mean() - (mean - mean.mean())
                centred = covariance - covariance.mean(0) - covariance.mean(1)[:, None] + covariance.mean()
                calibration.append(np.mean(np.abs(about) < 1.645 * np.sqrt(np.diagonal(centred))))
                bins = np.digitize(p, np.linspace(0.1, 0.9, 9))
                gaps = [abs(p[bins == b].mean() - truth[bins == b].mean()) for b in range(10) if (bins == b).any()]
                assert max(gaps) < 0.1
    scores = {method: np.mean(pairs, axis=0) for method, pairs in found.items()}
    record_property("scores", {method: pair.round(4).tolist() for method, pair in scores.items()})
    print(scores, calibration)
    for method in ("qp", "ep"):
        assert scores[method][0] >= scores["laplace"][0] - 1e-3
        assert scores[method][1] <= scores["laplace"][1]
    assert 0.8 < np.mean(calibration) < 0.98  # of 90 % intervals of centred utilities


def test_items_may_have_a_level_each():
    """Bradley and Terry's model: a strength for every team, no two of which share one."""
    pairs = np.array([(0, 1), (0, 2), (1, 2), (3, 0), (1, 3), (0, 3), (2, 3)] * 2)
    teams = pd.DataFrame({"team": list("ABCD")})
    strength = GaussianProcessRanker("group(team)", method="ep").fit(teams, pairs).predict(teams)
    assert np.argmax(strength) == 0
    assert np.argmin(strength) == 3


@pytest.mark.usefixtures("two_members")
def test_a_stack_mixes_the_utilities_of_its_members(tmp_path):
    """Gaussian conditioning for every member, as above, mixed by weight; probabilities are mixed too."""
    found = GaussianProcessRanker("auto", method="ep").fit(X, PAIRS)
    stack, parts = found.posterior_, []
    for member in stack.members:
        solution = member.fitted.solution
        with jax.enable_x64(True):
            k = np.asarray(solution.model.plain_kernel.kernel.gram(jnp.asarray(X)))
        cross, (nu, tau) = k @ D.T, (solution.sites.nu, solution.sites.tau)
        gain = np.linalg.solve(D @ cross + np.diag(1.0 / tau), cross.T).T
        parts.append((gain @ (nu / tau), k - gain @ cross.T))
    means, covariances = map(np.array, zip(*parts, strict=True))
    expected = stack.weights @ means
    within = np.tensordot(stack.weights, covariances + means[:, :, None] * means[:, None], 1)
    mean, covariance = found.predict(X, return_cov=True)
    assert len(stack.members) > 1
    np.testing.assert_allclose(mean, expected, atol=1e-7)
    np.testing.assert_allclose(covariance, within - np.outer(expected, expected), atol=1e-7)
    np.testing.assert_allclose(found.predict(X, return_std=True)[1] ** 2, np.diagonal(covariance), atol=1e-12)
    variances = np.diagonal(D @ covariances @ D.T, axis1=1, axis2=2)
    p = stack.weights @ ndtr(means @ D.T / np.sqrt(1.0 + variances))
    np.testing.assert_allclose(found.predict_proba(X[PAIRS[:, 0]], X[PAIRS[:, 1]]), p, atol=1e-8)
    assert found.score(X, PAIRS) == pytest.approx(np.log(p).mean(), abs=1e-8)
    np.testing.assert_array_equal(found.loo_, stack.loo)
    found.save(tmp_path / "ranker.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "ranker.safetensors").predict(X), found.predict(X))


def test_coefficients_of_the_utility_are_those_of_a_regression_of_differences():
    """A slope and a factor under wide priors, by Laplace: statsmodels' probit regression of differences."""
    rng = np.random.default_rng(4)
    items = pd.DataFrame({"x": rng.normal(size=60), "kind": rng.choice(["a", "b", "c"], 60)})
    design = np.column_stack([items["x"], items["kind"] == "b", items["kind"] == "c"]).astype(float)
    pairs = np.array([rng.choice(60, 2, replace=False) for _ in range(300)])
    wins = (design[pairs[:, 0]] - design[pairs[:, 1]]) @ [0.8, 0.5, -0.5] + rng.normal(size=300) > 0
    pairs = np.where(wins[:, None], pairs, pairs[:, ::-1])
    ranker = GaussianProcessRanker("linear(x) + factor(kind)", method="laplace").fit(items, pairs)
    difference = design[pairs[:, 0]] - design[pairs[:, 1]]
    turned = np.where(np.arange(300) % 2, 1.0, -1.0)  # both outcomes, of the same comparisons
    glm = sm.Probit((turned + 1) / 2, turned[:, None] * difference).fit(disp=False)
    found = ranker.solution_.fixed_effects()
    assert list(found) == ["linear(x)", "factor(kind)[code 1]", "factor(kind)[code 2]"]
    np.testing.assert_allclose([e.estimate for e in found.values()], glm.params, atol=0.02 * glm.bse.max())
    np.testing.assert_allclose([e.error for e in found.values()], glm.bse, rtol=0.01)


def test_the_ranking_is_of_centred_utilities():
    """Errors by numpy from the joint posterior; the command line has the same."""
    names = ["ann", "bob", "cyd", "dan"]
    pairs = np.array([[0, 1], [0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 2], [0, 3]])
    items = np.arange(4)[:, None]
    ranker = GaussianProcessRanker("group(0)", method="ep").fit(items, pairs)
    mean, covariance = ranker.predict(items, return_cov=True)
    drawn = np.random.default_rng(0).multivariate_normal(mean, covariance, 50_000)
    drawn -= drawn.mean(axis=1, keepdims=True)
    found = ranker.ranking(items)
    order = found["item"]
    assert order == np.argsort(-mean).tolist()
    np.testing.assert_allclose(found["utility"], (mean - mean.mean())[order], atol=1e-12)
    np.testing.assert_allclose(found["error"], drawn.std(axis=0)[order], rtol=0.02)
    np.testing.assert_allclose(found["upper"], np.quantile(drawn, 0.975, axis=0)[order], atol=0.03)
    ranks = 1 + (drawn[:, None, :] > drawn[:, :, None]).sum(axis=2)
    np.testing.assert_allclose(found["rank"], ranks.mean(axis=0)[order], atol=0.03)
    text = "\n".join(["a,b", *(f"{names[i]},{names[j]}" for i, j in pairs)])
    words = ["rank", "-", "--winner", "a", "--loser", "b", "--method", "ep", "--json"]
    done = CliRunner().invoke(app, words, input=text)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["item"] for row in rows] == [names[i] for i in order]
    assert [row["utility"] for row in rows] == pytest.approx(found["utility"], abs=1e-8)


def test_ties_have_a_threshold_of_their_own():
    """Of many games under a wide prior the maximum of Glenn and David's likelihood; two wins leave room for a tie."""
    rng = np.random.default_rng(6)
    ability, pairs = np.array([0.0, 0.5, -0.4, 0.9]), np.array(list(itertools.combinations(range(4), 2)) * 60)
    margin = ability[pairs[:, 0]] - ability[pairs[:, 1]] + rng.normal(size=len(pairs))
    tied = np.abs(margin) < 0.6
    pairs = np.where(margin[:, None] < 0, pairs[:, ::-1], pairs)
    X = np.arange(4.0)[:, None]
    kernel = kernels.Categories(Parameter(1e4, fixed=True)).on(0)
    ranker = GaussianProcessRanker(kernel, method="laplace").fit(X, pairs, ties=tied)

    def loss(theta):
        f, c = np.append(theta[:3], -theta[:3].sum()), np.exp(theta[3])
        d = f[pairs[:, 0]] - f[pairs[:, 1]]
        return -np.log(np.where(tied, ndtr(c - d) - ndtr(-c - d), ndtr(d - c))).sum()

    best = minimize(loss, np.zeros(4)).x
    assert ranker.likelihood_.threshold == pytest.approx(np.exp(best[3]), rel=0.02)
    np.testing.assert_allclose(ranker.predict(X)[:3], best[:3], atol=0.03)
    one, other = X[[0]], X[[3]]
    both = ranker.predict_proba(one, other) + ranker.predict_proba(other, one)
    assert 0.5 < both[0] < 0.9
    assert ranker.score(X, pairs, ties=tied) == pytest.approx(-loss(best) / len(pairs), abs=0.01)
    with pytest.raises(ValueError, match="may end in a tie: fit"):
        active.tell(ranker, X[:2], [[0, 1]])
    with pytest.raises(ValueError, match="ties are supported with likelihood='probit' only"):
        GaussianProcessRanker(likelihood="logit").fit(X, pairs, ties=tied)
    with pytest.raises(ValueError, match="ties must be booleans"):
        GaussianProcessRanker().fit(X, pairs, ties=tied[:5])


def test_ranks_by_group_and_ties_from_the_command_line(tmp_path):
    """Items that exchange places between seasons are ranked anew in each; as in Python."""
    rng = np.random.default_rng(8)
    rows = ["a,b,season,draw"]
    for season, strong in (("2024", 0), ("2025", 1)):
        for _ in range(40):
            names, p = ("ann", "bob", "cyd"), rng.uniform()
            one, other = names[strong], names[2 if p < 0.5 else 1 - strong]
            won = rng.uniform() < 0.85
            rows.append(",".join([*((one, other) if won else (other, one)), season, "yes" if p > 0.9 else "no"]))
    path = tmp_path / "games.csv"
    path.write_text("\n".join(rows))
    words = ["rank", path, "--winner", "a", "--loser", "b", "--group", "season", "--ties", "draw", "--json"]
    done = CliRunner().invoke(app, [*map(str, words), "--method", "ep"])
    assert done.exit_code == 0, done.output
    found = pd.DataFrame(json.loads(done.stdout))
    assert found.groupby("season")["item"].first().to_dict() == {"2024": "ann", "2025": "bob"}
    assert "ties: differences below" in done.stderr
    frame = pd.read_csv(path, dtype=str)
    items = pd.DataFrame({"item": [*frame["a"], *frame["b"]], "season": [*frame["season"]] * 2})
    ranker = GaussianProcessRanker("group(item) + group(item, season)", method="ep")
    ranker.fit(items, np.arange(160).reshape(2, 80).T, ties=(frame["draw"] == "yes").to_numpy())
    both = pd.DataFrame({"item": ["ann", "bob", "cyd"], "season": "2024"})
    expected = dict(zip(both["item"], ranker.predict(both) - ranker.predict(both).mean(), strict=True))
    own = found[found["season"] == "2024"].set_index("item")["utility"]
    assert own.to_dict() == pytest.approx(expected, abs=1e-6)
