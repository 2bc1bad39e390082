"""One window of a stream: its samples -> codes -> hard negatives -> batches, as positions in the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lookalike.batches import compose_batches
from lookalike.hashing import SignHasher
from lookalike.negatives import hard_negatives
from lookalike.search import search_device
from lookalike.utils.tensors import check_embeddings, check_one_dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from lookalike.negatives import Filters
    from lookalike.samplers.pairing import Pairing
    from lookalike.utils.arrays import Array

MEAN_ROWS = 4096  # embeddings, drawn at random from the window, whose mean centres its codes


class WindowCodes(NamedTuple):
    """The codes of a window's samples, where they are best searched."""

    query: Tensor  # uint8 [n, bits / 8]
    reference: Tensor | None  # uint8 [n, bits / 8]; None for labelled samples
    finite: Tensor  # bool [n], on the host: whether the embeddings are; the codes of others are meaningless


class WindowHasher:
    """Embeds and hashes windows, in random order, so that the first rows tell the mean and no others are kept.

    Args:
        embed: Turns a list of samples into embeddings `[n, dim]`, or with `pairs` into those of queries and references.
        pairs: Whether samples are pairs.
        rows: Samples to embed at a time.
        bits: Length of the codes.
        center: Fraction of the window's mean to subtract.
        seed: Decides the rotation.
        k: Neighbours that will be searched.
    """

    def __init__(
        self,
        embed: Callable[[list[Any]], Any],
        *,
        pairs: bool,
        rows: int,
        bits: int,
        center: float,
        seed: int,
        k: int,
    ) -> None:
        self.embed, self.rows, self.k = embed, rows, k
        self.names = ("query", "reference") if pairs else ("embeddings",)
        self.bits, self.center, self.seed = bits, center, seed
        self._hashers: list[SignHasher] = []

    def hash(self, samples: Sequence[Any], rng: np.random.Generator) -> WindowCodes:
        """Embed every sample once and return the codes.

        Raises:
            TypeError: `embed` does not return floats, or not one tensor per tower.
            ValueError: It does not return one row per sample, or its dimension has changed.
        """
        n, order = len(samples), torch.from_numpy(rng.permutation(len(samples)))
        finite = torch.ones(n, dtype=torch.bool)
        codes: list[Tensor] = []
        held: list[tuple[Tensor, list[Tensor]]] = []
        for places in torch.split(order, self.rows):
            held.append((places, self._towers([samples[i] for i in places.tolist()])))
            if not codes:
                if sum(len(some) for some, _ in held) < min(n, MEAN_ROWS):
                    continue
                device = search_device(held[0][1][0].device, self.bits, self.k)
                codes = [torch.zeros(n, self.bits // 8, dtype=torch.uint8, device=device) for _ in self.names]
                self._centre([list(tower) for tower in zip(*(towers for _, towers in held), strict=True)])
            for some, towers in held:
                for hasher, table, x in zip(self._hashers, codes, towers, strict=True):
                    packed, is_finite = hasher.encode_flagged(x)
                    table[some.to(table.device)] = packed.to(table.device)
                    finite[some] &= is_finite.cpu()
            held.clear()
        return WindowCodes(codes[0], codes[1] if len(codes) > 1 else None, finite)

    def _towers(self, samples: list[Any]) -> list[Tensor]:
        given = self.embed(samples)
        towers = [given] if isinstance(given, Tensor) else list(given) if isinstance(given, (tuple, list)) else []
        if len(towers) != len(self.names) or not all(isinstance(x, Tensor) for x in towers):
            wanted = (
                "a tensor [n, dim]" if len(self.names) == 1 else "two tensors [n, dim], of the queries and references"
            )
            hint = "" if len(self.names) > 1 else "; for a stream of pairs give pairs=True"
            raise TypeError(f"embed must return {wanted}, got {_described(given)}{hint}.")
        named = dict(zip(self.names, towers, strict=True))
        for name, x in named.items():
            check_embeddings(f"the {name} that embed returns" if name != "embeddings" else name, x, len(samples))
        dim = check_one_dimension(named)
        if self._hashers and self._hashers[0].dim != dim:
            raise ValueError(f"embed returned {self._hashers[0].dim} dimensions until now, and {dim} this time.")
        return [x.detach() for x in towers]

    def _centre(self, towers: list[list[Tensor]]) -> None:
        """Centre the codes of a window by the mean of its first finite rows."""
        if not self._hashers:
            dim = towers[0][0].shape[1]
            self._hashers = [SignHasher(dim, self.bits, seed=self.seed, center=self.center) for _ in self.names]
        for hasher, parts in zip(self._hashers, towers, strict=True):
            rows = torch.cat(parts).double()
            rows = rows[torch.isfinite(rows).all(1)]
            hasher.set_mean(rows.mean(0) if len(rows) else torch.zeros(hasher.dim), len(rows))


def _described(given: Any) -> str:
    if isinstance(given, (tuple, list)):
        return f"a {type(given).__name__} of {len(given)}"
    return "one tensor" if isinstance(given, Tensor) else type(given).__name__


def compose_window(
    pairing: Pairing,
    codes: WindowCodes | None,
    pairs_per_batch: int,
    *,
    k: int,
    filters: Filters,
    rng: np.random.Generator,
    **options: Any,
) -> list[Array]:
    """Compose the batches of a window from its own codes, without a word to other ranks.

    Args:
        pairing: Its samples.
        codes: Their codes; None for random batches.
        pairs_per_batch: Pairs per batch; there are at least as many labels.
        k: Hard negatives per sample to compose from.
        filters: What counts as one.
        rng: Decides everything random.
        options: Of `compose_batches`.

    Returns:
        The positions that each batch lists, int32.
    """
    seed = int(rng.integers(2**62))
    drawn_with = None if codes is None or codes.reference is not None else codes.query.cpu()
    pairs = pairing.draw(drawn_with, rng)
    if codes is None:
        lists = torch.full((len(pairs.query), 0), -1)
    else:
        lists = pairing.neighbours(_neighbours(pairing, codes, k, filters), pairs)
    labels = None if pairing.labels is None else pairing.labels[pairs.query]
    batches = compose_batches(lists, pairs_per_batch, labels=labels, seed=seed, **options)
    return [pairing.listed(batch.numpy(), pairs) for batch in batches]


def _neighbours(pairing: Pairing, codes: WindowCodes, k: int, filters: Filters) -> Tensor:
    """Return the hard negatives of every sample, int32 [n, k] with -1 for none; without a code a sample has none."""
    near = torch.full((len(codes.finite), k), -1, dtype=torch.int32)
    known = codes.finite.nonzero().flatten()
    if len(known) == 0:
        return near
    on_device = known.to(codes.query.device)
    query = codes.query[on_device]
    reference = None if codes.reference is None else codes.reference[on_device]
    classes = pairing.classes()[known].to(query.device)
    found = hard_negatives(query, classes, k, reference=reference, filters=filters).indices.cpu()
    near[known] = torch.where(found >= 0, known[found.clamp(min=0)], -1).int()
    return near
