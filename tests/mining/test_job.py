"""A job that was stopped resumes where it was: nothing is done twice, and nothing else is taken for it."""

import contextlib
import json
import os
import random
import shutil

import numpy as np
import pytest

from lookalike.mining import DryRun, Merge, MiningInterrupted, Shard, UnfinishedError
from lookalike.mining.cells import Cell
from lookalike.mining.run import Run
from lookalike.utils.locks import FolderInUseError
from tests.mining.cells import embeddings, mine, rows_of
from tests.mining.shares import encoded, killed_in, logging_cells, mine_rows, mine_texts, small_cells
from tests.mining.words import make_columns, write_jsonl
from tests.processes import Child, run_function, wait_until

pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    np.save(folder / "x.npy", embeddings(100, distinct=80))
    write_jsonl(folder / "pairs.jsonl", make_columns())
    return folder


@pytest.fixture
def cells(monkeypatch):
    """The names of the cells that are done, as they are."""
    done = []
    do = Run.do
    monkeypatch.setattr(Run, "do", lambda self, cell, *more: (do(self, cell, *more), done.append(cell.name)))
    return done


def kill(stage, number, function, source, output, options):
    killed_in(stage, number, function, source, output, options=options)


def log_cells(log, function, source, output, options):
    logging_cells(log, function, source, output, options=options)


def kill_at(moment, function, source, output, options):
    """Die by SIGKILL after so many writes of files."""
    replace = type(output).replace
    left = [moment]

    def dying(self, target):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return replace(self, target)

    type(output).replace = dying
    function(source, output, **options)


@pytest.mark.parametrize("kind", ["rows", "texts", "folder"])
def test_killed_at_random_moments_it_leaves_what_an_undisturbed_run_leaves(inputs, tmp_path, kind):
    function, source = (mine_rows, inputs / "x.npy") if kind == "rows" else (mine_texts, inputs / "pairs.jsonl")
    name = {"rows": "out.npy", "texts": "out.jsonl", "folder": "out"}[kind]
    (tmp_path / "alone").mkdir()
    (tmp_path / "killed").mkdir()
    function(source, tmp_path / "alone" / name)
    output, rng, kills = tmp_path / "killed" / name, random.Random(kind), 0
    for _ in range(6):
        run = run_function(kill_at, rng.choice([1, 3, rng.randint(2, 20)]), function, source, output, {})
        kills += run.returncode == -9
        assert run.returncode in (0, -9), run.stderr
        if run.returncode == 0:
            break
    if not output.exists():
        function(source, output)
    assert kills > 0
    assert rows_of(output.parent) == rows_of(tmp_path / "alone")
    assert sorted(path.name for path in output.parent.iterdir()) == sorted(
        path.name for path in (tmp_path / "alone").iterdir()
    )


@pytest.mark.parametrize(
    ("kind", "stage"), [("rows", "search"), ("rows", "finish"), ("texts", "encode"), ("texts", "search")]
)
def test_over_kill_and_resume_every_cell_is_done_once(inputs, tmp_path, cells, kind, stage):
    output, seen = tmp_path / ("out.npy" if kind == "rows" else "out.jsonl"), tmp_path / "seen"
    seen.mkdir()
    function, source, options = (
        (mine_rows, inputs / "x.npy", {}) if kind == "rows" else (mine_texts, inputs / "pairs.jsonl", {"seen": seen})
    )
    with Child(kill, stage, 3, function, source, output, options) as child:
        wait_until(lambda: child.printed, child)
        folder = output.with_name(f"{output.name}.cache")
        with pytest.raises(FolderInUseError, match=rf"cache is in use by process {child.pid} \("):
            function(source, output, **options)
        child.kill()
        child.wait()
        before = {each.name for each in folder.glob("cells-*/*-*") if not each.name.startswith("near")}
    assert len(before) > 1
    function(source, output, **options)
    resumed = set(cells)
    assert len(cells) == len(resumed)
    assert not resumed & {name for name in before if not name.endswith(".parquet")}
    if kind == "texts":
        assert len(encoded(seen)) == 126
    cells.clear()
    function(source, output, force=True)
    assert set(cells) == resumed | before


def interrupt(function, source, output, stage="finish", **options):
    """Stop mining before the cells of a stage."""
    do = Run.do

    def stopping(self, cell, *more):
        if cell.stage == stage:
            raise KeyboardInterrupt
        do(self, cell, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "do", stopping)
        with pytest.raises(MiningInterrupted):
            function(source, output, **options)


def stages(cells):
    return {name.split("-")[0] for name in cells}


