"""What the scan does to a full list."""

import numpy as np
import pytest

pytest.importorskip("numba")

from lookalike.search.scan import FAR, Lists, _keep_best

ID_BITS = 17
FARTHEST = (1 << 32 - ID_BITS) - 1  # that 32-bit keys can hold: the search for the last key must not leave them


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("k", [1, 2, 5, 128, 1000])
@pytest.mark.parametrize(
    ("nearest", "limit"), [(0, 40), (0, 0), (FARTHEST, FARTHEST), (FARTHEST - 1, FARTHEST), (7, 8)]
)
@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("last_rows", [False, True])
def test_cut_keeps_the_nearest_in_order_of_id(dtype, k, nearest, limit, passed, last_rows):
    rng = np.random.default_rng(k)
    distances = rng.integers(nearest, limit, 2 * k, endpoint=True)
    rows = (1 << ID_BITS) - 1  # the last id that is never used
    ids = np.arange(rows - 2 * k, rows) if last_rows else np.sort(rng.permutation(rows)[: 2 * k])
    keys = ((distances << ID_BITS) | ids).astype(dtype)
    limits, last_ids = np.array([limit - passed], np.int16), np.array([FAR if passed else ids[-1]])
    absent = np.array(np.iinfo(dtype).max, dtype)[()]
    lists = Lists(keys[None].copy(), ID_BITS, absent, np.array([2 * k], np.uint32), limits, last_ids)
    _keep_best(lists, 0, k)
    count = int(lists.counts[0])
    kept = lists.keys[0, :count]
    assert k <= count <= k + k // 8
    np.testing.assert_array_equal(np.sort(kept), np.sort(keys)[:count])
    assert (np.diff(kept & dtype((1 << ID_BITS) - 1)).astype(np.int64) > 0).all()
    farther = [key >> ID_BITS for key in keys.tolist() if key > kept.max()]
    assert int(kept.max()) >> ID_BITS <= lists.limits[0] + 1 <= min(farther)
    assert lists.last_ids[0] == FAR
