"""A likelihood with one of its parameters a function of x: each row has two latent values, f and g.

Given g the likelihood is an ordinary one, with a number for its parameter. Where its integral over f has a closed form
an integral over g alone remains; otherwise both are integrated on a grid (`on_grid.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import changed, field
from quantprop.core.sites import Moments, Scalar
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Places, landmarks
from quantprop.likelihoods.classes import ClassLikelihood
from quantprop.likelihoods.derived import ByOutput, WithFewNodes
from quantprop.likelihoods.on_grid import COARSE, COARSE_FOR_SCORES, FINE, on_grid
from quantprop.likelihoods.tilted import on_few_nodes, quadrature_moments, tilt
from quantprop.numerics.trusted import unless_trusted
from quantprop.runtime.names import check_name

WINDOW, STEPS = 12.0, 33  # the integral over f is compared at this many values of g, so far about its cavity
NEGLIGIBLE = 1e-10  # mass of a value of g, relative to the largest
MAX_LOWER = 1e-3  # lower bound up to which a parameter may have any positive value
NODES, _MASSES = np.polynomial.hermite_e.hermegauss(32)  # for integrals over g
LOG_MASSES = np.log(_MASSES / _MASSES.sum())
PLATEAU = 0.5  # nats below the largest of these at which the likelihood still counts as high


def of_base(name: str) -> Any:
    """A fact about the likelihood that the parameter is one of."""
    return property(lambda self: getattr(self.base, name))


class Varying(Likelihood):
    """p(y | f, g) = p(y | f) of a likelihood with one parameter a function of x: its value times exp(g), g being a
    latent function with a kernel of its own. A parameter between 0 and 1 has the odds p/(1 − p) multiplied instead.

    The kernel of the model is `kernels.PerParameter`. EP and QP support it; VB and Laplace do not.

    Args:
        base: The likelihood. Its own value of the parameter is that where g = 0; learned.
        parameter: Name of the parameter, such as "scale".

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods
    >>> x = np.linspace(0.0, 3.0, 60)
    >>> y = np.sin(2.0 * x) + np.exp(x - 3.0) * np.random.default_rng(0).standard_normal(60)
    >>> kernel = kernels.PerParameter(kernels.SquaredExponential(), kernels.SquaredExponential())
    >>> model = Model(kernel, likelihoods.Varying(likelihoods.Gaussian(0.3), "scale"))
    >>> infer(model, x[:, None], y, "ep").parameter_at([[0.0], [3.0]]).median.round(2).tolist()
    [0.06, 0.76]
    """

    base: Likelihood
    parameter: str = field(static=True)

    name = "varying"
    latents = 2
    smooth = True
    closed: ClassVar[Any] = False

    columns: ClassVar[Any] = of_base("columns")
    support: ClassVar[Any] = of_base("support")
    scaled_by: ClassVar[Any] = of_base("scaled_by")
    lattice: ClassVar[Any] = of_base("lattice")
    interval: ClassVar[Any] = of_base("interval")

    def __check_init__(self) -> None:
        base = self.base
        if not isinstance(base, Likelihood):
            raise TypeError(f"Varying: base must be a likelihood; got {base!r}")
        if isinstance(base, (ByOutput, ClassLikelihood, Varying)):
            raise ValueError(f"Varying: {type(base).__name__} is not supported: its rows already have several latent "
                             "values or likelihoods; use a likelihood of one function")  # fmt: skip
        known = varying_parameters(base)
        if not known:
            raise ValueError(f"Varying: {type(base).__name__} has no positive parameter that could vary with x")
        if self.parameter in base.bounds and self.parameter not in known:
            raise ValueError(f"Varying: {self.parameter} of {type(base).__name__} must be the same for all x; "
                             f"{', '.join(known)} may vary")  # fmt: skip
        check_name(f"Varying: parameter of {type(base).__name__}", self.parameter, known)

    def at(self, g: Scalar) -> Likelihood:
        """The likelihood with a number for its parameter."""
        value, upper = getattr(self.base, self.parameter), self.base.bounds[self.parameter][1]
        xp = np if isinstance(g, np.ndarray) else jnp  # of predictions
        new = value * xp.exp(g) if upper > 1.0 else 1.0 / (1.0 + (1.0 / value - 1.0) * xp.exp(-g))
        return changed(self.base, **{self.parameter: new})

    # --- the mathematics: f and g are the two entries of an array ----------------------------------------------------

    def log_prob(self, datum: Datum, f: Any) -> Scalar:
        return self.at(f[1]).log_prob(datum, f[0])

    def start(self, datum: Datum) -> tuple[Any, Any]:
        """The likelihood's own start for f, where it has one; none for g."""
        nu, tau = self.base.start(datum)
        return jnp.stack([nu, jnp.zeros_like(nu)]), jnp.stack([tau, jnp.zeros_like(tau)])

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return _moments(self, datum, cavity)

    def functions(self, datum: Datum, cavity: Normal) -> tuple[tuple[Likelihood, Normal], ...]:
        if not self.base.closed:
            found = on_grid(self, datum, cavity, FINE)
            return found.if_resolved(found.each)
        of_g, g = in_turn(self, cavity)
        tilted = tilt(of_g, datum, g)
        return _of_function(of_g, tilted.f.ravel(), tilted.density.mass.ravel()), (of_g, g)

    def few_node_functions(self, datum: Datum, cavity: Normal) -> tuple[tuple[Likelihood, Normal], ...]:
        if not self.base.closed:
            found = on_grid(self, datum, cavity, COARSE_FOR_SCORES)
            return found.if_resolved(found.each)
        of_g, g = in_turn(self, cavity)
        nodes = on_few_nodes(of_g, datum, g).nodes
        return _of_function(of_g, g.mean + nodes.offset, nodes.mass), (WithFewNodes(of_g), g)

    def few_node_moments(self, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
        return few_node_pair(self, datum, cavity)

    def mean(self, datum: Datum, f: Any) -> Scalar:
        return self.at(f[1]).mean(datum, f[0])

    # --- y, as the user gives it -------------------------------------------------------------------------------------

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)

    def code(self, y: np.ndarray) -> np.ndarray:
        return self.base.code(y)

    def response(self, y: np.ndarray) -> np.ndarray:
        return self.base.response(y)

    def greatest(self, datum: Datum) -> Scalar:
        return self.base.greatest(datum)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self.base.typical(datum, f)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> NoReturn:
        """Refused: y depends on g as well."""
        raise ValueError("y has no draws given f alone if a parameter of its likelihood varies with x: use "
                         "solution.predict_y(X).sample(n)")  # fmt: skip

    def cdf_places(self, datum: Datum) -> Places:
        return self.base.cdf_places(datum)


