"""Posteriors of the terms of a sum, against dense formulas and statsmodels' mixed models."""

import warnings
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as mixed
from scipy.linalg import block_diag

from quantprop import (
    GaussianProcessRegressor,
    Inducing,
    Markov,
    Model,
    Parameter,
    fit,
    infer,
    kernels,
    likelihoods,
    load,
    means,
    plots,
)
from quantprop.inference.terms import Parts, effects_at, joint_of
from quantprop.kernels import NewLevelWarning

RNG = np.random.default_rng(1)
N, LEVELS = 60, 8
GROUP = RNG.integers(0, LEVELS, N)
FEATURES = RNG.normal(size=(N, 2))
X = np.column_stack([GROUP, FEATURES])
F = 1.0 + FEATURES @ [0.5, -0.3] + 0.9 * RNG.normal(size=LEVELS)[GROUP]
Y = F + 0.6 * RNG.normal(size=N)
NEW = np.column_stack([RNG.integers(0, LEVELS + 2, 11), RNG.normal(size=(11, 2))])
SUM = (
    kernels.SquaredExponential(1.2, 0.9).on(1) + kernels.Categories(0.5).on(0) + kernels.Linear(2.0).on([1, 2])
    + kernels.Constant(0.7)
)  # fmt: skip
PARTS = {
    "se(1)": lambda x, z: 1.2 * np.exp(-0.5 * ((x[:, [1]] - z[:, 1]) / 0.9) ** 2),
    "group(0)": lambda x, z: 0.5 * (x[:, [0]] == z[:, 0]),
    "linear(1, 2)": lambda x, z: 2.0 * x[:, 1:] @ z[:, 1:].T,
    "constant()": lambda x, z: np.full((len(x), len(z)), 0.7),
}


@pytest.fixture(scope="module")
def probit():
    return infer(Model(SUM, likelihoods.Probit(), mean=0.3), X, np.sign(Y - 1.0), "ep", tol=1e-12)


def test_terms_against_the_dense_formula(probit):
    """A term t given sites (ν, τ): mean K_t (K + S⁻¹)⁻¹ (ν/τ − m), covariance K_t − K_t (K + S⁻¹)⁻¹ K_tᵀ."""
    nu, tau = probit.sites.nu, probit.sites.tau
    inner = np.linalg.inv(sum(part(X, X) for part in PARTS.values()) + np.diag(1.0 / tau))
    terms, joint, k = probit.terms(NEW), joint_of(probit, NEW), len(NEW)
    assert list(terms) == [*PARTS, "mean"]
    for i, (name, part) in enumerate(PARTS.items()):
        cross = part(X, NEW)
        covariance = part(NEW, NEW) - cross.T @ inner @ cross
        np.testing.assert_allclose(terms[name].mean, cross.T @ inner @ (nu / tau - 0.3), rtol=0, atol=1e-9)
        np.testing.assert_allclose(terms[name].variance, np.diagonal(covariance), rtol=0, atol=1e-9)
        for j, other in enumerate(PARTS.values()):
            both = (i == j) * part(NEW, NEW) - cross.T @ inner @ other(X, NEW)
            found = joint.covariance[i * k : (i + 1) * k, j * k : (j + 1) * k]
            np.testing.assert_allclose(found, both, rtol=0, atol=1e-9)


def test_terms_add_up(probit):
    terms, whole = probit.terms(NEW), probit.predict(NEW, full_cov=True)
    np.testing.assert_allclose(sum(term.mean for term in terms.values()), whole.mean, rtol=0, atol=1e-10)
    k, joint = len(NEW), joint_of(probit, NEW).covariance
    added = joint.reshape(4, k, 4, k).sum(axis=(0, 2))
    np.testing.assert_allclose(added, whole.covariance, rtol=0, atol=1e-10)
    assert sum(terms.shares.values()) == pytest.approx(1.0, abs=1e-12)
    draws = terms.sample(4000, seed=3)
    f = sum(draws.values())
    error = np.sqrt(whole.variance / 4000)
    assert (np.abs(f.mean(axis=0) - whole.mean) < 4.5 * error).all()
    np.testing.assert_allclose(f.var(axis=0), whole.variance, rtol=0.15)


