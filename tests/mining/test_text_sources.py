"""Texts stream from files, shards, data sets and streams; whatever is wrong is named."""

import json
from itertools import chain, pairwise

import pytest

from lookalike import mine_hard_negatives
from lookalike.data.table_files import read_table
from lookalike.data.text_pairs import read_text_pairs
from lookalike.mining import text_sources
from lookalike.mining.pair_files import write_pairs
from lookalike.mining.text_sources import open_corpus, open_pairs, source_identity, text_batches
from tests.data.miniatures import write_csv, write_parquet
from tests.mining.words import make_pairs

PAIRS = [(f"question {i % 17}", f"answer {i % 23}") for i in range(40)]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(text_sources, "ROWS", 7)


def pairs_of(source, *arguments, **options):
    opened = open_pairs(source, *arguments, **options)
    return [pair for queries, positives in opened for pair in zip(queries, positives, strict=True)]


def write_parts(folder, kind, bounds=(0, 15, 15, 16, 40)):
    """Write shards, of which one has no rows and one has a single row."""
    for i, (first, last) in enumerate(pairwise(bounds)):
        part, path = PAIRS[first:last], folder / f"part-{i + 9}{kind}"
        if kind == ".parquet":
            write_parquet(path, query=[q for q, _ in part], answer=[a for _, a in part])
        elif kind == ".jsonl":
            path.write_text("".join(json.dumps({"query": q, "answer": a}) + "\n" for q, a in part))
        else:
            write_csv(path, ("query", "answer"), part, "\t" if kind == ".tsv" else ",")
    return folder


@pytest.mark.parametrize("kind", [".parquet", ".jsonl", ".csv", ".tsv"])
def test_shards_are_read_one_after_another(tmp_path, kind):
    folder = write_parts(tmp_path, kind)
    for source in (folder, str(folder / f"*{kind}"), sorted(folder.iterdir(), key=lambda p: int(p.stem[5:]))):
        assert pairs_of(source) == PAIRS
        assert source_identity(source) == source_identity(folder)
    written = write_pairs(tmp_path / "pairs", open_pairs(folder))
    assert list(written.corpus) == make_pairs(*zip(*PAIRS, strict=True)).corpus


def test_batches_are_those_of_the_table(tmp_path):
    path = write_csv(tmp_path / "pairs.csv", ("Question", "Answer"), PAIRS)
    assert pairs_of(path) == pairs_of(str(path)) == read_text_pairs(read_table(path)).pairs == PAIRS
    assert open_pairs(path).columns == ("Question", "Answer")
    plain = write_csv(tmp_path / "plain.csv", PAIRS[0], PAIRS[1:])
    assert pairs_of(plain, header=False) == PAIRS
    assert pairs_of(plain, "2,1", header=False) == [(a, q) for q, a in PAIRS]
    grouped = tmp_path / "grouped.jsonl"
    grouped.write_text("".join(json.dumps({"query": f"q{i}", "pos": ["a", f"b{i}"]}) + "\n" for i in range(20)))
    assert pairs_of(grouped) == [(f"q{i}", text) for i in range(20) for text in ("a", f"b{i}")]


def test_a_stream_that_does_not_name_its_columns_is_mined(dataset, model):
    datasets = pytest.importorskip("datasets")
    columns = dataset.column_names
    stream = datasets.IterableDataset.from_generator(lambda: iter(dataset.to_list()))
    assert stream.column_names is None
    options = {"anchor_column_name": columns[0], "positive_column_name": columns[1], "verbose": False}
    expected = mine_hard_negatives(dataset, model, verbose=False).to_list()
    assert mine_hard_negatives(stream, model, **options).to_list() == expected
    with pytest.raises(ValueError, match="streams that do not name their columns need both anchor_column_name and"):
        mine_hard_negatives(stream, model, anchor_column_name=columns[0], verbose=False)


def test_data_sets_and_streams(tmp_path):
    datasets = pytest.importorskip("datasets")
    columns = {"id": list(range(40)), "anchor": [q for q, _ in PAIRS], "positive": [a for _, a in PAIRS]}
    dataset = datasets.Dataset.from_dict(columns)
    stream = datasets.IterableDataset.from_generator(lambda: iter(dataset.to_list()))
    assert stream.column_names is None
    for source in (dataset, dataset.to_iterable_dataset(), stream):
        opened = open_pairs(source)
        assert opened.columns == ("anchor", "positive")
        assert [pair for batch in opened for pair in zip(*batch, strict=True)] == PAIRS
    assert source_identity(stream) == {"stream": True}
    assert source_identity(dataset) == source_identity(datasets.Dataset.from_dict(columns))
    assert source_identity(dataset) != source_identity(dataset.select(range(39)))
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert pairs_of(tmp_path / "saved") == pairs_of(str(tmp_path / "saved")) == PAIRS
    assert list(chain(*open_corpus(dataset, "positive"))) == columns["positive"]
    with pytest.raises(TypeError, match="take one of its splits"):
        open_pairs(datasets.DatasetDict(train=dataset))
    with pytest.raises(ValueError, match="the data set has no rows"):
        open_pairs(dataset.select([]))
    empty = datasets.IterableDataset.from_generator(lambda: iter(()))
    with pytest.raises(ValueError, match="the stream has no rows"):
        open_pairs(empty)
    wrong = datasets.Dataset.from_dict({"query": ["q"] * 10, "answer": ["a"] * 9 + [" "]})
    with pytest.raises(ValueError, match="column 'answer' must not hold empty texts, but row 9 is empty"):
        pairs_of(wrong)
    with pytest.raises(TypeError, match="column 'id' must hold texts, but row 0 is int"):
        pairs_of(dataset, ("id", "positive"))


