"""The contract of a backend: a `Process` makes a `Prior` of kernel, mean and inputs, which is conditioned on sites.

Only a backend depends on how its Gaussian is stored: no n × n array exists outside this folder. A backend must define
`Process.prepare`, `prior`, `cross` and `cost`, and `Prior.condition`, `predictor`, `scaled` and `variances`. Everything
else follows by differentiation of `condition`, and may be overridden where closed formulas are cheaper or more stable.

A small move of sites is measured in the scaled coordinates p = σ(δν − μ δτ), q = σ² δτ of each datum, and the response
of the marginals in P = δμ/σ, Q = −δσ²/σ². In them the response is a symmetric linear map: P = ρ p and Q = (ρ ∘ ρ) q
with the posterior correlations ρ.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import Record, changed
from quantprop.core.sites import Marginal, Removal, cavity
from quantprop.kernels import Kernel
from quantprop.likelihoods.base import Scalar
from quantprop.numerics.triangular import transposed
from quantprop.runtime.mesh import is_divided

Moves = Float[Array, "2 ..."]  # of n values, or of those of several functions, whose axis comes before the rows


class Conditioned(Record):
    """A prior under sites: marginals, log |I + S K| (less twice its log mass where a prior's integral is not 1), and
    whether the posterior is a proper Gaussian.
    """

    sites: Natural
    marginals: Marginal
    log_determinant: Float[Array, ""]
    proper: Bool[Array, ""]
    factor: Any  # the backend's own, for whatever else follows from the same sites


class Cotangent(Record):
    """∂J of what a prior returns: its response (P, Q), log |I + S K|, and the prior mean where J sees it directly."""

    answer: Moves
    log_determinant: Scalar
    mean: Float[Array, "..."]


class Joint(NamedTuple):
    """The joint posterior of all training values: Σ, and A = (I + K S)⁻¹."""

    covariance: Float[Array, "n n"]
    transfer: Float[Array, "n n"]

    @staticmethod
    def of(covariance: Float[Array, "n n"], given: Conditioned) -> Joint:
        """A is b on the diagonal and −Σ S elsewhere."""
        own = jnp.eye(len(covariance), dtype=bool)
        return Joint(covariance, jnp.where(own, given.marginals.b, -covariance * given.sites.tau))


class Response(Record):
    """Response of a posterior to small moves of the sites, and its adjoint to the prior."""

    def answer(self, moves: Moves) -> Moves:
        """(ρ p, (ρ ∘ ρ) q)."""
        raise NotImplementedError

    def sent_back(self, by: Moves) -> Moves:
        """The transposed map: the same one, where the marginals are of one Gaussian."""
        return self.answer(by)

    def of_determinant(self) -> Moves:
        """∂ log |I + S K| in the moves: Σ q, where it is the determinant of that Gaussian."""
        return jnp.array([[0.0], [1.0]])

    def to_prior(self, by: Cotangent) -> Prior:
        """The cotangent of the prior's parameters, with the sites fixed: a Prior of the same structure."""
        raise NotImplementedError


class Predictor(Record):
    """The quantities of a posterior that predictions need, computed once."""

    def at(self, mean: Float[Array, " k"], cross: Any, own: Float[Array, "..."]) -> Normal:
        """The posterior of k further values with prior mean `mean`. `cross` ties them to the training values, as the
        process says; `own` is their prior covariance (k × k), or their variances (k) if the joint is not needed.
        """
        raise NotImplementedError

    @staticmethod
    def reduced(mean: Float[Array, " k"], own: Float[Array, "..."], less: Array, more: Array) -> Normal:
        """N(mean, own − lessᵀ less + moreᵀ more), of variances alone where `own` has no more."""
        if own.ndim == 1:
            return Normal(mean, own - jnp.sum(less**2, axis=0) + jnp.sum(more**2, axis=0))
        joint = own - transposed(less) @ less + transposed(more) @ more
        return Normal(mean, jnp.diagonal(joint), joint)


class Prior(Record):
    """A Gaussian over the training values, by its own numbers: its leaves are what gradients are carried back to."""

    one_gaussian: ClassVar[bool] = True  # False if marginals and log-determinant are approximated one by one

    mean: Float[Array, "..."]

    @property
    def largest_joint(self) -> int:
        """The number of rows up to which the joint posterior is worth its n × n numbers."""
        return 1024

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        """The posterior under sites whose precisions are all ≥ 0, or of any sign if `signed`: the work of a sweep."""
        raise NotImplementedError

    def predictor(self, sites: Natural, signed: bool) -> Predictor:
        """The predictor under these sites."""
        raise NotImplementedError

    def scaled(self, by: Any) -> Prior:
        """The prior with its covariance multiplied by a positive number."""
        raise NotImplementedError

    def variances(self) -> Float[Array, " n"]:
        """The prior variances of the training values."""
        raise NotImplementedError

    def for_shares(self, share: Float[Array | np.ndarray, " n"]) -> Prior:
        """The prior adjusted for a method that removes this share of each site at a time (`Method.share`).

        Only backends that approximate the process differ between methods.
        """
        return self

    def for_sweeps(self) -> Prior:
        """The prior with whatever many sweeps share computed once."""
        return self

    def is_psd(self) -> bool:
        """Return whether the covariance is positive semi-definite up to rounding, as most are by construction."""
        return True

    def follow(self, given: Conditioned, nu: Float[Array, " n"]) -> Marginal:
        """The marginals under sites whose ν alone has changed; precisions are all ≥ 0."""
        return self.condition(Natural(nu, given.sites.tau), signed=False).marginals

    def left_out(self, given: Conditioned, copies: Float[Array, " n"]) -> Normal:
        """Each value without one copy of its row's site: what leave-one-out densities are taken under."""
        return jax.vmap(cavity)(given.marginals, given.sites, Removal(1.0 / copies, jnp.zeros_like(copies)))

    def message(self, sites: Natural, log_evidence: Array | float) -> Any:
        """The message of these rows, and of those behind the prior, to further ones (`Process.after`)."""
        raise NotImplementedError

    def for_derivatives(self, factor: Any) -> tuple[Prior, Any]:
        """The prior and a factor without what `response` and `evidence_slope` do not need, which can be large."""
        return self, factor

    def response(self, given: Conditioned, signed: bool) -> Response:
        """Response of the posterior to small moves of the sites."""
        return Linearised.of(self, given, signed)

    def evidence_slope(self, given: Conditioned, signed: bool) -> Prior:
        """The derivative of log ∫ N(f | prior) Π exp(ν f − ½ τ f²) df in the prior's parameters, sites fixed."""

        def log_integral(prior: Prior) -> Array:
            new, (nu, tau) = prior.condition(given.sites, signed), (given.sites.nu, given.sites.tau)
            mean = new.marginals.mean
            at_mean = jnp.sum(nu * mean - 0.5 * tau * mean**2)
            return at_mean - 0.5 * jnp.sum((mean - prior.mean) * new.marginals.alpha) - 0.5 * new.log_determinant

        return jax.grad(log_integral)(self)

    def alpha(self, given: Conditioned, signed: bool) -> Float[Array, " n"]:
        """The derivative of the same integral in the prior mean: ν − τ·mean, if marginals are of one Gaussian."""
        return given.marginals.alpha if self.one_gaussian else self.evidence_slope(given, signed).mean

    def joint(self, given: Conditioned, signed: bool) -> Joint:
        """The joint posterior, up to `largest_joint` rows: by its responses to a move of each site."""
        n, sd = len(self.mean), jnp.sqrt(given.marginals.variance)
        answer = self.response(given, signed).answer
        correlation = jax.vmap(lambda p: answer(jnp.stack([p, jnp.zeros(n)]))[0])(jnp.eye(n))
        return Joint.of(sd[:, None] * correlation * sd, given)


class Linearised(Response):
    """Both derivatives of `condition`."""

    forward: Any  # of the marginals, in the moves
    backward: Any  # of marginals and log-determinant, in the moves
    of_prior: Any  # and in the prior, which an adjoint equation does not ask for
    rest: Moves

    @staticmethod
    def of(prior: Prior, given: Conditioned, signed: bool) -> Linearised:
        at, sites = given.marginals, given.sites
        sd, rest = jnp.sqrt(at.variance), jnp.zeros((2, len(at.mean)))

        def moved(prior: Prior, moves: Moves) -> tuple[Moves, Array]:
            by_tau = moves[1] / at.variance
            near = Natural(sites.nu + moves[0] / sd + at.mean * by_tau, sites.tau + by_tau)
            new = prior.condition(near, signed)
            answer = jnp.stack([(new.marginals.mean - at.mean) / sd, 1.0 - new.marginals.variance / at.variance])
            return answer, new.log_determinant

        _, forward = jax.linearize(lambda moves: moved(prior, moves)[0], rest)
        _, backward = jax.vjp(lambda moves: moved(prior, moves), rest)
        _, of_prior = jax.vjp(lambda prior: moved(prior, rest), prior)
        return Linearised(forward, backward, of_prior, rest)

    def answer(self, moves: Moves) -> Moves:
        return self.forward(moves)

    def sent_back(self, by: Moves) -> Moves:
        return self.backward((by, jnp.zeros(())))[0]

    def of_determinant(self) -> Moves:
        return self.backward((self.rest, jnp.ones(())))[0]

    def to_prior(self, by: Cotangent) -> Prior:
        (found,) = self.of_prior((by.answer, by.log_determinant))
        return changed(found, mean=found.mean + by.mean)


class Cost(NamedTuple):
    """Memory and operations of one evaluation with its gradient, and the memory that is used between evaluations."""

    peak: int  # bytes
    held: int  # bytes
    flops: float  # of a sweep
    words: str  # what needs them, for messages
    parts: str  # and what they consist of


class Process(Record):
    """A representation of a Gaussian process at its inputs. A field of `Model`; its Parameters are learned too."""

    copies_apart: ClassVar[bool] = False  # True if two equal rows have separate values, tied by their covariance
    from_data: ClassVar[bool] = False  # True if `settled` has something to choose or to check
    follows_kernel: ClassVar[bool] = False  # True if it chooses by the kernel's hyperparameters

    several_sites: ClassVar[bool] = False  # True if an observation has several, which are left out together
    divisible: ClassVar[bool] = False  # True if rows may be divided among devices (`runtime.mesh.by_device`)
    takes_further_rows: ClassVar[bool] = False  # True if `after` and `Prior.message` exist

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Process:
        """The process with its data-dependent settings chosen from x; an error if it does not fit them."""
        return self

    def facing(self, kernel: Kernel, x: Float[np.ndarray, "n d"], new: Float[np.ndarray, "k d"]) -> Process:
        """The process as `cross` needs it for these new inputs, with what is left to choose from them."""
        return self

    def split(self, kernel: Kernel, terms: tuple[Kernel, ...]) -> Any:
        """The process, or a record with its `cross_terms`, for these terms, whose places are found before tracing."""
        return self

    def check(self, share: Float[np.ndarray, " n"]) -> None:
        """Raise if the process does not exist for a method that removes these shares of sites."""

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Any:
        """All that priors need of x and that no hyperparameter changes, so that learning computes it once."""
        raise NotImplementedError

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Any) -> Prior:
        """The prior at the inputs."""
        raise NotImplementedError

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Any:
        """Cross-covariance (or its factor) of new inputs with x, for `Predictor.at`."""
        raise NotImplementedError

    def cross_of(self, kernel: Kernel, term: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Any:
        """Cross-covariance of one term of a sum at new inputs with the whole sum, `kernel`, at x."""
        raise TypeError(f"{type(self).__name__} cannot separate the terms of a sum: use process=Dense()")

    def cross_terms(
        self, kernel: Kernel, terms: tuple[Kernel, ...], x: Float[Array, "n d"], new: Float[Array, "k d"]
    ) -> Any:
        """The same for several parts of a kernel, terms or sums of terms, one after the other at all new inputs."""
        parts = [self.cross_of(kernel, term, x, new) for term in terms]
        return jax.tree.map(lambda *each: jnp.concatenate(each, axis=-1), *parts)

    def after(self, message: Any) -> Process:
        """The process given earlier rows by their `Prior.message`, without the rows."""
        raise NotImplementedError

    def cost(self, n: int) -> Cost:
        """The cost of n rows."""
        raise NotImplementedError

    def refined(self, prior: Prior) -> Prior:
        """The same prior, from concrete numbers, with smaller rounding errors where that is possible at some cost."""
        return prior


def finite(prior: Prior) -> bool:
    """Return whether all numbers of a prior are finite."""
    return all(bool((jnp if is_divided(leaf) else np).isfinite(leaf).all()) for leaf in jax.tree.leaves(prior))
