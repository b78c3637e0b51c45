"""The skeletons that contributors copy (docs/skeletons) pass the suite of their kind as they stand."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
from contract import check_kernel, check_likelihood, check_method, check_projection

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "skeletons"


def skeleton(name):
    spec = importlib.util.spec_from_file_location(f"skeleton_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look annotations up there
    spec.loader.exec_module(module)
    return module


def test_likelihood():
    check_likelihood(skeleton("likelihood").LogisticNoise(0.7), [-1.3, 0.2, 4.0])


def test_kernel():
    check_kernel(skeleton("kernel").Brownian(1.3), np.linspace(0.1, 3.0, 9)[:, None])


def test_projection():
    check_projection(skeleton("projection").MiddleHalf(), tolerance=1e-2)  # linear interpolation between nodes


def test_method():
    check_method(skeleton("method").MomentMatching())