def test_other_embeddings_are_refused_and_forced(inputs, tmp_path, cells):
    output = tmp_path / "out.npy"
    interrupt(mine_rows, inputs / "x.npy", output)
    x = np.load(inputs / "x.npy")
    x[50] *= -1
    np.save(tmp_path / "x.npy", x)
    sentence = r"out\.npy\.cache holds an unfinished job with different data \(embeddings: .*x\.npy, 100 x 12, checksum"
    with pytest.raises(ValueError, match=sentence) as caught:
        mine_rows(tmp_path / "x.npy", output)
    assert "give the same as then to resume it, begin anew with force=True, or choose another" in str(caught.value)
    with pytest.raises(ValueError, match=r"different data \(labels: None, now checksum"):
        mine_rows(inputs / "x.npy", output, labels=np.arange(100) // 2)
    cells.clear()
    mine_rows(tmp_path / "x.npy", output, force=True)
    assert stages(cells) == {"hash", "search", "finish"}
    mine_rows(tmp_path / "x.npy", tmp_path / "alone.npy")
    assert output.read_bytes() == (tmp_path / "alone.npy").read_bytes()


def test_a_row_that_is_in_no_sample_is_noticed(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("lookalike.mining.embeddings.SAMPLE", 3)
    shutil.copyfile(inputs / "x.npy", tmp_path / "x.npy")
    interrupt(mine_rows, tmp_path / "x.npy", tmp_path / "out.npy")
    x = np.load(tmp_path / "x.npy")
    x[1] *= -1
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match=r"different data \(embeddings: .*, sizes and times of files \w+, now "):
        mine_rows(tmp_path / "x.npy", tmp_path / "out.npy")


@pytest.mark.parametrize("mode", [None, "r"])
def test_a_row_of_an_array_that_is_in_no_sample_is_noticed(inputs, tmp_path, monkeypatch, mode):
    def mine_array(source, output, **options):
        with small_cells():
            return mine(np.load(source, mmap_mode=mode), output=output, **options)

    monkeypatch.setattr("lookalike.mining.embeddings.SAMPLE", 3)
    shutil.copyfile(inputs / "x.npy", tmp_path / "x.npy")
    interrupt(mine_array, tmp_path / "x.npy", tmp_path / "out.npy")
    x = np.load(tmp_path / "x.npy")
    x[1] *= -1
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match=r"different data \(embeddings: embeddings, 100 x 12, checksum \w+.*, now "):
        mine_array(tmp_path / "x.npy", tmp_path / "out.npy")


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_rows_that_are_damaged_while_the_job_rests_are_written_again(inputs, tmp_path, cells, damage):
    output, source = tmp_path / "out", inputs / "pairs.jsonl"
    for _ in range(2):  # one shard: everything but the output
        with contextlib.suppress(UnfinishedError):
            mine_texts(source, output, engine=Shard(1, 1))
    path = min(output.with_name("out.cache").glob("cells-*/*.parquet"))
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:50] if damage == "cut" else whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
    cells.clear()
    mine_texts(source, output, engine=Merge())
    assert cells == [path.stem]
    mine_texts(source, tmp_path / "alone")
    assert rows_of(output) == rows_of(tmp_path / "alone")


def test_a_dry_run_with_force_leaves_what_another_job_has_done(inputs, tmp_path):
    output = tmp_path / "out.npy"
    interrupt(mine_rows, inputs / "x.npy", output)
    before = contents_of_cache(output)
    np.save(tmp_path / "y.npy", embeddings(40))
    mine_rows(tmp_path / "y.npy", output, force=True, engine=DryRun())
    assert contents_of_cache(output) == before


def contents_of_cache(output):
    folder = output.with_name(f"{output.name}.cache")
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_other_texts_models_and_prompts_are_refused(inputs, tmp_path, model_folder):
    pytest.importorskip("sentence_transformers")
    output = tmp_path / "out.jsonl"
    interrupt(mine_texts, inputs / "pairs.jsonl", output)
    columns = make_columns()
    columns["answer"][7] += " more"
    others = write_jsonl(tmp_path / "pairs.jsonl", columns)
    with pytest.raises(ValueError, match=r"different data \(corpus: 64 texts, checksum \w+, now 64 texts, checksum"):
        mine_texts(others, output)
    with pytest.raises(ValueError, match=r"different prompts \("):
        mine_texts(inputs / "pairs.jsonl", output, query_prompt="ask: ")
    from lookalike import mine_hard_negatives

    with pytest.raises(ValueError, match=r"different model \(words, now \w+\)"):
        mine_hard_negatives(str(inputs / "pairs.jsonl"), str(model_folder), output=output, verbose=False, bits=64)
    mine_texts(inputs / "pairs.jsonl", output)
    assert output.exists()


