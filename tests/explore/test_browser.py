"""The page in a real browser: search, marking, keys, marks that survive a reload; on a desk and on a phone."""

import dataclasses
import json
import threading

import numpy as np
import pytest

from lookalike.explore.mates import Mates
from lookalike.negatives.same import read_same
from tests.explore.serving import ODD, PATIENCE, explored, paired_texts, serving, write_embeddings, write_many
from tests.report.browser import find_chromium

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: apt-get install chromium")

ITEMS = "[...document.querySelectorAll('.item')]"
IDS = f"{ITEMS}.map((item) => [...item.querySelectorAll('.meta a')].map((a) => Number(a.textContent.slice(1))))"
CONTRAST = """(() => {
    const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = c => c.match(/\\d+/g).slice(0, 3).map(Number).map(part)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const card = light(getComputedStyle(document.querySelector('.item')).backgroundColor);
    return [card, ...[...document.querySelectorAll('.item .text, .item .meta, .item a, .why b, .same')]
        .map(e => ratio(light(getComputedStyle(e).color), card))];
})()"""


@pytest.fixture
def client(tmp_path):
    folder = write_embeddings(tmp_path)
    with serving(explored(folder, labels="labels.txt", texts="texts.txt")) as client:
        yield client


def opened(browser, client, place="", **screen):
    browser.show("about:blank", width=1280)
    browser.show(client.address + place, **{"width": 1280, "height": 800, **screen})
    browser.wait_for(f"{ITEMS}.length > 0")


def typed(browser, text):
    browser.press("/")
    browser.wait_for("document.activeElement.id === 'query'")
    browser.evaluate("document.getElementById('query').value = ''")
    browser.call("Input.insertText", text=text)
    browser.press("Enter")


def marks_shown(browser):
    return browser.evaluate("document.getElementById('marks').textContent")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", ["#suspects", "#sample/0", "#search/text"])
def test_everything_fits_and_nothing_complains(browser, client, place, width, dark):
    opened(browser, client, place, width=width, dark=dark)
    assert browser.messages == []
    assert all(url.startswith(client.address) for url in browser.requests)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    card, *ratios = browser.evaluate(CONTRAST)
    assert (card < 0.05) == dark
    assert min(ratios) >= 4.5


def test_texts_are_shown_and_never_run(browser, client):
    opened(browser, client, "#sample/0")
    assert browser.evaluate("document.querySelector('.anchor .text').textContent") == ODD[0]
    typed(browser, "</script>")
    browser.wait_for("document.querySelector('.intro')?.textContent.includes('2 samples')")
    assert browser.evaluate(f"{ITEMS}.map((item) => item.querySelector('.text').textContent)") == ODD[:2]
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert browser.messages == []


def test_a_set_of_pairs_says_what_its_queries_are_compared_with(browser, tmp_path):
    with serving(paired_texts(tmp_path), tmp_path / "marks.jsonl") as client:
        browser.show("about:blank", width=1280)
        browser.show(f"{client.address}#suspects", width=1280)
        browser.wait_for("document.querySelector('.intro')?.textContent.includes('their own')")
        large = "[...item.querySelectorAll('.text:not(.second)')].map((text) => text.textContent)"
        sides = browser.evaluate(f"{ITEMS}.map((item) => {large})")
        assert sides
        assert all(first.startswith("question") and second.startswith("answer") for first, second in sides)
        assert browser.messages == []


def test_a_pair_is_not_counted_among_its_own_positives(browser, tmp_path):
    notes = "[...document.querySelectorAll('section')].map((section) => section.textContent)"
    with serving(paired_texts(tmp_path), tmp_path / "marks.jsonl") as client:
        opened(browser, client, "#sample/0")
        alone = browser.evaluate(f"{notes}[1]")
        assert "The first" not in alone
        assert "no other sample of its label" in alone
        for other in range(1, 32):
            assert client.mark(first=0, second=other, same=True)[0] == 200
        opened(browser, client, "#sample/0")
        assert "The first" not in browser.evaluate(f"{notes}[1]")
        assert len(browser.evaluate("[...document.querySelectorAll('section')[1].querySelectorAll('.item')]")) == 31


