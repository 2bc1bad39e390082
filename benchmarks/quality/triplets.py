"""Explicit negatives as users of sentence-transformers mine them: once, offline, with the untrained model."""

import os
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.data import RetrievalData
from lookalike.data.parts import TrainingItems
from lookalike.training.encoders import make_encoder
from lookalike.training.loading import embed
from lookalike.utils.arrays import Array
from lookalike.utils.machine import checked_device

RELATIVE_MARGIN = 0.05  # as in `mine_hard_negatives` of sentence-transformers
ROWS = 2048  # at a time
MOST = 3  # negatives that are mined; fewer are the first of these


def with_mined_negatives(data: RetrievalData, model: dict[str, Any], number: int, folder: Path) -> RetrievalData:
    """Return the data with explicit negatives for every pair.

    Args:
        data: Pairs of texts.
        model: Arguments of `make_encoder`.
        number: Negatives per pair, at most `MOST`.
        folder: Where mined negatives are kept for other processes.
    """
    from lookalike.data.explicit import with_negatives

    path = folder / f"{data.checksum}-{zlib.crc32(str(model).encode()):08x}.npy"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npy")  # two processes may mine the same
        np.save(unfinished, _mined(data.train, model))
        unfinished.rename(path)
    return with_negatives(data, np.load(path)[:, :number])


def _mined(part: Any, options: dict[str, Any]) -> Array:
    """Return the pairs whose references are the nearest negatives of each query, int64 `[pairs, MOST]`, -1 for none."""
    assert isinstance(part, TrainingItems)
    assert part.pairs is not None
    model = make_encoder(**options).to(checked_device(None))
    query, reference = (embed(model, partial(part.plain, tower), part.pairs) for tower in ("query", "reference"))
    labels = torch.arange(part.pairs) if part.labels is None else part.labels
    _, first = np.unique(part.reference.ids, return_index=True)  # equal texts are one negative
    places = torch.from_numpy(first)
    query, reference = normalize(query, dim=1), normalize(reference, dim=1)
    return nearest_below(query, reference, labels.to(query.device), places.to(query.device)).cpu().numpy()


def nearest_below(query: Tensor, reference: Tensor, labels: Tensor, places: Tensor) -> Tensor:
    """Return the references with the largest cosine below the margin under that of the pair's own.

    Args:
        query: Unit vectors `[n, dim]`.
        reference: Those that belong to the queries.
        labels: References with the label of a query are not its negatives.
        places: The references to choose from.

    Examples:
        >>> x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 1.0], [0.0, 1.0]]), dim=1)
        >>> nearest_below(x, x, torch.arange(4), torch.arange(4))[:, 0].tolist()  # the first two are too near
        [2, 2, 1, 2]
    """
    own = (query * reference).sum(1)
    found = torch.full((len(query), MOST), -1, device=query.device)
    for rows in torch.split(torch.arange(len(query), device=query.device), ROWS):
        similarity = query[rows] @ reference[places].T
        similarity[labels[rows, None] == labels[places]] = -torch.inf
        similarity[similarity > (1 - RELATIVE_MARGIN) * own[rows, None]] = -torch.inf
        scores, nearest = similarity.topk(min(MOST, len(places)), dim=1)
        found[rows, : scores.shape[1]] = torch.where(scores.isinf(), -1, places[nearest])
    return found
