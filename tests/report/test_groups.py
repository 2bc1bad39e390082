from pathlib import Path

from lookalike.report.groups import colour, grouped
from lookalike.report.records.checks import Checker
from lookalike.report.records.runs import Run, parse_config


def run(**config):
    content = {"sampler": "lsh", "bits": 512, "hardness": 1.0, "seed": 0, "data": "d", **config}
    return Run(path=Path("x"), config=parse_config(content, Checker(Path("x"))), epochs=[])


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