def test_batch_mates_that_are_not_known_yet_are_not_said_to_be_none(browser, tmp_path):
    composed, released = threading.Event(), threading.Event()

    def compose():
        composed.set()
        released.wait(PATIENCE)
        return Mates(np.arange(32), np.array([0, 20, 32]), 32)

    pairs = dataclasses.replace(paired_texts(tmp_path), compose=compose, mates_note="As tested.")
    section = "document.querySelectorAll('section')[2].textContent"
    with serving(pairs, tmp_path / "marks.jsonl", waiting=False) as client:
        try:
            assert composed.wait(PATIENCE)
            opened(browser, client, "#sample/0")
            assert browser.evaluate(section) == "Batch matesThe batches of an epoch are being composed."
        finally:
            released.set()
        assert client.session.wait(PATIENCE)
        opened(browser, client, "#sample/0")
        assert browser.evaluate(section).startswith("Batch matesBatch 1 of 2. As tested.")
        assert len(browser.evaluate("[...document.querySelectorAll('section')[2].querySelectorAll('.item')]")) == 19


def test_a_server_that_has_ended_is_named(browser, tmp_path):
    folder = write_embeddings(tmp_path)
    with serving(explored(folder, labels="labels.txt")) as client:
        opened(browser, client)
    browser.press("s")
    browser.wait_for("document.getElementById('status').textContent.startsWith('The server does not answer')")


def test_search_by_text_and_by_id_opens_samples_with_the_keyboard(browser, client):
    opened(browser, client)
    typed(browser, "NUMBER 17")
    browser.wait_for("document.querySelector('.intro')?.textContent.startsWith('1 sample ')")
    assert browser.evaluate(IDS) == [[17]]
    browser.press("Enter")
    browser.wait_for("document.querySelector('.anchor')?.textContent.includes('#17')")
    typed(browser, "#5")
    browser.wait_for(
        "location.hash.startsWith('#search') && document.querySelector('.item')?.textContent.includes('#5')"
    )
    typed(browser, "nowhere")
    browser.wait_for("document.querySelector('.empty')?.textContent.startsWith('Nothing found')")


def test_keys_move_mark_and_undo_and_marks_survive_a_reload(browser, client):
    opened(browser, client)
    pairs = browser.evaluate(IDS)
    assert {frozenset(pair) for pair in pairs[:2]} == {frozenset((0, 3)), frozenset((1, 4))}
    browser.press("j", "ArrowDown", "k")
    assert browser.evaluate(f"{ITEMS}.indexOf(document.activeElement)") == 1
    outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.press("s")
    browser.wait_for("document.getElementById('marks').textContent === '1'")
    path = client.session.marks_path
    assert read_same(path, 60).tolist() == [sorted(pairs[1])]
    browser.wait_for(f"!JSON.stringify({IDS}).includes({json.dumps(json.dumps(pairs[1], separators=(',', ':')))})")
    browser.press("s", "s")  # each the pair that is selected once the one before has left the list
    browser.wait_for("document.getElementById('marks').textContent === '3'")
    browser.press("u", "u")
    browser.wait_for("document.getElementById('marks').textContent === '1'")
    assert read_same(path, 60).tolist() == [sorted(pairs[1])]
    opened(browser, client, "#marked")
    assert marks_shown(browser) == "1"
    assert browser.evaluate(IDS) == [sorted(pairs[1])]
    assert str(path) in browser.evaluate("document.getElementById('use').textContent")