def varying_parameters(likelihood: Likelihood) -> tuple[str, ...]:
    """Names of the numbers of a likelihood that learning may change, and that may have any positive value, or any
    between 0 and 1; these can be functions of x as well.
    """
    fields = {name: getattr(likelihood, name) for name, (lower, _) in likelihood.bounds.items()
              if 0.0 < lower <= MAX_LOWER}  # fmt: skip
    return tuple(name for name, value in fields.items() if np.ndim(getattr(value, "value", value)) == 0)


class OfParameter(Likelihood):
    """∫ p(y | f, g) N(f | cavity) df, a likelihood of g alone; its landmarks are those near a Gaussian of g."""

    whole: Varying
    cavity: Normal
    near: Normal

    name = "of the parameter"
    support = "as its base"
    smooth = True

    def given(self, datum: Datum, g: Scalar) -> Moments:
        """Moments of f given g."""
        return self.whole.at(g).moments(datum, self.cavity)

    def given_each(self, datum: Datum, g: Float[Array, " nodes"]) -> Moments:
        """The same for several values of g."""
        return jax.vmap(partial(self.given, datum))(g)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.given(datum, f).log_normalizer

    def landmarks(self, datum: Datum) -> Landmarks:
        """The place nearest to the Gaussian's mean where the integral is about as large as anywhere."""
        away = jnp.maximum(1.0, jnp.sqrt(self.near.variance)) * jnp.linspace(-WINDOW, WINDOW, STEPS)
        values = jax.vmap(lambda d: self.log_prob(datum, self.near.mean + d))(away)
        distance = jnp.where(values > jnp.max(values) - PLATEAU, jnp.abs(away), jnp.inf)
        return landmarks((self.near.mean + away[jnp.argmin(distance)], 1.0))

    def mixed(self, given: Moments, mass: Any) -> Moments:
        """Moments of f from those given several values of g, and the probabilities of these."""
        log_normalizer, shift, ratio, shrink = (jnp.sum(mass * part) for part in jax.tree.leaves(given))
        spread = jnp.sum(mass * (given.shift - shift) ** 2) / self.cavity.variance
        return Moments(log_normalizer, shift, ratio + spread, shrink - spread)


