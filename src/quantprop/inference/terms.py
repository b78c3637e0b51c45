"""The posterior of each term of a sum of kernels, alone and jointly, and of effects that are linear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from quantprop import means
from quantprop.data import bucket, pad
from quantprop.gaussian import Normal
from quantprop.inference.prediction import PIECE, above_rounding, padded_prior, padded_sites
from quantprop.kernels import Columns, Kernel, Linear, summands, written
from quantprop.parameters import declared, is_parameter
from quantprop.priors.base import Cost
from quantprop.records import changed
from quantprop.runtime.memory import check_memory
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

MEAN = "mean"
MATRICES = 5  # of all terms at all rows, for a joint posterior and its eigenvectors
Solution = Any  # of `solution`, which imports this


_cross = program(lambda process, kernel, x, new: process.cross_terms(kernel, x, new))
_variances = program(lambda terms, new: jnp.concatenate([term.diagonal(new) for term in terms]))
_covariance = program(lambda terms, new: jax.scipy.linalg.block_diag(*(term.gram(new) for term in terms)))
_at = program(lambda by, mean, cross, own: by.at(mean, cross, own))
_alpha = program(lambda prior, sites, signed: prior.condition(sites, signed).marginals.alpha, static_argnames="signed")


@dataclass(frozen=True)
class Effects(Mapping[str, Normal]):
    """The posterior of every term of a sum at some inputs, by its name in the language of terms; "mean" is the prior
    mean, where there is one. Means add up to that of f; `sample` has draws that do.
    """

    solution: Solution = field(repr=False)
    X: Float[np.ndarray, "k d"] = field(repr=False)
    parts: dict[str, Normal]

    def __getitem__(self, name: str) -> Normal:
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def shares(self) -> dict[str, float]:
        """How much of the variance of f's posterior mean over these rows each term explains: its covariance with f over
        the variance of f. Shares add up to 1; a term that works against the others has a negative one.
        """
        f = np.sum([part.mean for part in self.parts.values()], axis=0)
        spread = float(np.var(f))
        about = f - f.mean()
        return {
            name: float(np.mean(part.mean * about)) / spread if spread > 0 else 0.0 for name, part in self.parts.items()
        }

    @float64
    def sample(self, n: int, seed: int = 0) -> dict[str, Float[np.ndarray, "n k"]]:
        """n joint draws of all terms (rows: draws); their sum is a draw of f."""
        joint, k = joint_of(self.solution, self.X), len(self.X)
        values, vectors = np.linalg.eigh(joint.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # a covariance's eigenvalues below 0 are rounding
        draws = joint.mean + np.random.default_rng(seed).standard_normal((n, len(values))) @ root.T
        names = [name for name in self.parts if name != MEAN]
        found = {name: draws[:, i * k : (i + 1) * k] for i, name in enumerate(names)}
        if MEAN in self.parts:
            found[MEAN] = np.broadcast_to(self.parts[MEAN].mean, (n, k)).copy()
        return found


def terms_of(kernel: Kernel) -> dict[str, Kernel]:
    """The terms of a kernel by name."""
    found: dict[str, Kernel] = {}
    for term in summands(kernel):
        name = _name(term)
        same = sum(other == name or other.startswith(f"{name} (") for other in found)
        found[f"{name} ({same + 1})" if same else name] = term
    return found


def _name(term: Kernel) -> str:
    try:
        return written(term, digits=None)
    except TypeError:  # a kernel of the user's own
        return type(term).__name__


@float64
def effects_at(solution: Solution, x: Float[np.ndarray, "k d"]) -> Effects:
    """The posterior of every term at inputs."""
    named = terms_of(solution.model.plain_kernel)
    terms, most = tuple(named.values()), max(1, PIECE // len(named))
    pieces = [_effects_at(solution, terms, x[at : at + most]) for at in range(0, len(x), most)]
    mean, variance = (np.concatenate(part, axis=1) for part in zip(*pieces, strict=True))
    parts = {name: Normal(mean[i], variance[i]) for i, name in enumerate(named)}
    given = solution.model.prior_mean(x)
    if given.any():
        parts[MEAN] = Normal(given, np.zeros(len(x)))
    return Effects(solution, x, parts)


def _effects_at(solution: Solution, terms: tuple[Kernel, ...], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances, a row for each term."""
    k, size = len(x), bucket(len(x))
    more = pad(x, size)
    own = _variances(terms, more)
    latent = _at(solution._predictor, np.zeros(len(terms) * size), _crossed(solution, more), own)
    mean, variance, prior = (
        np.reshape(part, (len(terms), size))[:, :k] for part in to_numpy((latent.mean, latent.variance, own))
    )
    return mean, above_rounding(variance, prior, len(solution.X))


def _crossed(solution: Solution, new: np.ndarray) -> Any:
    model, x = solution.model, solution.X
    return _cross(model.plain_process, model.plain_kernel, pad(x, bucket(len(x))), new)


