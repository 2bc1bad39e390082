"""Samplers that write codes of several bits: what they learn them from, and when."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike import LSHBatchSampler, ScalarHasher, scalar_topk
from lookalike.hashing.moments import Moments
from lookalike.samplers import code_memory
from lookalike.samplers.codebook import Codebook
from lookalike.search.cosine import cosine_topk
from tests.ranks import on_ranks

N, DIM, BITS = 3000, 32, 64
LABELS = np.arange(N) // 2


def embeddings(drift=0.0, seed=0):
    """Clusters of ten lookalikes, in a few directions more than in others; they drift as a model learns."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.linspace(2, 0.2, DIM)
    centres = torch.randn(N // 10, DIM, generator=generator) * scale
    turn = torch.linalg.qr(torch.eye(DIM) + drift * torch.randn(DIM, DIM, generator=generator)).Q
    noise = torch.randn(N, DIM, generator=torch.Generator().manual_seed(seed + 1)) * scale
    return normalize((centres[torch.arange(N) % (N // 10)] + 0.5 * noise) @ turn, dim=1)


def made(**options):
    return LSHBatchSampler(LABELS, 60, **{"bits": BITS, "code": "scalar", "k": 16, **options})


def observe_epoch(sampler, x, *, leaving_out=()):
    for ids in sampler:
        kept = torch.tensor([i for i in ids if i not in leaving_out])
        sampler.observe(kept, x[kept])


def found(sampler, x, k=16):
    """The fraction of the true k nearest that the present epoch's codes find."""
    labels = torch.from_numpy(LABELS)
    values = sampler.memory.search(range(N), sampler.memory.rows(k).query, labels, k)[1].long()
    true = cosine_topk(x, x, k, query_labels=labels, reference_labels=labels).indices
    return float((values[:, :, None] == true[:, None]).any(2).float().mean())


def test_the_first_epoch_writes_signs_and_later_ones_what_they_learned():
    x, sampler, schemes, overlaps = embeddings(), made(), [], []
    for _ in range(4):
        observe_epoch(sampler, x)
        next(iter(sampler))
        schemes.append(sampler.scheme)
        overlaps.append(found(sampler, x))
    assert schemes[0] is None
    identities = [scheme.identity for scheme in schemes[1:]]
    assert len(set(identities)) == 3  # each epoch has its own
    assert all(scheme.bits == BITS for scheme in schemes[1:])
    assert overlaps[0] + 0.1 < min(overlaps[1:])
    assert sampler.codes["embeddings"].bits == BITS


def test_codes_are_those_of_a_hasher_with_the_statistics_of_the_epoch_before():
    sampler, first, second = made(), embeddings(), embeddings(drift=0.3)
    observe_epoch(sampler, first)
    observe_epoch(sampler, first)
    observe_epoch(sampler, second)  # under what the second epoch taught
    next(iter(sampler))
    hasher = ScalarHasher(DIM, BITS)
    hasher.update(first)
    expected = hasher.encode(second)
    codes = sampler.memory.rows(8).codes()[0]
    near = scalar_topk(expected, expected, 8).indices
    assert (scalar_topk(codes, codes, 8).indices == near).float().mean() > 0.98  # sums in another order round otherwise


def test_statistics_of_the_first_half_of_the_first_epoch_are_dropped():
    sampler, early, late = made(), embeddings(seed=5), embeddings(drift=0.5)
    for number, ids in enumerate(sampler):
        sampler.observe(ids, (early if number < len(sampler) // 2 else late)[ids])
    next(iter(sampler))
    moments = Moments(DIM)
    moments.add(late)
    learned = sampler.memory.codebook.written.moments
    assert learned.count == N / 2
    assert torch.allclose(learned.covariance(), moments.covariance(), atol=0.02)


@pytest.mark.parametrize(("singles", "observed", "learns_in"), [(0.7, 1, 0), (0, 0.4, 1)])
def test_epochs_that_show_less_than_half_of_the_samples_teach_as_well(singles, observed, learns_in):
    """Samples without a positive are in no batch, and a loop may observe some of its batches only."""
    x, labels = embeddings(), LABELS.copy()
    labels[: int(singles * N)] = N + np.arange(int(singles * N))
    sampler = LSHBatchSampler(labels, 60, bits=BITS, code="scalar", k=16)
    for epoch in range(3):
        for number, ids in enumerate(sampler):
            if number < observed * len(sampler):
                sampler.observe(ids, x[ids])
        next(iter(sampler))
        assert (sampler.memory.codebook.written is None) == (epoch < learns_in)


def test_what_an_epoch_left_out_is_brought_to_the_new_meaning():
    sampler, x, late = made(), embeddings(), embeddings(drift=0.05)
    left_out = set(range(0, N, 7))
    observe_epoch(sampler, x)
    observe_epoch(sampler, x)
    observe_epoch(sampler, x, leaving_out=left_out)
    next(iter(sampler))
    assert sampler.codes["embeddings"].num_seen == N
    codes = sampler.memory.rows(8).codes()[0]
    hasher = ScalarHasher(DIM, BITS)
    hasher.load_state_dict(sampler.memory.codebook.searched.state_dict())
    errors = (hasher.decode(codes) - x).norm(dim=1)
    is_left_out = torch.tensor([i in left_out for i in range(N)])
    assert errors[~is_left_out].mean() < errors[is_left_out].mean() < 2 * errors[~is_left_out].mean()
    observe_epoch(sampler, late)
    assert sampler.codes["embeddings"].num_seen == N


def test_signs_that_the_second_epoch_does_not_replace_are_forgotten():
    sampler, x = made(), embeddings()
    observe_epoch(sampler, x)
    observe_epoch(sampler, x, leaving_out={4, 5, 6})
    next(iter(sampler))
    assert (~sampler.codes["embeddings"].seen).nonzero().flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize("rows", [500, 5000])  # fewer than are hashed together, and more
def test_a_warm_start_is_learned_from_its_first_rows(rows):
    x = embeddings()
    sampler = made(warm_start=True)
    for ids in torch.arange(N).split(rows):
        sampler.observe(ids, x[ids])
    batch = next(iter(sampler))
    assert sampler.scheme is not None
    assert found(sampler, x) > 0.6
    sampler.observe(batch, x[batch])
    observe_epoch(sampler, x)
    assert sampler.warm_start.outcome == "used"
    assert max(sampler.warm_start.flips) == 0  # the same embeddings, the same signs


def test_rows_of_two_dtypes_in_a_warm_start_get_codes_of_one_meaning():
    """Rows of one dtype are hashed together, so those before a change of dtype are hashed early."""
    x, sampler = embeddings(), made(warm_start=True)
    sampler.observe(torch.arange(500), x[:500].half())
    sampler.observe(torch.arange(500, N), x[500:])
    next(iter(sampler))
    hasher = sampler.memory.codebook.searched
    codes = sampler.memory.rows(8).query
    assert torch.equal(codes[:500], hasher.encode(x[:500].half()).packed)
    assert torch.equal(codes[500:], hasher.encode(x[500:]).packed)


def test_a_warm_start_of_a_model_that_is_not_ready_leaves_no_trace():
    noise, x = normalize(torch.randn(N, DIM), dim=1), embeddings()
    warm, cold = made(warm_start="auto"), made(warm_start=False)
    warm.observe(torch.arange(N), noise)
    for sampler in (warm, cold):
        observe_epoch(sampler, x)
        observe_epoch(sampler, x)
    assert warm.warm_start.outcome == "not ready"
    assert list(warm) == list(cold)


def test_the_device_to_search_on_depends_on_the_dimensions_of_a_code(monkeypatch):
    asked, x, sampler = [], embeddings(), made(warm_start=True)
    sampler.observe(torch.arange(N), x)
    monkeypatch.setattr(code_memory, "search_device", lambda *given: asked.append(given) or torch.device("cpu"))
    next(iter(sampler))
    assert sampler.scheme is not None
    assert asked[-1][1:] == (BITS, 16, sampler.scheme)


def test_two_towers_share_what_codes_mean():
    x, y = embeddings(), normalize(embeddings(seed=3) + 0.3, dim=1)
    sampler = LSHBatchSampler(None, 60, pairs=N, bits=BITS, code="scalar")
    for _ in range(3):
        for ids in sampler:
            sampler.observe(ids, query=x[ids], reference=y[ids])
    next(iter(sampler))
    moments = Moments(DIM)
    moments.add(torch.cat([x, y]))
    learned = sampler.memory.codebook.written.moments
    assert learned.count == 2 * N
    assert torch.allclose(learned.sums, moments.sums, atol=1e-3)


def test_two_towers_observed_at_once_before_training_both_decide():
    n = 6000
    x = normalize(torch.randn(n, DIM) + 1, dim=1)
    y = normalize(torch.randn(n, DIM) - 1, dim=1)
    sampler = LSHBatchSampler(None, 60, pairs=n, bits=BITS, code="scalar", warm_start=True)
    sampler.observe(torch.arange(n), query=x, reference=y)
    assert sampler.memory.codebook.written.moments.mean().norm() < 0.3 * x.mean(0).norm()


def test_all_embeddings_of_one_call_before_training_decide():
    """A data set is often sorted by label: its first rows are those of a few."""
    n = 6000
    x = normalize(torch.randn(n, DIM) + torch.linspace(-1, 1, n)[:, None], dim=1)
    sampler = LSHBatchSampler(np.arange(n) // 2, 60, bits=BITS, code="scalar", warm_start=True)
    sampler.observe(torch.arange(n), x)
    learned = sampler.memory.codebook.written.moments
    assert learned.count == n
    assert torch.allclose(learned.mean().float(), x.mean(0), atol=1e-4)


def test_the_first_half_is_dropped_after_a_warm_start_that_wrote_signs_as_well(monkeypatch, tmp_path):
    monkeypatch.setattr(Codebook, "awaits_warm_start", False)  # as with ranks that share batches
    sampler, x = made(warm_start=True), embeddings()
    sampler.observe(torch.arange(N), x)
    half, counts = len(sampler) // 2, []
    for epoch in range(2):
        for number, ids in enumerate(sampler):
            if epoch == 0 and number == half:
                torch.save(sampler.state_dict(), tmp_path / "state.pt")
                sampler = made(warm_start=True)
                sampler.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
                break
            sampler.observe(ids, x[ids])
        for ids in sampler if epoch == 0 else ():
            sampler.observe(ids, x[ids])
        next(iter(sampler))
        counts.append(sampler.memory.codebook.written.moments.count)
    assert counts == [N - N // 2, N]


def test_rows_that_are_not_finite_teach_nothing_and_keep_their_codes():
    sampler, x = made(), embeddings()
    broken = x.clone()
    broken[::50] = torch.nan
    observe_epoch(sampler, x)
    observe_epoch(sampler, x)
    observe_epoch(sampler, broken)
    next(iter(sampler))
    assert sampler.codes["embeddings"].num_seen == N
    assert sampler.memory.codebook.written.moments.sums.isfinite().all()
    assert found(sampler, x) > 0.6


def test_a_collapsed_model_still_gets_codes():
    sampler = made()
    for _ in range(3):
        observe_epoch(sampler, normalize(torch.ones(N, DIM), dim=1))
    assert len(list(sampler)) == len(sampler)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bits": 24}, 'code="scalar" needs at least 32 bits, got 24'),
        ({"code": "several"}, "code must be one of 'signs', 'scalar', 'auto', got 'several'"),
    ],
)
def test_codes_that_cannot_be(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(**options)


@pytest.mark.parametrize("code", ["signs", "scalar"])
def test_a_state_with_a_seed_from_numpy_is_loaded_safely(code, tmp_path):
    sampler = made(code=code, seed=np.int64(3))
    for _ in range(2):
        observe_epoch(sampler, embeddings())
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    made(code=code, seed=3).load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))


def test_a_state_of_signs_is_refused():
    signs = LSHBatchSampler(LABELS, 60, bits=BITS)
    with pytest.raises(ValueError, match="code was 'signs', here it is 'scalar'"):
        made().load_state_dict(signs.state_dict())


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda state: state.pop("codebook"), "codebook"),
        (lambda state: state["codebook"].update(written={"dim": 3}), "written codes are not of the dimension"),
        (lambda state: state["codebook"].pop("searched"), "searched codes are not of the dimension"),
        (lambda state: state["codebook"]["written"].pop("sums"), "written codes cannot be read"),
        (lambda state: state["codebook"]["written"].pop("scheme"), "written codes .* have no scheme"),
        (lambda state: state["codebook"]["written"].update(bits=2 * BITS), "written codes are longer than 64 bits"),
        (lambda state: state["embeddings"].update(moments=torch.zeros(3, 3)), "moments are not those"),
        (lambda state: state["embeddings"].update(renewed=torch.zeros(1)), "renewed"),
    ],
)
def test_a_damaged_state_is_refused(damage, sentence):
    sampler, x = made(), embeddings()
    for _ in range(2):
        observe_epoch(sampler, x)
    next(iter(sampler))
    state = sampler.state_dict()
    damage(state["kept"])
    with pytest.raises(ValueError, match=sentence):
        made().load_state_dict(state)


def shared_run(_rank):
    x, sampler = embeddings(), made()
    for _ in range(3):
        observe_epoch(sampler, x)
    next(iter(sampler))
    codes = sampler.codes["embeddings"]
    return sampler.scheme.identity, codes.codes.tolist(), codes.num_seen, found(sampler, x), len(sampler)


def test_ranks_that_share_batches_learn_the_same():
    first, second = on_ranks(2, shared_run)
    assert first == second
    assert first[2] == N
    assert first[3] > 0.6


def auto_sampler(**options):
    return made(bits="auto", max_bits=256, **options)


def test_auto_writes_the_length_that_it_chose():
    x, sampler = embeddings(), auto_sampler(target_overlap=0.7)
    for _ in range(3):
        observe_epoch(sampler, x)
    next(iter(sampler))
    assert sampler.plan.code == "scalar"
    assert sampler.bits == sampler.scheme.bits == sampler.plan.bits < 256
    assert "of scalar codes are predicted to find" in sampler.plan.reason
    assert found(sampler, x) > 0.65
    assert sampler.memory.rows(8).query.shape[1] == sampler.bits // 8


def test_auto_searches_all_bits_of_signs_until_other_codes_are_written():
    x, sampler = embeddings(), auto_sampler(target_overlap=0.7)
    for expected in (256, 256):
        assert sampler.bits == expected
        observe_epoch(sampler, x)
    next(iter(sampler))
    assert sampler.scheme is not None
    assert sampler.bits < 256


@pytest.mark.parametrize(("target", "kind"), [(0.02, "signs"), (0.7, "scalar")])
def test_auto_chooses_the_kind_that_takes_fewer_bits(target, kind):
    x, sampler = embeddings(), auto_sampler(code="auto", target_overlap=target)
    for _ in range(3):
        observe_epoch(sampler, x)
    next(iter(sampler))
    assert sampler.plan.code == kind
    assert (sampler.scheme is None) == (kind == "signs")
    assert sampler.bits == sampler.plan.bits
    assert sampler.memory.rows(8).query.shape[1] == sampler.bits // 8


def test_auto_returns_to_signs_where_they_suffice():
    x, sampler = embeddings(), auto_sampler(code="auto", target_overlap=0.7)
    for _ in range(3):
        observe_epoch(sampler, x)
    next(iter(sampler))
    assert sampler.scheme is not None
    sampler.memory.target_overlap = 0.02
    observe_epoch(sampler, x)
    observe_epoch(sampler, x, leaving_out={4, 5, 6})
    next(iter(sampler))
    assert sampler.scheme is None
    assert sampler.bits == sampler.plan.bits == 64
    assert (~sampler.codes["embeddings"].seen).nonzero().flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize("code", ["signs", "scalar", "auto"])
def test_auto_has_nothing_to_choose_by_with_one_pair(code):
    sampler = LSHBatchSampler(None, 1, pairs=1, bits="auto", max_bits=64, code=code)
    for _ in range(3):
        for ids in sampler:
            sampler.observe(ids, query=torch.ones(1, DIM), reference=-torch.ones(1, DIM))
    assert sampler.bits == 64
    assert sampler.plan is None


@pytest.mark.parametrize("stopped_in", [1, 2, 3])
@pytest.mark.parametrize("code", ["scalar", "auto"])
def test_auto_resumes_as_if_nothing_had_happened(code, stopped_in, tmp_path):
    x = embeddings()

    def rest(sampler, epochs):
        lists = []
        for _ in range(epochs):
            for ids in sampler:
                sampler.observe(ids, x[ids])
                lists.append(ids)
        return lists, sampler.bits, None if sampler.scheme is None else sampler.scheme.identity

    undisturbed = auto_sampler(code=code, target_overlap=0.7)
    lists, *expected = rest(undisturbed, 4)
    killed = auto_sampler(code=code, target_overlap=0.7)
    rest(killed, stopped_in)
    batches = iter(killed)
    for _ in range(7):
        ids = next(batches)
        killed.observe(ids, x[ids])
    torch.save(killed.state_dict(), tmp_path / "state")
    resumed = auto_sampler(code=code, target_overlap=0.7)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    more, *found_then = rest(resumed, 4 - stopped_in)
    assert found_then == expected
    assert more == lists[stopped_in * len(undisturbed) + 7 :]


def test_a_kind_of_codes_can_only_be_chosen_together_with_their_length():
    with pytest.raises(ValueError, match='code="auto" chooses what takes fewer bits, so it needs bits="auto", got 64'):
        made(code="auto")
