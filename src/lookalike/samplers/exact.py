"""Hard negatives by exact cosine similarity, from floats: the paper's baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from lookalike.analysis.measures import NEIGHBOURS
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.float_memory import FloatMemory
from lookalike.samplers.pairing import make_pairing
from lookalike.utils.tensors import check_embeddings, check_one_dimension, checked_towers

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.samplers.options import MiningOptions

MODES = ("full", "incremental")


class PreEpochBatchSampler(EpochBatchSampler):
    """Batches of mutual hard negatives by exact cosine: the paper's Pre-Epoch Full and Pre-Epoch Incremental.

    *incremental*: call `observe` with every batch; it keeps the floats, dim * 4 bytes per sample. *full*: before each
    epoch, embed the whole training set with the current weights and pass it to `refresh`.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Ids that a batch lists: two sample ids per pair; with `pairs`, one pair id per pair.
        mode: "full" or "incremental".
        pairs: Number of pairs of a paired data set.
        self_pairs: Pair a label's only sample with itself instead of leaving it out.
        same: Pairs of samples that a person marked as the same: a file, as `read_same` reads it, or ids `[m, 2]`. The
            two count as one label, so they never meet as negatives. With `pairs`, ids are those of pairs.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        seed: Decides the order; the same on all ranks.
        options: `hardness`, `neighbourhood`, `method`, `filters`, `drop_last`, `shard`, `rearrange`, as in
            `EpochBatchSampler`.

    Examples:
        >>> import torch
        >>> sampler = PreEpochBatchSampler(torch.arange(40) // 2, batch_size=10, mode="full")
        >>> sampler.refresh(torch.randn(40, 8))
        >>> sorted(i for ids in sampler for i in ids) == list(range(40))
        True
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        mode: str,
        pairs: int | None = None,
        self_pairs: bool = False,
        same: Any = None,
        k: int = NEIGHBOURS,
        seed: int = 0,
        **options: Unpack[MiningOptions],
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}.")
        pairing = make_pairing(labels, pairs, self_pairs=self_pairs, same=same)
        self._floats = FloatMemory(pairing, seed=seed, observes=mode == "incremental")
        super().__init__(pairing, batch_size, memory=self._floats, k=k, seed=seed, **options)
        self.mode = mode

    def refresh(
        self, embeddings: Tensor | None = None, *, query: Tensor | None = None, reference: Tensor | None = None
    ) -> None:
        """Replace all embeddings with those of the whole training set, for the epoch that begins next."""
        given = {"embeddings": embeddings, "query": query, "reference": reference}
        towers = checked_towers(given, self.pairing.towers, method="refresh")
        for name, x in towers.items():
            check_embeddings(name, x, self.num_samples)
        check_one_dimension(towers)
        self._floats.replace_all(towers)
