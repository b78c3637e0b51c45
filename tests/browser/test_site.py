"""The documentation opened from the file system: it can be searched, and asks nobody for anything."""

import re

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def page(watched):
    with watched() as opened:
        yield opened


@pytest.mark.parametrize("name", ["index.html", "reference/likelihoods.html"])
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
    page.goto((site / "reference/inference.html").as_uri())
    rows = page.locator("#quantprop\\.learn\\.fit, #quantprop\\.fit").first.locator("xpath=..").locator("tbody tr")
    cells = [row.locator("td:visible").all_inner_texts() for row in rows.all()]
    assert ["seed", "Seed of the additional starts.", "0"] in cells


PAGES = ("index.html", "guides/counts.html", "guides/terms-and-groups.html", "reference/inference.html",
         "gallery/index.html")  # fmt: skip


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "guides/counts.html",
        "guides/terms-and-groups.html",
        "reference/inference.html",
        "gallery/index.html",
    ],
)
def test_pages_fit_their_width_and_their_pictures_load(site, watched, name, scheme, width):
    with watched(width, scheme) as (page, events):
        page.goto((site / name).as_uri())
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        missing = "[...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.src)"
        page.evaluate("[...document.images].forEach(image => { image.loading = 'eager' })")
        page.wait_for_function("[...document.images].every(image => image.complete)")
        assert not page.evaluate(missing)
        assert not [event for event in events if not event.startswith(f"request: {site.as_uri()}/")]


def test_the_gallery_has_notebooks_of_all_scripts(site, watched):
    with watched() as (page, _):
        page.goto((site / "gallery/index.html").as_uri())
        links = page.locator("a[href$='.ipynb']").evaluate_all("all => all.map(link => link.getAttribute('href'))")
        assert len(links) == 12
        assert all((site / "gallery" / link).is_file() for link in links)
        assert page.locator("details summary").count() == 12


def test_the_front_page_leads_to_the_playground(site, page):
    page, _ = page
    page.goto((site / "index.html").as_uri())
    page.locator(".md-content a[href='playground.html']").first.click()
    page.locator("#playground svg").wait_for()