def test_other_filters_and_bits_keep_what_stays_valid(inputs, tmp_path, cells):
    seen, output = tmp_path / "seen", tmp_path / "out.jsonl"
    seen.mkdir()
    source = inputs / "pairs.jsonl"
    interrupt(mine_texts, source, output, seen=seen)
    cells.clear()
    interrupt(mine_texts, source, output, seen=seen, bits=128, stage="finish")
    assert stages(cells) == {"encode", "hash", "search"}  # whose stores are there
    assert len(encoded(seen)) == 126
    cells.clear()
    mine_texts(source, output, seen=seen, output_format="n-tuple")
    assert stages(cells) == {"finish"}
    mine_texts(source, tmp_path / "alone.jsonl", output_format="n-tuple")
    assert output.read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_store_that_is_damaged_while_the_job_rests_is_encoded_again(inputs, tmp_path, cells, damage):
    seen, output, source = tmp_path / "seen", tmp_path / "out.jsonl", inputs / "pairs.jsonl"
    seen.mkdir()
    interrupt(mine_texts, source, output, seen=seen)
    rows = min(output.with_name("out.jsonl.cache").glob("document-*/rows.bin"))
    whole = rows.read_bytes()
    if damage == "gone":
        rows.unlink()
    else:
        rows.write_bytes(whole[:50] if damage == "cut" else bytes([whole[0] ^ 1]) + whole[1:])
    cells.clear()
    mine_texts(source, output, seen=seen)
    assert [name for name in cells if not name.startswith("finish")] == [cells[0]]
    assert cells[0].startswith("encode-reference")
    assert len(encoded(seen)) == 126 + {"flipped": 8, "cut": 16, "gone": 16}[damage]
    mine_texts(source, tmp_path / "alone.jsonl")
    assert output.read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_what_a_kill_leaves_behind_goes_in_the_end(inputs, tmp_path):
    output = tmp_path / "out.jsonl"
    folder = output.with_name("out.jsonl.cache")
    for place in ("reading", "checking"):
        (folder / place).mkdir(parents=True)
        (folder / place / ".lock").touch()
    for name in ("job.json.abcdefgh.tmp", "pairs.new.abcdefgh.tmp"):
        (folder / name).touch()
    mine_texts(inputs / "pairs.jsonl", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.summary.json"]


@pytest.mark.parametrize("note", ["{", "[" * 100_000, "[]", ""])
def test_a_damaged_note_begins_anew(inputs, tmp_path, cells, note):
    output = tmp_path / "out.npy"
    interrupt(mine_rows, inputs / "x.npy", output)
    (output.with_name("out.npy.cache") / "job.json").write_text(note)
    cells.clear()
    mine_rows(inputs / "x.npy", output)
    assert stages(cells) == {"hash", "search", "finish"}
    assert not output.with_name("out.npy.cache").exists()


def test_names_of_cells_are_those_of_their_files(inputs, tmp_path):
    interrupt(mine_rows, inputs / "x.npy", tmp_path / "out.npy")
    assert any(tmp_path.glob(f"out.npy.cache/cells-*/{Cell('hash', 'reference', range(16)).name}"))
    assert json.loads((tmp_path / "out.npy.cache" / "job.json").read_text()).keys() == {"data"}


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_shards_whose_stores_vanish_before_they_are_hashed_encode_again(inputs, tmp_path, damage):
    source, output, stores = inputs / "pairs.jsonl", tmp_path / "out.jsonl", tmp_path / "stores"
    options = {"engine": Shard(1, 1), "cache_folder": stores}
    interrupt(mine_texts, source, output, "hash", **options)
    for rows in stores.glob("*/rows.bin"):
        if damage == "gone":
            shutil.rmtree(rows.parent)
        else:
            rows.write_bytes(rows.read_bytes()[:50])
    mine_texts(source, output, **options)
    mine_texts(source, output, engine=Merge(), cache_folder=stores)
    mine_texts(source, tmp_path / "alone.jsonl")
    assert output.read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


@pytest.mark.parametrize("engine", [None, Shard(1, 1)])
def test_texts_are_kept_once_however_often_their_file_is_touched(tmp_path, engine):
    source = write_jsonl(tmp_path / "pairs.jsonl", make_columns())
    for time in range(3):
        os.utime(source, ns=(time, time))
        interrupt(mine_texts, source, tmp_path / "out.jsonl", **({} if engine is None else {"engine": engine}))
    assert len(list(tmp_path.glob("out.jsonl.cache/pairs-*"))) == (1 if engine is None else 3)
    mine_texts(source, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl.cache").exists()
