"""What the readers give is what training takes."""

import pytest
import torch
from torch import nn

from lookalike.data import load_data
from lookalike.training.run import train
from lookalike.training.settings import Settings
from tests.data.miniatures import write_cvusa, write_msmarco, write_sop


class Letters(nn.Module):
    """Embeds texts by their letters, images by their colours."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        if isinstance(x, list):
            return self.head(
                torch.stack([torch.bincount(torch.tensor([*t.encode()]) % 64, minlength=64) for t in x]) / 9
            )
        return self.head(nn.functional.adaptive_avg_pool2d(x.float() / 255, (4, 4)).flatten(1).repeat(1, 2)[:, :64])


@pytest.mark.parametrize(
    ("name", "write", "options"),
    [
        ("sop", write_sop, {"size": 8}),
        ("cvusa", write_cvusa, {"query_size": (8, 16), "reference_size": 8}),
        ("msmarco", write_msmarco, {}),
    ],
)
@pytest.mark.parametrize("sampler", ["lsh", "full"])
def test_two_epochs(tmp_path, monkeypatch, name, write, options, sampler):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    data = load_data(name, write(tmp_path / "own"), **options)
    torch.manual_seed(0)
    settings = Settings(sampler=sampler, bits=64, epochs=2, pairs_per_batch=2)
    result = train(data, settings, out=tmp_path / "run", model=Letters(), device="cpu", progress=False)
    assert result.metrics["queries"] == len(data.test.query_labels)
    assert 0 <= result.metrics["recall@1"] <= 1
    if name == "sop":
        assert result.metrics["recall@1"] < 1  # no image finds itself
