"""Likely false negatives: planted ones are found, and distances to positives are exact."""

import numpy as np
import pytest
import torch

from lookalike.explore import suspects
from lookalike.explore.neighbours import Neighbours
from lookalike.explore.suspects import SuspectSearch, find_suspects, nearest_positives
from lookalike.search.plain import popcount


def nothing(_):
    pass


def some_codes(n, width=8, seed=0):
    return torch.randint(0, 256, (n, width), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.mark.parametrize("sizes", [[1], [5], [1, 1, 1], [2, 40, 1, 33, 3, 32]])
def test_nearest_positives_are_exact(sizes):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)) * 5 - 3, sizes))
    codes = some_codes(len(labels))
    distances = popcount(codes[:, None] ^ codes[None]).sum(2, dtype=torch.int64).numpy()
    allowed = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    expected = [int(row[mask].min()) if mask.any() else -1 for row, mask in zip(distances, allowed, strict=True)]
    assert nearest_positives(Neighbours(codes, None, labels), nothing).tolist() == expected


def test_planted_pairs_come_first(monkeypatch):
    monkeypatch.setattr(suspects, "CHUNK", 64)
    codes, labels = some_codes(300), np.arange(300) // 2
    codes[1::2] = codes[::2]
    codes[1::2, 0] ^= 0b111  # positives are three bits apart
    codes[101] = codes[10]  # a false negative of 10, and far from its own positive
    codes[250, 3:] = codes[77, 3:]
    found = find_suspects(Neighbours(codes, None, labels), 5, nothing)
    assert set(found.pairs[0].tolist()) == {10, 101}
    assert found.distances[0] == 0
    assert (found.distances < found.positives.max(axis=1)).all()
    assert len({tuple(sorted(pair)) for pair in found.pairs.tolist()}) == len(found.pairs) <= 5


def test_without_positives_the_nearest_pairs_come_first():
    codes = some_codes(50)
    codes[40] = codes[3]
    found = find_suspects(Neighbours(codes, None, np.arange(50)), 100, nothing)
    assert found.pairs[0].tolist() == [3, 40]
    assert (np.diff(found.distances) >= 0).all()
    assert (found.positives == -1).all()


@pytest.mark.parametrize("labels", [[0], [0, 0, 0]])
def test_one_label_has_no_negatives(labels):
    assert len(find_suspects(Neighbours(some_codes(len(labels)), None, np.array(labels)), 5, nothing).pairs) == 0


def test_a_search_can_be_stopped_and_reports_its_problems(monkeypatch):
    stopped = SuspectSearch(Neighbours(some_codes(10), None, np.arange(10)))
    stopped.stop()
    stopped.run()
    assert (stopped.found, stopped.problem) == (None, "")

    def fail(*_, **__):
        raise MemoryError("too many")

    monkeypatch.setattr(suspects, "hard_negatives_of", fail)
    failed = SuspectSearch(Neighbours(some_codes(10), None, np.arange(10)))
    failed.run()
    assert failed.problem == "too many"
