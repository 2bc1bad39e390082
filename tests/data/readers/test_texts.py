import json

import torch

from lookalike.data import load_data
from tests.data.miniatures import write_csv

PAIRS = [(f'what is "{i // 2}"?', f"answer, {i}") for i in range(60)]


def test_pairs_of_texts_in_any_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"anchor": q, "positive": a, "negative": "no"}) + "\n" for q, a in PAIRS)
    )
    (tmp_path / "b.json").write_text(json.dumps([{"text1": q, "text2": a} for q, a in PAIRS]))
    (tmp_path / "c.tsv").write_text("query\treference\n" + "".join(f"{q}\t{a}\n" for q, a in PAIRS))
    write_csv(tmp_path / "d.csv", ["question", "answer"], PAIRS)
    names = ("a.jsonl", "b.json", "c.tsv", "d.csv")
    read = [load_data("texts", tmp_path / name, test_share=0.3, negatives=0) for name in names]
    assert len({(data.checksum, data.description.partition(":")[2]) for data in read}) == 1
    data = read[0]
    number = data.counts["training pairs"]
    assert 30 < number < 55
    trained = list(
        zip(data.train.queries(torch.arange(number), 0), data.train.references(torch.arange(number), 0), strict=True)
    )
    assert set(trained) <= set(PAIRS)
    labels = dict(zip(trained, data.train.labels.tolist(), strict=True))
    both = [i for i in range(0, 60, 2) if PAIRS[i] in labels and PAIRS[i + 1] in labels]
    assert both
    assert all(labels[PAIRS[i]] == labels[PAIRS[i + 1]] for i in both)  # one question
    assert data.counts["test references"] == 60 - number


def test_texts_with_a_test_of_their_own(tmp_path):
    (tmp_path / "train.tsv").write_text("".join(f"{q}\t{a}\n" for q, a in PAIRS[:40]))
    (tmp_path / "test.tsv").write_text("".join(f"{q}\t{a}\n" for q, a in PAIRS[40:]))
    data = load_data("texts", tmp_path / "train.tsv", test=tmp_path / "test.tsv", header=False)
    assert data.counts == {"training pairs": 40, "test queries": 10, "test references": 20}
    offsets, answers = data.test_positives
    assert offsets.tolist() == list(range(0, 22, 2))
    assert data.test.references(answers[:2]) == ["answer, 40", "answer, 41"]
