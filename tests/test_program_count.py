"""How many programs a typical script compiles: each takes time that the user waits for."""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
SCRIPT = """
import json
from collections import Counter

import jax

compiled = Counter()

def count(event, seconds, **more):
    if event == "/jax/core/compile/backend_compile_duration":
        compiled[more["fun_name"]] += 1

jax.monitoring.register_event_duration_secs_listener(count)

import numpy as np
from quantprop import Model, fit, kernels, likelihoods

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = np.sign(np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=60))
fold = np.arange(60) % 5
told = {}

for kernel in (kernels.SquaredExponential(), kernels.Matern32(), kernels.Linear() + kernels.Constant()):
    model = Model(kernel, likelihoods.Probit())
    solution = fit(model, X, y, "ep", max_evaluations=3).solution
    solution.predict_y(X[:7]).mean
    for k in range(5):
        own, other = fold != k, fold == k
        fit(model, X[own], y[own], "ep", max_evaluations=3).solution.predict_y(X[other]).log_prob(y[other])
    told[type(kernel).__name__] = sum(compiled.values())
print(json.dumps([told, compiled]))
"""
FIRST = 15  # programs of the first kernel: fits, predictions and all folds
# Of every other kernel: inputs, whether it starts blind, the prior, and the way back from its derivative to the
# parameters; for predictions the prior, and covariances with new inputs.
FURTHER = 6


def test_a_typical_script_compiles_no_more_programs_than_it_needs():
    """Fit, predict and five folds with each of three kernels: folds share all programs, kernels those of inference."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=environment, check=True, capture_output=True, text=True
    )
    totals, compiled = json.loads(ran.stdout)
    one, two, three = totals.values()
    assert one <= FIRST, compiled
    assert two - one <= FURTHER, compiled
    assert three - two <= FURTHER, compiled
    assert compiled["jit(solve_parallel)"] == compiled["jit(gradient)"] == compiled["jit(loo_of)"] == 1