def test_joint_draws_that_memory_does_not_hold_are_refused(probit):
    with pytest.raises(MemoryError, match=r"the joint posterior of 4 terms at 300000 rows takes .* fewer rows"):
        replace(probit.terms(NEW), X=np.zeros((300_000, 3))).sample(1)


def test_a_level_that_was_not_learned_from_has_its_prior(probit):
    term = probit.terms(NEW)["group(0)"]
    new = NEW[:, 0] >= LEVELS
    assert new.any()
    np.testing.assert_array_equal(term.mean[new], 0.0)
    np.testing.assert_array_equal(term.variance[new], 0.5)


def test_a_backend_that_cannot_tell_terms_apart_says_so(probit):
    from priors.lowrank import LowRank

    model = Model(SUM, likelihoods.Probit(), process=LowRank(X[:10]))
    with pytest.raises(TypeError, match="LowRank cannot separate the terms of a sum: use process=Dense"):
        infer(model, X, np.sign(Y), "ep").terms(X)


# --- in time, and by inducing points ---------------------------------------------------------------------------------

IN_TIME = {
    "matern32(0)": (
        kernels.Matern32(1.5, 2.0),
        lambda s, t: 1.5 * (1 + np.sqrt(3) * abs(s - t) / 2.0) * np.exp(-np.sqrt(3) * abs(s - t) / 2.0),
    ),
    "periodic(0)": (
        kernels.Periodic(0.7, 6.0, 3.0),
        lambda s, t: 0.7 * np.exp(-2.0 * np.sin(np.pi * (s - t) / 3.0) ** 2 / 6.0**2),
    ),
    "matern12(0)": (kernels.Matern12(0.3, 0.5), lambda s, t: 0.3 * np.exp(-abs(s - t) / 0.5)),
    "matern12(0) (2)": (kernels.Matern12(0.3, 5.0), lambda s, t: 0.3 * np.exp(-abs(s - t) / 5.0)),
    "white()": (kernels.White(0.2), lambda s, t: 0.0 * s * t),
    "linear(0)": (kernels.Linear(0.4), lambda s, t: 0.4 * s * t),
    "constant()": (kernels.Constant(2.0), lambda s, t: 2.0 + 0.0 * s * t),
}
TIMES = np.random.default_rng(5).permutation(np.r_[np.linspace(-4.0, 3.0, 22), 0.4, 0.4, 6.0])[:, None]
LATER = np.array([[0.4], [-7.0], [1.03], [9.0], [0.4], [4.4], [-2.0]])
OF_TIME = {
    "gaussian": (likelihoods.Gaussian(0.4), np.sin(TIMES[:, 0]) + 0.1 * TIMES[:, 0] ** 2),
    "probit": (likelihoods.Probit(), np.where(np.sin(2.0 * TIMES[:, 0]) > -0.2, 1.0, -1.0)),
    "student-t": (likelihoods.StudentT(0.2, 3.0), np.sin(TIMES[:, 0]) + np.r_[4.0, -3.0, np.zeros(23)]),
}


def summed(given: dict) -> kernels.Kernel:
    """The sum of some kernels, on the first column."""
    terms = [kernel if name in ("white()", "constant()") else kernel.on(0) for name, (kernel, _) in given.items()]
    return sum(terms[1:], terms[0])


