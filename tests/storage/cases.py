"""Learned models to be stored, and whether two objects are the same."""

import dataclasses
import json
import math

import numpy as np

from quantprop import QP, Model, Parameter, kernels, likelihoods, means
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import declared, packed
from quantprop.estimators.storage import load, save
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.solution import Solution, Status

RNG = np.random.default_rng(3)
X = RNG.normal(size=(24, 2))
NEW = RNG.normal(size=(5, 2))
NOISE = RNG.normal(size=24)
AWKWARD = 0.1 + 0.2  # 0.30000000000000004


def made(model, method=QP(), x=X):
    """A learned model with sites of no inference: what is stored does not depend on how it came about."""
    n, theta = len(x), packed(declared(model))
    draw = np.random.default_rng(n)
    sites = Natural(draw.normal(size=n), draw.uniform(0.1, 2.0, n))
    normal = Normal(draw.normal(size=n), draw.uniform(0.1, 2.0, n))
    status = Status("max-sweeps", 7, AWKWARD, 1e-8, "parallel, then sequential", 2)
    solution = Solution(model, method, x, sites, normal, -AWKWARD, np.append(draw.normal(size=n - 1), np.nan), status)
    steps = (
        Step(0, theta, -3.5, 1e-300, "converged", 9, 0.25),
        Step(1, theta + 1, math.nan, math.inf, "stalled", 4, 1.5),
    )
    return Fitted(
        model, solution, "loo", AWKWARD, theta, steps, Ending("no-progress", 2, 1, 0.5, ("kernel.left.variance",))
    )


def same(left, right):
    """Whether two objects are equal in type, structure and every bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return left == right or (left != left and right != right)


def again(thing, folder):
    save(thing, folder / "model.safetensors")
    return load(folder / "model.safetensors")


ARD = kernels.SquaredExponential(Parameter(AWKWARD, bounds=(0.1, 10.0)), np.array([1.0, 1.0 / 3.0]))
NOISY = ARD + kernels.White(Parameter(np.array(0.2), fixed=True))
PLAIN = kernels.SquaredExponential()
MODELS = {
    "ard": Model(NOISY, likelihoods.Probit()),
    "poisson": Model(PLAIN, likelihoods.Poisson(), means.Linear(np.array([0.3, -AWKWARD]), Parameter(0.1))),
    "ordinal": Model(PLAIN, likelihoods.Ordinal(Parameter(np.array([-1.0, AWKWARD]), ordered=True)), Parameter(0.5)),
    "student": Model(PLAIN, likelihoods.StudentT(4, Parameter(0.3, bounds=(0.01, math.inf)))),
}  # fmt: skip


def parts(data):
    """Metadata, content and tensors of a file, to be tampered with."""
    size = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:size])
    metadata = header.pop("__metadata__")
    kinds = {"F64": np.float64, "I64": np.int64}
    tensors = {
        name: np.frombuffer(data[size:][slice(*e["data_offsets"])], kinds[e["dtype"]]).reshape(e["shape"]).copy()
        for name, e in header.items()
    }
    return metadata, json.loads(metadata["content"]), tensors
