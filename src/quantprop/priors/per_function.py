"""Two latent functions that are independent a priori, and given their sites: each with a prior of its own, which also
predicts it (`inference/varying.py`).

Numbers of rows have one more axis in front, for the functions: sites, marginals and means are 2 × n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import changed
from quantprop.kernels import Kernel, PerParameter
from quantprop.priors.base import Conditioned, Cost, Cotangent, Moves, Prior, Process, Response
from quantprop.priors.dense import Dense
from quantprop.priors.inducing import Inducing
from quantprop.priors.markov import Markov
from quantprop.priors.neighbours import Neighbours


class Pair(NamedTuple):
    """One part for f, and one for the function behind a parameter."""

    function: Any
    parameter: Any

    @staticmethod
    def of(given: Any) -> Pair:
        """The two rows of all arrays, or the two parts of a record that has them."""
        if hasattr(given, "function"):
            return Pair(given.function, given.parameter)
        return Pair(*(jax.tree.map(lambda part, k=k: part[k], given) for k in range(2)))

    def each(self, function: Callable, *more: Pair) -> Pair:
        """A function of both parts."""
        return Pair(*map(function, self, *more))

    def stacked(self) -> Any:
        """Both as one tree of arrays with an axis for the functions in front."""
        return jax.tree.map(lambda *parts: jnp.stack(parts), *self)


def across(pair: Pair) -> Moves:
    """Moves of both functions, as 2 × 2 × n: coordinates first."""
    return jnp.stack(pair, axis=1)


def along(moves: Moves) -> Pair:
    """The reverse."""
    return Pair(moves[:, 0], moves[:, 1])


class PerFunction(Process):
    """The processes of both functions of a model with `likelihoods.Varying`. `infer` and `fit` make it of the model's
    process.

    Args:
        function: Process of f.
        parameter: Process of the function behind the parameter.

    >>> from quantprop import Dense, Inducing
    >>> from quantprop.priors import PerFunction
    >>> process = PerFunction(Inducing(200), Dense())
    """

    function: Process
    parameter: Process

    def __check_init__(self) -> None:
        for part in Pair.of(self):
            if not isinstance(part, (Dense, Inducing, Markov, Neighbours)):
                raise ValueError(f"process must be Dense(), Inducing(), Neighbours() or Markov() for a likelihood with "
                                 f"a varying parameter; got {part!r}")  # fmt: skip

    from_data: ClassVar[Any] = property(lambda self: any(part.from_data for part in Pair.of(self)))
    follows_kernel: ClassVar[Any] = property(lambda self: any(part.follows_kernel for part in Pair.of(self)))
    copies_apart: ClassVar[Any] = property(lambda self: any(part.copies_apart for part in Pair.of(self)))

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> PerFunction:
        return PerFunction(*Pair.of(self).each(lambda part, k: part.settled(k, x), functions(kernel)))

    def check(self, share: Float[np.ndarray, " n"]) -> None:
        Pair.of(self).each(lambda part: part.check(share))

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Pair:
        return Pair.of(self).each(lambda part, k: part.prepare(k, x), functions(kernel))

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Pair) -> PerFunctionPrior:
        means = Pair(mean, jnp.zeros_like(mean))  # the likelihood's own parameter is that of g = 0
        own = (functions(kernel), means, Pair(*prepared))
        return PerFunctionPrior(means.stacked(), *Pair.of(self).each(lambda part, *own: part.prior(*own), *own))

    def cost(self, n: int) -> Cost:
        f, g = Pair.of(self).each(lambda part: part.cost(n))
        return Cost(f.peak + g.peak, f.held + g.held, f.flops + g.flops, f"{f.words}, twice", f"{f.parts}, twice")

    def refined(self, prior: Prior) -> Prior:
        assert isinstance(prior, PerFunctionPrior)
        return prior.each(lambda own, part: part.refined(own), Pair.of(self))


def functions(kernel: Kernel) -> Pair:
    """The kernels of both functions."""
    assert isinstance(kernel, PerParameter)
    return Pair.of(kernel)


class PerFunctionPrior(Prior):
    """Both priors; `mean` holds the means of both."""

    function: Prior
    parameter: Prior

    one_gaussian: ClassVar[Any] = property(lambda self: all(part.one_gaussian for part in Pair.of(self)))
    largest_joint: ClassVar[int] = 0

    def each(self, function: Callable, *more: Pair) -> PerFunctionPrior:
        """A function of both, whose means stay."""
        found = Pair.of(self).each(function, *more)
        return changed(self, function=found.function, parameter=found.parameter)

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        return joined(sites, Pair.of(self).each(lambda part, own: part.condition(own, signed), Pair.of(sites)))

    def scaled(self, by: Any) -> PerFunctionPrior:
        return self.each(lambda part: part.scaled(by))

    def variances(self) -> Float[Array, "2 n"]:
        return Pair.of(self).each(lambda part: part.variances()).stacked()

    def for_shares(self, share: Any) -> PerFunctionPrior:
        return self.each(lambda part: part.for_shares(share))

    def for_sweeps(self) -> PerFunctionPrior:
        return self.each(lambda part: part.for_sweeps())

    def is_psd(self) -> bool:
        return all(part.is_psd() for part in Pair.of(self))

    def for_derivatives(self, factor: Pair) -> tuple[PerFunctionPrior, Pair]:
        kept = Pair.of(self).each(lambda part, own: part.for_derivatives(own), Pair(*factor))
        return changed(self, function=kept.function[0], parameter=kept.parameter[0]), kept.each(lambda both: both[1])

    def response(self, given: Conditioned, signed: bool) -> PerFunctionResponse:
        return PerFunctionResponse(*Pair.of(self).each(lambda part, own: part.response(own, signed), apart(given)))

    def evidence_slope(self, given: Conditioned, signed: bool) -> PerFunctionPrior:
        found = Pair.of(self).each(lambda part, own: part.evidence_slope(own, signed), apart(given))
        return PerFunctionPrior(jnp.zeros_like(self.mean), *found)


def joined(sites: Natural, pair: Pair) -> Conditioned:
    """Both posteriors as one."""
    f, g = pair
    marginals = Pair(f.marginals, g.marginals).stacked()
    size = f.log_determinant + g.log_determinant
    return Conditioned(sites, marginals, size, f.proper & g.proper, Pair(f.factor, g.factor))


def apart(given: Conditioned) -> Pair:
    """Both posteriors by themselves; derivatives do not need the determinant of each."""
    own = Pair.of((given.sites, given.marginals))
    return own.each(lambda part, factor: Conditioned(*part, given.log_determinant, given.proper, factor),
                    Pair(*given.factor))  # fmt: skip


class PerFunctionResponse(Response):
    """The responses of both functions."""

    function: Response
    parameter: Response

    def answer(self, moves: Moves) -> Moves:
        return across(Pair.of(self).each(lambda part, own: part.answer(own), along(moves)))

    def sent_back(self, by: Moves) -> Moves:
        return across(Pair.of(self).each(lambda part, own: part.sent_back(own), along(by)))

    def of_determinant(self) -> Moves:
        return across(Pair.of(self).each(lambda part: part.of_determinant()))

    def to_prior(self, by: Cotangent) -> PerFunctionPrior:
        own = along(by.answer).each(lambda answer, mean: Cotangent(answer, by.log_determinant, mean), Pair(*by.mean))
        found = Pair.of(self).each(lambda part, own: part.to_prior(own), own)
        return PerFunctionPrior(jnp.zeros_like(by.mean), *found)


def for_both(process: Process) -> PerFunction:
    """The process of both functions, represented alike unless each has its own."""
    return process if isinstance(process, PerFunction) else PerFunction(process, process)
