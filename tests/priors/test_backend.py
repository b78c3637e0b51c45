"""A backend that the library has never seen goes all the way: inference, learning, predictions, files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from priors.lowrank import LowRank
from sklearn.gaussian_process import kernels as sk

from quantprop import (
    EP,
    QP,
    VB,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Laplace,
    Model,
    Parameter,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
    predict_many,
)
from quantprop.storage import register

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3, 3, (30, 1)), axis=0)
LABELS = np.sign(np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=30))
COUNTS = RNG.poisson(np.exp(1 + np.sin(2 * X[:, 0]))).astype(float)
NEW = np.linspace(-3, 3, 7)[:, None]
KERNEL = kernels.Matern32(1.5, 0.3)  # shorter than the typical distance: K_uu is well conditioned
PROBIT, POISSON, STUDENT = likelihoods.Probit(), likelihoods.Poisson(), likelihoods.StudentT()


def pair(likelihood, mean=0.0) -> tuple[Model, Model]:
    """The dense model, and the one of low rank whose points are the inputs: the same Gaussian process."""
    return Model(KERNEL, likelihood, mean), Model(KERNEL, likelihood, mean, LowRank(X))


@pytest.mark.parametrize(
    ("likelihood", "y", "method"),
    [
        (PROBIT, LABELS, EP()),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in ((PROBIT, LABELS, QP()), (POISSON, COUNTS, VB()), (STUDENT, COUNTS, Laplace()))
        ),
    ],
    ids=["ep", "qp", "vb", "laplace"],
)
def test_inference_and_predictions_equal_the_dense_ones(likelihood, y, method):
    dense, low = (infer(model, X, y, method, tol=1e-9) for model in pair(likelihood))
    assert low.status.reason == "converged"
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.marginals.mean, dense.marginals.mean, atol=1e-7)
    np.testing.assert_allclose(low.marginals.variance, dense.marginals.variance, rtol=1e-7)
    np.testing.assert_allclose(low.loo, dense.loo, atol=1e-7)
    for full in (False, True):
        one, other = low.predict(NEW, full_cov=full), dense.predict(NEW, full_cov=full)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-7)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)
    (many,) = predict_many([low], [NEW])
    np.testing.assert_allclose(many.variance, other.variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("laplace", "evidence"),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (("ep", "evidence"), ("qp", "evidence"), ("ep", "loo"))
        ),
    ],
)
def test_learning_finds_the_dense_optimum(method, objective, tmp_path):
    """With Z = X every value and gradient is the dense one, so that searches end at the same place."""
    dense, low = (fit(model, X, LABELS, method, objective) for model in pair(PROBIT, Parameter(0.1)))
    assert low.status.reason == "converged"
    assert low.objective_value == pytest.approx(dense.objective_value, abs=1e-6)
    np.testing.assert_allclose(low.theta, dense.theta, atol=1e-3)
    low.save(tmp_path / "low.safetensors")
    again = load(tmp_path / "low.safetensors")
    np.testing.assert_array_equal(again.solution.predict(NEW).mean, low.solution.predict(NEW).mean)
    np.testing.assert_array_equal(again.model.process.points, X)


@pytest.mark.campaign
@pytest.mark.parametrize(("method", "objective"), [("laplace", "evidence"), ("qp", "evidence"), ("ep", "loo")])
def test_learning_in_a_batch_finds_the_dense_optimum(method, objective):
    one, other = fit_many(pair(PROBIT, Parameter(0.1)), [X, X], [LABELS, LABELS], method, objective)
    assert other.objective_value == pytest.approx(one.objective_value, abs=1e-6)


@pytest.mark.campaign
@pytest.mark.parametrize("make", [GaussianProcessClassifier, GaussianProcessRegressor])
def test_estimators_learn_predict_and_are_stored(make, tmp_path):
    """Few evaluations: what is learned is compared with the dense process, not with the truth."""
    kernel, y = 1.5 * sk.Matern(0.3, nu=1.5), LABELS if make is GaussianProcessClassifier else np.sin(X[:, 0])
    noise = {} if make is GaussianProcessClassifier else {"alpha": 0.01}
    settings = {"method": "ep", "optimizer": None, **noise}
    dense, low = (make(kernel, process=process, **settings).fit(X, y) for process in ("dense", LowRank(X)))
    assert low.log_marginal_likelihood_value_ == pytest.approx(dense.log_marginal_likelihood_value_, abs=1e-7)
    forecast = make.predict_proba if make is GaussianProcessClassifier else make.predict
    np.testing.assert_allclose(forecast(low, NEW), forecast(dense, NEW), atol=1e-7)
    value, slope = low.log_marginal_likelihood(kernel.theta + 0.1, eval_gradient=True)
    again, same = dense.log_marginal_likelihood(kernel.theta + 0.1, eval_gradient=True)
    assert value == pytest.approx(again, abs=1e-7)
    np.testing.assert_allclose(slope, same, atol=1e-6)
    low.save(tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(twin.predict(NEW), low.predict(NEW))
    np.testing.assert_array_equal(twin.process.points, X)


@pytest.mark.campaign
def test_where_sweeps_fail_the_joint_posterior_helps_any_backend():
    dense, low = (infer(model, X, LABELS, "qp", schedule="sequential", tol=1e-9) for model in pair(PROBIT))
    assert low.status.schedule == "sequential"
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)


def test_a_schedule_that_needs_the_joint_posterior_says_up_to_where():
    x = np.linspace(0, 1, 1100)[:, None]
    model = Model(KERNEL, PROBIT, process=LowRank(x[::200]))
    with pytest.raises(ValueError, match=r"only up to 1024 rows; use schedule='parallel'"):
        infer(model, x, np.ones(1100), schedule="sequential")


def test_a_type_that_is_not_registered_is_not_stored(tmp_path):
    class Unknown(LowRank):
        pass

    fitted = fit(Model(KERNEL, PROBIT, process=Unknown(X)), X, LABELS, "ep", max_evaluations=2)
    with pytest.raises(TypeError, match=r"Unknown is not a type of the library.*storage\.register"):
        fitted.save(tmp_path / "unknown.safetensors")
    assert register(LowRank) is LowRank


@pytest.mark.campaign
@pytest.mark.parametrize(("rows", "kilobytes"), [(12_000, 1e6), (30_000, 2e6)])
def test_many_rows_in_less_memory_than_a_matrix(rows, kilobytes):
    """An n × n array alone would take 1.15 GB, and 7.2 GB."""
    script = r"""
        import re
        from pathlib import Path
        from resource import getrusage
        import numpy as np
        from priors.lowrank import LowRank
        from quantprop import Model, fit, kernels, likelihoods
        rng = np.random.default_rng(0)
        x = rng.uniform(-3, 3, (ROWS, 2))
        y = np.sign(np.sin(2 * x[:, 0]) + x[:, 1] + rng.normal(size=len(x)))
        model = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit(), process=LowRank(x[:50]))
        fitted = fit(model, x, y, "ep", max_evaluations=3)
        latent = fitted.solution.predict(x[:5000])
        assert fitted.solution.converged and np.isfinite(latent.variance).all(), fitted.solution.status
        status = Path("/proc/self/status")  # its peak is this program's alone; rusage counts the parent's before exec
        told = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        print(getrusage(0).ru_maxrss if told is None else told.group(1))
    """
    script = script.replace("ROWS", str(rows))
    source = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(source)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) / (1024 if sys.platform == "darwin" else 1) < kilobytes
