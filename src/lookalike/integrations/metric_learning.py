"""Hard negatives inside pytorch-metric-learning: mined batches for its trainers, and mining in bits for its losses."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lookalike.hashing import CENTER, SignHasher
from lookalike.integrations.meter import MiningMeter
from lookalike.integrations.warm_start import embedding_batch, observe_all, own_batches
from lookalike.search import hamming_topk
from lookalike.utils.checks import checked_bits, checked_positive
from lookalike.utils.imports import needed_for
from lookalike.utils.lengthless import refuse_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.samplers import EpochBatchSampler

with needed_for("mining for pytorch-metric-learning", "metric-learning"):
    from pytorch_metric_learning.losses import CrossBatchMemory
    from pytorch_metric_learning.miners import BaseMiner

__all__ = ["HammingMemory", "HammingMiner", "HardNegatives"]

NEGATIVES = 32  # per embedding: unlike a sampler's neighbours, all of them enter the loss
Pairs = tuple[Tensor, Tensor, Tensor, Tensor]  # anchors and positives; anchors and negatives


class HardNegatives:
    """Batches of mutual hard negatives for a trainer, from the embeddings of its own steps.

    For `MetricLossOnly`, `TrainWithClassifier` and other trainers that have one "metric_loss". Unless the sampler's
    `warm_start` is False, the data set is embedded once when training begins.

    Args:
        sampler: For labelled data: `LSHBatchSampler(labels, batch_size, ...)`.

    Examples:
        `HardNegatives(sampler).attach(trainer)`, then `trainer.train(num_epochs=...)`.
    """

    def __init__(self, sampler: EpochBatchSampler) -> None:
        if sampler.paired:
            raise ValueError("trainers of pytorch-metric-learning take labelled samples: make the sampler from labels.")
        self.sampler = sampler
        self._ids: Tensor | None = None  # of the batch that is being trained on
        self._meter = MiningMeter()

    def attach(self, trainer: Any) -> Self:
        """Give the trainer the sampler and listen to its loss; call it once, before `trainer.train`.

        Raises:
            ValueError: The trainer has another sampler, a miner of subsets or no "metric_loss".
            TypeError: Its data set is a stream.
        """
        if trainer.sampler not in (None, self.sampler):
            raise ValueError("the trainer has another sampler; leave its argument out.")
        if "subset_batch_miner" in trainer.mining_funcs:
            raise ValueError("a subset_batch_miner would take composed batches apart; leave it out.")
        if "metric_loss" not in trainer.loss_funcs:
            raise ValueError(f'the trainer has the losses {", ".join(trainer.loss_funcs)}, but no "metric_loss".')
        refuse_stream("the trainer's dataset", trainer.dataset, "HardNegatives needs samples by number")
        if len(trainer.dataset) != self.sampler.num_samples:
            raise ValueError(
                f"the sampler was made for {self.sampler.num_samples} samples, the data set has {len(trainer.dataset)}."
            )
        trainer.dataset, trainer.sampler = _Numbered(trainer.dataset), self.sampler
        trainer.data_and_label_getter = self._taking_ids(trainer.data_and_label_getter)
        trainer.loss_funcs["metric_loss"].register_forward_pre_hook(self._observe)
        trainer.train = update_wrapper(partial(self._train, trainer, trainer.train), trainer.train)
        return self

    def metrics(self) -> dict[str, float]:
        """Return what mining cost and how hard batches were since the last call, by name, to log it.

        Call it in the trainer's `end_of_epoch_hook`.
        """
        return self._meter.read([self.sampler])

    def _train(self, trainer: Any, train: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._meter.read([self.sampler])  # begins the first epoch, with the warm start
        if self.sampler.wants_warm_start:
            self._warm_start(trainer)
        return train(*arguments, **options)

    def _warm_start(self, trainer: Any) -> None:
        order = torch.randperm(self.sampler.num_samples, generator=torch.Generator().manual_seed(0)).tolist()
        loader: DataLoader[Any] = DataLoader(
            trainer.dataset,
            batch_sampler=own_batches(order, embedding_batch(self.sampler.batch_size)),
            collate_fn=trainer.collate_fn,
            num_workers=trainer.dataloader_num_workers,
        )

        def embed(batch: Any) -> dict[str, Any]:
            data, _ = trainer.data_and_label_getter(batch)
            ids, self._ids = self._ids, None
            return {"ids": ids, "embeddings": trainer.compute_embeddings(data)}

        observe_all(self.sampler, loader, embed, trainer.models.values())

    def _taking_ids(self, getter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def data_and_labels(batch: Any) -> Any:
            self._ids, given = batch
            return getter(given)

        return data_and_labels

    def _observe(self, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._ids is not None:
            self.sampler.observe(self._ids, arguments[0].detach())
            self._meter.note(arguments[0][::2], arguments[0][1::2])  # anchor, positive, anchor, positive, ...
            self._ids = None


class _Numbered(Dataset[Any]):
    """Samples with their number, which travels with them through workers that fetch ahead."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> tuple[int, Any]:
        return i, self.dataset[i]


