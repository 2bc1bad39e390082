"""A search of some of the samples finds what a search of all finds for them, whatever the filters."""

import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from lookalike import Filters, hard_negatives
from lookalike.negatives import exact_hard_negatives
from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import COSINE, HAMMING

N, K = 90, 5
EXCLUDE = torch.arange(N + 1) * 2, torch.from_numpy(np.random.default_rng(3).integers(0, N, 2 * N))
FILTERS = {
    "none": Filters(),
    "window": Filters(range_min=2, range_max=12),
    "scores": Filters(max_score=0.6, min_score=-0.1),
    "absolute": Filters(absolute_margin=0.02),
    "relative": Filters(relative_margin=0.1, range_min=1),
}
LABELS = {
    "small classes": np.arange(N) % 20,
    "a large class": np.where(np.arange(N) % 2 == 0, 0, np.arange(N)),  # large enough to be searched for positives
    "a class in one slice": np.where(np.arange(N) < 3, 0, np.arange(N)),
}


@pytest.mark.parametrize("exclude", [None, EXCLUDE])
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("towers", [1, 2])
@pytest.mark.parametrize("space", ["hamming", "cosine"])
def test_slices_are_parts_of_the_whole(space, towers, labels, filters, exclude):
    generator = torch.Generator().manual_seed(4)
    how, of_class = replace(FILTERS[filters], exclude=exclude), torch.from_numpy(LABELS[labels])
    if space == "hamming":
        rows = torch.randint(0, 256, (towers, N, 4), generator=generator, dtype=torch.uint8)
        rows[:, ::7] = rows[:, :1]  # ties
        search, kind = hard_negatives, HAMMING
    else:
        rows = torch.randn(towers, N, 6, generator=generator)
        search, kind = exact_hard_negatives, COSINE
    reference = {"reference": rows[1]} if towers == 2 else {}
    values, indices = search(rows[0], of_class, K, filters=how, **reference)
    for edges in ([0, N], [0, 45, N], [0, 0, 1, 3, 4, 88, N, N]):
        parts = [
            hard_negatives_of(range(first, last), kind, rows[0], of_class, K, filters=how, **reference)
            for first, last in pairwise(edges)
        ]
        found, numbers = (torch.cat(each) for each in zip(*parts, strict=True))
        assert numbers.dtype == torch.int32
        assert torch.equal(numbers.long(), indices)
        assert torch.allclose(found, values)  # cosines of other tiles may be rounded in another way


def test_a_slice_without_positives_is_nothing_to_warn_of(caplog):
    codes = torch.randint(0, 256, (N, 4), generator=torch.Generator().manual_seed(4), dtype=torch.uint8)
    margin = Filters(relative_margin=0.1)
    some, none = torch.from_numpy(np.minimum(np.arange(N), N - 2)), torch.arange(N)
    with caplog.at_level(logging.WARNING, "lookalike"):
        hard_negatives_of(range(40), HAMMING, codes, some, K, filters=margin)
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, "lookalike"):
        for rows in (range(40), range(40, N)):
            hard_negatives_of(rows, HAMMING, codes, none, K, filters=margin)
    (message,) = caplog.messages
    assert "no sample has a positive" in message
