import pytest
import torch

from lookalike.data import load_data
from lookalike.data.readers import msmarco as module
from tests.data.miniatures import unzipped, write_msmarco

pytestmark = pytest.mark.usefixtures("cache")


def test_pairs_judgements_and_labels(tmp_path):
    data = load_data("msmarco", write_msmarco(tmp_path / "msmarco"))
    assert data.counts == {"passages": 30, "training pairs": 5, "test queries": 2}
    ids = torch.arange(5)
    assert data.train.pairs == 5
    pairs = list(zip(data.train.queries(ids, 0), data.train.references(ids, 3), strict=True))
    assert pairs == [
        (f"question {qid}", f"passage {pid} \u00e9") for qid, pid in [(2, 8), (17, 3), (45, 20), (45, 21), (900, 3)]
    ]
    labels = data.train.labels.tolist()
    assert labels[1] == labels[4]  # the same passage
    assert labels[2] == labels[3]  # the same question
    assert len(set(labels)) == 3
    assert data.train.plain("query", torch.tensor([4])) == ["question 900"]
    assert data.test.queries(torch.tensor([0, 1])) == ["question 5", "question 6"]
    assert [x.tolist() for x in data.test_positives] == [[0, 2, 3], [11, 12, 29]]
    assert len(data.test.reference_labels) == 30
    assert data.test.query_labels.tolist() == [11, 29]


def test_a_smaller_test_keeps_what_is_judged(tmp_path):
    data = load_data("msmarco", write_msmarco(tmp_path / "msmarco"), distractors=4)
    texts = data.test.references(torch.arange(len(data.test.reference_labels)))
    assert 4 <= len(texts) <= 7
    offsets, answers = data.test_positives
    assert offsets.tolist() == [0, 2, 3]
    assert [texts[i] for i in answers.tolist()] == [f"passage {pid} \u00e9" for pid in (11, 12, 29)]
    assert data.checksum != load_data("msmarco", tmp_path / "msmarco").checksum


def test_another_split_validates(tmp_path):
    root = write_msmarco(tmp_path / "msmarco")
    (root / "queries.eval.tsv").write_text("70\tquestion 70\n71\tquestion 71\n")
    (root / "qrels.eval.tsv").write_text("70\t0\t4\t1\n71\t0\t5\t1\n71\t0\t6\t1\n")
    plain, data = load_data("msmarco", root, split="eval"), load_data("msmarco", root, split="eval", validation="dev")
    assert plain.validation is None
    assert data.validation.queries(torch.tensor([0, 1])) == ["question 5", "question 6"]
    assert [x.tolist() for x in data.validation_positives] == [[0, 2, 3], [11, 12, 29]]
    assert data.test.queries(torch.tensor([0, 1])) == ["question 70", "question 71"]
    assert data.checksum != plain.checksum
    with pytest.raises(ValueError, match="validation=dev is the split to test on: choose another split"):
        load_data("msmarco", root, validation="dev")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("triples.tsv", "17\t3\t9\n17\t3\t10\n2\t8\t1\n17\t3\t11\n"),
        ("pairs.tsv", "17 3\n2 8\n"),
    ],
)
def test_triples_and_pairs_of_ids(tmp_path, monkeypatch, name, lines):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)  # a line at a time
    (write_msmarco(tmp_path / "msmarco") / name).write_text(lines)
    data = load_data("msmarco", tmp_path / "msmarco", pairs=name)
    assert data.train.queries(torch.arange(2), 0) == ["question 2", "question 17"]
    assert data.counts["training pairs"] == 2


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("qrels.train.tsv", None, r"qrels.train.tsv is missing; MS MARCO is laid out as collection.tsv \(pid, text\)"),
        ("queries.dev.small.tsv", None, r"queries.dev.small.tsv is missing, and so is .*queries.dev.tsv; MS MARCO"),
        ("qrels.train.tsv", "17\t0\tpid\t1\n", "expected 4 whole numbers in every line"),
        ("qrels.train.tsv", "17\t0\t3\t1\n17 4\n", "expected 4 whole numbers in every line"),
        ("qrels.train.tsv", "17 0 3 0\n", "names no pairs"),
        ("qrels.train.tsv", "a question of many words\tits answer\n", "expected 2 to 4 columns of ids, got 7"),
        ("qrels.train.tsv", "17\t0\t30\t1\n", "collection.tsv has no line with the id 30"),
    ],
)
def test_mistakes(tmp_path, name, text, sentence):
    path = write_msmarco(tmp_path / "msmarco") / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_data("msmarco", tmp_path / "msmarco")


def test_real_files(tmp_path):
    root = unzipped("medquad_msmarco.zip", tmp_path)
    data = load_data("msmarco", root, split="test")
    assert data.counts == {"passages": 15_809, "training pairs": 13_755, "test queries": 1_196}
    assert len(data.test_positives[1]) == 1_284
    queries = data.train.queries(torch.arange(13_755), 0)
    assert len(set(data.train.query.ids.tolist())) == 12_551
    assert len(set(data.train.reference.ids.tolist())) == 13_221
    assert all(queries)
    dev = load_data("msmarco", root)
    assert dev.counts["test queries"] == 1_232
    assert not set(dev.test.query.ids.tolist()) - set(range(1_232))
