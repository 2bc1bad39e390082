import errno
import io
from pathlib import Path

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


@pytest.mark.parametrize(
    "values",
    [np.arange(10), np.zeros((0, 3), np.float32), np.eye(5)[:, ::2], np.ones((3, 4), order="F"), np.ones((), "<f2")],
)
def test_arrays_are_saved_as_numpy_saves_them(values):
    ours, theirs = io.BytesIO(), io.BytesIO()
    arrays.save_array(ours, values)
    np.save(theirs, np.ascontiguousarray(values))
    assert ours.getvalue() == theirs.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("write", [arrays.write_array, arrays.save_array])
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_a_full_disk_is_reported_however_little_is_written(write, size):
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb") as file:
        write(file, np.zeros(size))
    assert caught.value.errno == errno.ENOSPC
