"""An output is there whole or not at all, whatever stops the run, and its summary and scores belong to it."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from lookalike import mine_hard_negatives
from lookalike.mining import (
    MiningInterrupted,
    Summary,
    embeddings,
    formats,
    job,
    mine_embeddings,
    outputs,
    run,
    store,
    text_mining,
)
from lookalike.mining.store import Store
from lookalike.utils.files import DiskFullError, UnwritableError
from lookalike.utils.locks import FolderInUseError, locked

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")


@pytest.fixture(params=["out.jsonl", "out.npy", "out.parquet"])
def mine_to(request, dataset, model, tmp_path):
    """A function that writes rows of texts, or row numbers, and its output."""
    output = tmp_path / request.param
    x = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)

    def write(**options):
        if output.suffix == ".jsonl":
            return mine_hard_negatives(dataset, model, verbose=False, output=output, **options)
        return mine_embeddings(x, bits=64, verbose=False, output=output, **options)

    return write, output


def test_the_summary_of_another_output_is_not_replaced(mine_to, tmp_path):
    write, output = mine_to
    other = output.with_suffix(".npy" if output.suffix == ".parquet" else ".parquet")
    (tmp_path / "out.summary.json").write_text("{}")
    other.touch()
    with pytest.raises(ValueError, match=rf"out\.summary\.json belongs to .*{other.name}, and would be replaced"):
        write()
    assert (tmp_path / "out.summary.json").read_text() == "{}"
    other.unlink()  # what a run left that was killed before its rows were in place
    write()
    assert (tmp_path / "out.summary.json").read_text() != "{}"


def stopped(*_, **__):
    raise KeyboardInterrupt


def cache_of(output):
    return output.with_name(f"{output.name}.cache")


def test_the_summary_is_printed_and_written(dataset, model, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    summary = mine_hard_negatives(dataset, model, output=output, max_score=0.85, min_score=0.8)
    shown = capsys.readouterr().out
    written = json.loads((tmp_path / "out.summary.json").read_text())
    assert written["rows"] == len(output.read_text().splitlines())
    assert Summary(**{name: written[name] for name in Summary.__dataclass_fields__}) == summary
    short, without = (sum(reasons.values()) for reasons in (summary.queries_short, summary.queries_without))
    assert summary.queries == summary.queries_complete + short + without == 62
    assert min(short, without, summary.queries_complete, *summary.dropped.values()) > 0
    assert f"max_score dropped {summary.dropped['max_score']:,} candidates" in shown
    assert "have no negative and are left out: " in shown
    assert f"│ count  │ {summary.scores['positives']['count']:>9}" in shown
    assert 0.8 <= summary.scores["negatives"]["min"] <= summary.scores["negatives"]["max"] <= 0.85
    assert shown.endswith(f"Written: {output} ({written['rows']:,} rows), out.summary.json\n")


@pytest.mark.parametrize("name", ["out.jsonl", "out"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_score": 0.9999}, r"no query has a negative left \(min_score\), so nothing is written; loosen"),
        ({"min_score": 0.9999, "output_format": "labeled-pair"}, r"no query has a negative left \(min_score\)"),
        ({"num_negatives": 80, "output_format": "n-tuple"}, "nothing to write to .* lower num_negatives"),
    ],
)
def test_an_output_without_negatives_is_not_written(dataset, model, tmp_path, options, sentence, name):
    with pytest.raises(ValueError, match=sentence):
        mine_hard_negatives(dataset, model, output=tmp_path / name, verbose=False, **options)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.cache"]  # the next run encodes nothing


def test_a_resumed_run_scores_as_the_model_does_now(dataset, other_model, tmp_path, monkeypatch):
    options = {"output_scores": True, "verbose": False}
    with monkeypatch.context() as patched:
        patched.setattr(text_mining, "writing_rows", stopped)  # all cells are done, and nothing is written
        with pytest.raises(MiningInterrupted):
            mine_hard_negatives(dataset, other_model, output=tmp_path / "out.jsonl", **options)
    other_model.similarity_fn_name = "euclidean"
    mine_hard_negatives(dataset, other_model, output=tmp_path / "out.jsonl", **options)
    mine_hard_negatives(dataset, other_model, output=tmp_path / "alone.jsonl", **options)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_a_disk_that_fills_up_while_a_part_is_written_loses_nothing(dataset, model, tmp_path, monkeypatch):
    output = tmp_path / "out"

    def filling(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(formats, "_batches", filling)
        with pytest.raises(
            DiskFullError, match=r"no room left for finish-query-0+.parquet .*: what is complete is kept"
        ):
            mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert not list(tmp_path.rglob("*.tmp"))
    for name in ("encode_query", "encode_document"):
        monkeypatch.setattr(model, name, stopped)
    mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert not cache_of(output).exists()


def test_a_disk_that_fills_up_at_the_end_loses_nothing(dataset, model, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    made = text_mining.make_rows

    def filling(*arguments):
        yield next(made(*arguments))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(text_mining, "make_rows", filling)
        with pytest.raises(DiskFullError) as caught:
            mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert f"no room left for {output} (No space left on device): what was encoded is kept" in str(caught.value)
    assert not output.exists()
    assert not list(tmp_path.glob("*.tmp"))
    for name in ("encode_query", "encode_document"):
        monkeypatch.setattr(model, name, stopped)
    mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert not cache_of(output).exists()


@pytest.mark.parametrize(("chunks", "kept"), [(0, None), (2, 32)])
def test_interrupted_it_says_what_is_kept(dataset, model, tmp_path, monkeypatch, chunks, kept):
    """Ctrl-C comes after some chunks of 16 texts."""
    output = tmp_path / "out.jsonl"
    monkeypatch.setattr(Store, "CHUNK", 16)
    encode, calls = model.encode_document, []

    def stopping(*arguments, **options):
        if len(calls) == chunks:
            raise KeyboardInterrupt
        calls.append(arguments)
        return encode(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(model, "encode_document", stopping)
        with pytest.raises(MiningInterrupted) as caught:
            mine_hard_negatives(dataset, model, output=output, verbose=False)
    cache = cache_of(output)
    if kept is None:
        assert str(caught.value).startswith("Interrupted before the first chunk of up to 16 texts was encoded")
        assert not cache.exists()
    else:
        sentence = f"{kept} of 126 texts are encoded and kept in {cache}; the next run resumes from there."
        assert str(caught.value) == f"Interrupted: {sentence}"
    mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert not cache.exists()


def test_interrupted_again_it_counts_what_earlier_runs_kept(dataset, model, tmp_path, monkeypatch):
    output, options = tmp_path / "out.jsonl", {"block": 40, "verbose": False}
    encode, calls = model.encode_document, []

    def second_fails(*arguments, **more):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(*arguments, **more)

    monkeypatch.setattr(model, "encode_document", second_fails)
    for kept in (40, 64):
        with pytest.raises(MiningInterrupted, match=f"Interrupted: {kept} of 126 texts are encoded and kept in "):
            mine_hard_negatives(dataset, model, output=output, **options)
        calls.clear()
        monkeypatch.setattr(model, "encode_query", stopped)


def test_interrupted_while_it_writes_it_keeps_what_was_encoded(dataset, model, model_folder, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(text_mining, "make_rows", stopped)
        with pytest.raises(MiningInterrupted, match=r"126 of 126 texts are encoded and kept in .*out\.jsonl\.cache"):
            mine_hard_negatives(dataset, model, output=output, verbose=False)
    with monkeypatch.context() as patched:
        patched.setattr(text_mining, "load_models", stopped)
        with pytest.raises(MiningInterrupted, match="Interrupted before anything was encoded: nothing new is kept"):
            mine_hard_negatives(dataset, str(model_folder), output=tmp_path / "other.jsonl", verbose=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.cache"]


def test_interrupted_with_what_others_have_cached_it_claims_nothing(dataset, model_folder, tmp_path, monkeypatch):
    options = {"cache_folder": tmp_path / "cache", "verbose": False}
    mine_hard_negatives(dataset, str(model_folder), output=tmp_path / "first.jsonl", **options)
    monkeypatch.setattr(text_mining, "load_models", stopped)
    with pytest.raises(MiningInterrupted, match="Interrupted before anything was encoded: nothing new is kept"):
        mine_hard_negatives(
            dataset.select([0]), str(model_folder), corpus=["another"], output=tmp_path / "second.jsonl", **options
        )


def test_interrupted_once_the_output_is_complete_it_says_so(mine_to, monkeypatch):
    mine, output = mine_to
    places = [(Summary, "show")]
    if output.suffix == ".jsonl":  # embeddings leave nothing to remove
        places.append((store.shutil, "rmtree"))
    for place in places:
        with monkeypatch.context() as patched:
            patched.setattr(*place, stopped)
            with pytest.raises(MiningInterrupted) as caught:
                mine(force=True)
        said = str(caught.value)
        assert f"Interrupted, but the output is complete. Written: {output}, out.summary.json." in said
        assert "kept" not in said
        left = cache_of(output).exists()
        assert (f"{cache_of(output)} is left over and can be deleted." in said) == left == (place[1] == "rmtree")
        assert output.exists()


def test_embeddings_that_are_interrupted_say_which_cells_are_kept(tmp_path, monkeypatch):
    x = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    output = tmp_path / "out.npy"
    arguments = {"labels": np.arange(40) // 2, "bits": 64, "verbose": False}
    with monkeypatch.context() as patched:
        patched.setattr(embeddings.NormalizedRows, "blocks", stopped)
        with pytest.raises(MiningInterrupted, match=r"Interrupted: nothing is written\."):
            mine_embeddings(x, output=output, **arguments)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(KeyboardInterrupt) as caught:  # without files there is nothing to say
            mine_embeddings(x, **arguments)
        assert not isinstance(caught.value, MiningInterrupted)
    with monkeypatch.context() as patched:
        patched.setattr(run, "least_similar_positives", stopped)  # 3 blocks are hashed and searched
        with pytest.raises(MiningInterrupted) as caught:
            mine_embeddings(x, output=output, block=16, **arguments)
    kept = f"6 cells are done and kept in {cache_of(output)}; the next run resumes from there."
    assert str(caught.value) == f"Interrupted: {kept}"
    with monkeypatch.context() as patched:
        patched.setattr(embeddings.NormalizedRows, "blocks", stopped)
        mine_embeddings(x, output=output, block=16, **arguments)
    assert not cache_of(output).exists()


def test_one_process_at_a_time_makes_an_output(dataset, model, tmp_path):
    output = tmp_path / "out.jsonl"
    for leftover in ("out.jsonl.abcdefgh.tmp", "out.summary.json.abcdefgh.tmp"):
        (tmp_path / leftover).write_text("of a process that was killed")
    (tmp_path / "mine.tmp").write_text("of the user")
    with locked(tmp_path / "out.jsonl.cache"):
        for more in ({}, {"cache_folder": tmp_path / "cache"}):
            with pytest.raises(FolderInUseError, match=rf"out.jsonl.cache is in use by process {os.getpid()} \("):
                mine_hard_negatives(dataset, model, output=output, verbose=False, **more)
    assert not output.exists()
    mine_hard_negatives(dataset, model, output=output, verbose=False)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.tmp", "out.jsonl", "out.summary.json"}


def test_killed_at_any_moment_it_leaves_no_files_of_two_runs(mine_to, tmp_path, monkeypatch):
    """Overwriting, the files are looked at after every change of a name: this is what a kill would leave."""
    mine, output = mine_to
    targets = [output, tmp_path / "out.summary.json"]
    if output.suffix == ".npy":
        targets.append(tmp_path / "out.scores.npy")
    mine()
    old = {path: path.stat().st_ino for path in targets}
    seen, ready = [], []

    def watched(change):
        def changed(path, *more, **options):
            if path == output and path.exists():
                ready.extend(temporary.read_bytes() for temporary in tmp_path.glob(f"{output.name}.*.tmp"))
            result = change(path, *more, **options)
            seen.append({path.stat().st_ino == old[path] for path in targets if path.exists()})
            return result

        return changed

    for change in ("replace", "unlink"):
        monkeypatch.setattr(Path, change, watched(getattr(Path, change)))
    mine(force=True)
    assert {True} in seen
    assert {True, False} not in seen
    assert seen[-1] == {False}
    assert ready == [output.read_bytes()]  # what fails while it is written takes no old output with it


def test_what_a_kill_after_the_output_leaves_behind_is_named(mine_to, monkeypatch):
    write, output = mine_to
    with monkeypatch.context() as patched:
        patched.setattr(job, "_tidy", lambda *_, **__: None)
        write()
    with pytest.raises(ValueError, match=rf"exists; .* {output.name}\.cache beside it is from an interrupted run"):
        write()
    write(force=True)
    assert not cache_of(output).exists()


def test_an_output_stays_until_another_is_complete(mine_to, tmp_path, monkeypatch):
    mine, output = mine_to

    def full(path, *arguments, **options):
        if path.name.startswith("out.summary.json."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(path, *arguments, **options)

    write_text = Path.write_text
    mine()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert output in before
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFullError, match="no room left"):
        mine(force=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_only_what_mining_made_is_removed(dataset, model, tmp_path):
    cache = cache_of(tmp_path / "out.jsonl")
    cache.mkdir()
    (cache / "notes.txt").write_text("of the user")
    mine_hard_negatives(dataset, model, output=tmp_path / "out.jsonl", verbose=False)
    assert [path.name for path in cache.iterdir() if not path.name.startswith(".lock")] == ["notes.txt"]


def test_a_folder_that_cannot_be_used_is_found_before_the_model_is_loaded(dataset, model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(text_mining, "load_models", stopped)
    (tmp_path / "cache").write_text("")
    with pytest.raises(UnwritableError, match="cache is a file where a folder is needed: choose another folder"):
        mine_hard_negatives(dataset, str(model_folder), cache_folder=tmp_path / "cache", verbose=False)


def test_statistics_of_nothing_are_a_count():
    assert outputs.statistics(np.array([])) == {"count": 0}
