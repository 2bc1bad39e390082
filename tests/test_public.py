"""The public names, and that each one explains itself."""

import doctest
import inspect
import subprocess
import sys

import pytest

import lookalike

NAMES = [
    "Advice",
    "Batches",
    "CodeTable",
    "ComparisonResult",
    "DataSource",
    "EpochMetrics",
    "Filters",
    "InfoNCE",
    "LSHBatchSampler",
    "Marks",
    "Neighbours",
    "PreEpochBatchSampler",
    "RandomBatchSampler",
    "RunResult",
    "ScalarCodes",
    "ScalarHasher",
    "Settings",
    "SignHasher",
    "StreamBatches",
    "advise",
    "compare",
    "compose_batches",
    "evaluate",
    "export_model",
    "hamming_topk",
    "hard_negatives",
    "hardest_positives",
    "load_model",
    "mine_hard_negatives",
    "read_same",
    "scalar_topk",
    "train",
]
RESULTS = [
    "Advice",
    "Batches",
    "ComparisonResult",
    "EpochMetrics",
    "Neighbours",
    "RunResult",
]  # what they hold is all there is to say


def test_public_names_are_pinned():
    assert sorted(lookalike.__all__) == NAMES
    assert set(NAMES) <= set(dir(lookalike))


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_documentation(name):
    documentation = inspect.getdoc(getattr(lookalike, name))
    assert documentation
    if name not in RESULTS:
        assert doctest.DocTestParser().get_examples(documentation), f"{name} has no example"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lookalike.nothing  # noqa: B018 - to look it up is the test


def test_importing_is_light():
    """`import lookalike` and its command line must not load torch, or `--help` takes seconds."""
    script = "import sys, lookalike.cli; print('torch' in sys.modules, 'numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
