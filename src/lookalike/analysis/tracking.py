"""Track overlap and positional distance over the epochs of a training run, as in the paper's first two figures."""

from typing import Any

import torch
from torch import Tensor

from lookalike.analysis.measures import NEIGHBOURS
from lookalike.analysis.study import analyze

BITS = (128, 256, 512, 1024)
ANCHORS = 256


class OverlapTracker:
    """Keep an epoch's embeddings as floats, to compare the neighbours that codes find with the true ones.

    For studies: it takes 4 * dim bytes per sample.

    Args:
        num_samples: Number of samples, or pairs, in the training set.
        labels: int64 `[num_samples]`, or None where each is its own class.
        k: Neighbours to compare.
        seed: Seed of the rotation and of the choice of anchors.
    """

    def __init__(self, num_samples: int, labels: Tensor | None, *, k: int = NEIGHBOURS, seed: int = 0) -> None:
        self.num_samples, self.labels, self.k, self.seed = num_samples, labels, k, seed
        self._rows: Tensor | None = None  # float32 [num_samples, dim], NaN where there is none

    def observe(self, ids: Tensor, embeddings: Tensor) -> None:
        """Keep the embeddings of a batch."""
        if self._rows is None:
            self._rows = torch.full(
                (self.num_samples, embeddings.shape[1]), torch.nan, dtype=torch.float32, device=embeddings.device
            )
        self._rows = self._rows.to(embeddings.device)
        self._rows[ids.to(embeddings.device)] = embeddings.float()

    def measure(self) -> dict[str, Any]:
        """Return `overlap` and `positional_distance` by bits; empty before k + 1 samples were observed."""
        rows = None if self._rows is None else self._rows.cpu()
        seen = torch.zeros(0, dtype=torch.int64) if rows is None else torch.isfinite(rows).all(1).nonzero().flatten()
        if rows is None or len(seen) <= self.k:
            return {}
        labels = None if self.labels is None else self.labels[seen]
        found = analyze(rows[seen], labels, bits=BITS, k=self.k, anchors=ANCHORS, methods=("lsh",), seed=self.seed)
        return {
            name: {str(row["bits"]): row[name]["mean"] for row in found["rows"]}
            for name in ("overlap", "positional_distance")
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"rows": self._rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._rows = state["rows"]
