"""Reference runs for docs/background/accuracy.md and the tests: exact posteriors of `quantprop.reference.cases`.

    python -m studies.accuracy.ground_truth prepare tests/oracles/ground_truth.npz   # starts and guides; minutes
    python -m studies.accuracy.ground_truth run tests/oracles/ground_truth.npz OUT   # the chains; minutes on one GPU
    python -m studies.accuracy.ground_truth merge tests/oracles/ground_truth.npz OUT --names sonar  # named sets

`run` writes OUT/ground_truth.npz anew after every case, so that what is done survives. Without --names it takes cases
that the file it reads does not have yet; data sets that are named are done again. See tests/oracles/README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from quantprop import infer, reference
from quantprop.core.gaussian import Natural
from quantprop.experiments.learning import by_the_text
from quantprop.experiments.protocol import split
from quantprop.reference import cases
from quantprop.reference.guide import guiding_sites

FILE = "ground_truth.npz"
Store = dict[str, np.ndarray]


def prepare(path: Path, names: list[str]) -> None:
    """Hyperparameters and guiding sites of every case, added to what the file has."""
    store = _read(path)
    for name in names:
        data = cases.load(name)
        variance, lengthscale = cases.DRAWN_WITH if name in cases.GENERATED else _learned(name)
        for setting, v in cases.settings(variance).items():
            solution = infer(data.model(v, lengthscale), data.x, data.y, "ep", tol=1e-8)
            sites = guiding_sites(solution)
            fields = {"theta": [v, lengthscale], "fingerprint": data.fingerprint}
            store |= {f"{name}/{setting}/{field}": np.asarray(value) for field, value in fields.items()}
            store |= {f"{name}/{setting}/guide": np.stack([sites.nu, sites.tau]).astype(np.float32)}
            print(f"{name}, {setting}: {len(data.y)} rows, {v:.6g}, {lengthscale:.4g}; {solution.status}", flush=True)
        _write(path, store)


def _learned(name: str) -> tuple[float, float]:
    """EP's hyperparameters by the protocol."""
    parts = split(cases.experiment(name))
    learned = by_the_text(cases.experiment(name), "ep", parts, {})
    print(f"{name}: {learned.status}")
    kernel: Any = learned.solution.model.plain_kernel
    return float(kernel.variance), float(kernel.lengthscale)


def run(path: Path, out: Path, names: list[str], effort: argparse.Namespace) -> list[str]:
    """Sample the cases, harsher settings last; return those that time did not allow."""
    store, began, left = _read(path), time.perf_counter(), []
    for setting in cases.SETTINGS:
        for name in names or cases.names():
            key = f"{name}/{setting}"
            if f"{key}/theta" not in store or (not names and f"{key}/mean" in store):
                continue
            if time.perf_counter() - began > effort.seconds:
                left.append(key)
                continue
            store |= {f"{key}/{field}": value for field, value in _truth(key, store, effort).items()}
            _write(out / FILE, store)
    return left


def merge(path: Path, out: Path, names: list[str]) -> None:
    """Put the results of the named data sets in OUT/ground_truth.npz in place of those of a file."""
    theirs = {key: value for key, value in _read(out / FILE).items() if key.split("/")[0] in names}
    _write(path, {key: value for key, value in _read(path).items() if key.split("/")[0] not in names} | theirs)
    print(f"{len({key.rsplit('/', 1)[0] for key in theirs})} cases taken from {out / FILE}")


def _truth(key: str, store: Store, effort: argparse.Namespace) -> Store:
    """Posterior and evidence of one case."""
    began = time.perf_counter()
    data = cases.load(key.split("/")[0])
    if not np.allclose(data.fingerprint, store[f"{key}/fingerprint"]):
        raise ValueError(f"{key} was prepared with other rows: prepare it again")
    model = data.model(*store[f"{key}/theta"])
    sites = Natural(*store[f"{key}/guide"].astype(np.float64) * (0.0 if effort.annealed else 1.0))
    real = key.split("/")[0] not in cases.GENERATED
    chains = effort.chains if real else max(effort.chains // 2, 4)  # predictions by quadrature: fewer will do
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", reference.ChainsDisagree)
        draws = reference.sample(
            model, data.x, data.y, data.x_new, data.y_new,
            chains=chains, draws=effort.draws, warmup=effort.warmup, thin=effort.thin, sites=sites,
            temperatures=effort.temperatures if effort.annealed else 0,
        )  # fmt: skip
    sampled = time.perf_counter() - began
    evidence = reference.log_evidence(
        model, data.x, data.y, chains=effort.chains, temperatures=effort.temperatures, sites=sites
    )
    seconds = time.perf_counter() - began
    print(f"{key}: {draws}; log evidence {evidence.value:.4f} ± {evidence.standard_error:.4f} (share "
          f"{evidence.share:.2f}); {sampled:.1f} + {seconds - sampled:.1f} s", flush=True)  # fmt: skip
    for warning in caught:
        print(f"  {warning.message}", flush=True)
    return _fields(draws, evidence, [chains, effort.draws, effort.thin, effort.temperatures, seconds])


def _fields(draws: reference.Draws, evidence: reference.Evidence, effort: list[float]) -> Store:
    """A result by name; arrays in single precision, which is finer than their standard errors."""
    found: Store = {}
    for name in ("mean", "variance", "new_mean", "new_variance", "probability"):
        found[name] = np.stack(getattr(draws, name)).astype(np.float32)  # values, standard errors
    found["evidence"] = np.array([evidence.value, evidence.standard_error, evidence.share])
    found["chains"] = np.array([draws.rhat.max(), draws.effective.min(), np.median(draws.effective)])
    return found | {"effort": np.array(effort)}


def _read(path: Path) -> Store:
    return dict(np.load(path)) if path.exists() else {}


def _write(path: Path, store: Store) -> None:
    """The whole file, put in place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, **store)  # pyright: ignore[reportArgumentType]
    partial.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("prepare", "run", "merge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--names", nargs="+", default=[], choices=cases.names(), metavar="NAME")
    parser.add_argument("--chains", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--thin", type=int, default=10)
    parser.add_argument("--temperatures", type=int, default=1500)
    parser.add_argument("--annealed", action="store_true", help="start by annealing from the prior: for several modes")
    parser.add_argument("--seconds", type=float, default=480.0, help="start no further case after this long")
    given = parser.parse_args()
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}", flush=True)
    if given.task == "prepare":
        prepare(given.file, given.names or cases.names())
        return 0
    if given.task == "merge":
        merge(given.file, given.out, given.names)
        return 0
    left = run(given.file, given.out, given.names, given)
    if left:
        print(f"no time was left for {', '.join(left)}: run again with the file written", flush=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
