"""The CUDA backend: on a device, on an emulator of it, and what surrounds the kernels."""

import logging
import pwd
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from lookalike import hamming_topk
from lookalike.search import choice, cuda, cuda_check, cuda_plan, cuda_values, nvrtc, plain
from lookalike.search.request import Neighbours, checked_request
from lookalike.utils.messages import warn_once
from tests.search import emulator
from tests.search.test_parity import assert_same, clustered_codes, csr, searches


def awkward(name, n, bits, k):
    """Searches that thresholds, ties, lists or tiles could get wrong."""
    generator = torch.manual_seed(n)
    codes = torch.randint(0, 256, (n, bits // 8), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 7, (n,), generator=generator)
    some = torch.randperm(n, generator=generator)[:70]
    if name == "random":
        return checked_request(codes[some], codes, k)
    if name == "labels":
        return checked_request(codes[some], codes, k, labels=(labels[some], labels))
    if name == "all codes equal":
        codes = torch.full_like(codes, 0b10110)
        return checked_request(codes[some], codes, k, labels=(labels[some], labels))
    if name == "all distances equal":  # one bit each: 2 apart, itself excepted
        codes = torch.zeros(n, bits, dtype=torch.bool)
        codes[torch.arange(n), torch.arange(n) % bits] = True
        codes = torch.from_numpy(np.packbits(codes.numpy(), axis=1, bitorder="little"))
        return checked_request(codes[some], codes, k)
    if name == "one label":
        return checked_request(codes[some], codes, k, labels=(0 * labels[some], 0 * labels))
    if name == "sorted clusters":
        codes, members = clustered_codes(n, bits, 12, seed=n)
        labels = torch.from_numpy(members) // 2
        return checked_request(codes[some], codes, k, labels=(labels[some], labels))
    if name == "limits":  # of an earlier search: tight, none, and nothing counts
        limits = plain.topk(checked_request(codes[some], codes[: n // 2], k)).distances[:, -1] - 1
        limits[::3], limits[1::7] = bits, -1
        return checked_request(codes[some], codes, k, labels=(labels[some], labels), limits=limits)
    if name == "limits, all codes equal":
        limits = torch.randint(-1, 2, (len(some),), generator=generator)
        return checked_request(codes[:1].expand(len(some), -1), codes[:1].expand(n, -1), k, limits=limits)
    lists = [torch.randint(0, n, (int(length),), generator=generator) for length in torch.randint(0, 60, (len(some),))]
    return checked_request(codes[some], codes, k, exclude=csr(lists), memory=30_000)


AWKWARD = [
    "random",
    "labels",
    "all codes equal",
    "all distances equal",
    "one label",
    "sorted clusters",
    "limits",
    "limits, all codes equal",
    "exclude, in tiles",
]


CAPABILITIES = [(8, 0), cuda.HOPPER]  # which scan the reference in different ways


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if emulator.COMPILER is None:
        pytest.skip("needs g++")
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", AWKWARD)
def test_emulated_kernels_are_exact(monkeypatch, folder, name, capability):
    emulator.install(monkeypatch, folder, capability)
    asked = awkward(name, 4099, 128, 12)
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("bits", [8, 128, 200, 256, 512, 768, 1024, 1536, 2048])
def test_emulated_products_of_every_length(monkeypatch, folder, bits, capability):
    emulator.install(monkeypatch, folder, capability)
    monkeypatch.setattr(cuda_plan, "DIRECT", 600)
    asked = awkward("labels", 1021, bits, 5)
    assert cuda_plan.make_plan(70, 1021, 5, 1 << 20).run
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))
    few = checked_request(asked.query[:3], asked.reference[:2], 4)  # k > n
    assert_same(cuda.SignSearch(few).run(), plain.topk(few))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("bits", [128, 768, 1024])
@pytest.mark.parametrize("deviations", [-2.4, 120.0])
def test_emulated_repair(monkeypatch, folder, deviations, bits, capability):
    """Limits so tight that lists come up short, and so wide that they run over."""
    emulator.install(monkeypatch, folder, capability)
    plan = cuda_plan.make_plan(70, 4099, 12, 1 << 20)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    asked = awkward("labels", 4099, bits, 12)
    search = cuda.SignSearch(asked)
    search.kernels.repaired = 0
    assert_same(search.run(), plain.topk(asked))
    assert search.kernels.repaired > 30


@pytest.mark.parametrize("deviations", [-2.4, 120.0])
@pytest.mark.parametrize("name", ["limits", "limits, all codes equal"])
def test_emulated_repair_keeps_to_the_limits(monkeypatch, folder, name, deviations):
    """Sampled limits that are too tight, and lists too short for what the request's limits let pass."""
    emulator.install(monkeypatch, folder)
    plan = replace(cuda_plan.make_plan(70, 4099, 12, 1 << 20, 8), capacity=256)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    asked = awkward(name, 4099, 128, 12)
    search = cuda.SignSearch(asked)
    search.kernels.repaired = 0
    assert_same(search.run(), plain.topk(asked))
    assert search.kernels.repaired > 10


@pytest.mark.parametrize("direct", [600, 4096])
def test_emulated_lists_that_limits_keep_short_are_complete(monkeypatch, folder, direct):
    """With a sample and without one, in several tiles of queries."""
    emulator.install(monkeypatch, folder)
    monkeypatch.setattr(cuda_plan, "DIRECT", direct)
    codes, _ = clustered_codes(2000, 128, 12, seed=3)
    limits = torch.randint(-1, 30, (90,), generator=torch.manual_seed(0))
    asked = checked_request(codes[:90], codes, 60, limits=limits, memory=100_000)
    search = cuda.SignSearch(asked)
    assert bool(search.plan.run) == (direct == 600)
    assert search.plan.tile < 90
    search.kernels.repaired = 0
    expected = plain.topk(asked)
    assert_same(search.run(), expected)
    assert search.kernels.repaired == 0
    assert (expected.indices == -1).any(1).sum() > 60


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("bits", [128, 512])
def test_near_rows_that_labels_leave_out_are_not_looked_up(monkeypatch, folder, bits, capability):
    """All codes are equal, and half of the rows, which come first, have the label of the queries."""
    emulator.install(monkeypatch, folder, capability)
    n, k = 12_000, 12
    codes, labels = torch.full((n, bits // 8), 3, dtype=torch.uint8), 2 * torch.arange(n) // n
    search = cuda.SignSearch(checked_request(codes[:130], codes, k, labels=(labels[:130], labels)))
    search.kernels.examined = search.kernels.repaired = 0
    assert_same(search.run(), plain.topk(search.request))
    assert search.kernels.repaired == 0
    assert search.kernels.examined < 130 * 6000 * 0.6  # a block finds out anew, and blocks are small here


def test_labels_of_more_than_32_bits_are_told_apart(monkeypatch, folder):
    """Labels that differ in their upper halves only."""
    emulator.install(monkeypatch, folder)
    codes, labels = torch.full((9000, 16), 3, dtype=torch.uint8), torch.arange(9000) // 4500 * ((1 << 40) + (1 << 8))
    asked = checked_request(codes[:130], codes, 12, labels=(labels[:130], labels))
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))


def repeated(num_distinct, bits, *, odd=False, filters="none"):
    """A search among few distinct codes, as a collapsed model gives them, all of even or all of odd weight."""
    n, k = 8200, 12
    rng = np.random.default_rng(bits + num_distinct)
    distinct = rng.integers(0, 256, (num_distinct, bits // 8), dtype=np.uint8)
    distinct[:, 0] ^= (np.bitwise_count(distinct).sum(1) % 2 != odd).astype(np.uint8)
    codes = torch.from_numpy(distinct[rng.integers(0, num_distinct, n)])
    some = torch.from_numpy(rng.choice(n, 128, replace=False))
    if filters == "exclude":
        return checked_request(codes[some], codes, k, exclude=csr([rng.integers(0, n, 30) for _ in some]))
    labels = {"none": None, "all labels differ": torch.arange(n), "few labels": torch.arange(n) % 5}[filters]
    if labels is None:
        return checked_request(codes[some], codes, k)
    return checked_request(codes[some], codes, k, labels=(labels[some], labels))


def assert_cheap(asked, num_distinct):
    """The answer is exact, no query is searched twice, and few pairs are examined one by one."""
    search = cuda.SignSearch(asked)
    assert search.plan.run  # limits come from a sample
    search.kernels.repaired = search.kernels.examined = 0
    assert_same(search.run(), plain.topk(asked))
    assert search.kernels.repaired == 0
    ties = cuda.CHUNK / num_distinct  # rows at the limit's distance, up to the chunk that ends behind its id
    assert search.kernels.examined < asked.num_queries * (1.1 * ties + 100)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("bits", [128, 512, 1024])
@pytest.mark.parametrize("num_distinct", [1, 40])
def test_repeated_codes_cost_no_more_than_others(monkeypatch, folder, num_distinct, bits, capability):
    emulator.install(monkeypatch, folder, capability)
    assert_cheap(repeated(num_distinct, bits), num_distinct)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_repeated_codes_of_odd_weight_cost_no_more_than_others(monkeypatch, folder, capability):
    emulator.install(monkeypatch, folder, capability)
    assert_cheap(repeated(1, 512, odd=True), 1)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("filters", ["all labels differ", "few labels", "exclude"])
@pytest.mark.parametrize("num_distinct", [1, 40])
def test_repeated_codes_with_filters_cost_no_more_than_others(monkeypatch, folder, num_distinct, filters, capability):
    emulator.install(monkeypatch, folder, capability)
    assert_cheap(repeated(num_distinct, 512, filters=filters), num_distinct)


@pytest.mark.parametrize(("n", "k"), [(6000, 1000), (100_000, 4096), (532_736, 128), (532_736, 1000), (532_736, 4096)])
def test_samples_of_equal_codes_give_limits_that_hold(monkeypatch, folder, n, k):
    """Where all codes are equal, all queries share one limit: if it does not hold, all of them are repaired."""
    emulator.install(monkeypatch, folder)
    codes = torch.zeros(n, 16, dtype=torch.uint8)
    search = cuda.SignSearch(checked_request(codes[:1].clone(), codes, k))
    limits = torch.zeros(1, dtype=torch.int64)
    keys = torch.zeros(1, search.plan.capacity, dtype=torch.int64)
    search._limit(slice(0, 1), search._sample(), keys, limits)
    assert k <= int(limits[0]) + 1 <= search.plan.capacity


def test_emulated_selection_where_lists_exceed_the_shared_memory(monkeypatch, folder):
    emulator.install(monkeypatch, folder)
    codes = torch.randint(0, 4, (1500, 16), dtype=torch.uint8, generator=torch.manual_seed(0))
    asked = checked_request(codes[:9], codes, 1100)
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))
    asked = checked_request(codes[:9], codes, 100)
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(
    ("name", "n", "k", "deviations"),
    [
        ("labels", 4099, 12, -2.4),  # repaired
        ("exclude, in tiles", 2500, 12, 3.5),
        ("random", 2100, 600, 120.0),  # lists of all rows, selected from in shared memory
        ("all codes equal", 2100, 130, 3.5),
    ],
)
def test_any_thread_may_go_first(monkeypatch, folder, name, n, k, deviations, capability):
    """The last thread goes first, which shows where threads should have waited for each other."""
    emulator.install(monkeypatch, folder, capability)
    monkeypatch.setattr(emulator.EmulatedKernels, "backwards", True)
    asked = awkward(name, n, 128, k)
    plan = cuda_plan.make_plan(70, n, k, asked.memory or 1 << 20)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    assert_same(cuda.SignSearch(asked).run(), plain.topk(asked))


def test_fragments_give_distances():
    """The words each lane loads, multiplied as the PTX manual lays out m16n8k256, are inner products of codes."""
    rng = np.random.default_rng(0)
    for words, load in ((8, 2), (16, 4), (24, 2), (32, 4), (64, 4)):
        x, y = rng.integers(0, 2**32, (16, words), np.uint32), rng.integers(0, 2**32, (8, words), np.uint32)
        held = np.array(
            [[4 * w + load * t + i for w in range(0, words // 4, load) for i in range(load)] for t in range(4)]
        )
        assert sorted(held.flatten()) == list(range(words))  # each word is held once
        products = np.zeros((16, 8), int)
        for s in range(words // 8):
            a = np.zeros((32, 4), np.uint32)
            b = np.zeros((32, 2), np.uint32)
            for lane in range(32):
                g, t = divmod(lane, 4)
                low, high = held[t, 2 * s], held[t, 2 * s + 1]
                a[lane] = x[g, low], x[g + 8, low], x[g, high], x[g + 8, high]
                b[lane] = y[g, low], y[g, high]
            left, right = np.zeros((16, 8), np.uint32), np.zeros((8, 8), np.uint32)  # the operands, 32 columns a word
            for lane in range(32):
                g, t = divmod(lane, 4)
                left[g, t], left[g + 8, t], left[g, t + 4], left[g + 8, t + 4] = a[lane]
                right[g, t], right[g, t + 4] = b[lane]
            products += np.bitwise_count(left[:, None] & right[None]).sum(-1, dtype=int)
        distances = (
            np.bitwise_count(x).sum(1, dtype=int)[:, None] + np.bitwise_count(y).sum(1, dtype=int) - 2 * products
        )
        assert np.array_equal(distances, np.bitwise_count(x[:, None] ^ y[None]).sum(-1, dtype=int))


@pytest.mark.parametrize("scarcer", [1, cuda_plan.SCARCER])
@pytest.mark.parametrize(("n", "k"), [(25_882, 128), (532_736, 1), (532_736, 128), (532_736, 2048), (8_841_823, 128)])
def test_limits_leave_few_queries_to_repair(n, k, scarcer):
    """Ranks of the nearest rows are all that matters: which of them are in the sample, and in which groups."""
    plan = cuda_plan.make_plan(1000, n, k, 1 << 31, scarcer)
    rng = np.random.default_rng(n + k)
    share = cuda_plan.GROUPS * plan.run / n
    wanted = k * share + cuda_plan.DEVIATIONS * np.sqrt(k * share) + 1
    rank = int(np.ceil(cuda_plan.GROUPS * (1 - np.exp(-wanted / cuda_plan.GROUPS))))
    within = []  # rows up to the limit, over many queries
    for _ in range(500):
        sampled = np.flatnonzero(rng.random(4 * plan.capacity) < share)
        groups = rng.integers(0, cuda_plan.GROUPS, len(sampled))
        first = np.sort(np.unique(groups, return_index=True)[1])
        within.append(sampled[first[rank - 1]] + 1)
    within = np.array(within)
    assert (within < k).mean() < 0.01
    assert (within > plan.capacity).mean() < 0.01
    assert plan.capacity < scarcer * (8 * k + 1000)


def test_memory_bounds_the_tiles():
    for memory in (1, 10**6, 10**9):
        plan = cuda_plan.make_plan(532_736, 532_736, 128, memory)
        assert plan.tile == 1 or plan.tile * plan.capacity * 8 <= memory


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize("words", cuda.SHAPES)
def test_kernels_compile(monkeypatch, tmp_path, words, arch):
    pytest.importorskip("cuda.core", exc_type=ImportError)
    pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    macros = cuda.macros_of(words, cuda.HOPPER_SHAPES[words] if arch == "sm_90a" else None)
    try:
        cubin = nvrtc.cubin_of(macros, arch)
    except RuntimeError as error:  # bindings without the library
        pytest.skip(str(error))
    assert cubin.startswith(b"\x7fELF")
    (path,) = (tmp_path / "lookalike" / "cuda").iterdir()
    assert path.read_bytes() == cubin
    path.write_bytes(b"kept")
    assert nvrtc.cubin_of(macros, arch) == b"kept"


@pytest.mark.parametrize("macros", [cuda.macros_of(8, None), cuda_values.macros_of(6)], ids=["signs", "values"])
def test_kernels_compile_for_the_newest_gpu(monkeypatch, tmp_path, macros):
    compiler = pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        newest = max(compiler.nvrtcGetSupportedArchs()[1])
        cubin = nvrtc.cubin_of(macros, f"sm_{newest}")
    except RuntimeError as error:  # bindings without the library
        pytest.skip(str(error))
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((12, 1), "sm_121")],
)
def test_only_hopper_scans_in_its_own_way(monkeypatch, capability, arch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(nvrtc, "_loaded", lambda macros, arch: (dict(macros), arch))
    monkeypatch.setattr(nvrtc, "cuda_core", MagicMock())
    codes = torch.zeros(10, 128, dtype=torch.uint8)
    macros, found = nvrtc.load_kernels(cuda.program_of(checked_request(codes, codes, 1)), 0)
    assert found == arch
    assert ("HOPPER" in macros) == (arch == "sm_90a")
    few_bits = checked_request(codes[:, :16], codes[:, :16], 1)  # the scan of any GPU is faster
    assert nvrtc.load_kernels(cuda.program_of(few_bits), 0)[1] == arch.removesuffix("a")


def test_kernels_compile_where_nobody_has_a_home(monkeypatch):
    """As in a container whose user has no name."""
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "LOOKALIKE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: {}["unknown"])
    monkeypatch.setattr(nvrtc, "_compiler_version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "_compiled", lambda *_: b"machine code")
    for _ in range(2):
        assert nvrtc.cubin_of((("WORDS", 4),), "sm_90") == b"machine code"


class OnDevice(torch.Tensor):
    """Codes that say they are on a GPU."""

    device = torch.device("cuda", 0)
    is_cuda = True


@pytest.fixture
def pretended(monkeypatch):
    """A large request on a device that is not there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 0))
    monkeypatch.setattr(cuda, "cuda_core", lambda: None)
    warn_once.cache_clear()
    asked = checked_request(torch.zeros(3000, 16, dtype=torch.uint8), torch.zeros(3000, 16, dtype=torch.uint8), 5)
    object.__setattr__(asked, "query", asked.query.as_subclass(OnDevice))
    return asked


@pytest.mark.parametrize(("fault", "backend"), [(None, "cuda"), ("these do not run on this GPU", "matmul")])
def test_large_searches_on_a_device_take_the_kernels_if_these_are_right(monkeypatch, caplog, pretended, fault, backend):
    monkeypatch.setattr(cuda_check, "fault", lambda _: fault)
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert choice.choose_backend(pretended) == backend
    assert ("rather than the CUDA kernels, because these do not run on this GPU." in caplog.text) == bool(fault)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"capability": (7, 5)}, "need compute capability 8.0, and this GPU has 7.5"),
        ({"missing": True}, "cuda-core is missing"),
        ({"k": 5000}, "take k up to 4096, got 5000"),
    ],
)
def test_falling_back_is_said_once(monkeypatch, caplog, pretended, change, sentence):
    if "capability" in change:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: change["capability"])
    if "missing" in change:
        monkeypatch.setattr(cuda, "cuda_core", lambda: __import__("no_such_module"))
    if "k" in change:
        object.__setattr__(pretended, "k", change["k"])
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert choice.choose_backend(pretended) == "matmul"
        assert choice.choose_backend(pretended) == "matmul"
    assert len(caplog.records) == 1
    assert sentence in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_without_a_device_the_backend_is_refused():
    codes = torch.zeros(4, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match="backend 'cuda' cannot be used here: "):
        hamming_topk(codes, codes, 1, backend="cuda")


def on_device(asked):
    found = cuda.topk(asked.to("cuda"))
    torch.cuda.synchronize()
    return Neighbours(found.distances.cpu(), found.indices.cpu())


def assert_exact_on_device(monkeypatch, asked):
    """Answers are right whichever scan there is for this length."""
    expected = plain.topk(asked)
    for least in (0, 1 << 60):
        with monkeypatch.context() as patched:
            patched.setattr(cuda, "HOPPER_FROM", dict.fromkeys(cuda.SHAPES, least))
            assert_same(on_device(asked), expected)


@pytest.mark.gpu
@given(search=searches())
@settings(max_examples=150)
def test_parity_on_awkward_input(search):
    queries, reference, k, options = search
    expected = hamming_topk(queries, reference, k, backend="plain", **options)
    assert_same(hamming_topk(queries, reference, k, backend="cuda", **options), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [32, 128, 256, 512, 768, 1024, 1536, 2048])
@pytest.mark.parametrize("name", AWKWARD)
def test_device_is_exact(monkeypatch, name, bits):
    for n, k in ((4099, 12), (20_001, 33)):
        assert_exact_on_device(monkeypatch, awkward(name, n, bits, k))


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [128, 256, 512, 1024, 2048])
@pytest.mark.parametrize("filters", ["none", "all labels differ", "few labels", "exclude"])
@pytest.mark.parametrize("odd", [False, True])
def test_device_is_exact_on_repeated_codes(monkeypatch, bits, filters, odd):
    for num_distinct in (1, 2, 40):
        assert_exact_on_device(monkeypatch, repeated(num_distinct, bits, odd=odd, filters=filters))


@pytest.mark.gpu
@pytest.mark.parametrize("deviations", [-2.4, 120.0])
def test_device_repairs(monkeypatch, deviations):
    plan = cuda_plan.make_plan(70, 20_001, 12, 1 << 30)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    asked = awkward("labels", 20_001, 128, 12)
    assert_same(on_device(asked), plain.topk(asked))


@pytest.mark.gpu
@pytest.mark.parametrize("k", [1, 7, 128, 1000, 2048, 4096])
@pytest.mark.parametrize("bits", [64, 128, 1024])
def test_device_self_join(k, bits):
    codes, members = clustered_codes(12_345, bits, 200, seed=bits)
    labels = torch.from_numpy(members // 3)
    options = {"query_labels": labels, "reference_labels": labels, "exclude": csr([[i] for i in range(len(codes))])}
    expected = hamming_topk(codes.cuda(), codes.cuda(), k, backend="matmul", **options)
    assert_same(hamming_topk(codes.cuda(), codes.cuda(), k, backend="cuda", **options), expected)
    assert_same(hamming_topk(codes.cuda(), codes.cuda(), k, backend="cuda", memory=10**7, **options), expected)


@pytest.mark.gpu
def test_device_answers_the_same_a_hundred_times():
    codes, members = clustered_codes(30_000, 128, 100, seed=3)
    codes, labels = codes.cuda(), torch.from_numpy(members).cuda()
    first = hamming_topk(codes, codes, 50, query_labels=labels, backend="cuda")
    for _ in range(100):
        assert_same(hamming_topk(codes, codes, 50, query_labels=labels, backend="cuda"), first)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_device_is_not_waited_for_and_streams_are_kept():
    codes, _ = clustered_codes(20_000, 256, 100, seed=4)
    asked = checked_request(codes, codes, 30).to("cuda")
    expected = cuda.topk(asked)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    stream = torch.cuda.Stream()
    try:
        with torch.cuda.stream(stream):
            found = cuda.topk(asked)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert_same(found, expected)


@pytest.mark.gpu
def test_auto_takes_the_kernels():
    codes = torch.zeros(3000, 16, dtype=torch.uint8, device="cuda")
    assert choice.choose_backend(checked_request(codes, codes, 5)) == "cuda"


def test_shared_memory_of_hopper_suffices():
    """Two stages and the queues, of 227 KiB per multiprocessor, of which each block takes one itself."""
    for words, shape in cuda.HOPPER_SHAPES.items():
        stages = 2 * (words // 4 * (16 * shape.stage + 32) + 8 * shape.stage)
        assert shape.blocks * (stages + 4 * shape.queue * 4 * shape.warpgroups + 1024) <= 228 << 10
        assert 128 * shape.warpgroups % (16 * (words // 4)) == 0


def test_all_sources_are_joined():
    folder = Path(nvrtc.__file__).parent
    assert sorted(path.name for path in folder.glob("*.cu")) == sorted({*nvrtc.SIGN_SOURCES, *nvrtc.VALUE_SOURCES})
