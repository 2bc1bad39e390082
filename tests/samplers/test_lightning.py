"""Lightning's trainer takes the sampler as it is."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lookalike import LSHBatchSampler
from lookalike.data.synthetic import clustered_embeddings

lightning = pytest.importorskip("lightning.pytorch")


class Module(lightning.LightningModule):
    def __init__(self, sampler):
        super().__init__()
        self.layer = torch.nn.Linear(16, 8)
        self.batch_sampler = sampler
        self.seen = [[]]

    def training_step(self, batch, _):
        ids, x = batch
        z = torch.nn.functional.normalize(self.layer(x), dim=1)
        self.batch_sampler.observe(ids, z)
        self.seen[-1].extend(ids.tolist())
        return torch.nn.functional.cross_entropy(z[::2] @ z[1::2].T, torch.arange(len(z) // 2, device=z.device))

    def on_train_epoch_end(self):
        self.seen.append([])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers
def test_lightning_trainer(tmp_path):
    x, _ = clustered_embeddings(120, dim=16)
    sampler = LSHBatchSampler(torch.arange(120) // 2, 12, bits=64)
    module = Module(sampler)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        use_distributed_sampler=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(torch.arange(120), x), batch_sampler=sampler))
    assert [sorted(seen) for seen in module.seen[:3]] == [list(range(120))] * 3
    assert module.seen[0] != module.seen[1]
    assert sampler.epoch == 2
    assert sampler.codes["embeddings"].num_seen == 120
