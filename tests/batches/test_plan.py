import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookalike.batches import plan_batches


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    pairs_per_batch=st.integers(1, 20),
    drop_last=st.booleans(),
    smallest=st.integers(1, 4),
)
def test_plans_add_up(counts, pairs_per_batch, drop_last, smallest):
    if len(counts) < pairs_per_batch:
        with pytest.raises(ValueError, match=f"{len(counts)} labels fill batches of at most {len(counts)} pairs"):
            plan_batches(counts, pairs_per_batch)
        return
    plan = plan_batches(counts, pairs_per_batch, drop_last=drop_last, smallest=smallest)
    assert plan.sizes.sum() == plan.quotas.sum() - plan.num_dropped
    assert (plan.quotas <= np.minimum(counts, len(plan.sizes))).all()
    assert (plan.sizes <= pairs_per_batch).all()
    if drop_last:
        assert (plan.sizes == pairs_per_batch).all()
        assert plan.num_dropped < pairs_per_batch
    elif plan.ends_short:
        assert (plan.sizes[1:] == pairs_per_batch).all()
        assert smallest <= plan.sizes[0] < pairs_per_batch
    else:
        assert np.ptp(plan.sizes) <= 1


def test_torch_sizes_where_labels_allow():
    assert plan_batches(np.ones(10, int), 4).sizes.tolist() == [2, 4, 4]
    assert plan_batches(np.ones(10, int), 4).ends_short
    assert plan_batches(np.ones(10, int), 4, drop_last=True).sizes.tolist() == [4, 4]
    assert plan_batches(np.ones(8, int), 4).sizes.tolist() == [4, 4]


def test_balanced_sizes_where_the_short_batch_cannot_hold_what_it_must():
    """Four labels must be in all three batches, but the third would have three places."""
    assert plan_batches([3, 3, 3, 3, 1], 5).sizes.tolist() == [5, 4, 4]
    assert plan_batches([3, 3, 3, 1, 1, 1, 1], 5).sizes.tolist() == [3, 5, 5]


def test_a_huge_class_is_capped_to_one_pair_per_batch():
    plan = plan_batches([1000] + [1] * 20, 4)
    assert plan.quotas[0] == len(plan.sizes)
    assert plan.quotas[1:].tolist() == [1] * 20


def test_every_rank_gets_something_or_the_remainder_is_dropped():
    assert plan_batches(np.ones(9, int), 4, smallest=4).sizes.tolist() == [4, 4]
    assert plan_batches(np.ones(9, int), 4, smallest=2).sizes.tolist() == [3, 3, 3]
    assert plan_batches(np.ones(5, int), 4, smallest=4).num_dropped == 1
