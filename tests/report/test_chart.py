"""Axes, labels and names."""

from itertools import pairwise
from pathlib import Path

import pytest

from lookalike.report.chart import GAP, Chart, beside, epochs, linear, logarithmic, marked, spread
from lookalike.report.groups import colour, grouped
from lookalike.report.sources import Run


@pytest.mark.parametrize("values", [[0.31, 0.38], [0.5], [0.0, 0.0], [-3, 4], [1e-6, 2e-6], [0.999, 1.0], [12000, 7]])
@pytest.mark.parametrize("zero", [False, True])
def test_axes_span_their_values_with_a_few_round_ticks(values, zero):
    axis = linear(values, str, zero=zero)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert 2 <= len(axis.ticks) <= 8
    assert not zero or axis.low <= 0 <= axis.high


def test_other_axes():
    assert [text for _, text in epochs([1, 2, 3]).ticks] == ["1", "2", "3"]
    assert [text for _, text in epochs([7]).ticks] == ["7"]
    assert [text for _, text in epochs(range(1, 41)).ticks] == ["5", "10", "15", "20", "25", "30", "35", "40"]
    assert [tick for tick, _ in marked([128, 512, 128], str, "bits").ticks] == [128, 512]
    assert [tick for tick, _ in logarithmic([1, 64], str, "").ticks] == pytest.approx([1, 2, 5, 10, 20, 50])
    assert len(logarithmic([1, 1e9], str, "").ticks) <= 10


def test_labels_keep_their_distance_and_stay_inside():
    heights = spread([200.0, 201.0, 202.0, 203.0], 12, 204)
    assert all(b - a >= GAP for a, b in pairwise(heights))
    assert heights[0] >= 12
    assert heights[-1] <= 204
    texts = beside([((50.0, 50.0), "one"), ((50.0, 51.0), "two"), ((415.0, 90.0), "three")])
    assert len({text.split(" y=")[1].split()[0] + text.split("x=")[1].split()[0] for text in texts}) == 3
    assert 'text-anchor="end"' in texts[2]


def test_long_names_leave_the_picture_for_a_legend():
    assert Chart(epochs([1, 2]), linear([0, 1], str), labels=["short"]).labelled
    assert not Chart(epochs([1, 2]), linear([0, 1], str), labels=["l" * 40]).labelled
    assert not Chart(epochs([1, 2]), linear([0, 1], str), labels=[str(i) for i in range(30)]).labelled


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
        "c-lsh1", "c-lsh2", "c-lsh3", "c-lsh3", "c-lsh5", "c-lsh5",
    ]  # fmt: skip
    assert colour("full") == "c-full"
    assert colour("something else") == "c-other"
