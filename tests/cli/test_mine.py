"""`lookalike mine`: every kind of input, the same rows as the functions, and every mistake in one sentence."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lookalike import Filters, mine_hard_negatives
from lookalike.mining import mine_embeddings, stages, text_mining
from tests.mining.words import make_columns, read_jsonl, write_jsonl
from tests.processes import PATIENCE, run_function

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")

PAIRS = make_columns()


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "pairs.jsonl", PAIRS)


@pytest.fixture
def wrote(run_here):
    """Run the command; return what it printed."""

    def succeed(*arguments):
        code, out, err = run_here("mine", *arguments)
        assert code == 0, err
        return out

    return succeed


@pytest.fixture
def refused(run_here, tmp_path):
    """Run the command; return its error, which is one sentence, and leave nothing behind."""

    def fail(*arguments):
        before = sorted(tmp_path.iterdir())
        code, _, err = run_here("mine", *arguments)
        assert code == 2
        assert err.startswith("lookalike: ")
        assert err.endswith((".\n", "?\n"))
        assert err.count("\n") == 1
        left = [path for path in tmp_path.iterdir() if not path.name.endswith(".cache")]
        assert sorted(left) == before
        return err.removeprefix("lookalike: ").strip()

    return fail


@pytest.fixture
def expected(model):
    """The rows that the function returns for the same pairs."""
    dataset = datasets.Dataset.from_dict(PAIRS)
    return lambda **options: mine_hard_negatives(dataset, model, verbose=False, **options).to_list()


@pytest.mark.usefixtures("source")
def test_every_kind_of_input_gives_the_same_rows(model_folder, expected, wrote, tmp_path):
    dataset = datasets.Dataset.from_dict(PAIRS)
    dataset.to_parquet(tmp_path / "pairs.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(tmp_path / "splits")
    for separator, suffix in (("\t", "tsv"), (",", "csv")):
        rows = [("query", "answer"), *zip(PAIRS["query"], PAIRS["answer"], strict=True)]
        (tmp_path / f"pairs.{suffix}").write_text("".join(f"{q}{separator}{a}\n" for q, a in rows))
    wanted = expected()
    for name in ("pairs.jsonl", "pairs.parquet", "pairs.tsv", "pairs.csv", "saved", "splits"):
        output = tmp_path / f"{name}.out.jsonl"
        wrote(tmp_path / name, "--model", model_folder, "--output", output)
        assert read_jsonl(output) == wanted, name
        assert not output.with_name(f"{output.name}.cache").exists()
    few = ("--split", "test", "--corpus", tmp_path / "pairs.parquet", "--corpus-column", "answer")
    wrote(tmp_path / "splits", "--model", model_folder, "--output", tmp_path / "few.jsonl", *few)
    assert {row["query"] for row in read_jsonl(tmp_path / "few.jsonl")} == {PAIRS["query"][0]}


def test_lists_of_positives_and_files_without_a_header(model_folder, expected, wrote, tmp_path):
    answers = {}
    for query, answer in zip(PAIRS["query"], PAIRS["answer"], strict=True):
        answers.setdefault(query, []).append(answer)
    grouped = tmp_path / "grouped.jsonl"
    grouped.write_text("".join(json.dumps({"query": q, "pos": a}) + "\n" for q, a in answers.items()))
    wrote(grouped, "--model", model_folder, "--output", tmp_path / "a.jsonl", "--output-format", "n-tuple")
    rows = [list(row.values()) for row in read_jsonl(tmp_path / "a.jsonl")]
    assert sorted(rows) == sorted(list(row.values()) for row in expected(output_format="n-tuple"))
    plain = tmp_path / "plain.tsv"
    plain.write_text("".join(f"{q}\t{a}\n" for q, a in zip(PAIRS["query"], PAIRS["answer"], strict=True)))
    wrote(plain, "--model", model_folder, "--output", tmp_path / "b.jsonl", "--no-header")
    rows = read_jsonl(tmp_path / "b.jsonl")
    assert list(rows[0]) == ["anchor", "positive", "negative"]
    assert [list(row.values()) for row in rows] == [list(row.values()) for row in expected()]


def test_every_option_reaches_the_function(source, model_folder, expected, wrote, tmp_path):
    corpus = ["bal cem", "gum hax dil", "for bat"]
    (tmp_path / "corpus.txt").write_text("\n".join(corpus))
    options = {
        "num_negatives": 2,
        "sampling_strategy": "random",
        "seed": 7,
        "range_min": 1,
        "range_max": 30,
        "max_score": 0.99,
        "min_score": 0.1,
        "absolute_margin": -0.5,
        "relative_margin": -0.5,
        "bits": 256,
        "oversampling": 3,
        "query_prompt": "bal ",
        "corpus_prompt_name": "ask",
        "output_format": "labeled-list",
        "batch_size": 16,
    }
    typed = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    more = ("--output-scores", "--corpus", tmp_path / "corpus.txt", "--device", "cpu")
    wrote(source, "--model", model_folder, "--output", "out.jsonl", *typed, *more)
    assert read_jsonl(tmp_path / "out.jsonl") == expected(corpus=corpus, output_scores=True, **options)
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert summary["source"]["input"] == str(source)
    assert summary["options"].items() >= {"seed": 7, "range_max": 30, "bits": 256, "include_positives": False}.items()
    wrote(
        source, "--model", model_folder, "--output", "out.jsonl", "--force", "--include-positives", "--rescore", "codes"
    )
    assert read_jsonl(tmp_path / "out.jsonl") == expected(include_positives=True, rescore="codes")


def test_a_configuration_file_gives_what_options_give(source, model_folder, wrote, tmp_path):
    options = (
        "--model",
        model_folder,
        "--num-negatives",
        2,
        "--max-score",
        0.95,
        "--rescore",
        "codes",
        "--output-scores",
    )
    config = wrote(source, *options, "--print-config")
    (tmp_path / "run.yaml").write_text(config)
    wrote(source, *options, "--output", "typed.jsonl")
    wrote("--config", "run.yaml", "--output", "read.jsonl")
    assert (tmp_path / "read.jsonl").read_bytes() == (tmp_path / "typed.jsonl").read_bytes()
    assert wrote("--config", "run.yaml", "--print-config") == config
    wrote("--config", "run.yaml", "--output", "one.jsonl", "--num-negatives", 1)
    assert len(read_jsonl(tmp_path / "one.jsonl")) < len(read_jsonl(tmp_path / "read.jsonl"))


def test_embeddings_become_row_numbers(wrote, tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.standard_normal((150, 40)), 2, axis=0) + 0.5 * rng.standard_normal((300, 40))
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    np.save(tmp_path / "y.npy", x[:200].astype(np.float32))
    (tmp_path / "labels.txt").write_text("".join(f"{i // 2}\n" for i in range(300)))
    np.save(tmp_path / "partner.npy", (np.arange(300) ^ 1) % 200)
    margin = ("--relative-margin", 0.1, "--bits", 1024)
    for more, arguments in (
        (("--labels", "labels.txt"), {"labels": np.arange(300) // 2}),
        (("--positives", "partner.npy", "--reference", "y.npy"), {"positives": (np.arange(300) ^ 1) % 200}),
    ):
        shown = wrote("--embeddings", "x.npy", *more, *margin, "--output", "negatives.npy", "--force")
        reference = x[:200].astype(np.float32) if "--reference" in more else None
        filters = Filters(relative_margin=0.1)
        mined = mine_embeddings(x.astype(np.float32), reference, filters=filters, bits=1024, verbose=False, **arguments)
        assert np.array_equal(np.load(tmp_path / "negatives.npy"), mined.indices.numpy())
        assert np.array_equal(np.load(tmp_path / "negatives.scores.npy"), mined.scores.numpy())
        assert "300 embeddings of dimension 40, searched in" in shown
        assert "Written: negatives.npy (300 rows), negatives.summary.json" in shown


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        ('{"query": "a", "answer": " "}', (), r"pairs.jsonl, line 1: answer is empty; correct or remove such rows"),
        ('{"query": 3, "answer": "b"}', (), "line 1: query is of type int and not a text"),
        ('{"a": "a", "b": "b"}', (), "has the columns a, b: no known pair .* with --columns a,b"),
        ('{"query": "a", "negative": "b"}', ("--columns", "query,negative"), "two columns called 'negative'; rename"),
        ('{"query": "a"', (), "line 1 is not JSON"),
        ("", (), "has no rows"),
        (None, ("--columns", "x,answer"), "has no column 'x'.* query, answer"),
        (None, ("--columns", "query"), "columns must name two columns, .* as in query,answer; got 'query'"),
        (None, ("--no-header",), "pairs.jsonl names its columns itself; only .csv and .tsv files"),
        (None, ("--split", "test"), "--split chooses a split of a data set, but .*pairs.jsonl is read from files"),
        (None, ("--output-format", "triple"), "output_format must be one of 'triplet', .* did you mean 'triplet'"),
        (None, ("--bits", "12"), "bits must be a multiple of 8, got 12; the next one is 16"),
        (None, ("--num-negatives", "0"), "num_negatives must be at least 1, got 0"),
        (None, ("--batch-size", "0"), "batch_size must be at least 1, got 0"),
        (None, ("--range-max", "2"), "range_max - range_min must leave room for --num-negatives 3"),
        (None, ("--range-min", "-1"), "range_min must be at least 0"),
        (None, ("--sampling-strategy", "best"), "sampling_strategy must be one of 'top', 'random', got 'best'"),
        (None, ("--max-score", "0.1", "--min-score", "0.2"), "is above --max-score 0.1: nothing can pass"),
        (
            None,
            ("--oversampling", "5", "--rescore", "codes"),
            "length of the shortlist, but --rescore codes needs none",
        ),
        (
            None,
            ("--bits", "16", "--code", "scalar"),
            "--code scalar needs at least 32 bits, got 16; fewer take --code signs",
        ),
        (None, ("--min-score", "0.9999"), r"no query has a negative left \(min_score\), so nothing is written"),
        (None, ("--query-prompt-name", "x"), "the model has no prompt named 'x'; it has .*'ask'"),
        (None, ("--model", "nowhere"), "the model 'nowhere' cannot be loaded as a SentenceTransformer"),
        (None, ("--cross-encoder", "nowhere"), "the model 'nowhere' cannot be loaded as a CrossEncoder"),
        (None, ("--output", "out.txt"), "output must end in .jsonl or .parquet, got out.txt"),
        (None, ("--output", "no/out.jsonl"), "no is not a folder; create it or choose another output"),
        (None, ("--output", "there.jsonl"), "there.jsonl exists; --force overwrites it, --output chooses another"),
        (None, ("--corpus", "there.jsonl"), "there.jsonl has no known column, but x; --corpus-column says which"),
        (None, ("--labels", "x.npy"), "--labels belongs to --embeddings, which was not given"),
        (None, ("--embeddings", "x.npy"), "--model belongs to INPUT, which was not given"),
        (None, ("--judge-margin", "0.1"), "--judge-margin belongs to --judge, which was not given"),
        (None, ("--ray-cpus", "2"), "--ray-cpus belongs to --ray, which was not given"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(source, model_folder, refused, tmp_path, content, arguments, sentence):
    (tmp_path / "there.jsonl").write_text('{"x": "a"}\n')
    if content is not None:
        source.write_text(content + "\n")
    message = refused(source, "--model", model_folder, "--output", "out.jsonl", *arguments)
    assert re.search(sentence, message), message


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--device", "banana"), "there is no device 'banana' here that torch can use; cpu always works."),
        (("--model", "./nothere"), "./nothere: there is no such model folder."),
        (("--model", "/no/such/model"), "/no/such/model: there is no such model folder."),
        (("--cross-encoder", "runs/judge/final"), "runs/judge/final: there is no such model folder."),
        (("--corpus", "away.txt"), "away.txt: there is no such file."),
        (("--corpus", "more/away.tsv"), "more/away.tsv: there is no such file."),
        (
            ("--corpus", "corpus.txt", "--corpus-column", "text"),
            "corpus.txt has one text per line and no columns; leave out --corpus-column and --no-corpus-header.",
        ),
    ],
)
def test_options_are_checked_before_anything_is_read(refused, tmp_path, arguments, sentence):
    (tmp_path / "pairs.jsonl").write_text("this is not JSON\n")
    (tmp_path / "corpus.txt").write_text("a text\n")
    assert refused("pairs.jsonl", "--model", "nowhere", "--output", "out.jsonl", *arguments) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "mining needs --output: the file to write"),
        (("--output", "n.npy"), "give either INPUT, pairs of texts, or --embeddings"),
        (("p.jsonl", "--output", "n.jsonl"), "mining from texts needs --model"),
        (("p.jsonl", "--embeddings", "x.npy", "--output", "n.npy"), "give either INPUT, pairs of texts, or"),
        (("--embeddings", "x.npy", "--output", "n.npy", "--include-positives"), "--include-positives belongs to INPUT"),
        (("--embeddings", "away.npy", "--output", "n.npy"), "away.npy: there is no such file of embeddings"),
        (("--embeddings", "x.npy", "--output", "n.jsonl"), "output must end in .npy or .parquet, got n.jsonl"),
        (("--embeddings", "x.npy", "--output", "there.npy"), "there.scores.npy exists; --force overwrites it"),
        (("--embeddings", "ids.npy", "--output", "n.npy"), "ids.npy must hold floats, got int64"),
        (("--embeddings", "x.npy", "--labels", "ids.npy", "--output", "n.npy"), "must hold one label per embedding, 9"),
        (("--embeddings", "x.npy", "--positives", "away.npy", "--output", "n.npy"), "no such file of positives"),
        (("--embeddings", "x.npy", "--positives", "text.npy", "--output", "n.npy"), "cannot be read as positives"),
        (("--embeddings", "nan.npy", "--output", "n.npy"), "nan.npy must hold finite embeddings, but row 2 has NaN"),
    ],
)
def test_mistakes_with_embeddings_are_reported_in_one_sentence(refused, tmp_path, arguments, sentence):
    x = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "ids.npy", np.arange(12).reshape(3, 4))
    np.save(tmp_path / "there.scores.npy", x)
    (tmp_path / "text.npy").write_text("none")
    x[2, 3] = np.nan
    np.save(tmp_path / "nan.npy", x)
    assert sentence in refused(*arguments)


def without_library(library, *arguments):
    """In another process: run the command as if a library were not installed."""
    from lookalike.cli import main

    sys.modules[library] = None
    main(["mine", *arguments])


@pytest.mark.parametrize("library", ["sentence_transformers", "datasets"])
def test_a_missing_library_is_named_with_its_command(source, tmp_path, library):
    given = source
    if library == "datasets":
        given = tmp_path / "saved"
        datasets.Dataset.from_dict(PAIRS).save_to_disk(given)
    shown = run_function(without_library, library, str(given), "--model", "m", "--output", str(tmp_path / "out.jsonl"))
    assert shown.returncode == 2
    assert library in shown.stderr.replace("-", "_")
    assert shown.stderr.endswith(": pip install 'lookalike[text]'.\n")
    assert len(shown.stderr.splitlines()) == 1


def test_interrupted_it_says_what_is_kept(source, model_folder, tmp_path, monkeypatch, run_here):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    output = tmp_path / "out.jsonl"
    arguments = ("mine", source, "--model", model_folder, "--output", output)
    for place, said in (
        ((text_mining, "load_models"), "Interrupted before anything was encoded: nothing new is kept."),
        (
            (text_mining, "make_rows"),
            f"Interrupted: 126 of 126 texts are encoded and kept in {output}.cache; the next run",
        ),
        (
            (text_mining, "print_written"),
            f"Interrupted, but the output is complete. Written: {output}, out.summary.json.",
        ),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(*place, stopped)
            code, out, err = run_here(*arguments)
        assert (code, err) == (130, "")
        assert said in " ".join(out.split())
    with monkeypatch.context() as patched:
        patched.setattr("lookalike.mining.text_sources.open_pairs", stopped)
        code, out, _ = run_here(*arguments[:-1], tmp_path / "other.jsonl")
    assert code == 130
    assert out.endswith("Interrupted before anything was encoded: nothing new is kept.\n")


def test_the_first_lines_come_before_the_model_is_loaded(source, monkeypatch, run_here):
    def load(*_, **__):
        raise ValueError("no model.")

    monkeypatch.setattr(text_mining, "load_models", load)
    code, out, _ = run_here("mine", source, "--model", "all-MiniLM-L6-v2", "--output", "out.jsonl")
    assert code == 2
    assert out.splitlines() == [
        f"Mining hard negatives for {source} with all-MiniLM-L6-v2 -> out.jsonl",
        "67 pairs from the columns query and answer.",
        "62 queries, 64 texts to search.",
    ]


def test_the_bar_moves_with_every_batch(source, model_folder, monkeypatch, wrote):
    advanced = {}

    @contextmanager
    def recorded(description, total, _pieces, *, shown):
        assert shown
        steps = advanced[description] = []
        yield SimpleNamespace(advance=steps.append, count=lambda: None)
        assert sum(steps) == total

    monkeypatch.setattr(stages, "steady_bar", recorded)
    wrote(source, "--model", model_folder, "--output", "out.jsonl", "--batch-size", 10)
    assert list(filter(None, advanced["encoding 126 rows"])) == [*[10] * 6, 4, *[10] * 6, 2]
    assert sum(advanced["searching 3,968 pairs"]) == 62 * 64


def test_a_file_in_the_way_of_the_cache_is_reported_in_one_line(source, model_folder, refused, tmp_path):
    (tmp_path / "cache").write_text("")
    message = refused(source, "--model", model_folder, "--output", "out.jsonl", "--cache-folder", "cache")
    assert message == "cache is a file where a folder is needed: choose another folder, or remove the file."


def mine_and_list_modules(*arguments):
    """In another process: run the command, and print whether torchvision is loaded."""
    from lookalike.cli import main

    before = "torchvision" in sys.modules
    main(["mine", *arguments])
    Path("loaded").write_text(f"{before} {'torchvision' in sys.modules}")


def test_texts_never_load_torchvision(source, model_folder, tmp_path):
    arguments = (str(source), "--model", str(model_folder), "--output", "out.jsonl")
    shown = run_function(mine_and_list_modules, *arguments, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "loaded").read_text() == "False False"


HELP = """
import sys
from lookalike.cli import main
try:
    main(["mine", "--help"])
