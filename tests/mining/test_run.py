"""Whatever the blocks, the columns and the order of cells: a run finds what comparing everything finds."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookalike.mining.cells import STAGES, Grid, read_cell
from lookalike.mining.engines import InProcess
from lookalike.mining.run import Run
from lookalike.mining.stages import complete
from tests.mining.cells import BITS, contents, embeddings, make_run, plain_negatives, plain_neighbours

ALL = 10_000  # times the candidates: the shortlist is everything


def in_any_order(run, seed):
    """Do the cells of each stage in random order, some of them twice."""
    rng = random.Random(seed)
    for stage in STAGES:
        cells = run.grid.cells(stage)
        cells += rng.sample(cells, len(cells) // 3)
        rng.shuffle(cells)
        for cell in cells:
            run.do(cell)


def found_by(run):
    parts = list(run.parts())
    return torch.cat([part.indices for part in parts]), torch.cat([part.scores for part in parts])


@pytest.fixture
def columns(monkeypatch):
    monkeypatch.setattr(Grid, "COLUMN", 2)


def problems():
    """Queries, references, labels, positives and excluded ones, with ties and duplicates; None for themselves."""
    rng = random.Random(0)
    some = lambda n, m, most: [sorted(rng.sample(range(m), rng.randint(0, most))) for _ in range(n)]  # noqa: E731
    x = embeddings(50, distinct=20)
    yield "themselves", {"x": x}
    yield "labels", {"x": x, "labels": [rng.randrange(9) for _ in x]}
    yield "excluded", {"x": x, "exclude": some(50, 50, 12)}
    y = embeddings(70, seed=1, distinct=30)
    positives = {"positives": some(50, 70, 4), "exclude": some(50, 70, 9)}
    yield "references", {"x": x, "y": y, **positives}
    yield "one query", {"x": x[:1], "y": y, "positives": [[69, 3]]}
    yield "one reference", {"x": x, "y": y[:1]}
    yield "nothing left", {"x": x[:5], "y": y[:3], "positives": [[0, 1, 2]] * 5}


def left_out(x, y=None, labels=None, positives=None, exclude=None):
    n = len(x)
    out = [set() for _ in range(n)]
    for i in range(n):
        if y is None:
            out[i] |= {i} if labels is None else {j for j in range(n) if labels[j] == labels[i]}
        out[i] |= {*(positives or [[]] * n)[i], *(exclude or [[]] * n)[i]}
    return out


@pytest.mark.parametrize("given", [pytest.param(given, id=name) for name, given in problems()])
@pytest.mark.parametrize(("block", "column"), [(16, 1), (7, 2), (1000, 64)])
@pytest.mark.parametrize("k", [3, 90])
def test_neighbours_and_negatives_are_those_of_comparing_everything(tmp_path, monkeypatch, given, block, column, k):
    monkeypatch.setattr(Grid, "COLUMN", column)
    x, y = given["x"], given.get("y", given["x"])
    out = left_out(**given)
    run = make_run(tmp_path / "bits", **given, block=block, bits=BITS, oversampling=2, num_negatives=k)
    in_any_order(run, seed=k)
    shortlist = min(run.pipeline.shortlist, len(y))
    distances, ids = plain_neighbours(x, y, shortlist, out)
    for cell in run.finishes:
        rows = slice(cell.rows.start, cell.rows.stop)
        found = run._found(cell.rows)
        assert torch.equal(found.distances, distances[rows])
        assert torch.equal(found.indices, ids[rows])
    run = make_run(tmp_path / "all", **given, block=block, bits=BITS, oversampling=ALL, num_negatives=k)
    complete(run, InProcess())
    indices, scores = found_by(run)
    true_ids, true_scores = plain_negatives(x, y, k, out)
    torch.testing.assert_close(scores, true_scores, atol=2e-6, rtol=0)
    assert torch.equal(indices >= 0, true_ids >= 0)
    for i, row in enumerate(indices.tolist()):  # of duplicates, whichever come first in bits
        there = [j for j in row if j >= 0]
        assert len(set(there)) == len(there)
        assert not set(there) & out[i]


@settings(max_examples=12)
@given(data=st.data())
def test_no_cell_depends_on_blocks_columns_or_order(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    n, m = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 60))
    x = embeddings(n, distinct=data.draw(st.integers(1, n)))
    y = data.draw(st.sampled_from([None, embeddings(m, seed=1, distinct=max(1, m // 3))]))
    labels = [i // 3 for i in range(n)] if y is None and data.draw(st.booleans()) else None
    options = {"num_negatives": data.draw(st.integers(1, 50)), "oversampling": data.draw(st.integers(1, 3))}
    options |= data.draw(
        st.sampled_from(
            [
                {"bits": 16},
                {"bits": 48, "code": "scalar"},
                {"bits": 16, "rescore": "codes", "code": "signs", "oversampling": None},
                {"bits": 48, "rescore": "codes"},
            ]
        )
    )
    results = []
    for number in range(3):
        smallest = max(1, max(n, m) // 10)  # every cell is a file that is written through to the disk
        block, column = data.draw(st.integers(smallest, 20)), data.draw(st.integers(1, 4))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Grid, "COLUMN", column)
            run = make_run(folder / str(number), x, y, labels=labels, block=block, **options)
            in_any_order(run, seed=number)
            results.append(found_by(run))
    for indices, scores in results[1:]:
        assert torch.equal(indices, results[0][0])
        assert torch.equal(scores, results[0][1])


@pytest.mark.usefixtures("columns")
def test_threads_leave_the_files_of_one_after_another(tmp_path):
    x = embeddings(60, distinct=40)
    runs = [make_run(tmp_path / name, x, bits=BITS, oversampling=2) for name in ("alone", "together")]
    complete(runs[0], InProcess())
    for stage in STAGES:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(runs[1].do, runs[1].grid.cells(stage)))
    for alone, together in zip(*(map(torch.cat, zip(*map(found_by, [run]), strict=True)) for run in runs), strict=True):
        assert torch.equal(alone, together)
    finished = [contents(run.finished) for run in runs]
    assert finished[0] == finished[1]


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("damage", ["deleted", "damaged", "of another run", "kept from before", "done twice"])
def test_hints_change_nothing(tmp_path, damage):
    """The distances that bound a search: without them, with old ones, and with a cell that has been counted already."""
    x, y = embeddings(40, distinct=30), embeddings(150, seed=1, distinct=60)
    runs = [make_run(tmp_path / name, x, y, bits=BITS, oversampling=1, num_negatives=9) for name in ("a", "b")]
    complete(runs[0], InProcess())
    run = runs[1]
    for cell in run.grid.cells("hash"):
        run.do(cell)
    searches = run.grid.cells("search")
    assert len({cell.columns.start for cell in searches}) == 5
    before = {}
    for cell in searches:
        near = run._near(cell.rows)
        if near.exists():
            if damage == "deleted":
                near.unlink()
            elif damage == "damaged":
                near.write_bytes(near.read_bytes()[:-7])
            elif damage == "of another run":  # the columns are known, the shape is not
                near.write_bytes(b"")
            elif damage == "kept from before":
                before.setdefault(near, near.read_bytes())
                near.write_bytes(before[near])
        run.do(cell)
        if damage == "done twice":
            for _ in range(3):
                run.do(cell)
    for cell in run.grid.cells("finish"):
        run.do(cell)
    assert contents(run.finished) == contents(runs[0].finished)


@pytest.mark.usefixtures("columns")
def test_hints_leave_out_what_cannot_count(tmp_path):
    """They are not decoration: later columns keep only what is nearer than what was found before."""
    x, y = embeddings(16), embeddings(400, seed=1)
    run = make_run(tmp_path, x, y, bits=BITS, oversampling=1, num_negatives=8)
    complete(run, InProcess())
    kept = [int(read_cell(run.path(cell))["counts"].sum()) for cell in run.grid.searches(range(16))]
    everything = 16 * run.pipeline.shortlist
    assert kept[0] == everything
    assert sum(kept[-4:]) < everything


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("change", ["cut", "flipped", "deleted", "emptied"])
def test_a_file_that_is_damaged_is_made_again_and_no_other(tmp_path, monkeypatch, change):
    run = make_run(tmp_path, embeddings(60), bits=BITS)
    complete(run, InProcess())
    expected = contents(tmp_path)
    done = []
    do = Run.do
    monkeypatch.setattr(Run, "do", lambda self, cell, *more: (done.append(cell.name), do(self, cell, *more)))
    for stage in STAGES:
        for cell in run.grid.cells(stage)[::3]:
            path = run.path(cell)
            whole = path.read_bytes()
            if change == "deleted":
                path.unlink()
            else:
                half = len(whole) // 2
                path.write_bytes(
                    {
                        "cut": whole[:half],
                        "flipped": whole[:half] + bytes([whole[half] ^ 4]) + whole[half + 1 :],
                        "emptied": b"",
                    }[change]
                )
            done.clear()
            complete(run, InProcess())
            assert done == [cell.name]
            found = {name: data for name, data in contents(tmp_path).items() if not name.startswith("search")}
            assert found == {name: data for name, data in expected.items() if not name.startswith("search")}
    done.clear()
    complete(run, InProcess())
    assert done == []


@pytest.mark.usefixtures("columns")
def test_a_search_that_is_damaged_when_it_is_needed_is_made_again(tmp_path):
    run = make_run(tmp_path, embeddings(60), bits=BITS)
    complete(run, InProcess())
    expected = contents(run.finished)
    for cell in run.grid.cells("search"):
        os.truncate(run.path(cell), 20)
    for cell in run.grid.cells("finish"):
        run.do(cell)
    assert contents(run.finished) == expected


def test_a_result_that_disappears_is_named(tmp_path):
    run = make_run(tmp_path, embeddings(40), bits=BITS)
    complete(run, InProcess())
    os.truncate(run.path(run.finishes[1]), 20)
    with pytest.raises(RuntimeError, match=r"finish-query-000000000016 was removed or damaged; run the same command"):
        list(run.parts())


def test_codes_that_are_cut_during_a_search_are_named(tmp_path):
    run = make_run(tmp_path, embeddings(40), bits=BITS)
    for cell in run.grid.cells("hash"):
        run.do(cell)
    os.truncate(run.path(run.grid.cells("hash")[1]), 20)
    with pytest.raises(ValueError, match="hash-reference-000000000016 was truncated while it was read"):
        run.do(run.grid.cells("search")[0])
