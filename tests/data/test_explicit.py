"""Explicit negatives: which pairs get which, and which of them are no negatives of a query after all."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from lookalike.data import load_data
from lookalike.data.build import paired_texts
from lookalike.data.explicit import ExplicitNegatives, with_negatives
from lookalike.data.parts import Selection, Texts, TrainingItems
from lookalike.utils.lists import make_lists
from tests.data.miniatures import write_msmarco

QUERIES, ANSWERS, OTHERS = 12, 15, 6


def crowded(seed=0, m=3):
    """Pairs that share queries and answers, with negatives that are answers, others that are not, and missing ones."""
    rng = np.random.default_rng(seed)
    pairs = [(f"q{rng.integers(QUERIES)}", f"a{rng.integers(ANSWERS)}") for _ in range(30)]
    texts = [f"a{i}" for i in range(ANSWERS)] + [f"n{i}" for i in range(OTHERS)]
    negatives = [[texts[i] for i in rng.choice(len(texts), rng.integers(m + 1), replace=False)] for _ in pairs]
    return pairs, negatives


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("excludes", [False, True])
def test_what_answers_a_query_is_not_its_negative(seed, excludes):
    pairs, negatives = crowded(seed)
    part = paired_texts("crowd", "crowd", pairs, pairs, negatives=negatives).train
    rng = np.random.default_rng(seed)
    rows = [rng.choice(30, rng.integers(4), replace=False).tolist() if excludes else [] for _ in pairs]
    labels = list(range(30)) if part.labels is None else part.labels.tolist()
    m = part.num_negatives
    batch = torch.from_numpy(rng.permutation(30)[:9])
    explicit = ExplicitNegatives(part, make_lists(rows) if excludes else None)
    offsets, positions = explicit.excluded(batch, batch)
    for i, query in enumerate(batch.tolist()):
        answers = {pairs[j][1] for j in range(30) if labels[j] == labels[query]}
        hidden = {pairs[j][1] for j in rows[query]}
        expected = [place for place, j in enumerate(batch.tolist()) if j in rows[query]]
        for place, j in enumerate(batch.tolist()):
            for k in range(m):
                text = negatives[j][k] if k < len(negatives[j]) else None
                if text is None or text in answers | hidden:
                    expected.append(9 + place * m + k)
        assert positions[offsets[i] : offsets[i + 1]].tolist() == expected


def test_row_numbers_of_other_pairs():
    pairs = [(f"q{i}", f"a{i // 2}") for i in range(6)]
    data = paired_texts("six", "six", pairs, pairs)
    ids = [[2, 5], [4, -1], [0, 1], [-1, -1], [1, 0], [2, 3]]
    for given in (ids, np.array(ids, np.int32), torch.tensor(ids)):
        mined = with_negatives(data, given)
        assert mined.train.num_negatives == 2
        assert mined.train.negatives(torch.tensor([0, 1, 3]), 0) == ["a1", "a2", "a2", "a0", "a1", "a1"]
        assert mined.checksum != data.checksum
        assert mined.source is None
        assert mined.description.endswith("to test; 2 explicit negatives per pair")
        assert ExplicitNegatives(mined.train).ids.tolist()[1] == [4, -2]
    assert data.train.num_negatives == 0
    assert mined.test is data.test


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([[0], [1]], r"negative_ids must have the shape \[4, m\], a row per pair, got \[2, 1\]"),
        ([[]] * 4, "negative_ids must be integers, got float64"),
        (np.zeros((4, 0), np.int64), r"negative_ids must have the shape \[4, m\]"),
        ([[0.5]] * 4, "negative_ids must be integers, got float64"),
        ([[4]] * 4, "negative_ids must be pairs from 0 to 3, or -1 for none, got 4 to 4"),
        ([[-2]] * 4, "negative_ids must be pairs from 0 to 3, or -1 for none, got -2 to -2"),
    ],
)
def test_row_numbers_that_cannot_be(ids, sentence):
    pairs = [(f"q{i}", f"a{i}") for i in range(4)]
    data = paired_texts("four", "four", pairs, pairs)
    with pytest.raises((ValueError, TypeError), match=sentence):
        with_negatives(data, ids)
    with pytest.raises(ValueError, match="four already has 1 explicit negatives per pair"):
        with_negatives(with_negatives(data, [[1], [0], [3], [2]]), [[1]] * 4)
    with pytest.raises(TypeError, match="explicit negatives need pairs"):
        with_negatives(replace(data, train=replace(data.train, pairs=None)), [[1]] * 4)
    with pytest.raises(ValueError, match="negatives must be a list for each of the 4 training pairs, got 1"):
        paired_texts("four", "four", pairs, pairs, negatives=[["x"]])


def test_a_reference_of_several_pairs_is_no_negative_of_any_of_them():
    texts = Selection(Texts(["x", "y", "z"]), np.array([0, 0, 1, 2]))
    part = TrainingItems(query=texts, reference=texts, labels=None, pairs=4)  # whose labels do not say so
    negatives = ExplicitNegatives(replace(part, negative_items=np.array([[1], [2], [0], [-1]])))
    offsets, positions = negatives.excluded(torch.arange(4), torch.arange(4))
    excluded = [positions[first:last].tolist() for first, last in itertools.pairwise(offsets.tolist())]
    assert excluded == [[6, 7], [6, 7], [4, 7], [5, 7]]


class Numbers:
    """Items that are pictures of their number."""

    def __len__(self):
        return 9

    def read(self, ids):
        return torch.from_numpy(ids).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)


def test_images_are_augmented_like_references():
    def augment(images, ids, seed, tower):
        return images + 100 * ids.view(-1, 1, 1, 1) + 10_000 * seed * (tower == "reference")

    numbers = Selection(Numbers(), np.arange(9)[::-1].copy())
    part = TrainingItems(query=numbers, reference=numbers, labels=None, pairs=9, augment=augment)
    part = replace(part, negative_items=np.array([[i, -1] for i in range(9)]))
    found = part.negatives(torch.tensor([2, 3]), seed=1)
    assert found.shape == (4, 3, 2, 2)
    assert found[:, 0, 0, 0].tolist() == [10_202, 10_606, 10_303, 10_505]


def test_msmarco_reads_row_numbers(tmp_path):
    root = write_msmarco(tmp_path / "msmarco")
    ids = np.array([[1, 2], [0, -1], [1, 0], [1, 0], [2, 3]])
    np.save(root / "mined.npy", ids)
    np.save(tmp_path / "elsewhere.npy", ids)
    plain = load_data("msmarco", root)
    for name in ("mined.npy", str(tmp_path / "elsewhere.npy")):
        data = load_data("msmarco", root, negatives=name)
        assert data.counts["negatives per pair"] == 2
        assert data.train.negatives(torch.tensor([0, 1]), 0) == [f"passage {pid} \u00e9" for pid in (3, 20, 8, 3)]
        assert data.checksum != plain.checksum
        assert data.source.options == {"negatives": name}
    # The second pair and the last have one passage, so it is no negative of either.
    offsets, positions = ExplicitNegatives(data.train).excluded(torch.tensor([1, 2]), torch.tensor([1, 2]))
    assert (offsets.tolist(), positions.tolist()) == ([0, 2, 3], [3, 4, 3])
    np.save(root / "mined.npy", np.zeros((4, 1), int))
    with pytest.raises(ValueError, match=r"mined\.npy: negative_ids must have the shape \[5, m\]"):
        load_data("msmarco", root, negatives="mined.npy")
    (root / "mined.npy").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"mined\.npy cannot be read as a NumPy array"):
        load_data("msmarco", root, negatives="mined.npy")
    with pytest.raises(FileNotFoundError, match=r"absent\.npy is missing"):
        load_data("msmarco", root, negatives="absent.npy")
