"""Fits whose rows are divided among processes, fits and predictions of files: what they take.

python -m studies.scale.run efficiency 100000 256        # one process and two, of one core each: seconds an evaluation
python -m studies.scale.run stream 2000000 64            # 5 evaluations of EP from a Parquet file: seconds and memory
python -m studies.scale.run same 1000000 16              # the same rows from memory and from a file: learned numbers
python -m studies.scale.run predict 5000000              # Parquet to Parquet by the command line: seconds and memory
python -m studies.scale.run kill 5 20000                 # kill -9 of one of two processes, and going on in one process
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 8
SELF = str(Path(__file__).resolve())


def rows_of(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Eight features, of which three matter, and labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, FEATURES))
    f = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    return x, np.where(f + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def probit(points: int):
    from quantprop import Inducing, Model, kernels, likelihoods

    kernel = kernels.SquaredExponential(1.0, 2.0 * np.ones(FEATURES))
    return Model(kernel, likelihoods.Probit(), process=Inducing(points))


def peak() -> float:
    """The most memory that this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


# --- two processes ---------------------------------------------------------------------------------------------------


def worker(place: str, port: int, processes: int, process: int, n: int, points: int, most: int) -> None:
    """One process of a fit: writes learned numbers and the seconds of every evaluation."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[process % len(cores)]})
    import quantprop
    from quantprop.learning.fitting import watched
    from quantprop.runtime.jobs import join

    if processes > 1:
        join(f"127.0.0.1:{port}", processes, process)
    x, y = rows_of(n)
    own = np.array_split(np.arange(n), processes)[process]
    cpu = [time.process_time()]
    with (
        quantprop.checkpointed(f"{place}/search", minutes=0),
        watched(lambda step, count: cpu.append(time.process_time())),
    ):
        fitted = quantprop.fit(probit(points), x[own], y[own], "ep", max_evaluations=most)
    passes = np.array([step.sweeps + 1 for step in fitted.trace])
    seconds = np.array([step.seconds for step in fitted.trace]) / passes
    np.savez(f"{place}/{process}.npz", theta=fitted.theta, seconds=seconds, cpu=np.diff(cpu)[: len(passes)] / passes,
             value=fitted.objective_value)  # fmt: skip


def started(place: str, processes: int, n: int, points: int, most: int) -> list[subprocess.Popen]:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port = some.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": ""}
    return [
        subprocess.Popen(
            [sys.executable, SELF, "worker", place, str(port), str(processes), str(i), str(n), str(points), str(most)],
            env=environment, stderr=subprocess.PIPE, text=True,
        )
        for i in range(processes)
    ]  # fmt: skip


def finished(place: str, processes: int, n: int, points: int, most: int) -> dict[str, np.ndarray]:
    for job in started(place, processes, n, points, most):
        said = job.communicate()[1]
        assert job.returncode == 0, said
    return dict(np.load(f"{place}/0.npz"))


def efficiency(n: int, points: int) -> None:
    """Seconds of a pass over all rows, the median of the evaluations after the first."""
    one, two = [], []
    for processes, found in ((1, one), (2, two)):
        with tempfile.TemporaryDirectory() as place:
            job = finished(place, processes, n, points, 8)
        found += [float(np.median(job[name][1:])) for name in ("seconds", "cpu")]
        print(f"{processes} processes of one core: {found[0]:.3f} s a pass, {found[1]:.3f} s of a core", flush=True)
    print(f"two are {one[0] / two[0]:.2f} times one, and {one[1] / two[1]:.2f} times by the time of a core")


def kill(times: int, n: int) -> None:
    """Two processes, one of which is killed at a random moment: how long the other lives on, and where the search ends
    that goes on, once in one process.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        whole = finished(place, 2, n, 32, 60)
        undisturbed = time.perf_counter() - began
    print(f"undisturbed: {undisturbed:.0f} s, evidence {whole['value']:.6f}", flush=True)
    for number in range(times):
        with tempfile.TemporaryDirectory() as place:
            jobs = started(place, 2, n, 32, 60)
            time.sleep(undisturbed * rng.uniform(0.3, 0.9))
            victim = int(rng.integers(2))
            jobs[victim].send_signal(signal.SIGKILL)
            began = time.perf_counter()
            said = jobs[1 - victim].communicate()[1].strip().splitlines()
            lived, code = time.perf_counter() - began, jobs[1 - victim].returncode
            jobs[victim].wait()
            words = [line for line in said if "process of the job" in line or "distributed service" in line]
            print(f"killed {victim}: the other ended after {lived:.1f} s with {code}: {(words or said[-1:])[0][:160]}")
            found = finished(place, 1 if number == 0 else 2, n, 32, 60)
            apart = np.max(np.abs(found["theta"] - whole["theta"])) / np.max(np.abs(whole["theta"]))
            print(f"  gone on in {1 if number == 0 else 2}: learned numbers differ by {apart:.1e}", flush=True)


