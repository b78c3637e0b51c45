"""How far X and y go from an estimator to the prior: nested calls of the library, and how often they are checked."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import quantprop
from quantprop import GaussianProcessClassifier
from quantprop.core import data
from quantprop.inference import task
from quantprop.priors.dense import DensePrior
from quantprop.runtime import programs

SOURCE = str(Path(quantprop.__file__).parent)
MAX_CALLS = 12  # nested, from `fit` to `Prior.condition`, both included


@pytest.fixture(scope="module")
def walk():
    """How deep calls of `DensePrior.condition` are nested while programs are traced, and how often X is checked."""
    jax.clear_caches()  # of parts of programs that other tests have traced
    X = np.random.default_rng(0).normal(size=(21, 2))
    depths, entered = [], {"inputs": 0, "prepare": 0}
    codes = {data.inputs.__code__: "inputs", task.prepare.__code__: "prepare"}

    def watch(frame, event, argument):
        if event != "call":
            return
        if frame.f_code in codes:
            entered[codes[frame.f_code]] += 1
        if frame.f_code is DensePrior.condition.__code__:
            depth, outer = 0, frame
            while outer is not None:
                depth += outer.f_code.co_filename.startswith(SOURCE)
                outer = outer.f_back
            depths.append(depth)

    sys.setprofile(watch)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(programs, "_cache", programs.ProgramCache())
        try:
            GaussianProcessClassifier().fit(X, X[:, 0] > 0)
        finally:
            sys.setprofile(None)
    return depths, entered


def test_the_walk_to_the_prior_is_short(walk):
    depths, _ = walk
    assert depths
    assert max(depths) <= MAX_CALLS, depths


def test_data_are_checked_once(walk):
    assert walk[1] == {"inputs": 1, "prepare": 1}
