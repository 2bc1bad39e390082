"""Draw a sample of a training part, embed it once without gradients, and compare it with itself."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from lookalike.batches import compose_batches, lists_width
from lookalike.hashing import SignHasher
from lookalike.negatives import Filters, hard_negatives
from lookalike.samplers.pairing import make_pairing
from lookalike.search.cosine import cosine_topk
from lookalike.training.loading import embed, read
from lookalike.utils.lists import checked_lists, lists_among, lists_mask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lookalike.batches import Batches
    from lookalike.data.retrieval import RetrievalData, TrainingPart
    from lookalike.samplers.pairing import Pairs
    from lookalike.training.settings import Settings
    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

IDENTICAL = 0.9999  # cosine from which two samples count as the same
NEAR = 0.95  # of the positive's cosine, from which a negative may be one as well
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
        embedded = embed(model, view, n, precision=precision, progress=progress)
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


class Nearest(NamedTuple):
    """The nearest positive and the nearest negative of each row, by exact cosine."""

    positive: Tensor  # float32 [n], the cosine
    negative: Tensor  # float32 [n], the cosine; minus infinity where there is none
    row: Tensor  # int64 [n], which row is the negative; -1 where there is none


def find_nearest(probe: Probe) -> Nearest:
    """Find the nearest positive and the nearest negative of each row in the sample."""
    labels = probe.classes
    found = cosine_topk(
        probe.query, probe.reference, 1, query_labels=labels, reference_labels=labels, exclude=probe.exclude
    )
    if probe.paired:
        positive = (probe.query * probe.reference).sum(1)
    else:
        positive = torch.empty(len(probe))
        order = labels.argsort(stable=True)
        _, counts = torch.unique_consecutive(labels[order], return_counts=True)
        for members in torch.split(order, counts.tolist()):
            x = probe.query[members]
            positive[members] = (x @ x.T).fill_diagonal_(-torch.inf).amax(1)
    return Nearest(positive, found.scores[:, 0], found.indices[:, 0])


@dataclass(frozen=True)
class BatchHardness:
    """How hard batches are."""

    cosine: float
    """Mean cosine of the hardest negative in the batch."""
    finds_hardest: float
    """Fraction of anchors whose hardest negative of all is in their batch."""


def measure_batches(
    probe: Probe, nearest: Nearest, settings: Settings, codes: tuple[Tensor, Tensor] | None
) -> BatchHardness:
    """Compose the batches of one epoch of the sample, from codes or at random, and measure how hard they are."""
    n, labels = len(probe), probe.labels
    pairing = make_pairing(labels, n if probe.paired else None)
    pairs = pairing.draw(None if codes is None or probe.paired else codes[0], np.random.default_rng(settings.seed))
    lists = torch.full((len(pairs.query), 0), -1)
    if codes is not None:
        near = hard_negatives(
            codes[0],
            probe.classes,
            lists_width(settings.method),
            reference=codes[1] if probe.paired else None,
            filters=Filters(exclude=probe.exclude),
        )
        lists = pairing.neighbours(near.indices, pairs)
    batches = compose_batches(
        lists,
        settings.pairs_per_batch,
        labels=None if labels is None else labels[torch.from_numpy(pairs.query).long()],
        hardness=settings.hardness,
        neighbourhood=settings.neighbourhood,
        method=settings.method,
        seed=settings.seed,
        smallest=2,
    )
    return _measured(probe, nearest, pairs, batches)


def _measured(probe: Probe, nearest: Nearest, pairs: Pairs, batches: Batches) -> BatchHardness:
    queries, references = (torch.from_numpy(side).long() for side in pairs)
    total, found, anchors = 0.0, 0, 0
    for batch in batches:
        query, reference = queries[batch], references[batch]
        similarity = probe.query[query] @ probe.reference[reference].T
        if probe.exclude is not None:
            excluded = lists_mask(lists_among(probe.exclude, query, reference), len(batch), similarity.device)
            similarity.masked_fill_(excluded, -1.0)
        similarity.fill_diagonal_(-torch.inf)
        total += float(similarity.amax(1).sum())
        found += int(torch.isin(nearest.row[query], torch.cat([query, reference])).sum())
        anchors += len(batch)
    return BatchHardness(total / anchors, found / anchors)


@dataclass(frozen=True)
class FalseNegatives:
    """How many rows have a negative that may be a positive."""

    near: float
    """Fraction whose nearest negative has more than 0.95 of the cosine of the positive."""
    nearer: float
    """Fraction whose nearest negative is nearer than the positive."""
    identical: float
    """Fraction of which another sample with another label is a double: a cosine above 0.9999."""


def count_false_negatives(probe: Probe, nearest: Nearest) -> FalseNegatives:
    """Count rows whose nearest negative is likely a positive."""
    identical = nearest.negative > IDENTICAL
    if probe.paired:  # the same query twice, or the same reference
        own = {"query_labels": probe.classes, "reference_labels": probe.classes, "exclude": probe.exclude}
        for x in (probe.query, probe.reference):
            identical |= cosine_topk(x, x, 1, **own).scores[:, 0] > IDENTICAL
    return FalseNegatives(
        near=_share(nearest.negative > NEAR * nearest.positive),
        nearer=_share(nearest.negative > nearest.positive),
        identical=_share(identical),
    )


def _share(mask: Tensor) -> float:
    return float(mask.double().mean())
