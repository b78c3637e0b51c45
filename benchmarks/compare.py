"""quantprop against its peers: the same splits, a process for every fit. Writes benchmarks/out/peers.json."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from environments import Environment, environment
from pinned import Report, pinned
from splits import SETS, write_splits
from table import print_tables


@dataclass(frozen=True)
class Program:
    """A library, how to install it (choices of requirements, first that works), what it fits and on which sets."""

    name: str
    script: str
    package: str
    methods: tuple[str, ...]
    likelihood: str
    choices: tuple[tuple[str, ...], ...] = ()  # none: the environment that runs this
    sets: tuple[str, ...] = tuple(SETS)


PROGRAMS = (
    Program("quantprop", "fit_quantprop.py", "quantprop", ("ep", "qp", "laplace", "vb"), "probit"),
    Program("gpy", "fit_gpy.py", "gpy", ("ep", "vb"), "probit", (("GPy>=1.15",),)),
    Program("scikit-learn", "fit_scikit_learn.py", "scikit-learn", ("laplace",), "logistic", (("scikit-learn",),)),
    # Later releases of GPBoost have no wheel for every processor, and sources that do not build; this one's do.
    Program("gpboost", "fit_gpboost.py", "gpboost", ("laplace",), "probit", (("gpboost",), ("gpboost==1.6.7",))),
    Program("gpflow", "fit_gpflow.py", "gpflow", ("vb",), "probit", (("gpflow",),), ("crabs",)),
    # This release of torch exists without the libraries for graphics processors, which take gigabytes.
    Program("gpytorch", "fit_gpytorch.py", "gpytorch", ("vb",), "probit", (("gpytorch", "torch==2.13.0"),), ("crabs",)),
)
CACHED = ("ep", "qp")  # methods of quantprop measured with compiled programs on disk, too
CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


@dataclass(frozen=True)
class Choice:
    """What to compare: names of programs, sets and methods, empty for the usual ones; `add` keeps rows measured before,
    `here` takes peers from the environment that runs this, where nothing can be installed.
    """

    programs: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    add: bool = False
    here: bool = False
    limit: float = 900.0


def compare(out: Path, choice: Choice) -> None:
    """Install, measure set after set (a machine's speed may change within minutes), write after every row, print."""
    splits, results = out / "splits.npz", out / "peers.json"
    write_splits(splits)
    rows = json.loads(results.read_text())["rows"] if choice.add and results.exists() else []
    chosen = [program for program in PROGRAMS if program.name in (choice.programs or (program.name,))]
    homes = [home_of(program, choice) for program in chosen]
    for name in choice.sets or SETS:
        for program, home in zip(chosen, homes, strict=True):
            for row in measured(program, home, name, splits, choice):
                rows = [old for old in rows if _key(old) != _key(row)] + [row]
                results.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))
                print(progress(row), flush=True)
    print_tables(rows)


def home_of(program: Program, choice: Choice) -> Environment:
    """Where a program is installed."""
    installed = choice.here or not program.choices
    return _this_environment(program.package) if installed else environment(program.name, program.choices)


def measured(program: Program, home: Environment, name: str, splits: Path, choice: Choice) -> Iterable[dict]:
    """The rows of one program and set, as they come."""
    if name not in (choice.sets or program.sets):
        return
    for method in (one for one in program.methods if one in (choice.methods or program.methods)):
        row = {"program": program.name, "method": method, "set": name, "likelihood": program.likelihood}
        row |= {"version": home.versions.get(program.package, ""), "versions": home.versions}
        row |= {"measured": time.strftime("%Y-%m-%d %H:%M"), "load": os.getloadavg()[0]}
        if home.python is None:
            yield row | {"failure": home.failure}
            continue
        arguments = (home.python, f"peers/{program.script}", str(splits), name, method)
        row |= _outcome(pinned(*arguments, limit=choice.limit))
        if program.name == "quantprop" and method in CACHED and not choice.methods and "failure" not in row:
            row["from_start_cached"] = with_cache(arguments, choice.limit)
        yield row


def with_cache(arguments: tuple, limit: float) -> float | None:
    """Seconds from the start of a process to a fitted model where JAX finds its programs compiled on disk."""
    with tempfile.TemporaryDirectory() as folder:
        variables = CACHE | {"JAX_COMPILATION_CACHE_DIR": folder}
        pinned(*arguments, "cold", limit=limit, **variables)
        return _outcome(pinned(*arguments, "cold", limit=limit, **variables)).get("from_start")


def machine() -> dict:
    """Where the numbers come from."""
    system = os.uname()
    return {"system": system.sysname, "processor": system.machine, "cores": os.cpu_count(), "python": sys.version}


def progress(row: dict) -> str:
    """One row in one line."""
    what = f"{row['program']} {row['method']} on {row['set']}"
    if "failure" in row:
        return f"{what}: {row['failure']}"
    return f"{what}: cold {row['cold']:.2f} s, warm {row['warm']:.3f} s, objective {row['objective']:.4f}"


def _outcome(report: Report) -> dict:
    return {"failure": report.failure} if report.failure else report.rows[0]


def _key(row: dict) -> tuple[str, str, str]:
    return row["program"], row["method"], row["set"]


def _this_environment(package: str) -> Environment:
    from importlib import metadata

    import quantprop

    own = {"quantprop": quantprop.__version__}  # which may run from its sources, without being installed
    try:
        found = {name: metadata.version(name) for name in {"jax", "jaxlib", "numpy", "scipy", package} - set(own)}
    except metadata.PackageNotFoundError as error:
        return Environment(None, {}, f"not installed here: {error.name}")
    return Environment(Path(sys.executable), own | found)
