"""A small comparison, a run beside it, an analysis: made once, copied by tests that damage them."""

import json
import shutil

import pytest

from lookalike.training.comparison import compare
from lookalike.training.run import train
from lookalike.training.settings import Settings
from tests.report.browser import Browser, find_chromium
from tests.toys import write_glyph_file

SMALL = {"epochs": 2, "pairs_per_batch": 8, "bits": 64}
NETWORK = {"width": 8, "dim": 32}


def an_analysis():
    methods = {"lsh": 0.8, "not centred": 0.7, "gaussian rows": 0.65, "pca-sign": 0.5, "incremental pca-sign": 0.4}
    methods["scalar"] = 0.95
    rows = [
        {
            "method": method,
            "bits": bits,
            "bytes": bits // 8,
            "compression": 4096 / (bits // 8),
            "overlap": {"mean": best - 16 / bits, "low": best - 17 / bits, "high": best - 15 / bits},
            "positional_distance": {"mean": 9000 / bits, "low": 8800 / bits, "high": 9300 / bits},
            "similarity": 0.61,
            "bound": {"within_eps": 0.5, "within_a_eps": 0.3, "beyond": 0.2},
            "queries_per_second": 3e6 / bits,
        }
        for method, best in methods.items()
        for bits in (128, 256, 512, 1024)
    ]
    edges = [i / 10 for i in range(11)]
    lsh = {"128": [0, 0, 0, 5, 9, 12, 8, 4, 1, 0], "512": [0, 0, 0, 2, 7, 14, 9, 5, 2, 0]}
    return {
        "settings": {"n": 20000, "dim": 256, "k": 128, "anchors": 500, "a": 1.1, "labels": True},
        "exact": {"similarity": 0.66, "queries_per_second": 900.0},
        "random": {"overlap": 0.0064, "positional_distance": 9990.0},
        "rows": rows,
        "histogram": {"edges": edges, "exact": [0, 0, 0, 0, 6, 15, 11, 6, 2, 0], "lsh": lsh},
    }


def add_overlap(metrics):
    """What a run writes that keeps track of overlap and changes its bits."""
    epochs = [json.loads(line) for line in metrics.read_text().splitlines()]
    for epoch in epochs:
        if epoch["epoch"] == 0:  # the model before training
            continue
        epoch["overlap"] = {"64": 0.4 / epoch["epoch"], "1024": 0.9 / epoch["epoch"]}
        epoch["positional_distance"] = {"64": 20.5, "1024": 3.25}
        epoch["bits"] = 64 * epoch["epoch"]
    metrics.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = write_glyph_file(folder / "own.npz", classes=60)
    contenders = {
        "random": Settings(**{**SMALL, "sampler": "random"}),
        "lsh:64": Settings(**SMALL),
    }
    compare(str(data), contenders, out=folder / "compare", seeds=2, model=NETWORK, progress=False)
    train(str(data), Settings(**SMALL, hardness=0.5), out=folder / "half", model=NETWORK, progress=False)
    (folder / "analysis.json").write_text(json.dumps(an_analysis()))
    return folder


@pytest.fixture
def study(made, tmp_path):
    """A copy that may be damaged; the data stay where the runs know them."""
    for name in ("compare", "half"):
        shutil.copytree(made / name, tmp_path / name)
    shutil.copy(made / "analysis.json", tmp_path)
    add_overlap(tmp_path / "half" / "metrics.jsonl")
    return tmp_path


@pytest.fixture(scope="session")
def browser():
    """One process for all tests, since it starts slowly."""
    with Browser(find_chromium()) as browser:
        yield browser
