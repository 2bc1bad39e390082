import numpy as np
import pytest

from lookalike.utils.components import connected_rows


def by_search(members):
    """The smallest row that can be reached over shared members, by looking at every row from every other."""
    groups = [{i} for i in range(len(members))]
    for _ in members:
        for i, own in enumerate(members):
            for j, other in enumerate(members):
                if set(own) & set(other):
                    groups[i] |= groups[j]
    return [min(group) for group in groups]


@pytest.mark.parametrize(("rows", "columns", "values"), [(1, 1, 1), (12, 2, 40), (20, 2, 25), (20, 3, 12), (15, 1, 4)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_connected_rows_have_one_label(rows, columns, values, seed):
    members = np.random.default_rng(seed).integers(values, size=(rows, columns))
    assert connected_rows(members).tolist() == by_search(members.tolist())


def test_long_chains_are_connected():
    members = np.random.default_rng(0).permutation(np.stack([np.arange(500), np.arange(1, 501)], axis=1))
    assert set(connected_rows(members).tolist()) == {0}


def test_no_rows():
    assert connected_rows(np.empty((0, 2), np.int64)).tolist() == []
