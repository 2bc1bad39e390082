"""Ranks exchange arrays of any size, and whatever fails on one of them fails on all."""

import numpy as np
import pytest
import torch

from lookalike.utils import ranks
from tests.ranks import on_ranks


def in_turn(num_jobs, job, _checksum):
    return [job(number) for number in range(num_jobs)]


def array(number):
    return np.arange(number * 3 % 7, dtype=np.int32) + 10 * number


def exchanged(rank, piece_bytes):
    ranks.PIECE_BYTES = piece_bytes
    try:
        ids = torch.arange(rank * 5) + 100 * rank
        rows = ids[:, None].repeat(1, 3).to(torch.uint8)
        gathered = [part.tolist() for part in map(torch.cat, zip(*ranks.gather_rows(ids, rows), strict=True))]
        whole, edges = torch.full((7, 2), -1, dtype=torch.int32), ranks.slices(7)
        whole[edges[rank] : edges[rank + 1]] = rank
        ranks.gather_slices(whole, edges)
        shared = {n: [each.tolist() for each in ranks.share_jobs(n, array, 5, in_turn)] for n in (0, 1, 2, 8)}
        first = ranks.from_first(lambda: [torch.arange(9).view(3, 3) + rank, torch.tensor(rank == 0)])
        return gathered, whole.tolist(), edges, shared, [part.tolist() for part in first]
    finally:
        ranks.PIECE_BYTES = 1 << 26


@pytest.mark.parametrize("piece_bytes", [8, 1 << 26])
def test_ranks_exchange_arrays_in_pieces(piece_bytes):
    results = on_ranks(3, exchanged, piece_bytes)
    assert results[0] == results[1] == results[2]
    (ids, rows), whole, edges, shared, first = results[0]
    assert ids == [*range(100, 105), *range(200, 210)]
    assert rows == [[i % 256] * 3 for i in ids]
    assert edges == [0, 2, 4, 7]
    assert whole == [[0, 0]] * 2 + [[1, 1]] * 2 + [[2, 2]] * 3
    assert shared == {n: [array(number).tolist() for number in range(n)] for n in (0, 1, 2, 8)}
    assert first == [torch.arange(9).view(3, 3).tolist(), True]


def test_one_process_needs_no_exchange():
    assert ranks.slices(7) == [0, 7]
    shared = ranks.share_jobs(3, array, 5, in_turn)
    assert [each.tolist() for each in shared] == [array(number).tolist() for number in range(3)]
    with pytest.raises(ZeroDivisionError) as caught, ranks.failing_together():
        1 / 0  # noqa: B018
    assert not hasattr(caught.value, "__notes__")


def failures(rank):
    """The messages that this rank gets when another fails at different places; afterwards ranks still talk."""

    def fail(on):
        if rank == on:
            raise MemoryError("no room")

    def in_a_job():
        ranks.share_jobs(4, lambda number: array(number) if number < 3 else fail(2) or array(3), 1, in_turn)

    def before_others_wait():
        with ranks.failing_together():
            fail(1)
            ranks.add_up(torch.ones(1))

    def at_the_end():
        with ranks.failing_together():
            ranks.add_up(torch.ones(1))
            ranks.largest(rank)
            fail(0)

    def nested():
        with ranks.failing_together():
            ranks.largest(rank)
            ranks.from_first(lambda: fail(0) or [])

    def different():
        with ranks.failing_together():
            ranks.share_jobs(4, array, rank, in_turn)

    messages = {}
    for task in (in_a_job, before_others_wait, at_the_end, nested, different):
        with pytest.raises((MemoryError, RuntimeError, ValueError)) as caught:
            task()
        messages[task.__name__] = str(caught.value)
        assert ranks.largest(rank) == 2
    return messages


def test_a_failure_on_one_rank_reaches_all():
    results = on_ranks(3, failures)
    for task, failing in (("in_a_job", 2), ("before_others_wait", 1), ("at_the_end", 0), ("nested", 0)):
        for rank, messages in enumerate(results):
            told = f"composing batches failed on rank {failing}: MemoryError: no room"
            assert messages[task] == ("no room" if rank == failing else told)
    assert all(messages["different"].startswith("the ranks are about to compose") for messages in results)
