"""The work of `studies.integration.run`, one part at a time."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from quantprop import EP, Fitted, Integrated, LogNormal, Model, Parameter, fit, integrate, kernels, likelihoods
from quantprop.core.parameters import box
from quantprop.experiments.protocol import Experiment, TrainTest, by_fold, model_of, split
from quantprop.inference.task import prepare
from quantprop.learning.integration.hyperprior import hyperprior_of
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.likelihoods.base import Datum
from studies.integration.joint_chains import Target, chain, target_of
from studies.shared.more_sets import MORE, load
from studies.shared.parts import Row

GIVEN = {"variance": LogNormal(1.0, 1.0), "lengthscale": LogNormal(1.0, 0.7)}  # of simulated data
NAMES = tuple(GIVEN)
ROWS = 60
LIKELIHOODS = {"probit": likelihoods.Probit(), "poisson": likelihoods.Poisson()}
REPEATS = 3  # of times, of which the least counts


def model(likelihood: Any, mean: float, priors: dict[str, LogNormal]) -> Model:
    """A squared-exponential kernel with these priors, starting at their medians."""
    numbers = {name: Parameter(prior.median, prior=prior) for name, prior in priors.items()}
    return Model(kernels.SquaredExponential(**numbers), likelihood, mean)


# --- simulation-based calibration (Talts et al. 2018) ----------------------------------------------------------------


class Simulated(NamedTuple):
    """A data set drawn from the prior: the last row is new."""

    start: Model
    x: np.ndarray
    y: np.ndarray
    f: np.ndarray
    theta: np.ndarray
    words: dict[str, str]  # the prior that θ was drawn from
    rng: np.random.Generator


def simulated(part: Row) -> Simulated:
    """The data set of a seed."""
    likelihood, rng = LIKELIHOODS[part["likelihood"]], np.random.default_rng([part["seed"], 24])
    x = np.append(np.sort(rng.uniform(0.0, 8.0, ROWS)), rng.uniform(0.0, 8.0))[:, None]
    start = (
        model(likelihood, 0.0, GIVEN) if part["priors"] == "given" else Model(kernels.SquaredExponential(), likelihood)
    )
    theta, words = drawn(start, x[:-1], rng)
    k = np.exp(theta[0] - 0.5 * (x - x.T) ** 2 * np.exp(-2.0 * theta[1]))
    f = np.linalg.cholesky(k + 1e-8 * k[0, 0] * np.eye(ROWS + 1)) @ rng.standard_normal(ROWS + 1)
    ones = np.ones(ROWS + 1)
    y = np.asarray(likelihood.draw(rng, Datum(ones, ones, ones), f), dtype=float)
    return Simulated(start, x, y, f, theta, words, rng)


def calibrated(part: Row) -> Row:
    """Where the true θ, f and y of a simulated data set lie in their posteriors."""
    start, x, y, f, theta, words, rng = simulated(part)
    found = integrate(fit(start, x[:-1], y[:-1], part["method"]))
    if found.priors != words:
        raise RuntimeError(f"θ was drawn from {words}, and integrated under {found.priors}")
    new = found.predict_y(x[-1:])
    lower, upper = new.cdf(y[-1] - 0.5)[0], new.cdf(y[-1])[0]
    places = {"f": float(new.latent.cdf(f[-1])[0]), "y": float(lower + rng.uniform() * (upper - lower))}
    return {**place_of(found, theta), **places, "theta": theta.tolist(), **ended(found)}


def place_of(found: Integrated, theta: np.ndarray) -> dict[str, float]:
    """Where θ lies in its posterior."""
    return {
        name: float(found.marginal(f"kernel.{name}").cdf(value)[0]) for name, value in zip(NAMES, theta, strict=True)
    }


def drawn(start: Model, x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, str]]:
    """θ from the prior under which `integrate` will average, inside its bounds, and that prior in words.

    No prior of these kernels depends on y, so that any y of the right kind will do for asking.
    """
    y = np.ones(len(x))
    landscape = Landscape(start, prepare(start, x, y, EP(), None, None, None), EP(), Evidence())
    prior, ends = hyperprior_of(landscape), box(landscape.parts)
    given = [getattr(start.kernel, name) for name in NAMES]
    medians = [getattr(p.prior, "median", None) if isinstance(p, Parameter) else None for p in given]
    centre = [c if median is None else np.log(median) for median, c in zip(medians, prior.centre, strict=True)]
    while True:
        theta = np.array(centre) + prior.widest * rng.standard_normal(len(NAMES))
        if ((theta >= ends[:, 0]) & (theta <= ends[:, 1])).all():
            return theta, prior.words


def ended(found: Integrated) -> Row:
    """How integration ended."""
    status = found.status
    return {"reason": status.reason, "scheme": status.scheme, "points": status.points, "effective": status.effective}


# --- scores against the point estimate -------------------------------------------------------------------------------


def division(part: Row, method: str) -> tuple[Model, TrainTest]:
    """Where learning starts for a part, and its rows."""
    if part["set"] in MORE:
        start = Model(kernels.SquaredExponential(), likelihoods.Probit())
        return start, by_fold(*load(part["set"]), 10 * part["round"], part["fold"])
    by = "year" if part["set"] == "mining" else "fold"
    experiment = Experiment(part["set"], "clean", split=by, round=part["round"], fold=part["fold"])
    parts = split(experiment)
    return model_of(experiment, method, parts.x.shape[1]), parts


def scored(part: Row) -> Row:
    """One division of a set: what the point estimate and the average say of the test rows, and CPU seconds."""
    (start, parts), method = division(part, part["method"]), part["method"]
    began = time.process_time()
    fitted = fit(start, parts.x, parts.y, method)
    middle = time.process_time()
    found = integrate(fitted)
    end = time.process_time()
    point, mixed = (judged(one.predict_y(parts.x_test), parts.y_test) for one in (fitted.solution, found))
    return {
        "point": point["ntll"], "integrated": mixed["ntll"], "judged": [point, mixed], "fit_s": middle - began,
        "integrate_s": end - middle, "evaluations": fitted.status.evaluations, **ended(found),
    }  # fmt: skip


def judged(new: Any, y: np.ndarray) -> Row:
    """Scores of forecasts of test rows, the smaller the better: NTLL, and of classes the Brier score and by how much
    the probability of the likelier class exceeds the share that it is right in; of counts, the share of randomised
    transforms outside the central 90 % less 10 %.
    """
    log_prob = new.log_prob(y)
    if set(np.unique(y)) <= {-1.0, 1.0}:
        p = np.exp(log_prob)
        brier, gap = float(((1.0 - p) ** 2).mean()), float((np.maximum(p, 1.0 - p) - (p > 0.5)).mean())
    else:
        u = np.random.default_rng(0).uniform(size=len(y))
        places = new.cdf(y - 1.0) * (1.0 - u) + u * new.cdf(y)
        brier, gap = float("nan"), float((np.abs(places - 0.5) > 0.45).mean() - 0.1)
    return {"ntll": -float(log_prob.mean()), "brier": brier, "gap": gap}


# --- long chains -----------------------------------------------------------------------------------------------------


def sampled(part: Row) -> Row:
    """One chain, or where the seed is −1 what `integrate` says: moments of θ, and probabilities of new y."""
    target = target_of(part["set"])
    if part["seed"] >= 0:
        return chain(target, part["draws"], part["draws"] // 5, part["seed"])
    priors = {
        name: LogNormal(float(np.exp(c)), float(s))
        for name, c, s in zip(NAMES, target.centre, target.deviation, strict=True)
    }
    found = integrate(
        fit(model(LIKELIHOODS[target.likelihood], target.mean, priors), target.x, target.y, part["method"])
    )
    centre = found.weights @ found.theta
    spread = found.weights @ (found.theta - centre) ** 2
    return {
        "mean": centre.tolist(),
        "variance": spread.tolist(),
        "forecast": forecast(found, target).tolist(),
        **ended(found),
    }


def forecast(found: Integrated, target: Target) -> np.ndarray:
    """The same probabilities as `Target.forecast`, in the same order."""
    new = found.predict_y(target.x_new)
    if target.likelihood == "probit":
        return np.exp(new.log_prob(1.0))
    return np.concatenate([new.cdf(float(most)) for most in target.counts])


# --- time ------------------------------------------------------------------------------------------------------------


def timed(part: Row) -> Row:
    """Seconds of a fit and of integration after the first call: of the CPU, and by the clock."""
    start, parts = division(part | {"round": 0, "fold": 0}, part["method"])
    runs = [_run(start, parts, part["method"]) for _ in range(1 + REPEATS)]
    fitted, found, _ = runs[-1]
    (fit_cpu, fit_wall), (cpu, wall) = np.min([clock for _, _, clock in runs[1:]], axis=0)
    return {
        "backend": jax.default_backend(), "rows": len(parts.y), "fit_cpu": fit_cpu, "fit_wall": fit_wall,
        "integrate_cpu": cpu, "integrate_wall": wall, "evaluations": fitted.status.evaluations, **ended(found),
    }  # fmt: skip


def _run(start: Model, parts: TrainTest, method: str) -> tuple[Fitted, Integrated, np.ndarray]:
    """A fit, its integral, and seconds of both: rows are fit and integral, columns CPU and clock."""

    def now() -> list[float]:
        return [time.process_time(), time.perf_counter()]

    clocks = [now()]
    fitted = fit(start, parts.x, parts.y, method)
    clocks.append(now())
    found = integrate(fitted)
    return fitted, found, np.diff([*clocks, now()], axis=0)
