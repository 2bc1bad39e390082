"""Draw synthetic embeddings with the structure of real ones."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def clustered_embeddings(
    n: int, dim: int = 256, *, classes: int | None = None, offset: float = 0.5, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw normalised embeddings of classes within topics, and their labels.

    As in trained encoders, a few directions carry most of the variance, classes of one topic lie close together, which
    makes negatives hard, and all embeddings share an offset.

    Args:
        n: Number of samples.
        dim: Dimension.
        classes: Number of classes; by default one per five samples.
        offset: Length of the shared offset, in units of the spread.
        seed: Seed of all draws.

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
