"""The same answers on a CUDA device as on the CPU."""

import time

import pytest
import torch
import torch.distributed as dist

from lookalike import (
    CodeTable,
    Filters,
    InfoNCE,
    LSHBatchSampler,
    ScalarHasher,
    SignHasher,
    hamming_topk,
    hard_negatives,
    hardest_positives,
    scalar_topk,
)
from lookalike.analysis.bits import plan_bits
from lookalike.data.synthetic import clustered_embeddings
from lookalike.samplers import composition
from lookalike.samplers.arrivals import Gathering
from lookalike.training.step import Backward, Step
from lookalike.utils.lists import make_lists

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]


@pytest.fixture
def one_rank(monkeypatch, tmp_path):
    """A process group of one rank, over NCCL."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    dist.init_process_group("cpu:gloo,cuda:nccl", f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _gradients(chunk, *, is_shared):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16)).cuda()
    criterion = InfoNCE().cuda()
    backward = Backward(
        Step(model, criterion, torch.device("cuda"), torch.float32), torch.amp.GradScaler(enabled=False)
    )
    x = torch.randn(2, 12, 8)
    if is_shared:
        backward.share([x[0, :2]])
    chunks = list(zip(*(torch.split(side, chunk) for side in x), strict=True))
    backward(chunks, None, lambda towers: criterion(*towers), lambda _: None, is_divided=len(chunks) > 1)
    return [p.grad for module in (model, criterion) for p in module.parameters()]


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("chunk", [12, 5])
def test_gradients_of_distributed_data_parallel(chunk):
    for shared, alone in zip(_gradients(chunk, is_shared=True), _gradients(12, is_shared=False), strict=True):
        torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-5)


@pytest.fixture
def refusing_to_wait():
    """Switch to a mode in which waiting for the device is an error, and back."""
    yield lambda on=True: torch.cuda.set_sync_debug_mode("error" if on else "default")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_hashing(dtype):
    x, _ = clustered_embeddings(2000, dim=96)
    x = x.to(dtype)
    here, there = SignHasher(96, 256), SignHasher(96, 256)
    here.update_mean(x)
    there.update_mean(x.cuda())
    assert torch.allclose(here.mean, there.mean.cpu(), atol=1e-12)
    codes, on_device = here.encode(x), there.encode(x.cuda())
    assert on_device.is_cuda
    differing = (codes != on_device.cpu()).float().mean()
    assert differing < 1e-4  # values that are numerically zero


def test_plan_of_bits():
    """Made where the embeddings are, in well under a second, and the same up to rounding."""
    x, labels = clustered_embeddings(4096, dim=384)
    here = plan_bits(x, n=23_000, labels=labels)
    plan_bits(x.cuda(), n=23_000, labels=labels)  # loads what it needs
    began = time.perf_counter()
    there = plan_bits(x.cuda(), n=23_000, labels=labels)
    seconds = time.perf_counter() - began
    assert there.bits == here.bits
    assert there.overlap == pytest.approx(here.overlap, abs=2e-3)
    assert there.error == pytest.approx(here.error, abs=2e-3)
    assert seconds < 0.5


def test_hashing_under_autocast():
    x, _ = clustered_embeddings(500, dim=96)
    hasher = SignHasher(96, 256)
    expected = hasher.encode(x.cuda())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.equal(hasher.encode(x.cuda()), expected)


def test_flagged_hashing_does_not_wait_for_the_device(refusing_to_wait):
    x = clustered_embeddings(500, dim=96)[0].cuda()
    hasher = SignHasher(96, 256).cuda()
    hasher.encode(x)
    count = torch.tensor(500.0, dtype=torch.float64, device="cuda")
    refusing_to_wait()
    hasher.set_mean(x.mean(0, dtype=torch.float64), count)
    codes, _ = hasher.encode_flagged(x)
    refusing_to_wait(on=False)
    expected = SignHasher(96, 256)
    expected.update_mean(x.cpu())
    assert int(hasher.count) == 500
    assert (codes.cpu() != expected.encode(x.cpu())).float().mean() < 1e-4


@pytest.mark.parametrize("hard_fraction", [None, 0.5])
@pytest.mark.parametrize("mask_above", [None, 0.9])
def test_the_loss_does_not_wait_for_the_device(refusing_to_wait, hard_fraction, mask_above):
    query, reference = (torch.randn(64, 32, generator=torch.manual_seed(seed)) for seed in range(2))
    reference = query + reference
    negatives = torch.randn(64, 3, 32, generator=torch.manual_seed(2)) + 0.5 * query[:, None]
    exclude = make_lists([[(i + 1) % 64, (7 * i) % 64, 64 + i] for i in range(64)])
    criterion = InfoNCE(hard_fraction=hard_fraction, mask_above=mask_above)
    expected, masked = criterion(query, reference, exclude, negatives), criterion.masked
    criterion.reset_masked()
    criterion, query, reference, negatives = (x.cuda() for x in (criterion, query, reference, negatives))
    refusing_to_wait()
    loss = criterion(query, reference, exclude, negatives)
    refusing_to_wait(on=False)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert criterion.masked == (None if masked is None else pytest.approx(masked, abs=1e-4))


@pytest.mark.parametrize("bits", [8, 40, 128, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("backend", ["auto", "matmul", "cpu", "plain"])
def test_search(bits, backend):
    generator = torch.manual_seed(bits)
    codes = torch.randint(0, 256, (700, bits // 8), dtype=torch.uint8, generator=generator)
    codes[100:300] = codes[0]
    labels = torch.randint(0, 9, (700,), generator=generator)
    exclude = (torch.arange(701), torch.randint(0, 700, (700,), generator=generator))
    options = {"query_labels": labels, "reference_labels": labels, "exclude": exclude}
    expected = hamming_topk(codes, codes, 30, backend="plain", **options)
    found = hamming_topk(codes.cuda(), codes, 30, backend=backend, **options)
    assert found.indices.is_cuda
    assert torch.equal(found.indices.cpu(), expected.indices)
    assert torch.equal(found.distances.cpu(), expected.distances)


@pytest.mark.parametrize("bits", [32, 128, 512, 1024])
@pytest.mark.parametrize("backend", ["auto", "matmul", "cuda", "cpu", "plain"])
def test_search_of_codes_of_several_bits(bits, backend):
    x, labels = clustered_embeddings(2500, dim=256)
    x[100:300] = x[0]
    hasher = ScalarHasher(256, bits)
    hasher.update(x)
    codes = hasher.encode(x)
    exclude = (torch.arange(2501), torch.randint(0, 2500, (2500,), generator=torch.manual_seed(bits)))
    limits = torch.randint(-1, 20_000, (2500,))
    for options in ({"query_labels": labels, "exclude": exclude}, {"limits": limits}):
        expected = scalar_topk(codes, codes, 30, backend="plain", **options)
        there = codes.to("cuda")
        found = scalar_topk(there, there, 30, backend=backend, **options)
        assert found.indices.is_cuda
        assert torch.equal(found.indices.cpu(), expected.indices)
        assert torch.equal(found.distances.cpu(), expected.distances)


def test_negatives_and_positives():
    x, labels = clustered_embeddings(1500, dim=64)
    labels[:200] = 0  # a class large enough to be searched on its own
    codes = SignHasher(64, 128).encode(x)
    for filters in (Filters(), Filters(relative_margin=0.05, min_score=-0.5)):
        here, there = (hard_negatives(c, labels, 10, filters=filters) for c in (codes, codes.cuda()))
        assert torch.equal(here.indices, there.indices.cpu())
    assert torch.equal(hardest_positives(codes, labels), hardest_positives(codes.cuda(), labels).cpu())


def test_code_table_takes_device_tensors():
    codes = torch.randint(0, 256, (5, 4), dtype=torch.uint8)
    table = CodeTable(10, 32)
    table.write(torch.arange(5).cuda(), codes.cuda())
    assert torch.equal(table.codes[:5], codes)


@pytest.mark.parametrize(("bits", "code"), [(128, "signs"), ("auto", "signs"), (128, "scalar")])
def test_observing_does_not_wait_for_the_device(refusing_to_wait, bits, code):
    x, _ = clustered_embeddings(400, dim=64)
    labels = torch.arange(400) // 2
    here, there = (LSHBatchSampler(labels, 40, bits=bits, code=code) for _ in range(2))
    for sampler in (here, there):
        sampler.memory.streams["embeddings"].gathering = Gathering(100)  # so that hashing happens while we watch
    on_device = x.cuda()
    for epoch in range(3):
        for ids in here:
            here.observe(ids, x[ids])
        for step, ids in enumerate(there):
            z = on_device[torch.tensor(ids).cuda()]
            # The first call makes the hasher, the first copies pin memory; codes of several bits have one per epoch.
            refusing_to_wait(on=step > 4 or (epoch > 0 and code == "signs"))
            there.observe(ids, z)
            refusing_to_wait(on=False)
    codes = [sampler.codes["embeddings"] for sampler in (here, there)]
    there.memory.streams["embeddings"].flush()
    assert codes[1].num_seen == 400
    if code == "signs":  # components of equal variance are another basis on another device
        assert (codes[0].codes == codes[1].codes).float().mean() > 0.995
    for reservoir in there.memory.reservoirs.values():
        reservoir.flush()
        assert torch.allclose(reservoir.rows, x[reservoir.ids])


@pytest.mark.parametrize("paired", [False, True])
def test_samples_are_searched_in_chunks(monkeypatch, paired):
    x, _ = clustered_embeddings(600, dim=32, seed=0)
    sampler = LSHBatchSampler(None if paired else torch.arange(600) // 3, 50, pairs=600 if paired else None, bits=128)
    for ids in sampler:
        rows = x[ids].cuda()
        sampler.observe(ids, **({"query": rows, "reference": rows} if paired else {"embeddings": rows}))
    iter(sampler)
    arguments = sampler.memory, sampler.pairing, 20, Filters(relative_margin=0.05), None
    expected = composition.mine(*arguments)
    assert expected.indices.is_cuda
    expected = expected.on_host()
    monkeypatch.setattr(composition, "DEVICE_CHUNK", 170)
    found = composition.mine(*arguments)
    assert found.indices.dtype == torch.int32
    assert torch.equal(found.indices, expected.indices)
    assert torch.equal(found.values, expected.values)
