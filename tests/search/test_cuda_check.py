"""Before a search relies on the CUDA kernels, a small one is compared with matrix products."""

import pytest
import torch

from lookalike import ScalarHasher
from lookalike.search import cuda, cuda_check
from lookalike.search.request import checked_request
from tests.search import emulator

pytestmark = pytest.mark.skipif(emulator.COMPILER is None, reason="needs g++")


@pytest.fixture
def searches(monkeypatch, tmp_path):
    """The searches that the emulated kernels were asked for; none is known to be right."""
    emulator.install(monkeypatch, tmp_path)
    made = []

    def topk(request):
        made.append(request)
        return cuda.search_of(request).run()

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
    assert cuda_check.is_right(asked(kind))
    assert cuda_check.is_right(asked(kind, 60))
    assert len(searches) == 1
    assert cuda.search_of(searches[0]).plan.run  # limits are sampled


@pytest.mark.usefixtures("searches")
@pytest.mark.parametrize("kind", ["signs", "scalar"])
def test_a_wrong_answer_is_noticed(monkeypatch, kind):
    right = cuda.topk

    def wrong(request):
        found = right(request)
        found.indices[7, 3] += 1
        return found

    monkeypatch.setattr(cuda, "topk", wrong)
    assert not cuda_check.is_right(asked(kind))
