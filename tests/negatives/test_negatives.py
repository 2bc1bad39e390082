from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import Filters, ScalarHasher, hard_negatives, hardest_positives
from lookalike.negatives import exact_hard_negatives, positives
from lookalike.search.plain import hamming_distances


def random_codes(n, bits, seed=0, distinct=None):
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 256, (distinct or n, bits // 8), dtype=np.uint8)
    return torch.from_numpy(pool[rng.integers(0, len(pool), n)])


def plain_hard_negatives(codes, labels, targets, target_labels, k, positive_scores, *, range_min, range_max, **limits):
    """One sample at a time, as the documentation words it."""
    bits = codes.shape[1] * 8
    answer = []
    for i, distances in enumerate(hamming_distances(codes, targets).tolist()):
        ranked = sorted((d, j) for j, d in enumerate(distances) if labels[i] != target_labels[j])
        chosen = []
        for d, j in ranked[:range_max]:
            score = float(np.cos(np.pi * d / bits))
            positive = positive_scores[i]
            if limits.get("max_score") is not None and score > limits["max_score"]:
                continue
            if limits.get("min_score") is not None and score < limits["min_score"]:
                continue
            absolute, relative = limits.get("absolute_margin"), limits.get("relative_margin")
            if positive is not None and absolute is not None and score > positive - absolute:
                continue
            if positive is not None and relative is not None and score > positive - abs(positive) * relative:
                continue
            chosen.append(j)
        answer.append((chosen[range_min:] + [-1] * k)[:k])
    return answer


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 30, 90]),
    classes=st.sampled_from([1, 2, 20, 90]),
    k=st.sampled_from([1, 3, 40]),
    range_min=st.sampled_from([0, 2, 11]),
    room=st.sampled_from([None, 0, 7]),
    max_score=st.sampled_from([None, 0.1, 0.5]),
    min_score=st.sampled_from([None, -0.2, 0.0]),
    absolute_margin=st.sampled_from([None, 0.0, 0.2]),
    relative_margin=st.sampled_from([None, 0.0, 0.3]),
    two_towers=st.booleans(),
)
def test_filters_match_the_plain_version(
    seed, n, classes, k, range_min, room, max_score, min_score, absolute_margin, relative_margin, two_towers
):
    codes, labels = random_codes(n, 40, seed), torch.randint(0, classes, (n,), generator=torch.manual_seed(seed))
    targets = random_codes(n, 40, seed + 1) if two_towers else codes
    towers = {"reference": targets} if two_towers else {}
    filters = {
        "range_min": range_min,
        "range_max": None if room is None else range_min + k + room,
        "max_score": max_score,
        "min_score": min_score,
        "absolute_margin": absolute_margin,
        "relative_margin": relative_margin,
    }
    scores = []
    for i, row in enumerate(hamming_distances(codes, targets).tolist()):
        same = [d for j, d in enumerate(row) if labels[j] == labels[i] and (two_towers or j != i)]
        scores.append(float(np.cos(np.pi * max(same) / 40)) if same else None)
    expected = plain_hard_negatives(codes, labels, targets, labels, k, scores, **filters)
    found = hard_negatives(codes, labels, k, **towers, filters=Filters(**filters))
    assert found.indices.tolist() == expected
    present = found.indices >= 0
    distances = hamming_distances(codes, targets).gather(1, found.indices.clamp(min=0))
    assert torch.equal(found.distances[present], distances[present])
    assert (found.distances[~present] == -1).all()


def test_search_goes_on_until_k_pass():
    """Ninety of the nearest are too similar; ten negatives come back all the same."""
    near = torch.zeros(90, 16, dtype=torch.uint8)
    codes = torch.cat([torch.zeros(1, 16, dtype=torch.uint8), near, random_codes(60, 128)])
    found = hard_negatives(codes, None, 10, filters=Filters(max_score=0.9))
    assert (found.indices[0] > 90).all()


def test_exclude_reaches_every_round():
    codes = random_codes(120, 64)
    banned = hard_negatives(codes, None, 1).indices.flatten()
    exclude = (torch.arange(121), banned)
    for filters in ({}, {"max_score": 0.2}):
        found = hard_negatives(codes, None, 20, filters=Filters(exclude=exclude, **filters))
        assert (found.indices != banned[:, None]).all()