def written_out(given, low_rank, solution, mean) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all terms at LATER by dense algebra, `low_rank` holding what is known of covariances with
    the rows: of the terms, one after the other, with the rows, and of the rows.
    """
    nu, tau = solution.sites.nu, solution.sites.tau
    own = [
        k(LATER, LATER.T) + (0.2 * np.eye(len(LATER)) if name == "white()" else 0.0) for name, (_, k) in given.items()
    ]
    across, rows = low_rank
    inner = np.linalg.inv(rows + np.diag(1.0 / tau))
    return across.T @ inner @ (nu / tau - mean), block_diag(*own) - across.T @ inner @ across


@pytest.mark.parametrize(
    ("likelihood", "lanes", "names"),
    [
        ("student-t", 4, ("matern32(0)", "white()", "linear(0)")),
        pytest.param(
            "student-t", 4, ("matern32(0)", "periodic(0)", "white()", "linear(0)"), marks=pytest.mark.campaign
        ),
        *(
            pytest.param(*case, tuple(IN_TIME), marks=pytest.mark.campaign)
            for case in (("gaussian", 1), ("probit", 4), ("student-t", 1))
        ),
    ],
)
def test_terms_of_a_series_against_dense_algebra(likelihood, lanes, names):
    given, (of, y) = {name: IN_TIME[name] for name in names}, OF_TIME[likelihood]
    process = Markov(lanes=lanes, harmonics=3)
    solution = infer(Model(summed(given), of, 0.3, process), TIMES, y, "ep", tol=1e-12)
    assert solution.converged
    assert (solution.sites.tau < 0).any() == (likelihood == "student-t")
    across = np.hstack([k(TIMES, LATER.T) for _, k in given.values()])
    rows = sum(k(TIMES, TIMES.T) for _, k in given.values()) + 0.2 * np.eye(len(TIMES))
    check(solution, written_out(given, (across, rows), solution, 0.3))


@pytest.mark.campaign
def test_parts_of_a_series_against_dense_algebra():
    """Sums of some terms in any order, and one of two equal terms."""
    given = {name: IN_TIME[name] for name in ("constant()", "linear(0)", "matern12(0)")}
    given["matern12(0) (2)"] = given["matern12(0)"]
    of, y = OF_TIME["gaussian"]
    kernel = summed(given)
    solution = infer(Model(kernel, of, 0.0, Markov()), TIMES, y, "ep")
    rows = sum(k(TIMES, TIMES.T) for _, k in given.values())
    across = np.hstack([k(TIMES, LATER.T) for _, k in given.values()])
    mean, covariance = written_out(given, (across, rows), solution, 0.0)
    terms, k = kernels.summands(kernel), len(LATER)
    parts = [(3, 1), (2, 0), (2,)]
    sums = tuple(reduce(add, [terms[i] for i in part]) for part in parts)
    found = effects_at(solution, LATER, Parts(tuple("abc"), sums))
    for name, part in zip("abc", parts, strict=True):
        pick = np.hstack([np.eye(k) * (i in part) for i in range(len(terms))])
        np.testing.assert_allclose(found[name].mean, pick @ mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(found[name].variance, np.diagonal(pick @ covariance @ pick.T), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "names"),
    [
        ("probit", ("matern32(0)", "linear(0)", "constant()")),
        pytest.param("student-t", ("matern32(0)", "linear(0)", "constant()"), marks=pytest.mark.campaign),
        *(
            pytest.param(name, [name for name in IN_TIME if name != "white()"], marks=pytest.mark.campaign)
            for name in OF_TIME
        ),
    ],
)
def test_terms_by_inducing_points_against_low_rank_algebra(likelihood, names):
    given = {name: IN_TIME[name] for name in names}
    of, y = OF_TIME[likelihood]
    z = np.linspace(-5.0, 7.0, 9)[:, None]
    solution = infer(Model(summed(given), of, 0.3, Inducing(z, jitter=0.0)), TIMES, y, "ep", tol=1e-12)
    assert solution.converged
    known = np.linalg.inv(sum(k(z, z.T) for _, k in given.values()))
    at_rows = sum(k(z, TIMES.T) for _, k in given.values())
    explained = at_rows.T @ known @ at_rows
    whole = sum(np.diagonal(k(TIMES, TIMES.T)) for _, k in given.values())
    rows = explained + np.diag(whole - np.diagonal(explained))
    across = np.hstack([at_rows.T @ known @ k(z, LATER.T) for _, k in given.values()])
    check(solution, written_out(given, (across, rows), solution, 0.3))


def check(solution, expected: tuple[np.ndarray, np.ndarray]) -> None:
    """Terms, alone and jointly, and draws of them."""
    mean, covariance = expected
    found, joint, whole = solution.terms(LATER), joint_of(solution, LATER), solution.predict(LATER, full_cov=True)
    terms = [part for name, part in found.items() if name != "mean"]
    np.testing.assert_allclose(np.concatenate([part.mean for part in terms]), mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        np.concatenate([part.variance for part in terms]), np.diagonal(covariance), rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(joint.covariance, covariance, rtol=0, atol=1e-8)
    np.testing.assert_allclose(sum(part.mean for part in found.values()), whole.mean, rtol=0, atol=1e-9)
    draws = found.sample(4000, seed=1)
    drawn = np.hstack([draws[name] for name in found if name != "mean"])
    sd = np.sqrt(np.diagonal(covariance))
    assert (abs(drawn.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), rtol=0, atol=0.1)


def test_a_mixed_model_is_that_of_statsmodels():
    theirs = mixed.MixedLM(Y, mixed.add_constant(FEATURES), groups=GROUP).fit(reml=False)
    mean = means.Linear(np.zeros(2), columns=(1, 2))
    model = Model(kernels.Categories().on(0), likelihoods.Gaussian(0.5), mean)
    ours = fit(model, X, Y, "ep", ftol=1e-14)
    numbers = ours.hyperparameters
    assert ours.solution.log_evidence == pytest.approx(theirs.llf, abs=1e-6)
    assert numbers["kernel.kernel.variance"] == pytest.approx(float(np.ravel(theirs.cov_re)[0]), abs=1e-4)
    assert numbers["likelihood.scale"] ** 2 == pytest.approx(theirs.scale, abs=1e-4)
    effects = ours.solution.fixed_effects()
    found = [effects[name] for name in ("mean.intercept", "mean.coefficients[0]", "mean.coefficients[1]")]
    np.testing.assert_allclose([e.estimate for e in found], theirs.fe_params, atol=1e-4)
    np.testing.assert_allclose([e.error for e in found], theirs.bse_fe, rtol=5e-3)  # theirs with the variances' own
    v = float(np.ravel(theirs.cov_re)[0]) * (GROUP[:, None] == GROUP) + theirs.scale * np.eye(N)
    h = mixed.add_constant(FEATURES)
    errors = np.sqrt(np.diagonal(np.linalg.inv(h.T @ np.linalg.solve(v, h))))
    np.testing.assert_allclose([e.error for e in found], errors, atol=1e-4)
    ends = [(e.estimate - 1.959964 * s, e.estimate + 1.959964 * s) for e, s in zip(found, errors, strict=True)]
    np.testing.assert_allclose([[e.lower, e.upper] for e in found], ends, atol=1e-3)
    levels = np.column_stack([np.arange(LEVELS), np.zeros((LEVELS, 2))])
    blup = [float(np.ravel(theirs.random_effects[level])[0]) for level in range(LEVELS)]
    np.testing.assert_allclose(ours.solution.terms(levels)["group(0)"].mean, blup, atol=1e-4)


# --- frames ----------------------------------------------------------------------------------------------------------

NAMES = np.array(["Anna", "Berta", "Clara", "Dora", "Emil", "Fritz", "Gina", "Hugo"])
FRAME = pd.DataFrame({"dose": FEATURES[:, 1], "who": NAMES[GROUP], "age": FEATURES[:, 0], "note": "-"})
TEXT = "se(age) + group(who) + linear(dose)"


@pytest.fixture(scope="module")
def by_terms():
    return GaussianProcessRegressor(TEXT, likelihood=likelihoods.Gaussian(0.5), mean="constant", method="ep").fit(
        FRAME, Y
    )


def test_terms_of_a_frame_are_those_of_the_matrix_cut_by_hand(by_terms):
    codes = np.column_stack([FRAME["age"], np.searchsorted(NAMES, FRAME["who"]), FRAME["dose"]])
    np.testing.assert_array_equal(by_terms.X_train_, codes)
    assert list(by_terms.feature_names_in_) == ["age", "who", "dose"]
    again = GaussianProcessRegressor(
        "se(0) + group(1) + linear(2)", likelihood=likelihoods.Gaussian(0.5), mean="constant", method="ep"
    ).fit(codes, Y)
    np.testing.assert_allclose(again.predict(codes), by_terms.predict(FRAME), rtol=1e-12)


def test_the_order_of_columns_does_not_matter(by_terms, tmp_path):
    expected, turned = by_terms.predict(FRAME), FRAME[["note", "age", "dose", "who"]]
    np.testing.assert_array_equal(by_terms.predict(turned), expected)
    by_terms.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(turned), expected)
    assert loaded.kernel == TEXT
    assert kernels.written(loaded.kernel_) == kernels.written(by_terms.kernel_)
    theta = by_terms.fitted_.theta[:3]
    assert loaded.log_marginal_likelihood(theta) == pytest.approx(by_terms.log_marginal_likelihood(theta), abs=1e-9)


def test_gradients_of_the_objective(by_terms):
    theta = by_terms.fitted_.theta[:3] + np.array([0.3, -0.2, 0.4])
    _, slope = by_terms.log_marginal_likelihood(theta, eval_gradient=True)
    ends = [[by_terms.log_marginal_likelihood(theta + s * 1e-5 * np.eye(3)[i]) for s in (1, -1)] for i in range(3)]
    np.testing.assert_allclose(slope, [(up - down) / 2e-5 for up, down in ends], rtol=1e-5, atol=1e-6)


def test_new_levels_are_said_aloud_in_one_warning(by_terms):
    new = FRAME.iloc[:3].assign(who=["Zoe", "Anna", "Xaver"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, sd = by_terms.predict(new, return_std=True)
    assert [one.category for one in caught] == [NewLevelWarning]
    assert "(who: Xaver, Zoe)" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, known = by_terms.predict(FRAME.iloc[:3], return_std=True)
    assert sd[0] > known[0]
    assert sd[2] > known[2]


@pytest.mark.parametrize(
    ("kernel", "change", "said"),
    [
        ("se(age) + group(whom)", {}, "position 17: there is no column 'whom'"),
        (kernels.SquaredExponential().on("years"), {}, "no column 'years', which the kernel names"),
        ("se(who)", {}, r"X\['who'\] must hold numbers, or be a group"),
        ("group(age)", {}, "column 'age' has too many levels for a group, 60 in 60 rows"),
        ("coregion(who)", {"who": [f"{i // 2:02d}x{i % 53}" for i in range(N)]}, "too many levels"),
        (kernels.SquaredExponential() + kernels.Categories().on("who"), {}, "acts on all columns"),
        (kernels.SquaredExponential().on(0) + kernels.Categories().on("who"), {}, "all names or all positions"),
        ("group(who)", {"who": [None, *FRAME["who"][1:]]}, r"X\['who'\] is missing in row 0"),
    ],
)
def test_mistakes_are_said(kernel, change, said):
    with pytest.raises(ValueError, match=said):
        GaussianProcessRegressor(kernel).fit(FRAME.assign(**change), Y)


def test_names_need_a_frame(by_terms):
    with pytest.raises(ValueError, match="X is an array without names"):
        by_terms.predict(FRAME.to_numpy())
    with pytest.raises(ValueError, match="X has no column 'dose'"):
        by_terms.predict(FRAME.drop(columns="dose"))
    with pytest.raises(ValueError, match="column 5 is not one of the 3 columns"):
        GaussianProcessRegressor("se(5)").fit(X, Y)


def test_effects_are_drawn_with_bands_levels_and_a_rug(by_terms):
    age, who, dose = plots.effects(by_terms)
    assert [ax.get_title(loc="left") for ax in (age, who, dose)] == ["se(age)", "group(who)", "linear(dose)"]
    assert [label.get_text() for label in who.get_xticklabels()] != []
    assert sorted(label.get_text() for label in who.get_xticklabels()) == sorted(NAMES)
    curve = dose.lines[0].get_xydata()
    slope = by_terms.solution_.fixed_effects()["linear(dose)"]
    np.testing.assert_allclose(np.diff(curve[:, 1]) / np.diff(curve[:, 0]), slope.estimate, rtol=1e-6)
    assert len(age.lines[1].get_xdata()) == N  # the rug
    assert len(age.collections) == 2  # the bands
    with pytest.raises(ValueError, match=r"name must be one of .*; got 'se\(x\)'"):
        plots.effect(by_terms, "se(x)")


def test_two_columns_are_a_map_and_a_column_by_group_curves():
    kernel = kernels.SquaredExponential().on([1, 2]) + kernels.Linear(Parameter(0.2)).on(1) * kernels.Categories().on(0)
    solution = infer(Model(kernel, likelihoods.Gaussian(0.5)), X, Y, "ep")
    plane, curves = plots.effects(solution)
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("x1", "x2")
    assert len(curves.get_legend().get_texts()) == 6
