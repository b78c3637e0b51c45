"""What a projection is: a rule that picks one Gaussian for a tilted density."""

from __future__ import annotations

from jaxtyping import Array, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import Record
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar
from quantprop.likelihoods.tilted import Tilted, tilt
from quantprop.numerics.special import normal_score
from quantprop.runtime.display import expression, expression_html


class Projection(Record):
    """Base of all projections; `project` sees one datum and its cavity.

    A projection of your own is one method. `tilted_scores` gives it the tilted density on quadrature nodes,
    `relative` states its choice. Here least squares of f on z = Φ⁻¹(F(f)), as in Wasserstein(2), but with weights
    that fade towards the tails:

    >>> import jax.numpy as jnp
    >>> from quantprop import likelihoods, project
    >>> from quantprop.projections import Projection, relative, tilted_scores
    >>> class Central(Projection):
    ...     def project(self, likelihood, datum, cavity):
    ...         tilted, z = tilted_scores(likelihood, datum, cavity)
    ...         expect, f, weight = tilted.density.expect, tilted.f, jnp.exp(-(z**2))
    ...         mean = expect(weight * f) / expect(weight)
    ...         sd = expect(weight * z * (f - mean)) / expect(weight * z**2)
    ...         return relative(cavity, mean, sd**2, tilted.density.log_normalizer)
    >>> mine = project(likelihoods.Probit(), y=1, cavity=(0.0, 4.0), projection=Central())
    >>> float(mine.mean.round(6)), float(mine.variance.round(6))
    (1.352735, 1.907209)
    """

    def __repr__(self) -> str:
        return expression(self)

    def _repr_html_(self) -> str:
        return expression_html(self)

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        """The Gaussian that stands for p(y | f) N(f | cavity), relative to the cavity."""
        raise NotImplementedError

    def quick(self, likelihood: Likelihood) -> bool:
        """Whether it takes no quadrature."""
        return False

    def on_few_nodes(self, likelihood: Likelihood) -> bool:
        """Whether it can do with few nodes for most tilted densities of this likelihood."""
        return False


def tilted_scores(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Tilted, Float[Array, "panels 16"]]:
    """Evaluate the tilted density on quadrature nodes, and z = Φ⁻¹(F(f)) at them.

    Args:
        likelihood: Distribution of y given f.
        datum: The observation.
        cavity: Mean and variance of f given all other observations.

    Returns:
        The tilted density and z. `.density.expect(g)` is the expectation from values g at the nodes `.f`;
        `.density.tails()` are F and 1 − F.
    """
    tilted = tilt(likelihood, datum, cavity)
    return tilted, normal_score(*tilted.density.tails())


def relative(cavity: Normal, mean: Scalar, variance: Scalar, log_normalizer: Scalar) -> Moments:
    """State N(mean, variance) relative to the cavity, as a projection returns it.

    The differences from the cavity are taken here, so a likelihood that hardly moves the cavity loses digits.

    Args:
        cavity: Mean and variance of f given all other observations.
        mean: Mean of the chosen Gaussian.
        variance: Its variance.
        log_normalizer: Log integral of likelihood times cavity.

    Returns:
        The moments relative to the cavity.
    """
    ratio = variance / cavity.variance
    return Moments(log_normalizer, mean - cavity.mean, ratio, 1.0 - ratio)
