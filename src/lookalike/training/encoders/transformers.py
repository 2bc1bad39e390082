"""Encoders from transformers: texts by mean pooling, and images, without torchvision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lookalike.training.encoders.adapters import add_lora, merged
from lookalike.training.encoders.encoding import NO_PROMPTS, Encoder
from lookalike.training.encoders.images import ImageEncoder
from lookalike.training.encoders.prompts import tower_prompts
from lookalike.utils.checks import checked_positive
from lookalike.utils.imports import text_library
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LENGTH = 256
PREPROCESSING = "preprocessor_config.json"
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation, unless the model says otherwise


def checkpoint_activations(model: Any) -> None:
    """Compute activations twice and keep fewer, by whichever name the installed transformers has for that."""
    renamed = [each for each in model.modules() if hasattr(each, "activation_checkpointing_enable")]
    if renamed:
        renamed[0].activation_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})


class TextEncoder(Encoder):
    """Embed a text as the mean of the last hidden states over its tokens.

    Args:
        network: A model of transformers.
        tokenizer: Its tokenizer.
        max_length: Tokens after which a text is cut off.
        prompts: What precedes the texts of a tower, "query" or "reference".
    """

    def __init__(
        self, network: Any, tokenizer: Any, max_length: int = MAX_LENGTH, prompts: Mapping[str, str] = NO_PROMPTS
    ) -> None:
        super().__init__()
        self.tower_prompts = dict(prompts)
        self.network, self.tokenizer, self.max_length = network, tokenizer, max_length
        self.dim = int(network.config.hidden_size)

    def prepare(self, texts: list[str], prompt: str = "") -> dict[str, Tensor]:
        """Tokenise texts, each after the prompt: ids and masks `[n, length]`, on the CPU."""
        whole = [prompt + text for text in texts]
        tokens = self.tokenizer(whole, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        return dict(tokens)

    def forward(self, texts: list[str] | dict[str, Tensor]) -> Tensor:
        """Turn texts, or what `prepare` returned for them, into embeddings `[n, dim]`."""
        tokens = texts if isinstance(texts, dict) else self.prepare(texts)
        device = next(self.network.parameters()).device
        tokens = {name: value.to(device) for name, value in tokens.items()}
        states = self.network(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].to(states.dtype)
        embeddings: Tensor = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        return embeddings

    def save_pretrained(self, folder: str) -> None:
        """Write model and tokenizer as `AutoModel.from_pretrained(folder)` reads them, with adapters merged."""
        with text_library("transformers"), merged(self.network):
            self.network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


class _Pooled(nn.Module):
    """Pool the output of a vision model to features `[n, dim]`."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.network(pixel_values=images)
        if outputs.get("pooler_output") is not None:
            return torch.flatten(outputs.pooler_output, 1)
        states: Tensor = outputs.last_hidden_state
        return states.mean(1) if states.ndim == 3 else states.mean((2, 3))


class PooledImageEncoder(ImageEncoder):
    """Wrap a vision model of transformers."""

    network: _Pooled

    def save_pretrained(self, folder: str) -> None:
        """Write the model as `AutoModel.from_pretrained(folder)` reads it, and the normalisation of images."""
        with text_library("transformers"), merged(self.network):
            self.network.network.save_pretrained(folder)
        normalisation = {"image_mean": self.mean.flatten().tolist(), "image_std": self.std.flatten().tolist()}
        (Path(folder) / PREPROCESSING).write_text(json.dumps(normalisation) + "\n", encoding="utf-8")


