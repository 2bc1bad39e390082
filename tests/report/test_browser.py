"""The page in a real browser: nothing on the console, everything visible, on a desk and on a phone, light and dark."""

import shutil

import pytest

from lookalike.report import make_report
from tests.report.browser import find_chromium
from tests.report.conftest import add_overlap
from tests.report.figures.test_search_time import write_benchmark

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: apt-get install chromium")

SIZES = """[...document.querySelectorAll('SELECTOR')].map(e => {
    const box = e.getBoundingClientRect();
    const outside = [...e.querySelectorAll('text')].map(t => t.getBoundingClientRect())
        .filter(t => t.left < -1 || t.right > innerWidth + 1).length;
    return [box.width, box.height, box.left, box.right, outside];
})"""
CONTRAST = """(() => {
    const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = c => c.match(/\\d+/g).slice(0, 3).map(Number).map(part)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const card = light(getComputedStyle(document.querySelector('figure')).backgroundColor);
    const of = (selector, property) => Math.min(...[...document.querySelectorAll(selector)]
        .map(e => ratio(light(getComputedStyle(e)[property]), card)));
    return {card, text: of('figcaption p, h3, summary', 'color'), label: of('svg text:not(.inside)', 'fill'),
            line: of('svg .line', 'stroke')};
})()"""


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    run = shutil.copytree(made / "half", folder / "half")
    add_overlap(run / "metrics.jsonl")
    sources = [made / "compare", run, made / "analysis.json", write_benchmark(folder)]
    make_report(sources, folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_visible_and_nothing_complains(browser, page, width, dark):
    browser.show(page, width=width, dark=dark)
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page]  # needs no network
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    pictures = browser.evaluate(SIZES.replace("SELECTOR", "figure svg"))
    assert len(pictures) == 17
    for shown_width, shown_height, left, right, outside in pictures:
        assert shown_width > 250
        assert shown_height > 60
        assert left >= 0
        assert right <= width
        assert outside == 0  # labels are not cut off
    assert browser.evaluate(
        "[...document.querySelectorAll('article')].every(a => a.scrollWidth <= a.clientWidth + 1 && "
        "[...a.querySelectorAll('li')].every(i => i.getBoundingClientRect().right < a.getBoundingClientRect().right))"
    )
    for image_width, image_height, *_ in browser.evaluate(SIZES.replace("SELECTOR", ".gallery img")):
        assert image_width > 20
        assert image_height > 20
    assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast_is_enough_to_read(browser, page, dark):
    browser.show(page, width=1280, dark=dark)
    found = browser.evaluate(CONTRAST)
    assert (found["card"] < 0.05) == dark
    assert found["text"] >= 4.5
    assert found["label"] >= 4.5
    assert found["line"] >= 2.5  # a line says more by its label and its place


def test_type_is_legible_on_a_phone(browser, page):
    browser.show(page, width=390)
    smallest = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('figure svg')].map(s => "
        "parseFloat(getComputedStyle(s.querySelector('text')).fontSize) * s.getBoundingClientRect().width / 420))"
    )
    assert smallest >= 10


def test_numbers_open_behind_a_figure(browser, page):
    browser.show(page, width=390)
    assert not browser.evaluate("document.querySelector('figure table').checkVisibility()")
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("[...document.querySelectorAll('figure table')].every(t => t.checkVisibility())")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
