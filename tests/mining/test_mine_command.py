"""`lookalike mine`: every kind of input and output, and every mistake in one sentence."""

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import lookalike.cli.mine
import lookalike.cli.train  # noqa: F401 - declares the commands
from lookalike import mine_hard_negatives
from lookalike.cli.app import app
from lookalike.mining import command, encoding, outputs, sources, store
from lookalike.utils.locks import locked

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")


def mine(*arguments):
    """Run the command; what it raises is what `main` says in one line."""
    return CliRunner().invoke(app, ["mine", *map(str, arguments)])


def wrote(*arguments):
    shown = mine(*arguments)
    assert shown.exit_code == 0, (shown.output, shown.exception)
    return shown.output


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def source(pairs, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = zip(pairs["query"], pairs["answer"], strict=True)
    path.write_text("".join(json.dumps({"query": q, "answer": a}) + "\n" for q, a in rows))
    return path


@pytest.fixture
def expected(dataset, model):
    """What the function gives for the same pairs."""
    return lambda **options: mine_hard_negatives(dataset, model, verbose=False, **options).to_list()


@pytest.mark.usefixtures("source")
def test_every_kind_of_input_gives_the_same_rows(pairs, dataset, model_folder, expected, tmp_path):
    datasets.Dataset.from_dict(pairs).to_parquet(tmp_path / "pairs.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(tmp_path / "splits")
    for separator, suffix in (("\t", "tsv"), (",", "csv")):
        rows = [("query", "answer"), *zip(pairs["query"], pairs["answer"], strict=True)]
        (tmp_path / f"pairs.{suffix}").write_text("".join(f"{q}{separator}{a}\n" for q, a in rows))
    wanted = expected()
    for name in ("pairs.jsonl", "pairs.parquet", "pairs.tsv", "pairs.csv", "saved", "splits"):
        output = tmp_path / f"{name}.out.jsonl"
        wrote(tmp_path / name, "--model", model_folder, "--output", output)
        assert lines(output) == wanted, name
        assert not output.with_name(f"{output.name}.cache").exists()
    wrote(
        tmp_path / "splits",
        "--model",
        model_folder,
        "--output",
        tmp_path / "few.jsonl",
        "--split",
        "test",
        "--corpus",
        tmp_path / "pairs.parquet",
        "--corpus-column",
        "answer",
    )
    assert {row["query"] for row in lines(tmp_path / "few.jsonl")} == {pairs["query"][0]}


def test_lists_of_positives_and_files_without_a_header(pairs, model_folder, expected, tmp_path):
    answers = {}
    for query, answer in zip(pairs["query"], pairs["answer"], strict=True):
        answers.setdefault(query, []).append(answer)
    grouped = tmp_path / "grouped.jsonl"
    grouped.write_text("".join(json.dumps({"query": q, "pos": a}) + "\n" for q, a in answers.items()))
    wrote(grouped, "--model", model_folder, "--output", tmp_path / "a.jsonl", "--format", "n-tuple")
    rows = [list(row.values()) for row in lines(tmp_path / "a.jsonl")]
    assert sorted(rows) == sorted(list(row.values()) for row in expected(output_format="n-tuple"))
    plain = tmp_path / "plain.tsv"
    plain.write_text("".join(f"{q}\t{a}\n" for q, a in zip(pairs["query"], pairs["answer"], strict=True)))
    wrote(plain, "--model", model_folder, "--output", tmp_path / "b.jsonl", "--no-header")
    rows = lines(tmp_path / "b.jsonl")
    assert list(rows[0]) == ["anchor", "positive", "negative"]
    assert [list(row.values()) for row in rows] == [list(row.values()) for row in expected()]


@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_formats_of_sentence_transformers(source, model_folder, expected, tmp_path, output_format, suffix, monkeypatch):
    monkeypatch.setattr(outputs, "ROWS_AT_A_TIME", 50)  # several row groups
    output = tmp_path / f"out{suffix}"
    wrote(
        source,
        "--model",
        model_folder,
        "--output",
        output,
        "--format",
        output_format,
        "--scores",
        "--relative-margin",
        "0.05",
        "--num-negatives",
        2,
    )
    got = lines(output) if suffix == ".jsonl" else parquet.read_table(output).to_pylist()
    assert got == expected(output_format=output_format, output_scores=True, relative_margin=0.05, num_negatives=2)


def test_formats_of_other_libraries(source, pairs, model_folder, expected, tmp_path):
    negatives, answers = {}, {}
    for row in expected():
        negatives.setdefault(row["query"], dict.fromkeys([]))[row["negative"]] = None
        answers.setdefault(row["query"], dict.fromkeys([]))[row["answer"]] = None
    output = tmp_path / "flag.jsonl"
    wrote(source, "--model", model_folder, "--output", output, "--format", "flagembedding")
    rows = lines(output)
    assert [list(row) for row in rows] == [["query", "pos", "neg"]] * len(negatives)
    assert {row["query"]: row["neg"] for row in rows} == {q: list(texts) for q, texts in negatives.items()}
    assert {row["query"]: row["pos"] for row in rows} == {q: list(texts) for q, texts in answers.items()}
    wrote(source, "--model", model_folder, "--output", output, "--format", "flagembedding", "--scores", "--force")
    assert [len(row["neg_scores"]) == len(row["neg"]) for row in lines(output)] == [True] * len(rows)
    output = tmp_path / "tevatron.jsonl"
    wrote(source, "--model", model_folder, "--output", output, "--format", "tevatron")
    rows = lines(output)
    assert list(rows[0]) == ["query_id", "query", "positive_passages", "negative_passages"]
    assert [row["query_id"] for row in rows] == [str(i) for i in range(len(rows))]
    corpus = list(dict.fromkeys(pairs["answer"]))
    for row in rows:
        for name, texts in (("positive_passages", answers), ("negative_passages", negatives)):
            assert [passage["text"] for passage in row[name]] == list(texts[row["query"]])
            assert all(set(p) == {"docid", "title", "text"} and corpus[int(p["docid"])] == p["text"] for p in row[name])


def test_the_summary_is_on_the_screen_and_next_to_the_output(source, model_folder, tmp_path):
    output = tmp_path / "out.parquet"
    shown = wrote(source, "--model", model_folder, "--output", output, "--max-score", "0.85", "--min-score", "0.8")
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert summary["rows"] == parquet.read_metadata(output).num_rows
    short, without = (sum(summary[key].values()) for key in ("queries_short", "queries_without"))
    assert summary["queries"] == summary["queries_complete"] + short + without == 62
    assert min(short, without, summary["queries_complete"], *summary["dropped"].values()) > 0
    assert f"max_score dropped {summary['dropped']['max_score']:,} candidates" in shown
    assert "have no negative and are left out: " in shown
    assert f"│ count  │ {summary['scores']['positives']['count']:>9}" in shown
    assert 0.8 <= summary["scores"]["negatives"]["min"] <= summary["scores"]["negatives"]["max"] <= 0.85


def test_embeddings_become_row_numbers(tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.standard_normal((150, 40)), 2, axis=0) + 0.5 * rng.standard_normal((300, 40))
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    (tmp_path / "labels.txt").write_text("".join(f"{i // 2}\n" for i in range(300)))
    np.save(tmp_path / "partner.npy", np.arange(300) ^ 1)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = unit @ unit.T
    similarity[np.arange(300)[:, None] // 2 == np.arange(300) // 2] = -1
    true = np.argsort(-similarity, axis=1)[:, :3]
    for more in (("--labels", tmp_path / "labels.txt"), ("--positives", tmp_path / "partner.npy")):
        output = tmp_path / "negatives.npy"
        shown = wrote("--embeddings", tmp_path / "x.npy", *more, "--output", output, "--force", "--bits", 1024)
        ids, scores = np.load(output), np.load(tmp_path / "negatives.scores.npy")
        assert (ids.dtype, ids.shape, scores.dtype, scores.shape) == (np.int64, (300, 3), np.float32, (300, 3))
        assert (ids == true).mean() > 0.99
        assert np.allclose(scores, np.take_along_axis(unit @ unit.T, ids, 1), atol=1e-5)
        assert "300 embeddings of dimension 40" in shown
    output = tmp_path / "negatives.parquet"
    wrote(
        "--embeddings",
        tmp_path / "x.npy",
        "--labels",
        tmp_path / "labels.txt",
        "--output",
        output,
        "--bits",
        1024,
        "--relative-margin",
        0.4,
    )
    rows = parquet.read_table(output).to_pylist()
    assert [row["query"] for row in rows] == list(range(300))
    assert all(len(row["negatives"]) == len(row["scores"]) <= 3 for row in rows)
    summary = json.loads((tmp_path / "negatives.summary.json").read_text())
    assert summary["scores"]["negatives"]["count"] == sum(len(row["negatives"]) for row in rows)
    assert summary["scores"]["difference"]["min"] >= 0


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        ('{"query": "a", "answer": " "}', (), r"pairs.jsonl, line 1: answer is empty; correct or remove such rows"),
        ('{"query": 3, "answer": "b"}', (), "line 1: query is of type int and not a text"),
        ('{"a": "a", "b": "b"}', (), "has the columns a, b: no known pair .* with --columns a,b"),
        ('{"query": "a", "negative": "b"}', ("--columns", "query,negative"), "two columns called 'negative'; rename"),
        ('{"query": "a"', (), "line 1 is not JSON"),
        ("", (), "has no rows"),
        (None, ("--columns", "x,answer"), "has no column 'x', but query, answer"),
        (None, ("--columns", "query,x"), "has no column 'x', but query, answer"),
        (None, ("--columns", "query"), "columns must name two columns, .* as in query,answer; got 'query'"),
        (None, ("--no-header",), "pairs.jsonl names its columns itself; only .csv and .tsv files come without"),
        (None, ("--split", "test"), "--split chooses a split of a data set, but .*pairs.jsonl is a file"),
        (None, ("--format", "pairs"), "--format must be one of triplet, .* got 'pairs'"),
        (None, ("--bits", "12"), "bits must be a multiple of 8, got 12; the next one is 16"),
        (None, ("--num-negatives", "0"), "num_negatives must be at least 1, got 0"),
        (None, ("--range-max", "2"), "range_max - range_min must leave room for num_negatives=3"),
        (None, ("--range-min", "-1"), "range_min must be at least 0"),
        (None, ("--sampling", "best"), "sampling_strategy must be 'top' or 'random', got 'best'"),
        (None, ("--max-score", "0.1", "--min-score", "0.2"), "is above max_score=0.1: nothing can pass"),
        (None, ("--min-score", "0.9999"), r"no query has a negative left \(min_score\), so nothing is written"),
        (None, ("--num-negatives", "80", "--format", "n-tuple"), "nothing to write to .* lower num_negatives"),
        (None, ("--query-prompt-name", "x"), "the model has no prompt named 'x'; it has .*'ask'"),
        (None, ("--model", "nowhere"), "the model 'nowhere' cannot be loaded as a SentenceTransformer"),
        (None, ("--cross-encoder", "nowhere"), "the model 'nowhere' cannot be loaded as a CrossEncoder"),
        (None, ("--output", "out.txt"), "--output must end in .jsonl or .parquet, got out.txt"),
        (None, ("--output", "out.parquet", "--format", "tevatron"), "--output must end in .jsonl, got out.parquet"),
        (None, ("--output", "no/out.jsonl"), "no is not a folder; create it or choose another --output"),
        (None, ("--output", "there.jsonl"), "there.jsonl exists; --force overwrites it"),
        (None, ("--corpus", "there.jsonl"), "there.jsonl has no known column, but x; --corpus-column says which"),
        (None, ("--corpus", "away.txt"), "^away.txt: there is no such file.$"),
        (None, ("--labels", "x.npy"), "--labels belongs to --embeddings, which was not given"),
        (None, ("--embeddings", "x.npy"), "--model belongs to INPUT, which was not given"),
        (None, ("--device", "moon"), "there is no device .moon. here that torch can use"),
    ],
)
def test_mistakes_are_said_in_one_sentence(source, model_folder, tmp_path, monkeypatch, content, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.jsonl").write_text('{"x": "a"}\n')
    if content is not None:
        source.write_text(content + "\n")
    before = sorted(tmp_path.iterdir())
    shown = mine(source, "--model", model_folder, "--output", "out.jsonl", *arguments)
    assert isinstance(shown.exception, (ValueError, TypeError, FileNotFoundError)), shown.exception
    message = str(shown.exception)
    assert "\n" not in message
    assert message.endswith(".")
    assert re.search(sentence, message), message
    left = [path for path in tmp_path.iterdir() if not path.name.endswith(".cache")]
    assert sorted(left) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--device", "banana"), "there is no device 'banana' here that torch can use; cpu is always there."),
        (("--model", "./nothere"), "./nothere: there is no such folder of a model."),
        (("--model", "/no/such/model"), "/no/such/model: there is no such folder of a model."),
        (("--cross-encoder", "runs/judge/final"), "runs/judge/final: there is no such folder of a model."),
        (("--corpus", "away.txt"), "away.txt: there is no such file."),
        (("--corpus", "more/away.tsv"), "more/away.tsv: there is no such file."),
        (
            ("--corpus", "corpus.txt", "--corpus-column", "text"),
            "corpus.txt has a text per line and no columns; leave out --corpus-column and the like.",
        ),
    ],
)
def test_what_was_typed_is_checked_before_anything_is_read(tmp_path, monkeypatch, run_here, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text("this is not JSON\n")
    Path("corpus.txt").write_text("a text\n")
    before = sorted(tmp_path.iterdir())
    code, _, err = run_here("mine", "pairs.jsonl", "--model", "nowhere", "--output", "out.jsonl", *arguments)
    assert (code, err) == (2, f"lookalike: {sentence}\n")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "mining needs --output: the file to write"),
        (("--output", "n.npy"), "give either INPUT, pairs of texts, or --embeddings"),
        (("p.jsonl", "--output", "n.jsonl"), "mining from texts needs --model"),
        (("p.jsonl", "--embeddings", "x.npy", "--output", "n.npy"), "give either INPUT, pairs of texts, or"),
        (("--embeddings", "away.npy", "--output", "n.npy"), "away.npy: there is no such file of embeddings"),
        (("--embeddings", "x.npy", "--output", "n.jsonl"), "--output must end in .npy or .parquet, got n.jsonl"),
        (("--embeddings", "x.npy", "--output", "there.npy"), "there.scores.npy exists; --force overwrites it"),
        (("--embeddings", "ids.npy", "--output", "n.npy"), "ids.npy must hold floats, got int64"),
        (("--embeddings", "x.npy", "--labels", "ids.npy", "--output", "n.npy"), "must hold one label per embedding, 9"),
        (("--embeddings", "x.npy", "--positives", "away.npy", "--output", "n.npy"), "no such file of positives"),
        (("--embeddings", "x.npy", "--positives", "text.npy", "--output", "n.npy"), "cannot be read as positives"),
        (("--embeddings", "nan.npy", "--output", "n.npy"), "nan.npy must hold finite embeddings, but row 2 has NaN"),
    ],
)
def test_mistakes_with_embeddings_are_said_in_one_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    np.save("x.npy", x)
    np.save("ids.npy", np.arange(12).reshape(3, 4))
    np.save("there.scores.npy", x)
    Path("text.npy").write_text("none")
    x[2, 3] = np.nan
    np.save("nan.npy", x)
    before = sorted(tmp_path.iterdir())
    shown = mine(*arguments)
    assert isinstance(shown.exception, (ValueError, TypeError, FileNotFoundError)), shown.exception
    message = str(shown.exception)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith(".")
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_library_is_named_with_its_command(source, tmp_path):
    script = (
        "import sys; sys.modules['{0}'] = None; sys.argv = ['lookalike', *sys.argv[1:]];"
        "from lookalike.cli import main; main()"
    )
    for library in ("sentence_transformers", "datasets"):
        given = source if library == "sentence_transformers" else tmp_path
        arguments = ["mine", str(given), "--model", "m", "--output", str(tmp_path / "out.jsonl")]
        shown = subprocess.run(
            [sys.executable, "-c", script.format(library), *arguments], capture_output=True, text=True, check=False
        )
        assert shown.returncode == 2
        assert library.replace("_", "-") in shown.stderr
        assert shown.stderr.endswith(": pip install 'lookalike[text]'.\n")
        assert len(shown.stderr.splitlines()) == 1


