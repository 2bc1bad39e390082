"""What every sampler promises of an epoch: coverage, labels, length, order, resuming."""

import io
import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset

from lookalike import LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.samplers import composition
from lookalike.samplers.composition import Mined, mine

KINDS = {
    "random": RandomBatchSampler,
    "lsh": lambda *args, **kwargs: LSHBatchSampler(*args, bits=64, **kwargs),
    "incremental": lambda *args, **kwargs: PreEpochBatchSampler(*args, mode="incremental", **kwargs),
}


def label_structure(kind, n, rng):
    if kind == "all singletons":
        return np.arange(n)
    if kind == "two classes":
        return np.arange(n) % 2
    if kind == "one huge class":
        return np.where(rng.random(n) < 0.5, 0, 1 + np.arange(n) // 2)
    if kind == "heavy tail":
        return np.minimum(rng.zipf(1.5, n), n // 2)
    return rng.integers(0, max(2, n // 5), n)


def embeddings(n, dim=16, seed=0):
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def observe(sampler, ids, x, y=None):
    if sampler.paired:
        sampler.observe(ids, query=x[ids], reference=(x if y is None else y)[ids])
    else:
        sampler.observe(ids, x[ids])


def epoch_of(sampler, x):
    batches = []
    for ids in sampler:
        observe(sampler, ids, x)
        batches.append(ids)
    return batches


@given(
    kind=st.sampled_from(sorted(KINDS)),
    structure=st.sampled_from(["all singletons", "two classes", "one huge class", "heavy tail", "some"]),
    n=st.sampled_from([2, 9, 60, 200]),
    pairs_per_batch=st.sampled_from([1, 2, 7]),
    drop_last=st.booleans(),
    self_pairs=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_labelled_epochs(kind, structure, n, pairs_per_batch, drop_last, self_pairs, seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(label_structure(structure, n, rng))
    counts = dict(zip(*np.unique(labels, return_counts=True), strict=True))
    usable = sum(count > 1 or self_pairs for count in counts.values())
    options = {"drop_last": drop_last, "self_pairs": self_pairs, "seed": seed}
    if usable < pairs_per_batch:
        with pytest.raises(ValueError, match=r"labels fill batches of at most|labels are different"):
            KINDS[kind](labels, 2 * pairs_per_batch, **options)
        return
    sampler = KINDS[kind](labels, 2 * pairs_per_batch, **options)
    x = embeddings(n, seed=seed)
    for _ in range(2):
        length = len(sampler)
        batches = epoch_of(sampler, x)
        assert len(batches) == length
        seen = []
        for batch in batches:
            anchors, positives = np.array(batch[::2]), np.array(batch[1::2])
            assert (labels[anchors] == labels[positives]).all()
            assert len(np.unique(labels[anchors])) == len(anchors)
            alone = np.array([counts[label] == 1 for label in labels[anchors]])
            assert ((anchors == positives) == alone).all()
            seen.extend(batch)
        appearances = np.bincount(seen, minlength=n)
        assert appearances.max(initial=0) <= 2
        for label, count in counts.items():
            shown = appearances[labels == label].sum()
            assert shown <= count + count % 2
            fits = (count + 1) // 2 <= length
            if fits and not drop_last and (count > 1 or self_pairs):
                assert (appearances[labels == label] >= 1).all()


@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.sampled_from([1, 7, 64, 100]),
    batch_size=st.sampled_from([1, 4, 16]),
    queries_per_reference=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 1000),
)
def test_paired_epochs(kind, n, batch_size, queries_per_reference, seed):
    labels = None if queries_per_reference is None else np.arange(n) // queries_per_reference
    if (n if labels is None else len(set(labels))) < batch_size:
        with pytest.raises(ValueError, match="labels fill batches of at most"):
            KINDS[kind](labels, batch_size, pairs=n, seed=seed)
        return
    sampler = KINDS[kind](labels, batch_size, pairs=n, seed=seed)
    x = embeddings(n, seed=seed)
    for _ in range(2):
        batches = epoch_of(sampler, x)
        assert len(batches) == len(sampler) == -(-n // batch_size)
        assert sorted(i for batch in batches for i in batch) == list(range(n))
        if labels is not None:
            assert all(len(set(labels[batch])) == len(batch) for batch in batches)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_epochs_repeat_until_they_end(kind):
    sampler, x = KINDS[kind](np.arange(90) // 3, 10), embeddings(90)
    assert isinstance(sampler, BatchSampler)
    started = iter(sampler)
    first = [next(started) for _ in range(3)]
    assert list(iter(sampler))[:3] == first  # ends the epoch
    sampler.set_epoch(0)
    sampler.set_epoch(0)
    whole = epoch_of(sampler, x)
    assert whole[:3] == first
    later = epoch_of(sampler, x)
    assert sampler.epoch == 1
    assert later != whole
    sampler.set_epoch(1)
    assert list(sampler) == later
    other = KINDS[kind](np.arange(90) // 3, 10)
    assert epoch_of(other, x) == whole
    assert epoch_of(other, x) == later


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 4, "last"])
def test_a_killed_run_goes_on_with_the_next_batch(kind, paired, stop):
    x = embeddings(80)

    def build():
        return KINDS[kind](None, 8, pairs=80) if paired else KINDS[kind](np.arange(80) // 2, 8)

    undisturbed = build()
    expected = [epoch_of(undisturbed, x) for _ in range(3)]
    stop = len(expected[1]) if stop == "last" else stop
    killed = build()
    epoch_of(killed, x)
    batches = iter(killed)
    for _ in range(stop):
        observe(killed, next(batches), x)
    file = io.BytesIO()
    torch.save(killed.state_dict(), file)
    file.seek(0)
    restored = build()
    restored.load_state_dict(torch.load(file, weights_only=True))
    assert len(restored) == len(killed)
    if expected[1][stop:]:
        assert epoch_of(restored, x) == expected[1][stop:]
    assert epoch_of(restored, x) == expected[2]


class Ids(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders_with_and_without_workers(workers):
    x = embeddings(80)
    plain = KINDS["lsh"](np.arange(80) // 2, 8)
    expected = [epoch_of(plain, x) for _ in range(3)]
    sampler = KINDS["lsh"](np.arange(80) // 2, 8)
    loader = DataLoader(Ids(80), batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
    for epoch in range(3):
        found = []
        for ids in loader:
            observe(sampler, ids, x)
            found.append(ids.tolist())
        assert found == expected[epoch]


def test_prefetched_batches_are_not_lost():
    """A loader has fetched ahead when the run is killed; what was observed decides."""
    x = embeddings(80)
    sampler = KINDS["lsh"](np.arange(80) // 2, 8)
    expected = list(iter(KINDS["lsh"](np.arange(80) // 2, 8)))
    loader = iter(DataLoader(Ids(80), batch_sampler=sampler, num_workers=2))
    for _ in range(3):
        observe(sampler, next(loader), x)
    restored = KINDS["lsh"](np.arange(80) // 2, 8)
    restored.load_state_dict(sampler.state_dict())
    assert list(restored) == expected[3:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 4, 9, 10])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.filterwarnings("ignore")  # of the loader itself
def test_stateful_data_loader(workers, stop, epoch):
    """Killed at any batch of any epoch, the loader goes on as if nothing had happened, also in the epochs after."""
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    x = embeddings(80)

    def build():
        sampler = KINDS["lsh"](np.arange(80) // 2, 8)
        return sampler, loaders.StatefulDataLoader(Ids(80), batch_sampler=sampler, num_workers=workers)

    def observed(sampler, loader):
        for ids in loader:
            observe(sampler, ids, x)
            yield ids.tolist()

    plain = build()
    expected = [list(observed(*plain)) for _ in range(epoch + 2)]
    sampler, loader = build()
    for _ in range(epoch):
        list(observed(sampler, loader))
    for number, _ in enumerate(observed(sampler, loader), 1):
        if number == stop:
            state = torch.load(_saved(loader.state_dict()), weights_only=False)
            break
    sampler, loader = build()
    loader.load_state_dict(state)
    if stop < 10:
        assert list(observed(sampler, loader)) == expected[epoch][stop:]
    else:  # some versions of the loader give an empty rest first
        rest = list(observed(sampler, loader))
        if rest:
            assert rest == expected[epoch + 1]
            return
    assert list(observed(sampler, loader)) == expected[epoch + 1]


def _saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def test_only_batches_of_the_epoch_count_as_progress():
    x, sampler = embeddings(80), KINDS["lsh"](np.arange(80) // 2, 8)
    expected = list(iter(KINDS["lsh"](np.arange(80) // 2, 8)))

    def restored():
        other = KINDS["lsh"](np.arange(80) // 2, 8)
        other.load_state_dict(sampler.state_dict())
        return other

    sampler.observe(torch.arange(80), x)  # embeddings from elsewhere, before the first epoch
    batches = iter(sampler)
    for _ in range(2):
        next(batches)
    assert len(list(restored())) == 8
    batches = iter(sampler)  # the same epoch from its beginning
    first = next(batches)
    sampler.observe(first[:4], x[first[:4]])  # in two parts
    sampler.observe(first[4:], x[first[4:]])
    for _ in range(3):
        next(batches)
    again = restored()
    assert len(list(again)) == 9
    assert len(expected) == 10
    twice = restored()
    next(iter(twice))  # looking does not lose the place
    assert list(twice) == list(restored())


@pytest.mark.parametrize("n", [1024, 1025, 1026, 2049, 3073])
def test_large_classes_leave_nobody_alone(n):
    labels = np.concatenate([np.zeros(n, int), 1 + np.arange(4000) // 2])
    sampler, x = LSHBatchSampler(labels, 2, bits=64), embeddings(len(labels))
    for _ in range(2):
        seen = epoch_of(sampler, x)
        assert all(a != b for a, b in seen)
        assert {i for pair in seen for i in pair} == set(range(len(labels)))


def test_observing_in_inference_mode():
    sampler = LSHBatchSampler(np.arange(8) // 2, 4, bits=8)
    with torch.inference_mode():
        sampler.observe([0, 1], torch.randn(2, 4))
    sampler.observe([2, 3], torch.randn(2, 4))
    assert len(list(sampler)) == 2


def test_pairs_are_drawn_before_a_gpu_is_waited_for(monkeypatch):
    done = []

    class OnDevice(torch.Tensor):
        def cpu(self):
            done.append("waited")
            return self.as_subclass(torch.Tensor)

    def mined(*arguments, **options):
        return Mined(mine(*arguments, **options).indices.as_subclass(OnDevice), None)

    x, labels = embeddings(80), np.arange(80) // 2
    sampler, other = (LSHBatchSampler(labels, 8, bits=64) for _ in range(2))
    for each in (sampler, other):
        for ids in each:
            observe(each, ids, x)
    draw = sampler.pairing.draw
    monkeypatch.setattr(sampler.pairing, "draw", lambda *arguments: done.append("drawn") or draw(*arguments))
    expected = list(other)
    monkeypatch.setattr(composition, "mine", mined)
    assert list(sampler) == expected
    assert done == ["drawn", "waited"]


def test_refreshed_embeddings_that_are_not_finite_are_nobody_s_neighbours():
    x = embeddings(40)
    broken = x.clone()
    broken[7] = float("nan")
    sampler = PreEpochBatchSampler(None, 8, pairs=40, mode="full")
    sampler.refresh(query=x, reference=broken)
    near = mine(sampler.memory, sampler.pairing, 5, sampler.composition.filters, None).indices
    assert not (near == 7).any()
    assert (near[7] == -1).all()
    assert sorted(i for batch in sampler for i in batch) == list(range(40))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda: RandomBatchSampler(None, 8),
            ValueError,
            "labels are missing: give one per sample, or.* pairs=how many",
        ),
        (lambda: RandomBatchSampler([0, 0, 1, 1], 3), ValueError, "two per pair, and must be even, got 3"),
        (
            lambda: len(RandomBatchSampler([0, 0, 1, 1], 8)),
            ValueError,
            "2 labels fill batches of at most 2 pairs, but 4",
        ),
        (lambda: RandomBatchSampler([0, 1], 1, pairs=3), ValueError, "one label per pair, 3, got 2"),
        (lambda: RandomBatchSampler([0.5, 1.0], 2), TypeError, "labels must be integers"),
        (lambda: LSHBatchSampler([0, 0], 2, bits=12), ValueError, "bits must be a multiple of 8"),
        (lambda: PreEpochBatchSampler([0, 0], 2, mode="half"), ValueError, "mode must be one of 'full', 'incremental'"),
    ],
)
def test_bad_arguments_get_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (([0, 1], torch.zeros(3, 4)), ValueError, "embeddings must have one row per id, 2, got 3."),
        (([0, 1], torch.zeros(2, 4).int()), TypeError, r"embeddings must be floats of the shape \[2, dim\]"),
        (([0, 0], torch.zeros(2, 4)), ValueError, "a batch holds an id twice"),
        (([0, 9], torch.zeros(2, 4)), ValueError, "ids must be between 0 and 5, got 0 to 9."),
        (([0, 1], None), ValueError, "labelled data takes ids and embeddings"),
        (([0, 1], torch.zeros(2, 5)), ValueError, "embeddings had 4 dimensions until now, these have 5"),
    ],
)
def test_bad_observations_get_a_sentence(arguments, error, sentence):
    sampler = LSHBatchSampler([0, 0, 1, 1, 2, 2], 4, bits=8)
    sampler.observe([2, 3], torch.zeros(2, 4))
    with pytest.raises(error, match=sentence):
        sampler.observe(*arguments)


def test_states_of_other_samplers_are_refused():
    state = LSHBatchSampler(np.arange(20) // 2, 4, bits=64).state_dict()
    for other, sentence in {
        LSHBatchSampler(np.arange(20) // 2, 4, bits=128): "bits was 64, here it is 128",
        LSHBatchSampler(np.arange(22) // 2, 4, bits=64): "samples was 20, here it is 22",
        LSHBatchSampler(np.arange(20) // 4, 4, bits=64): "labels",
        RandomBatchSampler(np.arange(20) // 2, 4): "kind was 'LSHBatchSampler', here it is 'RandomBatchSampler'",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            other.load_state_dict(state)


def test_what_is_left_out_is_said_once(caplog):
    with caplog.at_level(logging.WARNING, "lookalike"):
        sampler = RandomBatchSampler([0] * 50 + [1, 1, 2, 2, 3], 4)
        for _ in range(3):
            list(sampler)
    alone, crowded = caplog.messages
    assert alone.startswith("1 of 55 samples are the only one of their label")
    assert "pairs are left out of each epoch" in crowded


def test_what_was_never_observed_is_said_once(caplog):
    sampler = LSHBatchSampler(np.arange(40) // 2, 8, bits=64)
    with caplog.at_level(logging.WARNING, "lookalike"):
        for _ in range(3):
            for batch, ids in enumerate(sampler):
                if batch:
                    sampler.observe(ids, torch.randn(len(ids), 8))
    (message,) = caplog.messages
    assert message.startswith("8 of 40 samples were never observed in a whole epoch")
