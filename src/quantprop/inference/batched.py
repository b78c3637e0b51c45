"""Predictions of many posteriors at once: `predict_many`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, inputs, pad
from quantprop.core.gaussian import Normal
from quantprop.inference.learned_mean import with_mean_uncertainty
from quantprop.inference.prediction import above_rounding, padded_rows, prior_of
from quantprop.inference.solution import Solution
from quantprop.runtime.arguments import SEQUENCE, checked, several
from quantprop.runtime.batches import chunks, each, kinds, of, slots, stacked
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program
from quantprop.runtime.threads import one_blas_thread


@checked(
    solutions=several(Solution, "Solutions of scalar models; of several classes, use solution.predict"), Xnew=SEQUENCE
)
def predict_many(solutions: Sequence[Solution], Xnew: Sequence[Any]) -> list[Normal]:
    """Predict f at new inputs for many solutions, as `Solution.predict` does one by one.

    Solutions whose kernels have the same structure and whose rows fill the same padded shapes share a program.

    Args:
        solutions: Posteriors, as returned by `infer`.
        Xnew: New inputs, one array per solution.

    Returns:
        A Normal for each solution.

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods, predict_many
    >>> X, model = [[0.0], [1.0]], Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> two = [infer(model, X, y, "ep") for y in ([1.0, 0.0], [0.0, 1.0])]
    >>> [latent.mean.round(2).tolist() for latent in predict_many(two, [[[0.5]], [[0.5]]])]
    [[0.52], [0.52]]
    """
    if len(solutions) != len(Xnew):
        raise ValueError(f"Xnew must have one entry per solution (solutions: {len(solutions)}); got {len(Xnew)}")
    for i, solution in enumerate(solutions):
        if solution.posterior is not None:
            raise ValueError(f"solutions[{i}] holds only some of its rows: use its own predict method")
    new = [inputs(x, "Xnew", features=s.X.shape[1]) for s, x in zip(solutions, Xnew, strict=True)]
    latents = predict_given_means(solutions, new)
    return [with_mean_uncertainty(*each) for each in zip(solutions, new, latents, strict=True)]


def predict_given_means(solutions: Sequence[Solution], new: Sequence[Float[np.ndarray, "k d"]]) -> list[Normal]:
    """The posteriors of f at checked inputs, learned means taken as known."""
    cases = [_case(solution, x) for solution, x in zip(solutions, new, strict=True)]
    found: list[Any] = [None] * len(cases)
    with one_blas_thread(), jax.enable_x64(True):
        for alike in kinds(cases):
            first = solutions[alike[0]]
            signed = any((solutions[i].sites.tau < 0).any() for i in alike)
            for rows in chunks(len(alike), size := slots(first.model.process.cost(bucket(len(first.X))), len(alike))):
                batch = stacked([cases[alike[i]] for i in np.resize(rows, size)])
                latent = to_numpy(_conditioned(batch, len(rows), signed=signed))
                for k, i in enumerate(rows):
                    found[alike[i]] = of(latent, k)
    cut = [[part[: len(x)] for part in latent] for latent, x in zip(found, new, strict=True)]
    return [Normal(m, above_rounding(v, own, len(s.X))) for (m, v, own), s in zip(cut, solutions, strict=True)]


def _case(solution: Solution, new: np.ndarray) -> tuple:
    """Everything about one prediction, padded."""
    model, rows = solution.model, padded_rows(solution)
    x, ahead = ((pad(of, bucket(len(of))), pad(model.prior_mean(of), bucket(len(of)))) for of in (solution.X, new))
    return model.plain_process, model.plain_kernel, rows.share, *x, rows.sites, *ahead


def _predicted(batch: tuple, used: int, signed: bool) -> tuple:
    def one(process, kernel, share, x, mean, sites, new, new_mean):
        prior = prior_of(process, kernel, mean, x).for_shares(share)
        own, by = kernel.diagonal(new), prior.predictor(sites, signed)
        latent = by.at(new_mean, process.cross(kernel, x, new), own)
        return latent.mean, latent.variance, own

    return each(one, used, *batch)


_conditioned = program(_predicted, static_argnames="signed")
