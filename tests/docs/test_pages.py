"""Users' pages are short, guides have the parts of a guide, and tasks lead to pages that answer them."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from pages import CONTENTS, DOCS, GUIDES, PAGES, USERS, Place, navigation

MAX_WORDS_OF_USERS_PAGES = 20_000  # with 21 guides
MAX_WORDS_OF_A_GUIDE = 900
MAX_LINES_OF_README = 110
MAX_TOP_LEVEL_ENTRIES = 7
LABORATORY = r"\b(by hand|by turns|quiet hour)\b"
# A number with a unit of accuracy, time or memory, or a ratio.
FIGURE = (
    r"\d (nats|seconds?|minutes?|hours?|ms|s|[KMG]i?B)\b|factor of \d"
    r"|(\d times|\d %|twice|half|a (third|quarter|fifth|tenth)) (as|faster|slower|more|less|better|worse|fewer)\b"
)
COMMAND = r"`(python -m|python benchmarks/|pytest|make|quantprop) "


class Task(NamedTuple):
    """What somebody wants, the titles and the heading that they click, and what they must find there."""

    wanted: str
    titles: tuple[str, ...]
    heading: str
    shows: tuple[str, ...]


# Two of a newcomer, two of a statistician who uses R, two of a JAX engineer.
TASKS = (
    Task(
        "probabilities of three classes coded 0, 1 and 2",
        ("Guides", "By kind of data", "Classes"),
        "Two classes, or more",
        ('`"joint"`', "0, 1, …", "--likelihood multinomial-probit", "predict_y"),
    ),
    Task(
        "a table with missing values, dates and decimal commas",
        ("Reference", "Command line"),
        "Dates, missing values, large tables",
        ("--drop-missing", "--dates parts", "--decimal ,", "--key"),
    ),
    Task(
        "lmer(y ~ x + (1 | g)) with heavy tails",
        ("Guides", "By model", "Terms and groups"),
        "A mixed model",
        ("lmer(", "group(Subject)", 'likelihood="student-t"', "fixed_effects()"),
    ),
    Task(
        "a Poisson regression with offset(log(n)), smooth in x",
        ("Guides", "By kind of data", "Counts"),
        "Exposure",
        ("offset", "exposure=", "--exposure"),
    ),
    Task(
        "a likelihood written in JAX, with a parameter that is learned",
        ("Guides", "By model", "Your own parts"),
        "A likelihood",
        ("jnp.", "likelihoods.Custom(", "(Likelihood):", "bounds"),
    ),
    Task(
        "more rows than one GPU holds",
        ("Guides", "By size", "Many devices and files"),
        "Several devices",
        ("quantprop.sharded()", "Inducing(", "--inducing"),
    ),
)


def words(text: str) -> int:
    """Everything between spaces, code and tables included."""
    return len(text.split())


def section(text: str, heading: str) -> str:
    """The part of a page below a heading, up to the next one of the same level; headings in code do not count.

    >>> section("# A\\n## B\\nb\\n### C\\nc\\n## D\\nd\\n", "B")
    '## B\\nb\\n### C\\nc'
    """
    lines, fenced, level, found = text.splitlines(), False, 0, []
    for line in lines:
        fenced ^= line.startswith("```")
        marks = "" if fenced else line.partition(" ")[0]
        if marks and set(marks) == {"#"}:
            if level and len(marks) <= level:
                break
            level = level or len(marks) * (line == f"{marks} {heading}")
        found += [line] * bool(level)
    assert found, f"there is no heading {heading!r}"
    return "\n".join(found)


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


@pytest.mark.parametrize("page", sorted(PAGES))
def test_cells_of_tables_are_not_split_on_github(page):
    """There a bar ends a cell inside code, too: write <code>(1 &#124; g)</code>."""
    rows = [line for line in PAGES[page].splitlines() if line.startswith("|")]
    assert not [row for row in rows if any("|" in code for code in row.split("`")[1::2])]


@pytest.mark.parametrize("page", USERS)
def test_no_notes_of_the_laboratory(page):
    assert not re.search(LABORATORY, PAGES[page], re.IGNORECASE)


def unfounded(text: str) -> list[str]:
    """The measured figures in the prose of a page whose paragraph names no command that repeats them."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*- )|\n(?=\|)", prose)
    return [part for part in paragraphs if re.search(FIGURE, part) and not re.search(COMMAND, part)]


def test_unfounded_figures_are_seen():
    assert unfounded("- It takes 17 seconds.\n- It takes 3 seconds (`make bench`).") == ["- It takes 17 seconds."]
    assert unfounded("Within a factor of 3.\n\n```text\n0.2 nats\n```\n\n90 % intervals") == ["Within a factor of 3."]


@pytest.mark.parametrize("page", USERS)
def test_figures_name_the_command_that_repeats_them(page):
    """Unless the code of the page prints them."""
    printed = " ".join(re.findall(r'^ *```text title="prints"$(.*?)^ *```$', PAGES[page], re.DOTALL | re.MULTILINE))
    decimals = set(re.findall(r"\d+\.\d+", printed))
    assert not [part for part in unfounded(PAGES[page]) if not decimals & set(re.findall(r"\d+\.\d+", part))]


@pytest.mark.parametrize("page", USERS)
def test_commands_of_users_pages_name_their_kernel(page):
    """The command line's default kernel may change; what a page shows should not change with it."""
    joined = PAGES[page].replace("\\\n", " ")
    shown = re.findall(r"^    quantprop (?:fit|compare) .*$", joined, flags=re.MULTILINE)
    assert not [command for command in shown if "--kernel" not in command]


@pytest.mark.parametrize("task", TASKS, ids=[task.wanted for task in TASKS])
def test_a_task_is_answered_where_the_navigation_leads(task):
    (page,) = [place.page for place in CONTENTS if place.titles == task.titles and place.page]
    part = section(PAGES[page], task.heading)
    assert not [word for word in task.shows if word not in part]
