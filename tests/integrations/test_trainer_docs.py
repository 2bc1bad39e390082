"""The code of the pages on trainers runs as it stands."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import lookalike

PAGES = Path(__file__).parents[2] / "docs" / "trainers"


def code_of(page):
    return re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), flags=re.DOTALL)


class Images(Dataset):
    """Vectors of 256 samples, and their ids or labels."""

    def __init__(self, second):
        self.second = second

    def __len__(self):
        return 256

    def __getitem__(self, i):
        return torch.randn(32), self.second[i]


def test_sentence_transformers(model_folder, tmp_path):
    pytest.importorskip("datasets")
    from tests.integrations.texts import losses, make_trainer, pairs

    (code,) = code_of("sentence_transformers")
    other = make_trainer(model_folder, tmp_path, pairs(48), losses.MultipleNegativesRankingLoss)
    names = {"SentenceTransformerTrainer": type(other), "model": other.model, "args": other.args}
    exec(code, {**names, "train_dataset": other.train_dataset, "loss": other.loss}, kept := {})
    assert kept["trainer"].state.global_step == 8
    assert kept["trainer"].train_dataset.number_column == "label"


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated")
@pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
def test_lightning(tmp_path, monkeypatch):
    pl = pytest.importorskip("lightning.pytorch")
    monkeypatch.chdir(tmp_path)
    fitting, step = code_of("lightning")
    exec(step, {}, made := {})

    class Module(pl.LightningModule):
        embedding_step, training_step = made["embedding_step"], made["training_step"]

        def __init__(self):
            super().__init__()
            self.encoder, self.criterion = torch.nn.Linear(32, 8), lookalike.InfoNCE()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    names = {"lookalike": lookalike, "DataLoader": DataLoader, "Trainer": pl.Trainer, "module": Module()}
    names |= {"labels": torch.arange(256) // 2, "dataset": Images(range(256))}
    exec(fitting, names)
    assert names["sampler"].epoch == 1
    assert names["sampler"].codes["embeddings"].num_seen == 256


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning")
def test_metric_learning():
    pml = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, trainers

    assert pml
    training, logging, mining, remembering = code_of("metric_learning")
    trunk = torch.nn.Linear(32, 32)
    names = {"lookalike": lookalike, "MetricLossOnly": trainers.MetricLossOnly, "models": {"trunk": trunk}}
    names |= {"optimizers": {"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.1)}}
    names |= {"loss": losses.NTXentLoss(), "labels": torch.arange(256) // 2}
    names["dataset"] = Images(names["labels"].tolist())
    exec(training, names)
    names["trainer"].dataloader_iter = None  # ends its workers now, not whenever garbage is collected
    assert names["sampler"].epoch == 1
    assert names["sampler"].codes["embeddings"].num_seen == 256
    noted = []
    names["writer"] = SimpleNamespace(add_scalar=lambda *row: noted.append(row))
    exec(logging, names)
    names["trainer"].end_of_epoch_hook(names["trainer"])
    assert ("mining/bits", 512, 2) in noted
    names |= {"embeddings": torch.randn(20, 32), "labels": torch.arange(20) // 2}
    exec(mining, names)
    mined = float(names["value"])
    exec(remembering, names)
    assert mined > 0
    assert float(names["value"]) > 0
