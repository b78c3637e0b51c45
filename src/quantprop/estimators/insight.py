"""A learned model in words and numbers: rows that surprise or move it, features and terms that count, and
how far it is to be trusted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import declared, labels
from quantprop.estimators.columns import offsets_of
from quantprop.estimators.reading import Described
from quantprop.inference import reliability
from quantprop.inference.classes import ClassSolution
from quantprop.inference.components import Decomposition, additive_term, variable
from quantprop.inference.integrated import HyperparameterMarginal
from quantprop.inference.learned_mean import MEAN
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.inference.terms import FixedEffect, codes_of, factors_of, terms_of
from quantprop.inference.varying import VaryingSolution
from quantprop.kernels import Columns, Kernel, PerParameter, columns_of, written
from quantprop.kernels.grammar import quoted
from quantprop.kernels.structure import leaves
from quantprop.likelihoods import Varying
from quantprop.priors.per_function import Pair

LEVEL = ("mean", "constant()")  # terms that explain no difference between rows
LENGTHSCALE = re.compile(r"(^|\.)lengthscale(\[\d+\])?$")


def surprise(model: Described) -> Float[np.ndarray, " n"]:
    """−log p(y_i | all other rows) of every training row, of a stack by its weighted models; NaN where the cavity is
    improper.

    For more than two classes the leave-one-out probabilities of the one-against-rest models are normalised, as in
    prediction.
    """
    own = np.stack([one.loo for one in model.stacks or [fitted.solution for fitted in model.fits]], axis=1)
    if own.shape[1] == 1:
        return -own[:, 0]
    positive = np.stack([m.y_train_ for m in model.estimator.base_estimator_.estimators_], axis=1) == 1  # pyright: ignore
    with np.errstate(divide="ignore"):
        yes = np.where(positive, own, np.log(-np.expm1(own)))
    return np.logaddexp.reduce(yes, axis=1) - yes[positive]


def unreliable(model: Described) -> np.ndarray:
    """Rows whose leave-one-out density is unreliable in any of the models of classes."""
    return np.any([reliability.unreliable(fitted.solution) for fitted in model.fits], axis=0)


def influence(model: Described) -> Float[np.ndarray, " n"]:
    """The change of the latent function at each row caused by the row itself, in nats; summed over the models of
    classes, and over all functions of a joint model. Of a stack it is that of its heaviest model.
    """
    moved = [
        _all_moved(fitted.solution) if isinstance(fitted.solution, ClassSolution) else _moved(fitted.solution)
        for fitted in model.fits
    ]
    return np.sum(moved, axis=0)


def _all_moved(solution: ClassSolution) -> np.ndarray:
    """KL divergence of the functions of all classes at a row from those without it."""
    own, other = solution.marginals, solution.left_out
    shift = other.mean - own.mean
    ratio = np.linalg.solve(other.covariance, own.covariance)
    trace = np.trace(ratio, axis1=1, axis2=2) - np.shape(shift)[1]
    away = np.sum(shift * np.linalg.solve(other.covariance, shift[:, :, None])[:, :, 0], axis=1)
    return 0.5 * (trace - np.linalg.slogdet(ratio)[1] + away)


def _moved(solution: Solution) -> np.ndarray:
    """KL divergence of the marginal with a row from the one without it; infinite where the latter is improper."""
    mean, variance = solution.marginals.mean, solution.marginals.variance
    left = 1.0 - solution.sites.tau * variance  # variance over the cavity's variance
    shift = (mean * solution.sites.tau - solution.sites.nu) * variance  # (cavity mean − mean) · left
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = 0.5 * (left - 1.0 - np.log(left) + shift**2 / (variance * left))
    return np.sum(np.atleast_2d(np.where(left > 0, nats, np.inf)), axis=0)  # over f and the function of a parameter


@dataclass(frozen=True)
class Trust:
    """The accuracy of a Gaussian posterior: the changes that a correction would make (docs/background/corrections.md).

    Attributes:
        shift: change of the log evidence, in nats; NaN without a correction.
        doubt: maximum change of any probability about f, for every row; NaN without a correction.
        refused: the reason for having no correction; empty if there is one.
        modes: the result of a search for other modes.
    """

    shift: float
    doubt: Float[np.ndarray, " n"]
    refused: str
    modes: str

    def __str__(self) -> str:
        if self.refused:
            return f"no correction: {self.refused}; {self.modes}"
        usual, worst = np.median(self.doubt), self.doubt.max()
        return (
            f"a correction changes the log evidence by {self.shift:+.3g} nats, and probabilities about f by at most "
            f"{usual:.2g} (median of rows), {worst:.2g} (maximum); {self.modes}"
        )


def trust(solution: Solution | ClassSolution) -> Trust:
    """The size of the correction of a solution, or why it has none."""
    kept = isinstance(solution, ClassSolution) or solution.data is not None
    modes = str(solution.modes()) if kept else "other modes were not looked for"
    try:
        better = solution.corrected()
    except ValueError as error:  # the method, process or posterior has none: a part of the answer
        return Trust(np.nan, np.full(len(solution.X), np.nan), str(error), modes)
    return Trust(better.evidence_shift, better.doubt, "", modes)


def relevance(model: Described, which: int = 0) -> dict[str, float]:
    """Lengthscales of the standardised features under ARD, from the shortest, whose feature counts most; none under one
    lengthscale for all, of terms, of an additive kernel, whose components say more, and of a stack, whose shares do.
    """
    fitted = model.fits[which]
    if columns_of(fitted.model.kernel) or _is_additive(fitted) or model.stacks:
        return {}
    found = [value for name, value in model.fits[which].hyperparameters.items() if LENGTHSCALE.search(name)]
    if len(found) != len(model.features) or len(found) == 1:
        return {}
    return dict(sorted(zip(model.features, found, strict=True), key=lambda pair: pair[1]))


def hyperparameters(model: Described, which: int = 0) -> dict[str, float]:
    """Learned parameters by name: the kernel's without their place in it, lengthscales of ARD with their feature."""
    numbers = model.fits[which].hyperparameters
    return dict(zip(_readable(model, which, list(numbers)), numbers.values(), strict=False))


