"""Names given as text: a wrong one is refused with the list of those that there are, and the nearest."""

import re

import numpy as np
import pytest
from sklearn.utils._param_validation import StrOptions
from typer.testing import CliRunner

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Model,
    comparison,
    datasets,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    tables,
)
from quantprop.cli import app, options
from quantprop.experiments.sweep import Plan
from quantprop.learning.objectives import OBJECTIVES
from quantprop.methods import METHODS
from quantprop.runtime.names import nearest

X, Y = np.linspace(0.0, 1.0, 6)[:, None], np.array([0, 1, 1, 0, 1, 0])
MODEL = Model(kernels.SquaredExponential(), likelihoods.Probit())
TABLE = tables.from_columns({"x": X[:, 0], "years": X[:, 0] + 1, "y": Y}, "made up")
PROBLEM = tables.problem(TABLE, "y")
ESTIMATORS = {GaussianProcessClassifier: Y, GaussianProcessRegressor: Y, GaussianProcessRanker: [[0, 1]]}
ARGUMENTS = [  # of estimators: each with the names that it may have
    (make, argument, sorted(rule.options))
    for make in ESTIMATORS
    for argument, rules in make._parameter_constraints.items()
    for rule in rules
    if isinstance(rule, StrOptions)
]


def misspelled(name):
    """Without its second letter."""
    return name[:1] + name[2:] if len(name) > 3 else name + name[-1]


def refused(call, name, names, argument=""):
    with pytest.raises(ValueError, match=f"{argument}.*{re.escape(misspelled(name))}") as caught:
        call(misspelled(name))
    said = str(caught.value)
    assert all(one in said for one in names)
    assert f"(did you mean {name!r}?)" in said


@pytest.mark.parametrize(("make", "argument", "names"), ARGUMENTS, ids=lambda part: getattr(part, "__name__", None))
def test_arguments_of_estimators(make, argument, names):
    for name in names:
        refused(lambda wrong: make(**{argument: wrong}).fit(X, ESTIMATORS[make]), name, names, argument)


@pytest.mark.parametrize("make", ESTIMATORS)
def test_methods_and_kernels_of_estimators(make):
    for name in METHODS:
        refused(lambda wrong: make(method=wrong).fit(X, ESTIMATORS[make]), name, METHODS, "method")
    refused(lambda wrong: make(kernel=wrong).fit(X, ESTIMATORS[make]), "ard", ["ard"], "kernel")


DOORS = {
    "infer, method": (lambda name: infer(MODEL, X, Y, method=name), "laplace", METHODS),
    "infer, schedule": (lambda name: infer(MODEL, X, Y, schedule=name), "parallel", ["parallel", "sequential"]),
    "fit, method": (lambda name: fit(MODEL, X, Y, name), "power-ep", METHODS),
    "fit, objective": (lambda name: fit(MODEL, X, Y, objective=name), "evidence", OBJECTIVES),
    "fit_many": (lambda name: fit_many(MODEL, [X], [Y], method=name), "laplace", METHODS),
    "link": (lambda name: likelihoods.Poisson(link=name), "softplus", ["exp", "square", "softplus"]),
    "problem, likelihood": (lambda name: tables.problem(TABLE, "y", name), "poisson", tables.targets.LIKELIHOODS),
    "problem, kernel": (lambda name: tables.problem(TABLE, "y", kernel=name), "isotropic", ["isotropic", "ard"]),
    "problem, dates": (lambda name: tables.problem(TABLE, "y", dates=name), "parts", ["number", "parts"]),
    "problem, target": (lambda name: tables.problem(TABLE, name), "years", TABLE.names),
    "problem, role": (lambda name: tables.problem(TABLE, "y", roles=tables.Roles(weights=name)), "years", TABLE.names),
    "table, method": (lambda name: tables.fit(TABLE, "y", method=name), "laplace", METHODS),
    "compare": (
        lambda name: comparison.compare(PROBLEM, ("qp", name), comparison.folds(PROBLEM, 2)), "laplace", METHODS,
    ),
    "term": (lambda name: kernels.Terms(f"{name}(x)"), "periodic", ["se", "periodic", "group"]),
    "option": (lambda name: kernels.Terms(f"se(x, {name}=2)"), "lengthscale", ["variance", "lengthscale", "ard"]),
    "column": (lambda name: kernels.Terms(f"se({name})", ("years", "x")), "years", ["years", "x"]),
    "data set": (datasets.load, "ionosphere", datasets.names()),
    "variant": (lambda name: datasets.load("crabs", name), "clean", ["clean", "paper"]),
    "plan": (lambda name: Plan(("crabs",), (name,), 1), "laplace", ["ep", "qp", "vb", "laplace"]),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_functions(door):
    refused(*DOORS[door])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["fit", "t.csv", "--target", "years"], ["x", "years", "y"]),
        (["fit", "t.csv", "--target", "y", "--weights", "years"], ["x", "years", "y"]),
        (["fit", "t.csv", "--target", "y", "--likelihood", "poisson"], options.LIKELIHOODS),
        (["fit", "t.csv", "--target", "y", "--method", "laplace"], options.METHODS),
        (["fit", "t.csv", "--target", "y", "--objective", "evidence"], options.OBJECTIVES),
        (["fit", "t.csv", "--target", "y", "--kernel", "isotropic"], options.KERNELS),
        (["fit", "t.csv", "--target", "y", "--dates", "parts"], options.DATES),
        (["compare", "t.csv", "--target", "y", "--methods", "laplace"], options.METHODS),
        (["reproduce", "table1", "--methods", "laplace"], ["qp", "vb", "laplace"]),
        (["reproduce", "table1", "--datasets", "ionosphere"], ["crabs", "ionosphere"]),
        (["datasets", "--variant", "paper"], ["clean", "paper"]),
    ],
)
def test_options(words, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    (tmp_path / "t.csv").write_text("x,years,y\n1,2,3\n2,3,4\n")
    found = CliRunner().invoke(app, [*words[:-1], misspelled(words[-1])])
    said = " ".join(found.stderr.replace("│", " ").split())
    assert found.exit_code == 2
    assert all(name in said for name in names)
    assert f"(did you mean {words[-1]!r}?)" in said


def test_what_is_far_from_all_names_gets_no_advice():
    assert nearest("kitten", METHODS) == nearest(3, METHODS) == nearest(None, METHODS) == ""
    assert nearest("Laplace", METHODS) == " (did you mean 'laplace'?)"
