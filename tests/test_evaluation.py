import random

import pytest
import torch
from torch.nn.functional import normalize

from lookalike import evaluate, evaluation
from lookalike.utils.lists import each_itself, make_lists

ir_measures = pytest.importorskip("ir_measures", reason="compares with ir-measures, which is not installed")


def judged(query, reference, query_labels, reference_labels, exclude=None):
    """The same measures by ir-measures, over explicit lists of documents and judgements."""
    similarity = normalize(query.double(), dim=1) @ normalize(reference.double(), dim=1).T
    qrels, run = [], []
    for i in range(len(query)):
        left_out = set() if exclude is None else set(exclude[1][exclude[0][i] : exclude[0][i + 1]].tolist())
        for j in range(len(reference)):
            if j in left_out:
                continue
            if query_labels[i] == reference_labels[j]:
                qrels.append(ir_measures.Qrel(str(i), str(j), 1))
            run.append(ir_measures.ScoredDoc(str(i), str(j), float(similarity[i, j])))
    percent = max(1, len(reference) // 100)
    measures = {
        "recall@1": ir_measures.Success @ 1,
        "recall@5": ir_measures.Success @ 5,
        "recall@10": ir_measures.Success @ 10,
        "recall@1%": ir_measures.Success @ percent,
        "mrr@10": ir_measures.RR @ 10,
        "ndcg@10": ir_measures.nDCG @ 10,
    }
    found = ir_measures.calc_aggregate(list(measures.values()), qrels, run)
    return {name: found[measure] for name, measure in measures.items()}


@pytest.mark.parametrize("chunk_bytes", [1 << 28, 1 << 12])
@pytest.mark.parametrize(("q", "r", "classes"), [(40, 250, 30), (1, 1, 1), (25, 7, 5), (60, 320, 3)])
def test_agrees_with_ir_measures(monkeypatch, chunk_bytes, q, r, classes):
    monkeypatch.setattr(evaluation, "CHUNK_BYTES", chunk_bytes)
    torch.manual_seed(q)
    query, reference = torch.randn(q, 4), torch.randn(r, 4)
    labels = torch.randint(0, classes, (q,)), torch.randint(0, classes, (r,))
    if r == 1:
        labels = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    found = evaluate(query, reference, *labels)
    for name, value in judged(query, reference, *labels).items():
        assert found[name] == pytest.approx(value), name


def test_a_set_searched_in_itself():
    torch.manual_seed(1)
    x, labels = torch.randn(90, 5), torch.arange(90) // 3
    itself = each_itself(90)
    found = evaluate(x, x, labels, labels, exclude=itself)
    assert evaluate(x, x, labels, labels)["recall@1"] == 1.0
    for name, value in judged(x, x, labels, labels, itself).items():
        assert found[name] == pytest.approx(value), name


def test_autocast_changes_nothing():
    query, reference = (torch.randn(n, 64, generator=torch.manual_seed(n)) for n in (40, 900))
    labels = torch.arange(40), torch.arange(900) % 40
    expected = evaluate(query, reference, *labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert evaluate(query, reference, *labels) == expected


def test_of_equal_similarities_the_smaller_id_comes_first():
    query, reference = torch.ones(2, 3), torch.ones(20, 3)
    found = evaluate(query, reference, [7, 0], torch.arange(20))
    assert found["recall@1"] == 0.5
    assert found["recall@5"] == 0.5
    assert found["recall@10"] == 1.0
    assert found["mrr@10"] == pytest.approx((1 / 8 + 1) / 2)


def test_queries_without_a_positive_are_left_out():
    query, reference = torch.eye(3), torch.eye(3)
    found = evaluate(query, reference, [0, 5, 2], [0, 1, 2])
    assert found["queries"] == 2
    assert found["recall@1"] == 1.0
    excluded = evaluate(query, reference, [0, 1, 2], [0, 1, 2], exclude=make_lists([[0], [], [0, 1]]))
    assert excluded["queries"] == 2  # the first query's only positive is excluded


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.eye(2), torch.eye(2), [5, 6], [0, 1]), "no query has a positive"),
        ((torch.eye(2), torch.full((2, 2), torch.nan), [0, 1], [0, 1]), "reference has a row that is not finite"),
        ((torch.eye(2), torch.eye(3), [0, 1], [0, 1, 2]), "the same dimension, got 2 and 3"),
        ((torch.eye(2), torch.eye(2), [0], [0, 1]), "query_labels must have one label"),
    ],
)
def test_mistakes(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        evaluate(*arguments)


def test_several_queries_may_have_an_answer_in_common():
    query, reference = torch.eye(3), torch.eye(3)
    alone = evaluate(query, reference, [1, 1, 2], torch.arange(3))
    assert alone["recall@1"] == pytest.approx(2 / 3)
    listed = evaluate(query, reference, [1, 1, 2], torch.arange(3), positives=make_lists([[1, 0], [1], []]))
    assert listed["recall@1"] == 1.0
    with pytest.raises(ValueError, match="positives ids must be between 0 and 2, got 0 to 3"):
        evaluate(query, reference, [1, 1, 2], torch.arange(3), positives=make_lists([[3], [0], [0]]))
    with pytest.raises(ValueError, match=r"positives offsets must have length 4 \(rows \+ 1\), got 2"):
        evaluate(query, reference, [1, 1, 2], torch.arange(3), positives=make_lists([[1]]))
    with pytest.raises(TypeError, match=r"exclude must be a pair \(offsets, ids\)"):
        evaluate(query, reference, [1, 1, 2], torch.arange(3), exclude=torch.zeros(3, 1))


@pytest.mark.parametrize("chunk_bytes", [1 << 28, 1 << 12])
def test_lists_of_different_lengths(monkeypatch, chunk_bytes):
    monkeypatch.setattr(evaluation, "CHUNK_BYTES", chunk_bytes)
    torch.manual_seed(2)
    rng = random.Random(2)
    query, reference = torch.randn(50, 4), torch.randn(200, 4)
    hidden = [rng.sample(range(200), rng.randrange(12)) for _ in range(50)]
    answers = [rng.sample(range(200), rng.randrange(4)) for _ in range(50)]
    labels = torch.full((50,), -1), torch.arange(200)  # only the lists name positives
    ranks = evaluation.measure_queries(query, reference, *labels, make_lists(hidden), make_lists(answers))[:, 0]
    order = (normalize(query, dim=1) @ normalize(reference, dim=1).T).argsort(descending=True).tolist()
    for i, rank in enumerate(ranks.tolist()):
        seen = [j for j in order[i] if j not in hidden[i]]
        assert rank == min((seen.index(j) for j in answers[i] if j in seen), default=evaluation.NEVER)


def judged_with_gains(query, reference, answers, gains):
    """nDCG@10 by ir-measures with graded judgements."""
    similarity = normalize(query.double(), dim=1) @ normalize(reference.double(), dim=1).T
    qrels = [
        ir_measures.Qrel(str(i), str(j), gain)
        for i, row in enumerate(answers)
        for j, gain in zip(row, gains[i], strict=True)
    ]
    run = [
        ir_measures.ScoredDoc(str(i), str(j), float(x)) for i, row in enumerate(similarity) for j, x in enumerate(row)
    ]
    return ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]


