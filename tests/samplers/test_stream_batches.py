"""Streams are mined window by window: every sample once, labels apart, harder than shuffled, and bounded."""

import logging
import warnings
from collections import Counter
from itertools import count, islice

import datasets
import numpy as np
import pytest
import torch
from datasets.distributed import split_dataset_by_node
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from lookalike import Filters, StreamBatches
from tests.ranks import on_ranks

BITS = 64


def embed(batch):
    return normalize(batch["x"], dim=1)


def embed_pairs(batch):
    return embed(batch), normalize(batch["x"] + 0.05 * torch.roll(batch["x"], 1, dims=1), dim=1)


def clustered(labels, clusters=20, dim=16, seed=0):
    """Samples in clusters, each label in one of them, in random order."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, dim))
    labels = rng.permutation(labels)
    for i, label in enumerate(labels.tolist()):
        near = np.random.default_rng([seed, label]).standard_normal(dim)
        x = centres[label % clusters] + 0.3 * near + 0.05 * rng.standard_normal(dim)
        yield {"x": torch.tensor(x, dtype=torch.float32), "id": i, "label": label, "cluster": label % clusters}


def in_couples(n):
    """The two samples of each label one after the other."""
    samples = sorted(clustered(np.arange(n) // 2), key=lambda sample: sample["label"])
    return [{**sample, "id": i} for i, sample in enumerate(samples)]


def ids_of(batches):
    return [batch["id"].tolist() for batch in batches]


def same_cluster(batches):
    """Fraction of the pairs of samples of a batch, of different labels, that are of one cluster."""
    same = total = 0
    for batch in batches:
        other = batch["label"][:, None] != batch["label"][None]
        same += int((other & (batch["cluster"][:, None] == batch["cluster"][None])).sum())
        total += int(other.sum())
    return same / total


@pytest.mark.parametrize("pairs", [False, True])
def test_windows_are_harder_than_shuffling(pairs):
    samples = list(clustered(np.arange(600) if pairs else np.arange(1200) // 2))
    options = {"pairs": True} if pairs else {"label": "label"}
    function = embed_pairs if pairs else embed
    mined, shuffled = (
        same_cluster(StreamBatches(samples, function, 20, window=400, bits=BITS, hardness=hardness, **options))
        for hardness in (1.0, 0.0)
    )
    assert shuffled < 0.1
    assert mined > 5 * shuffled
    wide = same_cluster(StreamBatches(samples, function, 20, window=600, bits=BITS, hardness=1.0, **options))
    assert wide > 5 * shuffled


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=60),
    size=st.integers(1, 5),
    window=st.integers(1, 8),
    pairs=st.booleans(),
    drop_last=st.booleans(),
)
def test_every_sample_is_yielded_once_or_counted_as_dropped(counts, size, window, pairs, drop_last):
    labels = np.repeat(np.arange(len(counts)), counts)
    samples = list(clustered(labels))
    batch_size = size if pairs else 2 * size
    batches = StreamBatches(
        samples,
        embed_pairs if pairs else embed,
        batch_size,
        label="label",
        pairs=pairs,
        window=batch_size * (window + 1),
        bits=BITS,
        drop_last=drop_last,
    )
    try:
        yielded = list(batches)
    except ValueError as error:
        if "the first window of the stream gives no batch" in str(error):
            return
        raise
    seen = Counter(i for ids in ids_of(yielded) for i in ids)
    assert batches.counts.read == len(samples) == len(seen) + batches.counts.dropped
    assert sum(seen.values()) == len(seen) + batches.counts.repeated
    assert max(seen.values()) <= (1 if pairs else 2)
    assert batches.counts.batches == len(yielded)
    for batch in yielded:
        if not pairs:  # anchor and positive in turns
            assert batch["label"][::2].tolist() == batch["label"][1::2].tolist()
            assert not (batch["id"][::2] == batch["id"][1::2]).any()
        negatives = batch["label"] if pairs else batch["label"][::2]
        assert len(negatives.unique()) == len(negatives)
    assert all(len(batch["id"]) == batch_size for batch in yielded[: len(yielded) if drop_last else -1 - window])


def test_full_windows_give_full_batches_and_the_last_one_is_short():
    batches = StreamBatches(list(clustered(np.arange(250))), embed_pairs, 16, pairs=True, window=100, bits=BITS)
    assert [len(ids) for ids in ids_of(batches)] == [16] * 15 + [10]
    assert batches.counts.dropped == 0


def test_a_sample_waits_for_its_positive_in_a_later_window():
    couples = in_couples(40)
    alone = [{**couples[0], "id": 40 + i, "label": 999} for i in range(2)]
    batches = StreamBatches([alone[0], *couples, alone[1]], embed, 4, label="label", window=12, bits=BITS)
    assert sorted(i for ids in ids_of(batches) for i in ids) == list(range(42))
    assert batches.counts.windows > 2


def test_at_most_half_of_the_window_waits(caplog):
    lonely = ({"x": torch.randn(4), "id": i, "label": f"only {i}"} for i in count())
    couples = list(clustered(np.arange(8) // 2))
    batches = StreamBatches([*couples, *islice(lonely, 100)], lambda x: x["x"][:, :4], 4, label="label", window=20)
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert len([*batches]) == 2
    assert batches.counts.read == 108
    assert batches.counts.dropped == 100
    assert "more than half of the window waits" in caplog.text
    assert "gives no batch" in caplog.text


def test_streams_without_end_are_read_only_as_far_as_needed():
    read = count()
    endless = ({"x": torch.randn(8), "id": next(read)} for _ in count())
    batches = StreamBatches(endless, lambda batch: (batch["x"], batch["x"]), 10, pairs=True, window=50, bits=BITS)
    assert len(list(islice(batches, 12))) == 12
    assert batches.counts.read == next(read) == 150
    assert batches.counts.windows == 3


def test_short_streams():
    one = list(clustered(np.arange(1)))
    assert ids_of(StreamBatches(one, embed_pairs, 8, pairs=True)) == [[0]]
    assert [*StreamBatches([], embed_pairs, 8, pairs=True)] == []
    with pytest.raises(ValueError, match="no two of its 1 samples share a label"):
        list(StreamBatches(one, embed, 8, label="label"))
    few = StreamBatches(list(clustered(np.arange(6) // 2)), embed, 8, label="label")
    assert [len(ids) for ids in ids_of(few)] == [6]


def test_a_sorted_stream_is_refused_before_anything_is_embedded():
    stream = sorted(clustered(np.arange(400) // 100), key=lambda sample: sample["label"])
    with pytest.raises(ValueError, match="1 different labels, and a batch needs 8, one per pair; shuffle the stream"):
        next(iter(StreamBatches(stream, pytest.fail, 16, label="label", window=100)))


def test_embeddings_that_are_not_finite_are_counted_and_their_samples_yielded(caplog):
    def broken(batch):
        return embed(batch).masked_fill((batch["id"] % 7 == 0)[:, None], torch.nan)

    batches = StreamBatches(list(clustered(np.arange(80) // 2)), broken, 8, label="label", window=80, bits=BITS)
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert sorted(i for ids in ids_of(batches) for i in ids) == list(range(80))
    assert batches.counts.not_finite == 12
    assert "NaN or infinity" in caplog.text
    everything = StreamBatches(batches.stream, lambda batch: batch["x"] * torch.nan, 8, label="label", bits=BITS)
    assert len(ids_of(everything)) == 10


def test_the_seed_decides_everything():
    samples = list(clustered(np.arange(200) // 2))

    def run(seed, epoch=0):
        batches = StreamBatches(samples, embed, 10, label="label", window=80, bits=BITS, seed=seed)
        batches.set_epoch(epoch)
        return ids_of(batches)

    assert run(1) == run(1)
    assert len({str(run(1)), str(run(2)), str(run(1, epoch=1))}) == 3


def test_each_window_is_embedded_once_with_the_weights_of_its_time():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(), nn.BatchNorm1d(16))
    model[1].eval()  # a mode of its own
    weights, rows = [], 0

    def embedding(batch):
        nonlocal rows
        assert not torch.is_grad_enabled()
        assert not any(module.training for module in model.modules())
        weights.append(float(model[0].weight.sum()))
        rows += len(batch["id"])
        return normalize(model(batch["x"]), dim=1)

    batches = StreamBatches(in_couples(120), embedding, 10, label="label", window=40, bits=BITS, model=model)
    before = torch.get_rng_state()
    for _ in batches:
        assert model.training
        assert not model[1].training
        with torch.no_grad():
            model[0].weight += 1
    assert torch.equal(before, torch.get_rng_state())
    assert len(set(weights)) == len(weights) == batches.counts.windows
    assert rows >= 120  # pairs that did not fill a batch were embedded again with the next window


def read_on_rank(rank, shard):
    stream = datasets.Dataset.from_list([{"x": [1.0 * i, 1.0], "id": i} for i in range(103)]).to_iterable_dataset()
    if shard is False:
        stream = split_dataset_by_node(stream, rank, 2)
    batches = StreamBatches(
        stream.with_format("torch"), lambda b: (b["x"], b["x"]), 8, pairs=True, window=32, bits=BITS, shard=shard
    )
    try:
        return ids_of(batches)
    except ValueError as error:
        return str(error)


def test_every_rank_mines_its_own_part():
    dealt = on_ranks(2, read_on_rank, True)
    assert [sorted(i for ids in rank for i in ids) for rank in dealt] == [list(range(r, 102, 2)) for r in range(2)]
    assert len(dealt[0]) == len(dealt[1])  # so that ranks that train together take as many steps
    split = on_ranks(2, read_on_rank, False)
    assert sorted(i for rank in split for ids in rank for i in ids) == list(range(103))
    assert all("give shard=True to deal its samples" in message for message in on_ranks(2, read_on_rank, None))


class Shards(IterableDataset):
    """Each worker reads a part of its own."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        return islice(clustered(np.arange(100) // 2), worker.id, None, worker.num_workers)