def test_a_disk_that_fills_up_at_the_end_loses_nothing(source, model_folder, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"

    def filling(mined, layout):
        yield next(written(mined, layout))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    written = command.rows
    with monkeypatch.context() as patched:
        patched.setattr(command, "rows", filling)
        shown = mine(source, "--model", model_folder, "--output", output)
    assert f"no room left for {output} (No space left on device): what was encoded is kept" in str(shown.exception)
    assert not output.exists()
    assert not list(tmp_path.glob("*.tmp"))
    encoded = []

    def loaded(*arguments):
        model = original(*arguments)
        monkeypatch.setattr(model, "encode_document", lambda *a, **_: encoded.append(a))
        return model

    original = command.load_model
    monkeypatch.setattr(command, "load_model", loaded)
    wrote(source, "--model", model_folder, "--output", output)
    assert not encoded
    assert not output.with_name("out.jsonl.cache").exists()


@pytest.mark.parametrize(("encoded", "kept"), [(0, None), (2, 32)])
def test_interrupted_it_says_what_is_kept(source, model_folder, tmp_path, monkeypatch, run_here, encoded, kept):
    """Ctrl-C comes after some chunks of 16 texts."""
    output = tmp_path / "out.jsonl"
    monkeypatch.setattr(store, "CHUNK", 16)
    with monkeypatch.context() as patched:
        patched.setattr(command, "load_model", stopping_model(encoded))
        code, out, _ = run_here("mine", source, "--model", model_folder, "--output", output)
    assert code == 130
    said = " ".join(out.split())
    cache = output.with_name("out.jsonl.cache")
    if kept is None:
        assert "Interrupted before the first chunk" in said
        assert "nothing new is kept." in said
        assert not cache.exists()
    else:
        assert f"{kept} of 126 texts are encoded and kept in {cache}; the same command resumes from there" in said
    wrote(source, "--model", model_folder, "--output", output)
    assert not cache.exists()


def stopping_model(chunks):
    """A loader of models that receive Ctrl-C once they have encoded so many chunks."""

    def load(*arguments):
        model = sources.load_model(*arguments)
        encode, calls = model.encode_document, []

        def stopping(*texts, **options):
            if len(calls) == chunks:
                raise KeyboardInterrupt
            calls.append(texts)
            return encode(*texts, **options)

        model.encode_document = stopping
        return model

    return load


def test_interrupted_while_it_writes_it_keeps_what_was_encoded(source, model_folder, tmp_path, monkeypatch, run_here):
    def stopped(*_):
        raise KeyboardInterrupt

    output = tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(command, "rows", stopped)
        code, out, _ = run_here("mine", source, "--model", model_folder, "--output", output)
    assert code == 130
    assert f"126 of 126 texts are encoded and kept in {output}.cache" in " ".join(out.split())
    with monkeypatch.context() as patched:
        patched.setattr(command, "load_model", stopped)
        code, out, _ = run_here("mine", source, "--model", model_folder, "--output", tmp_path / "other.jsonl")
    assert code == 130
    assert "Interrupted before anything was encoded: nothing new is kept." in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl.cache", "pairs.jsonl"]


def test_interrupted_once_the_output_is_written_it_says_so(source, model_folder, tmp_path, monkeypatch, run_here):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    x = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    texts, vectors = (source, "--model", model_folder), ("--embeddings", tmp_path / "x.npy", "--bits", 64)
    for arguments, name in ((texts, "out.jsonl"), (vectors, "out.npy")):
        output = tmp_path / name
        for where in ((command, "print_summary"), (store.shutil, "rmtree")):
            if where[1] == "rmtree" and arguments is vectors:
                continue  # nothing is encoded, so there is nothing to remove
            with monkeypatch.context() as patched:
                patched.setattr(*where, stopped)
                code, out, _ = run_here("mine", *arguments, "--output", output, "--force")
            assert code == 130
            said = " ".join(out.split())
            assert f"Interrupted, but the output is complete. Written: {output}, out.summary.json." in said
            assert "kept" not in said
            cache = output.with_name(f"{name}.cache")
            assert (f"{cache} is left over and can be deleted." in said) == cache.exists() == (where[1] == "rmtree")
            assert output.exists()


def test_interrupted_with_what_others_have_cached_it_claims_nothing(
    source, pairs, model_folder, tmp_path, monkeypatch, run_here
):
    def stopped(*_):
        raise KeyboardInterrupt

    cached = ("--model", model_folder, "--cache-folder", tmp_path / "cache")
    wrote(source, *cached, "--output", tmp_path / "first.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"query": pairs["query"][0], "answer": "another answer"}) + "\n")
    monkeypatch.setattr(command, "load_model", stopped)
    code, out, _ = run_here("mine", other, *cached, "--output", tmp_path / "second.jsonl")
    assert code == 130
    assert "Interrupted before anything was encoded: nothing new is kept." in out


def test_the_first_lines_come_before_the_model_is_loaded(source, tmp_path, monkeypatch, capsys):
    def load(*_):
        raise ValueError(capsys.readouterr().out)

    monkeypatch.setattr(command, "load_model", load)
    output = tmp_path / "out.jsonl"
    with pytest.raises(ValueError, match="Mining") as caught:
        app(["mine", str(source), "--model", "all-MiniLM-L6-v2", "--output", str(output)], standalone_mode=False)
    first, second, third = str(caught.value).splitlines()[:3]
    assert first == f"Mining hard negatives for {source} with all-MiniLM-L6-v2 -> {output}"
    assert second == "67 pairs from the columns query and answer."
    assert third == "62 queries, 64 texts to search."


def test_the_bar_moves_with_every_batch(source, model_folder, tmp_path, monkeypatch):
    advanced = []

    @contextmanager
    def recorded(_description, total, *, shown):
        assert shown
        advanced.append([total])
        yield SimpleNamespace(advance=advanced[-1].append)

    monkeypatch.setattr(encoding, "progress_bar", recorded)
    wrote(source, "--model", model_folder, "--output", tmp_path / "out.jsonl", "--batch-size", 10)
    assert [[total, *filter(None, steps)] for total, *steps in advanced] == [[64, *[10] * 6, 4], [62, *[10] * 6, 2]]


def test_one_process_at_a_time_makes_an_output(source, model_folder, tmp_path):
    output = tmp_path / "out.jsonl"
    for leftover in ("out.jsonl.abcdefgh.tmp", "out.summary.json.abcdefgh.tmp"):
        (tmp_path / leftover).write_text("of a process that was killed")
    (tmp_path / "mine.tmp").write_text("of the user")
    options = (source, "--model", model_folder, "--output", output)
    with locked(tmp_path / "out.jsonl.cache"):
        shown = mine(*options)
        assert f"out.jsonl.cache is in use by process {os.getpid()} (" in str(shown.exception)
        shared = mine(*options, "--cache-folder", tmp_path / "cache")
        assert f"out.jsonl.cache is in use by process {os.getpid()} (" in str(shared.exception)
    assert not output.exists()
    wrote(*options)
    names = {"mine.tmp", "out.jsonl", "out.summary.json", "pairs.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize("name", ["out.jsonl", "out.npy", "out.parquet"])
def test_killed_at_any_moment_it_leaves_no_files_of_two_runs(source, model_folder, tmp_path, monkeypatch, name):
    """With --force, the files are looked at after every change of a name: this is what a kill would leave."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32))
    of_texts = (source, "--model", model_folder)
    arguments = of_texts if name == "out.jsonl" else ("--embeddings", tmp_path / "x.npy", "--bits", 64)
    targets = [tmp_path / name, tmp_path / "out.summary.json"]
    if name == "out.npy":
        targets.append(tmp_path / "out.scores.npy")
    wrote(*arguments, "--output", tmp_path / name)
    old = {path: path.stat().st_ino for path in targets}
    seen, ready = [], []

    def watched(change):
        def changed(path, *more, **options):
            if path == tmp_path / name and path.exists():
                ready.extend(temporary.read_bytes() for temporary in tmp_path.glob(f"{name}.*.tmp"))
            result = change(path, *more, **options)
            seen.append({path.stat().st_ino == old[path] for path in targets if path.exists()})
            return result

        return changed

    for change in ("replace", "unlink"):
        monkeypatch.setattr(Path, change, watched(getattr(Path, change)))
    wrote(*arguments, "--output", tmp_path / name, "--force")
    assert {True} in seen
    assert {True, False} not in seen
    assert seen[-1] == {False}
    assert ready == [(tmp_path / name).read_bytes()]  # what fails while it is written takes no old output with it


def test_an_output_stays_until_another_is_complete(source, model_folder, tmp_path, monkeypatch):
    def full(path, *arguments, **options):
        if path.name.startswith("out.summary.json."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(path, *arguments, **options)

    output, write_text = tmp_path / "out.jsonl", Path.write_text
    wrote(source, "--model", model_folder, "--output", output)
    before = {path: path.read_bytes() for path in (output, tmp_path / "out.summary.json")}
    monkeypatch.setattr(Path, "write_text", full)
    shown = mine(source, "--model", model_folder, "--output", output, "--force")
    assert "no room left" in str(shown.exception)
    assert {path: path.read_bytes() for path in before} == before


def test_only_what_mining_made_is_removed(source, model_folder, tmp_path):
    (tmp_path / "out.jsonl.cache").mkdir()
    (tmp_path / "out.jsonl.cache" / "notes.txt").write_text("of the user")
    wrote(source, "--model", model_folder, "--output", tmp_path / "out.jsonl")
    left = [path.name for path in (tmp_path / "out.jsonl.cache").iterdir() if not path.name.startswith(".lock")]
    assert left == ["notes.txt"]


def test_a_file_in_the_way_of_the_cache_is_said_in_one_line(source, model_folder, tmp_path, run_here):
    (tmp_path / "cache").write_text("")
    code, _, err = run_here("mine", source, "--model", model_folder, "--output", "out.jsonl", "--cache-folder", "cache")
    assert code == 2
    assert err == "lookalike: cache is a file where a folder is needed: choose another folder, or remove the file.\n"


def test_texts_never_load_torchvision(source, model_folder, tmp_path):
    script = "import sys\nfrom lookalike.cli import main\nmain(sys.argv[1:])\nprint('torchvision' in sys.modules)"
    arguments = ["mine", str(source), "--model", str(model_folder), "--output", str(tmp_path / "out.jsonl")]
    shown = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "False"
