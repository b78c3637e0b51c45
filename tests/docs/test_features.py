"""No page denies what exists: features, the pages that must show them, and words that no page may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import quantprop
from quantprop import kernels, likelihoods

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {page.relative_to(ROOT / "docs"): page for page in sorted((ROOT / "docs").rglob("*.md"))}
# A page goes by its name; the contents of a folder by their path.
PAGES = {
    path.as_posix() if path.name == "index.md" else path.name: page.read_text(encoding="utf-8")
    for path, page in FOLDERS.items()
    if path.parts[0] != "results"
} | {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
START = ("README.md", "index.md")  # where one looks first

# What exists: where it is in the library, a word for it, and the pages that must have it.
FEATURES = {
    "inducing points": (quantprop, "Inducing", r"Inducing\(|inducing\.md", (*START, "coming-from.md", "scale.md")),
    "long series": (quantprop, "Markov", r"Markov\(|series\.md", (*START, "forecasts.md")),
    "joint classes": (likelihoods, "MultinomialProbit", r"jointly", (*START, "choosing.md", "classes.md")),
    "softmax": (likelihoods, "Softmax", r"Softmax", ("README.md", "choosing.md", "coming-from.md", "likelihoods.md")),
    "several outputs": (likelihoods, "ByOutput", r"outputs\.md", (*START, "choosing.md", "coming-from.md")),
    "preferences": (quantprop, "GaussianProcessRanker", r"preferences\.md", ("README.md", "choosing.md")),
    "integration": (quantprop, "integrate", r"integration\.md", ("README.md", "objectives.md")),
    "many fits": (quantprop, "fit_many", r"many-fits\.md|fit_many", ("README.md", "many-fits.md")),
    "several devices": (quantprop, "sharded", r"sharded|scale\.md", ("README.md", "scale.md")),
    "groups": (kernels, "Categories", r"group\(|terms\.md", ("README.md", "terms.md", "coming-from.md")),
    "survival times": (likelihoods, "Weibull", r"survival\.md", ("README.md", "choosing.md")),
    "warping": (likelihoods, "Warped", r"Warped", ("README.md", "choosing.md", "likelihoods.md")),
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
