import logging

import pytest
import torch

from lookalike import Settings, train
from lookalike.data import DataSource, load_data
from lookalike.evaluation import evaluate
from tests.data.miniatures import unzipped, write_beir, write_json_lines

pytestmark = pytest.mark.usefixtures("cache")


def pairs_of(data):
    ids = torch.arange(data.train.pairs)
    return list(zip(data.train.queries(ids, 0), data.train.references(ids, 0), strict=True))


def texts(part, lists):
    """The documents that lists name, by the query."""
    offsets, ids = (each.tolist() for each in lists)
    queries = part.queries(torch.arange(len(part.query_labels)))
    documents = part.references(torch.arange(len(part.reference_labels)))
    return {query: [documents[i] for i in ids[offsets[n] : offsets[n + 1]]] for n, query in enumerate(queries)}


def test_pairs_labels_gains_and_what_is_hidden(tmp_path):
    data = load_data("beir", write_beir(tmp_path / "mini"))
    assert data.counts == {"documents": 31, "training pairs": 5, "test queries": 2}
    assert pairs_of(data) == [
        ("query 9", "title 3 text 3 \u00e9"),
        ("query 1", "title 3 text 3 \u00e9"),
        ("query 4", "text 20 \u00e9"),
        ("query 4", "title 21 text 21 \u00e9"),
        ("query 2", "text 8 \u00e9"),
    ]
    assert data.train.labels.tolist() == [0, 0, 2, 2, 4]
    answers = {"query 7": ["text 12 \u00e9", "title 13 text 13 \u00e9"], "query 6": ["title 15 text 15 \u00e9"]}
    assert texts(data.test, data.test_positives) == answers
    assert data.test_gains.tolist() == [2, 1, 1]
    assert texts(data.test, data.test_exclude) == {"query 7": ["the text of query 7"], "query 6": []}
    assert data.validation is None


def test_gains_are_those_of_trec_eval(tmp_path):
    ir_measures = pytest.importorskip("ir_measures")
    data = load_data("beir", write_beir(tmp_path / "mini"))
    torch.manual_seed(0)
    query, reference = torch.randn(2, 4), torch.randn(31, 4)
    found = evaluate(
        query,
        reference,
        data.test.query_labels,
        data.test.reference_labels,
        exclude=data.test_exclude,
        positives=data.test_positives,
        gains=data.test_gains,
    )
    similarity = torch.nn.functional.cosine_similarity(query[:, None], reference[None], dim=2)
    names = [*(f"d{i}" for i in range(30)), "q7"]
    run = {q: {d: float(similarity[n, i]) for i, d in enumerate(names) if d != q} for n, q in enumerate(("q7", "q6"))}
    judged = {"q7": {"d12": 2, "d13": 1}, "q6": {"d15": 1}}
    theirs = ir_measures.calc_aggregate([ir_measures.nDCG @ 10, ir_measures.RR @ 10], judged, run)
    assert found["ndcg@10"] == pytest.approx(theirs[ir_measures.nDCG @ 10])
    assert found["mrr@10"] == pytest.approx(theirs[ir_measures.RR @ 10])


def test_a_relevant_document_is_not_hidden_from_the_query_of_its_id(tmp_path):
    root = write_beir(tmp_path / "mini")
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq7\tq7\t1\nq6\td15\t1\n")
    data = load_data("beir", root)
    assert (data.test_exclude, data.test_positives, data.test_gains) == (None, None, None)


def test_splits_another_folder_and_fewer_pairs_or_documents(tmp_path):
    root, other = write_beir(tmp_path / "mini"), write_beir(tmp_path / "other", documents=40)
    validated = load_data("beir", root, validation="dev")
    assert validated.validation.queries(torch.tensor([0])) == ["query 5"]
    assert load_data("beir", root, train="dev", split="train").test_gains.tolist() == [1, 2, 1, 2, 1]
    (other / "qrels" / "train.tsv").unlink()
    elsewhere = load_data("beir", root, test=str(other))
    assert len(elsewhere.test.reference) == 41
    assert elsewhere.train.pairs == 5
    best = load_data("beir", root, positives=1)
    assert [pair for pair in pairs_of(best) if pair[0] == "query 4"] == [("query 4", "title 21 text 21 \u00e9")]
    fewer = load_data("beir", root, distractors=2)
    assert 3 <= len(fewer.test.reference) <= 5
    assert texts(fewer.test, fewer.test_positives) == texts(validated.test, validated.test_positives)
    sets = (load_data("beir", root), validated, elsewhere, best, fewer)
    assert len({data.checksum for data in sets}) == len(sets)


def test_it_trains_with_validation(tmp_path):
    source = DataSource("beir", str(write_beir(tmp_path / "mini")), {"validation": "dev"})
    settings = Settings(epochs=1, pairs_per_batch=2, bits=64)

    class Length(torch.nn.Linear):
        def prepare(self, given):
            return torch.tensor([[float(ord(text[-3])), float(len(text)), 1.0] for text in given])

        def forward(self, x):
            return super().forward(self.prepare(x) if isinstance(x, list) else x)

    result = train(source, settings, out=tmp_path / "run", model=Length(3, 4), device="cpu", progress=False)
    assert result.metrics["queries"] == 2
    assert result.validation["queries"] == 1