def at_bounds(model: Described, which: int = 0) -> tuple[str, ...]:
    """The same names of the parameters that learning left at a bound."""
    found, numbers = model.fits[which].status.at_bounds, list(model.fits[which].hyperparameters)
    called = dict(zip(numbers, _readable(model, which, numbers), strict=False))
    return tuple(called.get(name, name) for name in found)


def intervals(model: Described, which: int = 0) -> dict[str, HyperparameterMarginal]:
    """Posteriors of the same parameters by the same names, if they are integrated; otherwise none."""
    if not model.integrated:
        return {}
    found = model.integrated[which].parameters
    return dict(zip(_readable(model, which, list(found)), found.values(), strict=False))


def _readable(model: Described, which: int, names: list[str]) -> list[str]:
    features, own = model.features, model.fits[which].model
    named = _of_terms(own.kernel) if columns_of(own.kernel) else []
    if isinstance(own.kernel, PerParameter) and isinstance(own.likelihood, Varying):
        of_f, of_parameter = map(_of_terms, Pair.of(own.kernel))
        named = [*of_f, *(f"{name}, for the {own.likelihood.parameter}" for name in of_parameter)] if named else []
    return [*named, *(readable(name, features) for name in names[len(named) :])]


def _of_terms(kernel: Kernel) -> list[str]:
    """The names of a kernel's learned parameters, each with its term."""
    found: list[str] = []
    for leaf, seen in leaves(kernel, called=True):
        term = written(leaf if seen is None else Columns(leaf, seen), digits=None)
        for name in labels(declared(leaf)):
            text = f"{name} of {term}"
            same = found.count(text)
            found.append(f"{text} ({same + 1})" if same else text)
    return found


def readable(name: str, features: Sequence[str]) -> str:
    """The name of a hyperparameter of a table's model: of what it is, not of where it stands in a record.

    >>> readable("kernel.right.lengthscale[1]", ["age", "height"]), readable("likelihood.scale", [])
    ('lengthscale of height', 'scale of the likelihood')
    """
    found = re.fullmatch(r"(kernel|likelihood|mean)((?:\.\w+)*?)(?:\.(\w+))?(?:\[(\d+)\])?", name)
    if found is None:
        return name
    owner, _, last, index = found.groups()
    if LENGTHSCALE.search(name) and index is not None:
        return f"{last} of {features[int(index)]}"
    entry = f" {int(index) + 1}" if index is not None else ""
    return f"{last or owner}{entry}" + ("" if owner == "kernel" or last is None else f" of the {owner}")


def greatest(values: Float[np.ndarray, " n"], most: int) -> list[int]:
    """The rows with the greatest values, NaN left out."""
    order = np.argsort(-values, kind="stable")
    return [int(i) for i in order if not np.isnan(values[i])][:most]


