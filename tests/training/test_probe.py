"""Samples of a training part: which rows are drawn."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lookalike.training.probe import draw


@dataclass(frozen=True)
class Counted:
    """As much of a training part as drawing needs."""

    labels: torch.Tensor | None
    pairs: int | None = None


def test_classes_are_drawn_whole():
    labels = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat(np.arange(300), [2, 5, 11] * 100)))
    drawn = draw(Counted(labels), 600, 8, seed=3)
    counts, drawn_counts = torch.bincount(labels), torch.bincount(labels[drawn.ids], minlength=300)
    assert ((drawn_counts == 0) | (drawn_counts == counts)).all()
    assert 600 - 11 < len(drawn.ids) <= 600
    assert (drawn.population, drawn.whole_classes) == (1800, True)
    assert (drawn.ids.diff() > 0).all()


def test_a_draw_depends_on_the_seed_alone():
    part = Counted(torch.arange(4000) // 4)
    first, again, other = (draw(part, 512, 16, seed=seed).ids for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    pairs = Counted(None, 4000)
    assert torch.equal(draw(pairs, 512, 16, seed=1).ids, draw(pairs, 512, 16, seed=1).ids)
    assert len(draw(pairs, 512, 16, seed=1).ids.unique()) == 512


def test_samples_without_a_positive_do_not_count():
    labels = torch.cat([torch.arange(100), torch.arange(100, 150).repeat_interleave(2)])
    drawn = draw(Counted(labels), 1000, 8, seed=0)
    assert drawn.ids.tolist() == list(range(100, 200))
    assert drawn.population == 100
    with pytest.raises(ValueError, match="all labels are different"):
        draw(Counted(torch.arange(100)), 1000, 8, seed=0)


def test_classes_too_large_to_be_drawn_whole_are_cut():
    labels = torch.arange(40).repeat_interleave(1000)
    drawn = draw(Counted(labels), 512, 16, seed=0)
    counts = torch.bincount(labels[drawn.ids], minlength=40)
    assert not drawn.whole_classes
    assert sorted(counts.unique().tolist()) == [0, 16]
    assert int((counts > 0).sum()) == 32  # two batches of different labels


def test_one_class_with_most_samples_leaves_room_for_the_others():
    labels = torch.cat([torch.arange(9).repeat_interleave(2), torch.full((5000,), 9)])
    drawn = draw(Counted(labels), 128, 2, seed=0)
    assert not drawn.whole_classes
    assert 100 < len(drawn.ids) <= 128
    few = torch.cat([torch.arange(500).repeat_interleave(2), torch.full((5000,), 500)])
    drawn = draw(Counted(few), 128, 2, seed=0)
    assert drawn.whole_classes
    assert torch.bincount(few[drawn.ids])[:500].sum() == len(drawn.ids) == 128  # the largest does not fit


def test_a_sample_too_small_for_batches_is_refused():
    with pytest.raises(
        ValueError, match=r"sample= must be at least 128, so that .* 2 batches of 64 pairs .* got 100\."
    ):
        draw(Counted(None, 5000), 100, 64, seed=0)
