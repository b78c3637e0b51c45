"""What objects print: expressions that Python reads back, results in a few lines, HTML in which all text is escaped."""

import re
from html.parser import HTMLParser

import jax
import numpy as np
import pytest

from quantprop import (
    EP,
    QP,
    VB,
    Fitted,
    Laplace,
    Model,
    Parameter,
    PowerEP,
    Solution,
    Status,
    kernels,
    likelihoods,
    means,
    projections,
)
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import field
from quantprop.inference.predictive import Predictive
from quantprop.inference.results import Ending
from quantprop.projections import KL, Wasserstein

SE, LINEAR, CONSTANT = kernels.SquaredExponential(2.5, [1.0, 0.1]), kernels.Linear(1 / 3), kernels.Constant(2.0)
RECORDS = [
    SE, LINEAR, CONSTANT, kernels.White(0.1), kernels.Matern12(), kernels.Matern32(1e-9), kernels.Matern52(3),
    kernels.RationalQuadratic(1.0, 2.0, 0.3), kernels.Periodic(1.0, 2.0, 7.0),
    SE + LINEAR + CONSTANT, SE + (LINEAR + CONSTANT), (SE + LINEAR) * CONSTANT, SE + LINEAR * CONSTANT,
    SE * (LINEAR * SE), (SE + LINEAR) ** 2, (SE**2.0) ** 3.0, CONSTANT * LINEAR**2, (CONSTANT * LINEAR) ** 2,
    kernels.SquaredExponential(Parameter(2.0, bounds=(0.1, 10.0)), Parameter(1.0, fixed=True)),
    kernels.SquaredExponential(1.0, Parameter(np.array([1.0, 2.0]), bounds=((0.1, 0.2), (9.0, 9.5)))),
    likelihoods.Gaussian(0.3), likelihoods.Probit(), likelihoods.Logit(), likelihoods.Heaviside(0.05),
    likelihoods.Poisson(), likelihoods.Poisson("softplus"), likelihoods.NegativeBinomial(0.7, "square"),
    likelihoods.Binomial("logit"), likelihoods.StudentT(5.0, 0.2), likelihoods.DoubleExponential(0.2),
    likelihoods.Gamma(2.0), likelihoods.Beta(3.0, "logit"), likelihoods.Ordinal([-1.0, 0.5]), likelihoods.Censored(0.4),
    likelihoods.Weibull(0.6), likelihoods.LogLogistic(0.6), likelihoods.ZeroInflatedPoisson(0.2, "square"),
    likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.7), likelihoods.Warped(0.3, [0.5], [1.0], [0.1], 2.0),
    QP(), QP(3.0), EP(), PowerEP(0.25), VB(), Laplace(), EP(Wasserstein(2), 0.5), KL(), Wasserstein(1.5),
    means.Linear([1.0, 2.0], 0.5), Model(SE, likelihoods.Probit(), Parameter(0.2)),
]  # fmt: skip
NAMES = {**vars(kernels), **vars(likelihoods), "EP": EP, "QP": QP, "PowerEP": PowerEP, "VB": VB, "Laplace": Laplace,
         "KL": KL, "Wasserstein": Wasserstein, "Parameter": Parameter, "Model": Model}  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_records_print_what_python_reads_back(record):
    names = NAMES if not isinstance(record, means.Linear) else {"Linear": means.Linear}
    read = eval(repr(record), dict(names))
    assert jax.tree.structure(read) == jax.tree.structure(record)
    for ours, theirs in zip(jax.tree.leaves(read), jax.tree.leaves(record), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert "\n" not in repr(record)


def test_sums_of_kernels_read_as_they_are_written():
    assert repr(kernels.Constant(2.0) * (kernels.Linear(0.5) + kernels.White(0.1)) ** 2) == (
        "Constant(variance=2.0) * (Linear(variance=0.5) + White(variance=0.1)) ** 2"
    )


def test_long_vectors_are_cut_short():
    text = repr(kernels.SquaredExponential(1.0, np.arange(500.0)))
    assert text == "SquaredExponential(variance=1.0, lengthscale=[0.0, 1.0, 2.0, ..., 497.0, 498.0, 499.0])"


def solution(n=300, model=None):
    """A posterior that nothing was computed for."""
    column = np.linspace(0.0, 1.0, n)
    model = model or Model(kernels.SquaredExponential(1.23456789, 0.5), likelihoods.Poisson(), 0.25)
    status = Status("max-sweeps", 200, 1e-3, 1e-8, "parallel", 2)
    loo = np.where(column > 0.5, np.nan, -1.5)
    return Solution(model, QP(), np.stack([column, column], 1), Natural(column, column), Normal(column, column), -12.5,
                    loo, status)  # fmt: skip


def test_results_print_a_few_lines():
    found = solution()
    ending = Ending("converged", 12, 0, 1e-6, ("kernel.variance",))
    fitted = Fitted(found.model, found, "loo", -2.5, np.zeros(2), (), ending)
    lines = repr(fitted).splitlines()
    assert lines[0] == "Fitted, by QP(): 300 rows, 2 features"
    assert "  kernel         SquaredExponential(variance=1.235, lengthscale=0.5)" in lines
    assert "  at a bound     kernel.variance = 1.235" in lines
    assert "  leave-one-out  -1.5 per row (of 150 rows with a proper cavity)" in lines
    assert "  loo            -2.5" in lines
    assert any("raise max_sweeps" in line for line in lines)  # the remedy
    assert "  log evidence   -12.5" in repr(found).splitlines()
    for thing in (fitted, found, Predictive(likelihoods.Gaussian(0.5), found.marginals, np.ones(300), np.ones(300))):
        assert len(repr(thing).splitlines()) <= 14
        assert len(repr(thing)) < 1200
        assert "array" not in repr(thing)


def test_gaussians_show_their_ends():
    many = Normal(np.linspace(0, 1, 1000), np.full(1000, 1 / 3), np.eye(1000))
    assert repr(many) == (
        "Normal(mean=[0, 0.001001, 0.002002, ..., 0.998, 0.999, 1], variance=[0.3333, 0.3333, 0.3333, ..., 0.3333, "
        "0.3333, 0.3333], covariance=an array of 1000 × 1000)"
    )
    assert repr(Normal(0.5, 2.0)) == "Normal(mean=0.5, variance=2)"
    assert repr(Natural(np.array([1.0]), np.array([-0.5]))) == "Natural(nu=[1], tau=[-0.5])"


def test_records_can_be_printed_while_they_are_traced():
    seen = []
    jax.make_jaxpr(lambda v: seen.append((repr(kernels.Linear(v)), repr(Normal(v, v)))) or v)(1.0)
    assert "Linear(variance=" in seen[0][0]
    assert "Normal(mean=" in seen[0][1]


class Text(HTMLParser):
    """The tags of a piece of HTML, and its text."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def parsed(thing):
    found = Text()
    found.feed(thing._repr_html_())
    return found


def test_nothing_is_a_tag_that_came_from_a_name():
    custom = likelihoods.Custom(lambda y, f: -((y - f) ** 2))
    harmful = type("K", (kernels.Kernel,), {"__module__": "x"})
    harmful.__name__ = "<script>alert(1)</script>"
    model = Model(harmful(), custom, lambda x: 0.0)
    found = solution(model=model)
    fitted = Fitted(model, found, "evidence", 0.0, np.zeros(0), (), Ending("converged", 1, 0, 0.0, ()))
    predictive = Predictive(custom, found.marginals, np.ones(300), np.ones(300))
    for thing in (model, custom, harmful(), found, fitted, predictive):
        assert parsed(thing).tags <= {"code", "div", "b", "table", "tbody", "tr", "th", "td"}
    assert "Custom(<lambda>)" in parsed(custom).text
    assert "<script>alert(1)</script>()" in parsed(found).text


@pytest.mark.parametrize(
    "thing",
    [SE, likelihoods.StudentT(), QP(), KL(), Model(SE, likelihoods.Probit()), Normal(np.zeros(50), np.ones(50)),
     Natural(0.0, 1.0), solution()],
    ids=type,
)  # fmt: skip
def test_notebooks_show_html(thing):
    found = parsed(thing)
    assert re.search(r"\w", found.text)
    assert len(found.text) < 1500


def test_a_class_of_ones_own_prints_its_numbers():
    class Mine(kernels.Kernel):
        slope: float = 2.0
        kind: str = field(default="plain", static=True)

    assert repr(Mine()) == "Mine(slope=2.0)"
    assert repr(Mine(3.0, "other") + kernels.White(1.0)) == "Mine(slope=3.0, kind='other') + White(variance=1.0)"
    assert repr(projections.KL()) == "KL()"