def test_a_set_to_test_on_alone_says_what_to_do(tmp_path):
    root = write_beir(tmp_path / "scidocs")
    for split in ("train", "dev"):
        (root / "qrels" / f"{split}.tsv").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"has no train.tsv, only test: like most sets of BEIR, scidocs"
    ) as error:
        load_data("beir", root)
    assert f"with the option test={root}; or train on another split, with the option train=SPLIT" in str(error.value)


def test_pairs_that_are_all_connected_are_warned_of(tmp_path, caplog):
    root = write_beir(tmp_path / "mini")
    rows = "".join(f"q{i}\td{j}\t{1 + (i == j)}\n" for i in range(1, 6) for j in range(1, 6))
    (root / "qrels" / "train.tsv").write_text(rows)  # without a heading
    with caplog.at_level(logging.WARNING, "lookalike"):
        load_data("beir", root)
    assert "25 of the 25 training pairs of mini are connected through queries and documents" in caplog.text
    caplog.clear()
    data = load_data("beir", root, positives=1)
    assert (data.train.pairs, data.train.labels, caplog.text) == (5, None, "")


def test_a_few_judgements_of_nothing_are_left_out(tmp_path, caplog):
    root = write_beir(tmp_path / "mini", documents=200)
    rows = [f"q{1 + i % 9}\td{i}\t1\n" for i in range(199)] + ["q1\tabsent\t1\n"]
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    with caplog.at_level(logging.WARNING, "lookalike"):
        data = load_data("beir", root)
    assert len(data.test_positives[1]) == 199
    assert "1 of 200 judgements in " in caplog.text
    assert "such as 'q1' with 'absent'; they are left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("corpus.jsonl", None, r"corpus.jsonl is missing; a data set of BEIR is laid out as corpus.jsonl \(_id, title"),
        ("qrels/test.tsv", None, r"test.tsv is missing; a data set of BEIR"),
        ("qrels/train.tsv", "q1\td1\t0\n", "train.tsv has no judgement with a score above 0"),
        (
            "qrels/train.tsv",
            "query-id\tcorpus-id\tscore\nq1 0 d1 1\n",
            "line 2: expected query-id, corpus-id and score",
        ),
        ("qrels/train.tsv", "q1\t0\td1\t1\n", "line 1: expected query-id, corpus-id and score with tabs between"),
        ("qrels/train.tsv", "q1\td1\tnan\n", "line 1: expected query-id"),
        ("qrels/train.tsv", "q1\td1\t1\nq1\td99\t1\n", "1 of 2 judgements in .* such as 'q1' with 'd99': the files do"),
    ],
)
def test_mistakes(tmp_path, name, text, sentence):
    path = write_beir(tmp_path / "mini") / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_data("beir", tmp_path / "mini")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"validation": "test"}, "validation=test and split=test name the same judgements"),
        ({"train": "test"}, "train=test and split=test name the same judgements"),
        ({"positives": 0}, "positives must be at least 1"),
        ({"validation": "eval"}, "eval.tsv is missing"),
        ({"test": "absent"}, "absent is not a folder; a data set of BEIR is laid out as"),
    ],
)
def test_options_that_cannot_be(tmp_path, options, sentence):
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_data("beir", write_beir(tmp_path / "mini"), **options)


def test_the_same_pairs_as_in_another_layout(tmp_path):
    theirs = unzipped("medquad_msmarco.zip", tmp_path)
    root = tmp_path / "beir"
    (root / "qrels").mkdir(parents=True)

    def rows(name):
        return [line.split() for line in (theirs / name).read_text().splitlines()]

    def written(source, names, prefix):
        lines = [line.split("\t") for name in names for line in (theirs / name).read_text().split("\n") if line]
        write_json_lines(root / source, [{"_id": f"{prefix}{each[0]}", "text": each[1]} for each in lines])

    written("corpus.jsonl", ["collection.tsv"], "d")
    written("queries.jsonl", [f"queries.{split}.tsv" for split in ("train", "dev", "test")], "q")
    for split in ("train", "dev", "test"):
        lines = [f"q{query}\td{document}\t{score}\n" for query, _, document, score in rows(f"qrels.{split}.tsv")]
        (root / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    ours, data = load_data("beir", root), load_data("msmarco", theirs, split="test")
    assert list(ours.counts.values()) == list(data.counts.values())
    assert len(pairs_of(ours)) == data.train.pairs
    assert set(pairs_of(ours)) == {(query.strip(), document.strip()) for query, document in pairs_of(data)}
    assert len(ours.train.labels.unique()) == len(data.train.labels.unique())
    assert len(ours.test_positives[1]) == len(data.test_positives[1])
    assert (ours.test_gains, ours.test_exclude) == (None, None)
