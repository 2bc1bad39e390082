"""Candidates -> negatives: positives out, margins, thresholds, ranks, and the first or any of what is left."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lookalike.mining.options import MISSING, Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.mining.candidates import Candidates

TOO_FEW = "range and corpus"  # the reason where no filter dropped anything


@dataclass
class Tally:
    """What was dropped, and which queries came short and why."""

    candidates: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # candidates, by filter
    without: Counter[str] = field(default_factory=Counter)  # queries that have no negative, by reason
    short: Counter[str] = field(default_factory=Counter)  # queries that have fewer than asked for


def selected(part: Candidates, options: Options, farthest: int, tally: Tally) -> tuple[Tensor, Tensor]:
    """The negatives of some queries: scores float32 and indices int64 `[q, num_negatives]`.

    Args:
        part: The candidates.
        options: The filters.
        farthest: How many candidates are looked at once the filters have spoken.
        tally: Is told what was dropped.
    """
    scores, indices = part.scores, part.indices
    if not options.include_positives:
        scores = scores.masked_fill(part.positive, MISSING)
    dropped: dict[str, Tensor] = {}
    tally.candidates += int((scores != MISSING).sum())
    for name, fails in _filters(options, part.hardest).items():
        failed = fails(scores) & (scores != MISSING)
        scores = scores.masked_fill(failed, MISSING)
        dropped[name] = failed.sum(1)
        tally.dropped[name] += int(dropped[name].sum())
    order = scores.argsort(dim=1, descending=True, stable=True)[:, options.range_min : farthest]
    scores, indices = scores.gather(1, order), indices.gather(1, order)
    k = options.num_negatives
    if options.sampling_strategy == "random":
        # One draw per query from Python's generator, as sentence-transformers does: the same seed gives the same.
        numbers = (scores != MISSING).sum(1).clamp(min=k).tolist()
        sampled = torch.tensor([sorted(random.sample(range(number), k=k)) for number in numbers])
        scores, indices = scores.gather(1, sampled), indices.gather(1, sampled)
    scores, indices = scores[:, :k], indices[:, :k].masked_fill(scores[:, :k] == MISSING, -1)
    _count_short((scores != MISSING).sum(1), k, dropped, tally)
    return scores, indices


def _filters(options: Options, hardest: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """What makes a candidate no negative, in the order of the count."""
    absolute, relative, highest, lowest = (
        options.absolute_margin,
        options.relative_margin,
        options.max_score,
        options.min_score,
    )
    filters: dict[str, Callable[[Tensor], Tensor]] = {}
    if absolute is not None:
        filters["absolute_margin"] = lambda scores: scores + absolute > hardest[:, None]
    if relative is not None:
        ceiling = hardest - hardest.abs() * relative
        filters["relative_margin"] = lambda scores: scores > ceiling[:, None]
    if highest is not None:
        filters["max_score"] = lambda scores: scores > highest
    if lowest is not None:
        filters["min_score"] = lambda scores: scores < lowest
    return filters


def _count_short(found: Tensor, k: int, dropped: dict[str, Tensor], tally: Tally) -> None:
    """Each query that comes short is put down to the filter that dropped most of its candidates."""
    names = [TOO_FEW, *dropped]
    counts = torch.stack([torch.zeros_like(found), *dropped.values()])
    reason = counts.argmax(0)
    for number, name in enumerate(names):
        tally.without[name] += int(((found == 0) & (reason == number)).sum())
        tally.short[name] += int(((found > 0) & (found < k) & (reason == number)).sum())
