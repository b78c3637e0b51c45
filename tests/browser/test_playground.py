"""The page that can be played with: its numbers are the library's, and it can be used without a server or a mouse."""

from dataclasses import asdict

import numpy as np
import pytest
from browser.playground_cases import EACH, KINDS, SITES, expected

pytestmark = pytest.mark.browser
TOLERANCE = 1e-6
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def address(site):
    return (site / "playground.html").as_uri()


@pytest.fixture(params=[(size, scheme) for size in WIDTHS for scheme in ("light", "dark")], ids="-".join)
def page(request, watched, address):
    """The page at a width and colour scheme; nothing but its own files is asked for, and nothing goes wrong."""
    size, scheme = request.param
    with watched(WIDTHS[size], scheme) as (opened, events):
        opened.goto(address)
        opened.locator("#playground svg").wait_for()
        yield opened
    assert not [event for event in events if not event.startswith("request: file://")]


def test_the_numbers_are_the_librarys(browser, address):
    page = browser.new_page()
    page.goto(address)
    ask = """site => { const q = project(site.name, site.y, site.parameters, site.mean, site.sd);
                      return {logZ: q.logZ, KL: [q.KL.mean, q.KL.sd], W2: [q.W2.mean, q.W2.sd],
                              W1: [q.W1.mean, q.W1.sd]}; }"""
    answers = [page.evaluate(ask, asdict(site)) for site in SITES]
    page.close()
    assert len(SITES) == EACH * len(KINDS)
    library = expected()
    unit = library["KL"][:, 1]
    for name, values in library.items():
        off = np.abs(np.array([answer[name] for answer in answers]) - values)
        off = off / (1.0 + np.abs(values)) if name == "logZ" else (off / unit[:, None]).max(axis=1)
        wrong = [(SITES[i], off[i]) for i in np.flatnonzero(~(off <= TOLERANCE))]
        assert not wrong, (name, wrong)


def test_every_likelihood_of_the_page_is_compared(page):
    assert set(page.evaluate("Object.keys(LIKELIHOODS)")) == set(KINDS)


def test_it_can_be_played_with(page):
    """By keyboard: a likelihood is chosen, sliders move, and picture and numbers follow."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    before = page.locator("#playground tbody").inner_text()
    page.get_by_label("cavity mean", exact=True).last.press("ArrowRight")
    assert page.locator("#playground tbody").inner_text() != before
    for name in page.evaluate("Object.keys(LIKELIHOODS)"):
        page.locator("#playground select").select_option(name)
        numbers = page.locator("#playground tbody td:not(:first-child)").all_inner_texts()
        assert len(numbers) == 12
        assert np.isfinite([float(number) for number in numbers]).all(), name
        drawn = page.locator("#playground path.curve").evaluate_all("all => all.map(p => p.getAttribute('d'))")
        assert len(drawn) == 6
        assert not [d for d in drawn if "NaN" in d or "Infinity" in d], name
    page.locator("#playground select").select_option("poisson")
    for key in ("Home", "End"):
        for range_ in page.locator("#playground input[type=range]").all():
            range_.press(key)
        numbers = page.locator("#playground tbody td:not(:first-child)").all_inner_texts()
        assert np.isfinite([float(number) for number in numbers]).all(), key


def test_text_and_curves_stand_out(page):
    """Text by 4.5 to 1 against the page, curves by 3 to 1, as the Web Content Accessibility Guidelines ask."""
    ratios = page.evaluate("""() => {
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const ratio = (ink) => (Math.max(light(ink), paper) + 0.05) / (Math.min(light(ink), paper) + 0.05);
      const rules = ['KL', 'W2', 'W1', 'likelihood', 'cavity'];
      return rules.map(name => ratio(getComputedStyle(document.querySelector(`path.${name}`)).stroke));
    }""")
    assert min(ratios) >= 3.0, ratios