@pytest.mark.parametrize("chunk_bytes", [1 << 28, 1 << 12])
@pytest.mark.parametrize("r", [120, 6])
def test_graded_gains_agree_with_ir_measures(monkeypatch, chunk_bytes, r):
    monkeypatch.setattr(evaluation, "CHUNK_BYTES", chunk_bytes)
    torch.manual_seed(r)
    rng = random.Random(r)
    query, reference = torch.randn(30, 4), torch.randn(r, 4)
    answers = [rng.sample(range(r), rng.randint(1, min(r, 25))) for _ in range(30)]
    gains = [[rng.randint(1, 4) for _ in row] for row in answers]
    labels = torch.full((30,), -1), torch.arange(r)
    flat = torch.tensor([gain for row in gains for gain in row])
    found = evaluate(query, reference, *labels, positives=make_lists(answers), gains=flat)
    assert found["ndcg@10"] == pytest.approx(judged_with_gains(query, reference, answers, gains))


def test_mistakes_in_gains():
    x, labels = torch.eye(2), ([-1, -1], [0, 1])
    with pytest.raises(ValueError, match="positives= are, which are missing"):
        evaluate(x, x, *labels, gains=[1.0])
    for gains, sentence in (([1.0], "one number per id of positives, 2"), ([1.0, 0.0], "positive and finite")):
        with pytest.raises(ValueError, match=sentence):
            evaluate(x, x, *labels, positives=make_lists([[0], [1]]), gains=gains)


@pytest.mark.parametrize("chunk_bytes", [1 << 28, 1 << 12])
@pytest.mark.parametrize(("n", "classes"), [(90, 30), (60, 1), (200, 7), (8, 2)])
def test_map_at_r_agrees_with_pytorch_metric_learning(monkeypatch, chunk_bytes, n, classes):
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    monkeypatch.setattr(evaluation, "CHUNK_BYTES", chunk_bytes)
    torch.manual_seed(n)
    x, labels = normalize(torch.randn(n, 5), dim=1), torch.arange(n) % classes

    def by_matrix(query, k, reference, _):  # instead of faiss, which is not installed
        similarity = query @ reference.T
        similarity.fill_diagonal_(-2)
        order = similarity.argsort(dim=1, descending=True)[:, :k]
        return similarity.gather(1, order), order

    calculator = calculators.AccuracyCalculator(("mean_average_precision_at_r",), k="max_bin_count", knn_func=by_matrix)
    theirs = calculator.get_accuracy(x, labels, x, labels, ref_includes_query=True)["mean_average_precision_at_r"]
    assert evaluate(x, x, labels, labels, exclude=each_itself(n))["map@r"] == pytest.approx(theirs)


def test_lists_are_exact_among_equal_similarities():
    torch.manual_seed(3)
    query, reference = torch.randint(0, 2, (40, 3)).float(), torch.randint(0, 2, (70, 3)).float()
    labels = torch.randint(0, 3, (40,)), torch.randint(0, 3, (70,))
    found = evaluation.measure_queries(query, reference, *labels)
    similarity = normalize(query, dim=1) @ normalize(reference, dim=1).T
    order = similarity.argsort(dim=1, descending=True, stable=True)
    for i in range(40):
        hits = (labels[1][order[i]] == labels[0][i]).double()
        discount = torch.arange(2, 12).double().log2().reciprocal()
        total = int(hits.sum())
        ideal = discount[: min(total, 10)].sum()
        precision = (hits * hits.cumsum(0) / torch.arange(1, 71))[:total].sum() / total
        assert found[i, 1:].tolist() == pytest.approx([float((hits[:10] * discount).sum() / ideal), float(precision)])
