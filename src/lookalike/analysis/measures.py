"""How close the neighbours that bits retrieve are to the true ones."""

import torch
from torch import Tensor


def overlap(found: Tensor, true: Tensor) -> Tensor:
    """The share of each query's true neighbours that were found, float64 `[q]`. Entries of -1 do not count.

    Examples:
        >>> import torch
        >>> overlap(torch.tensor([[3, 1, 7]]), torch.tensor([[1, 2, 3]])).tolist()
        [0.6666666666666666]
    """
    pairs = torch.cat([found, true], dim=1).sort(dim=1).values  # an id that stands in both stands twice in a row
    common = ((pairs[:, 1:] == pairs[:, :-1]) & (pairs[:, 1:] >= 0)).sum(1)
    return common / (true >= 0).sum(1).clamp(min=1).double()


def positional_distance(found: Tensor, similarity: Tensor, ascending: Tensor | None = None) -> Tensor:
    """How far, on average, a retrieved neighbour stands from its place in the true ranking: float64 `[q]`.

    Args:
        found: int64 `[q, k]`, nearest first, -1 for none.
        similarity: Of each query to all rows, float `[q, n]`, minus infinity for rows that are left out.
        ascending: The same, sorted, where it is at hand.

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
    """Where retrieved neighbours lie against eps, the angle of the last true neighbour: shares that add up to one.

    `within_eps`: not farther than it; `within_a_eps`: farther, but not a times as far; `beyond`: farther than that.
    """
    angles = torch.arccos(similarity.gather(1, found.clamp(min=0)).double().clamp(-1, 1))
    last = similarity.gather(1, true.clamp(min=0)).double().where(true >= 0, torch.inf).amin(1, keepdim=True)
    eps = torch.arccos(last.clamp(-1, 1))
    present = found >= 0
    total = present.sum().clamp(min=1)
    within = ((angles <= eps) & present).sum() / total
    near = ((angles > eps) & (angles <= a * eps) & present).sum() / total
    return {"within_eps": float(within), "within_a_eps": float(near), "beyond": float(1 - within - near)}
