"""Files of every kind that a release wrote, which later ones must read: `python -m storage.stored` in tests/ writes
them to data/ in a folder named by the version, with the predictions of each model.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from quantprop import (
    EP,
    QP,
    VB,
    Dense,
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Inducing,
    Integrated,
    Laplace,
    LogNormal,
    Markov,
    Model,
    Parameter,
    PowerEP,
    fit,
    integrate,
    kernels,
    likelihoods,
    means,
    tables,
)
from quantprop.inference.results import Fitted
from quantprop.likelihoods.classes import SoftmaxFactor
from quantprop.priors import Classes, ClassesInducing, TwoClassesInducing
from quantprop.storage.records import encode

DATA = Path(__file__).resolve().parent / "data"
RNG = np.random.default_rng(4)
X = RNG.uniform(-2.0, 2.0, (18, 2))
NEW = RNG.uniform(-2.0, 2.0, (4, 2))
LATENT = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * RNG.normal(size=18)
SIGNS = np.where(LATENT > 0.0, 1.0, -1.0)
THREE = np.digitize(LATENT, [-0.7, 0.7])
COUNTS = RNG.poisson(np.exp(0.5 * LATENT))
GROUPS = np.column_stack([X[:, 0], np.arange(18) % 3])
SE = kernels.SquaredExponential(Parameter(1.0, prior=LogNormal(1.0, 3.0)), [1.0, 2.0])
PLAIN = kernels.SquaredExponential()
FIXED = kernels.SquaredExponential(Parameter(2.0, fixed=True), Parameter(1.0, fixed=True))


def learned(model: Model, x: Any, y: Any, method: Any = "laplace", **more: Any) -> Fitted:
    return fit(model, x, y, method, max_evaluations=3, **more)


def after_earlier_rows() -> Fitted:
    process = Inducing(6, learn=True, seed=2)
    first = learned(Model(PLAIN, likelihoods.Probit(), process=process), X[:10], SIGNS[:10], "ep")
    return learned(first.solution.as_prior(), X[10:], SIGNS[10:], "ep")


def few_of(mixture: Integrated, count: int = 9) -> Integrated:
    """The first components of a mixture, since a file of all is large."""
    weights = mixture.weights[:count] / mixture.weights[:count].sum()
    return dataclasses.replace(mixture, components=mixture.components[:count], weights=weights,
                               theta=mixture.theta[:count])  # fmt: skip


def table(**more: Any) -> Any:
    columns = {"a": X[:, 0], "day": [f"2024-01-{i + 1:02}" for i in range(18)], "kind": list("xyz" * 6), "y": COUNTS}
    return tables.fit(tables.from_columns(columns, "made up"), "y", **more)


def classifier(kernel: Any = None, y: Any = SIGNS, **more: Any) -> Any:
    more = {"method": "laplace", "max_iter_predict": 5, **more}
    return GaussianProcessClassifier(kernel, **more).fit(X, y)


def regressor(kernel: Any = None, x: Any = X, y: Any = LATENT, **more: Any) -> Any:
    return GaussianProcessRegressor(kernel, **{"method": "laplace", **more}).fit(x, y)


PER_CLASS = kernels.PerClass((PLAIN, kernels.Matern32(2.0, 0.5), kernels.Matern52()))
STORED: dict[str, Callable[[], Any]] = {
    "fit": lambda: learned(Model(SE + kernels.White(Parameter(0.1, fixed=True)), likelihoods.Probit()), X, SIGNS, "qp"),
    "fit-weights": lambda: learned(
        Model(PLAIN, likelihoods.StudentT(4.0, 0.5), means.Linear(np.array([0.1, 0.2]), 0.3)), X, LATENT, "vb",
        weights=1.0 + np.arange(18) % 2,
    ),
    "fit-counts": lambda: learned(
        Model(PLAIN.on(0) * kernels.Constant(2.0), likelihoods.NegativeBinomial(0.5), Parameter(0.1)), X, COUNTS, "ep",
        objective="loo", exposure=1.0 + np.arange(18) % 3,
    ),
    "fit-inducing": lambda: learned(Model(PLAIN, likelihoods.Probit(), process=Inducing(5)), X, SIGNS, "ep"),
    "fit-earlier-rows": after_earlier_rows,
    "fit-markov": lambda: learned(
        Model(kernels.Matern32(), likelihoods.Gaussian(), process=Markov()), X[:, :1], LATENT
    ),
    "fit-outputs": lambda: learned(
        Model(kernels.Coregion(rank=1, levels=3).on(1) * kernels.Matern52().on(0),
              likelihoods.ByOutput((likelihoods.Gaussian(0.2), likelihoods.StudentT(4.0, 0.3),
                                    likelihoods.Gaussian(0.4)))),
        GROUPS, np.column_stack([LATENT, np.arange(18) % 3]), "ep",
    ),
    "fit-classes": lambda: learned(Model(PER_CLASS, likelihoods.MultinomialProbit(3)), X, THREE, "ep"),
    "fit-softmax": lambda: learned(Model(PLAIN, likelihoods.Softmax(3), means.PerClass((0.0, 0.2, 0.1))), X, THREE),
    "integrated": lambda: few_of(integrate(learned(Model(PLAIN, likelihoods.Probit()), X, SIGNS))),
    "classifier": lambda: classifier(y=np.where(SIGNS > 0, "ja", "nein")),
    "classifier-rest": lambda: classifier(sk.ConstantKernel(2.0) * sk.RBF([1.0, 2.0]), THREE * 10),
    "classifier-pairs": lambda: classifier(PLAIN, THREE, multi_class="one_vs_one"),
    "classifier-joint": lambda: classifier(PER_CLASS, THREE, multi_class="joint", method="ep"),
    "classifier-joint-inducing": lambda: classifier(
        PLAIN, THREE, multi_class="joint", process=Inducing(5), method="ep"
    ),
    "classifier-integrated": lambda: classifier(FIXED, hyperparameters="integrated"),
    "regressor": lambda: regressor(sk.RBF(1.0) + sk.WhiteKernel(0.1), normalize_y=True, random_state=1),
    "regressor-terms": lambda: regressor("se(0) + linear(1) + white()", likelihood=likelihoods.StudentT(4.0, 0.5)),
    "regressor-mean": lambda: regressor(PLAIN, mean="linear", likelihood="student-t", process=Inducing(6)),
    "regressor-ordinal": lambda: regressor(PLAIN, y=THREE, likelihood="ordinal"),
    "regressor-series": lambda: regressor(kernels.Matern32(), X[:, :1], process="markov"),
    "ranker": lambda: GaussianProcessRanker(method="laplace").fit(X, [[0, 1], [2, 1], [3, 0], [4, 7], [5, 9], [8, 6]]),
    "table": table,
    "table-terms": lambda: table(kernel="se(a) + group(kind)"),
}  # fmt: skip

RECORDS: dict[str, Any] = {
    **{f"kernels.{type(kernel).__name__}": kernel for kernel in (
        kernels.Matern12(2, 0.5) * kernels.Matern32(1.0, [0.5, 0.25]), PLAIN + kernels.White(np.array([0.5])),
        kernels.Matern52(1.0, Parameter(np.array([1.0, 2.0]), bounds=(0.1, (3.0, 4.0)))), kernels.Constant() ** 1.5,
        kernels.RationalQuadratic(1.0, 1.0, Parameter(2.0)), kernels.Periodic(period=1.5), kernels.Oscillation(),
        kernels.IntegratedWiener(0.3), kernels.Linear(3.0, centre=np.array([0.5])), kernels.Linear(3.0).on(0),
        kernels.Columns(PLAIN, (0, "b"), ("first", "second")), kernels.Categories(0.4), PER_CLASS,
        kernels.Coregion(2, 3, np.ones((3, 2)), np.ones(3)), kernels.Difference(kernels.Constant(2.0)),
        kernels.Terms("se(age) + linear(year)", ("age", "year")), kernels.SquaredExponential(2.0),
    )},
    **{f"likelihoods.{type(likelihood).__name__}": likelihood for likelihood in (
        likelihoods.Gaussian(0.1 + 0.2), likelihoods.Probit(), likelihoods.Logit(), likelihoods.Heaviside(0.01),
        likelihoods.Poisson("square"), likelihoods.NegativeBinomial(0.7), likelihoods.Binomial("logit"),
        likelihoods.StudentT(4, Parameter(0.3, bounds=(0.01, np.inf))), likelihoods.DoubleExponential(0.4),
        likelihoods.Gamma(2.5), likelihoods.Beta(9.0), likelihoods.Censored(0.3), likelihoods.Softmax(4),
        likelihoods.Ordinal(Parameter(np.array([-1.0, 1.0]), ordered=True)), likelihoods.Weibull(0.6),
        likelihoods.LogLogistic(0.4), likelihoods.ZeroInflatedPoisson(0.2), likelihoods.MultinomialProbit(),
        likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.7, "square"), SoftmaxFactor(),
        likelihoods.Warped(0.3, [0.5], [1.0], [0.1], 2.0, 3.0),
        likelihoods.ByOutput((likelihoods.Gaussian(), likelihoods.Probit())),
    )},
    **{str(method): method for method in (EP(), QP(1.5), PowerEP(0.5), VB(), Laplace())},
    **{f"{type(process).__name__}{i}": process for i, process in enumerate((
        Dense(), Inducing(7, learn=True, seed=3, jitter=1e-6), Inducing(Parameter(X[:4])), Markov(), Markov(2, 5),
        Classes(3), ClassesInducing(3, Inducing(4)), TwoClassesInducing(Inducing(X[:2])),
    ))},
    "means": Model(
        PLAIN, likelihoods.Probit(), means.PerClass((0.5, Parameter(1.0), means.Linear(np.ones(1), 0.1, (1,))))
    ),
    "prior": Parameter(np.array(2.0), prior=LogNormal(1.0, 3.0), fixed=True),
}  # fmt: skip


def predictions(model: Any) -> list[list[float]]:
    """Numbers that a model predicts."""
    if isinstance(model, tables.TableModel):
        rows = {"a": NEW[:, 0], "day": ["2024-01-05"] * 4, "kind": list("xyzx"), "y": [0] * 4}
        found = model.forecast(tables.from_columns(rows, "new"))
        return [[float(value) for value in column] for column in found.values() if _are_numbers(column)]
    if isinstance(model, GaussianProcessRegressor):
        x = NEW[:, : model.n_features_in_]
        return np.array(model.predict(x, return_std=True) if model.likelihood != "ordinal" else [model.predict(x)],
                        dtype=float).tolist()  # fmt: skip
    if isinstance(model, GaussianProcessClassifier):
        found = model.predict(NEW) if model.multi_class == "one_vs_one" else model.predict_proba(NEW)
        return [*np.atleast_2d(found).tolist(), [model.log_marginal_likelihood()]]
    if isinstance(model, GaussianProcessRanker):
        return np.array(model.predict(NEW, return_std=True)).tolist()
    solution = model if isinstance(model, Integrated) else model.solution
    x = solution.components[0].X if isinstance(model, Integrated) else solution.X
    found = solution.predict(np.asarray(x[:4]))
    return [*np.atleast_2d(found.mean).tolist(), *np.atleast_2d(found.variance).tolist(), [solution.log_evidence]]


def _are_numbers(column: Any) -> bool:
    return all(str(value).replace(".", "").replace("-", "").replace("e", "").isdigit() for value in column)


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, make in STORED.items():
        path, model = folder / f"{name}.safetensors", make()
        model.save(path)
        found[name] = predictions(model)
        print(name, path.stat().st_size, flush=True)
    (folder / "predictions.json").write_text(json.dumps(found, indent=1) + "\n")
    records = {name: encode(record, name) for name, record in RECORDS.items()}
    (folder / "records.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    write(DATA / sys.argv[1])
