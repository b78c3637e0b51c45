"""Two trees of quantprop side by side, in one run: python benchmarks/before_after.py BEFORE [--rounds 9]

BEFORE is a commit, or a folder that holds another tree's package. Each tree gets a process of its own on the same core;
the two take every task in turn, and CPU time is counted, so that a busy machine harms little. Prints medians of warm
calls and their ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from pinned import ONE_THREAD, _to_one_core
from splits import SETS, split

ROOT = Path(__file__).parent.parent
READY = "ready"


def tasks() -> dict[str, Callable[[], object]]:
    """What users call, warm, by name; only names that every tree has."""
    from quantprop import EP, QP, VB, GaussianProcessClassifier, Laplace, Model, fit, infer, kernels, likelihoods

    def model(likelihood: object) -> Model:
        return Model(kernels.SquaredExponential(), likelihood)

    found: dict[str, Callable[[], object]] = {}
    for name, variant in SETS.items():
        parts = split(name, variant)
        x, y = parts["x"], parts["y"]
        for method in (EP(), QP()) + ((VB(), Laplace()) if name == "crabs" else ()):
            word = type(method).__name__ if method != QP() else "QP"
            found[f"fit {word} {name}"] = lambda x=x, y=y, m=method: fit(model(likelihoods.Probit()), x, y, m)
            found[f"infer {word} {name}"] = lambda x=x, y=y, m=method: infer(model(likelihoods.Probit()), x, y, m)
        solution = infer(model(likelihoods.Probit()), x, y)
        found[f"predict {name}"] = lambda s=solution, t=parts["x_test"]: s.predict_y(t).mean
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    counts = rng.poisson(np.exp(np.sin(2.0 * x[:, 0]))).astype(float)
    for method in (EP(), QP()):
        word = "EP" if method == EP() else "QP"
        found[f"fit {word} counts"] = lambda m=method: fit(model(likelihoods.Poisson()), x, counts, m)
    crabs = split("crabs", "paper")
    found["classifier crabs"] = lambda: GaussianProcessClassifier().fit(crabs["x"], crabs["y"])
    return found


def worker() -> None:
    """Warm every task, then time the tasks that are named on standard input, one a line."""
    warnings.simplefilter("ignore")
    known = tasks()
    for task in known.values():
        task()
    print(READY, *known, sep="\t", flush=True)
    for line in sys.stdin:
        start = time.process_time()
        known[line.strip()]()
        print(time.process_time() - start, flush=True)


@contextlib.contextmanager
def source(tree: str) -> Iterator[Path]:
    """The folder of the package: of a folder as it is, of a commit by a checkout that goes away again."""
    if Path(tree).is_dir():
        yield Path(tree).resolve()
        return
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", place, tree], check=True)
        try:
            yield Path(place) / "src"
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", place], check=True)


def started(path: Path) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    variables = clean | ONE_THREAD | {"PYTHONPATH": str(path)}
    return subprocess.Popen(
        [sys.executable, __file__, "worker"], env=variables, text=True, preexec_fn=_to_one_core,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def asked(process: subprocess.Popen[str], name: str) -> float:
    print(name, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit, or a folder that holds the package")
    parser.add_argument("--rounds", type=int, default=9, help="of which medians are taken")
    given = parser.parse_args()
    with source(given.before) as before:
        pair = [started(before), started(ROOT / "src")]
        names = [process.stdout.readline().rstrip("\n").split("\t")[1:] for process in pair]
        assert names[0] == names[1], "the two trees have other tasks"
        ratios = []
        print(f"{'':24} {'before':>9} {'now':>9}  now / before")
        for name in names[0]:
            times = np.array([[asked(process, name) for process in pair] for _ in range(given.rounds)])
            old, new = np.median(times, axis=0)
            ratios.append(np.median(times[:, 1] / times[:, 0]))
            print(f"{name:24} {1e3 * old:6.1f} ms {1e3 * new:6.1f} ms  {ratios[-1]:.3f}", flush=True)
        print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, largest {max(ratios):.3f}")
        for process in pair:
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main()
