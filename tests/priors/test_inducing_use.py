"""Inducing points in use: which ones, what is refused, estimators, files and batches."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from priors.inducing_cases import COUNTS, KERNEL, LABELS, NEW, REALS, RNG, X, Z, fitc, point
from typer.testing import CliRunner

from quantprop import (
    EP,
    QP,
    Dense,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    Model,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
)
from quantprop.cli import app
from quantprop.core.parameters import packed
from quantprop.estimators.shared import ProcessWarning, chosen_process
from quantprop.inference import prediction
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.priors.inducing.choice import PointsWarning, chosen
from quantprop.runtime import batches

# --- points ----------------------------------------------------------------------------------------------------------


def test_points_are_chosen_from_the_rows_by_their_seed():
    x = np.column_stack([RNG.normal(size=500), RNG.integers(0, 3, 500)])
    one, again, other = chosen(x, 20, 0), chosen(x, 20, 0), chosen(x, 20, 1)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert len(np.unique(one, axis=0)) == 20
    assert {tuple(row) for row in one} <= {tuple(row) for row in x}  # codes of categories stay codes


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (31, "31 points are more than the 30 rows of X: use Dense"),
        (np.zeros((2, 1)), "two rows of points are equal"),
        (np.array([[0.0], [np.nan]]), r"points\[1\] holds NaN or infinity"),
        (0, "integer of at least 1"),
        (2.5, "integer of at least 1"),
        (np.zeros((2, 3)) + np.arange(2)[:, None], "points have 3 columns, and X has 1"),
        (np.arange(3.0), "one row per point"),
    ],
)
def test_points_that_will_not_do_are_refused(points, words):
    with pytest.raises(ValueError, match=words):
        infer(Model(KERNEL, likelihoods.Probit(), process=Inducing(points)), X, LABELS, "ep")


def test_more_points_than_different_rows_are_refused():
    with pytest.raises(ValueError, match="10 points, but X has only 3 different rows"):
        infer(Model(KERNEL, likelihoods.Probit(), process=Inducing(10)), np.repeat(X[:3], 10, axis=0), LABELS, "ep")


@pytest.mark.parametrize(("column", "said"), [(0, "1e+156 in column 0 of X only 2 rows differ"), (1, None)])
def test_a_row_very_far_away(column, said):
    """Beside it the others are one row, unless another column tells them apart."""
    x = np.column_stack([RNG.normal(size=40) for _ in range(column + 1)])
    x[7, column] = 1e156
    if said is None:
        points = chosen(x, 5, 0)
        assert len(np.unique(points, axis=0)) == 5
        assert {tuple(row) for row in points} <= {tuple(row) for row in x}
    else:
        with pytest.raises(ValueError, match=re.escape(said)):
            chosen(x, 5, 0)


SMOOTH = kernels.SquaredExponential(1.3, 1.0)


@pytest.mark.parametrize("likelihood", ["gaussian", pytest.param("probit", marks=pytest.mark.campaign)])
def test_points_that_add_nothing_are_left_out(likelihood):
    """Without jitter the inputs as points are the dense process, also where their covariance is singular; so is the
    gradient.
    """
    line = np.sort(np.random.default_rng(3).uniform(-3.0, 3.0, 30))[:, None]
    of = {"gaussian": likelihoods.Gaussian(0.1), "probit": likelihoods.Probit()}[likelihood]
    y = np.sin(2.0 * line[:, 0]) + 0.1 * np.random.default_rng(4).normal(size=30)
    y = np.sign(y) if likelihood == "probit" else y
    assert np.linalg.matrix_rank(np.exp(-0.5 * (line - line.T) ** 2)) < 25
    models = [Model(SMOOTH, of, 0.0, **process) for process in ({}, {"process": Inducing(line, jitter=0.0)})]
    surfaces = [
        Landscape(model, prepare(model, line, y, EP(), None, None, None), EP(), as_objective("evidence"))
        for model in models
    ]
    exact, low = (surface.from_cold(packed(surface.parts) + 0.3) for surface in surfaces)
    assert low.value == pytest.approx(exact.value, abs=1e-6)
    np.testing.assert_allclose(low.gradient, exact.gradient, atol=1e-6 * np.linalg.norm(exact.gradient))
    other, one = (infer(model, line, y, "ep") for model in models)
    assert one.converged
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-6)
    np.testing.assert_allclose(one.marginals.variance, other.marginals.variance, rtol=1e-6)
    ahead = np.linspace(-3.0, 3.0, 9)[:, None]
    np.testing.assert_allclose(one.predict(ahead).mean, other.predict(ahead).mean, atol=1e-6)
    np.testing.assert_allclose(one.predict(ahead).variance, other.predict(ahead).variance, atol=1e-6)


@pytest.mark.campaign
def test_further_rows_under_a_kernel_that_leaves_out_other_points():
    """Their message is about values at all points; what a tiny jitter adds to it does not matter."""
    line = np.linspace(-2.0, 2.0, 12)[:, None]
    first, then = np.linspace(-2.0, 2.0, 25)[:, None], np.linspace(-1.9, 1.9, 20)[:, None]
    found = []
    for jitter in (0.0, 1e-11):
        process = Inducing(line, jitter=jitter)
        model = Model(kernels.SquaredExponential(1.3, 0.5), likelihoods.Gaussian(0.5), process=process)
        after = infer(model, first, np.sin(first[:, 0]), "ep").as_prior()
        after = replace(after, kernel=kernels.SquaredExponential(1.3, 3.0))
        found.append(infer(after, then, np.sin(then[:, 0]), "ep"))
    without, tiny = found
    assert without.converged
    assert without.log_evidence == pytest.approx(tiny.log_evidence, abs=1e-5)
    np.testing.assert_allclose(without.predict(first).mean, tiny.predict(first).mean, atol=1e-5)
    np.testing.assert_allclose(without.predict(first).variance, tiny.predict(first).variance, atol=1e-5)


@pytest.mark.campaign
@pytest.mark.parametrize("jitter", [0.0, 1e-9])
def test_a_kernel_that_is_no_covariance_has_an_honest_status(jitter):
    """Of two columns Periodic has negative eigenvalues."""
    x = np.random.default_rng(0).uniform(0.0, 1.0, (30, 2))
    model = Model(kernels.Periodic(1.0, 0.3), likelihoods.Probit(), process=Inducing(x, jitter=jitter))
    assert infer(model, x, np.sign(x[:, 0] - 0.5), "ep").status.reason == "no-covariance"


@pytest.mark.campaign
def test_jitter_makes_them_usable():
    close = np.linspace(0.0, 1e-3, 8)[:, None]
    model = Model(kernels.SquaredExponential(1.0, 2.0), likelihoods.Probit(), process=Inducing(close))
    assert infer(model, X, LABELS, "ep").converged


# --- from end to end -------------------------------------------------------------------------------------------------


def test_learned_points_improve_the_evidence_and_are_stored(tmp_path):
    kernel, weights = kernels.SquaredExponential(1.0, 1.0), np.where(np.arange(30) % 7 == 0, 2.0, 1.0)
    model = Model(kernel, likelihoods.Probit(), process=Inducing(4, learn=True))
    still, moved = (
        fit(Model(kernel, model.likelihood, process=Inducing(4, learn=learn)), X, LABELS, "ep", weights=weights)
        for learn in (False, True)
    )
    assert moved.objective_value > still.objective_value + 0.01
    moved.save(tmp_path / "moved.safetensors")
    again = load(tmp_path / "moved.safetensors")
    np.testing.assert_array_equal(again.model.process.points.value, moved.model.process.points.value)
    np.testing.assert_array_equal(again.solution.weights, weights)
    np.testing.assert_array_equal(again.solution.predict(NEW).variance, moved.solution.predict(NEW).variance)


def test_a_regressor_does_not_merge_equal_rows():
    """Equal rows have residuals of their own: the closed form of all rows, not of half as many with half the noise."""
    x, y = np.repeat(X, 2, axis=0), np.repeat(REALS, 2)
    process = Inducing(Z, jitter=0.0)
    model = GaussianProcessRegressor(KERNEL, alpha=0.09, optimizer=None, process=process, method="ep").fit(x, y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(fitc(1.0, y, 0.3, x)[0], abs=1e-7)


def test_auto_says_what_it_chose(caplog):
    """Exact for 500 rows; on a CPU 512 points from some thousand rows on, with a warning that names the way out."""
    with caplog.at_level("INFO", logger="quantprop"):
        assert not isinstance(chosen_process("auto", 500), Inducing)
    assert "dense, exact, for 500 rows" in caplog.text
    for n in (5_000, 50_000):
        with pytest.warns(ProcessWarning, match=rf"{n} rows by 512 inducing points.*process='dense'"):
            assert chosen_process("auto", n).count == 512
    assert chosen_process("dense", 50_000) == Model(KERNEL, likelihoods.Probit()).process
    assert chosen_process(given := Inducing(7), 50_000) is given


@pytest.mark.campaign
def test_estimators_learn_with_points_and_are_stored(tmp_path):
    x = RNG.normal(size=(200, 2))
    label = np.where(x[:, 0] + x[:, 1] ** 2 > 1, "yes", "no")
    model = GaussianProcessClassifier(process=Inducing(20)).fit(x, label)
    assert model.score(x, label) > 0.9
    model.save(tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(twin.predict_proba(x[:5]), model.predict_proba(x[:5]))
    several = GaussianProcessClassifier(process=Inducing(10)).fit(x, np.round(x[:, 0]).clip(-1, 1))
    assert several.predict_proba(x).shape == (200, 3)


@pytest.mark.campaign
def test_the_command_line_takes_points(tmp_path):
    table = "\n".join(["a,b", *(f"{x:.4f},{'yes' if y > 0 else 'no'}" for x, y in zip(X[:, 0], LABELS, strict=True))])
    (tmp_path / "table.csv").write_text(table)
    words = ["fit", tmp_path / "table.csv", "--target", "b", "--kernel", "isotropic", "--inducing", 6, "--out",
             tmp_path / "model.safetensors"]  # fmt: skip
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "model.safetensors").process.count == 6


@pytest.mark.campaign
def test_learning_by_a_batch_is_learning_alone():
    model = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit(), process=Inducing(6))
    alone = fit(model, X, LABELS, "ep")
    for one in fit_many(model, [X, X], [LABELS, LABELS], "ep"):
        assert one.objective_value == pytest.approx(alone.objective_value, abs=1e-4)  # the optimum is flat


@pytest.mark.campaign
def test_very_many_rows_are_renewed_and_predicted_in_chunks(monkeypatch):
    model = Model(KERNEL, likelihoods.Poisson(), process=Inducing(Z))
    whole = point(model, COUNTS, QP())
    monkeypatch.setattr(batches, "MAX_CPU_ROWS", 8)
    monkeypatch.setattr(prediction, "PIECE", 3)
    x, y = np.concatenate([X, X[:3]]), np.concatenate([COUNTS, COUNTS[:3]])  # of a shape not compiled before
    parts = point(model, y, QP(), np.concatenate([np.ones(30), np.zeros(3)]), x=x)
    assert parts.value == pytest.approx(whole.value, abs=1e-8)
    np.testing.assert_allclose(parts.gradient, whole.gradient, atol=1e-7)
    solution = infer(model, X, COUNTS, "laplace")
    np.testing.assert_allclose(solution.predict(NEW).variance, np.diag(solution.predict(NEW, full_cov=True).covariance))


# --- effects of levels -----------------------------------------------------------------------------------------------

GROUPS = np.column_stack([RNG.uniform(0.0, 6.0, 160), np.arange(160) % 20])
OF_GROUPS = np.random.default_rng(8).poisson(np.exp(np.sin(GROUPS[:, 0]) + np.cos(GROUPS[:, 1]))).astype(float)
BY_GROUP = {
    "intercepts": kernels.SquaredExponential().on(0) + kernels.Categories(0.5).on(1),
    "slopes": kernels.SquaredExponential().on(0) + kernels.Linear(0.1).on(0) * kernels.Categories(0.5).on(1),
}


@pytest.mark.parametrize("kind", [pytest.param("intercepts", marks=pytest.mark.campaign), "slopes"])
def test_points_represent_the_effect_of_each_level(kind):
    dense, low = (
        infer(Model(BY_GROUP[kind], likelihoods.Poisson(), process=process), GROUPS, OF_GROUPS, "ep")
        for process in (Dense(), Inducing(60))
    )
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-3)
    every = np.column_stack([np.full(20, 3.0), np.arange(20)])
    one, other = low.predict(every), dense.predict(every)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-3)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-3)


def test_too_few_points_for_the_levels_of_a_term_are_named():
    model = Model(BY_GROUP["intercepts"], likelihoods.Poisson(), process=Inducing(30))
    with pytest.warns(PointsWarning, match=r"30 points cannot represent the effect of each level in Categories.* use"):
        infer(model, GROUPS, OF_GROUPS, "ep")


def test_the_levels_of_all_terms_together_have_to_fit_into_the_points():
    two = np.column_stack([GROUPS, GROUPS[:, 1] // 2 % 5])
    kernel = BY_GROUP["intercepts"] + kernels.Categories(0.5).on(2)
    with pytest.warns(PointsWarning, match=r"40 points .* in Categories.* and Categories"):
        infer(Model(kernel, likelihoods.Poisson(), process=Inducing(40)), two, OF_GROUPS, "ep")
    dense, low = (
        infer(Model(kernel, likelihoods.Poisson(), process=process), two, OF_GROUPS, "ep")
        for process in (Dense(), Inducing(60))
    )
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-3)