# --- files -----------------------------------------------------------------------------------------------------------


def write_parquet(path: str, n: int, names: bool = False) -> None:
    """A file of n rows, a row group of 2^18 at a time."""
    import polars
    from polars.io.plugins import register_io_source

    size = 2**18
    schema = {**{f"x{i}": polars.Float64 for i in range(FEATURES)}, "y": polars.String if names else polars.Float64}

    def frames(*_):
        for start in range(0, n, size):
            x, y = rows_of(min(size, n - start), start)
            label = np.where(y > 0, "yes", "no") if names else y
            yield polars.DataFrame({**{f"x{i}": x[:, i] for i in range(FEATURES)}, "y": label}, schema=schema)

    register_io_source(frames, schema=schema).sink_parquet(path)


def stream(n: int, points: int, most: int = 5) -> None:
    """EP from a Parquet file."""
    from quantprop import tables
    from quantprop.learning.fitting import watched
    from quantprop.learning.streamed import fit_streamed

    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/rows.parquet"
        subprocess.run([sys.executable, SELF, "write", file, str(n)], check=True)
        print(f"{n} rows, {os.path.getsize(file) / 1e9:.2f} GB", flush=True)
        before, began, cpu = peak(), time.perf_counter(), time.process_time()
        spool = tables.spooled(file, "y", f"{folder}/rows")
        print(f"encoded in {time.perf_counter() - began:.0f} s, {time.process_time() - cpu:.0f} s of cores", flush=True)
        with watched(lambda step, count: print(f"{count}: {step.sweeps} sweeps, {step.seconds:.0f} s", flush=True)):
            fitted = fit_streamed(probit(points), spool, "ep", max_evaluations=most)
        print(f"{len(fitted.trace)} evaluations, {sum(step.sweeps for step in fitted.trace)} sweeps, in "
              f"{time.perf_counter() - began:.0f} s, {time.process_time() - cpu:.0f} s of cores, "
              f"{peak() - before:.2f} GB above {before:.2f} GB; evidence "
              f"{fitted.objective_value:.6f}")  # fmt: skip


def same(n: int, points: int) -> None:
    """The same rows from memory, on all devices that JAX has, and from a file. The kernel is one whose matrix at the
    points is far from singular, so that slopes are not rounded by more than they are asked for.
    """
    import quantprop
    from quantprop import Inducing, Model, fit, kernels, likelihoods, tables
    from quantprop.learning.streamed import fit_streamed

    precise: dict[str, Any] = {"tol": 1e-11, "gtol": max(1e-6, 5e-11 * n)}  # errors of sites are n × tol in slopes
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(f"{folder}/rows.parquet", n)
        spool = tables.spooled(f"{folder}/rows.parquet", "y", f"{folder}/rows")
        model = Model(kernels.Matern32(1.0, 2.0), likelihoods.Probit(), process=Inducing(points))
        one = timed("from a file", lambda: fit_streamed(model, spool, "ep", **precise))
        with quantprop.sharded():
            other = timed("from memory", lambda: fit(model, *spool.read(0, n), "ep", **precise))
    apart = np.abs(one.theta - other.theta)
    print(f"θ {other.theta}, differs by {np.array2string(apart, precision=1)}: {apart.max():.1e} of logarithms")


def timed(name: str, learned):
    """A fit, and a line about it."""
    began, cpu = time.perf_counter(), time.process_time()
    fitted = learned()
    print(f"{name}: {time.perf_counter() - began:.0f} s, {time.process_time() - cpu:.0f} s of cores; {fitted.status}",
          flush=True)  # fmt: skip
    return fitted


def predict(n: int) -> None:
    """By the command line, from Parquet to Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(f"{folder}/few.parquet", 2000, names=True)
        call = [sys.executable, "-m", "quantprop.cli"]
        subprocess.run([*call, "fit", f"{folder}/few.parquet", "--target", "y", "--inducing", "64", "--method", "ep",
                        "--out", f"{folder}/model"], check=True)  # fmt: skip
        write_parquet(f"{folder}/many.parquet", n, names=True)
        subprocess.run([*call, "predict", f"{folder}/model", f"{folder}/many.parquet", "--out",
                        f"{folder}/out.parquet"], check=True)  # fmt: skip
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
        print(f"at most {most:.2f} GB; {os.path.getsize(f'{folder}/out.parquet') / 1e6:.0f} MB written")


COMMANDS = {"efficiency": efficiency, "kill": kill, "stream": stream, "same": same, "predict": predict}


def main() -> None:
    """The command line."""
    name, *rest = sys.argv[1:]
    if name == "worker":
        worker(rest[0], *map(int, rest[1:]))
    elif name == "write":
        write_parquet(rest[0], int(rest[1]))
    else:
        COMMANDS[name](*map(int, rest))


if __name__ == "__main__":
    main()
