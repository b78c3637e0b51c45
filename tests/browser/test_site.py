"""The documentation opened from the file system: it can be searched, and asks nobody for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def page(browser):
    """An empty page, and what it asks for or complains of."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, events = context.new_page(), []
    page.on("console", lambda message: events.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: events.append(f"error: {error}"))
    page.on("request", lambda asked: events.append(f"request: {asked.url}"))
    yield page, events
    context.close()


@pytest.mark.parametrize("name", ["index.html", "api/likelihoods.html"])
def test_search_finds_pages_without_a_server(site, page, name):
    page, events = page
    page.goto((site / name).as_uri())
    page.locator("input.md-search__input").wait_for(state="attached")
    page.locator("[data-md-toggle=search]").evaluate("node => node.click()")
    page.locator("input.md-search__input").press_sequentially("exposure", delay=30)
    found = page.locator(".md-search-result__item a").first
    found.wait_for(timeout=20_000)
    assert re.search(r"[1-9]\d* matching document", page.locator(".md-search-result__meta").inner_text())
    found.click()
    page.wait_for_url(re.compile(r"(likelihoods|counts|inference|estimators)\.html"))
    assert not [event for event in events if not event.startswith(f"request: {site.as_uri()}/")]


def test_arguments_are_listed_with_their_defaults(site, page):
    page, _ = page
    page.goto((site / "api/inference.html").as_uri())
    rows = page.locator("#quantprop\\.learn\\.fit, #quantprop\\.fit").first.locator("xpath=..").locator("tbody tr")
    cells = [row.locator("td:visible").all_inner_texts() for row in rows.all()]
    assert ["seed", "Of the further starts.", "0"] in cells
