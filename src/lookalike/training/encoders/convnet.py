"""A small convolutional network in plain torch, for glyphs."""

import torch
from torch import Tensor, nn

from lookalike.training.encoders.encoding import Encoder
from lookalike.utils.checks import checked_positive

GROUPS = 8  # of channels, for group normalisation


class ConvNet(Encoder):
    """A small convolutional network for grey images of 32 x 32 pixels.

    It uses group normalisation: in a batch of lookalikes, batch normalisation would subtract what they have in common,
    and embeddings of different batches could not be compared.

    Args:
        width: Channels of the first stage, a multiple of 8; the last has four times as many.
        dim: Length of the embeddings.

    Examples:
        >>> import torch
        >>> ConvNet(width=8, dim=64)(torch.zeros(2, 1, 32, 32)).shape
        torch.Size([2, 64])
    """

    def __init__(self, width: int = 32, dim: int = 256) -> None:
        super().__init__()
        checked_positive("width", width)
        checked_positive("dim", dim)
        if width % GROUPS:
            raise ValueError(f"width must be a multiple of {GROUPS}, got {width}.")
        self.dim = dim
        layers = _convolution(1, width, kernel=4, stride=2)
        for channels, out in ((width, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [*_convolution(channels, out), *_convolution(out, out), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(4 * width * 4, dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster, on a CPU too

    def forward(self, images: Tensor) -> Tensor:
        """Turn floats `[n, 1, 32, 32]` into embeddings `[n, dim]`."""
        features = self.features(images.contiguous(memory_format=torch.channels_last))
        embeddings: Tensor = self.head(features.flatten(1))
        return embeddings


def _convolution(channels: int, out: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, kernel, stride, padding=1, bias=False), nn.GroupNorm(GROUPS, out), nn.ReLU()]
