"""No batch of any sampler holds two samples as negatives that a person marked as the same."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lookalike import LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.negatives.same import Marks
from tests.negatives.marked import groups, marks
from tests.ranks import on_ranks

MAKERS = {
    "random": RandomBatchSampler,
    "lsh": lambda *arguments, **options: LSHBatchSampler(*arguments, bits=64, guard=0.95, **options),
    "incremental": lambda *arguments, **options: PreEpochBatchSampler(*arguments, mode="incremental", **options),
}


def epochs(sampler, n, number=3):
    """All batches of some epochs, observed with embeddings in which everything is near everything."""
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0)) * 0.1 + 1
    for _ in range(number):
        for ids in sampler:
            towers = {"query": x[ids], "reference": x[ids]} if sampler.paired else {"embeddings": x[ids]}
            sampler.observe(ids, **towers)
            yield ids


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_pairs_never_meet(name, data):
    n = data.draw(st.integers(6, 24))
    labels = data.draw(st.none() | st.lists(st.integers(0, n), min_size=n, max_size=n))
    same = data.draw(marks(n))
    group = groups(same, range(n) if labels is None else labels)
    assume(len(set(group)) >= 3)
    for ids in epochs(MAKERS[name](labels, 3, pairs=n, same=same), n):
        assert len({group[i] for i in ids}) == len(ids)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_labelled_samples_never_meet_as_negatives(name, data):
    n = 2 * data.draw(st.integers(6, 12))
    labels = (np.arange(n) // 2).tolist()
    same = data.draw(marks(n // 2))
    group = groups(same, labels)
    assume(len(set(group)) >= 3)
    sampler = MAKERS[name](labels, 6, same=same)
    for ids in epochs(sampler, n):
        anchors, positives = ids[::2], ids[1::2]
        assert [group[i] for i in anchors] == [group[i] for i in positives]
        assert len({group[i] for i in anchors}) == len(anchors)


def test_without_marks_nothing_changes():
    for same in ([], [[3, 3]]):
        plain, marked = (LSHBatchSampler(None, 4, pairs=20, bits=64, **more) for more in ({}, {"same": same}))
        assert list(epochs(plain, 20)) == list(epochs(marked, 20))
        marked.load_state_dict(plain.state_dict())


def test_a_file_of_marks_is_taken(tmp_path):
    path = tmp_path / "marks.jsonl"
    with Marks(path, samples=20) as file:
        file.mark(3, 9)
    assert all(not {3, 9} <= set(ids) for ids in epochs(LSHBatchSampler(None, 4, pairs=20, bits=64, same=path), 20))
    with pytest.raises(ValueError, match="they are of 20 samples, here there are 21 samples"):
        RandomBatchSampler(None, 4, pairs=21, same=path)


def test_a_mark_gives_single_samples_a_positive():
    sampler = RandomBatchSampler([0, 1, 2, 3], 4, same=[[0, 1], [2, 3]])
    assert sorted(i for ids in sampler for i in ids) == [0, 1, 2, 3]


def test_marks_that_leave_too_few_labels():
    with pytest.raises(ValueError, match="1 labels fill batches of at most 1 pairs, but 4 were asked for"):
        RandomBatchSampler(None, 4, pairs=12, same=[[i, i + 1] for i in range(11)])


def test_a_state_of_other_marks_is_refused():
    state = LSHBatchSampler(None, 4, pairs=20, bits=64, same=[[3, 9]]).state_dict()
    LSHBatchSampler(None, 4, pairs=20, bits=64, same=[[9, 3]]).load_state_dict(state)
    for same in (None, [[3, 8]]):
        with pytest.raises(ValueError, match=r"labels \(checksum\) was .*; build the sampler with .* pairs in same="):
            LSHBatchSampler(None, 4, pairs=20, bits=64, same=same).load_state_dict(state)


def ranks_that_share(rank):
    same = [[i, i + 20] for i in range(10)]
    sampler = LSHBatchSampler(None, 4, pairs=40, bits=64, same=same)
    own = list(epochs(sampler, 40))
    with pytest.raises(ValueError, match=r"labels \(checksum\) is"):
        iter(LSHBatchSampler(None, 4, pairs=40, bits=64, same=same[rank:]))
    return own


def test_ranks_keep_marked_pairs_apart_together():
    first, second = on_ranks(2, ranks_that_share)
    for batch in zip(first, second, strict=True):
        ids = [i for share in batch for i in share]
        assert len({i - 20 if 20 <= i < 30 else i for i in ids}) == len(ids)