def test_half_a_million_samples_can_be_searched_and_marked_while_false_negatives_are_sought(browser, tmp_path):
    many = explored(write_many(tmp_path, 500_000), labels="labels.npy", texts="texts.txt")
    with serving(many, waiting=False) as client:
        browser.show("about:blank", width=1280)
        browser.show(f"{client.address}#suspects", width=1280)
        browser.wait_for("document.querySelector('.empty progress') !== null")
        assert "500,000 samples" in browser.evaluate("document.getElementById('details').textContent")
        typed(browser, "NUMBER 499999 ")
        browser.wait_for("document.querySelector('.intro')?.textContent.startsWith('1 sample ')")
        assert browser.evaluate(IDS) == [[499_999]]
        browser.press("Enter")
        browser.wait_for("document.querySelector('.anchor')?.textContent.includes('#499999')")
        browser.wait_for("document.querySelector('main .fine')?.textContent.includes('499,996')")
        assert sorted(browser.evaluate(f"{IDS}.slice(40)")) == [[499_996], [499_997], [499_998]]
        (nearest,) = browser.evaluate(f"{IDS}[0]")
        browser.press("s")
        browser.wait_for("document.getElementById('marks').textContent === '1'")
        assert read_same(client.session.marks_path, 500_000).tolist() == [[nearest, 499_999]]
        assert not client.session.wait(0), "the search for false negatives has finished too early"
        assert browser.messages == []


def test_a_marked_negative_becomes_a_positive_and_clicks_do_what_keys_do(browser, client):
    opened(browser, client, "#sample/0", width=390, height=844)
    first = browser.evaluate(f"{IDS}[0][0]")
    assert first == 3
    browser.evaluate("document.querySelector('.item .same').click()")
    browser.wait_for("document.getElementById('marks').textContent === '1'")
    browser.wait_for("document.querySelector('.tag') !== null")
    sections = browser.evaluate(
        "[...document.querySelectorAll('section')]"
        ".map((s) => [...s.querySelectorAll('.meta a')].map((a) => a.textContent))"
    )
    assert "#3" not in sections[0]
    assert "#3" in sections[1]
    browser.evaluate("document.querySelector('#status button').click()")
    browser.wait_for("document.getElementById('marks').textContent === '0'")


def test_lists_of_pairs_are_turned_page_by_page(browser, tmp_path):
    shown = f"{ITEMS}.map((item) => [...item.querySelectorAll('.meta a')].map((a) => a.textContent).join(' '))"
    folder = write_embeddings(tmp_path, n=50, per_label=1)
    with serving(explored(folder, texts="texts.txt")) as client:  # without labels, every pair may be one
        opened(browser, client, "#suspects")
        total = client.json("api/suspects")["total"]
        assert total > 40
        first = browser.evaluate(shown)
        assert len(first) == 40
        browser.press("n")
        browser.wait_for(f"document.querySelector('.intro')?.textContent.includes('Pairs 41 to {min(80, total)} of')")
        second = browser.evaluate(shown)
        assert not set(first) & set(second)
        browser.press("s")  # the page stays where it is
        browser.wait_for("document.getElementById('marks').textContent === '1'")
        browser.wait_for(f"!JSON.stringify({shown}).includes({json.dumps(json.dumps(second[0]))})")
        assert browser.evaluate("location.hash") == "#suspects/40"
        browser.press("p")
        browser.wait_for(f"JSON.stringify({shown}) === {json.dumps(json.dumps(first, separators=(',', ':')))}")
        opened(browser, client, "#marked/40")  # beyond the last mark
        browser.wait_for("location.hash === '#marked/0'")
        assert len(browser.evaluate(shown)) == 1
        assert browser.evaluate("document.querySelector('.turn').children.length") == 0
        assert browser.messages == []


def test_the_distance_filter_narrows_the_negatives(browser, client):
    opened(browser, client, "#sample/0")
    browser.evaluate(
        "(() => { const s = document.getElementById('low'); s.value = 30; s.dispatchEvent(new Event('input'));"
        "s.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_for(f"!{ITEMS}[0].textContent.includes('#3') && document.getElementById('low').value === '30'")
    distances = browser.evaluate(
        "[...document.querySelector('section').querySelectorAll('.meta')]"
        ".map((m) => parseInt(m.textContent.match(/(\\d+) bits/)[1]))"
    )
    assert len(distances) > 0
    assert min(distances) >= 30


def test_help_opens_and_closes(browser, client):
    opened(browser, client)
    browser.press("?")
    browser.wait_for("document.getElementById('help').open")
    browser.press("Escape")
    browser.wait_for("!document.getElementById('help').open")
