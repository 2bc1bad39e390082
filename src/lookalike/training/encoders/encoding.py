"""The base class of all encoders: `encode` embeds any number of texts or images in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lookalike.training.loading import embed
from lookalike.utils.checks import checked_positive

if TYPE_CHECKING:
    from collections.abc import Sequence


class Encoder(nn.Module):
    """A network that turns samples into embeddings."""

    dim: int
    """Length of the embeddings."""

    def encode(self, samples: str | Sequence[str] | Tensor, *, batch_size: int = 64, normalize: bool = True) -> Tensor:
        """Embed samples without gradients, and leave the model in evaluation mode.

        Args:
            samples: Texts, or one text; for a model of images a tensor of what its `forward` takes.
            batch_size: Samples at a time; texts of similar length go together, so that few are padded.
            normalize: Return unit vectors, whose dot products are the cosines that training compared.

        Returns:
            float32 `[n, dim]` on the CPU, in the order of the samples; of one text `[dim]`.

        Raises:
            TypeError: The samples are neither texts nor a tensor.
        """
        checked_positive("batch_size", batch_size)
        if isinstance(samples, str):
            return self.encode([samples], batch_size=batch_size, normalize=normalize)[0]
        if not isinstance(samples, Tensor):
            samples = list(samples)
            wrong = next((type(each).__name__ for each in samples if not isinstance(each, str)), None)
            if wrong is not None:
                raise TypeError(f"encode takes a list of texts, or images as one tensor, got a list with a {wrong}.")
        if len(samples) == 0:
            return torch.empty(0, self.dim)
        found = embed(self, lambda ids: _chosen(samples, ids), len(samples), batch_size=batch_size).cpu()
        return nn.functional.normalize(found, dim=1) if normalize else found


def _chosen(samples: Any, ids: Tensor) -> Any:
    return samples[ids] if isinstance(samples, Tensor) else [samples[i] for i in ids.tolist()]
