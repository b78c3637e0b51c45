"""Kernel formulas: what they mean, what is rejected and where, and that nothing in them is ever run."""

import random
import sys

import numpy as np
import pytest

from quantprop import kernels
from quantprop.kernels import TermError, Terms, written
from quantprop.kernels.grammar import MAX_BRACKETS, MAX_LETTERS

WORDS = ("se", "group", "linear", "periodic", "coregion", "matern32", "rq", "white", "constant", "age", "my dose", "0")
PIECES = (*WORDS, "(", ")", ",", "+", "*", "**", "=", "~", "[", "]", "1.5", "-2", "1e3", "'", '"', " ", "lengthscale",
          "variance", "period", "rank", "ard", "true", "__import__('os').system('true')", "lambda: 0", "{}", "\n", "ä",
          "\x00", ";", "age.__class__", "9" * 400, "**2", "y ~", "|", "||", "/", ":", "s(", "poly(", "by=", "log(",
          "sqrt(x)")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("se(age)", "SquaredExponential(variance=1.0, lengthscale=1.0).on(['age'])"),
        ('group("St. Anna, ""east""")', "Categories(variance=1.0).on(['St. Anna, \"east\"'])"),
        ("factor(age, reference=2)", "Factor(variance=1.0, reference=2.0).on(['age'])"),
        ("se(0, 2, lengthscale=[1, 2e0])",
         "SquaredExponential(variance=1.0, lengthscale=Parameter([1.0, 2.0], fixed=True)).on([0, 2])"),
        ("periodic(t, period=12)",
         "Periodic(variance=1.0, lengthscale=1.0, period=Parameter(12.0, fixed=True)).on(['t'])"),
        ("se(t, lengthscale~3)", "SquaredExponential(variance=1.0, lengthscale=Parameter(3.0)).on(['t'])"),
        ("white() + constant()", "White(variance=1.0) + Constant(variance=1.0)"),
        ("linear(a) * group(b)",
         "Linear(variance=1.0).on(['a']) * Categories(variance=Parameter(1.0, fixed=True)).on(['b'])"),
        ("(linear(a) + constant()) ** 2", "(Linear(variance=1.0).on(['a']) + Constant(variance=1.0)) ** 2.0"),
        ("coregion(g, rank=2)", "Coregion(rank=2).on(['g'])"),
    ],
)  # fmt: skip
def test_what_it_means(text, said):
    assert repr(Terms(text).kernel()) == said


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 1, "a term such as"), ("se(age", 7, "',' or '\\)'"), ("se(age) +", 10, "not the end"),
        ("smooth(age)", 1, "there is no term 'smooth'"), ("se(age) group(b)", 9, "'\\+', '\\*' or the end"),
        ("se()", 1, "se takes one column or more; got 0"), ("periodic(a, b, period=1)", 1, "takes one column"),
        ("constant(a)", 1, "takes no column"), ("periodic(t)", 1, "needs its period"), ("se(a, a)", 7, "twice"),
        ("se(a, width=2)", 7, "no option 'width'"), ("se(a, lengthscale=0)", 7, "positive"),
        ("se(a, lengthscale=[1, 2])", 7, "single number or one per column"), ("se(a, ard=2)", 7, "true or false"),
        ("se(a, ard=true, b)", 17, "columns come first"), ("group(a, ard=true)", 10, "no option 'ard'"),
        ("coregion(g, rank=1.5)", 13, "integer"), ("coregion(g, own=[1, 1])", 1, "weights and own together"),
        ("se(a) ** -1", 10, "a power"), ("2 * se(a)", 1, "a term such as"), ("se(a) $ se(b)", 7, "not part of"),
        ("group('a)", 7, "never closed"), ("se(a, lengthscale=2, lengthscale=3)", 22, "given twice"),
        ("(" * (MAX_BRACKETS + 1) + "se(a)", MAX_BRACKETS + 1, "brackets"),
        ("se(" + "a" * MAX_LETTERS + ")", MAX_LETTERS + 1, "longer"),
    ],
)  # fmt: skip
def test_errors_point_at_the_place(text, position, said):
    with pytest.raises(TermError, match=said) as caught:
        Terms(text)
    assert caught.value.position == position
    assert f"position {position}:" in str(caught.value)


def test_a_wrong_name_is_pointed_at():
    with pytest.raises(TermError, match="no column 'hospitl'; there are 'age', 'hospital'") as caught:
        Terms("se(age) + group(hospitl)", ("age", "hospital"))
    assert caught.value.position == 17


def test_a_kernel_written_and_read_is_the_same():
    text = (
        "se(age, dose, variance=1.5, lengthscale=[2, 3.25]) + (group(school, variance=0.5) + white(variance=0.1)) "
        '* linear("my dose", variance=2) + coregion(school, rank=1, weights=[1, -0.5], own=[0.1, 0.2]) ** 2 + '
        "periodic(month, variance=1, lengthscale=0.5, period=12) + rq(age, variance=1, lengthscale=2, mixture=3)"
    )
    kernel = Terms(text).kernel()
    assert written(kernel, 17) == text
    assert repr(Terms(written(kernel, 17)).kernel()) == repr(kernel)
    names = ("school", "month", "my dose", "dose", "age")
    assert written(Terms(text, names).kernel(), 17) == text
    with pytest.raises(TypeError, match="Stationary cannot be written as a formula"):
        written(kernels.Stationary().on(0))


RUNS = {"exec", "compile", "import", "open", "os.system", "os.exec", "subprocess.Popen"}
seen: list[str] | None = None  # what Python was asked to run, while a test watches


def _watch(event, _):
    if seen is not None and event in RUNS:
        seen.append(event)


sys.addaudithook(_watch)


def drawn(draw):
    """Pieces in any order, or a good text with some letters exchanged for pieces."""
    if draw.random() < 0.5:
        return "".join(draw.choice(PIECES) for _ in range(draw.randint(0, 25)))
    letters = list('se(age, lengthscale~2) + periodic(month, period=12) * group("my dose") + linear(0) ** 2')
    for _ in range(draw.randint(0, 3)):
        letters[draw.randrange(len(letters))] = draw.choice(PIECES)
    return "".join(letters)


def test_a_thousand_strings_parse_or_name_the_position():
    global seen
    draw = random.Random(0)
    texts, positions = [drawn(draw) for _ in range(1000)], {}
    Terms("se(age)")  # whatever is imported on first use
    seen = []
    for text in texts:
        try:
            Terms(text)
        except TermError as error:
            positions[text] = error.position
    ran, seen = seen, None
    assert not ran
    assert all(1 <= position <= len(text) + 1 for text, position in positions.items())
    assert 100 < len(positions) < 900


def test_one_variance_is_enough_for_a_product():
    kernel = Terms("se(a) * coregion(g) * linear(b)").kernel()
    assert written(kernel) == "se(a, variance=1, lengthscale=1) * coregion(g, rank=1) * linear(b, variance=1)"
    assert all(np.all(part.fixed) for part in (kernel.left.left.kernel.variance, kernel.right.kernel.variance))
