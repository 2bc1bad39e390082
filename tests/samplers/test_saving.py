"""A state, saved and loaded any number of times at any moment, gives the same rest of the run, or is refused."""

import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import Filters, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.samplers.arrivals import Gathering

N, BATCH, EPOCHS = 40, 8, 3
MOMENTS = ("made", "begun", "yielded", "observed", "ended")
KINDS = {
    "random": RandomBatchSampler,
    "lsh": lambda *args, **kwargs: LSHBatchSampler(*args, bits=64, **kwargs),
    "auto": lambda *args, **kwargs: LSHBatchSampler(*args, bits="auto", max_bits=64, k=8, guard=0.95, **kwargs),
    "scalar": lambda *args, **kwargs: LSHBatchSampler(*args, bits=64, code="scalar", k=8, guard=0.95, **kwargs),
    "incremental": lambda *args, **kwargs: PreEpochBatchSampler(*args, mode="incremental", **kwargs),
}


def embeddings(n=N, dim=16):
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(0)), dim=1)


def build(kind, paired, **options):
    if paired:
        return KINDS[kind](None, BATCH, pairs=N, **options)
    return KINDS[kind](np.arange(N) // 2, BATCH, **options)


def observe(sampler, ids, x):
    if sampler.paired:
        sampler.observe(ids, query=x[ids], reference=x[ids])
    else:
        sampler.observe(ids, x[ids])


def reloaded(sampler, times, make):
    for _ in range(times):
        file = io.BytesIO()
        torch.save(sampler.state_dict(), file)
        file.seek(0)
        sampler = make()
        sampler.load_state_dict(torch.load(file, weights_only=True))
    return sampler


def trained(make, x, interruptions):
    """The batches of a run that is killed and resumed: at the i-th event of a kind, (kind, i) -> how many times."""
    sampler, batches, counts = make(), [], dict.fromkeys(MOMENTS, 0)

    def killed(moment):
        nonlocal sampler
        times = interruptions.get((moment, counts[moment]), 0)
        counts[moment] += 1
        sampler = reloaded(sampler, times, make)
        return times > 0

    killed("made")
    while len(batches) < EPOCHS * len(sampler):
        epoch = iter(sampler)
        if killed("begun"):
            continue
        for ids in epoch:
            if batches and killed("yielded"):  # before the first observation, what was yielded counts as done
                break
            observe(sampler, ids, x)
            batches.append(ids)
            if killed("observed"):
                break
        else:
            killed("ended")
    return batches


@given(
    kind=st.sampled_from(sorted(KINDS)),
    paired=st.booleans(),
    interruptions=st.dictionaries(st.tuples(st.sampled_from(MOMENTS), st.integers(0, 16)), st.integers(1, 3)),
)
def test_saving_and_loading_never_changes_the_rest_of_the_run(kind, paired, interruptions):
    x = embeddings()

    def make():
        return build(kind, paired)

    assert trained(make, x, interruptions) == trained(make, x, {})


@pytest.mark.parametrize("kind", ["lsh", "auto", "scalar"])
def test_a_state_that_was_requested_before_stays_up_to_date(kind):
    """Loaders request a state with a batch and save it after the step, which may hash what was set aside."""
    sampler, x = build(kind, paired=True), embeddings()
    for stream in sampler.memory.streams.values():
        stream.gathering = Gathering(5)
    batches = iter(sampler)
    observe(sampler, next(batches), x)
    requested = sampler.state_dict()["kept"]
    observe(sampler, next(batches), x)
    saved = copy.deepcopy(requested)
    assert_equal(saved, sampler.state_dict()["kept"])


def test_an_epoch_that_is_to_be_repeated_is_repeated_whole():
    sampler, x = build("lsh", paired=False), embeddings()
    for ids in sampler:
        observe(sampler, ids, x)
    sampler.set_epoch(0)
    again = reloaded(sampler, 2, lambda: build("lsh", paired=False))
    assert list(again) == list(sampler)
    assert len(list(again)) == len(again)


def test_a_caller_that_counts_may_say_that_the_epoch_is_done():
    sampler, x = build("lsh", paired=False), embeddings()
    for ids in sampler:
        observe(sampler, ids, x)
    restored = build("lsh", paired=False)
    restored.load_state_dict(sampler.state_dict(len(sampler)))
    assert list(restored) == list(sampler)
    assert restored.epoch == 1


@pytest.mark.parametrize("change", [{"guard": None}, {"hardness": 0.0}])
def test_a_guard_that_is_switched_off_no_longer_acts(change):
    x = torch.nn.functional.normalize(torch.ones(N, 16) + 0.01 * embeddings(), dim=1)

    def made(**options):
        return LSHBatchSampler(None, BATCH, pairs=N, bits=64, **{"guard": 0.5, **options})

    sampler = made()
    for _ in range(2):
        for ids in sampler:
            observe(sampler, ids, x)
    loaded = made(**change)
    loaded.load_state_dict(sampler.state_dict())
    for name, value in change.items():
        setattr(sampler.composition, name, value)
    assert list(sampler) == list(loaded)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_finished_epoch_stays_finished(kind):
    sampler, x = build(kind, paired=False), embeddings()
    for ids in sampler:
        observe(sampler, ids, x)
    state = reloaded(sampler, 3, lambda: build(kind, paired=False)).state_dict()
    assert state["finished"]
    assert state["cursor"] == len(sampler)


def test_an_epoch_that_was_cut_short_stays_finished():
    """Lightning ends epochs early (`limit_train_batches`) and says so in the state."""
    sampler, x = build("lsh", paired=False), embeddings()
    observe(sampler, next(iter(sampler)), x)
    cut = build("lsh", paired=False)
    cut.load_state_dict({**sampler.state_dict(), "finished": True})
    again = reloaded(cut, 2, lambda: build("lsh", paired=False))
    assert len(list(again)) == len(again)
    assert again.epoch == 1


@pytest.mark.parametrize(
    ("saved", "loaded", "named"),
    [
        (RandomBatchSampler(None, 4, pairs=20), RandomBatchSampler(np.arange(20) // 2, 4), "paired"),
        (RandomBatchSampler(np.arange(20) // 2, 4), RandomBatchSampler(np.arange(20) // 4, 4), "labels"),
        (LSHBatchSampler(np.arange(20) // 2, 4, bits=64), LSHBatchSampler(np.arange(20) // 2, 4, bits=128), "bits"),
        (LSHBatchSampler(np.arange(20) // 2, 4, k=8), LSHBatchSampler(np.arange(20) // 2, 4, k=9), "k was 8"),
        (
            LSHBatchSampler(np.arange(20) // 2, 4, neighbourhood=2),
            LSHBatchSampler(np.arange(20) // 2, 4),
            "neighbourhood was 2, here it is 'auto'",
        ),
        (
            LSHBatchSampler(np.arange(20) // 2, 4, method="sample4geo"),
            LSHBatchSampler(np.arange(20) // 2, 4),
            "method was 'sample4geo', here it is 'growth'",
        ),
        (LSHBatchSampler(np.arange(20) // 2, 4, seed=3), LSHBatchSampler(np.arange(20) // 2, 4), "seed"),
        (
            PreEpochBatchSampler(np.arange(20) // 2, 4, mode="full"),
            PreEpochBatchSampler(np.arange(20) // 2, 4, mode="incremental"),
            "mode",
        ),
    ],
)
def test_what_the_saved_epoch_depends_on_must_match(saved, loaded, named):
    list(saved)
    with pytest.raises(ValueError, match=named):
        loaded.load_state_dict(saved.state_dict())


def test_what_may_change_between_epochs_is_said_once_and_takes_effect_in_the_next(caplog):
    x, exclude = embeddings(), (np.arange(N + 1), np.arange(N)[::-1].copy())
    saved = build("lsh", paired=True)
    for ids in saved:
        observe(saved, ids, x)
    rest = iter(saved)
    first = next(rest)
    observe(saved, first, x)
    changed = build("lsh", paired=True, hardness=0.0, guard=0.9, filters=Filters(exclude=exclude))
    with caplog.at_level("WARNING", "lookalike"):
        changed.load_state_dict(saved.state_dict())
    (message,) = caplog.messages
    assert "hardness was 1.0, here it is 0.0" in message
    assert "guard was None, here it is 0.9" in message
    assert "exclude" in message
    assert "from the next epoch on" in message
    assert list(changed) == list(rest)  # the epoch that was composed already
    other = build("lsh", paired=True, hardness=0.0)
    other.load_state_dict(saved.state_dict())
    list(other)
    assert list(other) == list(changed)  # both random now


def damaged(state, path, value):
    """A copy of a state with one thing otherwise; None as the value drops it."""
    state = copy.deepcopy(state)
    inner = state
    for name in path[:-1]:
        inner = inner[name]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return state


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 1),
        (("cursor",), 99),
        (("cursor",), "first"),
        (("composed",), [torch.arange(3), torch.tensor([0, 3]), torch.tensor(0)]),
        (("composed", 0), torch.full((N,), N + 5)),
        (("warm_start",), None),
        (("warm_start", "is_used"), 1),
        (("warm_start", "looked_before"), -1),
        (("warm_start", "flips"), ["many"]),
        (("kept",), None),
        (("kept", "reference"), None),
        (("kept", "reference", "codes"), torch.zeros(3, 8, dtype=torch.uint8)),
        (("kept", "reference", "codes"), torch.zeros(N, 8)),
        (("kept", "reference", "hasher", "rows"), torch.zeros(64, 3)),
        (("kept", "reference", "hasher"), {}),
        (("kept", "reference", "total"), torch.zeros(3)),
        (("sampler", "seed"), 5),
    ],
)
def test_a_load_that_fails_changes_nothing(path, value):
    sampler, x = build("lsh", paired=True), embeddings()
    for ids in sampler:
        observe(sampler, ids, x)
    batches = iter(sampler)
    for _ in range(2):
        observe(sampler, next(batches), x)
    before = copy.deepcopy(sampler.state_dict())
    other = build("lsh", paired=True)
    for ids in other:
        observe(other, ids, x.flip(0))
    with pytest.raises(ValueError, match=r"state"):
        sampler.load_state_dict(damaged(other.state_dict(), path, value))
    assert_equal(sampler.state_dict(), before)
    assert list(batches) == list(iter(reloaded(sampler, 1, lambda: build("lsh", paired=True))))


def places(state, path=()):
    """The paths to everything in a state."""
    for name, value in state.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


@pytest.mark.parametrize("value", [None, "odd", -5, torch.full((2, 3), 99), {}])
@pytest.mark.parametrize("kind", ["auto", "scalar", "incremental", "random"])
def test_whatever_is_wrong_in_a_state_it_is_refused_whole_or_loads(kind, value):
    x = embeddings()
    saved, sampler = build(kind, paired=True), build(kind, paired=True)
    for ids in saved:
        observe(saved, ids, x)
    next(iter(saved))
    saved.observe([0, 1], query=x[:2], reference=x[:2])
    state, before = saved.state_dict(), copy.deepcopy(sampler.state_dict())
    for path in places(state):
        if path[0] == "adjustable" and len(path) > 1:
            continue  # these may be anything
        try:
            sampler.load_state_dict(damaged(state, path, value))
        except ValueError:
            assert_equal(sampler.state_dict(), before)
        else:  # it may stand for nothing kept, as None does; what was loaded can be trained with
            for _ in range(2):
                for ids in sampler:
                    observe(sampler, ids, x)
            sampler = build(kind, paired=True)
            before = copy.deepcopy(sampler.state_dict())


def assert_equal(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_equal(a[name], b[name])
    elif isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b) or bool((a.isnan() & b.isnan()).any())
    else:
        assert a == b


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_towers_of_different_dimension_are_refused(kind):
    sampler = build(kind, paired=True)
    before = copy.deepcopy(sampler.state_dict())
    with pytest.raises(ValueError, match="query has 8 dimensions and reference has 16"):
        sampler.observe([0, 1], query=torch.randn(2, 8), reference=torch.randn(2, 16))
    assert_equal(sampler.state_dict(), before)


@pytest.mark.parametrize("kind", ["lsh", "incremental"])
def test_observations_of_another_dimension_are_refused_before_anything_is_kept(kind):
    sampler = build(kind, paired=True)
    sampler.observe([0, 1], query=torch.randn(2, 8), reference=torch.randn(2, 8))
    before = copy.deepcopy(sampler.state_dict())
    with pytest.raises(ValueError, match="embeddings had 8 dimensions until now, these have 16"):
        sampler.observe([2, 3], query=torch.randn(2, 16), reference=torch.randn(2, 16))
    assert_equal(sampler.state_dict(), before)


def test_refreshed_towers_must_have_one_dimension():
    sampler = PreEpochBatchSampler(None, BATCH, pairs=N, mode="full")
    with pytest.raises(ValueError, match="query has 8 dimensions and reference has 16"):
        sampler.refresh(query=torch.randn(N, 8), reference=torch.randn(N, 16))
    assert sampler.kept_bytes == 0


def test_labels_without_a_positive_are_refused():
    with pytest.raises(ValueError, match=r"all 20 labels are different.*pairs=.*self_pairs=True"):
        RandomBatchSampler(np.arange(20), 4)


def test_iterators_that_have_begun_follow_a_loaded_state():
    sampler = build("lsh", paired=False)
    batches = iter(sampler)
    next(batches)
    sampler.load_state_dict(sampler.state_dict())
    for _ in batches:
        pass
    iter(sampler)
    assert sampler.epoch == 1


@pytest.mark.parametrize("position", [-1, 10**6])
def test_a_position_outside_the_epoch_is_refused(position):
    sampler = build("lsh", paired=False)
    with pytest.raises(ValueError, match="position must be between 0 and"):
        sampler.load_state_dict(sampler.state_dict(), position)
