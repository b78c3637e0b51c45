"""Rows that are read again for every pass, a chunk at a time: EP with nothing of a row in memory but its site.

A sweep takes two passes. The first measures how far the sites are from their renewal, and what the renewal would do to
the means of all rows; the second renews each site twice, the means having followed (`fixed_point.renewals`), and adds
up the next factor. Only M × M sums outlive a chunk.

Where there are many chunks, a part of them goes ahead: how far the sums of all rows are going to move is told from how
far those of the part move, by sweeps over the part alone. All rows then begin near the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.inference.engine.fixed_point import FARTHEST, InferenceProblem, scaled
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import Summary, renewal
from quantprop.priors.inducing.prior import InducingPrior, factorised
from quantprop.runtime.batches import rowwise
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program
from quantprop.runtime.system import cores

GROWTH = 2.0  # a residual may grow by this factor in one sweep before it is undone
SMALLEST_STEP = 1e-3
LEADING = 20  # sweeps of a pilot, at most
SHORTER, LONGER = 0.7, 1.2  # the next step, after a residual that grew by less, or that fell


class Look(Record):
    """Sums over rows of one pass."""

    squares: Array  # of the change that renewal makes, each improper cavity counted as 1
    copies: Array
    improper: Array
    evidence: Array  # without the part of log |B|
    sent: Array


class Factor(NamedTuple):
    """L_B⁻¹ and the posterior mean of u."""

    inverse: Any
    centre: Any


class Chunk(NamedTuple):
    """Some rows, and where their sites are among all."""

    problem: InferenceProblem
    rows: slice
    inputs: Any


class Passes(NamedTuple):
    """Passes over all rows, or over a part of them: its sums, divided by its share of the rows, then stand for those of
    all, with a correction that makes them equal at the start.
    """

    begin: Callable[[], Iterator[Chunk]]
    share: float = 1.0  # of the rows
    correction: Any = (0.0, 0.0)

    def factor(self, sums: Any) -> Factor:
        """From the sums of one pass."""
        return _factorised(*jax.tree.map(lambda sum_, more: sum_ / self.share + more, tuple(sums), self.correction))


def _renewed(problem: InferenceProblem, at: Any, sites: Natural) -> Any:
    renew = partial(rowwise, partial(renewal, problem.method, problem.likelihood))
    return renew(problem.data, problem.weight, at, sites)


def _push(problem: InferenceProblem, at: Any, new: Any, sites: Natural) -> Array:
    counts = (problem.weight.total > 0) & new.proper
    return jnp.where(counts, new.site.nu - sites.nu - at.mean * (new.site.tau - sites.tau), 0.0)


def _prior(problem: InferenceProblem) -> InducingPrior:
    """The prior of a chunk, with what a pass needs of its rows computed once."""
    prior: Any = problem.prior
    return prior.for_sweeps()


@program
def summed(problem: InferenceProblem, sites: Natural) -> tuple[Array, Array]:
    return _prior(problem).sums(sites)


@program
def looked(problem: InferenceProblem, factor: Factor, sites: Natural) -> Look:
    """The first pass of a sweep over a chunk."""
    weight, prior = problem.weight, _prior(problem)
    post = prior.under(*factor, sites)
    new = _renewed(problem, post.marginals, sites)
    counts = weight.total > 0
    moved, improper = counts & new.proper, counts & ~new.proper
    change = jax.tree.map(lambda to, now: jnp.where(moved, to - now, 0.0), new.site, sites)
    lost = jnp.sum(jnp.where(improper, weight.copies, 0.0))
    squares = jnp.sum(scaled(problem, change, post.marginals) ** 2) + lost
    summary = Summary(problem.prior.mean, sites, post.marginals, post.log_determinant, weight.total)
    evidence = problem.method.evidence(jnp.where(moved, new.value, 0.0), summary)
    sent = prior.sent(sites, _push(problem, post.marginals, new, sites))
    return Look(squares, jnp.sum(jnp.where(counts, weight.copies, 0.0)), jnp.sum(improper), evidence, sent)


@program
def renewed(
    problem: InferenceProblem, factor: Factor, ahead: Array, step: Scalar, sites: Natural
) -> tuple[Natural, tuple[Array, Array]]:
    """The second: renewed sites, the mean of u being `ahead` once the means have followed; and what they add to the
    next factor.
    """
    prior = _prior(problem)
    post = prior.under(*factor, sites)
    new = _renewed(problem, post.marginals, sites)
    to, good = new.site, new.proper
    if not problem.negative_sites and problem.method.quick(problem.likelihood, problem.weight):
        near = Natural(sites.nu + _push(problem, post.marginals, new, sites), sites.tau)
        there = prior.under(factor.inverse, ahead, near).marginals
        close = jnp.abs(there.mean - post.marginals.mean) <= FARTHEST * jnp.sqrt(post.marginals.variance)
        start = jax.tree.map(lambda a, b: jnp.where(close, a, b), (there, near), (post.marginals, sites))
        again = _renewed(problem, *start)
        to = jax.tree.map(lambda a, b: jnp.where(again.proper, a, b), again.site, new.site)
    good = good & (problem.weight.total > 0)
    onward = jax.tree.map(lambda now, to: jnp.where(good, now + step * (to - now), now), sites, to)
    return onward, prior.sums(onward)


_factorised = program(lambda gram, sent: Factor(*factorised(gram, sent, jnp.eye(len(sent)))))
_ahead = program(lambda factor, sent: factor.centre + factor.inverse.T @ (factor.inverse @ sent))


class Ended(NamedTuple):
    factor: Factor
    evidence: float
    residual: float
    sweeps: int
    reason: str


def solve_streamed(passes: Passes, sites: Natural, tol: float, max_sweeps: int, pilot: Passes | None = None) -> Ended:
    """Renew all sites, in place, until the residual is at most `tol`; those of the `pilot` first, if there is one.
    The sweeps that are counted are those over all rows.
    """
    sums = _sums(passes, sites)
    factor = passes.factor(sums)
    if pilot is not None:
        own = _sums(pilot, sites)
        correction = jax.tree.map(lambda all_, some: all_ - some / pilot.share, tuple(sums), tuple(own))
        factor = _led(passes, pilot._replace(correction=correction), factor, sites, tol, max_sweeps)
    return _swept_to(passes, factor, sites, tol, max_sweeps)


def _sums(passes: Passes, sites: Natural) -> Any:
    return total(lambda chunk: summed(chunk.problem, sites_of(sites, chunk)), passes.begin())


def _led(passes: Passes, pilot: Passes, factor: Factor, sites: Natural, tol: float, max_sweeps: int) -> Factor:
    """All sites renewed under the factor at which the pilot's sweeps end, and the factor under them. If those do not
    converge, or lead to no Gaussian, sites and factor stay as they were.
    """
    kept = _copied(sites)
    end = _swept_to(pilot, factor, sites, tol, min(max_sweeps, LEADING))
    if end.reason == "converged":
        led = _swept(passes, end.factor, jnp.zeros_like(factor.centre), 1.0, sites)
        if np.isfinite(led.inverse).all() and np.isfinite(led.centre).all():
            return led
    sites.nu[:], sites.tau[:] = kept.nu, kept.tau
    return factor


def _copied(sites: Natural) -> Natural:
    return Natural(sites.nu.copy(), sites.tau.copy())


def _swept_to(passes: Passes, factor: Factor, sites: Natural, tol: float, max_sweeps: int) -> Ended:
    """Sweeps from the factor under the sites.

    A sweep that lets the residual grow much is undone and made again with half the step; steps that let it grow a
    little become shorter, others longer again.
    """
    step, kept = 1.0, _copied(sites)
    end, good, sent = Ended(factor, np.nan, np.inf, 0, "max-sweeps"), None, None
    while end.sweeps < max_sweeps:
        look = total(partial(_looked, factor, sites), passes.begin())
        end = _ended(factor, look, end.sweeps + 1)
        finite = np.isfinite(end.residual) and np.isfinite(end.evidence)
        if finite and end.residual <= tol:
            return end._replace(reason="converged")
        if good is None and not finite:
            return end._replace(reason="improper-start")
        if good is None or (finite and end.residual <= GROWTH * good.residual):
            if good is not None:
                step = min(1.0, LONGER * step) if end.residual < good.residual else SHORTER * step
            good, sent, kept.nu[:], kept.tau[:] = end, look.sent, sites.nu, sites.tau
        else:
            step, sites.nu[:], sites.tau[:] = 0.5 * step, kept.nu, kept.tau
            if step < SMALLEST_STEP:
                return good._replace(reason="stalled", sweeps=end.sweeps)
        factor = _swept(passes, good.factor, sent, step, sites)
    return end


def _looked(factor: Factor, sites: Natural, chunk: Chunk) -> Look:
    return looked(chunk.problem, factor, sites_of(sites, chunk))


def _ended(factor: Factor, look: Look, sweeps: int) -> Ended:
    residual = float(np.sqrt(look.squares / (2.0 * look.copies)))
    value = float(look.evidence) + float(jnp.sum(jnp.log(jnp.diagonal(factor.inverse))))
    return Ended(factor, value, residual, sweeps, "improper-cavities" if look.improper else "max-sweeps")


def _swept(passes: Passes, factor: Factor, sent: Any, step: Any, sites: Natural) -> Factor:
    """One renewal of the sites, and the factor under them."""
    ahead = _ahead(factor, sent / passes.share)

    def one(chunk: Chunk) -> Any:
        onward, sums = renewed(chunk.problem, factor, ahead, step, sites_of(sites, chunk))
        sites.nu[chunk.rows] = np.asarray(onward.nu)[: _length(chunk)]
        sites.tau[chunk.rows] = np.asarray(onward.tau)[: _length(chunk)]
        return sums

    return passes.factor(total(one, passes.begin()))


def _length(chunk: Chunk) -> int:
    return chunk.rows.stop - chunk.rows.start


def sites_of(sites: Natural, chunk: Chunk) -> Natural:
    """The sites of a chunk, padded as its rows are."""
    more = len(chunk.problem.prior.mean) - _length(chunk)
    return Natural(np.pad(sites.nu[chunk.rows], (0, more)), np.pad(sites.tau[chunk.rows], (0, more)))


def total(part: Callable[[Chunk], Any], chunks: Iterator[Chunk]) -> Any:
    """The sum of a tree over chunks, in their order: bitwise identical however many are computed at a time. Each core
    computes one, since the programs of a chunk hardly use more.
    """
    at_once = cores() if jax.default_backend() == "cpu" else 1
    sum_: Any = None

    def added(one: Future) -> Any:
        return one.result() if sum_ is None else jax.tree.map(jnp.add, sum_, one.result())

    whole = float64(_whole)
    with ThreadPoolExecutor(at_once) as pool:
        going: deque[Future] = deque()
        for chunk in chunks:
            going.append(pool.submit(whole, part, chunk))
            if len(going) > at_once:
                sum_ = added(going.popleft())
        for one in going:
            sum_ = added(one)
    return sum_


def _whole(part: Callable[[Chunk], Any], chunk: Chunk) -> Any:
    """Wait for a part, so that one chunk per thread, and one more, are in memory."""
    return jax.block_until_ready(part(chunk))
