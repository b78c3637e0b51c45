"""Long benchmarks in independent parts: a row of JSON for each, appended as it is finished, never computed twice.

A part is a small record, such as {"set": "pima", "round": 0, "fold": 3}. Its row holds it and what was found, so that a
run that was cut short goes on where it stopped, and runs on several machines are merged by reading all of their files.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from quantprop.experiments.pool import ENVIRONMENT, in_processes

Row = dict[str, Any]
ON_CPU = {**ENVIRONMENT, "JAX_PLATFORMS": "cpu"}


def read(paths: Iterable[Path]) -> list[Row]:
    """All rows of these files, and of the files *.jsonl in these folders; a line that was cut off is left out."""
    found: list[Row] = []
    for path in paths:
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.exists() else []:
            found += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return found


def carry_out(
    work: Callable[[Row], Row], wanted: Sequence[Row], known: Sequence[Row], out: Path, jobs: int, seconds: float
) -> None:
    """Append the row of every part that is not known, by processes on one core each, until the time is over."""
    have = {_key(row, wanted[0]) for row in known}
    left = [part for part in wanted if _key(part, part) not in have]
    print(f"{len(left)} of {len(wanted)} parts to do", file=sys.stderr, flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    ends, done = time.time() + seconds, 0
    with out.open("a", encoding="utf-8") as file:
        pieces = [_Piece(work, part, ends, cores()) for part in left]
        for piece, row in in_processes(_Piece.carried_out, pieces, jobs, ON_CPU):
            if isinstance(row, str):
                print(f"{piece.part}: {row}", file=sys.stderr, flush=True)
            elif row is not None:
                file.write(json.dumps(piece.part | row) + "\n")
                file.flush()
                done += 1
    print(f"{done} done, {len(left) - done} left", file=sys.stderr, flush=True)


class _Piece:
    """A part with what is to be done with it, until when it may be begun, and on which cores."""

    def __init__(self, work: Callable[[Row], Row], part: Row, ends: float, cores: list[int]) -> None:
        self.work, self.part, self.ends, self.cores = work, part, ends, cores

    def carried_out(self) -> Row | str | None:
        """Its row, on a core of this worker's own; None where the time is over, and words where it failed."""
        if time.time() > self.ends:
            return None
        worker = int(multiprocessing.current_process().name.rsplit("-", 1)[-1])  # LokyProcess-1, ...
        on_core(self.cores[worker % len(self.cores)])
        try:
            return self.work(self.part)
        except Exception as error:  # the other parts go on; this one has no row, and is tried again by the next run
            return f"{type(error).__name__}: {error}"


def cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else [0]


def on_core(core: int) -> None:
    """This process on one core, where the system knows how: integration spreads over all that it has."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _key(row: Row, like: Row) -> str:
    return json.dumps({name: row.get(name) for name in like}, sort_keys=True)
