"""Start the processes of a job and wait for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def started(folder: Path, case: str, n: int, processes: int, devices: int = 1) -> list[subprocess.Popen]:
    """The processes of a job, whose results go to `folder`."""
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    paths = [str(TESTS), *filter(None, [clean.get("PYTHONPATH")])]
    environment = {**clean, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"}
    arguments = [(str(folder / f"{i}.npz"), str(port), str(processes), str(i), str(devices)) for i in range(processes)]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "shards.job", *own, case, str(n)], cwd=folder, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for own in arguments
    ]  # fmt: skip


def results(folder: Path, case: str, n: int, processes: int, devices: int = 1) -> list[dict[str, np.ndarray]]:
    """What each process of a job returns."""
    jobs = started(folder, case, n, processes, devices)
    said = [job.communicate(timeout=3600)[0] for job in jobs]
    assert all(job.returncode == 0 for job in jobs), "\n".join(said)
    return stored(folder, processes)


def stored(folder: Path, processes: int) -> list[dict[str, np.ndarray]]:
    """What each process of a job has returned."""
    return [dict(np.load(folder / f"{i}.npz")) for i in range(processes)]


def differences(jobs: list[dict[str, np.ndarray]], one: dict[str, np.ndarray]) -> dict[str, float]:
    """How far a job is from one process, relative to the largest entry of each result; infinite where its processes
    differ from each other, or words or counts are others.
    """
    return {name: _difference(jobs, name, np.asarray(expected)) for name, expected in one.items()}


def _difference(jobs: list[dict[str, np.ndarray]], name: str, expected: np.ndarray) -> float:
    own = [job[name] for job in jobs]
    of_rows = "rows." in name
    if not of_rows and not all(np.array_equal(own[0], each) for each in own):
        return np.inf
    found = np.concatenate(own) if of_rows else own[0]
    if expected.dtype.kind in "US" or name.endswith("sweeps"):
        return 0.0 if np.array_equal(found, expected) else np.inf
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
