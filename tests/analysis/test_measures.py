import pytest
import torch

from lookalike.analysis import bound_usage, overlap, positional_distance


def test_overlap_counts_common_ids_and_ignores_padding():
    found = torch.tensor([[1, 2, 3], [7, -1, -1], [-1, -1, -1], [4, 5, 6]])
    true = torch.tensor([[3, 2, 9], [7, 8, -1], [-1, -1, -1], [6, 5, 4]])
    assert overlap(found, true).tolist() == pytest.approx([2 / 3, 1 / 2, 0, 1])


def test_positional_distance_equals_a_plain_loop():
    torch.manual_seed(0)
    similarity = torch.rand(5, 40)
    similarity[:, 7] = -torch.inf
    found = torch.stack([torch.randperm(39)[:6] for _ in range(5)])
    found[found >= 7] += 1
    found[2, 4:] = -1
    expected = []
    for row, ids in zip(similarity, found, strict=True):
        ranking = row.argsort(descending=True).tolist()
        shifts = [abs(ranking.index(i) - place) for place, i in enumerate(ids.tolist()) if i >= 0]
        expected.append(sum(shifts) / len(shifts))
    assert positional_distance(found, similarity).tolist() == pytest.approx(expected)
    perfect = similarity.topk(10, dim=1).indices
    assert positional_distance(perfect, similarity).tolist() == [0] * 5


def test_bound_usage_divides_neighbours_by_their_angle():
    angles = torch.tensor([[0.50, 0.60, 1.00, 1.05, 1.099, 1.2, 3.0]])
    similarity = angles.cos()
    true = torch.tensor([[0, 1, 2]])  # eps is an angle of 1.00
    found = torch.tensor([[0, 3, 4, 5, 6, -1]])
    assert bound_usage(found, true, similarity) == pytest.approx(
        {"within_eps": 1 / 5, "within_a_eps": 2 / 5, "beyond": 2 / 5}
    )
    assert bound_usage(true, true, similarity)["within_eps"] == 1
