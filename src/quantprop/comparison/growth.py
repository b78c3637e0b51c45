"""A sum of terms grown one at a time, while the leave-one-out log density gains significantly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quantprop.comparison.choice import Candidate, Standing, learned, standing
from quantprop.comparison.compare import OFFSET, Report
from quantprop.kernels import Terms, columns_of
from quantprop.kernels.terms import quoted
from quantprop.tables import Problem
from quantprop.tables.encoding import is_dates, levels_of
from quantprop.tables.reading import MISSING, Table, TableError

MIN_GAIN = 2.0  # nats, and standard errors, that a term must gain
TOLERATED_LOSS = 2.0  # nats, or standard errors, by which a simpler term may fall behind the best and be taken


@dataclass(frozen=True)
class Growth:
    """The steps of a search, from no term to the sum that was found, and all that was tried at each."""

    steps: tuple[Standing, ...]
    tried: tuple[tuple[Standing, ...], ...]

    @property
    def best(self) -> Standing:
        """The sum that was found."""
        return self.steps[-1]


def possible_terms(table: Table) -> tuple[str, ...]:
    """A linear and a smooth term for every column of numbers or dates, a group for every column of words; simple ones
    first. Columns that are neither, or whose words never repeat, are passed over.
    """
    linear, smooth, groups = [], [], []
    for name in table.names:
        present = table.only([i for i, cell in enumerate(table.column(name)) if cell not in MISSING])
        cells, column = present.column(name), quoted(name)
        if len(set(cells)) < 2:
            continue
        try:
            words = () if is_dates(cells) else levels_of(present, name)
        except TableError:  # too many words for 0-1 columns, but not for a group
            words = tuple(set(cells))
        if not words:
            linear.append(f"linear({column})")
            smooth += [f"se({column})"] * (len(set(cells)) > 5)
        elif len(words) == 2:
            linear.append(f"linear({column})")
        elif len(words) < len(cells):
            groups.append(f"group({column})")
    return (*linear, *groups, *smooth)


def grow(
    problem_of: Callable[[str], Problem],
    terms: Sequence[str],
    method: str = "qp",
    report: Report = lambda name, done, total: None,
    most: int = 10,
) -> Growth:
    """Start from a constant, add the term that gains most, and stop where none gains 2 nats and 2 standard errors.

    `problem_of` makes the problem of a kernel. Of terms that gain about as much as the best the first is taken, so
    simple ones should come first.
    """
    left, chosen, steps, tried = list(terms), [], [], []
    if not left:
        raise ValueError("terms: there is no column that a term could be made of")
    steps.append(standing(Candidate("constant()", problem_of(left[0])), method, kernel=OFFSET))
    while left and len(chosen) < most:
        texts = [" + ".join([*chosen, term]) for term in left]
        found = learned(
            [Candidate(text, problem_of(text)) for text in texts], method, report, f"term {len(chosen) + 1}"
        )
        tried.append(tuple(found))
        at = _taken(left, found, steps[-1])
        if at is None:
            break
        steps.append(found[at])
        chosen.append(left.pop(at))
    return Growth(tuple(steps), tuple(tried))


def _taken(terms: Sequence[str], found: Sequence[Standing], before: Standing) -> int | None:
    """The place of the candidate that is taken, if any."""
    gains = [one.less(before) for one in found]
    good = [i for i, gain in enumerate(gains) if gain.value > MIN_GAIN * max(1.0, gain.error)]
    if not good:
        return None
    best = max(good, key=lambda i: gains[i].value)
    columns = [columns_of(Terms(term).kernel()) for term in terms]
    for i in good[: good.index(best)]:  # simpler terms of the same column
        loss = found[best].less(found[i])
        if columns[i] == columns[best] and loss.value < TOLERATED_LOSS * max(1.0, loss.error):
            return i
    return best
