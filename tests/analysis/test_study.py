import numpy as np
import pytest
import torch

from lookalike.analysis import CODE_METHODS, analyze, overlap
from lookalike.analysis import study as module
from lookalike.data.synthetic import clustered_embeddings
from lookalike.hashing import ScalarHasher, SignHasher
from lookalike.negatives import hard_negatives
from lookalike.search import scalar_topk
from lookalike.search.cosine import cosine_topk


@pytest.fixture(scope="module")
def embeddings():
    return clustered_embeddings(3000, dim=64, seed=3)


@pytest.fixture(scope="module")
def result(embeddings):
    x, labels = embeddings
    return analyze(x, labels, bits=(32, 64, 256), k=20, anchors=400)


def rows(result, method="lsh"):
    return [row for row in result["rows"] if row["method"] == method]


def test_agrees_with_a_search_of_everything(embeddings):
    x, labels = embeddings
    hasher = SignHasher(64, 256)
    hasher.update_mean(x)
    found = hard_negatives(hasher.encode(x), labels, 20).indices
    true = cosine_topk(x, x, 20, query_labels=labels, reference_labels=labels).indices
    common = [len(set(a) & set(b)) / 20 for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    result = analyze(x, labels, bits=(256,), k=20, anchors=3000, methods=("lsh",))
    assert rows(result)[0]["overlap"]["mean"] == pytest.approx(np.mean(common), abs=1e-6)
    low, high = (rows(analyze(x, labels, bits=(256,), k=20, anchors=300))[0]["overlap"][end] for end in ("low", "high"))
    assert low < np.mean(common) < high


def test_more_bits_come_closer(result):
    for method in ("lsh", "not centred", "gaussian rows"):
        shares = [row["overlap"]["mean"] for row in rows(result, method)]
        assert shares == sorted(shares)
        shifts = [row["positional_distance"]["mean"] for row in rows(result, method)]
        assert shifts == sorted(shifts, reverse=True)
    assert all(row["overlap"]["mean"] > 5 * result["random"]["overlap"] for row in result["rows"])
    assert all(row["similarity"] <= result["exact"]["similarity"] for row in result["rows"])
    assert all(sum(row["bound"].values()) == pytest.approx(1) for row in result["rows"])


def test_speed_is_that_of_the_fastest_backend_and_names_it(result):
    assert result["settings"]["backend"] == "cpu"
    assert result["settings"]["threads"] == torch.get_num_threads()


def test_every_method_is_there_as_far_as_it_goes(result):
    lengths = {method: [row["bits"] for row in rows(result, method)] for method in CODE_METHODS}
    assert lengths["lsh"] == [32, 64, 256]
    assert lengths["pca-sign"] == lengths["incremental pca-sign"] == [32, 64]  # no more than dimensions
    assert lengths["scalar"] == [32, 64, 256]
    assert rows(result)[0]["compression"] == 64  # float32 of 64 dimensions against 32 bits
    assert sum(result["histogram"]["exact"]) == sum(result["histogram"]["lsh"]["64"]) == 400 * 20


def test_codes_of_several_bits_find_more_than_signs(embeddings, result):
    x, labels = embeddings
    for scalar, signs in zip(rows(result, "scalar"), rows(result), strict=True):
        assert scalar["overlap"]["low"] > signs["overlap"]["high"]
        assert scalar["similarity"] > signs["similarity"]
        assert (scalar["bytes"], scalar["compression"]) == (signs["bytes"], signs["compression"])
    shorter = analyze(x, labels, bits=(16, 32), k=20, anchors=50, methods=("lsh", "scalar"))
    assert [row["bits"] for row in rows(shorter, "scalar")] == [32]  # 16 bits would be the header alone


def test_codes_of_several_bits_are_those_of_their_hasher(embeddings):
    x, labels = embeddings
    hasher = ScalarHasher(64, 96)
    hasher.update(x)
    codes = hasher.encode(x)
    found = scalar_topk(codes, codes, 20, query_labels=labels).indices
    true = cosine_topk(x, x, 20, query_labels=labels, reference_labels=labels).indices
    result = analyze(x, labels, bits=(96,), k=20, anchors=3000, methods=("scalar",))
    assert rows(result, "scalar")[0]["overlap"]["mean"] == pytest.approx(float(overlap(found, true).mean()), abs=1e-3)


def test_the_random_floor(embeddings, monkeypatch):
    x, _ = embeddings

    def at_random(_codes, anchors, _labels, k):
        return torch.stack([torch.randperm(3000)[:k] for _ in anchors]), 1.0

    monkeypatch.setattr(module, "_searched", at_random)
    result = analyze(x, None, bits=(64,), k=100, anchors=500, methods=("lsh",))
    assert rows(result)[0]["overlap"]["mean"] == pytest.approx(result["random"]["overlap"], abs=0.005)
    assert rows(result)[0]["positional_distance"]["mean"] == pytest.approx(
        result["random"]["positional_distance"], rel=0.03
    )


def test_arrays_on_disk_and_small_pieces_give_the_same(embeddings, tmp_path, monkeypatch):
    x, labels = embeddings
    np.save(tmp_path / "x.npy", x.numpy())
    options = {"bits": (64,), "k": 10, "anchors": 100}
    expected = analyze(x, labels, **options)
    monkeypatch.setattr(module, "ANCHORS_AT_A_TIME_BYTES", 7 * 4 * 3000)
    found = analyze(np.load(tmp_path / "x.npy", mmap_mode="r"), labels, **options)
    for a, b in zip(expected["rows"], found["rows"], strict=True):
        assert a["overlap"] == pytest.approx(b["overlap"])
        assert a["bound"] == pytest.approx(b["bound"], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 3000}, "k must be below the number of embeddings, 3000"),
        ({"bits": (12,)}, "bits must be a multiple of 8"),
        ({"methods": ("itq",)}, "methods must be one of 'lsh', .*, got 'itq'."),
        ({"labels": [1, 2]}, "labels must have one label per code"),
    ],
)
def test_mistakes(embeddings, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        analyze(embeddings[0], **{"labels": None, **options})