@float64
def joint_of(solution: Solution, x: Float[np.ndarray, "k d"]) -> Normal:
    """The joint posterior of all terms at inputs, term by term."""
    terms, k, size = tuple(summands(solution.model.plain_kernel)), len(x), bucket(len(x))
    need, parts = 8 * MATRICES * (len(terms) * size) ** 2, f"{MATRICES} matrices of as many rows as all terms have"
    check_memory(Cost(need, 0, 0.0, f"the joint posterior of {len(terms)} terms at {k} rows", parts))
    more = pad(x, size)
    cross, own = _crossed(solution, more), _covariance(terms, more)
    latent = to_numpy(_at(solution._predictor, np.zeros(len(terms) * size), cross, own))
    kept = np.concatenate([np.arange(i * size, i * size + k) for i in range(len(terms))])
    return Normal(latent.mean[kept], latent.variance[kept], latent.covariance[np.ix_(kept, kept)])


# --- linear effects --------------------------------------------------------------------------------------------------


class FixedEffect(NamedTuple):
    """A coefficient: its estimate, standard error and 95 % interval, at the learned hyperparameters."""

    estimate: float
    error: float
    lower: float
    upper: float


def _effect(estimate: float, error: float) -> FixedEffect:
    half = float(ndtri(0.975)) * error
    return FixedEffect(estimate, error, estimate - half, estimate + half)


@float64
def fixed_effects(solution: Solution) -> dict[str, FixedEffect]:
    """The coefficients of linear terms, and those of a learned mean, by name."""
    found = {}
    for name, term in terms_of(solution.model.plain_kernel).items():
        if isinstance(term, Columns) and isinstance(term.kernel, Linear):
            found |= _slopes(solution, name, term)
    return found | _of_mean(solution)


def _slopes(solution: Solution, name: str, term: Columns) -> dict[str, FixedEffect]:
    """The posterior of a linear term at the unit vectors: its coefficients."""
    units = np.zeros((len(term.columns), solution.X.shape[1]))
    for row, column in enumerate(term.columns):
        units[row, int(column)] = 1.0
    at = effects_at(solution, units)[name]
    called = [str(column) for column in term.names or term.columns]
    return {
        f"linear({column})": _effect(float(at.mean[i]), float(np.sqrt(at.variance[i])))
        for i, column in enumerate(called)
    }


def _of_mean(solution: Solution) -> dict[str, FixedEffect]:
    """Generalised least squares: errors from (Hᵀ (K + S⁻¹)⁻¹ H)⁻¹, H the derivative of the mean, the sites held."""
    names, values, h = _design(solution)
    if not names:
        return {}
    if solution.posterior is not None:
        raise ValueError(
            "standard errors of a mean need all rows in one place, and these were divided among devices: infer once "
            "more on one device, or in one process, from fitted.model"
        )
    size, tau = bucket(len(solution.X)), solution.sites.tau
    prior, sites = padded_prior(solution.model, solution.X), padded_sites(solution.sites)
    signed = bool((tau < 0).any())
    at = np.asarray(_alpha(prior, sites, signed=signed))
    moved = [at - np.asarray(_alpha(_shifted(prior, pad(column, size)), sites, signed=signed)) for column in h.T]
    information = h.T @ np.stack(moved, axis=1)[: len(h)]  # α = (K + S⁻¹)⁻¹ (S⁻¹ν − m) is linear in m
    errors = np.sqrt(np.diagonal(np.linalg.inv(0.5 * (information + information.T))))
    return {name: _effect(float(v), float(e)) for name, v, e in zip(names, values, errors, strict=True)}


def _shifted(prior: Any, by: np.ndarray) -> Any:
    return changed(prior, mean=prior.mean + by)


def _design(solution: Solution) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names and values of the numbers of a linear or constant mean that were learned, and what each multiplies."""
    mean, x = solution.model.mean, solution.X
    if is_parameter(mean):
        return ([], np.zeros(0), np.zeros((len(x), 0))) if mean.fixed else (
            [MEAN], np.atleast_1d(mean.value), np.ones((len(x), 1)))  # fmt: skip
    if not isinstance(mean, means.Linear):
        return [], np.zeros(0), np.zeros((len(x), 0))
    parts: Any = declared(mean)
    columns = {"intercept": np.ones((len(x), 1)), "coefficients": mean.of(x)}
    free = [name for name in columns if not getattr(parts, name).fixed]
    names = [
        f"{MEAN}.{name}" + f"[{i}]" * (name == "coefficients") for name in free for i in range(columns[name].shape[1])
    ]
    values = np.concatenate([np.zeros(0), *(np.ravel(getattr(parts, name).value) for name in free)])
    return names, values, np.concatenate([np.zeros((len(x), 0)), *(columns[name] for name in free)], axis=1)
