"""The summary of a learned model: one record, printed as text and HTML, and given as frames."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from quantprop.estimators import insight
from quantprop.estimators.reading import Described
from quantprop.inference.closeness import Closeness, closeness, refusal
from quantprop.inference.degrees import effective_degrees
from quantprop.inference.levels import Grouping, is_effect
from quantprop.inference.terms import Parts, at_levels, effects_at, factors_of, terms_of
from quantprop.kernels import Kernel, Lines, groups_of
from quantprop.kernels.structure import leaves
from quantprop.priors import Markov
from quantprop.runtime.display import expression, short
from quantprop.runtime.listing import Listing
from quantprop.runtime.markup import element, joined
from quantprop.runtime.precision import float64

COMPONENTS = {"components": "by component", "columns": "by column, interactions included"}
MAX_COMPONENTS = 10  # shown as text, from the largest
SHARE_DIGITS = 4  # after the point, in text
MAX_EXTREMES = 5  # levels of a group that are shown at each end


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """A learned model in one record.

    Attributes:
        record: everything as a dictionary, as `quantprop explain --json` prints it.
        sections: lines of text and tables, in the order in which they are shown.
    """

    record: dict[str, Any]
    sections: tuple[str | Listing, ...]

    @property
    def frames(self) -> dict[str, Any]:
        """The tables by title, as frames of pandas or polars."""
        return {part.title: part.frame() for part in self.sections if isinstance(part, Listing)}

    def __repr__(self) -> str:
        return "\n".join(map(str, self.sections))

    def _repr_html_(self) -> str:
        return joined(p._repr_html_() if isinstance(p, Listing) else element("div", p) for p in self.sections)


@float64
def summary(model: Described) -> Summary:
    """All that is known of a model: the `record` with terms, groups and trust examined."""
    known, trusts = record(model), [insight.trust(fitted.solution) for fitted in model.fits]
    for which, part in enumerate(known["models"]):
        if "kernel" in part:
            part["effective_degrees"], part["groups"] = _smooth(model, which), _groups(model, which)
        if not refusal(solution := model.fits[which].solution):
            part["process"], part["closeness"] = repr(solution.model.process), asdict(closeness(solution))
    known["trust"] = [_trust_record(trust) for trust in trusts]
    known["unreliable_rows"] = int(insight.unreliable(model).sum())
    return Summary(known, (*described(model, known), *(f"trust: {trust}" for trust in trusts)))


# --- the record ------------------------------------------------------------------------------------------------------


def record(model: Described) -> dict[str, Any]:
    """The part of the record that costs little, as JSON."""
    loo = -insight.surprise(model)
    return {
        "target": model.target,
        "labels": model.labels,
        "likelihood": model.fits[0].solution.model.likelihood.name,
        "method": expression(model.fits[0].solution.method, short),
        "rows": model.rows,
        "features": model.features,
        "converged": model.converged,
        "log_evidence": float(sum(fitted.solution.log_evidence for fitted in model.fits)),
        "loo": float(loo.mean()),
        "loo_error": float(loo.std(ddof=len(loo) > 1) / np.sqrt(len(loo))),
        "models": [_part(model, i) for i in range(len(model.fits))],
    }


def _part(model: Described, which: int) -> dict[str, Any]:
    fitted = model.fits[which]
    part = {
        "learning": str(replace(fitted.status, at_bounds=insight.at_bounds(model, which))),
        "inference": str(fitted.solution.status),
        "hyperparameters": insight.hyperparameters(model, which),
    }
    if (constraint := model.constraints[which]) is not None:
        shapes = [f"{shape.name} in {model.features[shape.column]}" for shape in constraint.shapes]
        part["constraint"] = {"shapes": shapes, "virtual_rows": len(constraint.sign), "wrong": constraint.wrong}
    if model.integrated:
        part["integration"] = str(model.integrated[which].status)
        part["integrated_log_evidence"] = model.integrated[which].log_evidence
        part["intervals"] = {name: asdict(one) for name, one in insight.intervals(model, which).items()}
    if model.stacks:
        stack = model.stacks[which]
        part["heaviest"] = stack.heaviest.name
        part["members"] = {
            one.name: {"weight": one.weight, "score": one.score, "learned": one.learned} for one in stack.members
        }
        part["left_out"] = stack.left_out
    if insight.has_terms(model):
        terms = insight.term_summary(model, which)
        part["kernel"], part["shares"] = terms.kernel, terms.shares
        part["fixed_effects"] = {name: effect._asdict() for name, effect in terms.fixed.items()}
        part["references"] = terms.references
    if (varying := insight.varying_parameter(model, which)) is not None:
        part["varying"] = varying
    if (posterior := insight.with_components(model, which)) is not None:
        found, features = posterior.sobol(), model.features
        for name, shares in (("components", found.shares), ("columns", found.totals)):
            part[name] = {insight.component_named(key, features): share._asdict() for key, share in shares.items()}
    return part


def _trust_record(trust: insight.Trust) -> dict[str, Any]:
    if trust.refused:
        return {"refused": trust.refused, "modes": trust.modes}
    return {
        "evidence_shift": trust.shift,
        "doubt_median": float(np.median(trust.doubt)),
        "doubt_max": float(np.max(trust.doubt)),
        "modes": trust.modes,
    }


def _smooth(model: Described, which: int) -> dict[str, float]:
    """The effective degrees of freedom of smooth terms; not of series, whose states hold terms but not sums of some."""
    solution = model.fits[which].solution.of_f
    if isinstance(solution.model.process, Markov):
        return {}
    smooth = [n for n, term in terms_of(solution.model.plain_kernel).items()
              if any(hasattr(leaf, "lengthscale") for leaf, _ in leaves(term))]  # fmt: skip
    return effective_degrees(solution, smooth)


def _groups(model: Described, which: int) -> dict[str, dict[str, Any]]:
    """The prior standard deviation of each effect of a group, the number of levels, and those with the largest and
    smallest effects. An effect times a linear term is a slope.
    """
    solution, found = model.fits[which].solution.of_f, {}
    for name, term in terms_of(solution.model.plain_kernel).items():
        if (columns := groups_of(term)) and not factors_of(term):
            codes = np.unique(solution.X[:, list(map(int, columns))], axis=0)
            found[name] = {"levels": len(codes)}
            group = _combined([model.grouping(column) for column in groups_of(term, called=True)], codes)
            if is_effect(term, group):
                x = at_levels(term, group.places, list(group.levels.values()), solution.X.shape[1])
                found[name] |= _effects(model, solution, name, term, x, group)
    return found


def _combined(groups: list[Grouping], codes: np.ndarray) -> Grouping:
    """The combinations of levels of several columns that there are, as levels of one."""
    if len(groups) == 1:
        return groups[0]
    names = [{float(code[0]): level for level, code in group.levels.items()} for group in groups]
    levels = {":".join(known[code] for known, code in zip(names, row, strict=True)): row for row in codes}
    return Grouping(":".join(group.name for group in groups), tuple(g.places[0] for g in groups), levels)


def _effects(
    model: Described, solution: Any, name: str, term: Kernel, x: np.ndarray, group: Grouping
) -> dict[str, Any]:
    unit = model.scale_of_f[1]
    mean = unit * effects_at(solution, x, Parts((name,), (term,)))[name].mean
    sd = unit * float(np.sqrt(np.mean(np.asarray(term.diagonal(jnp.asarray(x))))))
    levels, order = list(group.levels), np.argsort(-mean, kind="stable")
    ends = {"largest": order[:MAX_EXTREMES], "smallest": order[max(MAX_EXTREMES, len(order) - MAX_EXTREMES) :]}
    ranked = {end: {levels[i]: float(mean[i]) for i in which} for end, which in ends.items()}
    return {"sd": sd, **_correlated(term, unit), **ranked}


def _correlated(term: Kernel, unit: float) -> dict[str, Any]:
    """The prior standard deviations of slopes that are correlated with the level, and all correlations."""
    found = [(leaf, seen) for leaf, seen in leaves(term, called=True) if isinstance(leaf, Lines)]
    if not found:
        return {}
    names, covariance = ["level", *map(str, found[0][1] or ())], np.asarray(found[0][0].covariance())
    sd = np.sqrt(np.diagonal(covariance))
    pairs = itertools.combinations(range(len(names)), 2)
    return {
        "slopes": {name: unit * float(one) for name, one in zip(names[1:], sd[1:], strict=True)},
        "correlations": {f"{names[i]}:{names[j]}": float(covariance[i, j] / (sd[i] * sd[j])) for i, j in pairs},
    }


# --- in words --------------------------------------------------------------------------------------------------------


def described(model: Described, known: Mapping[str, Any]) -> Iterator[str | Listing]:
    """The record of a model as lines of text and tables."""
    features = len(known["features"])
    yield (
        f"{model.target} from {features} feature{'s' * (features != 1)} of {known['rows']} rows, {known['likelihood']} "
        "likelihood" + (f", labels {', '.join(model.labels)}" if model.labels else "") + f", by {known['method']}"
    )
    evidence = "" if model.stacks else f"log evidence {known['log_evidence']:.4f}, "
    yield f"{evidence}leave-one-out {known['loo']:.4f} ({known['loo_error']:.2g}) per row"
    if known.get("unreliable_rows"):
        yield f"  unreliable for {known['unreliable_rows']} rows, whose cavity is improper or log density uncertain"
    for i, part in enumerate(known["models"]):
        if len(known["models"]) > 1:
            yield f"{model.labels[i]} against the rest:"
        if "members" in part:
            yield from _members(part)
        yield from (f"learning {part['learning']}", f"inference {part['inference']}")
        if "closeness" in part:
            yield f"process {part['process']}: {Closeness(**part['closeness'])}"
        if (kept := part.get("constraint")) is not None:
            wrong = f"largest probability of a wrong sign {kept['wrong']:.2g}"
            yield f"{', '.join(kept['shapes'])}: {kept['virtual_rows']} virtual rows, {wrong}"
        if model.standardised:
            yield f"log densities, hyperparameters and formula refer to {model.standardised}"
        ranked = insight.relevance(model, i)
        yield from _hyperparameters(part, bool(ranked) or "components" in part)
        if "kernel" in part:
            yield from _terms(part)
        if (varying := part.get("varying")) is not None:
            rows = [(name, {"share": share}) for name, share in varying["shares"].items()]
            title = "{parameter} varies, medians from {smallest:.3g} to {largest:.3g}; terms of its function"
            yield _listing(title.format(**varying), "term", rows)
        of = " of the stack" if "members" in part else ""
        for name, words in COMPONENTS.items() if "components" in part else ():
            title = f"fraction of the variance of f{of}, {words} (Sobol indices of independent columns, 95 % interval)"
            yield _listing(title, name[:-1], list(part[name].items())[:MAX_COMPONENTS])
        if ranked:
            each = [(name, {"lengthscale": length}) for name, length in ranked.items()]
            yield _listing("features by relevance (lengthscale of the standardised column)", "feature", each)


def _listing(title: str, of: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Listing:
    """A table with a name for each row; cells that a row does not have are empty."""
    rows = list(rows)
    names = dict.fromkeys(name for _, row in rows for name in row)
    return Listing(title, {of: [name for name, _ in rows], **{n: [row.get(n) for _, row in rows] for n in names}})


def _members(part: Mapping[str, Any]) -> Iterator[str | Listing]:
    """The models of a stack, from the heaviest, and which of them the next lines are about."""
    ranked = sorted(part["members"].items(), key=lambda pair: -pair[1]["weight"])
    rows = [(name, {"weight": one["weight"], "score": one["score"]}) for name, one in ranked]
    yield _listing("stacked models (weight; leave-one-out log density per row)", "model", rows)
    yield from (f"  {name} excluded, {reason}" for name, reason in part["left_out"].items())
    yield f"the model of largest weight, {part['heaviest']}:"


def _hyperparameters(part: Mapping[str, Any], without_lengthscales: bool) -> Iterator[str | Listing]:
    shown = [(name, {"value": value}) for name, value in part["hyperparameters"].items()
             if not (without_lengthscales and "lengthscale of " in name) and " of lines(" not in name]  # fmt: skip
    if shown:
        yield _listing("hyperparameters", "parameter", shown)
    if "intervals" in part:
        names = ("median", "lower", "upper", "prior")
        rows = [(name, {key: one[key] for key in names}) for name, one in part["intervals"].items()]
        yield f"integration {part['integration']}"
        yield _listing("posteriors of hyperparameters (95 % interval)", "parameter", rows)


def _terms(part: Mapping[str, Any]) -> Iterator[str | Listing]:
    """The kernel, how much of f each term explains, groups, and linear effects."""
    yield from ("the learned kernel, as a formula:", f"  {part['kernel']}")
    if part["fixed_effects"]:
        yield _listing("linear effects (standard error, 95 % interval)", "effect", part["fixed_effects"].items())
        yield from (f"  factor({name}): differences from {level}" for name, level in part["references"].items())
    degrees, lengths = part.get("effective_degrees", {}), part["hyperparameters"]
    more = " (effective degrees of freedom of smooth terms)" if degrees else ""
    rows = []
    for name, share in sorted(part["shares"].items(), key=lambda pair: -pair[1]):
        known = {
            "share": round(share, SHARE_DIGITS) + 0.0,
            "degrees": degrees.get(name),
            "lengthscale": lengths.get(f"lengthscale of {name}"),
        }
        rows.append((name, {key: value for key, value in known.items() if value is not None}))
    yield _listing(f"fraction of the variance of f that each term explains{more}", "term", rows)
    if part.get("groups"):
        rows = [(name, {key: _extremes(value) if isinstance(value, dict) else value for key, value in one.items()})
                for name, one in part["groups"].items()]  # fmt: skip
        yield _listing("groups (prior standard deviation, number of levels, extreme effects)", "term", rows)


def _extremes(levels: Mapping[str, float]) -> str:
    return ", ".join(f"{level} {effect:.3g}" for level, effect in levels.items())
