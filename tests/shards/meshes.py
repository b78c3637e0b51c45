"""The same problem on one device and on several, in one process and in several: how far their results are apart.

    cd tests; python -m shards.meshes out.jsonl --rows 50000 --cores 16

Jobs run side by side on so many cores. What each process returned stays in the folder `out.jsonl.parts`, and a job that
is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from shards.jobs import differences, results, stored

MESHES = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1))  # processes, devices of each
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def run(place: Path, case: str, rows: int, mesh: tuple[int, int]) -> tuple[str, tuple[int, int], float]:
    """One job, unless it was run before; how many seconds it took."""
    folder, began = place / f"{case}-{mesh[0]}x{mesh[1]}", time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / f"{i}.npz").exists() for i in range(mesh[0])):
        results(folder, case, rows, *mesh)
    return case, mesh, time.perf_counter() - began


def compared(place: Path, case: str, mesh: tuple[int, int]) -> dict[str, float]:
    """How far a job is from that of one device."""
    one = stored(place / f"{case}-1x1", 1)[0]
    return differences(stored(place / f"{case}-{mesh[0]}x{mesh[1]}", mesh[0]), one)


def measured(place: Path, cases: list[str], meshes: Sequence[tuple[int, int]], rows: int, cores: int) -> Iterator[dict]:
    """A row for each case and mesh, when it and the job of one device are there."""
    os.environ["XLA_FLAGS"] = ONE_THREAD
    tasks = [(case, mesh) for case in cases for mesh in meshes]
    seconds: dict[tuple[str, tuple[int, int]], float] = {}
    told = set()
    with ThreadPoolExecutor(max(1, cores // 2)) as pool:
        for ended in as_completed([pool.submit(run, place, case, rows, mesh) for case, mesh in tasks]):
            case, mesh, took = ended.result()
            seconds[case, mesh] = took
            for key in [key for key in seconds if (key[0], (1, 1)) in seconds and key not in told]:
                told.add(key)
                apart = compared(place, *key)
                yield {"case": key[0], "processes": key[1][0], "devices": key[1][1], "rows": rows,
                       "seconds": round(seconds[key], 1), "cores": np.prod(key[1]).item(), **apart}  # fmt: skip


def mesh_of(text: str) -> tuple[int, int]:
    """2x1: two processes of one device each."""
    processes, devices = map(int, text.split("x"))
    return processes, devices


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--cases", nargs="+", default=["labels", "counts"])
    parser.add_argument("--meshes", nargs="+", type=mesh_of, default=MESHES, help="processes x devices: 2x1 4x1")
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    parts, meshes = Path(f"{asked.out.resolve()}.parts"), dict.fromkeys([MESHES[0], *asked.meshes])
    for row in measured(parts, asked.cases, list(meshes), asked.rows, asked.cores):
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps({name: x for name, x in row.items() if not name.startswith("rows.")}), flush=True)


if __name__ == "__main__":
    main()
