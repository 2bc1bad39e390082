"""Lightning's trainers, of both packages, with the callback."""

import importlib
import logging

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")

import lightning.pytorch as pl

from lookalike import LSHBatchSampler
from lookalike.data.synthetic import clustered_embeddings
from lookalike.integrations.lightning import HardNegatives

pytestmark = [  # Lightning's advice
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated"),
]

SAMPLES, BATCHES = 120, 10
METRICS = "lightning_logs/version_0/metrics.csv"
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class StoppedError(Exception):
    pass


def make_module(package, *, paired=False, stop_at=None, answer=True, embeds=False):
    base = importlib.import_module(package).LightningModule

    class Module(base):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.dropout = torch.nn.Linear(16, 16), torch.nn.Dropout(0.1 if embeds else 0.0)
            self.steps, self.embedded = [], []

        def embed(self, batch):
            ids, x = batch
            z = torch.nn.functional.normalize(self.layer(self.dropout(x)), dim=1)
            return {"ids": ids, **({"query": z, "reference": z} if paired else {"embeddings": z})}

        def training_step(self, batch, _):
            if len(self.steps) == stop_at:
                raise StoppedError
            self.steps.append(batch[0].tolist())
            found = self.embed(batch)
            query = found["query"] if paired else found["embeddings"][::2]
            reference = found["reference"] if paired else found["embeddings"][1::2]
            loss = torch.nn.functional.cross_entropy(query @ reference.T, torch.arange(len(query)))
            return {"loss": loss, **found} if answer else loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Embedding(Module):
        def embedding_step(self, batch, batch_idx):
            assert not torch.is_grad_enabled()
            assert not self.dropout.training
            assert batch_idx == len(self.embedded)
            self.embedded.append(batch[0].tolist())
            return self.embed(batch)

    return Embedding() if embeds else Module()


def fit(
    package, folder, module, *, sampler=None, workers=0, checkpoint=None, callback=None, saving=(), x=None, **options
):
    torch.set_num_threads(1)
    x = clustered_embeddings(SAMPLES, dim=16)[0] if x is None else x
    sampler = sampler or LSHBatchSampler(torch.arange(SAMPLES) // 2, SAMPLES // BATCHES, bits=64)
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES), x), batch_sampler=sampler, num_workers=workers)
    options = {"max_epochs": 3, "use_distributed_sampler": False} | options
    trainer = importlib.import_module(package).Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=[callback or HardNegatives(sampler), *saving],
        **QUIET | options,
    )
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return sampler


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("paired", [False, True])
def test_batches_are_observed(package, paired, tmp_path):
    pytest.importorskip(package)
    sampler = LSHBatchSampler(None, 12, pairs=SAMPLES, bits=64) if paired else None
    module = make_module(package, paired=paired)
    sampler = fit(package, tmp_path, module, sampler=sampler, enable_checkpointing=False)
    epochs = [
        [i for step in module.steps[start : start + BATCHES] for i in step] for start in range(0, 3 * BATCHES, BATCHES)
    ]
    assert [sorted(epoch) for epoch in epochs] == [list(range(SAMPLES))] * 3
    assert epochs[1] != epochs[2]
    assert sampler.epoch == 2
    assert all(stream.table.num_seen == SAMPLES for stream in sampler.memory.streams.values())


