"""Draw a sample of a training part, and embed it once without gradients."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from lookalike.hashing import SignHasher
from lookalike.training.loading import embed, read
from lookalike.utils.lists import checked_lists, lists_among

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lookalike.data.retrieval import RetrievalData, TrainingPart
    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

LOOKED_AT = 4  # samples, to see whether they are augmented
BATCHES = 2  # that a sample must be large enough for


class Drawn(NamedTuple):
    """Which samples of a training part to embed."""

    ids: Tensor  # int64 [n], ascending
    population: int  # samples or pairs that they were drawn from: those that training uses
    whole_classes: bool  # whether all samples of each class are among them


def draw(part: TrainingPart, size: int, pairs_per_batch: int, seed: int) -> Drawn:
    """Draw pairs at random, or whole classes of labelled samples; samples without a positive are left out.

    If whole classes are too large to fill batches, or the sample, more of them are drawn and the largest are cut.

    Raises:
        ValueError: The size does not allow two batches.
    """
    rng = np.random.default_rng(seed)
    per_pair = 2 if part.pairs is None else 1
    if part.pairs is not None:
        population = part.pairs
        candidates = np.arange(population)
    else:
        assert part.labels is not None  # noqa: S101 - labelled data have labels
        _, classes, counts = np.unique(part.labels.cpu().numpy(), return_inverse=True, return_counts=True)
        candidates = np.flatnonzero(counts[classes] > 1)
        population = len(candidates)
        if population == 0:
            raise ValueError("no sample has a positive, because all labels are different.")
    least = min(population, BATCHES * per_pair * pairs_per_batch)
    if size < least:
        raise ValueError(
            f"sample= must be at least {least}, so that there are {BATCHES} batches of {pairs_per_batch} pairs to "
            f"measure, got {size}."
        )
    if population <= size:
        return Drawn(torch.from_numpy(candidates), population, whole_classes=True)
    if part.pairs is not None:
        return Drawn(torch.from_numpy(np.sort(rng.choice(population, size, replace=False))), population, True)
    order = rng.permutation(np.flatnonzero(counts > 1))  # of classes
    needed = min(len(order), BATCHES * pairs_per_batch)
    chosen = _fitting(order, counts, size)
    whole = len(chosen) >= needed and 2 * counts[chosen].sum() >= size
    most = int(counts.max())
    if not whole:
        chosen = order[: max(needed, int(np.searchsorted(np.cumsum(counts[order]), size)) + 1)]
        most = bisect_right(range(size + 1), size, key=lambda each: np.minimum(counts[chosen], each).sum()) - 1
    shuffled = rng.permutation(candidates)
    grouped = shuffled[np.argsort(classes[shuffled], kind="stable")]
    offsets = np.searchsorted(classes[grouped], np.arange(len(counts) + 1))
    ids = np.concatenate([grouped[offsets[each] : min(offsets[each + 1], offsets[each] + most)] for each in chosen])
    return Drawn(torch.from_numpy(np.sort(ids)), population, bool(whole))


def _fitting(order: Array, counts: Array, size: int) -> Array:
    """Return the classes, in this order, that fit into the size, skipping those too large for what is left."""
    chosen = []
    for each in order.tolist():
        if counts[each] <= size:
            chosen.append(each)
            size -= int(counts[each])
    return np.array(chosen, np.int64)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Embeddings of a sample; row i of every field belongs to the same sample or pair."""

    query: Tensor  # float32 [n, dim], of length 1
    reference: Tensor  # the same object in labelled data
    labels: Tensor | None  # int64 [n]; None where every pair has one of its own
    exclude: Lists | None  # rows that are not negatives of each other
    population: int
    whole_classes: bool
    seconds: float  # of embedding

    def __len__(self) -> int:
        """Return the number of samples or pairs."""
        return len(self.query)

    @property
    def paired(self) -> bool:
        """Whether the positive of query i is reference i."""
        return self.reference is not self.query

    @property
    def classes(self) -> Tensor:
        """A label for every sample or pair, int64 [n]."""
        return torch.arange(len(self)) if self.labels is None else self.labels

    def codes(self, bits: int, center: float, seed: int) -> tuple[Tensor, Tensor]:
        """Hash queries and references, each tower centred by its own mean, as samplers do."""
        hashed = []
        for x in (self.query, self.reference)[: 1 + self.paired]:
            hasher = SignHasher(x.shape[1], bits, seed=seed, center=center)
            hasher.update_mean(x)
            hashed.append(hasher.encode(x))
        return hashed[0], hashed[-1]


def embed_sample(
    model: nn.Module,
    data: RetrievalData,
    drawn: Drawn,
    *,
    seed: int | None,
    device: torch.device,
    precision: torch.dtype,
    progress: bool,
) -> Probe:
    """Embed the drawn samples without gradients.

    Args:
        model: The model.
        data: The data that the samples were drawn from.
        drawn: Which samples.
        seed: Decides how they are augmented; None for not at all.
        device: Where.
        precision: Precision of the computation.
        progress: Draw progress bars if stderr is a terminal.

    Raises:
        UnreadableSampleError: A sample cannot be read.
        ValueError: An embedding is not finite.
    """
    part, ids, n = data.train.to(device), drawn.ids, len(drawn.ids)
    start, towers = time.perf_counter(), []
    model.to(device)
    for tower in ("query",) if part.pairs is None else ("query", "reference"):
        view = partial(_rows_seen, part, tower, seed, ids)
        embedded = embed(model, view, n, tower=tower, precision=precision, progress=progress)
        towers.append(normalize(embedded, dim=1).cpu())
    seconds = time.perf_counter() - start
    if not all(bool(torch.isfinite(x).all()) for x in towers):
        raise ValueError("the model returns embeddings that are not finite: choose another with model=.")
    exclude = None
    if data.train_exclude is not None:
        num_rows = len(data.train_exclude[0]) - 1
        lists = checked_lists("exclude", data.train_exclude, num_rows, num_rows, torch.device("cpu"))
        exclude = lists_among(lists, ids, ids)
    return Probe(
        query=towers[0],
        reference=towers[-1],
        labels=None if part.labels is None else part.labels.cpu()[ids],
        exclude=exclude,
        population=drawn.population,
        whole_classes=drawn.whole_classes,
        seconds=seconds,
    )


def is_augmented(part: TrainingPart, ids: Tensor, seed: int) -> bool:
    """Return whether training changes samples before the model sees them, judged by a few of them."""
    for tower in ("query",) if part.pairs is None else ("query", "reference"):
        changed, plain = (read(_seen, part, tower, each, ids[:LOOKED_AT]) for each in (seed, None))
        if not (torch.equal(changed, plain) if isinstance(plain, torch.Tensor) else changed == plain):
            return True
    return False


def _rows_seen(part: TrainingPart, tower: str, seed: int | None, ids: Tensor, rows: Tensor) -> Any:
    return _seen(part, tower, seed, ids[rows])


def _seen(part: TrainingPart, tower: str, seed: int | None, ids: Tensor) -> Any:
    """Return samples as training sees them, or, without a seed, as they are."""
    if seed is None:
        return part.plain(tower, ids)
    return part.queries(ids, seed) if tower == "query" else part.references(ids, seed)