def test_workers_read_but_do_not_embed(monkeypatch):
    loader = DataLoader(Shards(), batch_size=None, num_workers=2)
    batches = StreamBatches(loader, embed, 10, label="label", window=100, bits=BITS)
    assert {i for ids in ids_of(batches) for i in ids} == set(range(100))
    monkeypatch.setattr("lookalike.samplers.stream_batches.get_worker_info", lambda: "a worker")
    with pytest.raises(RuntimeError, match="which a worker process does not have"):
        next(iter(batches))


def huggingface():
    rows = [{**sample, "x": sample["x"].tolist()} for sample in clustered(np.arange(200) // 2)]
    return datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=4).with_format("torch")


def stateful():
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # torchdata calls what torch has deprecated
        return StatefulDataLoader(huggingface(), batch_size=None, num_workers=0)


@pytest.mark.parametrize("stream", [huggingface, stateful])
@pytest.mark.parametrize("stop", [0, 2, 5, 7, 30])
def test_a_resumed_stream_loses_nothing(stream, stop):
    def batches():
        return StreamBatches(stream(), embed, 10, label="label", window=60, bits=BITS)

    whole, one, other = ids_of(batches()), batches(), batches()
    windows = [one.counts.windows for _ in islice(one, stop)]
    state = one.state_dict()
    other.load_state_dict(state)
    assert other.state_dict() == state
    rest = ids_of(other)
    done = [ids for ids, number in zip(whole, windows, strict=False) if number <= state["counts"]["windows"]]
    assert done + rest == whole  # the weights have not changed, so the window is mined as before
    assert other.counts == batches_counts(batches())
    if stream is huggingface:  # inside a StatefulDataLoader it needs set_epoch, as docs/streams.md says
        assert ids_of(other) == whole  # the next pass begins at the beginning


def batches_counts(batches):
    list(batches)
    return batches.counts


class Unplugged:
    """A stream of 120 samples that knows its position and breaks once, in the middle of the second window."""

    def __init__(self, position=0, *, breaks_at=None):
        self.position, self.breaks_at = position, breaks_at

    def __iter__(self):
        while self.position < 120:
            if self.position == self.breaks_at:
                raise OSError("the network is gone")
            self.position += 1
            yield {"x": torch.randn(8), "id": self.position - 1}

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_a_window_that_cannot_be_read_to_its_end_begins_again_on_resuming():
    def batches(stream):
        return StreamBatches(stream, lambda batch: (batch["x"], batch["x"]), 10, pairs=True, window=40, bits=BITS)

    one, other = batches(Unplugged(breaks_at=70)), batches(Unplugged())
    window = iter(one)
    seen = [i for ids in ids_of(islice(window, 4)) for i in ids]
    with pytest.raises(OSError, match="the network is gone"):
        next(window)
    other.load_state_dict(one.state_dict())
    assert sorted(seen + [i for ids in ids_of(other) for i in ids]) == list(range(120))


def test_a_state_that_cannot_be_had_or_loaded_is_refused():
    batches = StreamBatches([1], embed, 10, label="label")
    with pytest.raises(TypeError, match="cannot tell its position, because it has no state_dict"):
        batches.state_dict()
    with pytest.raises(ValueError, match="version"):
        batches.load_state_dict({"version": 0})
    whole = StreamBatches(Unplugged(), embed, 10, label="label").state_dict()
    for name in whole.keys() - {"version"}:
        with pytest.raises(ValueError, match=f"the state is damaged, {name} is missing"):
            batches.load_state_dict({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"stream": 5}, TypeError, "stream must be an iterable of samples, got int"),
        ({"embed": "model"}, TypeError, "embed must be a function or a module"),
        ({"label": None}, ValueError, "label is missing: name the key"),
        ({"batch_size": 5}, ValueError, "must be even"),
        ({"window": 19}, ValueError, "at least two batches, 20 samples, got 19"),
        ({"bits": 65}, ValueError, "multiple of 8"),
        ({"hardness": 2}, ValueError, "hardness must be"),
        ({"filters": Filters(exclude=([0], []))}, ValueError, "a stream has no ids"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        StreamBatches(**{"stream": [], "embed": embed, "batch_size": 10, "label": "label", "window": 40, **arguments})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label": "klass"}, ValueError, "label='klass' is in no sample; .* the keys x, id, label, cluster"),
        ({"label": lambda sample: [sample["label"]]}, TypeError, "must be a number or a string"),
        ({"label": lambda _: torch.ones(2)}, TypeError, r"must be a number or a string, got a tensor of shape \[2\]"),
        ({"label": lambda _: None}, ValueError, "has the label None: leave out samples without one"),
        ({"label": lambda _: torch.tensor(torch.nan)}, ValueError, "has the label nan"),
        ({"embed": embed_pairs}, TypeError, "must return a tensor .* got a tuple of 2; for a stream of pairs"),
        ({"pairs": True}, TypeError, "must return two tensors .* got one tensor"),
        ({"embed": lambda batch: embed(batch)[1:]}, ValueError, "one row per id"),
        ({"embed": lambda batch: batch["id"][:, None]}, TypeError, "must be floats"),
    ],
)
def test_wrong_samples_and_embeddings_are_refused(options, error, message):
    arguments = {"stream": list(clustered(np.arange(40) // 2)), "embed": embed, "label": "label", **options}
    with pytest.raises(error, match=message):
        list(StreamBatches(batch_size=4, **arguments))
