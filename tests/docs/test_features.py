"""No page denies what exists: features, the pages that must show them, and words that no page may have."""

from __future__ import annotations

import re

import pytest
from pages import PAGES

import quantprop
from quantprop import kernels, likelihoods

FIRST = ("README.md", "index.md")  # where one looks first
CHOOSING, COMING_FROM = "start/choosing.md", "start/coming-from.md"

# What exists: where it is in the library, a word for it, and the pages that must have it.
FEATURES = {
    "inducing points": (quantprop, "Inducing", r"Inducing\(", (*FIRST, COMING_FROM, "guides/many-rows.md")),
    "long series": (quantprop, "Markov", r"Markov\(", (*FIRST, "guides/series.md", "start/first-model.md")),
    "joint classes": (likelihoods, "MultinomialProbit", r"jointly|joint", (*FIRST, CHOOSING, "guides/classes.md")),
    "softmax": (likelihoods, "Softmax", r"Softmax", ("README.md", CHOOSING, COMING_FROM, "guides/classes.md")),
    "several outputs": (likelihoods, "ByOutput", r"outputs\.md", (*FIRST, CHOOSING, COMING_FROM)),
    "preferences": (quantprop, "GaussianProcessRanker", r"preferences\.md", ("README.md", CHOOSING, COMING_FROM)),
    "integration": (quantprop, "integrate", r"few-rows\.md", (*FIRST, CHOOSING, COMING_FROM)),
    "many fits": (quantprop, "fit_many", r"fit_many", ("README.md", "guides/many-fits.md", "guides/many-rows.md")),
    "several devices": (quantprop, "sharded", r"sharded|many-devices\.md", (*FIRST, "guides/many-devices.md")),
    "interruptions": (quantprop, "checkpointed", r"checkpointed", ("guides/many-devices.md",)),
    "groups": (kernels, "Categories", r"group\(", ("guides/terms-and-groups.md", "index.md", COMING_FROM)),
    "survival times": (likelihoods, "Weibull", r"survival\.md", ("README.md", CHOOSING, COMING_FROM)),
    "warping": (likelihoods, "Warped", r"Warped", ("README.md", CHOOSING, "reference/likelihoods.md")),
    "your own likelihood": (likelihoods, "Custom", r"own-parts\.md", (*FIRST, CHOOSING)),
    "figures of effects": (quantprop.plots, "effects", r"plots\.effects", ("guides/terms-and-groups.md", COMING_FROM)),
    "stacks": (quantprop, "stack", r"tables\.md|stack\(", ("README.md", CHOOSING, "guides/tables.md")),
    "a playground": (quantprop, "project", r"playground\.md", FIRST),
}

DENIALS = (
    r"one latent function per model",
    r"(inducing points|SVGP|SGPR)[^.\n]{0,40}\bnone\b",
    r"classes are (only )?done one against the rest(, or in pairs)?\.",
    r"one of several classes[^\n]*\| one against the rest \|",
    r"no (inducing points|several outputs|GPU|forecasts|intervals|missing values|multi-output|multiclass)",
    r"(several|many) (outputs|classes|devices|rows|series)[^.\n|]{0,30} (are|is) not (here|there|supported|possible)",
    r"(inducing points|several outputs|joint classes|state-space forms) (do|does) not exist",
    r"EP and QP exist for all( of them)?[,.]",
)


def denied(text: str) -> list[str]:
    """The denials in a page, whose sentences may be broken anywhere."""
    joined = re.sub(r"\s*\n\s*(?=[a-zA-Z(])", " ", text)
    return [denial for denial in DENIALS if re.search(denial, joined, re.IGNORECASE)]


def test_the_table_is_of_what_exists():
    for where, name, _, _ in FEATURES.values():
        assert hasattr(where, name), name


@pytest.mark.parametrize("feature", FEATURES)
def test_features_are_shown(feature):
    *_, word, pages = FEATURES[feature]
    assert not [page for page in pages if not re.search(word, PAGES[page])]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_no_page_denies_what_exists(page):
    assert not denied(PAGES[page])


@pytest.mark.parametrize(
    "text",
    [
        "- One latent function per model. Several classes are done one against the rest,\n  or in pairs.",
        "| `SVGP`, `SGPR` (inducing points) | none: use GPflow |",
        "| one of several classes | `GaussianProcessClassifier` | | one against the rest |",
        "EP and QP exist for all of them, power EP for all but the square link.",
    ],
)
def test_denials_are_seen(text):
    assert denied(text)
