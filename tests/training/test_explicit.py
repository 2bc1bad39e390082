"""Training with explicit negatives, and with likely false negatives masked: the loss sees what it should."""

import contextlib
import json
import os
import signal
import string

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, normalize

from lookalike import InfoNCE
from lookalike.data.build import paired_texts
from lookalike.data.explicit import load_negative_ids, with_negatives
from lookalike.data.scans import glyph_scans
from lookalike.mining import mine_embeddings
from lookalike.negatives.hardness import hardest_similarity
from lookalike.training.embedding import embed_part
from lookalike.training.errors import Interrupted
from lookalike.training.loop import TrainingLoop
from lookalike.training.run import train
from lookalike.training.settings import Settings
from lookalike.utils.lists import make_lists
from tests.training.runs import metrics, quick

LETTERS = string.ascii_lowercase + string.digits
PAIRS = [(f"what is {a}{b}", f"{b}{a} is this") for a in "abcdef" for b in "uvwxyz"]
TESTED = [(f"what is {a}{b}", f"{b}{a} is this") for a in "ghi" for b in "uvw"]


class Letters(nn.Module):
    """Embeds how often each letter occurs; a text is prepared as a dictionary, as a tokeniser does."""

    def __init__(self, seed=0, stops_in=None):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(len(LETTERS), 24), nn.Tanh(), nn.Linear(24, 8))
        self.seen, self.passes, self.stops_in = [], 0, stops_in

    def prepare(self, texts):
        self.seen += texts
        return {"counts": torch.tensor([[text.count(letter) for letter in LETTERS] for text in texts]).float()}

    def forward(self, x):
        self.passes += self.training
        if self.training and self.passes == self.stops_in:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.layers((x if isinstance(x, dict) else self.prepare(x))["counts"])


def texts(negatives):
    return paired_texts("letters", "letters", PAIRS, TESTED, negatives=negatives)


def explicit(m=2):
    """For pair i the answers of the pairs after it, and one text that answers nothing."""
    return [[PAIRS[(i + k) % len(PAIRS)][1] for k in range(1, m)] + [f"nothing {i}"] for i in range(len(PAIRS))]


def test_a_step_has_the_loss_and_the_hardness_of_its_batch(tmp_path):
    """One batch holds all pairs, so every negative but the last of each pair answers another query in it."""
    n, m, negatives = len(PAIRS), 2, explicit()
    negatives[3] = []  # lacks its negatives
    model, seen = Letters(), []
    with torch.no_grad():
        query, reference = (model([pair[side] for pair in PAIRS]) for side in (0, 1))
        shown = [own or [PAIRS[i][1]] * m for i, own in enumerate(negatives)]
        others = model([text for own in shown for text in own]).view(n, m, -1)
        places = [(j, k) for j in range(n) for k in range(m)]
        rows = [[n + m * j + k for j, k in places if j == 3 or shown[j][k] == answer] for _, answer in PAIRS]
        expected = InfoNCE()(query, reference, make_lists(rows), others).item()
        counted = [
            [*(reference[j] for j in range(n) if j != i)]
            + [others[j, k] for j, k in places if n + m * j + k not in rows[i]]
            for i in range(n)
        ]
        hardest = [max(cosine_similarity(query[i], x, dim=0).item() for x in own) for i, own in enumerate(counted)]
    settings = Settings(sampler="random", epochs=1, pairs_per_batch=n)
    train(texts(negatives), settings, out=tmp_path, model=model, on_epoch=seen.append)
    assert seen[1].loss == pytest.approx(expected, rel=1e-5)
    assert seen[1].hardest_negative == pytest.approx(sum(hardest) / n, rel=1e-5)
    assert seen[1].masked is None


def test_hardest_negatives_may_be_explicit():
    query, reference = torch.eye(3)[:2], torch.eye(3)[:2]
    negatives = torch.tensor([[[0.0, 1.0, 1.0]], [[5.0, 0.0, 0.0]]])
    assert hardest_similarity(query, reference).item() == 0
    assert hardest_similarity(query, reference, None, negatives).item() == pytest.approx((1 + 0.5**0.5) / 2)
    assert hardest_similarity(query, reference, make_lists([[3], []]), negatives).item() == pytest.approx(0.5**0.5 / 2)


def test_only_negatives_of_the_batch_are_read():
    model = Letters()
    settings = Settings(sampler="random", epochs=1, pairs_per_batch=6)
    loop = TrainingLoop(model, texts([[f"nothing {i}"] for i in range(len(PAIRS))]), settings, torch.device("cpu"))
    loop.train_epoch()
    for first in range(0, len(model.seen), 18):
        asked, answers, others = (model.seen[first + k : first + k + 6] for k in (0, 6, 12))
        rows = [PAIRS.index(pair) for pair in zip(asked, answers, strict=True)]
        assert others == [f"nothing {row}" for row in rows]
    assert len(model.seen) == 18 * 6