@dataclass(frozen=True)
class TermSummary:
    """A learned model of terms: its text, what share of the variance of f each explains, and linear effects: on the
    target in its own units where f is its mean, on its logarithm where f is of that, and
    the reference level of each factor.
    """

    kernel: str
    shares: dict[str, float]
    fixed: dict[str, FixedEffect]
    references: dict[str, str]


def has_terms(model: Described) -> bool:
    """True if a model's kernel is a sum of terms of columns and f is one function; a joint model of classes has several
    functions, of which only differences matter.
    """
    return bool(columns_of(model.fits[0].model.kernel)) and isinstance(model.fits[0].solution, Solution)


def with_components(model: Described, which: int = 0) -> Solution | Stack | None:
    """The posterior whose components can be shown: of a model with one additive term, or of a stack; None if there is
    none, or if f is not one function.
    """
    if not model.stacks:
        return model.fits[which].solution if _is_additive(model.fits[which]) else None
    each = model.stacks[which].components
    has = all(isinstance(one, Solution) and Decomposition.of(one) is not None for one in each)
    return model.stacks[which] if has else None


def component_named(name: str, features: Sequence[str]) -> str:
    """The name of a component by features, where the kernel knows positions only.

    >>> component_named("0:2", ["age", "dose", "weight"])
    'age:weight'
    >>> component_named("0+1:2", ["colour=red", "colour=blue", "weight"])
    'colour:weight'
    """
    parts = [part.split("+") for part in name.split(":")]
    return ":".join(variable([features[int(one)] if one.isdecimal() else one for one in part]) for part in parts)


def varying_parameter(model: Described, which: int = 0) -> dict[str, Any] | None:
    """The range of the medians of a parameter that varies, at the rows, and the share of each term of its logarithm or
    log odds; None if all parameters are constant.
    """
    solution = model.fits[which].solution
    if not isinstance(solution, VaryingSolution):
        return None
    likelihood: Any = solution.model.likelihood
    unit = model.scale_of_f[1] if likelihood.parameter == likelihood.base.noise_name else 1.0
    median, terms = unit * solution.parameter_at(solution.X).median, solution.parameter.terms(solution.X)
    return {"parameter": likelihood.parameter, "smallest": float(median.min()), "largest": float(median.max()),
            "shares": {name: share for name, share in terms.shares.items() if name not in LEVEL}}  # fmt: skip


def _is_additive(fitted: Fitted) -> bool:
    """True if the kernel has one additive term, alone or times a constant, and f is one function."""
    return isinstance(fitted.solution, Solution) and additive_term(fitted.solution) is not None


def term_summary(model: Described, which: int = 0) -> TermSummary:
    """The terms of a model; of one of its classes, where it has several."""
    solution = model.fits[which].solution.of_f
    origin, unit = model.scale_of_f
    fixed, (words, references) = {}, _factors(model, solution)
    for name, effect in solution.fixed_effects().items():
        start = origin if name in (MEAN, "mean.intercept") else 0.0
        estimate, lower, upper = (start + unit * number for number in (effect.estimate, effect.lower, effect.upper))
        called = {**model.words, **words}.get(name, name)
        fixed[called] = FixedEffect(estimate, unit * effect.error, lower, upper)
    known = [model.features[c] if isinstance(c, int) else c for c in offsets_of(model.estimator.kernel)]
    shares = solution.terms(solution.X).shares
    shares |= {" + ".join(f"offset({quoted(name)})" for name in known): shares.pop(MEAN, 0.0)} if known else {}
    shares = {name: share for name, share in shares.items() if name not in LEVEL}
    return TermSummary(written(solution.model.kernel), shares, fixed, references)


def _factors(model: Described, solution: Solution) -> tuple[dict[str, str], dict[str, str]]:
    """The effects of factors by level instead of code, and the reference level of each factor's column."""
    words, references = {}, {}
    for name, term in terms_of(solution.model.plain_kernel).items():
        if factors := factors_of(term, called=True):
            groups = [model.grouping(column) for column in factors]
            levels = [{float(code[0]): level for level, code in group.levels.items()} for group in groups]
            reference = zip(groups, levels, factors.values(), strict=True)
            of_all = "the mean of all levels"
            references |= {group.name: of_all if code is None else level[code] for group, level, code in reference}
            coded = [called for called in solution.fixed_effects() if called.startswith(f"{name}[")]
            for called, codes in zip(coded, codes_of(solution, term), strict=True):
                named = (level[code] for level, code in zip(levels, codes, strict=True))
                words[called] = f"{name}[{', '.join(named)}]"
    return words, references
