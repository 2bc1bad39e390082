"""Text encoders from sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lookalike.training.encoders.encoding import Encoder
from lookalike.training.encoders.transformers import cannot_load, checkpoint_activations
from lookalike.utils.checks import checked_positive
from lookalike.utils.imports import sentence_transformers


class SentenceEncoder(Encoder):
    """Embed texts with a sentence-transformers model.

    Args:
        name: The hub's name, or a folder. Code that comes with the model is never run.
        max_length: Tokens after which a text is cut off; by default, what the model says.
        gradient_checkpointing: Compute activations twice and keep fewer: slower, less memory.

    Raises:
        ImportError: sentence-transformers is missing or too old.
        ValueError: The model cannot be loaded.
    """

    def __init__(self, name: str, *, max_length: int | None = None, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        if max_length is not None:
            checked_positive("max_length", max_length)
        folder = Path(name).expanduser()
        with sentence_transformers() as library:
            try:
                model = library.SentenceTransformer(
                    str(folder) if folder.is_dir() else name,
                    device="cpu",
                    trust_remote_code=False,
                    model_kwargs={"dtype": torch.float32},
                )
            except Exception as error:
                raise ValueError(cannot_load("sentence-transformers", name, error)) from error
        self.model: Any = model.float()  # modules after the transformer may have been saved in half precision
        if max_length is not None:
            model.max_seq_length = max_length
        if gradient_checkpointing:
            checkpoint_activations(model)
        with torch.no_grad():
            self.dim = int(self([""]).shape[1])

    def prepare(self, texts: list[str]) -> dict[str, Any]:
        """Tokenise texts: ids and masks `[n, length]`, on the CPU."""
        return dict(self.model.preprocess(list(texts)))

    def forward(self, texts: list[str] | dict[str, Any]) -> Tensor:
        """Turn texts, or what `prepare` returned for them, into embeddings `[n, dim]`."""
        tokens = texts if isinstance(texts, dict) else self.prepare(texts)
        device = next(self.model.parameters()).device
        on_device = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in tokens.items()}
        embeddings: Tensor = self.model(on_device)["sentence_embedding"]
        return embeddings

    def save_pretrained(self, folder: str) -> None:
        """Write the model as `SentenceTransformer(folder)` reads it."""
        with sentence_transformers():
            self.model.save_pretrained(folder, create_model_card=False)
