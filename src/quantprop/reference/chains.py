"""Many chains at once: draws of p(f | y) at fixed hyperparameters, summed up as they are made."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.likelihoods.base import Datum, encode
from quantprop.model import Model
from quantprop.reference.annealing import annealed, resampled
from quantprop.reference.guide import ChainState, Guide, guide, start, step
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

MAX_RHAT = 1.01  # Vehtari et al. 2021


class ChainsDisagree(UserWarning):
    """R-hat is above 1.01: the chains have not all seen the same distribution."""


class Estimate(NamedTuple):
    """Monte-Carlo averages and their standard errors."""

    value: Float[np.ndarray, " n"]
    standard_error: Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Draws:
    """Posterior of f at X and X_new, and probability (or density) of y_new, with standard errors.

    Args:
        mean: Posterior means at X.
        variance: Posterior variances at X.
        new_mean: Means at X_new.
        new_variance: Variances at X_new.
        probability: Probability or density of y_new.
        rhat: The larger split R-hat of f and of its squared distance from the guide's centre.
        effective: Number of independent draws that would give the same standard errors.
        last: The last draw of every chain: independent draws of f.
    """

    mean: Estimate
    variance: Estimate
    new_mean: Estimate
    new_variance: Estimate
    probability: Estimate
    rhat: Float[np.ndarray, " n"]
    effective: Float[np.ndarray, " n"]
    last: Float[np.ndarray, "chains n"]

    def __str__(self) -> str:
        worst = np.max(self.variance.standard_error / self.variance.value)
        text = f"R-hat at most {self.rhat.max():.4f}, at least {self.effective.min():.0f} effective draws, "
        text += f"standard errors of variances at most {100 * worst:.2g} %"
        if len(self.probability.value):
            text += f", of probabilities at most {self.probability.standard_error.max():.1e}"
        return text


class Sums(NamedTuple):
    """Over the draws of one half of one chain: of d, d², d⁴ and of the probabilities of y_new."""

    first: Float[Array, " n+k"]
    second: Float[Array, " n+k"]
    fourth: Float[Array, " n+k"]
    probability: Float[Array, " k"]


@float64
def sample(
    model: Model,
    X: Any,
    y: Any,
    X_new: Any = None,
    y_new: Any = None,
    *,
    seed: int = 0,
    chains: int = 64,
    draws: int = 500,
    warmup: int = 100,
    thin: int = 5,
    temperatures: int = 0,
    sites: Natural | None = None,
    exposure: Any = None,
    trials: Any = None,
) -> Draws:
    """Draw from the latent posterior by elliptical slice sampling: `chains` × `draws` draws.

    Predictions at X_new average what is known exactly given f: f_new | f is Gaussian, so p(y_new | f) is a number. If
    there are several modes that chains do not cross between, `temperatures` (thousands, with sites of 0) starts chains
    in each in proportion to its probability, by annealing; R-hat still shows that they do not cross.

    Args:
        model: Kernel, likelihood, prior mean and process.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        X_new: New inputs.
        y_new: Observations there, whose probabilities are estimated.
        seed: Seed of the random numbers. The same seed gives the same result.
        chains: Number of Markov chains.
        draws: Draws per chain.
        warmup: Sweeps before the first draw.
        thin: Sweeps between two draws.
        temperatures: Annealing steps from the guide to the posterior; none by default.
        sites: Sites that guide the chains (see `reference.guide`); any give the same answer, EP's (the default) the
            soonest.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.

    Returns:
        Means and variances with standard errors, and diagnostics.

    >>> import numpy as np
    >>> from quantprop import Model, kernels, likelihoods, reference
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    >>> found = reference.sample(model, np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones(1))
    >>> bool(abs(found.probability.value[0] - 2 / 3) < 5 * found.probability.standard_error[0])
    True
    """
    if chains < 4 or draws < 4:
        raise ValueError(f"chains and draws must be at least 4; got chains={chains}, draws={draws}")
    by = guide(model, X, y, sites, X_new, exposure, trials)
    k = len(by.left)
    new = encode(by.likelihood, y_new, (k,)) if k else None
    keys, others = jax.random.split(jax.random.key(seed), (2, chains))
    spells = np.array([warmup, draws // 2, draws // 2])
    state, sums = to_numpy(_run(by, new, keys, _starts(by, others, temperatures, seed), spells, thin))
    return _summary(by, state, Sums(*(part[:, 1:] for part in sums)), draws // 2)


@program
def _run(
    by: Guide, new: Datum | None, keys: Array, states: ChainState, draws: Any, thin: Any
) -> tuple[ChainState, Sums]:
    """Every chain's last state, and its sums over as many spells as `draws` has entries (second axis)."""

    def terms(d: Float[Array, " n+k"]) -> Sums:
        return Sums(d, d**2, d**4, _probability(by, new, d))

    def one(key: Array, state: ChainState) -> tuple[ChainState, Sums]:
        def move(i: Any, carry: tuple[Array, ChainState]) -> tuple[Array, ChainState]:
            key, state = carry
            return key, step(jax.random.fold_in(key, i), state, by.residual, by.factor)

        def spell(state: ChainState, about: tuple[Array, Array]) -> tuple[ChainState, Sums]:
            def draw(i: Any, carry: tuple[ChainState, Sums]) -> tuple[ChainState, Sums]:
                _, state = jax.lax.fori_loop(0, thin, move, (jax.random.fold_in(about[0], i), carry[0]))
                return state, jax.tree.map(jnp.add, carry[1], terms(state.d))

            nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(terms, state.d))
            return jax.lax.fori_loop(0, about[1], draw, (state, nothing))

        return jax.lax.scan(spell, state, (jax.random.split(key, len(draws)), draws))

    return jax.vmap(one)(keys, states)


