"""Expectation propagation, quantile propagation and power EP: one rule, a projection and a power."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from quantprop.core.gaussian import Natural, Normal, Vector
from quantprop.core.records import field
from quantprop.core.sites import Marginal, Removal, cavity, log_site_normalizer, renewed
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.likelihoods.derived import Remainder, Tempered
from quantprop.methods.base import Method, Renewal, Summary, Weight, quadratic
from quantprop.projections import KL, Projection, Wasserstein
from quantprop.projections.base import projected
from quantprop.runtime.arguments import is_number
from quantprop.runtime.display import Form, expression


class EP(Method):
    """Expectation propagation: remove a fraction of the site, tilt the cavity with the likelihood, project, divide by
    the cavity.

    `EP()` is the method of Minka (2001).

    Args:
        projection: The projection: KL matches moments, Wasserstein quantiles.
        power: Fraction of a site that is removed at a time, in (0, 1].

    >>> from quantprop import EP, QP, projections
    >>> EP(projection=projections.Wasserstein(2)) == QP()
    True
    """

    projection: Projection = KL()
    power: float = field(default=1.0, static=True)

    def _expression(self, form: Form) -> str:
        """By the names that the settings of QP and power EP have."""
        if self.projection == KL():
            return "EP()" if self.power == 1.0 else f"PowerEP({form(self.power)})"
        if self.power == 1.0 and isinstance(self.projection, Wasserstein):
            return "QP()" if self.projection.p == 2.0 else f"QP({form(self.projection.p)})"
        return f"EP({expression(self.projection, form)}, {form(self.power)})"

    def __check_init__(self) -> None:
        if not (is_number(self.power) and 0.0 < self.power <= 1.0):
            raise ValueError(f"power must lie in (0, 1]; got {self.power}")

    def check(self, likelihood: Likelihood, weight: Weight) -> None:
        if not likelihood.projectable:
            raise ValueError(f"EP and QP do not support the {likelihood.name} likelihood: use "
                             "likelihoods.MultinomialProbit(), or VB or Laplace")  # fmt: skip
        if likelihood.latents > 1 and (self.power != 1.0 or weight.exponent is not None):
            raise ValueError("a parameter that varies with x is supported with power 1 only, and without weights "
                             "between 0 and 1: use EP() or QP(), and weights of 0, 1 or more")  # fmt: skip
        if likelihood.singular and (self.power != 1.0 or weight.exponent is not None):
            raise ValueError(
                f"the {likelihood.name} likelihood with this link supports power 1 only, and no weights between 0 and "
                "1: p(y | f) to a fractional power has a cusp at f = 0 that is not integrated accurately"
            )

    @property
    def stationary(self) -> bool:
        return isinstance(self.projection, KL)  # the evidence is stationary where moments match

    @property
    def stand_in(self) -> Method | None:
        """EP: labels of a threshold that contradict each other leave QP without a fixed point, since its sites are
        narrower (docs/background/robustness.md).
        """
        return None if isinstance(self.projection, KL) else EP(power=self.power)

    def share(self, weight: Weight) -> Vector:
        return self.power / weight.copies

    def quick(self, likelihood: Likelihood, weight: Weight) -> bool:
        return self.power == 1.0 and weight.exponent is None and self.projection.quick(likelihood)

    def on_few_nodes(self, likelihood: Likelihood, weight: Weight) -> bool:
        plain = self.power == 1.0 and weight.exponent is None and not likelihood.has_gaussian_factor
        return plain and self.projection.on_few_nodes(likelihood)

    def tells_left_out(self, likelihood: Likelihood, weight: Weight) -> bool:
        return self.quick(likelihood, weight) or self.on_few_nodes(likelihood, weight)

    def left_out(self, weight: Weight, marginal: Marginal, site: Natural, value: Scalar) -> Scalar:
        """log Z_i: what `renew` has divided by the site's integral, NaN where the cavity is improper."""
        removal = Removal(self.share(weight))
        rest = cavity(marginal, site, removal)
        return removal.share * value + jnp.sum(log_site_normalizer(marginal, removal, rest))

    def tilting(
        self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural
    ) -> tuple[Likelihood, Normal, Removal]:
        """The factor of one copy of a datum, the cavity that it tilts, and what was removed to get there."""
        exponent = 1.0 if weight.exponent is None else weight.exponent
        retained, factor = 0.0, likelihood
        if likelihood.has_gaussian_factor:  # stays with the cavity, so that only their product must be proper
            retained, factor = weight.total * likelihood.gaussian_precision(datum), Remainder(likelihood)
        if self.power != 1.0 or weight.exponent is not None:
            factor = Tempered(factor, self.power * exponent)
        removal = Removal(self.share(weight), retained)
        return factor, cavity(marginal, site, removal), removal

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        factor, rest, removal = self.tilting(likelihood, datum, weight, marginal, site)
        share, retained = removal.share, removal.retained
        moments = projected(self.projection, factor, datum, rest)
        part = renewed(rest, moments)
        log_ratio = moments.log_normalizer - jnp.sum(log_site_normalizer(marginal, removal, rest))
        value = log_ratio / share - jnp.sum(0.5 * retained * marginal.mean**2)
        proper = jnp.all((rest.variance > 0) & jnp.isfinite(part.tau) & jnp.isfinite(part.nu))
        return Renewal(Natural(part.nu / share, part.tau / share + retained), value, proper)

    def evidence(self, values: Array, summary: Summary) -> Scalar:
        """G + (1/a) Σ (log Z_i − g_i), with G the log integral of prior times sites, both measured at the mean μ:

        Σ ν_i f_i − ½ τ_i f_i² minus its value at μ integrates to G = −½ log|I + S K| − ½ (μ − m)ᵀ α.
        """
        return jnp.sum(values) - quadratic(summary) - 0.5 * summary.log_determinant


def QP(p: float = 2.0) -> EP:
    """Quantile propagation: EP with the L_p Wasserstein projection.

    With p = 2 the projection has EP's mean and at most its variance. For the probit likelihood it is a table lookup and
    costs what EP's moments cost. For others it is computed by quadrature, and p other than 2 by minimisation on top.

    Args:
        p: Order of the Wasserstein distance, at least 1.

    Returns:
        `EP(projection=Wasserstein(p))`.

    >>> from quantprop import QP
    >>> QP().projection.p
    2.0
    """
    return EP(projection=Wasserstein(p))


def PowerEP(power: float) -> EP:
    """EP that removes, tilts and restores a fraction of each site at a time.

    Args:
        power: The fraction, in (0, 1]: 1 is EP, and towards 0 it becomes VB. Smaller powers converge where EP does not.

    Returns:
        `EP(power=power)`.

    >>> from quantprop import PowerEP
    >>> PowerEP(0.5).power
    0.5
    """
    return EP(power=power)
