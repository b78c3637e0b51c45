"""What commands about a table take: options that several share, their checks, and the problem they amount to."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantprop.cli.screen import note
from quantprop.runtime.names import nearest

if TYPE_CHECKING:
    from quantprop.tables import Problem, Roles, Table

LIKELIHOODS = ("probit", "logit", "heaviside", "multinomial-probit", "ordinal", "poisson", "negative-binomial",
               "binomial", "gaussian", "student-t", "double-exponential", "censored", "gamma", "beta", "weibull",
               "log-logistic", "zero-inflated-poisson", "zero-inflated-negative-binomial", "warped")  # fmt: skip
METHODS = ("qp", "ep", "vb", "laplace", "power-ep")
OBJECTIVES = ("evidence", "loo")
KERNELS = ("isotropic", "ard")
GROW = "grow"  # terms, found by a search
DATES = ("number", "parts")
MANY = 2000  # rows from which a fit is announced as a long one


def one_of(words: tuple[str, ...]) -> Callable[[str | None], str | None]:
    """The check of an option with a few values."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in words:
            raise typer.BadParameter(f"must be one of {', '.join(words)}; got {value!r}{nearest(value, words)}")
        return value

    return check


Data = Annotated[str, typer.Argument(help="CSV (comma, semicolon or tab) or Parquet; - is standard input.")]
Goal = Annotated[str, typer.Option("--target", help="The column to predict.")]
Likelihood = Annotated[
    str | None,
    typer.Option(
        callback=one_of(LIKELIHOODS), help=f"One of {', '.join(LIKELIHOODS)}.  [guessed from the target, and said why]"
    ),
]
Upper = Annotated[
    str | None,
    typer.Option(help="Column with the upper ends of intervals that begin at the target (censored); empty is open."),
]
Event = Annotated[
    str | None,
    typer.Option(
        help="Column that says if the target was observed (1, yes) or is a lower bound (0, no); or "
        "column=value, where value says that it was observed."
    ),
]
Order = Annotated[str | None, typer.Option(help="Labels of the target from the lowest, with commas (ordinal).")]
Log = Annotated[bool, typer.Option("--log", help="Model the logarithm of the target (gaussian, censored).")]
Exposure = Annotated[str | None, typer.Option(help="Column with what counts are per (likelihoods of counts).")]
Trials = Annotated[str | None, typer.Option(help="Column with the trials in which the target counts successes.")]
Weights = Annotated[str | None, typer.Option(help="Column with how many equal rows a row stands for.")]
KERNEL_HELP = (
    "One lengthscale for all features (isotropic), or one each (ard); or terms of columns, such as "
    "'se(age) + periodic(month, period=12) + group(hospital) + linear(dose)'."
)


def kernel_or_terms(*more: str) -> Callable[[Any], Any]:
    """The check of a kernel, or several: words, or what could be terms."""

    def check(given: Any) -> Any:
        for value in [given] if isinstance(given, str) else given or []:
            if value not in (*KERNELS, *more) and "(" not in value:
                words = (*KERNELS, *more)
                raise typer.BadParameter(
                    f"must be one of {', '.join(words)}, or terms such as se(age); got {value!r}{nearest(value, words)}"
                )
        return given

    return check


