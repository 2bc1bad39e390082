"""The code for those who come from another library runs as it stands, theirs as well as ours."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"


def code_of(heading):
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)[1]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
@pytest.mark.parametrize("block", [0, 1], ids=["before", "after"])
def test_training_with_sentence_transformers(model_folder, tmp_path, monkeypatch, block):
    pytest.importorskip("datasets")
    library = pytest.importorskip("sentence_transformers")
    from tests.integrations.texts import pairs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPORT_TO", "none")
    model = library.SentenceTransformer(model_folder, device="cpu")
    names = {"model": model, "pairs": pairs(48)}
    exec(code_of("sentence-transformers")[block], names)
    assert names["triplets"].column_names == ["anchor", "positive", "negative"]
    assert names["trainer"].state.global_step > 0
    mined = [entry for entry in names["trainer"].state.log_history if "mining/hardest_negative" in entry]
    assert bool(mined) == bool(block)


def test_the_loss_of_sentence_transformers(model_folder):
    library = pytest.importorskip("sentence_transformers")
    exec(code_of("sentence-transformers")[2], {"model": library.SentenceTransformer(model_folder, device="cpu")})


def test_pytorch_metric_learning():
    pytest.importorskip("pytorch_metric_learning")
    pytest.importorskip("faiss")  # what that library searches with
    before, after, equal = code_of("pytorch-metric-learning")
    exec(before, names := {})
    exec(after, names)
    assert names["sampler"].epoch == 1
    assert names["sampler"].codes["embeddings"].num_seen == 1000
    exec(equal, {})


def test_sample4geo():
    floats, bits, near = code_of("Sample4Geo")
    exec(floats, names := {})
    assert names["sampler"].epoch == 1
    exec(bits, names)
    assert names["sampler"].codes["query"].num_seen == 2000
    exec(near, names)
    assert torch.cat(list(names["batches"])).sort().values.tolist() == list(range(2000))
