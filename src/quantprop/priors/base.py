"""What a prior backend is: sites in, marginals and predictions out. Only a backend knows how its Gaussian is stored."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float

from quantprop.gaussian import Natural
from quantprop.sites import Marginal


class Posterior(eqx.Module):
    """Marginals under the sites, log |I + S K|, and whether the posterior is a proper Gaussian."""

    marginals: Marginal
    log_determinant: Float[Array, ""]
    proper: Bool[Array, ""]


class Response(eqx.Module):
    """How a posterior answers small changes of the prior: Σ, and A = (I + K S)⁻¹.

    With δm and δK: δμ = A (δm + δK α) and δΣ = A δK Aᵀ.
    """

    covariance: Float[Array, "n n"]
    transfer: Float[Array, "n n"]


class Prior(eqx.Module):
    """Base of all backends. The costly part of a sweep is `factor`; whatever follows from the same sites shares it."""

    mean: eqx.AbstractVar[Float[Array, " n"]]

    def is_covariance(self) -> bool:
        """Whether the prior's numbers are a covariance, up to rounding; most backends are so by construction."""
        return True

    def scaled(self, by: Any) -> Prior:
        """The prior with its covariance multiplied by a positive number."""
        raise NotImplementedError

    def largest_variance(self) -> float:
        """Of all training values."""
        raise NotImplementedError

    def factor(self, sites: Natural) -> Any:
        """What the backend computes of the sites, once, for the methods below."""
        raise NotImplementedError

    def posterior(self, factor: Any, sites: Natural, negative_sites: bool) -> Posterior:
        """The posterior under sites whose precisions are all ≥ 0, or of any sign if `negative_sites`."""
        raise NotImplementedError

    def followed(self, factor: Any, at: Marginal, sites: Natural) -> Marginal:
        """The marginals under sites whose ν alone has changed since `at`; precisions are all ≥ 0."""
        raise NotImplementedError

    def for_derivatives(self, factor: Any) -> tuple[Prior, Any]:
        """The prior and a factor without what `response` and `precision` do not need, which can be large."""
        return self, factor

    def response(self, factor: Any, sites: Natural, negative_sites: bool) -> Response:
        """What derivatives in the prior are made of (dense backends only)."""
        raise NotImplementedError

    def precision(self, factor: Any, sites: Natural, negative_sites: bool) -> Float[Array, "n n"]:
        """(K + S⁻¹)⁻¹ = S (I + K S)⁻¹, the precision of the sites' means under the prior (dense backends only).

        Folded or not (`priors.triangular`): it is there to be multiplied with derivatives of K.
        """
        raise NotImplementedError
