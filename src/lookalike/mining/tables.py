"""Rows -> a `datasets.Dataset`, without a copy of all texts as Python lists."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Any

from lookalike.mining.encoding import checksum
from lookalike.mining.formats import Layout, rows
from lookalike.mining.options import FROM_TEXTS
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from lookalike.mining.texts import Mined

ROWS_AT_A_TIME = 1024


def as_dataset(mined: Mined, layout: Layout) -> Any:
    """The rows of a format of sentence-transformers; columns are there even where no row is."""
    datasets, pa = optional_import("datasets", *FROM_TEXTS), optional_import("pyarrow", *FROM_TEXTS)
    remaining, batches = rows(mined, layout), []
    schema = None
    while group := list(islice(remaining, ROWS_AT_A_TIME)):
        batch = pa.RecordBatch.from_pylist(group, schema=schema)
        schema = batch.schema
        batches.append(batch)
    if schema is None:
        return datasets.Dataset.from_dict({name: [] for name in layout.names(mined.indices.shape[1])})
    # Left to find its own fingerprint, the data set would copy the whole table several times.
    return datasets.Dataset(pa.Table.from_batches(batches), fingerprint=_fingerprint(mined, layout))


def _fingerprint(mined: Mined, layout: Layout) -> str:
    """Of everything that the rows are made of."""
    digest = hashlib.sha256(f"{layout} {checksum(mined.pairs.queries)} {checksum(mined.pairs.corpus)}".encode())
    for tensor in (mined.pairs.offsets, mined.pairs.positives, mined.indices, mined.scores, mined.positive_scores):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]