_started = program(lambda by, keys: jax.vmap(lambda key: start(key, by.residual, by.factor))(keys))


def _starts(by: Guide, keys: Array, temperatures: int, seed: int) -> ChainState:
    """Draws of the guide, or of the posterior by annealing."""
    if temperatures == 0:
        return _started(by, keys)
    state, log_weights = annealed(by, keys, float(temperatures))
    return resampled(state, np.asarray(log_weights), seed)


def _probability(by: Guide, new: Datum | None, d: Float[Array, " n+k"]) -> Float[Array, " k"]:
    """p(y_new | f), new rows each for itself."""
    if new is None:
        return jnp.zeros(0)
    n = len(by.pull)
    latent = Normal(by.centre[n:] + d[n:], by.left)
    return jnp.exp(jax.vmap(by.likelihood.predictive_log_prob)(new, latent))


def _summary(by: Guide, state: ChainState, sums: Sums, draws: int) -> Draws:
    n = len(by.pull)
    first, second, fourth, probability = (np.swapaxes(part / draws, 0, 1) for part in sums)  # halves in front
    centred, spread = average(first.mean(0)), variance(first.mean(0), second.mean(0))
    rhat = np.maximum(split_rhat(Halves(first, second, draws)), split_rhat(Halves(second, fourth, draws)))[:n]
    if rhat.max() > MAX_RHAT:
        warnings.warn(
            f"the chains disagree: R-hat is {rhat.max():.3f} at row {int(rhat.argmax())}; use more draws, or more "
            "warmup; if p(y | f) is not log-concave, the posterior may have several modes",
            ChainsDisagree,
            stacklevel=3,
        )
    mean = Estimate(by.centre + centred.value, centred.standard_error)
    return Draws(
        mean=Estimate(*(part[:n] for part in mean)),
        variance=Estimate(*(part[:n] for part in spread)),
        new_mean=Estimate(*(part[n:] for part in mean)),
        new_variance=Estimate(by.left + spread.value[n:], spread.standard_error[n:]),
        probability=average(probability.mean(0)),
        rhat=rhat,
        effective=(spread.value / centred.standard_error**2)[:n],
        last=by.centre[:n] + state.d[:, :n],
    )


class Halves(NamedTuple):
    """Means over each half of each chain of a quantity and of its square; `draws` of them went into each."""

    mean: Float[np.ndarray, "2 chains n"]
    square: Float[np.ndarray, "2 chains n"]
    draws: int


def average(by_chain: Float[np.ndarray, "chains n"]) -> Estimate:
    """The mean over independent chains, each an average of its own.

    Chains are independent, so their spread is the standard error: no autocorrelation has to be estimated.
    """
    chains = len(by_chain)
    return Estimate(by_chain.mean(0), by_chain.std(0, ddof=1) / np.sqrt(chains))


def variance(first: Float[np.ndarray, "chains n"], second: Float[np.ndarray, "chains n"]) -> Estimate:
    """E[d²] − E[d]² from every chain's means of d and d²; its error by the delta method."""
    mean = first.mean(0)
    influence = average(second - 2.0 * mean * first)
    return Estimate(second.mean(0) - mean**2, influence.standard_error)


def split_rhat(halves: Halves) -> Float[np.ndarray, " n"]:
    """Split R-hat (Vehtari et al. 2021, eqs 1 to 4): near 1 when the halves of all chains agree."""
    n = halves.draws
    means = halves.mean.reshape(-1, halves.mean.shape[-1])
    squares = halves.square.reshape(means.shape)
    within = np.mean((squares - means**2) * n / (n - 1.0), axis=0)
    between = np.var(means, axis=0, ddof=1)
    settled = (within > 0) | (between > 0)  # a quantity that is the same in all draws
    ratio = between / np.where(within > 0, within, np.where(settled, np.finfo(float).tiny, 1.0))
    return np.sqrt((n - 1.0) / n + ratio)
