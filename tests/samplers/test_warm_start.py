"""A warm start: what is observed before the first epoch composes it, until the model moves on."""

import io
import itertools
from collections import deque

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lookalike import LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.samplers.warm_start import LOOKS, MOST_FLIPS
from tests.ranks import on_ranks

N, BATCH, TURN = 192, 12, 6  # the model is another one from batch TURN on
CLEARLY = 0.03  # difference of mean cosines


def points(n=N):
    """Samples 2 i and 2 i + 1 are near each other, and twelve such pairs form a topic: ready for hard negatives."""
    generator = torch.Generator().manual_seed(0)

    def draw(count, times):
        return torch.randn(count, 16, generator=generator).repeat_interleave(times, dim=0)

    return normalize(draw(-(-n // 24), 24)[:n] + 0.5 * draw(n // 2, 2) + 0.1 * draw(n, 1), dim=1)


def make(paired, **options):
    labels = None if paired else np.arange(N) // 2
    options = {"warm_hardness": 1.0, **options}
    return LSHBatchSampler(labels, BATCH, pairs=N if paired else None, bits=64, **options)


def observe(sampler, ids, x):
    if sampler.paired:
        sampler.observe(ids, query=x[ids], reference=x[ids])
    else:
        sampler.observe(ids, x[ids])


def warmed(paired, x=None, **options):
    sampler = make(paired, **options)
    assert sampler.wants_warm_start
    for ids in torch.randperm(N, generator=torch.Generator().manual_seed(1)).split(50):
        observe(sampler, ids, points() if x is None else x)
    return sampler


def hardness(batches, x, *, paired):
    """The mean cosine of the hardest negative in a batch: a sample of another label, or another pair."""
    values = []
    for ids in batches:
        scores, labels = x[ids] @ x[ids].T, torch.tensor(ids) // (1 if paired else 2)
        values.append(scores.masked_fill(labels[:, None] == labels, -1).max(1).values.mean())
    return float(torch.stack(values).mean())


def num_topics(batches):
    """How many topics a batch holds, on average: few if its samples are hard negatives of each other."""
    return float(np.mean([len({i // 24 for i in ids}) for ids in batches]))


def train(sampler, embeddings, *, ahead=0, first=0, stop=None):
    """Train an epoch, or a part of it, with a loader that fetches some batches ahead; `embeddings` are by batch."""
    epoch, fetched, batches = iter(sampler), deque(), []
    while stop is None or first + len(batches) < stop:
        while len(fetched) <= ahead and (ids := next(epoch, None)) is not None:
            fetched.append(ids)
        if not fetched:
            break
        ids = fetched.popleft()
        observe(sampler, ids, embeddings(first + len(batches)))
        batches.append(ids)
    return batches


def torn_apart(batch):
    return points() if batch < TURN else -points()


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("mode", ["auto", True, False])
@pytest.mark.parametrize("is_ready", [True, False])
def test_ones_own_loop(paired, mode, is_ready):
    x = points()
    noise = normalize(torch.randn(N, 16, generator=torch.Generator().manual_seed(2)), dim=1)
    sampler, plain = make(paired, warm_start=mode), make(paired, warm_start=False)
    loader = DataLoader(TensorDataset(torch.arange(N), x if is_ready else noise), batch_size=40)
    model = torch.nn.Identity()
    if sampler.wants_warm_start:
        with torch.no_grad():
            for ids, samples in loader:
                towers = [model(samples)]
                if paired:  # which a model that is not ready takes to other places
                    towers.append(towers[0] if is_ready else towers[0].roll(7, 1))
                sampler.observe(ids, **dict(zip(sampler.pairing.towers, towers, strict=True)))
    assert (sampler.memory.dim is None) == (mode is False)
    batches, random = list(sampler), list(plain)
    is_used = mode is True or (mode == "auto" and is_ready)
    assert sampler.warm_start.is_used == is_used
    if not is_used:
        assert batches == random
    else:
        space = x if is_ready else noise
        assert hardness(batches, space, paired=paired) > hardness(random, space, paired=paired) + CLEARLY * is_ready
    assert sorted(i for ids in batches for i in ids) == list(range(N))


@pytest.mark.parametrize("paired", [False, True])
def test_the_first_epoch_is_as_hard_as_asked_for(paired):
    found = [
        hardness(list(warmed(paired, warm_hardness=fraction)), points(), paired=paired) for fraction in (0.0, 0.5, 1.0)
    ]
    assert found == sorted(found)
    assert found[2] > found[0] + 0.1
    halved = list(warmed(paired, warm_hardness=1.0, hardness=0.5))
    assert halved == list(warmed(paired, warm_hardness=0.5))


def test_who_wants_a_warm_start():
    labels = np.arange(N) // 2
    assert not make(False, warm_start=False).wants_warm_start
    assert not RandomBatchSampler(labels, BATCH).wants_warm_start
    assert not PreEpochBatchSampler(labels, BATCH, mode="incremental").wants_warm_start
    alone = LSHBatchSampler(np.arange(N), BATCH, bits=64, self_pairs=True)  # there are no positives to judge by
    assert not alone.wants_warm_start
    assert LSHBatchSampler(np.arange(N), BATCH, bits=64, self_pairs=True, warm_start=True).wants_warm_start
    assert LSHBatchSampler(np.arange(N) // 2, BATCH, bits=64, self_pairs=True).wants_warm_start
    begun, later, observed, restored = (make(False) for _ in range(4))
    assert begun.wants_warm_start
    iter(begun)
    later.set_epoch(1)
    observe(observed, [0, 1], points())
    restored.load_state_dict(begun.state_dict())
    assert not any(sampler.wants_warm_start for sampler in (begun, later, observed, restored))
    assert not any(make(False, warm_start=no).wants_warm_start for no in (0, np.False_))
    with pytest.raises(ValueError, match=r"warm_start must be True, False or \"auto\", got 'sometimes'"):
        make(False, warm_start="sometimes")


@pytest.mark.parametrize("paired", [False, True])
def test_batches_are_random_again_once_the_model_is_torn_apart(paired):
    sampler, kept = warmed(paired), warmed(paired, warm_start=True)
    length = len(sampler)
    between = max(1, length // LOOKS)
    end = -(-(TURN + 1) // between) * between  # the batch of the turn is seen when a later one is asked for
    batches, hard = train(sampler, torn_apart), train(kept, torn_apart)
    assert sampler.warm_start.is_used is False
    assert kept.warm_start.is_used is True
    assert max(sampler.warm_start.flips[:-1]) < MOST_FLIPS < sampler.warm_start.flips[-1]
    assert len(batches) == len(sampler) == length
    for epoch in (batches, hard):
        assert sorted(i for ids in epoch for i in ids) == list(range(N))
    assert [len(ids) for ids in batches] == [len(ids) for ids in hard]
    assert batches[:end] == hard[:end]
    assert batches[end:] != hard[end:]
    assert num_topics(batches[end:]) > num_topics(hard[end:]) + 0.5
    if not paired:
        for ids in batches:
            assert ids[::2] != ids[1::2]
            assert [i // 2 for i in ids[::2]] == [i // 2 for i in ids[1::2]]
            assert len({i // 2 for i in ids}) == len(ids) // 2
    assert num_topics(train(sampler, torn_apart)) < num_topics(batches[end:]) - 0.5  # the next epoch is hard again


def test_an_epoch_may_be_composed_in_inference_mode():
    sampler, plain = warmed(True), warmed(True)
    with torch.inference_mode():
        iter(sampler)
    assert train(sampler, torn_apart) == train(plain, torn_apart)
    assert sampler.warm_start.is_used is False


@pytest.mark.parametrize("drop_last", [False, True])
def test_labels_stay_apart_and_sizes_stay_the_same(drop_last):
    labels = np.minimum(np.arange(100) // 3, 20)  # 40 samples of one label, and a batch that is not full
    rows = points(100)
    sampler = LSHBatchSampler(labels, 14, bits=64, warm_start="auto", drop_last=drop_last)
    plain = LSHBatchSampler(labels, 14, bits=64, warm_start=True, drop_last=drop_last)
    for each in (sampler, plain):
        each.observe(torch.arange(100), rows)
    composed = list(plain)
    sampler.warm_start.mode = True  # begins with it, ready or not
    batches = []
    for i, ids in enumerate(sampler):
        sampler.warm_start.mode = "auto"
        sampler.observe(sorted(set(ids)), (rows if i < 2 else -rows)[sorted(set(ids))])
        batches.append(ids)
    assert sampler.warm_start.is_used is False
    assert [len(ids) for ids in batches] == [len(ids) for ids in composed]
    assert sorted(i for ids in batches for i in ids) == sorted(i for ids in composed for i in ids)
    for ids in batches:
        assert np.array_equal(labels[ids[::2]], labels[ids[1::2]])
        assert len(set(labels[ids])) == len(ids) // 2


def saved(sampler):
    file = io.BytesIO()
    torch.save(sampler.state_dict(), file)
    return file.getvalue()


def resumed_rests(_rank, paired, ahead, options, turns):
    """The batches of an epoch, and for every batch of it what is left after a state that was saved there is loaded."""
    embeddings = torn_apart if turns else lambda _: points()
    whole = warmed(paired, **options)
    expected = train(whole, embeddings, ahead=ahead)
    rests = {}
    for stop in range(1, len(expected)):
        sampler = warmed(paired, **options)
        train(sampler, embeddings, ahead=ahead, stop=stop)
        again = make(paired, **options)
        again.load_state_dict(torch.load(io.BytesIO(saved(sampler)), weights_only=True))
        rests[stop] = train(again, embeddings, ahead=ahead, first=stop)
    return expected, rests, whole.warm_start.is_used


@pytest.mark.parametrize(
    ("paired", "ahead", "options", "turns"),
    [
        (False, 0, {}, True),
        (True, 0, {}, True),
        (True, 3, {}, True),
        (False, 2, {}, False),
        (True, 0, {"warm_start": True}, True),
    ],
)
def test_every_batch_can_be_resumed_from(paired, ahead, options, turns):
    expected, rests, is_used = resumed_rests(0, paired, ahead, options, turns)
    assert is_used == (not turns or options.get("warm_start") is True)
    assert sorted(i for ids in expected for i in ids) == list(range(N))
    for first, rest in rests.items():
        assert rest == expected[first:], first


class Ids(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return i


@pytest.mark.parametrize("stop", [TURN + 1, TURN + 3])  # the workers have been given batches beyond the turn by then
@pytest.mark.filterwarnings("ignore")  # of the loader itself
def test_a_loader_that_fetches_ahead_resumes_around_the_turn(stop):
    loaders = pytest.importorskip("torchdata.stateful_dataloader")

    def epoch(sampler, state=None, first=0):
        loader = loaders.StatefulDataLoader(Ids(), batch_sampler=sampler, num_workers=2)
        if state is not None:
            loader.load_state_dict(state)
        batches, kept = [], io.BytesIO()
        for ids in loader:
            observe(sampler, ids, torn_apart(first + len(batches)))
            batches.append(ids.tolist())
            if first + len(batches) == stop:
                torch.save(loader.state_dict(), kept)
        return batches, kept

    expected, kept = epoch(warmed(False))
    kept.seek(0)
    rest, _ = epoch(make(False), torch.load(kept, weights_only=False), first=stop)
    assert rest == expected[stop:]


def test_a_resumed_run_knows_how_the_epoch_began(caplog):
    sampler, again = warmed(True), make(True)
    train(sampler, torn_apart, stop=TURN)
    again.load_state_dict(torch.load(io.BytesIO(saved(sampler)), weights_only=True))
    with caplog.at_level("INFO", "lookalike"):
        train(again, torn_apart, first=TURN)
    assert "0% when the epoch began: the learning rate seems too high" in caplog.text
    assert again.warm_start.flips[: len(sampler.warm_start.flips)] == sampler.warm_start.flips


def resumed_from_the_first_rank(rank, stop):
    """The batches of an epoch, and those of one that is resumed on all ranks from the state of rank 0."""
    expected = train(warmed(True), almost_torn)
    sampler, again = warmed(True), make(True)
    train(sampler, almost_torn, stop=stop)
    sampler.synchronize()
    kept = [saved(sampler) if rank == 0 else None]
    torch.distributed.broadcast_object_list(kept)
    again.load_state_dict(torch.load(io.BytesIO(kept[0]), weights_only=True))
    flipped = [again.memory.take_flips(), sampler.memory.take_flips()]
    again.load_state_dict(torch.load(io.BytesIO(kept[0]), weights_only=True))
    return expected, train(again, almost_torn, first=stop), flipped


def almost_torn(batch):
    """Samples turn round by and by: on one rank more of them than on the other."""
    return torch.where(torch.arange(N)[:, None] % 16 < batch, -points(), points())


@pytest.mark.parametrize("stop", [2, 5])
def test_the_state_of_one_rank_holds_what_flipped_on_all(stop):
    for expected, rest, flipped in on_ranks(2, resumed_from_the_first_rank, stop):
        assert flipped[0] == flipped[1] > 0
        assert rest == expected[stop:]


@pytest.mark.parametrize(("paired", "options"), [(False, {}), (True, {}), (True, {"shard": False})])
def test_ranks_give_up_together(paired, options):
    results = on_ranks(2, resumed_rests, paired, 0, options, True)
    for expected, rests, is_used in results:
        assert not is_used
        for first, rest in rests.items():
            if options.get("shard", True) or first % 2 == 0:  # a loader that deals batches has dealt as many to both
                assert rest == expected[first:], first
    (one, *_), (other, *_) = results
    if options.get("shard", True):
        assert sorted(i for ids in one + other for i in ids) == list(range(N))
    else:  # the loader deals them
        assert one == other
        assert sorted(i for ids in one for i in ids) == list(range(N))


@pytest.mark.parametrize("paired", [False, True])
def test_the_rest_is_rearranged_too(paired):
    calls = []

    def swap_ends(ids, offsets, labels, rng):
        """Exchange the last pair of the first batch with the last one of all, as a hook may."""
        width = 1 if paired else 2
        mine, last = slice(offsets[1] - width, offsets[1]), slice(len(ids) - width, len(ids))
        ids[mine], ids[last] = ids[last].copy(), ids[mine].copy()
        calls.append((len(ids), [*ids], [*offsets], labels is None, rng.random()))

    sampler = warmed(paired, rearrange=swap_ends)
    batches = train(sampler, torn_apart)
    assert sorted(i for ids in batches for i in ids) == list(range(N))
    assert calls[0][0] == N
    assert len(calls) > 1
    for (size, ids, offsets, without_labels, _), following in zip(calls, [*calls[1:], None], strict=True):
        first = (N - size) // BATCH
        last = len(batches) if following is None else (N - following[0]) // BATCH
        cut = [ids[start:end] for start, end in itertools.pairwise(offsets)]
        assert batches[first:last] == cut[: last - first]
        assert without_labels == paired
    assert len({call[-1] for call in calls}) == len(calls)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("bits", [64, "auto"])
def test_a_warm_start_that_is_not_used_leaves_no_trace(paired, bits):
    """Three epochs are those of a sampler that never saw an embedding before the first."""
    noise = normalize(torch.randn(3, N, 16, generator=torch.Generator().manual_seed(4)), dim=2)
    labels = None if paired else np.arange(N) // 2
    epochs = []
    for warms in (True, False):
        sampler = LSHBatchSampler(labels, BATCH, pairs=N if paired else None, bits=bits, max_bits=128, k=8)
        if warms:
            ids = torch.arange(N)
            towers = (noise[0], noise[1]) if paired else (noise[0],)
            sampler.observe(ids, **dict(zip(sampler.pairing.towers, towers, strict=True)))
        epochs.append([train(sampler, lambda _, epoch=epoch: noise[epoch]) for epoch in range(3)])
        assert not sampler.warm_start.is_used
    assert epochs[0] == epochs[1]