def test_given_positives_decide_the_margin():
    codes = torch.tensor([[0b0], [0b1], [0b11], [0b111111]], dtype=torch.uint8)
    assert hard_negatives(codes, None, 1, positives=[2, 2, 0, 0], filters=Filters(absolute_margin=0)).indices[
        0
    ].tolist() == [2]
    assert hard_negatives(codes, None, 1, positives=[3, 2, 0, 0], filters=Filters(absolute_margin=0)).indices[
        0
    ].tolist() == [3]
    assert hard_negatives(codes, None, 1, positives=[-1] * 4, filters=Filters(absolute_margin=0)).indices[
        0
    ].tolist() == [1]


def test_pairs_without_labels_never_get_their_own_reference():
    queries, references = random_codes(50, 32, 1), random_codes(50, 32, 2)
    found = hard_negatives(queries, None, 49, reference=references)
    assert (found.indices.sort(1).values != torch.arange(50)[:, None]).all()
    assert (found.indices >= 0).all()


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"range_min": -1}, ValueError, "range_min must be at least 0, got -1."),
        ({"range_max": 1}, ValueError, "must leave room for k=2 negatives, got range_min=0 and range_max=1"),
        ({"range_min": 3, "range_max": 3}, ValueError, "range_max must be above range_min"),
        ({"range_min": 1.5}, TypeError, "range_min must be an integer, got float."),
        ({"min_score": 0.5, "max_score": 0.2}, ValueError, "min_score=0.5 is above max_score=0.2: nothing can pass."),
        ({"labels": [1, 2]}, ValueError, "labels must have one label per code, 4, got 2."),
        ({"labels": [1.0] * 4}, TypeError, "labels must be integers"),
        ({"reference_labels": [0] * 4}, ValueError, "reference_labels were given without a reference."),
        (
            {"reference": random_codes(3, 16)},
            ValueError,
            "by default the labels.* must have one label per code, 3, got 4",
        ),
        ({"positives": [9] * 4, "absolute_margin": 0.1}, ValueError, "positives must be between -1 and 3"),
    ],
)
def test_bad_input_gets_a_sentence(change, error, sentence):
    names = {each.name for each in fields(Filters)}
    filters = {name: value for name, value in change.items() if name in names}
    others = {name: value for name, value in change.items() if name not in names}
    arguments = {"codes": random_codes(4, 16), "labels": [0, 1, 2, 3], "k": 2} | others
    with pytest.raises(error, match=sentence):
        hard_negatives(**arguments, filters=Filters(**filters))


def plain_hardest(codes, labels, targets, target_labels, one_table):
    answer = []
    for i, row in enumerate(hamming_distances(codes, targets).tolist()):
        same = [(-d, j) for j, d in enumerate(row) if target_labels[j] == labels[i] and not (one_table and j == i)]
        answer.append(min(same)[1] if same else -1)
    return answer


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 50, 150]),
    classes=st.sampled_from([1, 2, 30, 150]),
    distinct=st.sampled_from([1, 3, None]),
    two_towers=st.booleans(),
)
def test_hardest_positives_match_the_plain_version(seed, n, classes, distinct, two_towers):
    generator = torch.manual_seed(seed)
    codes, labels = random_codes(n, 24, seed, distinct), torch.randint(0, classes, (n,), generator=generator)
    if two_towers:
        targets, target_labels = random_codes(70, 24, seed + 1), torch.randint(0, classes, (70,), generator=generator)
        found = hardest_positives(codes, labels, reference=targets, reference_labels=target_labels)
    else:
        targets, target_labels = codes, labels
        found = hardest_positives(codes, labels)
    assert found.tolist() == plain_hardest(codes, labels, targets, target_labels, not two_towers)


