"""The protocol of the published experiments: which rows train and test, and from where each method starts.

Variants: ``paper`` is the published text, known faults of the data included; ``code`` is what the authors' public code
does beyond it (see `as_coded`); ``clean`` has the faults removed and starts and prior means that are like for like.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop import Model, datasets, kernels, likelihoods
from quantprop.runtime.names import nearest

VARIANTS = ("paper", "code", "clean")
KERNELS = ("isotropic", "ard")
OBJECTIVES = ("evidence", "loo")
METHODS = ("ep", "qp", "vb", "laplace")  # in the order in which they are carried out
MINING_SPLITS = ("year", "event")
FOLDS = 10
TEST_TO_TRAIN = {"fold": 1 / (FOLDS - 1), "year": 1.0, "event": 1.0}  # rows, by split; of folds at most
ROUNDS = 100  # classification: ten folds each
SEEDS = 200  # mining: one experiment each
YEARS = np.arange(1851.0, 1963.0)


@dataclass(frozen=True)
class Experiment:
    """One division of one data set into training and test rows, and the model to be learned from it.

    `split` is "fold" for classification, "year" or "event" for mining, where `round` is the seed and `fold` is 0.
    """

    dataset: str
    variant: str = "paper"
    kernel: str = "isotropic"
    objective: str = "evidence"
    split: str = "fold"
    round: int = 0
    fold: int = 0

    def __post_init__(self) -> None:
        splits = MINING_SPLITS if self.dataset == "mining" else ("fold",)
        folds = (0,) if self.dataset == "mining" else tuple(range(FOLDS))
        choices = {"dataset": datasets.names(), "variant": VARIANTS, "kernel": KERNELS, "objective": OBJECTIVES,
                   "split": splits, "fold": folds}  # fmt: skip
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                text = ", ".join(map(str, allowed))
                raise ValueError(f"{name} of {self.dataset} must be one of {text}; got {getattr(self, name)!r}"
                                 f"{nearest(getattr(self, name), allowed)}")  # fmt: skip
        if self.round < 0:
            raise ValueError(f"round must be at least 0; got {self.round}")

    @property
    def seed(self) -> int:
        """Seed of NumPy's legacy generator: ten times the round (the text says the round), or the seed."""
        return self.round if self.dataset == "mining" else 10 * self.round


class TrainTest(NamedTuple):
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    x_test: Float[np.ndarray, "k d"]
    y_test: Float[np.ndarray, " k"]


def split(experiment: Experiment) -> TrainTest:
    """The training and test rows of an experiment.

    >>> parts = split(Experiment("wine2", round=3, fold=9))
    >>> len(parts.y), len(parts.y_test)
    (97, 10)
    """
    if experiment.split == "event":
        return _by_event(experiment.seed)
    data = datasets.load(experiment.dataset, "clean" if experiment.variant == "clean" else "paper")
    if experiment.split == "year":
        train = np.random.RandomState(experiment.seed).uniform(size=len(data.y)) > 0.5  # of each year
        return TrainTest(data.X[train], data.y[train], data.X[~train], data.y[~train])
    return by_fold(data.X, data.y, experiment.seed, experiment.fold)


def by_fold(x: np.ndarray, y: np.ndarray, seed: int, fold: int) -> TrainTest:
    """The k-th block of ⌊m/10⌋ shuffled rows tests, all others train; standardised on the training rows.

    The authors shuffle the rows of one matrix of features and label in place. The legacy generator draws the same swaps
    for the row numbers, so the order of these is the order of the rows. The last m mod 10 rows are never tested.
    """
    order = np.arange(len(y))
    np.random.RandomState(seed).shuffle(order)
    size = len(y) // FOLDS
    test = order[fold * size : (fold + 1) * size]
    train = np.concatenate([order[: fold * size], order[(fold + 1) * size :]])
    centre, scale = x[train].mean(0), x[train].std(0)
    constant = np.ptp(x[train], axis=0) == 0
    x = (x - centre) / np.where(constant, 1.0, scale)
    return TrainTest(x[train], y[train], x[test], y[test])


def _by_event(seed: int) -> TrainTest:
    """Each event trains with probability ½, as the text says; training and test counts are over all 112 years.

    A year's test rate equals its training rate, since both get each event with probability ½: nothing is scaled.
    Events come from the published dates in every variant.
    """
    path = resources.files(datasets) / "data" / "coal_dates.csv"
    dates = np.array([float(line) for line in path.read_text(encoding="ascii").split()[1:]])
    train = np.random.RandomState(seed).uniform(size=len(dates)) > 0.5
    edges = np.append(YEARS, YEARS[-1] + 1.0)
    counts = [np.histogram(dates[kept], edges)[0].astype(np.float64) for kept in (train, ~train)]
    return TrainTest(YEARS[:, None], counts[0], YEARS[:, None], counts[1])


def model_of(experiment: Experiment, method: str, features: int) -> Model:
    """The model at its published start: variance and lengthscale 1.

    Mining has a constant prior mean of 1 and the square link, which knows no sign. The authors ran VB with mean 0, so
    ``paper`` and ``code`` do too; ``clean`` gives all methods the same mean.
    """
    lengthscale = 1.0 if experiment.kernel == "isotropic" else np.ones(features)
    kernel = kernels.SquaredExponential(variance=1.0, lengthscale=lengthscale)
    if experiment.dataset != "mining":
        return Model(kernel, likelihoods.Probit())
    mean = 0.0 if method == "vb" and experiment.variant != "clean" else 1.0
    return Model(kernel, likelihoods.Poisson(link="square"), mean=mean)


def follows_ep(variant: str, method: str) -> bool:
    """Return whether a method needs EP's result: QP always starts there, VB and Laplace in ``clean``."""
    return method == "qp" or (method != "ep" and variant == "clean")
