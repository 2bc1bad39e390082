import itertools

import numpy as np
import pytest
import torch

from lookalike.utils.lists import (
    checked_lists,
    lists_among,
    lists_checksum,
    lists_mask,
    make_lists,
    row_numbers,
    take_lists,
)

CPU = torch.device("cpu")


def rows_of(lists):
    offsets, ids = (part.tolist() for part in lists)
    return [ids[first:last] for first, last in itertools.pairwise(offsets)]


@pytest.mark.parametrize("seed", range(5))
def test_against_plain_lists(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    plain = [rng.choice(n, rng.integers(0, min(n, 4) + 1), replace=False).tolist() for _ in range(n)]
    lists = make_lists(plain)
    assert rows_of(lists) == plain
    assert rows_of(checked_lists("exclude", lists, n, n, CPU)) == [sorted(row) for row in plain]
    assert row_numbers(lists).tolist() == [i for i, row in enumerate(plain) for _ in row]
    assert lists_mask(lists, n, CPU).tolist() == [[j in row for j in range(n)] for row in plain]
    rows, columns = (torch.from_numpy(rng.permutation(n)[: rng.integers(0, n + 1)]) for _ in range(2))
    assert rows_of(take_lists(lists, rows)) == [plain[i] for i in rows.tolist()]
    place = {c: i for i, c in enumerate(columns.tolist())}
    assert rows_of(lists_among(lists, rows, columns)) == [[place[j] for j in plain[i] if j in place] for i in rows]


def test_checksums_tell_lists_apart():
    assert lists_checksum(make_lists([[1], [2]])) == lists_checksum(make_lists([[1], [2]]))
    assert lists_checksum(make_lists([[1], [2]])) != lists_checksum(make_lists([[], [1, 2]]))


@pytest.mark.parametrize(
    ("lists", "error", "sentence"),
    [
        ([[0, 1]], TypeError, r"exclude must be a pair \(offsets, ids\), as in a CSR matrix."),
        (([0, 1, 2], [1, 0]), ValueError, "exclude offsets must have length 5"),
        (([0, 1, 1, 1, 1], [4]), ValueError, "exclude ids must be between 0 and 3, got 4 to 4."),
        (([0, 2, 1, 1, 1], [0]), ValueError, "exclude offsets must rise from 0 to the number of ids, 1"),
        (([0, 1, 1, 1, 1.5], [0]), TypeError, "exclude offsets must be integers"),
    ],
)
def test_bad_lists_get_a_sentence(lists, error, sentence):
    with pytest.raises(error, match=sentence):
        checked_lists("exclude", lists, 4, 4, CPU)
