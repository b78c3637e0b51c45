"""What people read of a model of standardised y is in units of y, or says that it is not: the same data in other units
give the same numbers in those units.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from quantprop import GaussianProcessRegressor, plots, tables
from quantprop.report import figures

RNG = np.random.default_rng(8)
N, UNIT, ORIGIN = 36, 10.0, -300.0
FRAME = pd.DataFrame({"x": RNG.uniform(0, 4, N), "g": np.repeat(list("abc"), 12), "h": np.tile(list("uv"), 18)})
Y = np.sin(FRAME["x"]) + (FRAME["g"] == "b") + 0.3 * RNG.normal(size=N) + 5.0
TERMS = "se(x) + group(g) + group(h) * group(g) + se(x) * group(h) + factor(h)"


def pair(kernel, **more):
    """The same model of y in one unit and in another."""
    return [GaussianProcessRegressor(kernel, normalize_y=True, mean="constant", method="ep", optimizer=None,
                                     **more).fit(FRAME, y) for y in (Y, ORIGIN + UNIT * Y)]  # fmt: skip


@pytest.fixture(scope="module")
def models():
    return pair(TERMS)


def drawn(axes):
    """All numbers of the axis of y, or of x in a histogram."""
    lines = [line.get_ydata() for line in axes.lines if line.get_marker() != "|" and len(line.get_ydata())]
    areas = [path.vertices[:, 1] for area in axes.collections for path in area.get_paths()]
    return np.concatenate([*lines, *areas, [bar.get_x() for bar in axes.patches]]).astype(float)


def test_effects_and_contrasts_have_the_unit_of_y(models):
    one, other = models
    a, b = ({name: effect.error for name, effect in m.fixed_effects().items()} for m in models)
    assert b == pytest.approx({name: UNIT * error for name, error in a.items()})
    assert other.fixed_effects()["mean"].estimate == pytest.approx(ORIGIN + UNIT * one.fixed_effects()["mean"].estimate)
    for name in ("estimate", "error", "lower", "upper"):
        np.testing.assert_allclose(other.levels("g")[name], UNIT * np.array(one.levels("g")[name]), rtol=1e-7)
    for name in ("difference", "error", "lower", "upper"):
        np.testing.assert_allclose(other.contrasts("g")[name], UNIT * np.array(one.contrasts("g")[name]), rtol=1e-7)
    mean = np.array(one.contrasts("g")["mean"])
    np.testing.assert_allclose(other.contrasts("g")["mean"], ORIGIN + UNIT * mean, rtol=1e-7)
    a, b = (m.summary().record["models"][0]["groups"] for m in models)
    assert b["group(g)"]["sd"] == pytest.approx(UNIT * a["group(g)"]["sd"])
    both = "group(h) * group(g)"
    assert {*a[both]["largest"]} == {*b[both]["largest"]} <= {f"{h}:{g}" for h in "uv" for g in "abc"}
    assert [*b[both]["largest"].values()] == pytest.approx([UNIT * value for value in a[both]["largest"].values()])


def test_pictures_of_effects_have_the_unit_of_y(models):
    """Curves, levels, curves of levels and histograms."""
    one, other = (plots.effects(model) for model in models)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(drawn(b), UNIT * drawn(a), rtol=1e-7, atol=1e-7)
        assert np.ptp(drawn(b)) > 0


def test_pictures_of_series_have_the_unit_of_y():
    one, other = (plots.decomposition(model) for model in pair("se(x) + matern12(x)"))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(drawn(b), UNIT * drawn(a), rtol=1e-7, atol=1e-6)


def test_pages_have_the_unit_of_y():
    """Panels beside tables of the same effects; the function behind a parameter has none."""
    both = []
    for y in (Y, ORIGIN + UNIT * Y):
        problem = tables.problem(FRAME.assign(y=y), "y", "gaussian", "se(x) + group(g)", varying={"scale": "group(h)"})
        model = problem.fit("ep", optimizer=None)
        both.append({p.caption: p.figure.axes[0].get_ylim() for p in figures.effects(model)})
    for caption, a in both[0].items():
        unit = 1.0 if "function behind" in caption else UNIT
        np.testing.assert_allclose(both[1][caption], unit * np.array(a), rtol=1e-6, err_msg=caption)
    assert sum("function behind" in caption for caption in both[0]) == 1


def test_the_caption_of_a_panel_says_what_it_shows(models):
    model = tables.fit(FRAME.assign(y=Y), "y", "gaussian", "ep", "group(g, h) + se(x)")
    captions = {p.caption.split(" on f, ")[0]: p.caption for p in figures.effects(model)}
    assert "histogram of the means at the rows" in captions["The effect of group(g, h)"]
    assert "mean with 50 % and 90 % intervals" in captions["The effect of se(x)"]


def test_hyperparameters_say_whose_they_are(models):
    said = [next(part for part in m.summary().sections if "refer to" in str(part)) for m in models]
    for text, y, model in zip(said, (Y, ORIGIN + UNIT * Y), models, strict=True):
        found = re.search(r"refer to \(y ([+-]) ([\d.]+)\) / ([\d.]+); scale .* in units of y: ([\d.]+)$", text)
        sign, centre, scale, noise = found.groups()
        assert float(f"{sign}{centre}") == pytest.approx(-y.mean(), rel=1e-3)
        assert float(scale) == pytest.approx(y.std(ddof=0), rel=1e-3)
        assert float(noise) == pytest.approx(y.std(ddof=0) * model.likelihood_.scale, rel=1e-3)
    plain = GaussianProcessRegressor("se(x)", optimizer=None).fit(FRAME, Y)
    assert not any("refer to" in str(part) for part in plain.summary().sections)


def test_parameters_have_names(models):
    """At a bound, and of the function behind a parameter."""
    model = pair("se(x)", varying={"scale": "se(x)"})[0]
    names = model.summary().record["models"][0]["hyperparameters"]
    assert {"lengthscale of se(x)", "lengthscale of se(x), for the scale"} < {*names}
    core = models[0]._core
    label = next(name for name in core.fitted.hyperparameters if "lengthscale" in name)
    try:
        status = replace(core.fitted.status, at_bounds=(label,))
        models[0]._core = replace(core, fitted=replace(core.fitted, status=status))
        assert "at a bound: lengthscale of se(x)" in models[0].summary().record["models"][0]["learning"]
    finally:
        models[0]._core = core
