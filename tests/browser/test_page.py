"""The page in a real browser, by `make test-browser`: every figure seen, no error, no request, nothing run."""

import pytest
from awkward import SCRIPT, awkward

pytestmark = pytest.mark.browser
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """A report on the awkward table."""
    from quantprop import comparison, report, tables

    problem = tables.problem(tables.from_bytes(awkward().encode(), f"{SCRIPT}.csv"), "urteil", kernel="ard")
    found = comparison.compare(problem, ("qp", "ep"), comparison.folds(problem, 2))
    study = report.Study(f"{SCRIPT} compared", 'about "this" & that', found, f"print({SCRIPT!r})")
    return report.write(tmp_path_factory.mktemp("page") / "report.html", SCRIPT, "<b>lead</b>", [study])


@pytest.fixture(params=[(size, scheme) for size in WIDTHS for scheme in ("light", "dark")], ids="-".join)
def opened(request, watched, page_file, tmp_path):
    """The page at a width and colour scheme, and all that it asked for or complained of."""
    size, scheme = request.param
    with watched(WIDTHS[size], scheme) as (page, events):
        page.goto(page_file.as_uri())
        picture = tmp_path / f"{size}-{scheme}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 10_000
        yield page, events, scheme


def test_the_page(opened, page_file):
    page, events, _ = opened
    assert events == [f"request: {page_file.as_uri()}"]
    figures = page.locator("figure svg[role=img]")
    assert figures.count() == 7  # differences, two reliability diagrams, latent f, variances, lengthscales; checks
    for i in range(figures.count()):
        box = figures.nth(i).bounding_box()
        assert box["width"] > 200, i
        assert box["height"] > 150, i
        assert figures.nth(i).get_attribute("aria-label"), i
        assert figures.nth(i).locator("path").count() > 5, i
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))


def test_the_conclusion_is_seen_before_the_numbers(opened):
    page, _, _ = opened
    headings = page.locator("h3").all_inner_texts()
    assert headings[:4] == ["Conclusion", "Figures", "Scores", "Time"]
    said = page.locator("h3:has-text('Conclusion') + p")
    assert said.inner_text().startswith("By negative log-likelihood (NTLL)")
    assert said.bounding_box()["y"] < 900  # without scrolling, on a phone too
    methods = page.locator("section table").first.locator("tbody tr td:first-child").all_inner_texts()
    assert methods == ["QP", "EP", "constant", "linear model", "gradient boosting"]


def test_names_from_the_data_are_text(opened):
    page, _, _ = opened
    assert page.locator("script").count() == 0
    assert page.locator("h1").inner_text() == SCRIPT
    assert page.locator("th", has_text=SCRIPT).count() == 1
    shown = page.locator("svg text").all_text_contents()
    assert SCRIPT in [text.strip() for text in shown]
    assert "$cost$" in [text.strip() for text in shown]
    assert page.locator("b").count() == 0


def test_text_is_legible_in_both_schemes(opened):
    page, _, scheme = opened
    contrast = """() => {
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = light(getComputedStyle(document.querySelector('figure')).backgroundColor);
      return [...document.querySelectorAll('svg text')].map(node => {
        const ink = light(getComputedStyle(node).fill);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      });
    }"""
    ratios = page.evaluate(contrast)
    assert len(ratios) > 20
    assert min(ratios) >= 4.5  # as the Web Content Accessibility Guidelines ask
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}[scheme]
