"""Search a reference that is larger than memory: exact neighbours, page by page."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from lookalike.search import BACKENDS, answer
from lookalike.search.merging import keep_nearest
from lookalike.search.pages import Page, read_ahead
from lookalike.search.request import Neighbours, Request, checked_request
from lookalike.utils.checks import check_choice
from lookalike.utils.lists import checked_lists, lists_within
from lookalike.utils.tensors import checked_codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lookalike.hashing import Scheme

MOST_IDS = 1 << 40


def streamed_topk(
    query: Any,
    pages: Iterable[Page],
    k: int,
    *,
    query_labels: Any = None,
    exclude: tuple[Any, Any] | None = None,
    device: str | torch.device | None = None,
    backend: str = "auto",
    limits: Any = None,
    narrow: bool = False,
    scheme: Scheme | None = None,
) -> Neighbours:
    """Find the k codes nearest to each query, exactly, in a reference that arrives in pages.

    The answer is that of `hamming_topk` on all pages together or, with a scheme, of `scalar_topk`. The k-th distance so
    far limits the search of the next page. While one page is searched, a thread reads the next one and copies it to the
    device; no more than two are in memory.

    Args:
        query: Packed codes, uint8 `[q, bits / 8]`. They stay on the device.
        pages: Pages in ascending order of id, such as `CodePages`. A page's codes may be overwritten once the page
            after next is asked for.
        k: Neighbours per query.
        query_labels: Integers `[q]`; pages then have labels too, and rows with the query's label are left out.
        exclude: Ids to leave out, per query, as a CSR pair.
        device: Where to search; by default where the queries are.
        backend: As for `hamming_topk`.
        limits: The largest distance that counts, per query.
        narrow: Whether indices are int32 rather than int64.
        scheme: What reads codes of several bits per dimension; sign codes have none.

    Returns:
        `Neighbours(distances, indices)`, `[q, k]`, on the device of the search.

    Raises:
        TypeError: As for `hamming_topk`.
        ValueError: As for `hamming_topk`, or pages are not in order.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> streamed_topk(codes[:1], [Page(0, codes[:3]), Page(3, codes[3:])], k=4).distances.tolist()
        [[0, 1, 3, 4]]
    """
    check_choice("backend", backend, ("auto", *BACKENDS))
    query = checked_codes("query", query)
    query = query.to(query.device if device is None else device)
    labels = (query_labels, None if query_labels is None else torch.empty(0, dtype=torch.int64))
    request = checked_request(query, query[:0], k, labels, limits=limits, narrow=narrow, scheme=scheme)
    if exclude is not None:
        exclude = checked_lists("exclude", exclude, len(query), MOST_IDS, query.device)
    absent = torch.full((len(query), request.k), -1, dtype=torch.int32, device=query.device)
    best = Neighbours(absent, absent.to(torch.int32 if narrow else torch.int64, copy=True))
    with closing(read_ahead(pages, query.shape[1], query.device)) as ahead:
        for page in ahead:
            if len(page.codes):
                found = answer(_request_for(page, replace(request, exclude=exclude), best), backend)
                keep_nearest(best, found, page.first)
                del found
                if query.is_cuda:
                    torch.cuda.current_stream(query.device).synchronize()  # the page is no longer needed
            del page  # before the page after next is read
    return best


def _request_for(page: Page, request: Request, best: Neighbours) -> Request:
    """Return the search of a page: neighbours must be nearer than the k-th so far, because their ids are larger."""
    first, end = page.first, page.first + len(page.codes)
    if end > torch.iinfo(best.indices.dtype).max:
        raise ValueError(f"a page ends with id {end - 1}, which {best.indices.dtype} indices cannot hold.")
    if (request.query_labels is None) != (page.labels is None):
        which = "no labels, but the queries have" if page.labels is None else "labels, but the queries have none"
        raise ValueError(f"the page from id {first} has {which}: one alone excludes nothing.")
    exclude = None if request.exclude is None else lists_within(request.exclude, first, end)
    if exclude is not None and not len(exclude[1]):
        exclude = None
    farthest = best.distances[:, -1]
    limits = request.limits
    if bool((farthest >= 0).any()):
        unlimited = torch.full_like(farthest, request.farthest) if limits is None else limits
        limits = torch.where(farthest < 0, unlimited, farthest - 1)
    return replace(request, reference=page.codes, reference_labels=page.labels, exclude=exclude, limits=limits)
