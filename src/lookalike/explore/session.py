"""What the page asks for, as plain values that become JSON: samples, neighbours, suspects and marks."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.explore.suspects import SuspectSearch
from lookalike.negatives.same import Marks, merge_labels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lookalike.explore.mates import Mates
    from lookalike.explore.sources import Explored
    from lookalike.utils.arrays import Array

MOST = 200  # samples in one answer
BACKGROUND = 10  # niceness


class Session:
    """One data set, its marks, and what is computed in the background.

    Args:
        explored: The data set.
        marks: The file of marks; by default the data set's own.

    Raises:
        ValueError: The marks belong to other data, or another process is writing them.
    """

    def __init__(self, explored: Explored, marks: Path | None = None) -> None:
        self.explored, self.marks_path = explored, marks or explored.marks
        self.content, self.neighbours = explored.content, explored.neighbours
        n, data = self.content.n, explored.title
        self._marks = Marks(self.marks_path, samples=n, data=data, checksum=explored.checksum)
        self._changing = threading.Lock()
        self._pairs = self._marks.in_order
        self._merged = self._merge()
        self._suspects = SuspectSearch(self.neighbours)
        self._mates: Mates | None = None
        self._mates_problem = ""
        self._background = threading.Thread(target=self._compute, name="explore", daemon=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Compute batches and suspects in the background while the block runs; then close the marks."""
        with contextlib.closing(self._marks):
            self._background.start()
            try:
                yield
            finally:
                self._suspects.stop()

    def wait(self, seconds: float) -> bool:
        """Wait for the background to finish; return whether it has."""
        self._background.join(seconds)
        return not self._background.is_alive()

    def about(self) -> dict[str, Any]:
        """Describe the data set."""
        labels = self.content.labels
        return {
            "title": self.explored.title,
            "details": self.explored.details,
            "samples": self.content.n,
            "labels": None if labels is None else len(np.unique(labels)),
            "paired": self.neighbours.reference is not None,
            "kinds": self.content.kinds,
            "bits": self.neighbours.bits,
            "marks": len(self._pairs),
            "marks_path": str(self.marks_path),
            "use": f"{self.explored.use} {shlex.quote(str(self.marks_path))}",
            "has_mates": self.explored.compose is not None,
        }

    def search(self, query: str, k: int) -> dict[str, Any]:
        """Find samples by id, label or text."""
        found = self.content.search(query, min(k, MOST))
        return {"samples": [self.content.describe(i) for i in found]}

    def sample(self, i: int, k: int, low: int = 0, high: int | None = None) -> dict[str, Any]:
        """Describe a sample with its positives, its hardest negatives and its batch mates."""
        k, labels = min(max(k, 1), MOST), self._merged
        negatives = self.neighbours.negatives(i, labels, k, low=low, high=high)
        positives = self.neighbours.positives(i, labels, k)
        return {
            "sample": self.content.describe(i),
            "negatives": self._listed(i, negatives.ids, negatives.distances),
            "total": negatives.total,
            "positives": self._listed(i, positives.ids, positives.distances),
            "num_positives": positives.total,
            **self._mates_of(i, k, labels),
        }

    def suspects(self, start: int, k: int) -> dict[str, Any]:
        """List the most suspicious pairs that are not marked, and say how far the search has come."""
        search = self._suspects
        answer: dict[str, Any] = {"progress": search.progress, "problem": search.problem, "pairs": [], "total": None}
        if search.found is None:
            return answer
        pairs, labels = search.found.pairs, self._merged
        open_ones = np.flatnonzero(labels[pairs[:, 0]] != labels[pairs[:, 1]])
        rows = open_ones[start : start + min(max(k, 1), MOST)]
        cosines = self.neighbours.cosines(search.found.distances[rows])
        positives = search.found.positives[rows].tolist()
        answer["pairs"] = [
            {
                "first": self.content.describe(int(first)),
                "second": self.content.describe(int(second)),
                "distance": int(distance),
                "cosine": round(float(cosine), 3),
                "positive_distances": positive if min(positive) >= 0 else None,
            }
            for (first, second), distance, cosine, positive in zip(
                pairs[rows].tolist(), search.found.distances[rows].tolist(), cosines, positives, strict=True
            )
        ]
        return {**answer, "progress": 1.0, "total": len(open_ones)}

    def mark(self, first: int, second: int, *, same: bool) -> dict[str, Any]:
        """Mark two samples as the same, or take a mark back; it is on disk when this returns.

        Raises:
            ValueError: The two are one sample.
            OSError: The file cannot be written to.
        """
        with self._changing:
            (self._marks.mark if same else self._marks.unmark)(first, second)
            self._pairs = self._marks.in_order  # replaced, because others may be reading it
            self._merged = self._merge()
        return {"marks": len(self._pairs)}

    def marked(self, start: int, k: int) -> dict[str, Any]:
        """List the marked pairs, the newest first."""
        pairs = self._pairs[::-1]
        shown = [[self.content.describe(i) for i in pair] for pair in pairs[start : start + min(max(k, 1), MOST)]]
        return {"total": len(pairs), "pairs": [{"first": first, "second": second} for first, second in shown]}

    def _merge(self) -> Array:
        return merge_labels(self.neighbours.labels, self._marks.pairs, self.content.n)

    def _listed(self, i: int, ids: Array, distances: Array) -> list[dict[str, Any]]:
        marked = {b if a == i else a for a, b in self._pairs if i in (a, b)}
        cosines = self.neighbours.cosines(distances)
        return [
            {
                **self.content.describe(j),
                "distance": distance,
                "cosine": round(float(cosine), 3),
                "marked": j in marked,
            }
            for j, distance, cosine in zip(ids.tolist(), distances.tolist(), cosines, strict=True)
        ]

    def _mates_of(self, i: int, k: int, labels: Array) -> dict[str, Any]:
        if self.explored.compose is None:
            return {"mates": [], "mates_note": ""}
        if self._mates is None:
            return {"mates": [], "mates_note": self._mates_problem or "The batches of an epoch are being composed."}
        batch, members = self._mates.of(i)
        if batch < 0:
            return {"mates": [], "mates_note": "This sample is in no batch of the epoch that was composed."}
        members = members[labels[members] != labels[i]]
        distances = self.neighbours.distances(i, members)
        order = np.lexsort((members, distances))[:k]
        alone = "" if len(members) else "It holds no sample of another label. "
        note = f"Batch {batch + 1:,} of {len(self._mates.offsets) - 1:,}. {alone}{self.explored.mates_note}"
        return {"mates": self._listed(i, members[order], distances[order]), "mates_note": note}

    def _compute(self) -> None:
        if sys.platform == "linux":  # where a thread, and those that it starts, can give way to the page's
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND)
        self._suspects.run()
        if self.explored.compose is None or self._suspects.is_stopped:
            return
        try:
            self._mates = self.explored.compose()
        except Exception as error:  # noqa: BLE001 - the page tells, and goes on without batches
            self._mates_problem = f"No batch could be composed: {error}"