def test_mining_is_logged_where_the_trainer_logs(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(tmp_path)
    module = make_module("lightning.pytorch")
    sampler = LSHBatchSampler(torch.arange(SAMPLES) // 2, SAMPLES // BATCHES, bits=64)
    options = {"enable_checkpointing": False, "log_every_n_steps": 1, "logger": logger}
    fit("lightning.pytorch", tmp_path, module, sampler=sampler, **options)
    names, *rows = (line.split(",") for line in (tmp_path / METRICS).read_text().splitlines())
    logged = [{name: float(value) for name, value in zip(names, row, strict=True) if value} for row in rows]
    assert [row["epoch"] for row in logged] == [0, 1, 2]
    assert [row["mining/bits"] for row in logged] == [64] * 3
    assert all(0 < row["mining/share"] < 1 and row["mining/seconds"] > 0 for row in logged)
    assert sum(row["mining/seconds"] for row in logged) == pytest.approx(sampler.mining_time.seconds, rel=1e-3)
    assert all(-1 < row["mining/hardest_negative"] < 1 for row in logged)


@pytest.mark.parametrize(
    ("package", "every", "stop", "workers", "limit"),
    [
        ("pytorch_lightning", 4, 14, 0, 10),
        ("lightning.pytorch", 4, 14, 2, 10),  # workers have fetched ahead
        ("lightning.pytorch", 10, 12, 0, 10),  # saved with the last batch of an epoch
        ("lightning.pytorch", 4, 9, 0, 8),  # which comes early
    ],
)
def test_a_stopped_run_goes_on(package, every, stop, workers, limit, tmp_path):
    pytest.importorskip(package)
    saving = importlib.import_module(f"{package}.callbacks").ModelCheckpoint

    def save():
        return [saving(tmp_path, every_n_train_steps=every, save_top_k=-1, filename="{step}")]

    whole = make_module(package)
    fit(package, tmp_path, whole, limit_train_batches=limit, enable_checkpointing=False)
    stopped = make_module(package, stop_at=stop)
    with pytest.raises(StoppedError):
        fit(package, tmp_path, stopped, limit_train_batches=limit, workers=workers, saving=save())
    saved = stop // every * every
    resumed = make_module(package)
    path = str(tmp_path / f"step={saved}.ckpt")
    fit(package, tmp_path, resumed, limit_train_batches=limit, workers=workers, checkpoint=path, saving=save())
    assert resumed.steps == whole.steps[saved:]
    assert torch.equal(whole.layer.weight, resumed.layer.weight)


class SavesAgain(pl.Callback):
    """Saves whenever training or an epoch begins, before any step of it."""

    def __init__(self, folder):
        self.folder, self.paths = folder, []

    def on_train_start(self, trainer, _):
        self.save(trainer)

    def on_train_epoch_end(self, trainer, _):
        self.save(trainer)

    def save(self, trainer):
        self.paths.append(self.folder / f"{len(self.paths)}.ckpt")
        trainer.save_checkpoint(self.paths[-1])


@pytest.mark.parametrize("limit", [BATCHES, BATCHES - 3])
def test_a_finished_epoch_survives_any_number_of_checkpoints(limit, tmp_path):
    def run(name, *, stop_at=None, checkpoint=None):
        module, saves = make_module("lightning.pytorch", stop_at=stop_at), SavesAgain(tmp_path / name)
        options = {"limit_train_batches": limit, "enable_checkpointing": False, "checkpoint": checkpoint}
        try:
            fit("lightning.pytorch", tmp_path, module, saving=[saves], **options)
        except StoppedError:
            assert len(module.steps) == stop_at
        return module.steps, saves.paths

    whole, _ = run("whole")
    _, (*_, path) = run("first", stop_at=limit)  # with the first step of the second epoch
    for attempt in range(2):  # stopped again before any step was taken
        _, (path,) = run(f"again{attempt}", stop_at=0, checkpoint=path)
    assert run("last", checkpoint=path)[0] == whole[limit:]


def test_a_limit_on_batches_still_ends_the_epoch(tmp_path):
    module = make_module("lightning.pytorch")
    sampler = fit("lightning.pytorch", tmp_path, module, limit_train_batches=3, enable_checkpointing=False)
    assert sampler.epoch == 2
    assert len({tuple(step) for step in module.steps}) == 9


def test_nothing_observed_is_said(tmp_path, caplog):
    module = make_module("lightning.pytorch", answer=False)
    with caplog.at_level(logging.WARNING, "lookalike"):
        fit("lightning.pytorch", tmp_path, module, max_epochs=1, enable_checkpointing=False)
    assert (
        "no negatives are mined from it: let training_step return {'loss': ..., 'ids': ..., 'embeddings': ...}"
        in caplog.text
    )


def test_a_trainer_that_would_replace_the_sampler_is_refused(tmp_path):
    callback = HardNegatives(LSHBatchSampler(torch.arange(20) // 2, 4, bits=64))
    with pytest.raises(ValueError, match=r"Trainer\(use_distributed_sampler=False\)"):
        callback.on_fit_start(pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", **QUIET), None)
    callback.on_fit_start(
        pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False, **QUIET), None
    )
    with pytest.raises(ValueError, match="no training loader has this sampler"):
        fit("lightning.pytorch", tmp_path, make_module("lightning.pytorch"), callback=callback)


def twins():
    """Samples 2 i and 2 i + 1 are almost the same, so that any module finds a sample's positive."""
    x, _ = clustered_embeddings(SAMPLES // 2, dim=16)
    return x.repeat_interleave(2, dim=0) + 0.01 * torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(0))


def labelled(**options):
    return LSHBatchSampler(torch.arange(SAMPLES) // 2, SAMPLES // BATCHES, bits=64, **options)


@pytest.mark.parametrize(
    ("package", "paired", "workers"),
    [("lightning.pytorch", False, 0), ("lightning.pytorch", True, 2), ("pytorch_lightning", False, 0)],
)
def test_a_warm_start_embeds_the_training_set(package, paired, workers, tmp_path, caplog):
    pytest.importorskip(package)
    x = twins()
    sampler = LSHBatchSampler(None, SAMPLES // BATCHES, pairs=SAMPLES, bits=64) if paired else labelled()
    module = make_module(package, paired=paired, embeds=True)
    with caplog.at_level(logging.INFO, "lookalike"):
        fit(package, tmp_path, module, sampler=sampler, workers=workers, x=x, max_epochs=1, enable_checkpointing=False)
    assert sorted(i for ids in module.embedded for i in ids) == list(range(SAMPLES))
    assert sampler.warm_start.is_used is not None
    assert sampler.warm_start.readiness.is_ready
    assert "warm start: embedded 120 samples in 0." in caplog.text
    plain = make_module(package, paired=paired)
    fit(
        package, tmp_path, plain, sampler=None if not paired else LSHBatchSampler(None, 12, pairs=SAMPLES, bits=64), x=x
    )
    assert not plain.embedded  # without the method there is no warm start
    assert module.steps[0] != plain.steps[0]


def test_a_module_that_is_not_ready_trains_as_if_nothing_had_happened(tmp_path):
    def run(warm_start, **options):
        torch.manual_seed(7)
        module = make_module("lightning.pytorch", embeds=True)
        sampler = labelled(warm_start=warm_start)
        noise = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(3))
        fit("lightning.pytorch", tmp_path, module, sampler=sampler, x=noise, enable_checkpointing=False, **options)
        return module, sampler

    (plain, _), (module, sampler) = (run(warm_start, max_epochs=1) for warm_start in (False, "auto"))
    assert not plain.embedded
    assert sum(len(ids) for ids in module.embedded) == SAMPLES
    assert sampler.warm_start.is_used is False
    assert plain.steps == module.steps
    assert torch.equal(plain.layer.weight, module.layer.weight)  # dropout, too, drew the same numbers
    assert not run(True, fast_dev_run=True)[0].embedded


@pytest.mark.parametrize(("every", "stop", "workers"), [(3, 5, 0), (3, 5, 2), (10, 12, 0)])
def test_a_run_resumes_without_embedding_again(every, stop, workers, tmp_path):
    def run(*, stop_at=None, checkpoint=None, saves=False):
        torch.manual_seed(7)
        module = make_module("lightning.pytorch", embeds=True, stop_at=stop_at)
        module.dropout.p = 0.0  # Lightning does not save random states
        saving = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=every, save_top_k=-1, filename="{step}")
        options = {"saving": [saving]} if saves else {"enable_checkpointing": False}
        options |= {"x": twins(), "sampler": labelled(), "workers": workers, "max_epochs": 2}
        if stop_at is None:
            fit("lightning.pytorch", tmp_path, module, checkpoint=checkpoint, **options)
        else:
            with pytest.raises(StoppedError):
                fit("lightning.pytorch", tmp_path, module, **options)
        return module

    whole = run()
    run(stop_at=stop, saves=True)
    saved = stop // every * every
    resumed = run(checkpoint=str(tmp_path / f"step={saved}.ckpt"), saves=True)
    assert whole.embedded
    assert not resumed.embedded
    assert resumed.steps == whole.steps[saved:]
    assert torch.equal(whole.layer.weight, resumed.layer.weight)


def test_a_trainer_may_fit_again_after_an_error(tmp_path):
    sampler, module = labelled(warm_start=True), make_module("lightning.pytorch", embeds=True)
    data, options = TensorDataset(torch.arange(SAMPLES), twins()), {"use_distributed_sampler": False, **QUIET}
    callback = HardNegatives(sampler)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=[callback], default_root_dir=tmp_path, **options)
    with pytest.raises(ValueError, match="no training loader has this sampler"):
        trainer.fit(module, DataLoader(data, batch_size=12))
    module.embedded.clear()
    for limit in (1, 2):
        trainer.fit_loop.max_epochs = limit
        trainer.fit(module, DataLoader(data, batch_sampler=sampler))
    assert sorted(i for ids in module.embedded for i in ids) == list(range(SAMPLES))  # once
    assert len(module.steps) == 2 * BATCHES


def test_a_warm_start_that_was_asked_for_needs_the_method(tmp_path):
    with pytest.raises(ValueError, match=r"Module has no method embedding_step\(batch, batch_idx\)"):
        fit("lightning.pytorch", tmp_path, make_module("lightning.pytorch"), sampler=labelled(warm_start=True))
