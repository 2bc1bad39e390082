"""The same as sentence-transformers' own function: arguments, columns, rows, their order, and the negatives."""

import inspect
import random
import zlib

import pytest
import torch

from lookalike import mine_hard_negatives
from tests.processes import FORKSERVER, start_server

theirs = pytest.importorskip("sentence_transformers.util").mine_hard_negatives
datasets = pytest.importorskip("datasets")

EVERYTHING = 1000  # times the candidates: the shortlist is the whole corpus


def both(dataset, model, **options):
    """Theirs and ours with the same arguments and the same state of Python's generator."""
    found = []
    for mine, more in ((theirs, {}), (mine_hard_negatives, {"oversampling": EVERYTHING})):
        random.seed(5)
        found.append(mine(dataset, model, verbose=False, **options, **more))
    return found


def assert_same(expected, got):
    assert got.column_names == expected.column_names
    assert got.features == expected.features
    assert len(got) == len(expected)
    for name in expected.column_names:
        if name in ("score", "scores"):
            torch.testing.assert_close(flat(got[name]), flat(expected[name]), atol=2e-6, rtol=0)
        else:
            assert list(got[name]) == list(expected[name])


def flat(values):
    return torch.tensor([v for value in values for v in (value if isinstance(value, list) else [value])])


def test_every_argument_is_taken_and_means_the_same_by_default():
    expected, got = inspect.signature(theirs).parameters, inspect.signature(mine_hard_negatives).parameters
    assert list(got)[: len(expected)] == list(expected)
    assert {name: got[name].default for name in expected} == {name: p.default for name, p in expected.items()}
    more = {name: parameter.kind for name, parameter in got.items() if name not in expected}
    ours = "bits code rescore oversampling seed device output force source same block engine judge judge_margin"
    assert set(more) == set(ours.split())
    assert set(more.values()) == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
@pytest.mark.parametrize(
    "options",
    [{}, {"relative_margin": 0.05, "num_negatives": 4}, {"absolute_margin": -0.05, "range_max": 12}],
    ids=["plain", "relative", "absolute"],
)
def test_every_format(dataset, model, output_format, scores, options):
    expected, got = both(dataset, model, output_format=output_format, output_scores=scores, **options)
    assert len(expected) > 20
    assert_same(expected, got)


@pytest.mark.parametrize(
    "options",
    [
        {"range_min": 2},
        {"range_min": 1, "range_max": 6, "num_negatives": 5},
        {"max_score": 0.9},
        {"min_score": 0.9},
        {"max_score": 0.93, "min_score": 0.85, "range_max": 30, "range_min": 3},
        {"absolute_margin": 0.02, "relative_margin": 0.01, "range_max": 60},
        {"relative_margin": 0.0, "num_negatives": 1},
        {"range_max": 200},  # more than the corpus
        {"num_negatives": 90},  # likewise
        {"sampling_strategy": "random", "range_max": 20},
        {"sampling_strategy": "random", "max_score": 0.92, "num_negatives": 5},
        {"include_positives": True, "num_negatives": 6},
        {"include_positives": True, "num_negatives": 4, "relative_margin": 0.1, "range_min": 1},
        {"query_prompt": "fox gun "},
        {"query_prompt_name": "ask", "corpus_prompt": "hat "},
        {"faiss_batch_size": 7, "absolute_margin": 0.0},
        {"anchor_column_name": "answer", "positive_column_name": "query"},
        {"as_triplets": False, "margin": 0.01},
        {"output_format": "n-tuple-scores"},
    ],
    ids=str,
)
def test_filters_ranges_sampling_prompts(dataset, model, more_texts, options):
    for corpus in (None, more_texts):
        assert_same(*both(dataset, model, corpus=corpus, **options))


def test_a_query_in_the_corpus_may_be_its_own_negative(dataset, model):
    expected, got = both(dataset, model, corpus=list(dataset["query"]), output_scores=True)
    assert_same(expected, got)
    assert any(row["negative"] == row["query"] for row in got)


