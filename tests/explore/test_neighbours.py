"""One sample against all: the same answers as the searches that the samplers use."""

import numpy as np
import pytest
import torch

from lookalike.explore.neighbours import Neighbours
from lookalike.negatives import Filters, hard_negatives, hardest_positives
from lookalike.search.plain import popcount
from lookalike.utils.lists import make_lists


@pytest.mark.parametrize("width", [1, 3, 8, 17])
@pytest.mark.parametrize("paired", [False, True])
def test_negatives_are_those_of_hard_negatives(width, paired):
    generator = torch.Generator().manual_seed(0)
    query, other = (torch.randint(0, 256, (200, width), generator=generator, dtype=torch.uint8) for _ in range(2))
    reference = other if paired else None
    labels = torch.randint(0, 40, (200,), generator=generator)
    exclude = make_lists([[(i * 7) % 200, (i + 1) % 200] for i in range(200)])
    neighbours = Neighbours(query, reference, labels.numpy(), exclude)
    expected = hard_negatives(query, labels, 150, filters=Filters(exclude=exclude), reference=reference)
    for i in range(0, 200, 13):
        found = neighbours.negatives(i, labels.numpy(), 150)
        assert found.ids.tolist() == expected.indices[i].tolist()
        assert found.distances.tolist() == expected.distances[i].tolist()
        near = neighbours.negatives(i, labels.numpy(), 5, low=3, high=4 * width)
        assert near.distances.tolist() == [d for d in found.distances.tolist() if 3 <= d <= 4 * width][:5]


def test_positives_come_farthest_first():
    codes = torch.randint(0, 256, (60, 4), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    labels = torch.arange(60) % 7
    neighbours = Neighbours(codes, None, labels.numpy())
    hardest = hardest_positives(codes, labels)
    for i in range(60):
        found = neighbours.positives(i, labels.numpy(), 100)
        assert found.ids[0] == hardest[i]
        assert sorted(found.ids.tolist()) == [j for j in range(60) if j % 7 == i % 7 and j != i]
        assert found.distances.tolist() == [int(popcount(codes[i] ^ codes[j]).sum()) for j in found.ids.tolist()]


def test_the_first_positives_are_those_of_a_full_sort_ties_by_the_smaller_id():
    codes = torch.randint(0, 4, (300, 1), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)  # many ties
    labels = np.arange(300) % 3
    neighbours = Neighbours(codes, None, labels)
    for i in range(0, 300, 11):
        positives = [j for j in range(300) if labels[j] == labels[i] and j != i]
        ordered = sorted(positives, key=lambda j: (-int(popcount(codes[i] ^ codes[j]).sum()), j))
        for k in (1, 7, 99, 150):
            found = neighbours.positives(i, labels, k)
            assert found.ids.tolist() == ordered[:k]
            assert found.total == 99


def test_a_pair_has_its_own_reference_as_a_positive():
    query, reference = torch.zeros(3, 8, dtype=torch.uint8), torch.full((3, 8), 255, dtype=torch.uint8)
    found = Neighbours(query, reference, np.arange(3)).positives(1, np.arange(3), 10)
    assert (found.ids.tolist(), found.distances.tolist()) == ([1], [64])
