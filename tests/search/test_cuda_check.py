"""Before a search relies on the CUDA kernels, a small one is compared with matrix products."""

import pytest
import torch

from lookalike import ScalarHasher
from lookalike.search import cuda, cuda_check, matmul
from lookalike.search.request import checked_request
from tests.search import emulator

pytestmark = pytest.mark.skipif(emulator.COMPILER is None, reason="needs g++")


@pytest.fixture
def searches(monkeypatch, tmp_path):
    """The searches that the emulated kernels were asked for; none is known to be right."""
    emulator.install(monkeypatch, tmp_path)
    made = []

    def topk(request, size):
        made.append(cuda.search_of(request, size))
        return made[-1].run()

    monkeypatch.setattr(cuda, "topk", topk)
    monkeypatch.setattr(cuda_check, "_known", {})
    return made


def asked(kind, n=50):
    x = torch.randn(n, 48, generator=torch.Generator().manual_seed(0))
    if kind == "signs":
        codes = torch.randint(0, 256, (n, 16), dtype=torch.uint8)
        return checked_request(codes, codes, 5)
    hasher = ScalarHasher(48, 128)
    hasher.update(x)
    codes = hasher.encode(x)
    return checked_request(codes.packed, codes.packed, 5, scheme=codes.scheme)


@pytest.mark.parametrize("kind", ["signs", "scalar"])
def test_each_program_is_checked_once(searches, kind):
    assert cuda_check.fault(asked(kind)) is None
    assert cuda_check.fault(asked(kind, 60)) is None
    assert len(searches) == 1
    assert searches[0].plan.run  # limits are sampled
    assert searches[0].kernels.repaired  # and some are too tight


def test_large_references_have_their_own_program_on_hopper(monkeypatch, searches):
    """It is checked by a search that is too small to take it otherwise."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(cuda, "HOPPER_FROM", dict.fromkeys(cuda.SHAPES, 6000))
    assert cuda_check.fault(asked("signs")) is None
    assert cuda_check.fault(asked("signs", 6000)) is None
    assert [search.hopper is not None for search in searches] == [False, True]


@pytest.mark.usefixtures("searches")
@pytest.mark.parametrize("kind", ["signs", "scalar"])
def test_a_wrong_answer_is_noticed(monkeypatch, kind):
    right = cuda.topk

    def wrong(request, size):
        found = right(request, size)
        found.indices[7, 3] += 1
        return found

    monkeypatch.setattr(cuda, "topk", wrong)
    assert "wrong answer" in cuda_check.fault(asked(kind))


class CompilerError(Exception):
    """As cuda-core raises them: of no class that others share."""


def fails(_request, _size):
    raise CompilerError("5: NVRTC_ERROR_INVALID_OPTION, log:\n\nnvrtc: error: invalid value for -arch\n\0")


@pytest.mark.usefixtures("searches")
def test_kernels_that_cannot_be_compiled_or_launched_are_not_used(monkeypatch):
    monkeypatch.setattr(cuda, "topk", fails)
    assert cuda_check.fault(asked("scalar")) == (
        "these do not run on this GPU (5: NVRTC_ERROR_INVALID_OPTION, log: nvrtc: error: invalid value for -arch)"
    )


@pytest.mark.usefixtures("searches")
def test_kernels_that_break_the_device_are_named(monkeypatch):
    """After an illegal access nothing runs on the device, matrix products included."""

    def broken(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with more.")

    def breaks(*_):
        monkeypatch.setattr(matmul, "topk", broken)
        broken()

    monkeypatch.setattr(cuda, "topk", breaks)
    with pytest.raises(RuntimeError, match=r"kernels failed a test on this GPU \(CUDA error: an illegal .*'matmul'"):
        cuda_check.fault(asked("signs"))


@pytest.mark.usefixtures("searches")
def test_lack_of_memory_says_nothing_of_the_kernels(monkeypatch):
    right = cuda.topk

    def full(_request, _size):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cuda, "topk", full)
    with pytest.raises(torch.OutOfMemoryError):
        cuda_check.fault(asked("signs"))
    monkeypatch.setattr(cuda, "topk", right)
    assert cuda_check.fault(asked("signs")) is None