Kernel = Annotated[
    str,
    typer.Option(callback=kernel_or_terms(GROW), help=f"{KERNEL_HELP} With grow, a sum of terms is searched for."),
]
Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", callback=kernel_or_terms(), help=f"{KERNEL_HELP} Several are compared.  [isotropic]"),
]
Likelihoods = Annotated[
    list[str] | None,
    typer.Option("--likelihood", help="As for fit; several are compared.  [guessed from the target, and said why]"),
]
Dates = Annotated[
    str, typer.Option(callback=one_of(DATES), help="Dates as days (number), or also year, week and day (parts).")
]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Drop = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows with missing values in columns of the model.")
]
Decimal = Annotated[str, typer.Option(callback=one_of((".", ",")), help="What stands before the decimals of a number.")]
Sample = Annotated[int | None, typer.Option(min=2, help="Use so many rows, drawn at random.  [all]")]
Coordinator = Annotated[str | None, typer.Option(help="host:port of process 0, in a job of several processes.")]
Processes = Annotated[int | None, typer.Option(min=1, help="How many processes the job has.")]
Process = Annotated[int | None, typer.Option(min=0, help="Which of them this one is.")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="File to write while learning, and to go on from if it is there.")
]
Minutes = Annotated[float | None, typer.Option(min=0, help="Between two checkpoints.  [10]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


@dataclass(frozen=True)
class Given:
    """What was said about a table."""

    data: str
    target: str
    likelihood: str | None = None
    kernel: str = "isotropic"
    roles: dict[str, str | None] = field(default_factory=dict)  # upper, event, exposure, trials, weights
    order: str | None = None
    log: bool = False
    dates: str = "number"
    ignore: list[str] | None = None
    drop_missing: bool = False
    decimal: str = "."
    sample: int | None = None
    seed: int = 0
    inducing: int | None = None

    def as_roles(self, names: tuple[str, ...]) -> Roles:
        """The roles of columns, as `tables` knows them; an event is a column, or column=value."""
        from quantprop.tables import Roles

        roles, event = dict(self.roles), self.roles.get("event")
        if event is not None and event not in names and "=" in event:
            roles["event"], roles["observed"] = event.rsplit("=", 1)
        return Roles(**roles, order=words(self.order or ""), log=self.log)

    def read(self) -> Problem:
        """The problem, with notes of what was made of the table."""
        table, roles = self.table()
        problem = self.problem(self.rows(table, roles, [self.kernel]), roles, self.likelihood, self.kernel)
        tell(problem, self.likelihood, self.inducing)
        return problem

    def table(self) -> tuple[Table, Roles]:
        """All rows and the columns that are not ignored, and the roles of columns."""
        from quantprop import tables

        table = tables.read(self.data, self.decimal)
        roles = self.as_roles(table.names)
        check_columns(table, {"--target": self.target} | {f"--{role}": name for role, name in roles.columns.items()})
        return self._without_ignored(table), roles

    def problem(self, table: Table, roles: Roles, likelihood: str | None, kernel: str) -> Problem:
        """What is to be learned with a likelihood and a kernel."""
        from quantprop import tables

        with as_usage():
            return tables.problem(table, self.target, likelihood, kernel, roles, self.dates)

    def _without_ignored(self, table: Table) -> Table:
        for name in self.ignore or ():
            check_columns(table, {"--ignore": name})
            if name in (self.target, *self.roles.values()):
                raise typer.BadParameter(
                    f"{name} is the target, or said to go with it: it cannot be ignored", param_hint="--ignore"
                )
        return table.without(self.ignore or ())

    def rows(self, table: Table, roles: Roles, kernels: Sequence[str]) -> Table:
        """Rows that are complete in all that models with these kernels use, if asked for, and a sample of them."""
        from quantprop import tables

        if self.drop_missing:
            with as_usage():
                found = tables.complete(table, self.target, kernels, roles)
            note(f"note: {found}")
            for name in found.constant:
                note(f"note: column {name} never changes where it is not missing: left out")
            if not found.table.rows:
                worst = max(found.cost, key=found.cost.__getitem__)
                remedy = f"leave out the column with most of them, --ignore {worst!r}"
                if worst in (self.target, *roles.columns.values()):
                    remedy = f"most are missing in column {worst!r}, which the model cannot do without: fill it in"
                raise tables.TableError(f"{table.source} has no row without missing values: {remedy}")
            table = found.table
        if self.sample is None or self.sample >= len(table.rows):
            return table
        note(f"note: {self.sample} of {len(table.rows)} rows drawn at random, seed {self.seed}")
        return table.sample(self.sample, self.seed)


@contextmanager
def as_usage() -> Iterator[None]:
    """What is wrong with roles or a text of terms is wrong usage of an option."""
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


IMPLIED = {
    "censored": "because ends are open; --likelihood weibull or log-logistic for survival times",
    "binomial": "because of --trials",
    "ordinal": "because of --order",
}


def tell(problem: Problem, likelihood: str | None, inducing: int | None = None) -> None:
    """What was made of the table."""
    target = problem.target
    asked = likelihood or problem.roles.implied
    how = "as asked" if likelihood else IMPLIED.get(asked or "", "guessed")
    note(f"note: {target.name}: {target.why}: {target.likelihood} likelihood ({how})")
    if not asked and target.others:
        note("note: otherwise, " + "; ".join(f"--likelihood {name} if {when}" for name, when in target.others))
    for column in problem.encoding.columns:
        if column.dates:
            more = f", and its place in {', '.join(column.cycles)}" if column.cycles else "; --dates parts adds more"
            note(f"note: column {column.name} holds dates: days since 1970{more}")
    for name in problem.left_out:
        why = "never changes" if problem.kernel in KERNELS else "is in no term"
        note(f"note: column {name} {why}: left out")
    if (n := len(problem.raw)) > MANY and inducing is None:
        note(
            f"note: {n} rows: time grows with their cube, {(n / 1000) ** 3:.0f} times that of 1000, and memory with "
            "their square; fit --inducing 512 takes them by inducing points, --sample 1000 learns from 1000 of them"
        )


def check_place(out: Path) -> None:
    """Say before the work, not after it, that a file cannot be written."""
    if (out.exists() and not out.is_file()) or not out.resolve().parent.is_dir():
        raise typer.BadParameter(
            f"{out} is a folder or a device, or in a folder that does not exist", param_hint="--out"
        )


def free_place(first: Path) -> Path:
    """The first of report.html, report-2.html, ... that is not there: what nobody asked to replace stays."""
    others = (first.with_stem(f"{first.stem}-{i}") for i in itertools.count(2))
    return next(place for place in itertools.chain([first], others) if not place.exists())


def words(text: str) -> tuple[str, ...]:
    """Words with commas between them; one that holds a comma has quotes around it."""
    cells: Iterable[str] = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(dict.fromkeys(cell.strip() for cell in cells if cell.strip()))
