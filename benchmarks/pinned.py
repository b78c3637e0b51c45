"""Processes for measuring: one core, one thread, one after another; results come back as JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PREFIX = "RESULT "  # marks a line of results among whatever else a program prints
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


@dataclass(frozen=True)
class Report:
    """What a process printed as its results, or why there are none."""

    rows: tuple[dict, ...]
    failure: str = ""


def pinned(python: Path | str, script: str, *arguments: str, limit: float = 900.0, **environment: str) -> Report:
    """Run a script of this folder on one core and collect its results; it learns when it was started."""
    command = [str(python), str(HERE / script), *arguments]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    variables = clean | ONE_THREAD | environment | {"BENCH_STARTED": repr(time.time())}
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=limit, preexec_fn=_to_one_core
        )
    except subprocess.TimeoutExpired:
        return Report((), f"not done after {limit:.0f} s")
    rows = [json.loads(line.removeprefix(PREFIX)) for line in done.stdout.splitlines() if line.startswith(PREFIX)]
    return Report(tuple(rows), "" if rows and done.returncode == 0 else _last_words(done))


def _to_one_core() -> None:
    """Bind the calling process to the last core it may use, where the system knows how."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _last_words(done: subprocess.CompletedProcess) -> str:
    lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
    sys.stderr.write("\n".join(lines[-12:]) + "\n")
    return f"exit status {done.returncode}: {lines[-1][:200]}"