def load_encoder(
    name: str,
    *,
    max_length: int | None = None,
    pretrained: bool = True,
    gradient_checkpointing: bool = False,
    freeze_batch_norm: bool | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    lora: int | None = None,
    lora_alpha: float | None = None,
    lora_dropout: float = 0.0,
    lora_targets: str | Sequence[str] | None = None,
) -> nn.Module:
    """Load a model of transformers; the model decides whether it embeds texts or images.

    Args:
        name: The hub's name, or a folder. Code that comes with the model is never run.
        pretrained: Start from the pretrained weights; otherwise from random ones of the same architecture.
        max_length: For texts: tokens after which a text is cut off, 256 by default.
        gradient_checkpointing: Compute activations twice and keep fewer: slower, less memory.
        freeze_batch_norm: For images: see `ImageEncoder`; by default, true if there are trained statistics to keep.
        query_prompt: For texts: what precedes queries, such as "query: ".
        document_prompt: For texts: what precedes references, such as "passage: ".
        lora: Train adapters of this rank, and keep the weights of the model; see `add_lora`.
        lora_alpha: What the adapters' output is multiplied by, times the rank; by default twice the rank.
        lora_dropout: Probability of dropping an input of an adapter.
        lora_targets: The layers that get adapters; by default all linear ones.

    Raises:
        ImportError: transformers is missing, or peft, for adapters.
        ValueError: The model cannot be loaded, or takes no adapters.
    """
    if max_length is not None:
        checked_positive("max_length", max_length)
    folder = Path(name).expanduser()
    name = str(folder) if folder.is_dir() else name
    safely = {"trust_remote_code": False}  # unset, transformers asks and waits for an answer
    with text_library("transformers") as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(name, **safely)
            if pretrained:
                network = transformers.AutoModel.from_pretrained(name, dtype=torch.float32, weights_only=True, **safely)
            else:
                network = transformers.AutoModel.from_config(config, **safely)
            takes_images = network.main_input_name == "pixel_values"
            tokenizer = None if takes_images else transformers.AutoTokenizer.from_pretrained(name, **safely)
            normalisation = _normalisation(transformers, name) if takes_images else IMAGENET
        except Exception as error:
            raise ValueError(cannot_load("transformers", name, error)) from error
        if gradient_checkpointing:
            checkpoint_activations(network)
        for option, value, belongs in (
            ("max_length", max_length, not takes_images),
            ("query_prompt", query_prompt, not takes_images),
            ("document_prompt", document_prompt, not takes_images),
            ("freeze_batch_norm", freeze_batch_norm, takes_images),
        ):
            if value is not None and not belongs:
                takes = "images" if takes_images else "texts"
                raise ValueError(f"{name} takes {takes}, for which the option {option} has no effect.")
        if lora is not None:
            add_lora(network, name, rank=lora, alpha=lora_alpha, dropout=lora_dropout, targets=lora_targets)
        if not takes_images:
            prompts = tower_prompts({}, name, {"query_prompt": query_prompt, "document_prompt": document_prompt})
            return TextEncoder(network, tokenizer, max_length or MAX_LENGTH, prompts)
        dim = config.hidden_sizes[-1] if hasattr(config, "hidden_sizes") else config.hidden_size
        frozen = pretrained if freeze_batch_norm is None else freeze_batch_norm
        return PooledImageEncoder(_Pooled(network), dim, *normalisation, freeze_batch_norm=frozen)


def _normalisation(transformers: Any, name: str) -> tuple[Any, Any]:
    path = transformers.utils.cached_file(name, PREPROCESSING, _raise_exceptions_for_missing_entries=False)
    settings = {} if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    return settings.get("image_mean") or IMAGENET[0], settings.get("image_std") or IMAGENET[1]


def cannot_load(library: str, name: str, error: Exception) -> str:
    """Explain in one sentence why a model cannot be loaded."""
    if "trust_remote_code" in str(error) or "weights_only" in str(error):  # code of its own, or pickled weights
        return (
            f"{library} cannot load {name!r} without running code that comes with it, which lookalike never does; "
            "use a model with the library's own classes and weights in safetensors."
        )
    return (
        f"{library} cannot load {name!r}: {first_line(error)}; use the name of a model that is in its cache or "
        "can be downloaded, or the folder of a saved one."
    )
