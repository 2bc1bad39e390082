"""What the cells of a mining run leave in files: how near neighbours are so far, and parts of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lookalike.mining.cells import read_cell, write_cell
from lookalike.mining.pipeline import Likely, Part

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Near:
    """Distances of the nearest k of some queries, in the columns that are searched so far."""

    distances: Tensor  # int32 [q, k], ascending
    columns: frozenset[int]  # by their first reference

    @classmethod
    def read(cls, path: Path, q: int, k: int) -> Near | None:
        """Read what is known; None if nothing is."""
        found = read_cell(path)
        if found is None or found.keys() != {"near", "columns"} or found["near"].shape != (q, k):
            return None
        return cls(found["near"].int(), frozenset(found["columns"].tolist()))

    def joined(self, more: Near) -> Near:
        """Add another column, unless it is in there."""
        if more.columns <= self.columns:
            return self
        distances = torch.cat([self.distances, more.distances], dim=1).sort(dim=1).values
        return Near(distances[:, : self.distances.shape[1]], self.columns | more.columns)

    def write(self, path: Path) -> None:
        """Write all of it, in place of what was known."""
        narrow = torch.int16 if int(self.distances.max()) < 1 << 15 else torch.int32
        near = self.distances.to(narrow).contiguous()
        write_cell(path, {"near": near, "columns": torch.tensor(sorted(self.columns))})


def content_of(part: Part) -> dict[str, Tensor]:
    """Turn a part of the answer into tensors by name."""
    return {
        "indices": part.indices.contiguous(),
        "scores": part.scores.contiguous(),
        "offsets": part.positives[0].contiguous(),
        "positives": part.positives[1].contiguous(),
        "positive_scores": part.positive_scores.contiguous(),
        "candidates": torch.tensor([part.candidates]),
        **{f"dropped {i} {name}": counts.contiguous() for i, (name, counts) in enumerate(part.dropped.items())},
        **({} if part.likely is None else {f"likely {n}": x.contiguous() for n, x in part.likely._asdict().items()}),
    }


def part_of(first: int, found: dict[str, Tensor]) -> Part:
    """Make the part of the queries from `first` on whose content was read."""
    dropped = sorted(name for name in found if name.startswith("dropped "))
    return Part(
        first,
        found["indices"],
        found["scores"],
        (found["offsets"], found["positives"]),
        found["positive_scores"],
        int(found["candidates"]),
        {name.split(" ", 2)[2]: found[name] for name in dropped},
        int(found.get("rows", 0)),
        Likely(*(found[f"likely {name}"] for name in Likely._fields)) if "likely ids" in found else None,
    )
