"""What the bits do: how close the retrieved neighbours are to the true ones."""

import torch
from torch import Tensor


def overlap(found: Tensor, true: Tensor) -> Tensor:
    """The share of each query's true neighbours that were found, float64 `[q]`. Entries of -1 do not count.

    Example:
        >>> import torch
        >>> overlap(torch.tensor([[3, 1, 7]]), torch.tensor([[1, 2, 3]])).tolist()
        [0.6666666666666666]
    """
    pairs = torch.cat([found, true], dim=1).sort(dim=1).values  # an id that stands in both stands twice in a row
    common = ((pairs[:, 1:] == pairs[:, :-1]) & (pairs[:, 1:] >= 0)).sum(1)
    return common / (true >= 0).sum(1).clamp(min=1).double()
