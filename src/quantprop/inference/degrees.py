"""Effective degrees of freedom of the terms of a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from quantprop.inference.terms import Parts, effects_at, terms_of
from quantprop.kernels import Sum
from quantprop.runtime.precision import float64


@float64
def effective_degrees(solution: Any, some: Iterable[str] | None = None) -> dict[str, float]:
    """tr K_t (K + S⁻¹)⁻¹ for every term t (or some) with covariance K_t, S being the sites' precisions: the degrees of
    freedom that the data use of it (Wood 2017, §6.1.2). Those of all terms add up to those of f.

    K_t (K + S⁻¹)⁻¹ = Cov(f_t, f | y) S, whose diagonal needs variances only: of f_t, of f and of f − f_t.
    """
    terms, found = terms_of(solution.model.plain_kernel), {}
    for name in terms if some is None else some:
        rest = [term for other, term in terms.items() if other != name]
        kernels = [terms[name], *([reduce(Sum, [terms[name], *rest]), reduce(Sum, rest)] if rest else [])]
        of = Parts(tuple(map(str, range(len(kernels)))), tuple(kernels))
        variances = [
            part.variance for part in list(effects_at(solution, solution.X, of).parts.values())[: len(kernels)]
        ]
        shared = 0.5 * (variances[0] + variances[1] - variances[2]) if rest else variances[0]
        found[name] = float(shared @ solution.sites.tau)
    return found
