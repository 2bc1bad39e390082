"""Mining with codes of several bits per dimension: with and without floats, from a hasher that is fitted once."""

import os

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike import Filters, ScalarHasher, mine_hard_negatives, scalar_topk
from lookalike.data.synthetic import clustered_embeddings
from lookalike.mining import Merge, Search, Shard, UnfinishedError, mine_embeddings
from lookalike.mining.cells import Grid, read_cell
from lookalike.mining.codes_on_disk import CodeFiles
from lookalike.mining.embeddings import NormalizedRows
from lookalike.mining.engines import InProcess
from lookalike.mining.fitting import Fitting, row_fitting, text_fitting
from lookalike.mining.scoring import DecodedScores
from lookalike.mining.stages import complete, fitted
from lookalike.utils.lists import make_lists
from tests.mining.cells import embeddings, make_run
from tests.mining.shares import Words, encoded, killed_in, letters, mine_rows, mine_texts
from tests.mining.words import make_columns, read_jsonl, write_jsonl
from tests.processes import Child, wait_until

SCALAR = {"code": "scalar", "bits": 64}


def hasher_of(folder, x, bits=64):
    return fitted(row_fitting(folder, NormalizedRows("embeddings", x, min_rows=1), bits), InProcess())


@pytest.mark.parametrize("distinct", [None, 15])
@pytest.mark.parametrize(("block", "column"), [(16, 1), (7, 2), (1000, 64)])
def test_neighbours_are_those_of_one_search(tmp_path, monkeypatch, distinct, block, column):
    monkeypatch.setattr(Grid, "COLUMN", column)
    x, y = embeddings(50, distinct=distinct), embeddings(130, seed=1, distinct=distinct)
    run = make_run(tmp_path, x, y, block=block, oversampling=2, exclude=[[i, i + 60] for i in range(50)], **SCALAR)
    complete(run, InProcess())
    queries, reference = (run.scalar.encode(normalize(torch.from_numpy(each), dim=1)) for each in (x, y))
    exclude = make_lists([[i, i + 60] for i in range(50)])
    expected = scalar_topk(queries, reference, run.pipeline.shortlist, exclude=exclude, backend="plain")
    for cell in run.finishes:
        found = run._found(cell.rows)
        rows = slice(cell.rows.start, cell.rows.stop)
        assert torch.equal(found.distances, expected.distances[rows])
        assert torch.equal(found.indices, expected.indices[rows])
    stored = [read_cell(run.path(cell))["distances"] for cell in run.grid.cells("search")]
    assert {each.dtype for each in stored} == {torch.int16}


def test_the_farthest_codes_fit_into_what_cells_store(tmp_path, monkeypatch):
    """Distances of up to 32,767, in several columns: hints must not cut them off."""
    monkeypatch.setattr(Grid, "COLUMN", 1)
    x = embeddings(40)
    y = np.concatenate([-x, -x[::-1]])
    run = make_run(tmp_path, x, y, num_negatives=80, oversampling=1, rescore="codes", bits=512)
    complete(run, InProcess())
    found = torch.cat([run._found(cell.rows).distances for cell in run.finishes])
    assert int(found.max()) > 32_000
    assert (found >= 0).all()


def test_a_shortlist_of_them_is_scored_by_floats():
    x, labels = clustered_embeddings(600, dim=48, offset=1.0, seed=0)
    true = normalize(x, dim=1) @ normalize(x, dim=1).T
    true[labels[:, None] == labels] = -torch.inf
    mined = mine_embeddings(x, labels=labels, code="scalar", bits=128, verbose=False)
    assert torch.equal(mined.indices, true.topk(3, dim=1).indices)
    torch.testing.assert_close(mined.scores, true.topk(3, dim=1).values)


@pytest.mark.parametrize("given", ["labels", "positives"])
def test_floats_of_queries_are_compared_with_decoded_codes(tmp_path, given):
    x, labels = clustered_embeddings(300, dim=24, offset=1.0, seed=0)
    options = {"labels": labels} if given == "labels" else {"positives": torch.arange(300).roll(1)}
    mined = mine_embeddings(
        x, rescore="codes", bits=128, oversampling=300, filters=Filters(max_score=0.9), verbose=False, **options
    )
    rows = normalize(x, dim=1)
    hasher = hasher_of(tmp_path, x.numpy(), 128)
    scores = rows @ hasher.decode(hasher.encode(rows)).T
    scores[labels[:, None] == labels] = -torch.inf
    if given == "positives":
        scores = rows @ hasher.decode(hasher.encode(rows)).T
        scores.fill_diagonal_(-torch.inf)
        scores[torch.arange(300), torch.arange(300).roll(1)] = -torch.inf
    scores[scores > 0.9] = -torch.inf
    torch.testing.assert_close(mined.scores, scores.topk(3, dim=1).values, atol=1e-5, rtol=0)
    assert (mined.indices == scores.topk(3, dim=1).indices).float().mean() > 0.99  # all but ties


