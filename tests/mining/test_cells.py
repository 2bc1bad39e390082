"""Cells cover everything once, and their files are whole or not there."""

import errno
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike.mining import cells
from lookalike.mining.cells import BLOCK, Cell, Grid, default_block, is_whole, read_cell, write_cell
from lookalike.utils.files import DiskFullError, UnwritableError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cells" / "search-query-000000000000-000000000000"


CONTENT = {"counts": torch.tensor([1, 2], dtype=torch.int32), "nothing": torch.empty(0, 3)}


@given(
    queries=st.integers(1, 60),
    references=st.integers(1, 60),
    block=st.integers(1, 70),
    column=st.integers(1, 5),
    itself=st.booleans(),
    encodes=st.booleans(),
)
def test_every_row_and_every_pair_is_in_one_cell(queries, references, block, column, itself, encodes):
    references = queries if itself else references
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Grid, "COLUMN", column)
        grid = Grid(queries, references, itself, encodes, block)
        everything = [cell for stage in cells.STAGES for cell in grid.cells(stage)]
        searches = grid.cells("search")
        of_rows = [cell for row in grid.cells("finish") for cell in grid.searches(row.rows)]
    assert len({cell.name for cell in everything}) == len(everything)
    assert sorted((cell.name, cell.columns) for cell in of_rows) == sorted((c.name, c.columns) for c in searches)
    pairs = [(i, j) for cell in searches for i in cell.rows for j in cell.columns]
    assert sorted(pairs) == [(i, j) for i in range(queries) for j in range(references)]
    assert sum(cell.size for cell in searches) == queries * references
    sides = {"reference": references} if itself else {"reference": references, "query": queries}
    for stage, wanted in (("encode", sides if encodes else {}), ("hash", sides), ("finish", {"query": queries})):
        found = grid.cells(stage)
        assert [cell.place for cell in found] == list(range(len(found)))
        rows = {side: [i for c in found if c.side == side for i in c.rows] for side in {c.side for c in found}}
        assert rows == {side: list(range(n)) for side, n in wanted.items()}
        assert all(len(cell.rows) <= block and cell.rows.start % block == 0 for cell in found)


def test_many_queries_have_larger_blocks():
    assert [default_block(n) // BLOCK for n in (1, (1 << 24) - 1, 1 << 24)] == [1, 1, 4]


@pytest.mark.parametrize(
    ("queries", "most", "block"),
    [(1, 64, BLOCK), (1, 65, BLOCK // 2), (1 << 24, 16, 4 * BLOCK), (1 << 24, 65, BLOCK // 2), (9, 1 << 30, 1 << 10)],
)
def test_blocks_are_smaller_where_a_query_has_many_positives(queries, most, block):
    """Each of its queries gets as many more candidates, which have to fit into memory."""
    assert default_block(queries, most) == block


def test_a_cell_is_read_back(path):
    assert read_cell(path) is None
    assert not is_whole(path)
    write_cell(path, CONTENT)
    found = read_cell(path)
    assert found.keys() == CONTENT.keys()
    assert all(torch.equal(found[name], CONTENT[name]) for name in CONTENT)
    assert is_whole(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    write_cell(path, b"")  # of no rows
    assert is_whole(path)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 30, -1, -4, -5])
def test_a_file_that_was_cut_counts_as_missing(path, size):
    write_cell(path, CONTENT)
    whole = path.stat().st_size
    os.truncate(path, size % whole)
    assert not is_whole(path)
    assert read_cell(path) is None


def test_every_byte_counts(path):
    write_cell(path, CONTENT)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_whole(path)
        assert read_cell(path) is None
    path.write_bytes(whole + b"x")
    assert not is_whole(path)


def test_a_checksum_is_of_all_parts_that_are_read(path, monkeypatch):
    monkeypatch.setattr(cells, "READ", 7)
    write_cell(path, CONTENT)
    assert is_whole(path)
    path.write_bytes(path.read_bytes()[:20] + b"!" + path.read_bytes()[21:])
    assert not is_whole(path)


def test_a_full_disk_leaves_no_part_of_a_cell(path, monkeypatch):
    write_cell(path, CONTENT)
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"no room left for search-query-.*: what is complete is kept; make room"):
        write_cell(path, {"counts": torch.zeros(9)})
    assert [each.read_bytes() for each in path.parent.iterdir()] == [before]


def test_a_file_in_the_way_of_the_folder_is_named(path):
    path.parent.write_text("")
    with pytest.raises(UnwritableError, match="cells is a file where a folder is needed"):
        write_cell(path, CONTENT)


def test_names_sort_as_rows_do():
    names = [Cell("hash", "query", range(start, start + 10)).name for start in (0, 10, 1000, 10**9)]
    assert names == sorted(names)