@pytest.mark.parametrize("size", [5, 100])  # compared at once, and in parts
def test_hardest_positives_are_exact_in_codes_of_several_bits(monkeypatch, size):
    """Embeddings around a mean have positives on its other side, which are farther than any opposite can tell."""
    monkeypatch.setattr(positives, "PAIRS", 1000)
    x = torch.randn(1000, 24, generator=torch.Generator().manual_seed(0)) * torch.linspace(2, 0.1, 24) + 1
    hasher = ScalarHasher(24, 64)
    hasher.update(x)
    codes, labels = hasher.encode(x), torch.arange(1000) // size
    distances = codes.scheme.compare(codes.packed[:, None], codes.packed[None])
    distances[labels[:, None] != labels] = -1
    others = codes[torch.arange(999, -1, -1)]
    found = hardest_positives(codes, labels, reference=others, reference_labels=labels.flip(0))
    assert torch.equal(found, distances.flip(1).argmax(1))
    distances.fill_diagonal_(-1)
    assert torch.equal(hardest_positives(codes, labels), distances.argmax(1))


def test_hardest_positives_of_a_class_of_thousands():
    codes = random_codes(6000, 64)
    labels = torch.zeros(6000, dtype=torch.int64)
    labels[:10] = torch.arange(1, 11)  # singletons
    found = hardest_positives(codes, labels)
    assert (found[:10] == -1).all()
    rows = torch.arange(10, 6000, 500)
    distances = hamming_distances(codes[rows], codes)
    distances[:, :10] = -1
    assert torch.equal(found[rows], distances.argmax(1))


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 40]),
    classes=st.sampled_from([1, 3, 40]),
    range_min=st.sampled_from([0, 3]),
    max_score=st.sampled_from([None, 0.3]),
    min_score=st.sampled_from([None, -0.3]),
    absolute_margin=st.sampled_from([None, 0.1]),
    relative_margin=st.sampled_from([None, 0.1]),
    two_towers=st.booleans(),
)
def test_exact_filters_match_the_plain_version(seed, n, classes, range_min, two_towers, **limits):
    """The same filters on floats: integers in few dimensions, so that cosines tie and are exact."""
    generator = torch.manual_seed(seed)
    query, reference = torch.randint(1, 9, (2, n, 4), generator=generator).float()
    labels = torch.randint(0, classes, (n,), generator=generator)
    reference = reference if two_towers else query
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (query, reference)]
    similarity = unit[0] @ unit[1].T
    k, expected = 5, []
    for i in range(n):
        same = [similarity[i, j] for j in range(n) if labels[i] == labels[j] and (two_towers or i != j)]
        row = torch.where(labels == labels[i], -torch.inf, similarity[i])[None]
        passed = row > -torch.inf
        positive = torch.tensor([min(same) if same else torch.inf])
        for mask in Filters(**limits).dropped(row, positive).values():
            passed &= ~mask
        kept = sorted(row[passed].tolist(), reverse=True)[range_min:]
        expected.append((kept + [-torch.inf] * k)[:k])
    towers = {"reference": reference} if two_towers else {}
    found = exact_hard_negatives(query, labels, k, filters=Filters(range_min=range_min, **limits), **towers)
    assert torch.allclose(found.scores, torch.tensor(expected).view(n, k), atol=1e-6)
    assert ((found.indices >= 0) == (found.scores > -torch.inf)).all()


def test_no_rows_have_no_negatives_and_no_positives():
    nothing = torch.empty(0, 8, dtype=torch.uint8)
    assert hardest_positives(nothing, []).tolist() == []
    assert hard_negatives(nothing, [], 3, filters=Filters(relative_margin=0.1)).indices.shape == (0, 3)
    assert exact_hard_negatives([[1.0, 0.0], [0.0, 1.0]], None, 1).indices.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"embeddings": [[1.0, float("nan")], [0.0, 1.0]]}, ValueError, "embeddings has a row that is not finite"),
        ({"reference": [[1.0, 0.0], [float("inf"), 1.0]]}, ValueError, "reference has a row that is not finite"),
        ({"reference": torch.ones(2, 3)}, ValueError, "embeddings has 2 dimensions and reference has 3 dimensions"),
        ({"embeddings": [1.0, 2.0]}, TypeError, "embeddings must be floats of the shape"),
        ({"embeddings": [[1, 0], [0, 1]]}, TypeError, "embeddings must be floats of the shape"),
    ],
)
def test_bad_embeddings_get_a_sentence(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        exact_hard_negatives(**{"embeddings": torch.eye(2), "labels": None, "k": 1, **arguments})


def test_a_filter_is_not_nan():
    with pytest.raises(ValueError, match="max_score must be a number, got NaN"):
        Filters(max_score=float("nan"))
