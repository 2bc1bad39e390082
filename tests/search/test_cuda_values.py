"""The CUDA backend for codes of several bits: on an emulator, as arithmetic, and on a device."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookalike import ScalarCodes, ScalarHasher, scalar_topk
from lookalike.hashing.scheme import FARTHEST, ONE, PRODUCTS, Scheme
from lookalike.search import choice, cuda, cuda_plan, cuda_values, nvrtc, plain
from lookalike.search.request import Neighbours, checked_request
from lookalike.utils.messages import warn_once
from tests.search import emulator
from tests.search.test_parity import assert_same, csr

QUERIES = 70


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if emulator.COMPILER is None:
        pytest.skip("needs g++")
    return tmp_path_factory.mktemp("emulated")


def embeddings(n, dim, seed=0, spread=1.0):
    """Anisotropic rows around a mean, as models give them."""
    generator = torch.manual_seed(seed)
    scales = torch.linspace(2, 0.3, dim)
    return 0.4 + spread * torch.randn(n, dim, generator=generator) * scales


def hashed(x, bits):
    hasher = ScalarHasher(x.shape[1], bits)
    hasher.update(x)
    return hasher.encode(x)


def scheme_of(*groups, shift, seed=0):
    """Make a scheme of the tables that a hasher makes, for any groups."""
    rng = np.random.default_rng(seed)
    levels = torch.from_numpy(rng.integers(-40, 41, sum(1 << width for width, _ in groups)).astype(np.int8))
    factors = torch.from_numpy((4096 * 2 ** ((np.arange(256) - 127.5) / 160)).astype(np.int32))
    offsets = torch.from_numpy((1500 + 30 * (np.arange(256) - 127.5)).astype(np.int32))
    bits = 16 + sum(width * count for width, count in groups)
    return Scheme(-(-bits // 8) * 8, groups, levels, factors, offsets, shift, "made up")


def random_codes(n, scheme, seed=0):
    return torch.randint(0, 256, (n, scheme.bits // 8), dtype=torch.uint8, generator=torch.manual_seed(seed))


def awkward(name, n, k):
    """Searches that thresholds, ties, lists, tiles or filters could get wrong."""
    generator = torch.manual_seed(n)
    codes = hashed(embeddings(n, 48), 128)
    packed, scheme = codes.packed, codes.scheme
    labels = torch.randint(0, 7, (n,), generator=generator)
    some = torch.randperm(n, generator=generator)[:QUERIES]

    def asked(packed=packed, queries=None, **options):
        return checked_request(packed[some] if queries is None else queries, packed, k, scheme=scheme, **options)

    if name == "labels":
        return asked(labels=(labels[some], labels))
    if name == "labels of many bits":
        wide = labels % 2 * ((1 << 40) + (1 << 8))
        return asked(labels=(wide[some], wide))
    if name == "all codes equal":
        return asked(packed[:1].expand(n, -1).contiguous(), labels=(labels[some], labels))
    if name == "few distinct codes":
        return asked(packed[torch.arange(n) % 5])
    if name == "one label":
        return asked(labels=(0 * labels[some], 0 * labels))
    if name == "sorted clusters":
        members = torch.arange(n) * 12 // n
        x = embeddings(12, 48)[members] + 0.05 * embeddings(n, 48, seed=1)
        near = hashed(x, 128)
        return checked_request(near.packed[some], near.packed, k, labels=(members[some], members), scheme=near.scheme)
    if name == "close together":
        near = hashed(embeddings(n, 48) + 100 * torch.randn(48, generator=generator), 128)
        assert near.scheme.zoom > 6
        return checked_request(near.packed[some], near.packed, k, labels=(labels[some], labels), scheme=near.scheme)
    if name == "opposite queries":
        flipped = ~packed[some]
        flipped[:, 0] = packed[some, 0]  # the factor
        return asked(queries=flipped)
    if name == "random bytes":  # factors and offsets as far apart as they can be
        return asked(random_codes(n, scheme))
    if name == "limits":  # of an earlier search: tight, none, and nothing counts
        limits = plain.topk(checked_request(packed[some], packed[: n // 2], k, scheme=scheme)).distances[:, -1] - 1
        limits[::3], limits[1::7], limits[2::5] = FARTHEST, -1, ONE
        return asked(labels=(labels[some], labels), limits=limits)
    if name == "limits, all codes equal":
        packed = packed[:1].expand(n, -1).contiguous()
        apart = int(scheme.compare(packed[:1], packed[:1]))
        limits = torch.randint(apart - 1, apart + 2, (QUERIES,), generator=generator)
        return asked(packed, limits=limits)
    if name == "exclude, in tiles":
        lengths = torch.randint(0, 60, (QUERIES,), generator=generator).tolist()
        lists = [torch.randint(0, n, (length,), generator=generator) for length in lengths]
        return asked(exclude=csr(lists), memory=30_000)
    return asked()


AWKWARD = [
    "random",
    "labels",
    "labels of many bits",
    "all codes equal",
    "few distinct codes",
    "one label",
    "sorted clusters",
    "close together",
    "opposite queries",
    "random bytes",
    "limits",
    "limits, all codes equal",
    "exclude, in tiles",
]


@pytest.mark.parametrize("name", AWKWARD)
def test_emulated_kernels_are_exact(monkeypatch, folder, name):
    emulator.install(monkeypatch, folder)
    asked = awkward(name, 4200, 12)
    search = cuda.search_of(asked)
    assert search.plan.run
    assert_same(search.run(), plain.topk(asked))


@pytest.mark.parametrize(
    ("name", "k", "deviations"),
    [
        ("labels", 12, -2.4),  # repaired
        ("exclude, in tiles", 12, 3.5),
        ("random", 600, 120.0),  # lists of all rows, selected from in shared memory
        ("all codes equal", 130, 3.5),
    ],
)
def test_any_thread_may_go_first(monkeypatch, folder, name, k, deviations):
    """The last thread goes first, which shows where threads should have waited for each other."""
    emulator.install(monkeypatch, folder)
    monkeypatch.setattr(emulator.EmulatedKernels, "backwards", True)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "DIRECT", 300)
    asked = awkward(name, 2500, k)
    search = cuda.search_of(asked)
    assert bool(search.plan.run) == (k < 600)  # whether limits are sampled
    assert_same(search.run(), plain.topk(asked))


@pytest.mark.parametrize("dims", [1, 31, 32, 33, 96, 192, 250, 288, 400, 640, 1000])
def test_emulated_products_of_every_shape(monkeypatch, folder, dims):
    """Numbers of one to eight bits, numbers of values that fill no product, and more rows than k or fewer."""
    emulator.install(monkeypatch, folder)
    monkeypatch.setattr(cuda_plan, "DIRECT", 300)
    widths = (5, 3, 8, 1, 6, 2)[: min(6, dims)]
    counts = [dims // len(widths)] * (len(widths) - 1)
    scheme = scheme_of(*zip(widths, [*counts, dims - sum(counts)], strict=True), shift=9)
    packed, labels = random_codes(533, scheme), torch.arange(533) % 9
    asked = checked_request(packed[:QUERIES], packed, 5, labels=(labels[:QUERIES], labels), scheme=scheme)
    search = cuda.search_of(asked)
    assert search.plan.run
    assert torch.equal(search.reference.words.view(torch.int8)[:, :dims], scheme.unpack(packed).values)
    assert_same(search.run(), plain.topk(asked))
    few = checked_request(packed[:3], packed[:2], 4, scheme=scheme)  # k > n
    assert_same(cuda.search_of(few).run(), plain.topk(few))


@pytest.mark.parametrize("n", [1, 2, 7, 8, 63, 64, 65, 255, 257, 1025])
def test_emulated_tiles_at_their_edges(monkeypatch, folder, n):
    emulator.install(monkeypatch, folder)
    codes = hashed(embeddings(max(n, 2), 48), 128)
    packed = codes.packed[:n]
    for queries, k in ((packed[:1], 1), (packed[:65], n + 3), (packed[-1:], n)):
        asked = checked_request(queries, packed, k, scheme=codes.scheme)
        assert_same(cuda.search_of(asked).run(), plain.topk(asked))


@pytest.mark.parametrize("shift", [0, 8, 20])
@pytest.mark.parametrize("lowest", [0, 1, 700, 7131])
@pytest.mark.parametrize("span", [0, 3000, 30_000])
def test_emulated_tables_at_their_extremes(monkeypatch, folder, shift, lowest, span):
    """Factors of zero, tables of one value, offsets larger than any cosine: sums may have nowhere safe to start."""
    emulator.install(monkeypatch, folder)
    monkeypatch.setattr(cuda_plan, "DIRECT", 300)
    factors, offsets = torch.linspace(lowest, 7131, 256).int(), torch.linspace(-span, span, 256).int()
    scheme = replace(scheme_of((4, 30), shift=shift), factors=factors, offsets=offsets)
    packed, labels = random_codes(1200, scheme), torch.arange(1200) % 9
    asked = checked_request(packed[:QUERIES], packed, 9, labels=(labels[:QUERIES], labels), scheme=scheme)
    search = cuda.search_of(asked)
    assert search.plan.run
    assert_same(search.run(), plain.topk(asked))


@pytest.mark.parametrize("deviations", [-2.4, 120.0])
@pytest.mark.parametrize("name", ["labels", "limits", "few distinct codes", "random bytes"])
def test_emulated_repair(monkeypatch, folder, name, deviations):
    """Limits so tight that lists come up short, and so wide that they run over."""
    emulator.install(monkeypatch, folder)
    plan = replace(cuda_plan.make_plan(QUERIES, 4200, 12, 1 << 20), capacity=256)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    asked = awkward(name, 4200, 12)
    search = cuda.search_of(asked)
    search.kernels.repaired = 0
    assert_same(search.run(), plain.topk(asked))
    assert search.kernels.repaired > 10


@pytest.mark.parametrize("name", ["random", "all codes equal", "few distinct codes", "sorted clusters", "random bytes"])
def test_few_rows_are_looked_up_and_none_searched_again(monkeypatch, folder, name):
    emulator.install(monkeypatch, folder)
    search = cuda.search_of(awkward(name, 8200, 12))
    search.kernels.repaired = search.kernels.examined = 0
    search.run()
    assert search.kernels.repaired == 0
    assert search.kernels.examined < QUERIES * (
        cuda.CHUNK + 200
    )  # ties up to the chunk that ends behind the limit's id


def test_memory_is_counted_once_rows_are_unpacked(monkeypatch, folder):
    """They are several times as long as codes, and lists get what is left."""
    emulator.install(monkeypatch, folder)
    asked = awkward("random", 533, 5)
    done = []
    kernels = emulator.emulated_kernels(cuda.program_of(asked), folder)
    monkeypatch.setattr(kernels, "launch", lambda name, *_, **__: done.append(name))
    monkeypatch.setattr(cuda_plan, "affordable", lambda _: done.append("affordable") or 1 << 20)
    cuda.search_of(asked)
    assert done == ["prepare", "prepare", "affordable"]


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_dtype_does_not_matter(monkeypatch, folder, default):
    """Kernels write what they are told the memory of, whatever dtype tensors have by default."""
    emulator.install(monkeypatch, folder)
    asked = awkward("labels", 533, 5)
    torch.set_default_dtype(default)
    try:
        search = cuda.search_of(asked)
        assert search.reference.parts.dtype == search.tables.extremes.dtype == torch.float32
        found = search.run()
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(found, plain.topk(asked))


def test_near_rows_that_labels_leave_out_are_not_looked_up(monkeypatch, folder):
    """All codes are equal, and half of the rows, which come first, have the label of the queries."""
    emulator.install(monkeypatch, folder)
    codes = hashed(embeddings(500, 48), 128)
    n, packed = 9000, codes.packed[:1].expand(9000, -1).contiguous()
    labels = 2 * torch.arange(n) // n
    asked = checked_request(packed[:QUERIES], packed, 12, labels=(labels[:QUERIES], labels), scheme=codes.scheme)
    search = cuda.search_of(asked)
    search.kernels.repaired = search.kernels.examined = 0
    assert_same(search.run(), plain.topk(asked))
    assert search.kernels.repaired == 0
    assert search.kernels.examined < QUERIES * (cuda.CHUNK + 200)


def test_large_samples_leave_fewer_bits_for_distances(monkeypatch, folder):
    """Values of the survey are then coarser, and limits still are keys of rows."""
    emulator.install(monkeypatch, folder)
    monkeypatch.setattr(cuda_values, "CLOSENESS_BITS", 15 + 32 - 12 - 3)  # as if places took twenty bits more
    asked = awkward("labels", 4200, 12)
    search = cuda.search_of(asked)
    assert search._for_survey() == (12, 12)
    search.kernels.repaired = 0
    assert_same(search.run(), plain.topk(asked))


def starts(limits, rows, columns, extremes):
    """The sums' starts as the kernels compute them: `thresholds.cu` in NumPy, where float32 rounds alike."""
    f32 = np.float32
    factor, offset, shift = rows
    constant = (ONE - limits - offset).astype(f32)
    factors = factor.astype(f32) * f32(extremes[0])
    unit = f32(1 << (shift + 14)) / factors
    below = np.maximum(f32(0), f32(extremes[1]) - constant) * unit
    rounded = np.minimum(below, f32(1 << 20)) / (factors / f32(1 << 14) - f32(1))
    floats = f32(4) + (np.abs(constant) + f32(extremes[2])) * unit / f32(1 << 20)
    safe = (factors >= 2 << 14) & (below <= 1 << 21) & (rounded + floats <= 1 << 20) & (limits < FARTHEST)
    base = f32(12582912) + rounded + floats
    a = f32(1 << (shift + 14)) / columns[0].astype(f32)
    b = a * columns[1].astype(f32)
    inner = (b.astype(np.float64) - constant.astype(np.float64) * a).astype(f32)  # fused: one rounding
    start = ((f32(1) / factor.astype(f32)).astype(np.float64) * inner + base).astype(f32)
    return safe, start