def test_decoding_tells_more_than_comparing_two_codes(tmp_path):
    x, _ = clustered_embeddings(500, dim=48, offset=1.0, seed=1)
    x = normalize(x, dim=1)
    hasher = ScalarHasher(48, 64)
    hasher.update(x)
    codes = hasher.encode(x)
    files = CodeFiles(tmp_path, "reference", 500, 8, 128)
    for first in range(0, 500, 128):
        files.write(range(first, min(first + 128, 500)), codes.packed[first : first + 128])
    places, ids = torch.arange(100).repeat_interleave(30), torch.arange(3000) * 7 % 500
    scorer = DecodedScores(50, NormalizedRows("embeddings", x.numpy(), min_rows=1), files, hasher)
    true = (x[places + 50] * x[ids]).sum(1)
    estimated = codes.scheme.cosines(codes.scheme.compare(codes.packed[places + 50], codes.packed[ids])).float()
    scores = scorer.of_pairs(places, ids)
    assert (scores - true).square().mean() < 0.8 * (estimated - true).square().mean()
    lists = scorer.of_lists(torch.arange(100), ids.view(100, 30).where(torch.arange(30) > 1, -1), torch.empty(0))
    assert (lists[:, :2] == -torch.inf).all()
    torch.testing.assert_close(lists[:, 2:].flatten(), scores.view(100, 30)[:, 2:].flatten())