def test_what_is_no_source_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"pairs are read from files, a datasets\.Dataset or a stream"):
        open_pairs({"query": ["a"]})
    with pytest.raises(FileNotFoundError, match=r"no\.csv: there is no such file"):
        open_pairs(tmp_path / "no.csv")
    with pytest.raises(FileNotFoundError, match="no files of pairs whose names fit this pattern"):
        open_pairs(tmp_path / "*.csv")
    path = write_csv(tmp_path / "pairs.csv", ("query", "answer"), PAIRS)
    with pytest.raises(ValueError, match="split= chooses a split of a data set"):
        open_pairs(path, split="train")


def test_shards_that_do_not_fit_are_named_before_anything_is_read(tmp_path):
    write_parts(tmp_path, ".csv")
    write_csv(tmp_path / "part-99.csv", ("question", "answer"), PAIRS)
    message = r"part-99\.csv has the columns question, answer, but .*part-9\.csv has query, answer; all files must have"
    with pytest.raises(ValueError, match=message):
        open_pairs(tmp_path)


def test_sources_without_rows_are_refused(tmp_path):
    one = write_csv(tmp_path / "1.csv", ("query", "answer"), [])
    with pytest.raises(ValueError, match=r"1\.csv has a header and no rows"):
        open_pairs(one)
    (tmp_path / "2.csv").write_text("")
    with pytest.raises(ValueError, match=r"none of the 2 files from .*1\.csv to .*2\.csv has any rows"):
        open_pairs(tmp_path)
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(ValueError, match="holds no texts"):
        list(open_corpus(tmp_path / "a.txt"))


@pytest.mark.parametrize("columns", [None, ("query-id", "corpus-id")])
def test_ids_are_no_texts(tmp_path, columns):
    path = write_csv(tmp_path / "qrels.tsv", ("query-id", "corpus-id"), [("1", "20"), ("2", "30")], "\t")
    message = "no known pair" if columns is None else r"qrels\.tsv, line 2: query-id holds ids and not texts \('1'\)"
    with pytest.raises(ValueError, match=message):
        pairs_of(path, columns)
    numbers = write_parquet(tmp_path / "numbers.parquet", query=["a"] * 9, answer=list(range(9)))
    with pytest.raises(ValueError, match=r"numbers\.parquet, row 1: answer is of type int and not a text"):
        pairs_of(numbers)


def test_wrong_texts_are_named_by_their_line_in_whatever_batch(tmp_path):
    path = tmp_path / "pairs.jsonl"
    good = json.dumps({"query": "q", "answer": "a"}) + "\n"
    for wrong, problem in (
        ({"query": "q", "answer": " "}, "answer is empty"),
        ({"query": "q"}, r"answer is missing \(null\)"),
        ({"query": "\ud800", "answer": "a"}, "query holds half of a surrogate pair"),
    ):
        path.write_text(good * 20 + "\n" + json.dumps(wrong) + "\n")
        with pytest.raises(ValueError, match=rf"pairs\.jsonl, line 22: {problem}"):
            pairs_of(path)
    path.write_bytes(good.encode() * 20 + b'{"query": "\xff"}\n')
    with pytest.raises(ValueError, match=r"pairs\.jsonl, line 21 is not UTF-8 \(byte 0xff\)"):
        pairs_of(path)
    rows = [q for q, _ in PAIRS[:20]]
    parquet = write_parquet(tmp_path / "pairs.parquet", query=rows, answer=[*rows[:19], None])
    with pytest.raises(ValueError, match=r"pairs\.parquet, row 20: answer is missing"):
        pairs_of(parquet)


def test_a_corpus_is_lines_or_a_column(tmp_path):
    texts = [f"text {i}" for i in range(20)]
    for name, part in (("9.txt", texts[:5]), ("10.txt", texts[5:]), ("11.txt", [])):
        (tmp_path / name).write_text("".join(text + "\r\n\n" for text in part), newline="")
    assert list(chain(*open_corpus(tmp_path))) == texts
    with pytest.raises(ValueError, match="has one text per line and no columns"):
        open_corpus(tmp_path, "text")
    table = write_csv(tmp_path / "corpus.csv", ("id", "Text"), [(str(i), text) for i, text in enumerate(texts)])
    assert list(chain(*open_corpus(table))) == list(chain(*open_corpus(table, "text"))) == texts
    with pytest.raises(ValueError, match=r"corpus\.csv, line 2: id holds ids and not texts"):
        list(open_corpus(table, "id"))
    with pytest.raises(ValueError, match="holds lines of texts and tables"):
        open_corpus([tmp_path / "9.txt", table])


def test_texts_in_memory_are_checked():
    assert list(text_batches("corpus", ["a", "b", "c"], 2)) == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match="corpus must not hold empty texts, but row 2 is empty"):
        list(text_batches("corpus", ["a", "b", ""], 2))