class HammingMiner(BaseMiner):  # type: ignore[misc]
    """Finds the nearest references of another label by Hamming distance, and all positives, for each embedding.

    Returns pairs `(a1, p, a2, n)`, as other miners do; nearest negatives first, ties by the smaller index.

    Args:
        k: Negatives per embedding, at most.
        bits: Length of the codes.
        center: Fraction of the references' mean to subtract before hashing.
        seed: Decides the rotation.

    Examples:
        >>> import torch
        >>> miner = HammingMiner(k=1, bits=64)
        >>> a1, p, a2, n = miner(torch.eye(4)[[0, 0, 1, 1]] + 0.1, torch.tensor([0, 0, 1, 1]))
        >>> list(zip(a1.tolist(), p.tolist())), a2.tolist()
        ([(0, 1), (1, 0), (2, 3), (3, 2)], [0, 1, 2, 3])
    """

    def __init__(
        self, k: int = NEGATIVES, bits: int = 512, *, center: float = CENTER, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.k, self.bits, self.center, self.seed = checked_positive("k", k), bits, center, seed
        self._hasher: SignHasher | None = None

    def mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> Pairs:
        """Implement `BaseMiner.mine`."""
        if self._hasher is None or self._hasher.dim != embeddings.shape[1]:
            self._hasher = SignHasher(embeddings.shape[1], self.bits, seed=self.seed, center=self.center)
        hasher = self._hasher.to(ref_emb.device)
        hasher.set_mean(ref_emb.mean(0, dtype=torch.float64), len(ref_emb))
        return _pairs(hasher.encode(embeddings), labels, hasher.encode(ref_emb), ref_labels, self.k)


class HammingMemory(CrossBatchMemory):  # type: ignore[misc]
    """A `CrossBatchMemory` with the k nearest negatives of each embedding, found in the bits of the memory.

    It gives what `CrossBatchMemory(loss, ..., miner=HammingMiner(k, bits))` gives, for memories of many batches: it
    hashes an embedding once, when it enters, and the loss compares embeddings with what was found, not with the whole
    memory. Codes are centred by the mean of the memory, and hashed again each time the memory has been refilled.

    Args:
        loss: One that pytorch-metric-learning supports for `CrossBatchMemory`.
        embedding_size: Dimension of the embeddings.
        memory_size: How many embeddings to remember.
        k: Negatives per embedding, at most.
        bits: Length of the codes.
        center: Fraction of the memory's mean to subtract before hashing.
        seed: Decides the rotation.
    """

    code_memory: Tensor  # uint8 [memory_size, bits / 8]

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        *,
        k: int = NEGATIVES,
        bits: int = 512,
        center: float = CENTER,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.k, self.bits = checked_positive("k", k), checked_bits(bits)
        super().__init__(loss, embedding_size, memory_size, miner=self._mine, **kwargs)
        self.loss = _OfReferences(loss)
        self.hasher = SignHasher(embedding_size, bits, seed=seed, center=center)

    def reset_queue(self) -> None:
        """Forget everything."""
        super().reset_queue()
        self.register_buffer("code_memory", torch.zeros(self.memory_size, self.bits // 8, dtype=torch.uint8))
        self._num_until_centred = 0  # embeddings that may enter before the codes are centred again

    def add_to_memory(self, embeddings: Tensor, labels: Tensor, batch_size: int) -> None:
        """Add embeddings in place of the oldest."""
        super().add_to_memory(embeddings, labels, batch_size)
        self.code_memory = self.code_memory.to(embeddings.device)
        self._num_until_centred -= batch_size
        if self._num_until_centred > 0:
            self.code_memory[self.curr_batch_idx] = self.hasher.encode(embeddings)
            return
        self._num_until_centred = self.memory_size if self.has_been_filled else self.queue_idx
        filled = self.embedding_memory[: self.memory_size if self.has_been_filled else self.queue_idx]
        self.hasher.to(embeddings.device).set_mean(filled.mean(0, dtype=torch.float64), len(filled))
        self.code_memory[: len(filled)] = self.hasher.encode(filled)

    def _mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> Pairs:
        codes = self.hasher.encode(embeddings)
        return _pairs(codes, labels, self.code_memory[: len(ref_emb)], ref_labels, self.k)


class _OfReferences(nn.Module):
    """Passes a loss only the references that its pairs or triplets name."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Tensor, labels: Tensor, found: Any, ref_emb: Tensor, ref_labels: Tensor) -> Any:
        """Compute the loss."""
        positives, negatives = found[1], found[-1]
        used, places = torch.unique(torch.cat([positives, negatives]), return_inverse=True)
        if len(used) == 0:
            return self.loss(embeddings, labels, found, ref_emb, ref_labels)
        moved = list(found)
        moved[1], moved[-1] = places[: len(positives)], places[len(positives) :]
        return self.loss(embeddings, labels, tuple(moved), ref_emb[used], ref_labels[used])


def _pairs(codes: Tensor, labels: Tensor, ref_codes: Tensor, ref_labels: Tensor, k: int) -> Pairs:
    matches = labels[:, None] == ref_labels
    if ref_labels is labels:  # the batch itself
        matches.fill_diagonal_(False)
    found = hamming_topk(codes, ref_codes, k, query_labels=labels, reference_labels=ref_labels).indices
    anchors, places = (found >= 0).nonzero(as_tuple=True)
    with_positives, positives = matches.nonzero(as_tuple=True)
    return with_positives, positives, anchors, found[anchors, places]