@pytest.mark.parametrize("shift", [6, 10, 13, 16])
def test_thresholds_never_miss_a_row_within_the_limit(shift):
    """The largest product that is not flagged is beyond the limit; those flagged in vain are little farther."""
    rng = np.random.default_rng(shift)
    scheme = scheme_of((2, 8), shift=shift)
    factors, offsets = scheme.factors.numpy(), scheme.offsets.numpy()
    extremes = factors.min(), offsets.max(), np.abs(offsets).max()
    n = 400_000
    limits = rng.integers(0, FARTHEST, n)
    rows = factors[rng.integers(0, 256, n)], offsets[rng.integers(0, 256, n)], shift
    columns = factors[rng.integers(0, 256, n)], offsets[rng.integers(0, 256, n)]
    safe, start = starts(limits, rows, columns, extremes)
    assert safe.mean() > 0.5
    least = np.float32(12582912).view(np.int32) - start.view(np.int32).astype(np.int64)  # the least flagged product
    kept = safe & (np.abs(least) < PRODUCTS)
    assert kept.sum() > n // 20

    def away(products):
        scaled = products * ((rows[0].astype(np.int64) * columns[0]) >> 14) >> shift
        return np.clip(ONE - scaled - rows[1] - columns[1], 0, FARTHEST)

    assert (away(least - 1) > limits)[kept].all()
    coarse = (rows[0].astype(np.int64) * columns[0] >> 14 >> shift) + 1  # what one product changes
    loose = (away(least) - limits)[kept]
    assert np.median(loose) <= 32 + 8 * np.median(coarse[kept])
    assert loose.max() <= FARTHEST // 100 + 8 * coarse[kept].max()


