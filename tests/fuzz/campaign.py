"""Many adversarial problems, one line of JSON each; what is in the file already is not solved again.

python -m fuzz.campaign verdicts.jsonl --count 10000 --workers 2    # from the folder tests, with src on the path
python -m fuzz.campaign verdicts.jsonl --summary
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import jax
from fuzz.problems import FAMILIES, LATER_MENU, WHOLE_MENU, Menu, Problem, problem
from fuzz.verdicts import Verdict, verdict

MAPS = Path("/proc/self/maps")
LIMIT = 120.0  # seconds for one problem, compilation included
HUNG = 3  # exit status; start again to go on
MANY = 30_000  # memory maps; a process may hold 65,530, and every compiled program takes some

# Few programs: for the tests of every day.
SHORT_MENU = Menu(
    pairs=(
        ("probit", "qp"), ("poisson, exp", "vb"), ("heaviside", "ep"),
    ),
    kernels=("se", "linear", "noisy"), features=(2,), sizes=(32,), more_sizes=(32,), most_variance=9e5,
    fractional=False,
)  # fmt: skip
MENUS = {"whole": WHOLE_MENU, "later": LATER_MENU, "short": SHORT_MENU}


def read(path: Path) -> list[dict[str, Any]]:
    """The verdicts of a file; a last line that was not finished is none."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def run(path: Path, numbers: range, menu: Menu, pairs: range) -> None:
    """Solve what is missing, pair by pair of likelihood and method, so that their programs are used while they last."""
    done = {record["number"] for record in read(path)}
    of_pair = {number: number % len(menu.pairs) for number in numbers if number not in done}
    with open(path, "ab") as file:  # every line is appended by one call: processes may share the file
        for number in sorted((n for n in of_pair if of_pair[n] in pairs), key=of_pair.__getitem__):
            one = problem(number, menu)
            watch = threading.Timer(LIMIT, _give_up, (file, one))
            watch.start()
            found = verdict(one, thorough=number % 7 == 0)
            watch.cancel()
            _write(file, found)
            if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
                jax.clear_caches()


def share_out(workers: int, pairs: range) -> None:
    """The same command in processes of one pair each, begun again after a problem that hung."""

    def one(pair: int) -> int:
        code = HUNG
        while code == HUNG:
            command = [sys.executable, "-m", "fuzz.campaign", *sys.argv[1:], "--workers", "1", "--pair", str(pair)]
            code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        return code

    with ThreadPoolExecutor(workers) as threads:
        failed = [pair for pair, code in zip(pairs, threads.map(one, pairs), strict=True) if code]
    if failed:
        sys.exit(f"the processes of pairs {failed} failed: see above")


def mend(path: Path) -> None:
    """Take out a last line that was not finished."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def _write(file: BinaryIO, found: Verdict) -> None:
    file.write((json.dumps(found.record()) + "\n").encode())
    file.flush()


def _give_up(file: BinaryIO, on: Problem) -> None:
    """Note a problem that does not end; compiled programs cannot be interrupted, so the process ends with it."""
    fault = (f"no end within {LIMIT} s",)
    about = (
        on.number,
        on.family,
        on.method,
        on.log_concave,
        on.resolvable,
        "hung",
        0,
        float("nan"),
        fault,
        on.about,
        LIMIT,
    )
    _write(file, Verdict(*about))
    os._exit(HUNG)


def counts(records: list[dict[str, Any]], keys: tuple[str, ...]) -> dict[tuple[str, ...], Counter]:
    """How problems ended, by some of their fields."""
    found: dict[tuple[str, ...], Counter] = {}
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), Counter())[record["reason"]] += 1
    return found


def share(records: list[dict[str, Any]], log_concave: bool) -> float:
    """Of the problems of a kind, how many converged."""
    kind = [r["reason"] == "converged" for r in records if r["log_concave"] == log_concave and r["resolvable"]]
    return sum(kind) / max(1, len(kind))


def table(records: list[dict[str, Any]]) -> str:
    """Rows: likelihoods; columns: methods; entries: converged of all."""
    methods = ("qp", "ep", "power-ep", "vb", "laplace")
    found = counts(records, ("family", "method"))
    lines = ["| | " + " | ".join(methods) + " |", "|---" * (1 + len(methods)) + "|"]
    for family in FAMILIES:
        cells = [found.get((family, method), Counter()) for method in methods]
        lines.append(f"| {family} | " + " | ".join(f"{c['converged']}/{c.total()}" if c else "-" for c in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--menu", choices=MENUS, default="whole")
    parser.add_argument("--pair", type=int, help="only this pair of likelihood and method of the menu")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--summary", action="store_true")
    chosen = parser.parse_args()
    menu, numbers = MENUS[chosen.menu], range(chosen.first, chosen.first + chosen.count)
    if chosen.pair is not None:
        run(chosen.path, numbers, menu, range(chosen.pair, chosen.pair + 1))
        return
    every = range(len(menu.pairs))
    if not chosen.summary:
        mend(chosen.path)
    if not chosen.summary and chosen.workers == 1:
        run(chosen.path, numbers, menu, every)
    elif not chosen.summary:
        share_out(chosen.workers, every)
    records = read(chosen.path)
    print(table(records))
    print(f"{len(records)} problems; converged: {share(records, True):.2%} of those with one mode, "
          f"{share(records, False):.2%} of the others")  # fmt: skip
    for record in records:
        if record["faults"]:
            print(json.dumps(record))


if __name__ == "__main__":
    main()
