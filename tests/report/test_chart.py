"""Axes, labels and names."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookalike.report.chart import (
    COSINES,
    GAP,
    PLAIN,
    SHARES,
    WHOLE,
    Chart,
    beside,
    epochs,
    linear,
    logarithmic,
    marked,
    spread,
)
from lookalike.report.groups import colour, grouped
from lookalike.report.sources import Run


def values_within(low, high):
    """A few values, near each other as often as not."""
    one = st.floats(low, high)
    close = st.tuples(one, st.floats(0, 1e-4)).map(lambda pair: [pair[0], min(high, pair[0] + pair[1])])
    return st.one_of(st.lists(one, min_size=1, max_size=5), close)


SCALED = [(SHARES, 0, 1), (COSINES, -1, 1), (PLAIN, -1e12, 1e12), (PLAIN, 0, 10), (WHOLE, 1, 4096)]


@pytest.mark.parametrize(("scale", "least", "most"), SCALED)
@given(data=st.data(), zero=st.booleans())
def test_axes_span_their_values_with_a_few_round_ticks_that_differ(scale, least, most, data, zero):
    values = data.draw(values_within(least, most))
    axis = linear(values, scale, zero=zero)
    tiny = 1e-9 * max(abs(axis.low), abs(axis.high))
    assert axis.low - tiny <= min(values) <= max(values) <= axis.high + tiny
    assert axis.high - axis.low >= 0.999 * scale.span
    assert scale.low - tiny <= axis.low < axis.high <= scale.high + tiny
    assert 2 <= len(axis.ticks) <= 8
    texts = [text for _, text in axis.ticks]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 12
    assert not zero or axis.low <= 0 <= axis.high


def test_ticks_are_written_with_the_decimals_they_need():
    def texts(*values, scale=SHARES, **options):
        return [text for _, text in linear(values, scale, **options).ticks]

    assert texts(0.5, 0.5008) == ["49.0%", "49.5%", "50.0%", "50.5%", "51.0%", "51.5%"]
    assert texts(1.0, zero=True) == ["0%", "25%", "50%", "75%", "100%"]
    assert texts(1.0) == ["98.0%", "98.5%", "99.0%", "99.5%", "100.0%"]
    assert texts(1234.1, 1234.4, scale=PLAIN)[:2] == ["1,220", "1,225"]
    assert texts(0, 80_000, scale=PLAIN) == ["0k", "20k", "40k", "60k", "80k"]


def test_other_axes():
    assert [text for _, text in epochs([1, 2, 3]).ticks] == ["1", "2", "3"]
    assert epochs([7]).ticks == [(7, "7")]
    assert epochs([7]).low < epochs([7]).high == 7  # at the end, beside its label
    assert [text for _, text in epochs(range(1, 41)).ticks] == ["5", "10", "15", "20", "25", "30", "35", "40"]
    assert [tick for tick, _ in marked([128, 512, 128], str, "bits").ticks] == [128, 512]
    assert [tick for tick, _ in logarithmic([1, 64], str, "").ticks] == pytest.approx([1, 2, 5, 10, 20, 50])
    assert len(logarithmic([1e-9, 1e12], str, "").ticks) <= 6
    assert [tick for tick, _ in logarithmic([7], str, "").ticks] == [7]
    assert [tick for tick, _ in logarithmic([7, 8], str, "").ticks] == [7, 8]
    assert [text for _, text in epochs([1, 100_000]).ticks] == ["20000", "40000", "60000", "80000", "100000"]


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


def run(**config):
    return Run(Path("x"), {"sampler": "lsh", "bits": 512, "hardness": 1.0, "seed": 0, "data": "d", **config}, [], None)


def test_runs_are_grouped_by_everything_but_the_seed_and_named_by_what_differs():
    def labels(*runs):
        return [(group.label, len(group.runs)) for group in grouped(list(runs))]

    assert labels(run(), run(seed=1)) == [("lsh:512", 2)]
    assert labels(run(), run(bits=128), run(sampler="random")) == [("random", 1), ("lsh:128", 1), ("lsh:512", 1)]
    assert labels(run(), run(hardness=0.5)) == [("lsh:512, hardness 0.5", 1), ("lsh:512, hardness 1", 1)]
    assert labels(run(sampler="random", bits=8), run(sampler="random", hardness=0.5)) == [("random", 2)]
    assert labels(run(data_checksum="a"), run(data="e", data_checksum="b")) == [("lsh:512, d", 1), ("lsh:512, e", 1)]
    assert labels(run(model_options={"width": 8}), run(model_options={"width": 16}))[1] == ("lsh:512, width 16", 1)
    assert labels(run(bits="auto")) == [("lsh:auto", 1)]


def test_colours_belong_to_samplers():
    assert colour("lsh:512") == colour("lsh") == colour("lsh:auto") == colour("lsh:512, hardness 0.5") == "c-lsh4"
    assert [colour(f"lsh:{bits}") for bits in (8, 128, 200, 256, 768, 4096)] == [
        "c-lsh1",
        "c-lsh2",
        "c-lsh3",
        "c-lsh3",
        "c-lsh5",
        "c-lsh5",
    ]
    assert colour("full") == "c-full"
    assert colour("something else") == "c-other"