finally:
    assert not {"torch", "numpy", "rich"} & set(sys.modules)
"""


def test_the_help_is_grouped_and_imports_nothing_heavy():
    command = [sys.executable, "-c", HELP]  # a fresh process: those of the tests have torch loaded
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert shown.returncode == 0, shown.stderr
    for title in ("texts", "embeddings", "selection", "filters", "search"):
        assert f"─ {title} options ─" in shown.stdout


def test_marks_keep_rows_apart(wrote, refused, source, model_folder, tmp_path):
    x, marks = np.eye(6, 4, dtype=np.float32) + 1, tmp_path / "marks.csv"
    np.save(tmp_path / "x.npy", x)
    marks.write_text("0,1\n1,2\n")
    wrote("--embeddings", tmp_path / "x.npy", "--same", marks, "--num-negatives", "5", "--output", tmp_path / "n.npy")
    found = np.load(tmp_path / "n.npy")
    assert all(set(row[row >= 0]) == {3, 4, 5} for row in found[:3])
    assert json.loads((tmp_path / "n.summary.json").read_text())["source"]["same"] == str(marks)
    output = tmp_path / "texts.jsonl"
    wrote(source, "--model", model_folder, "--same", marks, "--num-negatives", "1", "--output", output)
    asked, answered = PAIRS
    queries, answers = set(PAIRS[asked][:3]), set(PAIRS[answered][:3])
    assert not any(row["negative"] in answers for row in read_jsonl(output) if row[asked] in queries)
    error = refused("--embeddings", tmp_path / "x.npy", "--same", "nowhere.csv", "--output", tmp_path / "m.npy")
    assert error.startswith("nowhere.csv: there is no such file")
