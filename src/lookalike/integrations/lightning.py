"""Hard negatives inside Lightning's trainer: a callback that passes embeddings to the sampler."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from lookalike.integrations.meter import MiningMeter
from lookalike.integrations.warm_start import embedding_batch, observe_all, own_batches
from lookalike.utils.imports import needed_for
from lookalike.utils.lengthless import refuse_stream

with needed_for("training with Lightning", "lightning"):
    try:
        from lightning.pytorch import Callback
    except ImportError:  # the same under its older name
        from pytorch_lightning import Callback

if TYPE_CHECKING:
    from lookalike.samplers import EpochBatchSampler

__all__ = ["HardNegatives"]

logger = logging.getLogger("lookalike")

TOWERS = ("embeddings", "query", "reference")
ADVICE = (
    "let training_step return {'loss': ..., 'ids': ..., 'embeddings': ...}, or 'query' and 'reference' in place of "
    "'embeddings' for a data set of pairs"
)
STEP = "embedding_step"  # the module's method that embeds a batch


class HardNegatives(Callback):  # type: ignore[misc]
    """Observes what `training_step` returns, sets the sampler's epoch and keeps its state in every checkpoint.

    `training_step` returns a dictionary: the loss, `ids` as the sampler yielded them, and `embeddings`, or `query` and
    `reference`. Lightning detaches all but the loss. Works with the packages `lightning` and `pytorch_lightning`.

    For a warm start, give the module a method `embedding_step(batch, batch_idx)` that returns the same dictionary
    without the loss. Before the first epoch, unless the sampler's `warm_start` is False, the callback passes the
    training set through it once, in arbitrary batches, without gradients and in evaluation mode.

    Args:
        sampler: The `batch_sampler` of the training loader.

    Examples:
        `Trainer(callbacks=[HardNegatives(sampler)], use_distributed_sampler=False)`
    """

    def __init__(self, sampler: EpochBatchSampler) -> None:
        self.sampler = sampler
        self._num_observed = 0  # batches of this epoch
        self._epoch_is_over = False
        self._meter = MiningMeter()
        self._strategy: Any = None  # the trainer's, whose loaders pass through here

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse to train where Lightning would replace the sampler with its own; prepare the warm start."""
        connector = getattr(trainer, "_accelerator_connector", None)
        if trainer.world_size > 1 and getattr(connector, "use_distributed_sampler", False):
            raise ValueError(
                "on several devices Lightning replaces the batch sampler, and nothing would be mined; "
                "use Trainer(use_distributed_sampler=False): lookalike's samplers deal the batches themselves."
            )

        if self.sampler.warm_start.mode is True and self.sampler.wants_warm_start and not hasattr(pl_module, STEP):
            raise ValueError(
                f"the sampler has warm_start=True, but {type(pl_module).__name__} has no method {STEP}(batch, "
                f"batch_idx) to embed the training set with; {ADVICE.replace('training_step', STEP)}, without the loss."
            )
        self._meter.read([self.sampler])  # begins the first epoch, with the warm start
        # Lightning begins to iterate over the loader before its hooks see it, but passes it through the strategy first.
        if self._strategy is not trainer.strategy:  # once, even if it fits several times
            self._strategy, process = trainer.strategy, trainer.strategy.process_dataloader
            trainer.strategy.process_dataloader = partial(self._process_dataloader, trainer, process)

    def _process_dataloader(self, trainer: Any, process: Any, loader: Any) -> Any:
        module, is_ours = trainer.lightning_module, getattr(loader, "batch_sampler", None) is self.sampler
        if is_ours and self.sampler.wants_warm_start and hasattr(module, STEP) and not trainer.fast_dev_run:
            self._warm_start(trainer, module, loader)
        return process(loader)

    def _warm_start(self, trainer: Any, pl_module: Any, loader: Any) -> None:
        order = torch.randperm(self.sampler.num_samples, generator=torch.Generator().manual_seed(0)).tolist()
        batches = own_batches(order, embedding_batch(self.sampler.batch_size))
        reading = DataLoader(
            loader.dataset,
            batch_sampler=batches,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
        numbers = iter(range(len(batches)))

        def embed(batch: Any) -> dict[str, Any]:
            batch = trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch), dataloader_idx=0)
            with trainer.precision_plugin.forward_context():
                found = getattr(pl_module, STEP)(batch, next(numbers))
            return {name: found[name] for name in ("ids", *TOWERS) if name in found}

        observe_all(self.sampler, reading, embed, [pl_module], shown=trainer.progress_bar_callback is not None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """Refuse to train if no loader has the sampler."""
        combined = getattr(trainer.fit_loop, "_combined_loader", None)  # all loaders, in whatever form they were given
        loaders = [] if combined is None else combined.flattened
        if loaders and not any(getattr(loader, "batch_sampler", None) is self.sampler for loader in loaders):
            for loader in loaders:
                refuse_stream("the training loader's dataset", getattr(loader, "dataset", None), "a sampler needs ids")
            raise ValueError(
                "no training loader has this sampler; make it with DataLoader(..., batch_sampler=sampler)."
            )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """Begin the next epoch, even if `limit_train_batches` cut the last one short."""
        self._num_observed, self._epoch_is_over = 0, False
        self.sampler.set_epoch(trainer.current_epoch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 - Lightning's signature
        """Observe the batch."""
        self._epoch_is_over = bool(trainer.is_last_batch)
        if not isinstance(outputs, dict) or "ids" not in outputs:
            return
        towers = {name: outputs[name] for name in TOWERS if name in outputs}
        self.sampler.observe(outputs["ids"], **towers)
        if self.sampler.paired:
            self._meter.note(towers["query"], towers["reference"])
        else:
            self._meter.note(towers["embeddings"][::2], towers["embeddings"][1::2])
        self._num_observed += 1

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """Log what mining cost and brought to the trainer's loggers; warn if nothing was observed."""
        pl_module.log_dict(self._meter.read([self.sampler]), rank_zero_only=True)
        if not self._num_observed:
            logger.warning("nothing was observed in a whole epoch, so no negatives are mined from it: %s.", ADVICE)

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state; `limit_train_batches` may have ended its epoch early.

        Lightning asks every rank and writes what rank 0 answers.
        """
        self.sampler.synchronize()
        return self.sampler.state_dict(len(self.sampler) if self._epoch_is_over else None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the sampler's state; Lightning does so before it asks the loader for the first batch."""
        self.sampler.load_state_dict(state_dict)
