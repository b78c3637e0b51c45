"""Several classes as scalar data: a datum becomes one factor for each class that it is not.

With u ~ N(0, 1) the multinomial probit is p(y | f) = E_u Π_{j ≠ y} Φ(u + f_y − f_j): every factor is a probit datum,
y = +1, on a latent value of its own, and these are jointly Gaussian (`kernels.PerClass`). So methods, schedules,
learning and files are those of scalar data. Softmax has a factor for each class (`SoftmaxFactor`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.data import row_weights
from quantprop.kernels import PerClass
from quantprop.likelihoods import Probit, Softmax
from quantprop.likelihoods.base import encode, observed
from quantprop.likelihoods.classes import ClassLikelihood, SoftmaxFactor
from quantprop.means import PerClass as PerClassMean
from quantprop.model import Model
from quantprop.priors import Classes, ClassesInducing
from quantprop.priors.classes import holding_classes


class Factors(NamedTuple):
    """A problem of several classes as one of scalar data."""

    model: Model
    X: Float[np.ndarray, "rows columns"]
    y: Float[np.ndarray, " rows"]


def is_multi_class(model: Model) -> bool:
    """Return whether an observation depends on the functions of all classes.

    Raises ValueError if the kernel has several functions and the likelihood takes one.
    """
    if isinstance(model.likelihood, ClassLikelihood):
        return True
    if isinstance(model.kernel, PerClass) and not isinstance(model.process, (Classes, ClassesInducing)):
        raise ValueError(
            f"kernel: PerClass has one latent function per class, but the {model.plain_likelihood.name} likelihood "
            "takes one: use MultinomialProbit or Softmax, or a kernel of one function"
        )
    return False


def factors_of(model: Model, x: Float[np.ndarray, "n d"], y: Any, weights: Any = None) -> Factors:
    """The factors of every datum. A row of weight w is written w times: its copies have a u each."""
    likelihood = model.plain_likelihood
    labels = encode(likelihood, observed(y, likelihood, len(x)), (len(x),)).y.astype(int)
    total = row_weights(weights, len(x))
    if (total != np.rint(total)).any():
        raise ValueError(f"weights must be integers for the {likelihood.name} likelihood, which repeats a row of "
                         "weight w w times; round them")  # fmt: skip
    copies = total.astype(int)
    model = _of_factors(model, labels)
    x, labels = np.repeat(x, copies, axis=0), np.repeat(labels, copies)
    assert isinstance(model.kernel, PerClass)
    if isinstance(model.likelihood, SoftmaxFactor):
        classes = model.kernel.classes
        one_hot = (labels[:, None] == np.arange(classes)).astype(float)
        weights, datum = np.tile(np.eye(classes), (len(x), 1)), np.repeat(np.arange(len(x)), classes)
        return Factors(model, np.column_stack([x[datum], weights, datum]), one_hot.ravel())
    rows = _rows(x, labels, model.kernel.classes)
    return Factors(model, rows, np.ones(len(rows)))


def _of_factors(model: Model, labels: np.ndarray) -> Model:
    """The scalar model: a probit on differences of the classes' functions."""
    kernel, likelihood, seen, codes = model.kernel, model.likelihood, int(labels.max()) + 1, np.unique(labels)
    assert isinstance(likelihood, ClassLikelihood)
    known = kernel.classes if isinstance(kernel, PerClass) else likelihood.classes
    if known is None and seen > 2 and len(codes) < seen:
        missing = int(np.setdiff1d(np.arange(len(codes) + 1), codes)[0])
        raise ValueError(f"y has no row of class {missing}, but of class {seen - 1}: number the classes 0, 1, ... "
                         f"without gaps, or pass their number, {type(likelihood).__name__}(classes)")  # fmt: skip
    classes = max(seen, 2) if known is None else known
    if likelihood.classes not in (None, classes) or seen > classes:
        raise ValueError(f"the number of classes differs: {seen} in y, {classes} in the kernel, {likelihood.classes} "
                         "in the likelihood")  # fmt: skip
    if not isinstance(model.mean, (PerClassMean, int, float, np.number)):
        raise ValueError("mean: a mean shared by all classes cancels in every difference; omit it, or pass one mean "
                         "per class, means.PerClass((m_0, m_1, ...))")  # fmt: skip
    mean = model.mean if isinstance(model.mean, PerClassMean) else 0.0
    if isinstance(mean, PerClassMean) and len(mean.means) != classes:
        raise ValueError(f"mean: PerClass has {len(mean.means)} means for {classes} classes")
    kernel = kernel if isinstance(kernel, PerClass) else PerClass((kernel,), classes)
    if isinstance(likelihood, Softmax):
        return Model(kernel, SoftmaxFactor(), mean, holding_classes(model.process, classes, "sums"))
    return Model(kernel, Probit(), mean, holding_classes(model.process, classes, "differences"))


def _rows(x: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """u + f_y − f_j for every other class j; of two classes (f_y − f_j)/√2, the u being integrated out exactly."""
    slot = np.tile(np.arange(classes - 1), (len(x), 1))
    other = (slot + (slot >= labels[:, None])).ravel()
    datum, eye = np.repeat(np.arange(len(x)), classes - 1), np.eye(classes)
    weights = eye[labels[datum]] - eye[other]
    if classes == 2:
        return np.column_stack([x, weights / np.sqrt(2.0), -np.ones(len(x))])
    return np.column_stack([x[datum], weights, datum])


def one_function(x: np.ndarray, classes: int) -> np.ndarray:
    """Rows that are one function at one input each: of every input, its classes in order."""
    weights = np.tile(np.eye(classes), (len(x), 1))
    return np.column_stack([np.repeat(x, classes, axis=0), weights, -np.ones(len(x) * classes)])
