"""Kernels from formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quantprop.kernels.base import Column, Kernel
from quantprop.kernels.building import Builder, Start
from quantprop.kernels.derived import with_derived
from quantprop.kernels.formulas import known_and_unknown, parsed, terms_of, told
from quantprop.kernels.grammar import Chain, TermError, Tree


@dataclass(frozen=True)
class Terms:
    """A kernel written as a formula.

    Kinds are se, matern12, matern32, matern52, rq, periodic, linear, lines, group, factor, coregion, constant and
    white. `=` fixes a parameter, `~` sets its starting value, and whatever is omitted is learned, except the variance
    of linear, factor and constant: these are effects with vague priors, whose variance estimators fix at a large value.
    `se(dose, monotone=increasing)` (decreasing, convex, concave) is a constraint on f, which estimators keep as their
    argument `monotone`, and `offset(x)` is a known part of f, which they add to its mean; the kernel alone expresses
    neither.

    Args:
        text: The formula, such as `se(age) + group(hospital)`.
        names: Names of the columns of X, if X has none itself.

    >>> from quantprop.kernels import Terms
    >>> Terms("se(age) + linear(dose)").kernel()
    SquaredExponential(variance=1.0, lengthscale=1.0).on(['age']) + Linear(variance=1.0).on(['dose'])
    """

    text: str
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.kernel()  # which says what is wrong with it
        self.offsets()

    @property
    def tree(self) -> Tree:
        """The parsed text."""
        return parsed(self.text)

    @property
    def spelled(self) -> str:
        """The formula in our own terms, where it was written as in R."""
        return told(self.tree)

    def kernel(self, start: Start = Start(), names: Sequence[str] = ()) -> Kernel:
        """The kernel; `start` has the numbers that are not said, `names` are those of X's columns."""
        offsets, others = known_and_unknown(self.tree)
        if not others:
            raise TermError(self.text, offsets[0].at, "an offset is known: add a term to learn, such as constant()")
        tree = others[0] if len(others) == 1 else Chain("+", others)
        return self._builder(start, names).made(tree, False, True)

    def offsets(self, names: Sequence[str] = ()) -> tuple[Column, ...]:
        """The columns of offsets, by position where names are known."""
        builder, calls = self._builder(Start(), names), known_and_unknown(self.tree)[0]
        for call in calls:
            if len(call.columns) != 1 or call.options:
                builder.fail(call.at, "offset takes one column and no options, as in offset(log(n))")
        return tuple(builder.position(*call.columns[0]) for call in calls)

    def shapes(self, names: Sequence[str] = ()) -> list[tuple[Column, str]]:
        """The columns of terms with `monotone=`, by position where names are known, and their shapes."""
        builder, calls = self._builder(Start(), names), terms_of(self.tree)
        shaped = [(call.columns[0], call.options["monotone"].value) for call in calls if "monotone" in call.options]
        return [(builder.position(*column), shape) for column, shape in shaped]

    def _builder(self, start: Start, names: Sequence[str]) -> Builder:
        given = tuple(names) or self.names
        known = with_derived(given, (named.column for call in terms_of(self.tree) for named in call.columns))
        return Builder(self.text, start, known)