@pytest.mark.parametrize("sampler", ["lsh", "batchhard"])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, sampler):
    data, settings = texts(explicit()), quick(sampler, mask_above=0.98, epochs=3)
    train(data, settings, out=tmp_path / "whole", model=Letters())
    for passes in (4, 5, 21):  # three in each of nine steps
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=Letters(stops_in=passes), resume=True)
    train(data, settings, out=tmp_path / "parts", model=Letters(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert all(0 < epoch["masked"] < 1 for epoch in metrics(tmp_path / "whole")[1:-1])


def likely_false(query, reference, negatives, above):
    """Return for every candidate whether double precision calls it too similar, and whether rounding might decide."""
    query, reference, others = (normalize(x.double(), dim=1) for x in (query, reference, negatives))
    similarity = query @ torch.cat([reference, others]).T
    positive = similarity.diagonal()[:, None].clone()
    limit = positive - (1 - above) * positive.abs()
    own = torch.eye(*similarity.shape, dtype=torch.bool)
    return (similarity > limit) & ~own, ((similarity - limit).abs() < 1e-6) & ~own


def test_identical_glyphs_with_different_labels_are_masked():
    part = glyph_scans(paired=True, merge_identical=False).train
    pixels = part.plain("reference", torch.arange(len(part))).flatten(1)
    _, shapes, counts = pixels.unique(dim=0, return_inverse=True, return_counts=True)
    repeated = (counts > 1).nonzero()[:20, 0]
    ids = torch.cat([torch.isin(shapes, repeated).nonzero()[:, 0], (counts[shapes] == 1).nonzero()[:40, 0]])
    same = shapes[ids][:, None] == shapes[ids]
    same.fill_diagonal_(False)
    assert same.sum() >= 40
    assert len(part.labels[ids].unique()) == len(ids)  # labelled apart
    query, reference = (part.plain(tower, ids).flatten(1) - 0.1 for tower in ("query", "reference"))
    criterion = InfoNCE(mask_above=0.999, symmetric=False)
    criterion(query, reference)
    expected, unsure = likely_false(query, reference, query[:0], 0.999)
    assert not unsure.any()
    assert expected[same].all()  # an identical reference is as similar as the positive
    assert criterion.counts.tolist() == [int(expected.sum()), len(ids) * (len(ids) - 1)]


def test_texts_that_a_model_cannot_tell_apart_are_masked_in_training(tmp_path):
    """Spaces make no difference to this model, so each of the last six pairs is another's duplicate."""
    pairs = PAIRS[:12] + [(query, answer.replace(" ", "  ")) for query, answer in PAIRS[:6]]
    pairs = [(f"{query}{'?' * (i // 12)}", answer) for i, (query, answer) in enumerate(pairs)]
    n, above = len(pairs), 0.999
    negatives = [[pairs[i - 1][1].upper().lower() + " "] for i in range(n)]  # the answer of the pair before it, again
    model, seen = Letters(), []
    with torch.no_grad():
        query, reference = (model([pair[side] for pair in pairs]) for side in (0, 1))
        there, unsure = likely_false(query, reference, model([own[0] for own in negatives]), above)
        back, unsure_too = likely_false(reference, query, query[:0], above)
    assert not unsure.any()
    assert not unsure_too.any()
    assert all(there[i, i + 12] and there[i + 12, i] and back[i, i + 12] for i in range(6))
    assert all(there[i, n + (i + 1) % n] for i in range(n))
    data = paired_texts("twins", "twins", pairs, TESTED, negatives=negatives)
    assert data.train.labels is None  # nothing in the texts says so
    settings = Settings(sampler="random", epochs=1, pairs_per_batch=n, mask_above=above)
    train(data, settings, out=tmp_path, model=model, on_epoch=seen.append)
    total = n * (2 * n - 1) + n * (n - 1)
    assert seen[1].masked == (int(there.sum()) + int(back.sum())) / total
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])["masked"] == seen[1].masked


def test_negatives_mined_offline_are_trained_on(tmp_path):
    """As the documentation shows it: embed the training part, mine row numbers, train on them."""
    data, model = texts(None), Letters()
    query, reference = (embed_part(model, data.train, tower) for tower in ("query", "reference"))
    output = tmp_path / "mined.npy"
    mined = mine_embeddings(
        query, reference, positives=range(len(query)), num_negatives=3, output=output, bits=64, verbose=False
    )
    similarity = (query @ reference.T).fill_diagonal_(-2)
    assert torch.equal(mined.indices[:, 0], similarity.argmax(1))
    assert load_negative_ids(output, len(PAIRS)).tolist() == mined.indices.tolist()
    hard = with_negatives(data, mined.indices)
    assert hard.train.negatives(torch.tensor([5]), 0) == [PAIRS[i][1] for i in mined.indices[5].tolist()]
    seen = {}
    settings = Settings(sampler="random", epochs=1, pairs_per_batch=6)
    for name, each in (("plain", data), ("hard", hard)):
        train(each, settings, out=tmp_path / name, model=Letters(), on_epoch=seen.setdefault(name, []).append)
    assert seen["hard"][1].hardest_negative > seen["plain"][1].hardest_negative + 0.005
