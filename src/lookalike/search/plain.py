"""Search in plain torch, which the other backends are tested against."""

import torch
from torch import Tensor

from lookalike.hashing import Scheme
from lookalike.search.request import Neighbours, Request

CHUNK_BYTES = 1 << 26


def popcount(values: Tensor) -> Tensor:
    """Count the set bits of each uint8."""
    values = values - ((values >> 1) & 0x55)
    values = (values & 0x33) + ((values >> 2) & 0x33)
    return (values + (values >> 4)) & 0x0F


def hamming_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return the distances of all pairs: uint8 [..., p, bytes] and [..., q, bytes] -> int32 [..., p, q]."""
    return popcount(a.unsqueeze(-2) ^ b.unsqueeze(-3)).sum(-1, dtype=torch.int32)


def scalar_distances(a: Tensor, b: Tensor, scheme: Scheme) -> Tensor:
    """Return the distances of all pairs of codes of several bits: uint8 [p, bytes] and [q, bytes] -> int32 [p, q]."""
    rows, columns = scheme.unpack(a), scheme.unpack(b)
    products = (rows.values.double() @ columns.values.double().T).to(torch.int32)  # exact, on any device
    rows = rows._replace(factors=rows.factors[:, None], offsets=rows.offsets[:, None])
    return scheme.distances(products, rows, columns)


def topk(request: Request) -> Neighbours:
    """Answer a request: the `plain` backend."""
    chunk = max(1, CHUNK_BYTES // request.reference.numel())
    parts = [_topk(request, i, min(i + chunk, request.num_queries)) for i in range(0, request.num_queries, chunk)]
    return Neighbours(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _topk(request: Request, first: int, last: int) -> Neighbours:
    excluded = request.farthest + 1
    query, reference = request.query[first:last], request.reference
    if request.scheme is None:
        distances = hamming_distances(query, reference)  # [chunk, n]
    else:
        distances = scalar_distances(query, reference, request.scheme)
    if request.query_labels is not None and request.reference_labels is not None:
        distances[request.query_labels[first:last, None] == request.reference_labels] = excluded
    distances[request.excluded_pairs(first, last)] = excluded
    if request.limits is not None:
        distances[distances > request.limits[first:last, None]] = excluded
    distances, indices = distances.sort(dim=1, stable=True)  # stable: ties stay in order of id
    distances, indices = distances[:, : request.k], indices[:, : request.k]
    absent = distances == excluded
    missing = request.k - distances.shape[1]
    return Neighbours(
        torch.nn.functional.pad(distances.masked_fill(absent, -1), (0, missing), value=-1),
        torch.nn.functional.pad(indices.masked_fill(absent, -1), (0, missing), value=-1),
    )
