"""What is measured on a sample, where the answer is known."""

import pytest
import torch
from torch.nn.functional import normalize

from lookalike.batches import lists_width
from lookalike.training.probe import Probe
from lookalike.training.probe_measures import count_false_negatives, find_nearest, measure_batches
from lookalike.training.settings import Settings
from lookalike.utils.lists import make_lists


def probe_of(query, reference=None, labels=None, exclude=None):
    query = normalize(query, dim=1)
    return Probe(
        query=query,
        reference=query if reference is None else normalize(reference, dim=1),
        labels=labels,
        exclude=exclude,
        population=len(query),
        whole_classes=True,
        seconds=0.0,
    )


def counted(probe):
    return count_false_negatives(probe, find_nearest(probe))


def random_rows(n, dim=32, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def test_nearest_positives_and_negatives_are_those_of_a_full_comparison():
    labels = torch.arange(120) % 40
    probe = probe_of(random_rows(120), labels=labels)
    cosines = probe.query @ probe.query.T
    same = labels[:, None] == labels
    found = find_nearest(probe)
    own = cosines.masked_fill(~same, -torch.inf).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(found.positive, own.amax(1))
    torch.testing.assert_close(found.negative, cosines.masked_fill(same, -torch.inf).amax(1))
    assert torch.equal(found.row, cosines.masked_fill(same, -torch.inf).argmax(1))


def groups(num_groups, size):
    """Pairs in groups, in which each has all its nearest."""
    n, centres = num_groups * size, random_rows(num_groups, 64).repeat_interleave(size, dim=0)
    return probe_of(centres + 0.3 * random_rows(n, 64, 1), centres + 0.3 * random_rows(n, 64, 2))


def test_mined_batches_hold_what_belongs_together_and_random_ones_do_not():
    size = lists_width("growth") + 1
    probe = groups(20, size)
    nearest, settings = find_nearest(probe), Settings(pairs_per_batch=size, neighbourhood=None)
    assert (nearest.row // size == torch.arange(len(probe)) // size).all()
    mined = measure_batches(probe, nearest, settings, probe.codes(512, 1.0, 0))
    random = measure_batches(probe, nearest, settings, None)
    assert mined.finds_hardest == 1.0
    assert mined.cosine == pytest.approx(float(nearest.negative.mean()), abs=1e-5)
    assert random.finds_hardest < 0.1
    assert random.cosine < mined.cosine


def test_labelled_batches_never_hold_more_than_there_is():
    labels = torch.arange(400) // 4
    probe = probe_of(random_rows(100).repeat_interleave(4, dim=0) + 0.3 * random_rows(400, seed=1), labels=labels)
    nearest, settings = find_nearest(probe), Settings(pairs_per_batch=16, neighbourhood=8)
    mined = measure_batches(probe, nearest, settings, probe.codes(512, 1.0, 0))
    random = measure_batches(probe, nearest, settings, None)
    assert random.cosine < mined.cosine <= float(nearest.negative.mean())
    assert random.finds_hardest < mined.finds_hardest < 1


def test_duplicates_are_counted_exactly_in_either_tower():
    query, reference = random_rows(100), random_rows(100, seed=1)
    query[:3] = query[10:13]  # six queries have a duplicate
    reference[20:22] = reference[10:12]  # so do four references, two of them of pairs that were counted
    assert counted(probe_of(query, reference)).identical == pytest.approx(0.08)


def test_duplicates_with_the_same_label_or_excluded_are_none():
    x = random_rows(50).repeat_interleave(2, dim=0)  # rows 2 i and 2 i + 1 are equal
    other = random_rows(100, seed=1)
    assert counted(probe_of(x, other)).identical == 1.0
    assert counted(probe_of(x, other, labels=torch.arange(100) // 2)).identical == 0.0
    assert counted(probe_of(x, other, exclude=make_lists([[i ^ 1] for i in range(100)]))).identical == 0.0


def test_negatives_near_the_positive_are_counted():
    angles = torch.tensor([0.0, 0.5, 0.1, 2.0, 2.5, 2.3])  # labels 0, 0, 1, 1, 2, 2
    probe = probe_of(torch.stack([angles.cos(), angles.sin()], 1), labels=torch.tensor([0, 0, 1, 1, 2, 2]))
    found = counted(probe)
    assert found.nearer == pytest.approx(4 / 6)  # all but the last two
    assert found.near == pytest.approx(5 / 6)  # and the last, because cos(.3) is .975 of cos(.2)
    assert found.identical == 0