def test_no_negative_at_all_leaves_the_columns(dataset, model):
    for output_format in ("triplet", "n-tuple", "labeled-list"):
        expected, got = both(dataset, model, min_score=0.999, output_format=output_format)
        assert len(got) == len(expected) == 0
        assert got.column_names == expected.column_names


@pytest.mark.parametrize("name", ["dot", "euclidean", "manhattan"])
def test_other_similarities(dataset, model_folder, name):
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(model_folder), device="cpu", similarity_fn_name=name)
    assert_same(*both(dataset, model, output_scores=True, relative_margin=0.01))


class WordOverlap:
    """Scores as a cross-encoder does, by the words that two texts share; checksums break ties."""

    def predict(self, pairs, **options):
        assert options["convert_to_tensor"]
        shared = [len(set(a.split()) & set(b.split())) + zlib.crc32(b.encode()) / 2**32 for a, b in pairs]
        return torch.tensor(shared) / 10


@pytest.mark.parametrize(
    "options", [{"max_score": 0.3}, {"min_score": 0.1, "range_min": 1}, {"absolute_margin": 0.0}, {}], ids=str
)
def test_cross_encoder_scores_are_what_is_filtered(dataset, model, options):
    assert_same(*both(dataset, model, cross_encoder=WordOverlap(), output_scores=True, **options))


def test_a_real_cross_encoder(dataset, model, model_folder):
    torch.manual_seed(1)
    judge = pytest.importorskip("sentence_transformers").CrossEncoder(
        str(model_folder.parent / "bert"), num_labels=1, max_length=48, device="cpu"
    )
    assert_same(*both(dataset, model, cross_encoder=judge, output_scores=True, relative_margin=0.001, num_negatives=2))


def test_several_processes_encode_the_same(dataset, other_model, monkeypatch):
    start_server()
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda _: FORKSERVER)  # spawned ones import for seconds
    alone = mine_hard_negatives(dataset, other_model, verbose=False, output_scores=True)
    together = mine_hard_negatives(dataset, other_model, verbose=False, output_scores=True, use_multi_process=["cpu"])
    assert_same(alone, together)


def test_the_default_shortlist_finds_nearly_all_and_codes_alone_most(dataset, model, more_texts):
    expected = theirs(dataset, model, corpus=more_texts, output_format="n-tuple", verbose=False)
    shares = {}
    for name, options in {
        "rescored": {"bits": 256},
        "codes": {"rescore": "codes"},
        "signs": {"code": "signs", "rescore": "codes"},
    }.items():
        got = mine_hard_negatives(dataset, model, corpus=more_texts, output_format="n-tuple", verbose=False, **options)
        assert got.column_names == expected.column_names
        assert list(got["query"]) == list(expected["query"])
        found = [{row[f"negative_{i}"] for i in (1, 2, 3)} for row in got]
        true = [{row[f"negative_{i}"] for i in (1, 2, 3)} for row in expected]
        shares[name] = sum(len(a & b) for a, b in zip(found, true, strict=True)) / (3 * len(true))
    assert shares["rescored"] > 0.98, shares
    assert shares["codes"] > 0.9, shares
    assert shares["signs"] > 0.6, shares


@pytest.mark.parametrize(("code", "usual", "worst"), [("signs", 0.04, 0.08), ("scalar", 0.03, 0.15)])
def test_scores_of_codes_estimate_cosines(dataset, model, code, usual, worst):
    """Without floats, thresholds and margins speak of cosines all the same, so signs must not be centred.

    One query lies farther along the mean than the range of any reference that scalar codes were fitted to.
    """
    exact = theirs(dataset, model, output_format="labeled-pair", output_scores=True, verbose=False)
    got = mine_hard_negatives(
        dataset,
        model,
        output_format="labeled-pair",
        output_scores=True,
        verbose=False,
        bits=4096,
        code=code,
        rescore="codes",
    )
    true = dict(zip(zip(exact["query"], exact["answer"], strict=True), exact["score"], strict=True))
    errors = [row["score"] - true[key] for row in got if (key := (row["query"], row["answer"])) in true]
    assert len(errors) > 150
    assert abs(sum(errors) / len(errors)) < 0.01
    assert sum(error**2 for error in errors) / len(errors) < usual**2
    assert max(map(abs, errors)) < worst