@pytest.mark.parametrize("picks", [1, 3, 200])
def test_few_codes_are_read_as_all_are(tmp_path, monkeypatch, picks):
    codes = torch.randint(256, (200, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    files = CodeFiles(tmp_path, "reference", 200, 16, 64)
    for first in range(0, 200, 64):
        files.write(range(first, min(first + 64, 200)), codes[first : first + 64])
    ids = torch.randint(200, (picks,), generator=torch.Generator().manual_seed(1))
    for apart in (0, 1 << 13):
        monkeypatch.setattr("lookalike.mining.codes_on_disk.APART", apart)
        assert torch.equal(files.take(ids), codes[ids])
    monkeypatch.setattr("lookalike.mining.codes_on_disk.APART", 0)
    os.truncate(files.path(range(128, 192)), 100)
    with pytest.raises(ValueError, match="was truncated while it was read"):
        files.take(torch.tensor([190]))


@pytest.mark.parametrize("rescore", ["floats", "codes"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (embeddings(4), embeddings(1, seed=1)),
        (embeddings(2), None),
        (embeddings(9, dim=40), None),
        (embeddings(20, distinct=1), None),
        (np.zeros((5, 12), np.float32), None),
        (embeddings(1), embeddings(30, seed=1)),
    ],
    ids=["one reference", "two rows", "fewer rows than dimensions", "all equal", "zeros", "one query"],
)
def test_small_problems(x, y, rescore):
    mined = mine_embeddings(x, y, rescore=rescore, verbose=False, **SCALAR)
    others = len(x) - 1 if y is None else len(y)
    assert (mined.indices >= 0).sum(1).tolist() == [min(3, others)] * len(x)
    assert torch.isfinite(mined.scores[mined.indices >= 0]).all()
    if y is None:
        assert not (mined.indices == torch.arange(len(x))[:, None]).any()


@pytest.mark.parametrize("bad", [[7], range(30)], ids=["one row", "all rows"])
def test_a_row_that_is_not_finite_is_named(tmp_path, bad):
    x = embeddings(30)
    x[list(bad), 3] = np.nan
    with pytest.raises(ValueError, match=f"embeddings must hold finite embeddings, but row {bad[0]} has NaN"):
        mine_embeddings(x, rescore="codes", output=tmp_path / "out.npy", verbose=False, **SCALAR)
    assert list(tmp_path.iterdir()) == []


def test_a_text_without_an_embedding_is_named(tmp_path):
    pytest.importorskip("datasets")
    pairs = write_jsonl(tmp_path / "pairs.jsonl", make_columns())
    bad = make_columns()["answer"][9]

    def encode(texts):
        x = letters(texts)
        x[[text == bad for text in texts]] = torch.nan
        return x

    with pytest.raises(ValueError, match=f"the model returns NaN or infinity for the text '{bad[:60]}"):
        mine_hard_negatives(str(pairs), encode, output=tmp_path / "out.jsonl", rescore="codes", verbose=False)


@pytest.fixture
def pairs_file(tmp_path):
    pytest.importorskip("datasets")
    return write_jsonl(tmp_path / "pairs.jsonl", make_columns())


def statistics(folder):
    return {path.name: path.read_bytes() for path in folder.glob("statistics-*")}


def test_a_cache_is_used_again_and_holds_no_floats(pairs_file, tmp_path):
    seen, cache = tmp_path / "seen", tmp_path / "cache"
    seen.mkdir()
    options = {"rescore": "codes", "bits": 64, "cache_folder": cache}
    mine_texts(pairs_file, tmp_path / "a.jsonl", seen, **options)
    assert len(encoded(seen)) == 64 + 126
    rows = [path.stat().st_size for path in cache.glob("*/rows.bin")]
    assert sum(rows) == 126 * 8
    kept = statistics(cache)
    assert len(kept) == 2
    mine_texts(pairs_file, tmp_path / "b.jsonl", seen, **options)
    assert len(encoded(seen)) == 64 + 126
    assert statistics(cache) == kept
    assert read_jsonl(tmp_path / "a.jsonl") == read_jsonl(tmp_path / "b.jsonl")
    mine_texts(pairs_file, tmp_path / "c.jsonl", seen, **{**options, "bits": 128})  # the same statistics, other codes
    assert len(encoded(seen)) == 64 + 126 + 126
    for path in cache.glob("statistics-*"):  # damaged: fitted again, to the same
        path.write_bytes(path.read_bytes()[:-9])
    mine_texts(pairs_file, tmp_path / "d.jsonl", seen, **options)
    assert len(encoded(seen)) == 2 * 64 + 126 + 126
    assert read_jsonl(tmp_path / "d.jsonl") == read_jsonl(tmp_path / "a.jsonl")


def test_codes_of_other_statistics_never_meet(pairs_file, tmp_path):
    """Stores are named after the scheme of their codes, and so is the folder of the cells."""
    cache = tmp_path / "cache"
    options = {"rescore": "codes", "bits": 64, "cache_folder": cache}
    mine_texts(pairs_file, tmp_path / "a.jsonl", **options)
    stores = set(cache.glob("document-*"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lookalike.mining.fitting.SAMPLED_TEXTS", 20)
        mine_texts(pairs_file, tmp_path / "b.jsonl", **options)
    assert len(statistics(cache)) == 4
    assert set(cache.glob("document-*")) > stores
    mine_texts(pairs_file, tmp_path / "c.jsonl", **options)
    assert read_jsonl(tmp_path / "c.jsonl") == read_jsonl(tmp_path / "a.jsonl")


def test_a_merge_fits_nothing_and_a_shard_may_come_alone(pairs_file, tmp_path):
    options = {"rescore": "codes", "bits": 64}
    with pytest.raises(UnfinishedError, match=r"cells \(encode\) are missing: start the shards again"):
        mine_texts(pairs_file, tmp_path / "out.jsonl", engine=Merge(), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]
    with pytest.raises(UnfinishedError, match="Shard 2/2 has done its share"):
        mine_texts(pairs_file, tmp_path / "out.jsonl", engine=Shard(2, 2), **options)
    assert len(statistics(tmp_path / "out.jsonl.cache")) == 2


def test_a_job_with_another_model_is_refused(pairs_file, tmp_path):
    options = {"rescore": "codes", "bits": 64}
    with pytest.raises(UnfinishedError):
        mine_texts(pairs_file, tmp_path / "out.jsonl", engine=Shard(1, 2), **options)
    other = Words()
    other.name = "other words"
    with pytest.raises(ValueError, match="holds an unfinished job with different model"):
        mine_hard_negatives(str(pairs_file), other, output=tmp_path / "out.jsonl", verbose=False, **options)


def _waiting(folder, x):
    """Fit, and wait in between until the parent ends this."""
    import multiprocessing

    def sample(_):
        print("sampling", flush=True)
        multiprocessing.parent_process().join()

    fitting = row_fitting(folder, NormalizedRows("embeddings", x, min_rows=1), 64)
    object.__setattr__(fitting, "sample", sample)
    fitting.do(fitting.cell)


def test_whoever_fits_may_be_killed(tmp_path):
    x = embeddings(40)
    with Child(_waiting, tmp_path, x) as child:
        wait_until(lambda: child.printed, child)
        child.kill()
        child.wait()
    hasher = hasher_of(tmp_path, x)
    again = hasher_of(tmp_path, x[:39] + 1)  # another sample has another name
    assert hasher.scheme.identity == hasher_of(tmp_path, x).scheme.identity != again.scheme.identity


def _killed(stage, number, pairs, output, options):
    killed_in(stage, number, mine_texts, pairs, output, options=options)


@pytest.mark.parametrize(("stage", "number"), [("encode", 6), ("search", 4), ("finish", 3)])
def test_a_run_that_was_killed_ends_the_same_and_fits_nothing_again(pairs_file, tmp_path, stage, number):
    options = {"rescore": "codes", "bits": 64}
    (tmp_path / "whole").mkdir()
    mine_texts(pairs_file, tmp_path / "whole" / "out.jsonl", **options)
    output, cache = tmp_path / "out.jsonl", tmp_path / "out.jsonl.cache"
    with Child(_killed, stage, number, pairs_file, output, options) as child:
        wait_until(lambda: child.printed, child)
        child.kill()
        child.wait()
    kept = statistics(cache)
    assert len(kept) == 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fitting, "do", None)
        mine_texts(pairs_file, output, **options)
    assert output.read_bytes() == (tmp_path / "whole" / "out.jsonl").read_bytes()
    assert not cache.exists()


def test_the_number_of_threads_decides_nothing(tmp_path):
    x, threads = embeddings(3000, dim=64), torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(hasher_of(tmp_path / str(number), x, 128).scheme.identity)
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_rows_are_sampled_evenly(monkeypatch, tmp_path):
    monkeypatch.setattr("lookalike.mining.fitting.SAMPLE", 5)
    asked = []
    rows = NormalizedRows("embeddings", embeddings(21), min_rows=1)
    read = rows.read
    monkeypatch.setattr(rows, "read", lambda ids: (asked.append(ids.tolist()), read(ids))[1])
    fitting = row_fitting(tmp_path, rows, 64)
    fitting.do(fitting.cell)
    assert asked == [[0, 5, 10, 15, 20]]


def test_texts_are_told_apart_by_sample_model_and_prompt(tmp_path):
    from types import SimpleNamespace

    class Texts(list):
        def take(self, ids):
            return [self[i] for i in ids]

    def name(texts, model="m", prompt=(None, None)):
        return text_fitting(tmp_path, Texts(texts), SimpleNamespace(fingerprint=model), prompt, 64).name

    base = name(["a", "b"])
    assert base == name(["a", "b"])
    assert len({base, name(["a", "c"]), name(["a", "b"], "n"), name(["a", "b"], prompt=("q: ", None))}) == 4


@pytest.mark.parametrize(
    ("options", "length", "scalar", "center"),
    [
        ({}, 512, False, 0.5),
        ({"rescore": "codes"}, 1024, True, 0.0),
        ({"rescore": "codes", "code": "signs"}, 1024, False, 0.0),
        ({"code": "scalar"}, 512, True, 0.5),
        ({"rescore": "codes", "bits": 96}, 96, True, 0.0),
    ],
)
def test_defaults_depend_on_what_scores(options, length, scalar, center):
    search = Search(**options)
    assert (search.length, search.is_scalar, search.center) == (length, scalar, center)
    assert search.settings()["code"] == ("scalar" if scalar else "signs")
    assert search.settings()["bits"] == length


def test_a_summary_says_what_defaults_stood_for(tmp_path):
    import json

    np.save(tmp_path / "x.npy", embeddings(30))
    mine_rows(tmp_path / "x.npy", tmp_path / "out.npy", rescore="codes")
    options = json.loads((tmp_path / "out.summary.json").read_text())["options"]
    assert options.items() >= {"code": "scalar", "rescore": "codes", "bits": 64}.items()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.npy",
        "out.scores.npy",
        "out.summary.json",
        "x.npy",
    ]