class OfFunction(Likelihood):
    """∫ p(y | f, g) N(g | cavity) dg, a likelihood of f alone, as a sum over values of g up to a constant: each of the
    densities given g has the probability that it has under the tilted density, over its own integral.
    """

    of_g: OfParameter
    g: Float[Array, " nodes"]
    mass: Float[Array, " nodes"]

    name = "of the function"
    support = "as its base"
    smooth = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        def given(g: Scalar) -> Scalar:
            return self.of_g.whole.at(g).log_prob(datum, f) - self.of_g.log_prob(datum, g)

        return logsumexp(jax.vmap(given)(self.g), b=self.mass)

    def landmarks(self, datum: Datum) -> Landmarks:
        return _landmarks_over(self.of_g.whole, datum, self.g, self.mass)


class OverParameter(Likelihood):
    """∫ p(y | f, g) N(g) dg, a likelihood of f alone: what a new y says about f if g is not known either."""

    whole: Varying
    g: Normal

    name = "over the parameter"
    support = "as its base"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        def add(total: Scalar, node: Any) -> tuple[Scalar, None]:
            g, log_mass = node
            return jnp.logaddexp(total, log_mass + self.whole.at(g).log_prob(datum, f)), None

        return jax.lax.scan(add, -jnp.inf, (self._nodes, LOG_MASSES))[0]  # one value of g at a time, for memory

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        """E[y | f]."""
        return jnp.sum(jnp.exp(LOG_MASSES) * jax.vmap(lambda g: self.whole.at(g).mean(datum, f))(self._nodes))

    def landmarks(self, datum: Datum) -> Landmarks:
        return _landmarks_over(self.whole, datum, self._nodes, jnp.exp(LOG_MASSES))

    @property
    def _nodes(self) -> Float[Array, " nodes"]:
        return self.g.mean + jnp.sqrt(self.g.variance) * NODES


def _landmarks_over(whole: Varying, datum: Datum, g: Float[Array, " nodes"], mass: Any) -> Landmarks:
    """The landmarks given g, on the smallest scale that they have at values of g that matter."""
    matter = mass > NEGLIGIBLE * jnp.max(mass)
    ends = jnp.stack([jnp.min(jnp.where(matter, g, jnp.inf)), jnp.max(jnp.where(matter, g, -jnp.inf))])
    at = jax.vmap(lambda g: whole.at(g).landmarks(datum))(ends)
    return Landmarks(at.location[jnp.argmin(at.scale[:, 0])], jnp.min(at.scale, axis=0))


def _of_function(
    of_g: OfParameter, g: Float[Array, " nodes"], mass: Float[Array, " nodes"]
) -> tuple[OfFunction, Normal]:
    """The likelihood of f, given values of g and their masses, and the cavity of f."""
    return OfFunction(of_g, g, mass / jnp.sum(mass)), of_g.cavity


def in_turn(likelihood: Varying, cavity: Normal) -> tuple[OfParameter, Normal]:
    """The likelihood of g with f integrated out under its cavity, and the cavity of g."""
    f, g = (Normal(cavity.mean[k], cavity.variance[k]) for k in range(2))
    return OfParameter(likelihood, f, g), g


def both(f: Moments, g: Moments) -> Moments:
    """Moments of both latent values of a datum, from those of each."""
    return Moments(g.log_normalizer, *(jnp.stack([getattr(f, name), getattr(g, name)])
                                       for name in ("shift", "ratio", "shrink")))  # fmt: skip


def few_node_pair(likelihood: Varying, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
    """Moments of f and g by the small rule, and whether they are accurate."""
    if not likelihood.base.closed:
        found = on_grid(likelihood, datum, cavity, COARSE)
        return both(*(part.moments(datum, its) for part, its in found.each)), found.resolved
    of_g, g = in_turn(likelihood, cavity)
    few = on_few_nodes(of_g, datum, g)
    f = of_g.mixed(of_g.given_each(datum, g.mean + few.nodes.offset), few.nodes.mass / few.total)
    return both(f, few.moments), few.trusted


def panel_pair(likelihood: Varying, datum: Datum, cavity: Normal) -> Moments:
    """The same by panels."""
    if not likelihood.base.closed:
        found = on_grid(likelihood, datum, cavity, FINE)
        return found.if_resolved(both(*(part.moments(datum, its) for part, its in found.each)))
    of_g, g = in_turn(likelihood, cavity)
    tilted = tilt(of_g, datum, g)
    f = of_g.mixed(of_g.given_each(datum, tilted.f.ravel()), tilted.density.mass.ravel())
    return both(f, quadrature_moments(of_g, tilted, g))


_moments = unless_trusted(few_node_pair, panel_pair)