def test_shared_memory_suffices():
    """Two stages, queues, rows and sums, of the 99 KiB that a block has anywhere, and of 227 KiB on an H200."""
    for slices in range(1, 33):
        macros = dict(cuda_values.macros_of(slices))
        stages = 2 * macros["STAGE"] * (64 * -(-slices // 2) + 28)
        static = macros["WARPS"] * (8 * 160 + 32 * 16 * macros["TILES"] + 4 * 512)
        assert static + 1024 <= (48 << 10) - nvrtc.SHARED
        assert stages + static <= 99 << 10
        assert macros["RESIDENT"] * (stages + static + 1024) <= 228 << 10
        assert cuda_values.SPAN_STEP % macros["STAGE"] == 0


@pytest.mark.parametrize(("slices", "arch"), [(1, "sm_80"), (6, "sm_90"), (8, "sm_80"), (13, "sm_90"), (32, "sm_80")])
def test_kernels_compile(monkeypatch, tmp_path, slices, arch):
    pytest.importorskip("cuda.core", exc_type=ImportError)
    pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        cubin = nvrtc.cubin_of(cuda_values.macros_of(slices), arch)
    except RuntimeError as error:  # bindings without the library
        pytest.skip(str(error))
    assert cubin.startswith(b"\x7fELF")


def test_obstacles_name_what_the_kernels_take(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 0))
    monkeypatch.setattr(cuda, "cuda_core", lambda: None)
    device = torch.device("cuda", 0)
    long = scheme_of((3, 900), shift=8)  # more bits than sign codes may have
    assert long.bits > cuda.MAX_BITS
    assert choice.cuda_obstacle(device, long.bits, 10, long) is None
    assert "2048 bits" in choice.cuda_obstacle(device, long.bits, 10)
    many = scheme_of((1, 1100), shift=8)
    assert choice.cuda_obstacle(device, many.bits, 10, many) == (
        "the CUDA kernels take codes of up to 1024 dimensions, and these have 1100"
    )
    assert choice.search_device(device, long.bits, 10, long) == device
    warn_once.cache_clear()
    assert choice.search_device(device, many.bits, 10, many).type == "cpu"


def on_device(asked):
    found = cuda.topk(replace(asked.to("cuda"), scheme=asked.scheme.to("cuda")))
    torch.cuda.synchronize()
    return Neighbours(found.distances.cpu(), found.indices.cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize(("n", "k"), [(4200, 12), (20_001, 33)])
def test_device_is_exact(name, n, k):
    asked = awkward(name, n, k)
    assert_same(on_device(asked), plain.topk(asked))


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [1, 31, 96, 165, 192, 248, 288, 400, 640, 1000])
def test_device_is_exact_at_every_shape(dims):
    scheme = scheme_of((3, dims), shift=9)
    packed, labels = random_codes(9001, scheme), torch.arange(9001) % 900
    asked = checked_request(packed[:333], packed, 40, labels=(labels[:333], labels), scheme=scheme)
    assert_same(on_device(asked), plain.topk(asked))


@pytest.mark.gpu
@pytest.mark.parametrize("deviations", [-2.4, 120.0])
@pytest.mark.parametrize("name", ["labels", "limits", "few distinct codes", "random bytes"])
def test_device_repairs(monkeypatch, name, deviations):
    plan = replace(cuda_plan.make_plan(QUERIES, 20_001, 12, 1 << 30), capacity=256)
    monkeypatch.setattr(cuda_plan, "DEVIATIONS", deviations)
    monkeypatch.setattr(cuda_plan, "make_plan", lambda *_: plan)
    asked = awkward(name, 20_001, 12)
    assert_same(on_device(asked), plain.topk(asked))


@pytest.mark.gpu
@pytest.mark.parametrize("k", [1, 128, 1000, 4096])
@pytest.mark.parametrize("bits", [128, 512])
def test_device_self_join(k, bits):
    codes = hashed(embeddings(12_345, 256), bits).to("cuda")
    labels = torch.arange(12_345) // 3
    options = {"query_labels": labels, "exclude": csr([[i] for i in range(len(codes))])}
    expected = scalar_topk(codes, codes, k, backend="matmul", **options)
    assert_same(scalar_topk(codes, codes, k, backend="cuda", **options), expected)
    assert_same(scalar_topk(codes, codes, k, backend="cuda", memory=10**7, **options), expected)


@pytest.mark.gpu
def test_device_answers_the_same_a_hundred_times():
    codes = hashed(embeddings(30_000, 256), 512).to("cuda")
    labels = (torch.arange(30_000) // 100).cuda()
    first = scalar_topk(codes, codes, 50, query_labels=labels, backend="cuda")
    for _ in range(100):
        assert_same(scalar_topk(codes, codes, 50, query_labels=labels, backend="cuda"), first)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_device_is_not_waited_for_and_streams_are_kept():
    codes = hashed(embeddings(20_000, 256), 512)
    codes = ScalarCodes(codes.packed.cuda(), codes.scheme.to("cuda"))
    asked = checked_request(codes.packed, codes.packed, 30, scheme=codes.scheme)
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
    codes = hashed(embeddings(3000, 64), 128)
    asked = checked_request(codes.packed.cuda(), codes.packed, 5, scheme=codes.scheme)
    assert choice.choose_backend(asked) == "cuda"
