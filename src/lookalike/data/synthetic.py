"""Embeddings with the structure of real ones, made from a seed."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def clustered_embeddings(
    n: int, dim: int = 256, *, classes: int | None = None, offset: float = 0.5, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Normalised embeddings of classes within topics, and their labels.

    As in trained encoders, the variance falls with the direction (a few directions carry most of it), classes of one
    topic lie close together, which is what makes negatives hard, and all embeddings share a common offset.

    Args:
        n: Number of samples.
        dim: Dimension.
        classes: Number of classes; by default one per five samples.
        offset: Length of the common offset in units of the spread.
        seed: Decides everything.

    Returns:
        Embeddings, float32 `[n, dim]`, and labels, int64 `[n]`.

    Examples:
        >>> x, labels = clustered_embeddings(1000, dim=64)
        >>> x.shape, labels.shape
        (torch.Size([1000, 64]), torch.Size([1000]))
    """
    generator = torch.Generator().manual_seed(seed)
    classes = max(1, n // 5) if classes is None else classes
    topics = max(1, classes // 20)
    scales = (1 + torch.arange(dim)) ** -0.4
    scales *= (dim / scales.square().sum()).sqrt()

    def draw(count: int) -> Tensor:
        return torch.randn(count, dim, generator=generator) * scales

    class_topics = torch.randint(topics, (classes,), generator=generator)
    labels = torch.randint(classes, (n,), generator=generator)
    centres = 0.6 * draw(topics)[class_topics] + 0.6 * draw(classes)
    common = offset * dim**0.5 * normalize(draw(1))
    return normalize(centres[labels] + 0.5 * draw(n) + common), labels
