import torch

from lookalike.analysis import overlap


def test_overlap_counts_common_ids_per_query():
    found = torch.tensor([[1, 2, 3], [4, 5, -1], [-1, -1, -1]])
    true = torch.tensor([[3, 2, 9], [5, -1, -1], [1, 2, 3]])
    assert overlap(found, true).tolist() == [2 / 3, 1.0, 0.0]


def test_overlap_of_lists_of_different_length():
    assert overlap(torch.arange(10)[None], torch.tensor([[3, 20]])).tolist() == [0.5]
