"""Plan the number and sizes of batches before anything is composed, so that they can always be filled."""

from typing import NamedTuple

import numpy as np

from lookalike.utils.arrays import Array


class Plan(NamedTuple):
    """The sizes of an epoch's batches, and how many pairs each label may give."""

    sizes: Array  # int64 [num_batches], in the order in which they can be filled
    ends_short: bool  # the first batch to be filled is a short one, to be yielded last
    quotas: Array  # int64 [num_labels]: pairs of the label, but no more than there are batches
    num_dropped: int  # pairs left out for drop_last, of any label


def plan_batches(
    counts: Array, pairs_per_batch: int, *, drop_last: bool = False, smallest: int = 1, multiple: int = 1
) -> Plan:
    """Plan batches of labels with `counts` pairs each: full batches, then one shorter one.

    A label can be in every batch once, so it can give no more pairs than there are batches; leaving the others out may
    in turn make fewer batches enough. If the labels with a pair for every batch do not fit into the short one, or if it
    would have fewer than `smallest` pairs, all batches share the shortage and sizes differ by at most one; if even that
    leaves fewer than `smallest`, the pairs beyond full batches are dropped. With a `multiple` above one, the number of
    batches is a multiple of it, all are full, and leftover pairs are dropped.

    The short batch is filled first, while all labels that need it still have pairs for it. After that, and in balanced
    batches from the largest on, R batches are left to fill, no label has more than R pairs, and a batch is no larger
    than the pairs left per batch: so there are always enough labels to fill it.

    Raises:
        ValueError: There are fewer labels than a batch must hold, or fewer full batches than `multiple`.
    """
    drop_last = drop_last or multiple > 1
    counts = np.asarray(counts, np.int64)
    if len(counts) < pairs_per_batch:
        raise ValueError(
            f"a batch holds each label once, so {len(counts)} labels fill batches of at most {len(counts)} pairs, but "
            f"{pairs_per_batch} were asked for; compose smaller batches."
        )
    quotas = counts
    while True:
        total = int(quotas.sum())
        num_batches = total // (pairs_per_batch * multiple) * multiple if drop_last else -(-total // pairs_per_batch)
        capped = np.minimum(quotas, num_batches)
        if np.array_equal(capped, quotas):
            break
        quotas = capped
    if num_batches == 0:
        raise ValueError(
            f"{int(counts.sum())} pairs do not fill one batch of {pairs_per_batch} for each of {multiple} ranks; "
            "compose smaller batches or start fewer processes."
        )
    sizes = np.full(num_batches, pairs_per_batch)
    if drop_last or total % pairs_per_batch == 0:
        return Plan(sizes, False, quotas, total - num_batches * pairs_per_batch)
    sizes[0] = total % pairs_per_batch
    everywhere = int((quotas == num_batches).sum())  # labels that every batch must hold, the short one too
    if everywhere <= sizes[0] and sizes[0] >= smallest:
        return Plan(sizes, True, quotas, 0)
    sizes[:] = total // num_batches
    sizes[: total % num_batches] += 1
    if sizes[-1] < smallest:
        return plan_batches(counts, pairs_per_batch, drop_last=True)
    return Plan(sizes, False, quotas, 0)
