"""Hard negatives by exact cosine similarity, from floats: what the paper compares with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.samplers import states
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.search.cosine import cosine_topk
from lookalike.utils import ranks
from lookalike.utils.checks import checked_positive
from lookalike.utils.tensors import as_tensor, check_embeddings, check_one_dimension

MODES = ("full", "incremental")
PAIRING_BITS = 512  # positives are chosen by codes here too, made for the occasion


class PreEpochBatchSampler(EpochBatchSampler):
    """Batches of mutual hard negatives by exact cosine, as the paper's Pre-Epoch Full and Pre-Epoch Incremental.

    *incremental*: call `observe` with every batch; the floats are kept, dim * 4 bytes per sample. *full*: before each
    epoch, embed the whole training set with the current weights and hand it over with `refresh`.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Sample ids per batch, two per pair; with `pairs`, pair ids per batch.
        mode: "full" or "incremental".
        pairs: Number of pairs of a paired data set.
        k: Hard negatives per sample that batches are composed from, at most.
        hardness: As in `LSHBatchSampler`, and so are the following.
        clusters: How many neighbourhoods a batch is made of.
        method: "growth" or "sample4geo".
        exclude: As in `LSHBatchSampler`.
        seed: Decides the order; the same on all ranks.
        drop_last: Leave out the last batch if it is short.
        self_pairs: Pair a label's only sample with itself instead of leaving it out.
        shard: Deal batches to the ranks of `torch.distributed`.

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
        k: int = 128,
        hardness: float = 1.0,
        clusters: int = 1,
        method: str = "growth",
        exclude: tuple[Any, Any] | None = None,
        seed: int = 0,
        drop_last: bool = False,
        self_pairs: bool = False,
        shard: bool = True,
    ) -> None:
        super().__init__(
            labels,
            batch_size,
            pairs=pairs,
            hardness=hardness,
            clusters=clusters,
            method=method,
            seed=seed,
            exclude=exclude,
            drop_last=drop_last,
            self_pairs=self_pairs,
            shard=shard,
        )
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}.")
        self.mode, self.k = mode, checked_positive("k", k)
        self._towers = ("query", "reference") if self.paired else ("embeddings",)
        self._floats: dict[str, Tensor] = {}  # float32 [n, dim] where the embeddings came from, NaN where there is none
        self._fresh = torch.zeros(self.num_samples, dtype=torch.bool)

    def refresh(
        self, embeddings: Tensor | None = None, *, query: Tensor | None = None, reference: Tensor | None = None
    ) -> None:
        """Hand over the embeddings of the whole training set, for the epoch that begins next."""
        towers = {"query": query, "reference": reference} if self.paired else {"embeddings": embeddings}
        for name, x in towers.items():
            if x is None:
                raise ValueError(f"refresh() needs {name}.")
            check_embeddings(name, as_tensor(x), self.num_samples)
        check_one_dimension(towers)
        self._floats = {name: as_tensor(x).detach().to(torch.float32, copy=True) for name, x in towers.items()}

    def _dim(self) -> int | None:
        return next((floats.shape[1] for floats in self._floats.values()), None)

    def _keep(self, tower: str, ids: Tensor, x: Tensor) -> None:
        if self.mode == "full":
            return
        if tower not in self._floats:
            self._floats[tower] = torch.full((self.num_samples, x.shape[1]), torch.nan, device=x.device)
        floats = self._floats[tower] = self._floats[tower].to(x.device)
        places = ids.to(x.device, non_blocking=True)
        finite = torch.isfinite(x).all(1, keepdim=True)
        floats[places] = x.float().where(finite, floats[places])
        self._fresh[ids] = True

    def _exchange(self) -> None:
        if self.mode == "full" or not ranks.is_distributed():
            return
        ids = self._fresh.nonzero().flatten()
        for tower in self._towers:
            dim = int(ranks.largest(self._floats[tower].shape[1] if tower in self._floats else 0))
            if dim == 0:
                continue
            floats = self._floats.setdefault(tower, torch.full((self.num_samples, dim), torch.nan))
            for other_ids, rows in ranks.gather_rows(ids, floats[ids]):
                floats[other_ids] = rows.to(floats.device)
        self._fresh[:] = False

    def _seen(self) -> Tensor:
        """Which samples have finite embeddings in every tower, bool [n]."""
        seen = torch.full((self.num_samples,), len(self._floats) == len(self._towers))
        for floats in self._floats.values():
            seen &= torch.isfinite(floats).all(1).cpu()
        return seen

    def _codes(self) -> Tensor | None:
        seen = self._seen()
        if not bool(seen.any()):
            return None
        floats = self._floats["embeddings"]
        hasher = SignHasher(floats.shape[1], PAIRING_BITS, seed=self.seed)
        hasher.update_mean(floats[seen.to(floats.device)])
        return hasher.encode(floats.where(seen.to(floats.device)[:, None], 0.0)).cpu()

    def _search(self, k: int) -> Tensor | None:
        ids = self._seen().nonzero().flatten()
        if len(ids) == 0:
            return None
        labels = torch.arange(self.num_samples) if self._labels is None else torch.from_numpy(self._labels)
        query, reference = self._floats[self._towers[0]][ids], self._floats[self._towers[-1]][ids]
        exclude = None if self._exclusions is None else self._exclusions.among(ids)
        options: dict[str, Any] = {"query_labels": labels[ids], "reference_labels": labels[ids], "exclude": exclude}
        found = cosine_topk(query, reference, min(k, self.k), **options).indices.cpu()
        near = torch.full((self.num_samples, found.shape[1]), -1)
        near[ids] = torch.where(found >= 0, ids[found], -1)
        return near

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "mode": self.mode, "k": self.k}

    @property
    def kept_bytes(self) -> int:
        """The floats."""
        return sum(floats.nbytes for floats in self._floats.values())

    def _kept_state(self) -> dict[str, Any]:
        return {"floats": self._floats, "fresh": self._fresh}

    def _check_kept_state(self, state: dict[str, Any]) -> None:
        floats = states.entry(state, "floats", dict)
        dims = {states.entry(floats, tower, Tensor).shape[-1] for tower in floats}
        if not set(floats) <= set(self._towers) or len(dims) > 1:
            raise states.damaged("its embeddings are of other towers")
        for tower in floats:
            states.check_tensor(floats, tower, torch.float32, [self.num_samples, *dims])
        states.check_tensor(state, "fresh", torch.bool, [self.num_samples])

    def _load_kept_state(self, state: dict[str, Any], *, is_own: bool) -> bool:
        self._floats = {tower: floats.clone() for tower, floats in state["floats"].items()}
        self._fresh = state["fresh"].clone() if is_own else torch.zeros_like(self._fresh)
        return is_own or not bool(state["fresh"].any())
