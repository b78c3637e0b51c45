"""Utilities learned from comparisons of two items at a time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils._param_validation import StrOptions

from quantprop.core.data import row_weights
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.estimators.columns import refuse_offsets
from quantprop.estimators.core import build
from quantprop.estimators.first_kernel import DefaultKernel
from quantprop.estimators.observations import OF_CLASSES
from quantprop.estimators.shaping import with_shape
from quantprop.estimators.shared import POSITIVE_INTEGER, GaussianProcess
from quantprop.inference.levels import Z95, expected_rank
from quantprop.inference.mixture import Mixture
from quantprop.inference.prediction import predicted_of, proper
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.inference.terms import Parts
from quantprop.kernels import Difference
from quantprop.kernels.combinations import Item, halves
from quantprop.likelihoods import Likelihood, Probit
from quantprop.likelihoods.binary import Binary
from quantprop.likelihoods.ordinal import Ties
from quantprop.model import Model
from quantprop.runtime.listing import Listing
from quantprop.runtime.precision import float64


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessRanker(GaussianProcess):
    """Utilities of items, learned from which of two was preferred, with scikit-learn's interface.

    P(x beats x') = Φ(f(x) − f(x')) with the probit likelihood, where f is the utility. Comparisons may contradict each
    other. Only differences of utilities are observed, so their level is the prior's, 0. `solution_` is the posterior of
    the difference in every comparison.

    Args:
        kernel: Kernel of the utility: of scikit-learn or of this library, a kernel formula, a name such as "ard" or
            "auto" (a stack of several models), or None for a constant times an RBF, both learned.
        optimizer: "fmin_l_bfgs_b" selects the library's own search, None leaves the hyperparameters as they are; or a
            function as in scikit-learn.
        n_restarts_optimizer: Number of additional starts, drawn at random within the bounds.
        random_state: Seed or generator of the additional starts.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        objective: The objective that learning maximises: "evidence", "loo", or "elbo" for VB.
        likelihood: "probit", "logit", "heaviside", or a likelihood for two classes; y = 1 means that the first item
            wins.
        max_sweeps: Maximum number of sweeps per inference.
        monotone: Constraints on the shape of the utility, as in `GaussianProcessRegressor`.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessRanker
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> ranker = GaussianProcessRanker().fit(X, [[1, 0], [2, 1], [3, 2], [3, 0]])  # winner, loser
    >>> np.argsort(-ranker.predict(X)).tolist()
    [3, 2, 1, 0]
    >>> bool(ranker.predict_proba(X[[3]], X[[0]])[0] > 0.5)
    True
    """

    likelihood: Any = "probit"
    max_sweeps: Any = 200
    monotone: Any = None

    process, hyperparameters = "dense", "point"
    _parameter_constraints: ClassVar[dict] = {
        **GaussianProcess._parameter_constraints,
        "likelihood": [StrOptions(set(OF_CLASSES)), Binary],
        "max_sweeps": [POSITIVE_INTEGER],
        "monotone": [Mapping, None],
    }

    def fit(self, X, pairs, sample_weight=None, *, ties=None):
        """Learn from items X, a row each, and comparisons: rows (winner, loser) of `pairs` are positions in X.

        Of two tables with the same columns, one of winners and one of losers, X is the one below the other and `pairs`
        is `np.arange(2 * m).reshape(2, m).T`. A comparison of weight 2 counts as two. Items with equal features have
        the same utility: comparisons of them are omitted, with a warning.

        `ties` says which comparisons ended in a tie, in either order of their items. Then a win is f(x) + ε above
        f(x') by more than a threshold, which is learned (`likelihood_.threshold`), and a tie is neither's win.
        """
        refuse_offsets(self.kernel, "in a ranker", "leave it out; a linear term learns its coefficient")
        x = self._learned_from(X)
        self.X_train_, self.pairs_ = x, checked(pairs, len(x))
        spec = self._kernel_spec(x, DefaultKernel())
        likelihood, won = self._observed(ties)
        model = Model(Difference(spec.kernel), likelihood)
        rows = compared(x, self.pairs_)
        weights = informative(model, rows, row_weights(sample_weight, len(rows), "sample_weight"))
        given = {} if (weights == 1.0).all() else {"weights": weights}
        options = self._fit_options(self.max_sweeps)
        self._core = with_shape(self, build(options, spec, model, rows, won, given), options)
        self.log_marginal_likelihood_value_ = np.float64(self._core.fitted.objective_value)
        self._warn()
        return self

    def _observed(self, ties: Any) -> tuple[Likelihood, np.ndarray]:
        """The likelihood, and y of every comparison."""
        likelihood = OF_CLASSES[self.likelihood]() if isinstance(self.likelihood, str) else self.likelihood
        tied = np.zeros(len(self.pairs_), dtype=bool) if ties is None else np.asarray(ties)
        if tied.shape != (len(self.pairs_),) or tied.dtype != bool:
            raise ValueError(f"ties must be booleans, one per comparison ({len(self.pairs_)}); got {tied.dtype} of "
                             f"shape {tied.shape}")  # fmt: skip
        if not tied.any():
            return likelihood, np.ones(len(tied))
        if not isinstance(likelihood, Probit):
            raise ValueError(f"ties are supported with likelihood='probit' only; got {self.likelihood!r}")
        start = np.sqrt(2.0) * ndtri(0.5 + 0.5 * np.clip(tied.mean(), 0.01, 0.9))
        return Ties(float(start)), np.where(tied, 1.0, 2.0)

    @property
    def likelihood_(self):
        """The likelihood with its learned parameters."""
        return values(self._core.fitted.model.likelihood)

    @float64
    def predict(self, X, return_std=False, return_cov=False):
        """The mean of the utility of items, with its standard deviation or the covariance of all on request."""
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        items, found = self._new_inputs(X), self.posterior_
        utility = (Utilities(found) if isinstance(found, Stack) else Utility(found)).predict(items, return_cov)
        if return_cov:
            return utility.mean, utility.covariance
        return (utility.mean, np.sqrt(utility.variance)) if return_std else utility.mean

    def predict_proba(self, X, others):
        """The probability that the item of each row of X beats the one in the same row of `others`."""
        one, other = self._new_inputs(X), self._new_inputs(others)
        if len(one) != len(other):
            raise ValueError(f"X and others must have the same number of rows; got {len(one)} and {len(other)}")
        won = 2.0 if isinstance(self.likelihood_, Ties) else 1.0
        return np.exp(self.posterior_.predict_y(np.hstack([one, other])).log_prob(won))

    def score(self, X, pairs, sample_weight=None, *, ties=None):
        """The mean log probability of comparisons of items X, rows (winner, loser): the larger the better."""
        items = self._new_inputs(X)
        rows = compared(items, checked(pairs, len(items)))
        weights = row_weights(sample_weight, len(rows), "sample_weight")
        has_ties = isinstance(self.likelihood_, Ties)
        if ties is not None and not has_ties and np.any(ties):
            raise ValueError("the ranker was learned without ties: fit it with ties= to score them")
        won = np.where(np.zeros(len(rows), dtype=bool) if ties is None else ties, 1.0, 2.0) if has_ties else 1.0
        return float(np.average(self.posterior_.predict_y(rows).log_prob(won), weights=weights))

    @float64
    def ranking(self, X):
        """The utility of items minus their mean, from the largest: standard error, 95 % interval and expected rank.

        Args:
            X: Items, a row each.

        Returns:
            A table with the columns item (the row of X), utility, error, lower, upper and rank.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRanker
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> GaussianProcessRanker().fit(X, [[1, 0], [2, 1], [2, 0], [1, 0]]).ranking(X)["item"]
        [2, 1, 0]
        """
        found: Any = self.predict(X, return_cov=True)
        mean, covariance = found
        centring = np.eye(len(mean)) - 1.0 / len(mean)
        mean, covariance = centring @ mean, centring @ covariance @ centring
        error, order = np.sqrt(np.diagonal(covariance)), np.argsort(-mean, kind="stable")
        rank = expected_rank(Normal(mean, error**2, covariance))
        columns = (np.arange(len(mean)), mean, error, mean - Z95 * error, mean + Z95 * error, rank)
        names = ("item", "utility", "error", "lower", "upper", "rank")
        title = "utilities minus their mean (95 % interval; expected rank, 1 for the largest)"
        return Listing(title, {name: each[order].tolist() for name, each in zip(names, columns, strict=True)})

    @property
    def loo_(self):
        """Leave-one-out log probabilities of the comparisons."""
        return self.posterior_.loo


class Utility(NamedTuple):
    """The utility of items, given the posterior of its differences."""

    solution: Solution

    def predict(self, items: np.ndarray, full_cov: bool) -> Any:
        """The posterior of the utility of items."""
        kernel: Any = self.solution.model.plain_kernel
        by, (_, (item,)), x = self.solution.in_full(Parts((), (Item(kernel.kernel),)), items)
        return proper(predicted_of(by._predictor, by.model, item, by.X, x, full_cov), by.status)


class Utilities(Mixture):
    """The utility of items by a stack."""

    def __init__(self, stack: Stack) -> None:
        self.components = [Utility(solution) for solution in stack.components]
        self.weights = stack.weights


def compared(x: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Rows [winner, loser] as `Difference` sees them."""
    return np.hstack([x[pairs[:, 0]], x[pairs[:, 1]]])


@float64
def informative(model: Model, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of comparisons, 0 if two items have equal features and the kernel no white noise: their utilities are
    the same under any θ.
    """
    winner, loser = halves(rows)
    same = (winner == loser).all(axis=1) & (np.asarray(model.plain_kernel.noise(rows)) <= 0.0) & (weights > 0)
    if same[weights > 0].all():
        raise ValueError("pairs: every comparison is between items with equal features, which have the same utility")
    if same.any():
        warnings.warn(
            f"{same.sum()} of {len(rows)} comparisons, such as pairs[{int(np.argmax(same))}], are between items with "
            "equal features, which have the same utility: they are ignored",
            UserWarning, stacklevel=4,
        )  # fmt: skip
    return np.where(same, 0.0, weights)


def checked(pairs: Any, items: int) -> np.ndarray:
    """Comparisons as positions in X, or an error that names the first invalid one."""
    found = np.asarray(pairs)
    if found.ndim != 2 or found.shape[1] != 2 or len(found) == 0:
        raise ValueError(f"pairs must be rows (winner, loser) of positions in X; got shape {found.shape}")
    if found.dtype.kind not in "iu":
        raise ValueError(f"pairs must be integers, positions in X; got {found.dtype}")
    wrong = (found < 0) | (found >= items)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(f"pairs[{row}, {column}] = {found[row, column]} is not a row of X, which has {items}, from 0")
    same = found[:, 0] == found[:, 1]
    if same.any():
        raise ValueError(f"pairs[{int(np.argmax(same))}] compares item {found[same][0, 0]} with itself: remove it")
    return found
