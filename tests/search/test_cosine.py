import pytest
import torch

from lookalike.search import cosine


@pytest.mark.parametrize("tile", [1, 1000, 1 << 25])
def test_against_the_full_matrix(monkeypatch, tile):
    monkeypatch.setattr(cosine, "TILE_ELEMENTS", tile)
    generator = torch.manual_seed(0)
    x, y = torch.randn(40, 16, generator=generator), torch.randn(90, 16, generator=generator)
    labels, other = torch.randint(0, 5, (40,)), torch.randint(0, 5, (90,))
    found = cosine.cosine_topk(x, y, 7, query_labels=labels, reference_labels=other)
    full = torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=2)
    full[labels[:, None] == other] = -torch.inf
    expected = full.sort(dim=1, descending=True)
    assert torch.equal(found.indices, expected.indices[:, :7])
    assert torch.allclose(found.scores, expected.values[:, :7], atol=1e-6)


def test_autocast_changes_nothing():
    x, y = (torch.randn(n, 64, generator=torch.manual_seed(n)) for n in (40, 900))
    expected = cosine.cosine_topk(x, y, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cosine.cosine_topk(x, y, 20)
    assert torch.equal(found.scores, expected.scores)
    assert torch.equal(found.indices, expected.indices)


def test_padding():
    x = torch.eye(3)
    found = cosine.cosine_topk(x, x, 5, query_labels=[0, 0, 1], reference_labels=[0, 0, 1])
    assert found.indices.tolist() == [[2, -1, -1, -1, -1], [2, -1, -1, -1, -1], [0, 1, -1, -1, -1]]


def test_excluded_rows_are_left_out():
    x = torch.nn.functional.normalize(torch.randn(30, 8), dim=1)
    exclude = torch.arange(31), torch.arange(30).roll(-1)  # each its successor
    labels = {"query_labels": torch.arange(30), "reference_labels": torch.arange(30)}
    found = cosine.cosine_topk(x, x, 29, exclude=exclude, **labels)
    for i, row in enumerate(found.indices.tolist()):
        assert sorted(row[:28]) == sorted(set(range(30)) - {i, (i + 1) % 30})
        assert row[28] == -1
