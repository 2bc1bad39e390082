"""The base class of all encoders: `encode` embeds any number of texts or images in one call."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lookalike.training.loading import embed
from lookalike.utils.checks import checked_positive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_PROMPTS: Mapping[str, str] = MappingProxyType({})


class Encoder(nn.Module):
    """A network that turns samples into embeddings."""

    dim: int
    """Length of the embeddings."""
    tower_prompts: Mapping[str, str] = NO_PROMPTS
    """What precedes the texts of a tower, "query" or "reference"."""

    def encode(self, samples: str | Sequence[str] | Tensor, *, batch_size: int = 64, normalize: bool = True) -> Tensor:
        """Embed samples without gradients, and leave the model in evaluation mode; texts get no prompt.

        Args:
            samples: Texts, or one text; for a model of images a tensor of what its `forward` takes.
            batch_size: Samples at a time; texts of similar length go together, so that few are padded.
            normalize: Return unit vectors, whose dot products are the cosines that training compared.

        Returns:
            float32 `[n, dim]` on the CPU, in the order of the samples; of one text `[dim]`.

        Raises:
            TypeError: The samples are not what the model embeds.
        """
        return self._encoded(samples, None, batch_size, normalize)

    def encode_query(
        self, samples: str | Sequence[str] | Tensor, *, batch_size: int = 64, normalize: bool = True
    ) -> Tensor:
        """Embed queries as `encode` does, texts with the prompt of queries if the model has one."""
        return self._encoded(samples, "query", batch_size, normalize)

    def encode_document(
        self, samples: str | Sequence[str] | Tensor, *, batch_size: int = 64, normalize: bool = True
    ) -> Tensor:
        """Embed references as `encode` does, texts with the prompt of documents if the model has one."""
        return self._encoded(samples, "reference", batch_size, normalize)

    def _encoded(
        self, samples: str | Sequence[str] | Tensor, tower: str | None, batch_size: int, normalize: bool
    ) -> Tensor:
        checked_positive("batch_size", batch_size)
        of_texts = hasattr(self, "prepare")
        what = "texts" if of_texts else "images, as one tensor [n, channels, height, width]"
        if isinstance(samples, str) and of_texts:
            return self._encoded([samples], tower, batch_size, normalize)[0]
        if isinstance(samples, Tensor):
            if of_texts or samples.ndim != 4:
                raise TypeError(f"this model embeds {what}, got a tensor {list(samples.shape)}.")
        else:
            samples = list(samples) if isinstance(samples, Iterable) else [samples]
            wrong = next((type(each).__name__ for each in samples if not (of_texts and isinstance(each, str))), None)
            if wrong is not None:
                raise TypeError(f"this model embeds {what}, got a list with a {wrong}.")
        if len(samples) == 0:
            return torch.empty(0, self.dim)
        view = partial(_chosen, samples)
        found = embed(self, view, len(samples), tower=tower, batch_size=batch_size).cpu()
        return nn.functional.normalize(found, dim=1) if normalize else found


def _chosen(samples: Any, ids: Tensor) -> Any:
    return samples[ids] if isinstance(samples, Tensor) else [samples[i] for i in ids.tolist()]
