"""Measures of how close the neighbours that codes retrieve are to the true ones."""

import torch
from torch import Tensor

NEIGHBOURS = 128  # per anchor: what the paper mines and measures, and what the samplers search for


def overlap(found: Tensor, true: Tensor) -> Tensor:
    """Return the fraction of each query's true neighbours that were found, float64 `[q]`; entries of -1 do not count.

    Examples:
        >>> import torch
        >>> overlap(torch.tensor([[3, 1, 7]]), torch.tensor([[1, 2, 3]])).tolist()
        [0.6666666666666666]
    """
    pairs = torch.cat([found, true], dim=1).sort(dim=1).values  # ids in both become adjacent
    common = ((pairs[:, 1:] == pairs[:, :-1]) & (pairs[:, 1:] >= 0)).sum(1)
    return common / (true >= 0).sum(1).clamp(min=1).double()


def positional_distance(found: Tensor, similarity: Tensor, ascending: Tensor | None = None) -> Tensor:
    """Return how far a retrieved neighbour is from its place in the true ranking, on average: float64 `[q]`.

    Args:
        found: int64 `[q, k]`, nearest first, -1 for none.
        similarity: Similarity of each query to all rows, float `[q, n]`, minus infinity for excluded rows.
        ascending: The same, sorted, if the caller has it.

    Examples:
        >>> import torch
        >>> positional_distance(torch.tensor([[2, 0]]), torch.tensor([[0.9, 0.5, 0.7, 0.8]])).tolist()
        [1.5]
    """
    if ascending is None:
        ascending = similarity.sort(dim=1).values
    own = similarity.gather(1, found.clamp(min=0))
    places = similarity.shape[1] - torch.searchsorted(ascending, own, right=True)  # rows that are more similar
    shifts = (places - torch.arange(found.shape[1], device=found.device)).abs().double()
    present = found >= 0
    return (shifts * present).sum(1) / present.sum(1).clamp(min=1)


def bound_usage(found: Tensor, true: Tensor, similarity: Tensor, a: float = 1.1) -> dict[str, float]:
    """Return the fractions of retrieved neighbours by angle, relative to eps, the angle of the last true neighbour.

    `within_eps`: up to eps; `within_a_eps`: above eps, up to a * eps; `beyond`: above a * eps. They add up to one.
    """
    angles = torch.arccos(similarity.gather(1, found.clamp(min=0)).double().clamp(-1, 1))
    last = similarity.gather(1, true.clamp(min=0)).double().where(true >= 0, torch.inf).amin(1, keepdim=True)
    eps = torch.arccos(last.clamp(-1, 1))
    present = found >= 0
    total = present.sum().clamp(min=1)
    within = ((angles <= eps) & present).sum() / total
    near = ((angles > eps) & (angles <= a * eps) & present).sum() / total
    return {"within_eps": float(within), "within_a_eps": float(near), "beyond": max(0.0, float(1 - within - near))}
