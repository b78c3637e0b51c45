"""Users' pages are short, guides have the parts of a guide, and tasks lead to pages that answer them."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from pages import CONTENTS, DOCS, GUIDES, PAGES, USERS, Place, navigation

MAX_WORDS_OF_USERS_PAGES = 25_000
MAX_WORDS_OF_A_GUIDE = 900
MAX_LINES_OF_README = 110
MAX_TOP_LEVEL_ENTRIES = 7
LABORATORY = r"\b(by hand|by turns|quiet hour)\b"


class Task(NamedTuple):
    """What somebody wants, the titles that they click, and what the page must show them."""

    wanted: str
    titles: tuple[str, ...]
    shows: tuple[str, ...]


# Two of a newcomer, two of a statistician who uses R, two of a JAX engineer.
TASKS = (
    Task(
        "probabilities of three classes coded 0, 1 and 2",
        ("Guides", "By kind of data", "Classes"),
        ("predict_proba", 'multi_class="joint"', "--likelihood multinomial-probit"),
    ),
    Task(
        "a table with missing values, dates and semicolons",
        ("Reference", "Command line"),
        ("--drop-missing", "--dates", "semicolon", "--key"),
    ),
    Task(
        "lmer(y ~ x + (1 | g)) with heavy tails",
        ("Guides", "By model", "Terms and groups"),
        ("`(1 | hospital)`", "group(Subject)", 'likelihood="student-t"', "fixed_effects()"),
    ),
    Task(
        "a Poisson regression with offset(log(n)), smooth in x",
        ("Guides", "By kind of data", "Counts"),
        ("exposure=", "--exposure", "offset"),
    ),
    Task(
        "a likelihood written in JAX, with a parameter that is learned",
        ("Guides", "By model", "Your own parts"),
        ("jnp.", "likelihoods.Custom(", "(Likelihood):", "bounds"),
    ),
    Task(
        "a million rows on one GPU, or on several",
        ("Guides", "By size", "Many rows"),
        ("Inducing(512)", "many-devices.md", "--inducing", "partial_fit"),
    ),
)


def words(text: str) -> int:
    """Everything between spaces, code and tables included."""
    return len(text.split())


def test_navigation_is_read():
    assert navigation('nav:\n  - "A B": a.md\n  - C:\n      - c/index.md\n') == [
        Place(("A B",), "a.md"), Place(("C",), ""), Place(("C",), "c/index.md")
    ]  # fmt: skip
    assert len([place for place in CONTENTS if place.page]) > 40


def test_users_pages_are_short():
    assert sum(words(PAGES[page]) for page in USERS) <= MAX_WORDS_OF_USERS_PAGES
    assert len(PAGES["README.md"].splitlines()) <= MAX_LINES_OF_README


def test_the_top_of_the_navigation_is_short():
    assert len({place.titles[0] for place in CONTENTS}) <= MAX_TOP_LEVEL_ENTRIES


def test_every_page_is_reached_once():
    reached = [place.page for place in CONTENTS if place.page]
    assert len(reached) == len(set(reached))
    assert set(reached) == set(PAGES) - {"README.md", "design-log.md"}


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_has_its_parts(page):
    text = PAGES[page]
    assert words(text) <= MAX_WORDS_OF_A_GUIDE
    assert "```python" in text
    assert text.rstrip().count("\n## What goes wrong\n") == 1
    pictures = re.findall(r"!\[([^\]]{20,})\]\(\.\./(pictures/[\w-]+\.png)\)", text)
    assert pictures
    assert not [file for _, file in pictures if not (DOCS / file).exists()]


@pytest.mark.parametrize("page", USERS)
def test_no_notes_of_the_laboratory(page):
    assert not re.search(LABORATORY, PAGES[page], re.IGNORECASE)


@pytest.mark.parametrize("page", USERS)
def test_commands_of_users_pages_name_their_kernel(page):
    """The command line's default kernel may change; what a page shows should not change with it."""
    joined = PAGES[page].replace("\\\n", " ")
    shown = re.findall(r"^    quantprop (?:fit|compare) .*$", joined, flags=re.MULTILINE)
    assert not [command for command in shown if "--kernel" not in command]


@pytest.mark.parametrize("task", TASKS, ids=[task.wanted for task in TASKS])
def test_a_task_is_answered_where_the_navigation_leads(task):
    (page,) = [place.page for place in CONTENTS if place.titles == task.titles and place.page]
    assert not [word for word in task.shows if word not in PAGES[page]]
