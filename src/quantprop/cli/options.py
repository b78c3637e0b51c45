"""The options of commands about a table: declared once, checked, and turned into the problem to learn."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quantprop.cli.screen import note
from quantprop.runtime.names import nearest

if TYPE_CHECKING:
    from quantprop.tables import Problem, Roles, Seasons, Table

LIKELIHOODS = ("probit", "logit", "heaviside", "multinomial-probit", "ordinal", "poisson", "negative-binomial",
               "binomial", "gaussian", "student-t", "double-exponential", "censored", "gamma", "beta", "weibull",
               "log-logistic", "zero-inflated-poisson", "zero-inflated-negative-binomial", "warped")  # fmt: skip
METHODS = ("qp", "ep", "vb", "laplace", "power-ep")
OBJECTIVES = ("evidence", "loo")
AUTO, SINGLE = "auto", "isotropic"  # the default kernels: of several models that are stacked, and of one
KERNELS = (SINGLE, "ard", "shrunk", "additive", AUTO)
REPLACED = {"grow": AUTO}  # kernels of earlier versions
DATES = ("number", "parts")
ROLES = ("upper", "event", "exposure", "trials", "weights")
MAX_QUICK_ROWS = 2000  # a fit of more is announced as a long one, or takes inducing points


def one_of(words: tuple[str, ...], terms: bool = False) -> Callable[[Any], Any]:
    """The check of an option with a few values, given once or repeatedly; `terms` allows a kernel formula as well."""
    also = ", or terms such as se(age)" if terms else ""

    def check(given: Any) -> Any:
        for value in [given] if isinstance(given, str) else given or []:
            if terms and value in REPLACED:
                raise typer.BadParameter(f"{value!r} is replaced by --kernel {REPLACED[value]}")
            if value not in words and not (terms and ("(" in value or "~" in value)):
                raise typer.BadParameter(
                    f"must be one of {', '.join(words)}{also}; got {value!r}{nearest(value, words)}"
                )
        return given

    return check


def choice(words: tuple[str, ...], help: str, terms: bool = False) -> Any:
    """An option with a few values."""
    return Option(callback=one_of(words, terms), help=help)


def check_place(out: Path | None) -> Path | None:
    """Refuse, before the work begins, a file that cannot be written."""
    if out is not None and ((out.exists() and not out.is_file()) or not out.resolve().parent.is_dir()):
        raise typer.BadParameter(f"{out} is a folder or a device, or in a folder that does not exist")
    return out


def place(help: str) -> Any:
    """An option with a file to write."""
    return Option(callback=check_place, help=help)


def words(text: str) -> tuple[str, ...]:
    """Words with commas between them; one that holds a comma has quotes around it."""
    cells = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(dict.fromkeys(cell.strip() for cell in cells if cell.strip()))


Data = Annotated[str, Argument(help="CSV (comma, semicolon or tab) or Parquet; - is standard input.")]
Decimal = Annotated[str, choice((".", ","), "Decimal separator.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
Debug = Annotated[bool, Option("--debug", help="Show the traceback of an error.")]
Csv = Annotated[Path | None, place("CSV file to write, replaced if it exists.  [standard output]")]
Stored = Annotated[Path, Argument(metavar="MODEL", help="A model file written by fit.")]
EVENT_HELP = (
    "Column with 1 or yes if the target was observed and 0 or no if it is a lower bound; or column=value, where value "
    "means observed."
)
OF_KERNEL = (
    "One lengthscale for all features (isotropic); one each (ard), with a prior that favours few relevant features "
    "(shrunk); a sum of curves and surfaces (additive); these stacked with a linear model (auto); or terms, such as "
    "'se(age) + periodic(month, period=12) + group(hospital) + linear(dose)'."
)
GUESSED = "[guessed from the target; the reason is printed]"
Likelihood = Annotated[str | None, choice(LIKELIHOODS, f"One of {', '.join(LIKELIHOODS)}.  {GUESSED}")]
Likelihoods = Annotated[list[str] | None, choice(LIKELIHOODS, f"As for fit; may be repeated.  {GUESSED}")]
Kernel = Annotated[str | None, choice(KERNELS, f"{OF_KERNEL}  [auto]", terms=True)]
Kernels = Annotated[list[str] | None, choice(KERNELS, f"{OF_KERNEL} May be repeated.  [isotropic]", terms=True)]
Method = Annotated[str, choice(METHODS, f"One of {', '.join(METHODS)}.")]
Varying = Annotated[
    str | None, Option(metavar="NAME=TERMS", help="A parameter of the likelihood as a function: 'scale = se(x)'.")
]
Objective = Annotated[str, choice(OBJECTIVES, "What learning maximises: evidence or loo.")]


@dataclass(frozen=True)
class TableOptions:
    """The options that fit and compare share: a table, its target, and what other columns say of the target."""

    data: Data
    target: Annotated[str, Option(help="The column to predict.")]
    upper: Annotated[
        str | None, Option(help="Column with the upper ends of intervals that start at the target; empty for none.")
    ] = None
    event: Annotated[str | None, Option(help=EVENT_HELP)] = None
    order: Annotated[str | None, Option(help="Labels of the target from the lowest, comma-separated.")] = None
    log: Annotated[bool, Option("--log", help="Model the logarithm of the target (gaussian, censored).")] = False
    exposure: Annotated[str | None, Option(help="Column with the exposure of each count.")] = None
    trials: Annotated[str | None, Option(help="Column with the number of trials, if the target counts successes.")] = (
        None
    )
    weights: Annotated[str | None, Option(help="Column with the number of equal rows that a row represents.")] = None
    dates: Annotated[str, choice(DATES, "Dates as days (number), or also year, week and day (parts).")] = "number"
    sample: Annotated[int | None, Option(min=2, help="Number of rows to use, drawn at random.  [all]")] = None
    seed: Annotated[int, Option(min=0, help="Random seed of --sample, --restarts and the folds.")] = 0
    ignore: Annotated[list[str] | None, Option(help="A column to ignore; may be repeated.")] = None
    drop_missing: Annotated[
        bool, Option("--drop-missing", help="Omit rows with missing values in columns of the model.")
    ] = False
    decimal: Decimal = "."

    @property
    def source(self) -> str:
        """The table's name in texts."""
        return "standard input" if self.data == "-" else self.data

    def problem(
        self, likelihood: str | None, kernel: str, seasons: tuple[str, ...] | None = None,
        varying: Mapping[str, str] | None = None,
    ) -> Problem:  # fmt: skip
        """The problem, with notes on how the columns of the table are used; of `seasons` if these are given, or chosen
        by evidence if there are none in them; `varying` has the terms of a parameter that varies.
        """
        table, roles = self.read()
        if seasons is not None and (found := self.seasons(table, roles, likelihood, seasons)):
            kernel = found.formula
        problem = self.problems(table, roles, [kernel], varying)(likelihood, kernel)
        announce(problem, likelihood)
        return problem

    def seasons(self, table: Table, roles: Roles, likelihood: str | None, given: tuple[str, ...]) -> Seasons | None:
        """The seasons of a series, if there are dates or seasons are given."""
        from quantprop import tables
        from quantprop.tables.encoding import is_dates

        if not given and not any(is_dates(table.column(name)) for name in table.names):
            note("note: no column holds dates, so no seasons were tried: --season names their periods in units of time")
            return None
        rows = self._complete(table, roles, [SINGLE]) if self.drop_missing else table
        with as_usage():
            found = tables.seasons(rows, self.target, likelihood, roles, given)
        note(f"note: {found}")
        return found

    def read(self) -> tuple[Table, Roles]:
        """All rows of the columns that are not ignored, and the roles of columns."""
        from quantprop import tables

        table = tables.read(self.data, self.decimal)
        roles = self._roles(table.names)
        check_columns(table, {"--target": self.target} | {f"--{role}": name for role, name in roles.columns.items()})
        for name in self.ignore or ():
            check_columns(table, {"--ignore": name})
            if name in (self.target, *roles.columns.values()):
                raise typer.BadParameter(
                    f"cannot ignore {name}: it is the target, or another option uses it", param_hint="--ignore"
                )
        return table.without(self.ignore or ()), roles

    def _roles(self, names: tuple[str, ...]) -> Roles:
        """The roles of columns; an event is a column, or column=value."""
        from quantprop.tables import Roles

        given = {role: getattr(self, role) for role in ROLES}
        if self.event is not None and self.event not in names and "=" in self.event:
            given["event"], given["observed"] = self.event.rsplit("=", 1)
        return Roles(**given, order=words(self.order or ""), log=self.log)

    def problems(
        self, table: Table, roles: Roles, kernels: Sequence[str], varying: Mapping[str, str] | None = None
    ) -> Callable[[str | None, str], Problem]:
        """The problem of a likelihood and one of these kernels; all of them have the same rows."""
        terms = tuple((varying or {}).values())
        from quantprop import tables

        rows = self._complete(table, roles, [*kernels, *terms]) if self.drop_missing else table
        if self.sample is not None and self.sample < len(rows.rows):
            note(f"note: {self.sample} of {len(rows.rows)} rows drawn at random, seed {self.seed}")
            rows = rows.sample(self.sample, self.seed)

        def problem_of(likelihood: str | None, kernel: str) -> Problem:
            with as_usage():
                return tables.problem(rows, self.target, likelihood, kernel, roles, self.dates, varying)

        return problem_of

    def _complete(self, table: Table, roles: Roles, kernels: Sequence[str]) -> Table:
        from quantprop import tables

        with as_usage():
            found = tables.complete(table, self.target, kernels, roles)
        if found.dropped:
            note(f"note: {found}")
        for name in found.constant:
            note(f"note: column {name} has a single value besides missing ones: ignored")
        if not found.table.rows:
            worst = max(found.cost, key=found.cost.__getitem__)
            remedy = f"omit the column with most of them, --ignore {worst!r}"
            if worst in (self.target, *roles.columns.values()):
                remedy = f"most are missing in column {worst!r}, which the model needs: fill it in"
            raise tables.TableError(f"{table.source} has no row without missing values: {remedy}")
        return found.table


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of TableOptions; their values come as its first argument."""
    shared = inspect.signature(TableOptions, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def called(**given: Any) -> None:
        command(TableOptions(**{name: given.pop(name) for name in shared}), **given)

    called.__signature__ = inspect.Signature([*shared.values(), *own])  # pyright: ignore[reportAttributeAccessIssue]
    return called


@contextmanager
def as_usage() -> Iterator[None]:
    """Report mistakes in roles or in a kernel formula as wrong usage of an option."""
    from quantprop.kernels import TermError
    from quantprop.tables import RoleError

    try:
        yield
    except RoleError as error:
        raise typer.BadParameter(str(error)) from None
    except TermError as error:
        raise typer.BadParameter(str(error), param_hint="--kernel") from None


def check_columns(table: Table, named: dict[str, str]) -> None:
    """Refuse an option that names a column which is not there."""
    for option, name in named.items():
        if name not in table.names:
            there = ", ".join(map(repr, table.names))
            raise typer.BadParameter(
                f"{table.source} has no column {name!r}; it has {there}{nearest(name, table.names)}", param_hint=option
            )


def decimals(text: str, option: str) -> list[float]:
    """Times, with commas between them."""
    try:
        return [float(word) for word in words(text)]
    except ValueError:
        raise typer.BadParameter(f"must be times with commas between them; got {text!r}", param_hint=option) from None


IMPLIED = {
    "censored": "because some intervals are open; --likelihood weibull or log-logistic for survival times",
    "binomial": "because of --trials",
    "ordinal": "because of --order",
}


def announce(problem: Problem, likelihood: str | None) -> None:
    """Notes on how the columns of a table are used."""
    target = problem.target
    asked = likelihood or problem.roles.implied
    how = "as asked" if likelihood else IMPLIED.get(asked or "", "guessed")
    note(f"note: {target.name}: {target.why}: {target.likelihood} likelihood ({how})")
    if not asked and target.others:
        note("note: otherwise, " + "; ".join(f"--likelihood {name} if {when}" for name, when in target.others))
    for column in problem.encoding.columns:
        if column.dates:
            more = f", and its place in {', '.join(column.cycles)}" if column.cycles else "; --dates parts adds more"
            note(f"note: column {column.name} holds dates, encoded as days since 1970{more}")
    for name, why in problem.left_out.items():
        note(f"note: column {name} {why}: ignored")


def announce_time(n: int) -> None:
    """A note on the time of exact inference from many rows."""
    if n > MAX_QUICK_ROWS:
        note(
            f"note: {n} rows: time grows with their cube, {(n / 1000) ** 3:.0f} times as long as for 1000, and memory "
            "with their square; fit --inducing 512 uses inducing points, --sample 1000 uses 1000 of the rows"
        )
