import numpy as np
import pytest

from lookalike.utils import arrays


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 1), (7, 5), (4, 4)])
@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 20])
def test_numbers_are_narrowed_where_they_are(shape, piece, monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", piece)
    numbers = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape) * 1001 - 1
    narrow = arrays.narrowed(numbers.copy())
    assert narrow.dtype == np.int32
    assert np.array_equal(narrow, numbers)


def test_half_of_the_memory_is_given_back():
    wide = np.zeros((1000, 32), np.int64)
    narrow = arrays.narrowed(wide)
    assert wide.nbytes == narrow.nbytes
    assert narrow.base is wide
