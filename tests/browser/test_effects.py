"""Pages with a panel for each term, of three real tables, in a real browser."""

import pytest
from real_tables import KERNELS, compared

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=KERNELS)
def page_of(request, tmp_path_factory):
    return compared(request.param, tmp_path_factory.mktemp("effects"))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_term_has_its_panel(page_of, browser, scheme, width):
    file, said = page_of
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, events = context.new_page(), []
    page.on("console", lambda message: events.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: events.append(f"error: {error}"))
    page.on("request", lambda asked: events.append(f"request: {asked.url}"))
    page.goto(file.as_uri())
    assert events == [f"request: {file.as_uri()}"]
    terms = said["models"][0]["model"].split(" + ")
    figures = page.locator("figure svg[role=img]")
    assert figures.count() == len(terms) + page.locator("h3", has_text="Checks").count()
    for i, term in enumerate(terms):
        box = figures.nth(i).bounding_box()
        assert box["width"] > 200, term
        assert box["height"] > 150, term
        assert term in [text.strip() for text in figures.nth(i).locator("text").all_text_contents()]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()
