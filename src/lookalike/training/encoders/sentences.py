"""Text encoders from sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.training.encoders.adapters import add_lora, merged
from lookalike.training.encoders.encoding import Encoder
from lookalike.training.encoders.prompts import by_their_names, tower_prompts
from lookalike.training.encoders.transformers import cannot_load, checkpoint_activations
from lookalike.utils.checks import checked_positive
from lookalike.utils.imports import sentence_transformers

if TYPE_CHECKING:
    from collections.abc import Sequence


class SentenceEncoder(Encoder):
    """Embed texts with a sentence-transformers model.

    Args:
        name: The hub's name, or a folder. Code that comes with the model is never run.
        max_length: Tokens after which a text is cut off; by default, what the model says.
        gradient_checkpointing: Compute activations twice and keep fewer: slower, less memory.
        query_prompt: What precedes the texts of queries, such as "query: "; by default the model's own prompt for
            queries, if it has one, as `SentenceTransformer.encode_query` chooses it. An empty text stands for none.
        query_prompt_name: The name of one of the model's prompts instead.
        document_prompt: Likewise for references, as `SentenceTransformer.encode_document` chooses it.
        document_prompt_name: The name of one of the model's prompts instead.
        lora: Train adapters of this rank, and keep the weights of the model; see `add_lora`.
        lora_alpha: What the adapters' output is multiplied by, times the rank; by default twice the rank.
        lora_dropout: Probability of dropping an input of an adapter.
        lora_targets: The layers that get adapters; by default all linear ones.

    Raises:
        ImportError: sentence-transformers is missing or too old, or peft is missing.
        ValueError: The model cannot be loaded, has no prompt of that name, or takes no adapters.
    """

    def __init__(
        self,
        name: str,
        *,
        max_length: int | None = None,
        gradient_checkpointing: bool = False,
        query_prompt: str | None = None,
        query_prompt_name: str | None = None,
        document_prompt: str | None = None,
        document_prompt_name: str | None = None,
        lora: int | None = None,
        lora_alpha: float | None = None,
        lora_dropout: float = 0.0,
        lora_targets: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        prompts = {
            "query_prompt": query_prompt,
            "query_prompt_name": query_prompt_name,
            "document_prompt": document_prompt,
            "document_prompt_name": document_prompt_name,
        }
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
        self.tower_prompts = tower_prompts(model.prompts, name, prompts)
        model.prompts |= by_their_names(self.tower_prompts)  # so that encode_query and encode_document use them
        if max_length is not None:
            model.max_seq_length = max_length
        if gradient_checkpointing:
            checkpoint_activations(model)
        if lora is not None:
            network = getattr(model, "transformers_model", None)
            if network is None:
                raise ValueError(f"{name} holds no model of transformers, so lora= has nothing to adapt: leave it out.")
            add_lora(network, name, rank=lora, alpha=lora_alpha, dropout=lora_dropout, targets=lora_targets)
        with torch.no_grad():
            self.dim = int(self([""]).shape[1])

    def prepare(self, texts: list[str], prompt: str | None = None) -> dict[str, Any]:
        """Tokenise texts, each after the prompt: ids and masks `[n, length]`, on the CPU."""
        return dict(self.model.preprocess(list(texts), prompt=prompt))

    def forward(self, texts: list[str] | dict[str, Any]) -> Tensor:
        """Turn texts, or what `prepare` returned for them, into embeddings `[n, dim]`."""
        tokens = texts if isinstance(texts, dict) else self.prepare(texts)
        device = next(self.model.parameters()).device
        on_device = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in tokens.items()}
        embeddings: Tensor = self.model(on_device)["sentence_embedding"]
        return embeddings

    def save_pretrained(self, folder: str) -> None:
        """Write the model as `SentenceTransformer(folder)` reads it, with adapters merged into its weights."""
        with sentence_transformers(), merged(self.model):
            self.model.save_pretrained(folder, create_model_card=False)
