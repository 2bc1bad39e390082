import xml.etree.ElementTree as ET
from itertools import pairwise

from lookalike.report.figures.axes import epochs, linear
from lookalike.report.figures.chart import GAP, Chart, beside, spread


def test_labels_keep_their_distance_and_stay_inside():
    heights = spread([200.0, 201.0, 202.0, 203.0], 12, 204)
    assert all(b - a >= GAP for a, b in pairwise(heights))
    assert heights[0] >= 12
    assert heights[-1] <= 204
    texts = beside([((50.0, 50.0), "one"), ((50.0, 51.0), "two"), ((415.0, 90.0), "three")])
    assert len({text.split(" y=")[1].split()[0] + text.split("x=")[1].split()[0] for text in texts}) == 3
    assert 'text-anchor="end"' in texts[2]


def test_long_names_leave_the_picture_for_a_legend():
    assert Chart(epochs([1, 2]), linear([0, 1]), labels=["short"]).labelled
    assert not Chart(epochs([1, 2]), linear([0, 1]), labels=["l" * 40]).labelled
    assert not Chart(epochs([1, 2]), linear([0, 1]), labels=[str(i) for i in range(30)]).labelled


def test_text_in_a_chart_is_escaped():
    nasty = "<script>alert('x')</script>&"
    chart = Chart(epochs([1, 2])._replace(label=nasty), linear([0, 1]), labels=[nasty[:20]])
    chart.line([(1, 0), (2, 1)], f'line" onload="{nasty}', nasty)
    chart.dot(1, 0, "c-lsh1", nasty, label=nasty)
    root = ET.fromstring(chart.svg(nasty))
    assert root.attrib["aria-label"] == nasty
    assert [each.text for each in root.iter() if each.tag in ("text", "title")].count(nasty) == 5
    assert not any("onload" in each.attrib for each in root.iter())
